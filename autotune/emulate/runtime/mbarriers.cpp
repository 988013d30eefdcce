// Barriers in shared memory, and what the copy engine brings.
//
// An mbarrier goes from phase to phase: each is over when as many arrivals as the barrier was made
// for have come, and as many bytes as were expected. Who waits for a phase acquires what its arrivals
// released and its copies brought (order.cpp). A copy lands as late as it may: when no thread can run
// on without it. All copies of a barrier land together, so that no order of theirs hides a wrong
// number of bytes.

#include <algorithm>

#include "machine.h"

namespace emulate {

namespace {

struct BulkCopy {
    std::vector<Word*> words;
    Stamp start;
    int64_t block;
    int thread;
};

struct Barrier {
    int rank;
    int64_t offset;
    int arrivals, pending;
    int64_t bytes;  // expected and not yet there
    uint32_t phase;
    Clock arriving, over;  // of this phase and of the one before
    Event made;
    Event fenced;  // for the copy engine; NOBODY before the fence
    std::vector<BulkCopy> copies;  // on their way
    // The last that landed: where it was started, and the phases that were over with it; and the
    // most phases that a thread has waited for.
    BulkCopy landed;
    uint32_t landed_phase, waited_phase;
};

std::vector<Barrier> barriers;

int find(const Mbarrier* address, int line)
{
    const int64_t offset = offset_of(shared_words(address, 2, line));
    for (size_t i = 0; i < barriers.size(); ++i)
        if (barriers[i].rank == machine.rank && barriers[i].offset == offset) {
            if (!is_ordered(barriers[i].made))
                break;
            return int(i);
        }
    fault(Kind::uninitialised_barrier, line, SHARED, offset, 2);
}

void end_phase_if_over(Barrier& barrier)
{
    if (barrier.pending || barrier.bytes)
        return;
    std::swap(barrier.over, barrier.arriving);
    barrier.arriving.clear();
    barrier.pending = barrier.arrivals;
    ++barrier.phase;
}

// What a misuse is; describe.py has the same numbers.
enum { ACCESSED, OVERRUN, MADE_TWICE, BAD_COUNT, TOO_MANY };

void arrive(Barrier& barrier, int line)
{
    if (!barrier.pending)
        fault(Kind::barrier_misuse, line, SHARED, barrier.offset, 2, -1, -1, 0,
              {OVERRUN, barrier.arrivals});
    release(barrier.arriving);
    --barrier.pending;
    end_phase_if_over(barrier);
}

// Where the hardware puts a byte: 16-byte chunks are exchanged within a row of the pattern.
int64_t swizzled(int64_t offset, int swizzle_bytes)
{
    return swizzle_bytes ? offset ^ (offset >> 3 & (swizzle_bytes - 16)) : offset;
}

// 32-byte sectors that a box reads: what lies outside the matrix is not read.
int64_t sectors(const TensorMap& map, int x, int y)
{
    const int64_t from = std::max<int64_t>(x, 0);
    const int64_t to = std::min<int64_t>(int64_t(x) + map.box_columns, map.columns);
    int64_t count = 0;
    for (int64_t row = std::max(y, 0); row < std::min<int64_t>(int64_t(y) + map.box_rows, map.rows);
         ++row)
        if (from < to) {
            const auto base = reinterpret_cast<uintptr_t>(map.origin + row * map.row_stride);
            count += int64_t((base + 4 * to - 1) / 32 - (base + 4 * from) / 32 + 1);
        }
    return count;
}

}  // namespace

void begin_mbarriers() { barriers.clear(); }

bool is_over(const Phase& phase)
{
    return (barriers[phase.barrier].phase & 1) != unsigned(phase.parity);
}

int64_t offset_of(const Phase& phase) { return barriers[phase.barrier].offset; }

std::vector<int64_t> missing(const Phase& phase)
{
    const Barrier& barrier = barriers[phase.barrier];
    return {barrier.phase, phase.parity, barrier.pending, barrier.arrivals, barrier.bytes};
}

bool land()
{
    bool any = false;
    for (size_t i = 0; i < barriers.size(); ++i) {
        Barrier& barrier = barriers[i];
        if (barrier.copies.empty())
            continue;
        const Event event = {engine(int(i)), barrier.phase + 1};
        if (barrier.arriving.empty())
            barrier.arriving.assign(size_t(machine.team_threads() + ENGINES), 0);
        barrier.arriving[event.who] = event.when;
        for (const BulkCopy& copy : barrier.copies) {
            for (Word* word : copy.words)
                end_bulk(word, event);
            barrier.bytes -= 4 * int64_t(copy.words.size());
        }
        barrier.landed = std::move(barrier.copies.back());
        barrier.landed_phase = event.when;
        barrier.copies.clear();
        end_phase_if_over(barrier);
        any = true;
    }
    return any;
}

// Copies that no thread waited for: the block's memory may be another's when they land.
void end_mbarriers(int rank)
{
    for (const Barrier& barrier : barriers) {
        if (barrier.rank != rank)
            continue;
        const BulkCopy* left = nullptr;
        if (!barrier.copies.empty())
            left = &barrier.copies.front();
        else if (barrier.waited_phase < barrier.landed_phase)
            left = &barrier.landed;
        if (left) {
            machine.thread = left->thread;
            fault(Kind::never_awaited, left->start.line, SHARED, offset_of(left->words[0]), 1);
        }
    }
}

void barrier_init(Mbarrier* address, int arrivals, int line)
{
    Word* words = shared_words(address, 2, line);
    const int64_t offset = offset_of(words);
    if (words->state == State::barrier)
        fault(Kind::barrier_misuse, line, SHARED, offset, 2, -1, -1, 0, {MADE_TWICE});
    if (arrivals < 1 || arrivals >= 1 << 20)
        fault(Kind::barrier_misuse, line, SHARED, offset, 2, -1, -1, 0, {BAD_COUNT, arrivals});
    if (barriers.size() == ENGINES)
        fault(Kind::barrier_misuse, line, SHARED, offset, 2, -1, -1, 0, {TOO_MANY, ENGINES});
    begin_barrier(words, line);
    begin_barrier(words + 1, line);
    Barrier barrier = {};
    barrier.rank = machine.rank;
    barrier.offset = offset;
    barrier.arrivals = barrier.pending = arrivals;
    barrier.made = now();
    barrier.fenced.who = NOBODY;
    barriers.push_back(std::move(barrier));
}

void fence_barrier_init()
{
    advance();
    for (Barrier& barrier : barriers)
        if (barrier.made.who == machine.self && barrier.fenced.who == NOBODY)
            barrier.fenced = now();
}

void barrier_expect(Mbarrier* address, int bytes, int line)
{
    machine.last_line = line;
    Barrier& barrier = barriers[find(address, line)];
    barrier.bytes += bytes;
    arrive(barrier, line);
}

void barrier_arrive(Mbarrier* address, int line)
{
    machine.last_line = line;
    arrive(barriers[find(address, line)], line);
}

void barrier_wait(Mbarrier* address, int parity, int line)
{
    const Phase phase = {find(address, line), parity & 1};
    while (!is_over(phase))
        wait_for(Wait::phase, line, phase);
    machine.last_line = line;
    Barrier& barrier = barriers[phase.barrier];
    acquire(barrier.over);
    barrier.waited_phase = std::max(barrier.waited_phase, barrier.phase);
}

void fence_async() { fence(); }

void bulk_load(float* shared, const TensorMap& map, int x, int y, Mbarrier* address, int line)
{
    const int words = map.box_columns * map.box_rows;
    const int64_t offset = reinterpret_cast<const char*>(shared) - machine.shared_base;
    // The pattern of a swizzle repeats after 8 rows of it.
    const int64_t alignment = std::max(128, 8 * map.swizzle_bytes);
    if (offset % alignment || machine.shared_alignment < alignment)
        fault(Kind::misaligned, line, SHARED, offset, int(alignment / 4));
    Word* const first = shared_words(shared, 1, line);
    shared_words(shared + words - 1, 1, line);
    Barrier& barrier = barriers[find(address, line)];
    if (barrier.fenced.who == NOBODY || !is_ordered(barrier.fenced))
        fault(Kind::uninitialised_barrier, line, SHARED, barrier.offset, 2, -1, -1, 0, {1});

    record(Access::load_bulk, words, line, sectors(map, x, y));
    const Stamp self = {now(), line, machine.sequence++};
    BulkCopy copy = {{}, self, machine.block(), machine.thread};
    copy.words.reserve(size_t(words));
    for (int row = 0; row < map.box_rows; ++row)
        for (int column = 0; column < map.box_columns; ++column) {
            const int64_t at = swizzled(offset + 4 * (row * map.box_columns + column),
                                        map.swizzle_bytes);
            Word* const word = first + (at - offset) / 4;
            float value = 0.0f;
            const int64_t from_x = int64_t(x) + column, from_y = int64_t(y) + row;
            if (from_x >= 0 && from_x < map.columns && from_y >= 0 && from_y < map.rows) {
                const Place from = place(map.origin + from_y * map.row_stride + from_x, 1, line);
                read_source(from, 1, &value, line);
            }
            begin_bulk(word, self, value);
            copy.words.push_back(word);
        }
    barrier.copies.push_back(std::move(copy));
}

}  // namespace emulate
