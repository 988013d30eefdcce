// Shared and global memory as a kernel may see them.
//
// Shared memory keeps, for every word, who wrote and who read it last and in which epoch; an epoch
// ends when the block passes a barrier. Two accesses of different threads, one of them a write, are
// ordered only if an epoch lies between them (`is_ordered`, the one place that knows what orders
// accesses). A copy that runs by itself fits in as two events: from its start its words belong to no
// one else, and it is its thread's write when the wait that promises it returns, not before.
//
// Threads run one after another, so which of two unordered accesses happens first here says
// nothing. What the kernel meant is told by where the two stand in the program: `sequence`. A fault
// is therefore only suspected until the epoch ends, since a later thread may explain it better: a
// word that nobody has written yet may have been written too late, or by a thread that waits
// elsewhere.

#include <cstring>
#include <vector>

#include "machine.h"

namespace emulate {

namespace {

struct Accessor {
    int thread, line;
    uint32_t sequence;
};

constexpr int NOBODY = -1;

struct Word {
    float value;
    bool had_value;          // before the epoch `written`
    uint32_t written, read;  // epochs, 0: never
    Accessor writer;
    Accessor reader, other_reader;  // two of the epoch `read`
};

std::vector<Word> words_of_shared;

bool is_ordered(uint32_t epoch, int thread)
{
    return epoch < machine.epoch || thread == machine.thread;
}

Word* shared_words(const float* address, int words, int line)
{
    const int64_t offset = reinterpret_cast<const char*>(address) - machine.shared_base;
    if (offset < 0 || offset + 4 * words > machine.shared_bytes)
        fault(Kind::out_of_bounds_shared, line, SHARED, offset, words);
    if (offset % (4 * words))
        fault(Kind::misaligned, line, SHARED, offset, words);
    return &words_of_shared[offset / 4];
}

int64_t offset_of(const Word* word) { return 4 * (word - words_of_shared.data()); }

// The first of each kind in an epoch is enough.
void suspect(Kind kind, const Accessor& who, const Word* word, const Accessor& other)
{
    for (const Fault& fault : machine.suspects)
        if (fault.kind == kind)
            return;
    machine.suspects.push_back({kind, who.line, machine.block, who.thread, SHARED, offset_of(word),
                                1, other.thread, other.line});
}

// A read and a write that nothing orders; the one that stands later in the program is at fault.
void collide(const Accessor& reader, const Accessor& writer, const Word* word)
{
    if (reader.sequence > writer.sequence)
        suspect(Kind::read_after_write, reader, word, writer);
    else if (word->had_value)
        suspect(Kind::write_after_read, writer, word, reader);
    else
        suspect(Kind::unwritten_shared, reader, word, {NOBODY, 0, 0});
}

struct Place {
    int operand;
    int64_t element;
};

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

// The value of an element that nobody wrote: an integer from 1 to `limit` with a sign. data.py
// computes the same.
float initial(const Operand& operand, int64_t element)
{
    uint64_t x = uint64_t(element) * 0x9E3779B97F4A7C15ull + operand.seed;
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93ull;
    x ^= x >> 32;
    const auto magnitude = float(1 + ((x >> 32) * operand.limit >> 32));
    return x & 1 ? -magnitude : magnitude;
}

bool is_own(uint64_t writer) { return (writer - 1) >> 16 == (machine.writer(0) - 1) >> 16; }

int thread_of(uint64_t writer) { return int((writer - 1) >> 16 & 0x7ff); }

int line_of(uint64_t writer) { return int((writer - 1) & 0xffff); }

}  // namespace

void clear_shared(int64_t bytes)
{
    machine.shared_bytes = bytes;
    machine.suspects.clear();
    words_of_shared.assign(size_t(bytes / 4), Word{});
}

const Fault* suspect()
{
    const Fault* worst = nullptr;
    for (const Fault& fault : machine.suspects)
        if (!worst || fault.kind < worst->kind)
            worst = &fault;
    return worst;
}

void load_shared(const float* address, int words, float* values, int line)
{
    Word* word = shared_words(address, words, line);
    record(Access::load_shared, words, line, offset_of(word));
    const Accessor self = {machine.thread, line, machine.sequence++};
    for (int i = 0; i < words; ++i, ++word) {
        if (!word->written)
            suspect(Kind::unwritten_shared, self, word, {NOBODY, 0, 0});
        else if (!is_ordered(word->written, word->writer.thread))
            collide(self, word->writer, word);
        if (word->read != machine.epoch) {
            word->read = machine.epoch;
            word->reader = self;
            word->other_reader = {NOBODY, 0, 0};
        } else if (word->reader.thread != self.thread) {
            word->other_reader = self;
        }
        values[i] = word->written ? word->value : __builtin_nanf("");
    }
}

void store_shared(float* address, int words, const float* values, int line)
{
    Word* word = shared_words(address, words, line);
    record(Access::store_shared, words, line, offset_of(word));
    const Accessor self = {machine.thread, line, machine.sequence++};
    for (int i = 0; i < words; ++i, ++word) {
        if (word->written && !is_ordered(word->written, word->writer.thread))
            suspect(Kind::write_after_write, self, word, word->writer);
        if (word->written != machine.epoch) {
            word->had_value = word->written != 0;
            word->written = machine.epoch;
        }
        word->writer = self;
        word->value = values[i];
        if (word->read)
            for (const Accessor& reader : {word->reader, word->other_reader})
                if (reader.thread != NOBODY && !is_ordered(word->read, reader.thread))
                    collide(reader, self, word);
    }
}

void load_global(const float* address, int words, float* values, int line)
{
    const Place at = place(address, words, line);
    const Operand& operand = machine.operands[at.operand];
    if (!(operand.role & READ))
        fault(Kind::forbidden_read, line, at.operand, 4 * at.element, words);
    record(Access::load_global, words, line, operand.offset_bytes + 4 * at.element);
    for (int i = 0; i < words; ++i) {
        const int64_t element = at.element + i;
        const uint64_t writer = operand.writers ? operand.writers[element] : 0;
        if (writer && !is_own(writer))
            fault(Kind::read_after_write, line, at.operand, 4 * element, 1, thread_of(writer),
                  line_of(writer));
        values[i] = writer ? operand.values[element] : initial(operand, element);
    }
}

void store_global(float* address, int words, const float* values, int line)
{
    const Place at = place(address, words, line);
    const Operand& operand = machine.operands[at.operand];
    if (!(operand.role & WRITTEN))
        fault(Kind::forbidden_write, line, at.operand, 4 * at.element, words);
    record(Access::store_global, words, line, operand.offset_bytes + 4 * at.element);
    for (int i = 0; i < words; ++i) {
        const int64_t element = at.element + i;
        uint64_t& writer = operand.writers[element];
        if (writer && !is_own(writer))
            fault(Kind::written_twice, line, at.operand, 4 * element, 1, thread_of(writer),
                  line_of(writer));
        if (!writer)
            machine.written.emplace_back(at.operand, element);
        writer = machine.writer(line);
        operand.values[element] = values[i];
    }
}

// Blocks run one after another, so whatever an earlier one wrote is there.
void load_workspace(const float* address, int words, float* values, int line)
{
    const Place at = place(address, words, line);
    const Operand& operand = machine.operands[at.operand];
    record(Access::load_global, words, line, operand.offset_bytes + 4 * at.element);
    for (int i = 0; i < words; ++i) {
        const int64_t element = at.element + i;
        if (!operand.writers[element] && !(operand.role & ZEROED))
            fault(Kind::unwritten_workspace, line, at.operand, 4 * element, 1);
        values[i] = operand.values[element];
    }
}

void store_workspace(float* address, int words, const float* values, int line)
{
    store_global(address, words, values, line);
}

// A counter's bits lie in a word of a workspace.
unsigned count_arrival(unsigned* counter, unsigned last, int line)
{
    const Place at = place(reinterpret_cast<const float*>(counter), 1, line);
    const Operand& operand = machine.operands[at.operand];
    record(Access::add_global, 1, line, operand.offset_bytes + 4 * at.element);
    if (!operand.writers[at.element])
        machine.written.emplace_back(at.operand, at.element);
    operand.writers[at.element] = machine.writer(line);
    unsigned before, after;
    memcpy(&before, &operand.values[at.element], sizeof before);
    after = before >= last ? 0 : before + 1;
    memcpy(&operand.values[at.element], &after, sizeof after);
    return before;
}

void add_global(float* address, int words, const float* values, int line)
{
    const Place at = place(address, words, line);
    const Operand& operand = machine.operands[at.operand];
    if (!(operand.role & WRITTEN))
        fault(Kind::forbidden_write, line, at.operand, 4 * at.element, words);
    record(Access::add_global, words, line, operand.offset_bytes + 4 * at.element);
    for (int i = 0; i < words; ++i) {
        const int64_t element = at.element + i;
        if (!operand.writers[element])
            fault(Kind::unwritten_workspace, line, at.operand, 4 * element, 1);
        operand.writers[element] = machine.writer(line);
        operand.values[element] += values[i];
    }
}

}  // namespace emulate
