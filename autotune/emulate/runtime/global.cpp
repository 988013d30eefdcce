// Global memory as a kernel may see it: operands and workspaces.
//
// Every element of what may be written keeps who wrote and who read it last. Launches come one after
// another. Within one, accesses of a team are ordered as order.cpp says; a block that is not of the
// team ran before, and its write is seen only by way of a counter:
//
//   writer: writes, barrier, count_arrival     reader: count_arrival, later than that; barrier, reads
//
// An arrival leaves with the counter what its thread knows of its own block, and takes what the
// arrivals before it left. Atomic adds need no order among themselves, but do not mix with others.

#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>

#include "machine.h"

namespace emulate {

namespace {

enum Kinds { STORED, ADDED, COUNTED };

// What is known of blocks that ran before: for each the times of its threads.
using Known = std::map<int64_t, std::shared_ptr<const Clock>>;

// A thread of the team has taken what was left with a counter.
struct Taken {
    Event at;
    Known known;
};

struct Source {
    Place from;
    int words, line;
    int thread;
    int64_t block;
};

std::unordered_map<uint64_t, Known> counters;  // of the launch, by operand and element
std::vector<Taken> taken;                      // of the team
std::vector<Source> sources;  // copies on their way from what may be written

// Whether the elements lie in one row of a matrix; strides may let matrices of a batch overlap.
bool is_inside(const Operand& operand, int64_t element, int words)
{
    if (element < 0)
        return false;
    const int64_t span = (operand.rows - 1) * operand.leading_dimension + operand.columns;
    int64_t matrix = 0;
    if (operand.batch > 1 && operand.batch_stride > 0) {
        matrix = element / operand.batch_stride;
        if (matrix >= operand.batch)
            matrix = operand.batch - 1;
    }
    for (; matrix >= 0; --matrix) {
        const int64_t within = element - matrix * operand.batch_stride;
        if (within >= span)
            return false;
        if (within % operand.leading_dimension + words <= operand.columns)
            return true;
    }
    return false;
}

// The value of an element that nobody wrote: an integer from 1 to `limit` with a sign. data.py
// computes the same.
float initial(const Operand& operand, int64_t element)
{
    if (operand.role & WORKSPACE)
        return 0.0f;
    uint64_t x = uint64_t(element) * 0x9E3779B97F4A7C15ull + operand.seed;
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93ull;
    x ^= x >> 32;
    const auto magnitude = float(1 + ((x >> 32) * operand.limit >> 32));
    return x & 1 ? -magnitude : magnitude;
}

void merge(Known& into, const Known& from)
{
    for (const auto& [block, times] : from) {
        std::shared_ptr<const Clock>& mine = into[block];
        if (!mine) {
            mine = times;
        } else if (mine != times) {
            Clock both = *mine;
            for (size_t i = 0; i < both.size(); ++i)
                both[i] = std::max(both[i], (*times)[i]);
            mine = std::make_shared<const Clock>(std::move(both));
        }
    }
}

Mark mark(int line, Kinds kind)
{
    return {uint32_t(machine.block()), now().when, unsigned(machine.thread), unsigned(line), kind};
}

// The rank of a block in the team; -1 if it is of none.
int rank_of(int64_t block)
{
    for (size_t rank = 0; rank < machine.blocks.size(); ++rank)
        if (machine.blocks[rank] == block)
            return int(rank);
    return -1;
}

// Whether an access of this launch comes before what the running thread does now.
bool is_before(const Mark& mark)
{
    const int rank = rank_of(mark.block);
    if (rank >= 0)
        return is_ordered({rank * machine.block_threads + int(mark.thread), mark.when});
    for (const Taken& each : taken) {
        const auto found = each.known.find(mark.block);
        if (found != each.known.end() && (*found->second)[mark.thread] >= mark.when
            && is_ordered(each.at))
            return true;
    }
    return false;
}

[[noreturn]] void fault_at(Kind kind, int line, int operand, int64_t element, const Mark& other,
                           std::vector<int64_t> detail = {})
{
    fault(kind, line, operand, 4 * element, 1, other.block, int(other.thread), int(other.line),
          std::move(detail));
}

bool is_new(const Element& element) { return element.writer_launch == machine.launch; }

// What the running thread finds in an element; only `is_fresh` loads see what another block of
// the launch wrote.
float read(int index, int64_t at, bool is_fresh, int line)
{
    const Operand& operand = machine.operands[index];
    if (!operand.elements) {
        if (!(operand.role & READ))
            fault(Kind::forbidden_read, line, index, 4 * at, 1);
        return initial(operand, at);
    }
    Element& element = operand.elements[at];
    if (!element.writer_launch) {
        if (!(operand.role & READ))
            fault(Kind::forbidden_read, line, index, 4 * at, 1);
        if (operand.role & WORKSPACE && !(operand.role & ZEROED))
            fault(Kind::unwritten_workspace, line, index, 4 * at, 1);
        element.value = initial(operand, at);
    } else if (is_new(element)) {
        const Mark& writer = element.writer;
        if (writer.kind != STORED)
            fault_at(Kind::mixed_atomic, line, index, at, writer);
        const bool is_own = rank_of(writer.block) == machine.rank;
        if (!is_before(writer))
            fault_at(is_own ? Kind::read_after_write : Kind::unsynchronised_read, line, index, at,
                     writer);
        if (!is_own && !is_fresh)
            fault_at(Kind::unsynchronised_read, line, index, at, writer, {1});
    }
    element.reader = mark(line, STORED);
    element.reader_launch = uint8_t(machine.launch);
    return element.value;
}

void load(const float* address, int words, float* values, bool is_fresh, int line)
{
    const Place at = place(address, words, line);
    const Operand& operand = machine.operands[at.operand];
    record(Access::load_global, words, line, operand.offset_bytes + 4 * at.element);
    for (int i = 0; i < words; ++i)
        values[i] = read(at.operand, at.element + i, is_fresh, line);
}

// The element that the running thread may write now.
Element& writable(Place at, int line, Kinds kind)
{
    const Operand& operand = machine.operands[at.operand];
    Element& element = operand.elements[at.element];
    if (is_new(element)) {
        const Mark& writer = element.writer;
        if (writer.kind != unsigned(kind))
            fault_at(Kind::mixed_atomic, line, at.operand, at.element, writer);
        if (kind == STORED && !is_before(writer))
            fault_at(Kind::written_twice, line, at.operand, at.element, writer);
    }
    if (element.reader_launch == machine.launch && !is_before(element.reader))
        fault_at(Kind::write_after_read, line, at.operand, at.element, element.reader);
    for (const Source& source : sources)
        if (source.from.operand == at.operand && at.element >= source.from.element
            && at.element < source.from.element + source.words)
            fault(Kind::write_in_flight, line, at.operand, 4 * at.element, 1, source.block,
                  source.thread, source.line);
    if (!element.writer_launch)
        machine.written.emplace_back(at.operand, at.element);
    return element;
}

void sign(Element& element, int line, Kinds kind)
{
    element.writer = mark(line, kind);
    element.writer_launch = uint8_t(machine.launch);
}

Place writable_place(const float* address, int words, Access access, int line)
{
    const Place at = place(address, words, line);
    const Operand& operand = machine.operands[at.operand];
    if (!operand.elements)
        fault(Kind::forbidden_write, line, at.operand, 4 * at.element, words);
    record(access, words, line, operand.offset_bytes + 4 * at.element);
    return at;
}

}  // namespace

Place place(const float* address, int words, int line)
{
    // The nearest operand: a little before its start is still its neighbourhood.
    const auto bits = reinterpret_cast<uintptr_t>(address);
    const int index = int((bits + (uintptr_t(1) << 49)) >> 50) - 1;
    if (index < 0 || index >= int(machine.operands.size()))
        fault(Kind::out_of_bounds_global, line, NOWHERE, int64_t(bits), words);
    const Operand& operand = machine.operands[index];
    const auto offset = int64_t(bits - base_of(index)) - operand.offset_bytes;
    if (bits % (4 * words))
        fault(Kind::misaligned, line, index, offset, words);
    if (!is_inside(operand, offset / 4, words) || offset < 0)
        fault(Kind::out_of_bounds_global, line, index, offset, words);
    return {index, offset / 4};
}

void begin_launch() { counters.clear(); }

void begin_global()
{
    taken.clear();
    sources.clear();
}

void read_source(Place from, int words, float* values, int line)
{
    for (int i = 0; i < words; ++i)
        values[i] = read(from.operand, from.element + i, false, line);
}

void begin_source(Place from, int words, int line)
{
    const Operand& operand = machine.operands[from.operand];
    record(Access::load_global, words, line, operand.offset_bytes + 4 * from.element);
    if (operand.elements)
        sources.push_back({from, words, line, machine.thread, machine.block()});
}

void end_source(Place from)
{
    for (size_t i = 0; i < sources.size(); ++i)
        if (sources[i].from.operand == from.operand && sources[i].from.element == from.element
            && sources[i].thread == machine.thread && sources[i].block == machine.block()) {
            sources.erase(sources.begin() + long(i));
            return;
        }
}

void load_global(const float* address, int words, float* values, int line)
{
    load(address, words, values, false, line);
}

void load_workspace(const float* address, int words, float* values, int line)
{
    load(address, words, values, true, line);
}

void store_global(float* address, int words, const float* values, int line)
{
    const Place at = writable_place(address, words, Access::store_global, line);
    for (int i = 0; i < words; ++i) {
        Element& element = writable({at.operand, at.element + i}, line, STORED);
        sign(element, line, STORED);
        element.value = values[i];
    }
}

void store_workspace(float* address, int words, const float* values, int line)
{
    store_global(address, words, values, line);
}

void add_global(float* address, int words, const float* values, int line)
{
    const Place at = writable_place(address, words, Access::add_global, line);
    const Operand& operand = machine.operands[at.operand];
    machine.is_dependent = true;
    for (int i = 0; i < words; ++i) {
        const int64_t index = at.element + i;
        Element& element = operand.elements[index];
        if (!element.writer_launch) {
            if (!(operand.role & READ) || (operand.role & WORKSPACE && !(operand.role & ZEROED)))
                fault(Kind::unwritten_workspace, line, at.operand, 4 * index, 1);
            element.value = initial(operand, index);
        }
        writable({at.operand, index}, line, ADDED);
        sign(element, line, ADDED);
        element.value += values[i];
    }
}

unsigned count_arrival(unsigned* counter, unsigned last, int line)
{
    const Place at = writable_place(reinterpret_cast<const float*>(counter), 1, Access::add_global,
                                    line);
    const Operand& operand = machine.operands[at.operand];
    machine.is_dependent = true;
    if (!(operand.role & ZEROED) && !operand.elements[at.element].writer_launch)
        fault(Kind::unwritten_workspace, line, at.operand, 4 * at.element, 1);

    Known& known = counters[uint64_t(at.operand) << 48 | uint64_t(at.element)];
    Taken mine = {{}, known};
    for (const Taken& each : taken)
        if (is_ordered(each.at))
            merge(known, each.known);
    Clock clock;
    release(clock);
    const auto first = clock.begin() + machine.rank * machine.block_threads;
    known[machine.block()] = std::make_shared<const Clock>(first, first + machine.block_threads);
    mine.at = now();
    taken.push_back(std::move(mine));

    Element& element = writable(at, line, COUNTED);
    sign(element, line, COUNTED);
    unsigned before;
    __builtin_memcpy(&before, &element.value, sizeof before);
    const unsigned after = before >= last ? 0 : before + 1;
    __builtin_memcpy(&element.value, &after, sizeof after);
    return before;
}

}  // namespace emulate
