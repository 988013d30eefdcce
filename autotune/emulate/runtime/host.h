// What a kernel sees of the emulator: CUDA's words, and the functions that the host twins of the
// primitives call. Included before the kernel's source; it includes nothing, to compile quickly.
#pragma once

namespace emulate {

struct Index {
    unsigned x, y, z;
};

// Of the thread that runs now.
extern Index thread_index, block_index, block_size, grid_size;
// Which turn of each loop around it the thread is in, as a hash.
extern unsigned long long path;

// Fits a pointer of any type: what lies in a workspace is the kernel's affair.
struct Address {
    void* value;
    template <typename T>
    operator T*() const { return static_cast<T*>(value); }
};

// What the copy engine knows of an operand: a matrix in rows, and the box that one copy brings.
struct alignas(64) TensorMap {
    float* origin;
    long long columns, rows, row_stride;  // in elements
    int box_columns, box_rows;
    int swizzle_bytes;  // 0, 32, 64 or 128
};

// An argument of a launch; the launch knows which member counts.
struct Argument {
    float* operand;
    long long integer;
    float real;
    const TensorMap* map;
};

// In shared memory, as large as the device's; its state is kept elsewhere.
struct alignas(8) Mbarrier {
    unsigned long long opaque;
};

// Move `words` floats as one access that kernel line `line` makes. They do not return from a fault.
void load_shared(const float* address, int words, float* values, int line);
void store_shared(float* address, int words, const float* values, int line);
void load_global(const float* address, int words, float* values, int line);
void store_global(float* address, int words, const float* values, int line);
// The same for memory through which blocks hand data to one another.
void load_workspace(const float* address, int words, float* values, int line);
void store_workspace(float* address, int words, const float* values, int line);
void add_global(float* address, int words, const float* values, int line);
// One arrival at a counter that returns to 0 after `last`; gives what it was.
unsigned count_arrival(unsigned* counter, unsigned last, int line);
// The same place in the shared memory of block `rank` of the cluster.
void load_cluster(const float* address, int rank, int words, float* values, int line);

// Copies that run by themselves: started, put together to a group, and waited for but the newest
// `pending` groups. Where the source is not inside the operand, zeros are written.
void copy_async(float* shared, const float* global, int words, bool inside, int line);
void commit_async();
void wait_async(int pending, int line);

// Return when every thread of the block, the warp or the cluster has arrived.
void barrier(int line);
void warp_barrier(int line);
void cluster_barrier(int line);

// Barriers in shared memory, and the copies that complete them.
void barrier_init(Mbarrier* barrier, int arrivals, int line);
void fence_barrier_init();
void barrier_expect(Mbarrier* barrier, int bytes, int line);
void barrier_arrive(Mbarrier* barrier, int line);
void barrier_wait(Mbarrier* barrier, int parity, int line);
void fence_async();
void bulk_load(float* shared, const TensorMap& map, int x, int y, Mbarrier* barrier, int line);

// The thread wants `count` registers from now on.
void change_registers(int count, int line);

// Keeps `path` while a loop runs, so that the lanes of a warp meet again at the same turn of the
// same loop, as they do on the device, even after some of them left an inner loop early.
class Loop {
public:
    Loop() : outer(path) { path = turn(); }
    ~Loop() { path = outer; }
    bool first() { return !entered && (entered = true); }
    // At the beginning of a turn; false.
    bool next() { ++count; path = turn(); return false; }

private:
    unsigned long long turn() const { return (outer + count + 1) * 0x9E3779B97F4A7C15ull; }

    unsigned long long outer;
    unsigned count = 0;
    bool entered = false;
};

// Rounds twice, where the device rounds once: the data is integers, for which neither rounds.
inline float multiply_add(float a, float b, float c) { return a * b + c; }

}  // namespace emulate

template <typename T>
constexpr T min(T a, T b) { return b < a ? b : a; }
template <typename T>
constexpr T max(T a, T b) { return a < b ? b : a; }

#define fmaf emulate::multiply_add
#define threadIdx emulate::thread_index
#define blockIdx emulate::block_index
#define blockDim emulate::block_size
#define gridDim emulate::grid_size
#define __global__
#define __device__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
