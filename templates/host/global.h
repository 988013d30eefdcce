// Host twin of global.cuh.
template <int WIDTH>
inline Vector<WIDTH> load_global(const float* address, int line = __builtin_LINE())
{
    Vector<WIDTH> value;
    emulate::load_global(address, WIDTH, value.at, line);
    return value;
}

template <int WIDTH>
inline void store_global(float* address, Vector<WIDTH> value, int line = __builtin_LINE())
{
    emulate::store_global(address, WIDTH, value.at, line);
}
