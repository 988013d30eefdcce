// Adds to global memory, in any order with others: one RED of 4 * WIDTH bytes; more than 4 need sm_90.
template <int WIDTH>
__device__ __forceinline__ void add_global(float* address, Vector<WIDTH> value)
{
    if constexpr (WIDTH == 4)
        asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], { %1, %2, %3, %4 };"
            :: "l"(address), "f"(value.at[0]), "f"(value.at[1]), "f"(value.at[2]), "f"(value.at[3]) : "memory");
    else if constexpr (WIDTH == 2)
        asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], { %1, %2 };"
            :: "l"(address), "f"(value.at[0]), "f"(value.at[1]) : "memory");
    else
        asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" :: "l"(address), "f"(value.at[0]) : "memory");
}
