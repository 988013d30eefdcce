// How a matrix lies in memory and which box of it is copied at a time; written by the driver.
struct alignas(64) TensorMap {
    char opaque[128];
};

// The box at column x and row y, with zeros where it leaves the matrix, to shared memory; its bytes arrive at the barrier.
__device__ __forceinline__ void bulk_load_2d(float* shared, const TensorMap& map, int x, int y, Mbarrier* barrier)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, { %3, %4 }], [%2];"
        :: "r"(static_cast<unsigned>(__cvta_generic_to_shared(shared))), "l"(&map), "r"(place_of(barrier)), "r"(x), "r"(y)
        : "memory");
}
