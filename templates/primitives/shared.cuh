// Shared memory: each is one LDS or STS of 4 * WIDTH bytes.
template <int WIDTH>
__device__ __forceinline__ Vector<WIDTH> load_shared(const float* address)
{
    return *reinterpret_cast<const Vector<WIDTH>*>(address);
}

template <int WIDTH>
__device__ __forceinline__ void store_shared(float* address, Vector<WIDTH> value)
{
    *reinterpret_cast<Vector<WIDTH>*>(address) = value;
}
