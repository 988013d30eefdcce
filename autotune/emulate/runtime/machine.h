// The emulator's own parts, and what they know of one another.
#pragma once

#include <cstdint>
#include <vector>

#include "host.h"

namespace emulate {

// The order is that of `FaultKind` in report.py.
enum class Kind {
    write_after_write, read_after_write, write_after_read, unwritten_shared, out_of_bounds_shared,
    out_of_bounds_global, misaligned, divergent_barrier, forbidden_read, forbidden_write,
    written_twice, unwritten_workspace, crash,
};

// Where an address lies: an operand by its index, or one of these.
constexpr int SHARED = -1, NOWHERE = -2;

// More than any architecture gives a block; source.py has the same number.
constexpr int64_t SHARED_RESERVED_BYTES = 256 * 1024;

struct Fault {
    Kind kind;
    int line;
    int64_t block;
    int thread;
    int space;
    int64_t offset_bytes;
    int words;
    int other_thread, other_line;
};

enum Role { READ = 1, WRITTEN = 2, WORKSPACE = 4, ZEROED = 8 };

struct Operand {
    int64_t rows, columns, leading_dimension, batch, batch_stride;
    int64_t offset_bytes;  // of the first element, from an address that is a multiple of 256
    unsigned role;         // sum of Role: what a kernel may do
    uint64_t seed, limit;  // of its values
    float* values;         // of written elements; null where nothing may be written
    uint64_t* writers;     // `Machine::writer` of written elements
};

struct Launch {
    Index grid, block;
    int64_t shared_bytes;
    std::vector<Argument> arguments;
};

using Call = void (*)(int launch, const Argument* arguments);

// Threads take turns, so all that runs is one of them: the state of the machine is global.
struct Machine {
    std::vector<Operand> operands;
    std::vector<Fault> faults;
    std::vector<Fault> suspects;  // of the block, since its last barrier; see memory.cpp
    std::vector<std::pair<int, int64_t>> written;  // operand and element, in the order of writing
    const char* shared_base;
    int64_t shared_bytes;
    int64_t block;
    int thread;
    uint32_t epoch;     // barriers that the block has passed, plus 1
    uint32_t sequence;  // accesses to shared memory that the thread has made in this epoch
    int last_line;      // of the thread's last access in this epoch; 0 where there is none

    uint64_t writer(int line) const
    {
        return (uint64_t(block) << 27 | uint64_t(thread) << 16 | uint64_t(line)) + 1;
    }
};
extern Machine machine;

// An operand's addresses start here: not addresses of the host, so that an access which passes by
// the primitives crashes and is noticed.
inline uintptr_t base_of(int operand) { return uintptr_t(operand + 1) << 50; }

// blocks.cpp: runs one block; false after a fault. And ends the running thread with a fault.
bool run_block(Call call, int number, const Launch& launch, int64_t block);
[[noreturn]] void fault(Kind kind, int line, int space, int64_t offset_bytes, int words,
                        int other_thread = -1, int other_line = 0);

// memory.cpp: forgets what lies in shared memory. And the worst that an epoch left, if anything.
void clear_shared(int64_t bytes);
const Fault* suspect();

// requests.cpp: accesses of the lanes of a warp, put together to requests and counted.
enum class Access { load_shared, store_shared, load_global, store_global, add_global };
void record(Access access, int words, int line, int64_t offset_bytes);
void begin_lane();
void end_warp();
void print_patterns();
void print_counts(int launch, int64_t block);

}  // namespace emulate
