// All threads of the cluster have arrived, and see one another's shared memory.
__device__ __forceinline__ void cluster_barrier()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The same place of another block's shared memory: one LD of 4 * WIDTH bytes.
template <int WIDTH>
__device__ __forceinline__ Vector<WIDTH> load_cluster(const float* shared, int rank)
{
    unsigned place;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(place) : "r"(static_cast<unsigned>(__cvta_generic_to_shared(shared))), "r"(rank));
    Vector<WIDTH> value;
    if constexpr (WIDTH == 4)
        asm volatile("ld.shared::cluster.v4.f32 { %0, %1, %2, %3 }, [%4];"
            : "=f"(value.at[0]), "=f"(value.at[1]), "=f"(value.at[2]), "=f"(value.at[3]) : "r"(place) : "memory");
    else if constexpr (WIDTH == 2)
        asm volatile("ld.shared::cluster.v2.f32 { %0, %1 }, [%2];"
            : "=f"(value.at[0]), "=f"(value.at[1]) : "r"(place) : "memory");
    else
        asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value.at[0]) : "r"(place) : "memory");
    return value;
}
