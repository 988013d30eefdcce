// Host twin of workspace.cuh.
template <int WIDTH>
inline Vector<WIDTH> load_workspace(const float* address, int line = __builtin_LINE())
{
    Vector<WIDTH> value;
    emulate::load_workspace(address, WIDTH, value.at, line);
    return value;
}

template <int WIDTH>
inline void store_workspace(float* address, Vector<WIDTH> value, int line = __builtin_LINE())
{
    emulate::store_workspace(address, WIDTH, value.at, line);
}
