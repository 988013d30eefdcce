// Host twin of atomic.cuh.
template <int WIDTH>
inline void add_global(float* address, Vector<WIDTH> value, int line = __builtin_LINE())
{
    emulate::add_global(address, WIDTH, value.at, line);
}
