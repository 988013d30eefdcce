// A load that does not happen, and gives zeros, where the address lies outside the operand.
template <int WIDTH>
__device__ __forceinline__ Vector<WIDTH> load_global_if(const float* address, bool inside)
{
    Vector<WIDTH> value = {};
    if (inside)
        value = load_global<WIDTH>(address);
    return value;
}
