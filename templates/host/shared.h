// Host twin of shared.cuh.
template <int WIDTH>
inline Vector<WIDTH> load_shared(const float* address, int line = __builtin_LINE())
{
    Vector<WIDTH> value;
    emulate::load_shared(address, WIDTH, value.at, line);
    return value;
}

template <int WIDTH>
inline void store_shared(float* address, Vector<WIDTH> value, int line = __builtin_LINE())
{
    emulate::store_shared(address, WIDTH, value.at, line);
}
