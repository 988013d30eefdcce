// Global memory: each is one LDG or STG of 4 * WIDTH bytes.
template <int WIDTH>
__device__ __forceinline__ Vector<WIDTH> load_global(const float* address)
{
    return *reinterpret_cast<const Vector<WIDTH>*>(address);
}

template <int WIDTH>
__device__ __forceinline__ void store_global(float* address, Vector<WIDTH> value)
{
    *reinterpret_cast<Vector<WIDTH>*>(address) = value;
}
