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

// An argument of a launch; the launch knows which member counts.
struct Argument {
    float* operand;
    long long integer;
    float real;
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
// Returns when every thread of the block has arrived.
void barrier(int line);

// Keeps `path` while a loop runs, so that the lanes of a warp meet again at the same turn of the
// same loop, as they do on the device, even after some of them left an inner loop early.
class Loop {
public:
    Loop() : outer(path) { path = turn(); }
    ~Loop() { path = outer; }
    bool first() { return count == 0 && !entered && (entered = true); }
    void next() { ++count; path = turn(); }

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
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
