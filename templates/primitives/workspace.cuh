// Global memory through which blocks hand data to one another: each is one LDG or STG of 4 * WIDTH bytes. Loads pass
// by the L1 cache, which may hold what lay there before another SM wrote.
template <int WIDTH>
__device__ __forceinline__ Vector<WIDTH> load_workspace(const float* address)
{
    Vector<WIDTH> value;
    if constexpr (WIDTH == 4)
        asm volatile("ld.global.cg.v4.f32 { %0, %1, %2, %3 }, [%4];"
            : "=f"(value.at[0]), "=f"(value.at[1]), "=f"(value.at[2]), "=f"(value.at[3]) : "l"(address) : "memory");
    else if constexpr (WIDTH == 2)
        asm volatile("ld.global.cg.v2.f32 { %0, %1 }, [%2];" : "=f"(value.at[0]), "=f"(value.at[1]) : "l"(address) : "memory");
    else
        asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value.at[0]) : "l"(address) : "memory");
    return value;
}

template <int WIDTH>
__device__ __forceinline__ void store_workspace(float* address, Vector<WIDTH> value)
{
    *reinterpret_cast<Vector<WIDTH>*>(address) = value;
}
