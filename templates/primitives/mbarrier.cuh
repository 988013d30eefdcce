// A barrier in shared memory that counts arrivals of threads and bytes of bulk copies, phase after phase.
struct alignas(8) Mbarrier {
    unsigned long long state;
};

__device__ __forceinline__ unsigned place_of(Mbarrier* barrier)
{
    return __cvta_generic_to_shared(barrier);
}

__device__ __forceinline__ void barrier_init(Mbarrier* barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(place_of(barrier)), "r"(arrivals) : "memory");
}

// The copy engine sees the barriers that this thread has initialised.
__device__ __forceinline__ void fence_barrier_init()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// One arrival, and so many bytes of bulk copies still to come in this phase.
__device__ __forceinline__ void barrier_expect(Mbarrier* barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(place_of(barrier)), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_arrive(Mbarrier* barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(place_of(barrier)) : "memory");
}

// Until the phase of this parity is over: the first has parity 0. What arrived in it is visible then.
__device__ __forceinline__ void barrier_wait(Mbarrier* barrier, int parity)
{
    asm volatile(
        "{\n"
        ".reg .pred over;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
        "@!over bra again;\n"
        "}" :: "r"(place_of(barrier)), "r"(parity) : "memory");
}

// What this thread has read and written so far comes before bulk copies that are issued after a later barrier.
__device__ __forceinline__ void fence_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
