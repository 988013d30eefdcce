// Global to shared memory past the registers: each is one LDGSTS of 4 * WIDTH bytes. Nobody may look at the target
// before wait_async has promised it to the copying thread, and a barrier to the others.
template <int WIDTH>
__device__ __forceinline__ void copy_async(float* shared, const float* global)
{
    const unsigned target = __cvta_generic_to_shared(shared);
    if (WIDTH == 4)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(target), "l"(global));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(target), "l"(global), "n"(4 * WIDTH));
}

// Closes a group of copies of this thread.
__device__ __forceinline__ void commit_async()
{
    asm volatile("cp.async.commit_group;");
}

// All groups of this thread but the GROUPS newest have arrived.
template <int GROUPS>
__device__ __forceinline__ void wait_async()
{
    asm volatile("cp.async.wait_group %0;" :: "n"(GROUPS) : "memory");
}
