// Host twin of mbarrier.cuh.
using emulate::Mbarrier;

inline void barrier_init(Mbarrier* barrier, int arrivals, int line = __builtin_LINE())
{
    emulate::barrier_init(barrier, arrivals, line);
}

inline void fence_barrier_init()
{
    emulate::fence_barrier_init();
}

inline void barrier_expect(Mbarrier* barrier, int bytes, int line = __builtin_LINE())
{
    emulate::barrier_expect(barrier, bytes, line);
}

inline void barrier_arrive(Mbarrier* barrier, int line = __builtin_LINE())
{
    emulate::barrier_arrive(barrier, line);
}

inline void barrier_wait(Mbarrier* barrier, int parity, int line = __builtin_LINE())
{
    emulate::barrier_wait(barrier, parity, line);
}

inline void fence_async()
{
    emulate::fence_async();
}
