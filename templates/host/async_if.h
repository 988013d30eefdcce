// Host twin of async_if.cuh.
template <int WIDTH>
inline void copy_async_if(float* shared, const float* global, bool inside, int line = __builtin_LINE())
{
    emulate::copy_async(shared, global, WIDTH, inside, line);
}
