// The value of the lane whose number differs in the bits of `mask`; every lane of the warp takes part.
__device__ __forceinline__ float shuffle_xor(float value, int mask)
{
    return __shfl_xor_sync(0xffffffffu, value, mask);
}
