// Counts a block's arrival; gives how many arrived before it, and returns to zero after `last`. What the block wrote
// before a barrier that comes before is seen after a barrier that comes behind by whoever arrives later.
__device__ __forceinline__ unsigned count_arrival(unsigned* counter, unsigned last)
{
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(last) : "memory");
    return before;
}
