// All lanes of the warp have arrived, and see one another's memory.
__device__ __forceinline__ void warp_barrier()
{
    __syncwarp();
}
