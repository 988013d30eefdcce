// The emulator's own parts, and what they know of one another.
#pragma once

#include <cstdint>
#include <vector>

#include "host.h"

namespace emulate {

// The order is that of `FaultKind` in report.py.
enum class Kind {
    write_after_write, read_after_write, write_after_read, unwritten_shared, out_of_bounds_shared,
    out_of_bounds_global, misaligned, read_in_flight, write_in_flight, never_awaited, unfenced_copy,
    uninitialised_barrier, barrier_misuse, divergent_barrier, deadlock, divergent_registers,
    remote_ended, forbidden_read, forbidden_write, written_twice, unwritten_workspace,
    unsynchronised_read, mixed_atomic, crash,
};

// Where an address lies: an operand by its index, or one of these.
constexpr int SHARED = -1, NOWHERE = -2;

// More than any architecture gives a block; source.py has the same number.
constexpr int64_t SHARED_RESERVED_BYTES = 256 * 1024;

constexpr int LANES = 32;

struct Fault {
    Kind kind;
    int line;
    int64_t block;
    int thread;
    int space;
    int64_t offset_bytes;
    int words;
    int64_t other_block;
    int other_thread, other_line;
    std::vector<int64_t> detail;  // what describe.py makes of it depends on the kind
};

enum Role { READ = 1, WRITTEN = 2, WORKSPACE = 4, ZEROED = 8 };

// ---- order.cpp: what comes before what.

using Time = uint32_t;
using Clock = std::vector<Time>;  // a time of every thread of the team and of every copy engine

// A thread of the team, or a copy engine (one for each mbarrier), at one of its times.
struct Event {
    int who;
    Time when;
};
constexpr int NOBODY = -1;
constexpr int ENGINES = 64;

// `threads`: of the whole team.
void begin_order(int ranks, int threads);
Event now();
// Whether an event comes before what the running thread does now, or what thread `knower` does.
bool is_ordered(Event event);
bool is_known(int knower, Event event);
// Whether it also comes before the copies that the running thread starts now.
bool is_fenced(Event event);
void fence();
// What the running thread does from here on is another event than what it did.
void advance();
void release(Clock& clock);
void acquire(const Clock& clock);
// All threads of a block, of the team, or of a warp wait for one another.
void meet_block(int rank);
void meet_team();
void meet_lanes(int first, int count);
int engine(int number);

// ---- global.cpp: operands and workspaces.

// Who accessed an element last; `launch` counts from 1, 0 is nobody.
struct Mark {
    uint32_t block;
    Time when;
    uint32_t thread : 11, line : 16, kind : 2;
};

struct Element {
    float value;
    Mark writer, reader;
    uint8_t writer_launch, reader_launch;
};

struct Operand {
    int64_t rows, columns, leading_dimension, batch, batch_stride;
    int64_t offset_bytes;  // of the first element, from an address that is a multiple of 256
    unsigned role;         // sum of Role
    uint64_t seed, limit;  // of its values
    Element* elements;     // null where nothing may be written
};

struct Place {
    int operand;
    int64_t element;
};

// The elements of an access; a fault where they are none of an operand.
Place place(const float* address, int words, int line);
// The values that a copy takes, and that it has taken them.
void read_source(Place from, int words, float* values, int line);
void begin_source(Place from, int words, int line);
void end_source(Place from);
void begin_launch();
void begin_global();

// ---- shared.cpp: shared memory, and copies that run by themselves.

enum class State : uint8_t { plain, copied, bulk_copied, barrier };

struct Stamp {
    Event at;
    int line;
    uint64_t sequence;  // where in the program it stands; see `Machine`
};

struct Word {
    float value;
    State state;
    bool had_value;  // before its writer wrote
    Stamp writer;
    Stamp copier;        // of the copy that brought it, or is on its way
    int readers;         // since it was written: first of a list, -1 where there is none
    uint32_t generation; // of the block, when the list was begun
};

void begin_shared(int64_t bytes, int ranks, bool keeps_reads);
Word* shared_words(const void* address, int words, int line);
int64_t offset_of(const Word* word);
// A word becomes part of an mbarrier.
void begin_barrier(Word* word, int line);
// The copy engine is about to write a word, and has written it.
void begin_bulk(Word* word, const Stamp& self, float value);
void end_bulk(Word* word, Event engine);
void suspect(Kind kind, const Stamp& who, const Word* word, const Stamp& other);
// The worst of what is suspected; see shared.cpp.
const Fault* suspected();
// The running thread ends; the block of the running thread ends.
void end_copies();
void end_shared();

// ---- mbarriers.cpp: barriers in shared memory, and what the copy engine brings.

struct Phase;  // of an mbarrier: what a thread waits for
void begin_mbarriers();
bool is_over(const Phase& phase);
// Lets copies land; false where none were on their way.
bool land();
// What a wait for it lacks: for the fault of a deadlock.
std::vector<int64_t> missing(const Phase& phase);
int64_t offset_of(const Phase& phase);
void end_mbarriers(int rank);

struct Phase {
    int barrier, parity;
};

// ---- threads.cpp: runs threads, each on a stack of its own.

enum class Wait { nothing, block, warp, cluster, phase, ended };

struct Launch {
    Index grid, block, cluster;
    int64_t shared_bytes;
    std::vector<Argument> arguments;
    bool has_maps;
};

using Call = void (*)(int launch, const Argument* arguments);

// Runs blocks that stand in one cluster, in the order of their ranks; false after a fault.
bool run_team(Call call, int number, const Launch& launch, const std::vector<int64_t>& blocks);
[[noreturn]] void fault(Kind kind, int line, int space, int64_t offset_bytes, int words,
                        int64_t other_block = -1, int other_thread = -1, int other_line = 0,
                        std::vector<int64_t> detail = {});
void wait_for(Wait what, int line, Phase phase = {});

// ---- requests.cpp: accesses of the lanes of a warp, put together to requests and counted. The
// order is that of `KINDS` in analysis/access.py.

enum class Access {
    load_shared, store_shared, copy_shared, load_global, store_global, add_global, load_cluster,
    load_bulk,
};
void begin_requests(int ranks, int warps);
void record(Access access, int words, int line, int64_t offset_bytes);
// A copy by cp.async: from an address to an offset in shared memory, or zeros where it is not inside.
void record_copy(int words, int line, int64_t source_bytes, int64_t target_bytes, bool inside);
// The lanes of a warp stand at one place: what they do next are other requests.
void end_requests(int rank, int warp);
void print_patterns();
void print_counts(int launch, int rank, int64_t block);

// ---- The machine. Threads take turns, so all that runs is one of them: its state is global.

struct Machine {
    std::vector<Operand> operands;
    std::vector<Fault> faults;
    std::vector<std::pair<int, int64_t>> written;  // operand and element, in the order of writing
    bool is_dependent;  // blocks meet in atomics: their order matters
    const char* shared_base;
    int64_t shared_alignment;

    // The launch and the team: the blocks that run together.
    int launch;  // from 1
    std::vector<int64_t> blocks;  // by rank
    int block_threads;

    // The running thread: number in the team and in its block, and its block.
    int self, thread, rank;
    uint32_t generation;  // barriers that its block has passed
    uint64_t sequence;    // `generation` << 32, and the accesses that it has made since
    int last_line;        // of its last access since it was resumed; 0 where there is none

    int64_t block() const { return blocks[rank]; }
    int64_t block_of(int who) const { return blocks[who / block_threads]; }
    int thread_of(int who) const { return who % block_threads; }
    int team_threads() const { return int(blocks.size()) * block_threads; }
};
extern Machine machine;

// An operand's addresses start here: not addresses of the host, so that an access which passes by
// the primitives crashes and is noticed.
inline uintptr_t base_of(int operand) { return uintptr_t(operand + 1) << 50; }

}  // namespace emulate
