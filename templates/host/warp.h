// Host twin of warp.cuh.
inline void warp_barrier(int line = __builtin_LINE())
{
    emulate::warp_barrier(line);
}
