// All threads of the block have arrived, and see one another's shared memory.
__device__ __forceinline__ void barrier()
{
    __syncthreads();
}
