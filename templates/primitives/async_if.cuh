// A copy that writes zeros, and does not touch its source, where the address lies outside the operand.
template <int WIDTH>
__device__ __forceinline__ void copy_async_if(float* shared, const float* global, bool inside)
{
    const unsigned target = __cvta_generic_to_shared(shared);
    const int bytes = inside ? 4 * WIDTH : 0;
    if (WIDTH == 4)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(target), "l"(global), "r"(bytes));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" :: "r"(target), "l"(global), "n"(4 * WIDTH), "r"(bytes));
}
