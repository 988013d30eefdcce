// Host twin of barrier.cuh.
inline void barrier(int line = __builtin_LINE())
{
    emulate::barrier(line);
}
