// Host twin of shuffle.cuh.
namespace emulate {
inline float exchanged[1024];
}

inline float shuffle_xor(float value, int mask, int line = __builtin_LINE())
{
    emulate::exchanged[threadIdx.x] = value;
    emulate::warp_barrier(line);
    const float other = emulate::exchanged[threadIdx.x ^ unsigned(mask)];
    emulate::warp_barrier(line);
    return other;
}
