// Host twin of async.cuh.
template <int WIDTH>
inline void copy_async(float* shared, const float* global, int line = __builtin_LINE())
{
    emulate::copy_async(shared, global, WIDTH, true, line);
}

inline void commit_async()
{
    emulate::commit_async();
}

template <int GROUPS>
inline void wait_async(int line = __builtin_LINE())
{
    emulate::wait_async(GROUPS, line);
}
