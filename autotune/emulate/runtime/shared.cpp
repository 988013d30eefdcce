// Shared memory as a kernel may see it.
//
// Every word keeps who wrote it and who has read it since, as events of order.cpp, which alone says
// what orders two accesses. A copy that runs by itself is two events: from its start its words belong
// to no one, and when it is over they were written: by the thread whose wait promises it (cp.async),
// or by the copy engine of the mbarrier whose phase it completes (bulk copies).
//
// Threads run one after another, so which of two unordered accesses happens first here says
// nothing. What the kernel meant is told by where the two stand in the program: `sequence`. A fault
// is therefore only suspected until all threads have had their turn, since a later one may explain
// it better: a word that nobody has written yet may have been written too late, or by a thread that
// waits elsewhere.

#include <algorithm>

#include "machine.h"

namespace emulate {

namespace {

constexpr Stamp NO_STAMP = {{NOBODY, 0}, 0, 0};
constexpr int NONE = -1;

struct Reader {
    Stamp stamp;
    int next;
};

// A copy of a thread on its way from global to shared memory.
struct Copy {
    Word* target;
    int words;
    Place source;
    Stamp start;
};

// Those that were not waited for: since the last commit, and older groups.
struct Copies {
    std::vector<Copy> open;
    std::vector<std::vector<Copy>> groups;
};

struct RemoteRead {
    Stamp stamp;
    int64_t offset;
    int words;
};

std::vector<std::vector<Word>> memory;  // by rank
std::vector<std::vector<RemoteRead>> remote_reads;  // by rank of the block that was read
std::vector<char> has_ended;            // by rank
int64_t shared_bytes;
bool keeps_reads;
std::vector<Reader> readers;
int spare;  // first of the list of unused readers
std::vector<Copies> copies;  // by thread of the team
std::vector<Fault> suspects;

int rank_of(const Word* word)
{
    int rank = 0;
    while (word < memory[rank].data() || word >= memory[rank].data() + memory[rank].size())
        ++rank;
    return rank;
}

Stamp stamp(int line) { return {now(), line, machine.sequence++}; }

void forget_readers(Word* word)
{
    for (int at = word->readers; at != NONE;) {
        const int next = readers[at].next;
        readers[at].next = spare;
        spare = at;
        at = next;
    }
    word->readers = NONE;
}

void note_reader(Word* word, const Stamp& self)
{
    // Reads from before a barrier of the block come before all that follows.
    if (word->generation != machine.generation && !keeps_reads)
        forget_readers(word);
    word->generation = machine.generation;
    if (word->readers != NONE && readers[word->readers].stamp.at.who == self.at.who) {
        readers[word->readers].stamp = self;
        return;
    }
    int at = spare;
    if (at == NONE) {
        at = int(readers.size());
        readers.push_back({});
    } else {
        spare = readers[at].next;
    }
    readers[at] = {self, word->readers};
    word->readers = at;
}

// A read and a write that nothing orders; the one that stands later in the program is at fault.
void collide(const Stamp& reader, const Stamp& writer, const Word* word)
{
    if (reader.sequence > writer.sequence)
        suspect(Kind::read_after_write, reader, word, writer);
    else if (word->had_value)
        suspect(Kind::write_after_read, writer, word, reader);
    else
        suspect(Kind::unwritten_shared, reader, word, NO_STAMP);
}

// The first reader that nothing orders before the running thread.
const Stamp* loose_reader(const Word* word)
{
    if (word->generation != machine.generation && !keeps_reads)
        return nullptr;
    for (int at = word->readers; at != NONE; at = readers[at].next)
        if (!is_ordered(readers[at].stamp.at))
            return &readers[at].stamp;
    return nullptr;
}

[[noreturn]] void fault_at(Kind kind, const Stamp& self, const Word* word, const Stamp& other)
{
    fault(kind, self.line, SHARED, offset_of(word), 1, machine.block_of(other.at.who),
          machine.thread_of(other.at.who), other.line);
}

// An access to a word that is not plain memory now. It may also be the copy that came too early,
// which shows where the two stand in the program.
void meet_other(const Stamp& self, const Word* word, bool is_write)
{
    if (word->state == State::barrier)
        fault(Kind::barrier_misuse, self.line, SHARED, offset_of(word), 1);
    const Kind kind = is_write ? Kind::write_in_flight : Kind::read_in_flight;
    const Stamp& copy = word->copier;
    if (word->state == State::bulk_copied || is_ordered(copy.at) || self.sequence > copy.sequence)
        fault_at(kind, self, word, copy);
    if (is_write)
        suspect(Kind::write_after_write, copy, word, self);
    else
        collide(self, copy, word);
}

void check_read(const Stamp& self, const Word* word)
{
    if (word->state != State::plain)
        meet_other(self, word, false);
    const Event writer = word->writer.at;
    if (writer.who == NOBODY)
        suspect(Kind::unwritten_shared, self, word, NO_STAMP);
    else if (!is_ordered(writer) && writer.who >= machine.team_threads())
        fault_at(Kind::read_in_flight, self, word, word->copier);
    else if (!is_ordered(writer))
        collide(self, word->writer, word);
}

void check_write(const Stamp& self, Word* word)
{
    if (word->state != State::plain)
        meet_other(self, word, true);
    const Event writer = word->writer.at;
    word->had_value |= writer.who != NOBODY
                       && (writer.who != self.at.who || writer.when != self.at.when);
    if (writer.who != NOBODY && !is_ordered(writer)) {
        if (writer.who >= machine.team_threads())
            fault_at(Kind::write_in_flight, self, word, word->copier);
        suspect(Kind::write_after_write, self, word, word->writer);
    }
    if (const Stamp* reader = loose_reader(word))
        collide(*reader, self, word);
}

void put(const Stamp& self, Word* word)
{
    word->writer = self;
    forget_readers(word);
}

void land(const std::vector<Copy>& group, uint64_t sequence)
{
    for (const Copy& copy : group) {
        for (Word* word = copy.target; word < copy.target + copy.words; ++word) {
            word->state = State::plain;
            put({now(), copy.start.line, sequence}, word);
        }
        end_source(copy.source);
    }
}

void check_ended(const std::vector<Copy>& group)
{
    if (!group.empty())
        fault(Kind::never_awaited, group[0].start.line, SHARED, offset_of(group[0].target),
              group[0].words);
}

}  // namespace

void begin_shared(int64_t bytes, int ranks, bool keeps)
{
    shared_bytes = bytes;
    keeps_reads = keeps;
    Word empty = {};
    empty.writer = empty.copier = NO_STAMP;
    empty.readers = NONE;
    memory.resize(size_t(ranks));
    for (std::vector<Word>& words : memory)
        words.assign(size_t(bytes / 4), empty);
    remote_reads.assign(size_t(ranks), {});
    has_ended.assign(size_t(ranks), false);
    readers.clear();
    spare = NONE;
    copies.assign(size_t(machine.team_threads()), {});
    suspects.clear();
}

Word* shared_words(const void* address, int words, int line)
{
    const int64_t offset = static_cast<const char*>(address) - machine.shared_base;
    if (offset < 0 || offset + 4 * words > shared_bytes)
        fault(Kind::out_of_bounds_shared, line, SHARED, offset, words);
    if (offset % (4 * words))
        fault(Kind::misaligned, line, SHARED, offset, words);
    return &memory[machine.rank][offset / 4];
}

int64_t offset_of(const Word* word) { return 4 * (word - memory[rank_of(word)].data()); }

// The first of each kind is enough.
void suspect(Kind kind, const Stamp& who, const Word* word, const Stamp& other)
{
    for (const Fault& fault : suspects)
        if (fault.kind == kind)
            return;
    const bool is_known = other.at.who != NOBODY;
    suspects.push_back({kind, who.line, machine.block_of(who.at.who), machine.thread_of(who.at.who),
                        SHARED, offset_of(word), 1, is_known ? machine.block_of(other.at.who) : -1,
                        is_known ? machine.thread_of(other.at.who) : NOBODY, other.line, {}});
}

const Fault* suspected()
{
    const Fault* worst = nullptr;
    for (const Fault& fault : suspects)
        if (!worst || fault.kind < worst->kind)
            worst = &fault;
    return worst;
}

void load_shared(const float* address, int words, float* values, int line)
{
    Word* word = shared_words(address, words, line);
    record(Access::load_shared, words, line, 4 * (word - memory[machine.rank].data()));
    const Stamp self = stamp(line);
    for (int i = 0; i < words; ++i, ++word) {
        check_read(self, word);
        note_reader(word, self);
        values[i] = word->writer.at.who == NOBODY ? __builtin_nanf("") : word->value;
    }
}

void store_shared(float* address, int words, const float* values, int line)
{
    Word* word = shared_words(address, words, line);
    record(Access::store_shared, words, line, 4 * (word - memory[machine.rank].data()));
    const Stamp self = stamp(line);
    for (int i = 0; i < words; ++i, ++word) {
        check_write(self, word);
        put(self, word);
        word->value = values[i];
    }
}

void load_cluster(const float* address, int rank, int words, float* values, int line)
{
    const int64_t at = shared_words(address, words, line) - memory[machine.rank].data();
    if (rank < 0 || rank >= int(memory.size()))
        fault(Kind::out_of_bounds_shared, line, SHARED, 4 * at, words);
    record(Access::load_cluster, words, line, 4 * at);
    const Stamp self = stamp(line);
    if (has_ended[rank])
        fault(Kind::remote_ended, line, SHARED, 4 * at, words, machine.blocks[rank]);
    Word* word = &memory[rank][at];
    for (int i = 0; i < words; ++i, ++word) {
        check_read(self, word);
        note_reader(word, self);
        values[i] = word->writer.at.who == NOBODY ? __builtin_nanf("") : word->value;
    }
    if (rank == machine.rank)
        return;
    std::vector<RemoteRead>& reads = remote_reads[rank];
    if (!reads.empty() && reads.back().stamp.at.who == machine.self)
        reads.pop_back();
    reads.push_back({self, 4 * at, words});
}

void copy_async(float* shared, const float* global, int words, bool inside, int line)
{
    Word* word = shared_words(shared, words, line);
    Copy copy = {word, words, {NOWHERE, 0}, {}};
    float values[4] = {};
    if (inside) {
        copy.source = place(global, words, line);
        read_source(copy.source, words, values, line);
        begin_source(copy.source, words, line);
    }
    record_copy(words, line, reinterpret_cast<intptr_t>(global),
                4 * (word - memory[machine.rank].data()), inside);
    copy.start = stamp(line);
    for (int i = 0; i < words; ++i, ++word) {
        check_write(copy.start, word);
        word->state = State::copied;
        word->copier = copy.start;
        word->value = values[i];
    }
    copies[machine.self].open.push_back(copy);
}

void commit_async()
{
    Copies& mine = copies[machine.self];
    mine.groups.push_back(std::move(mine.open));
    mine.open.clear();
}

void wait_async(int pending, int line)
{
    machine.last_line = line;
    std::vector<std::vector<Copy>>& groups = copies[machine.self].groups;
    const auto end = groups.end() - std::min(pending, int(groups.size()));
    const uint64_t sequence = machine.sequence++;
    for (auto group = groups.begin(); group != end; ++group)
        land(*group, sequence);
    groups.erase(groups.begin(), end);
}

void begin_barrier(Word* word, int line)
{
    const Stamp self = stamp(line);
    check_write(self, word);
    put(self, word);
    word->state = State::barrier;
}

// A bulk copy is at fault where it comes too early: its words are what others wait to read.
void begin_bulk(Word* word, const Stamp& self, float value)
{
    if (word->state != State::plain)
        meet_other(self, word, true);
    const Stamp& writer = word->writer;
    if (writer.at.who != NOBODY) {
        if (!is_ordered(writer.at))
            fault_at(Kind::write_after_write, self, word,
                     writer.at.who >= machine.team_threads() ? word->copier : writer);
        if (!is_fenced(writer.at))
            fault_at(Kind::unfenced_copy, self, word, writer);
    }
    if (const Stamp* reader = loose_reader(word))
        fault_at(Kind::write_after_read, self, word, *reader);
    for (int at = word->readers; at != NONE; at = readers[at].next)
        if (!is_fenced(readers[at].stamp.at))
            fault_at(Kind::unfenced_copy, self, word, readers[at].stamp);
    word->state = State::bulk_copied;
    word->copier = self;
    word->value = value;
}

void end_bulk(Word* word, Event engine)
{
    word->state = State::plain;
    put({engine, word->copier.line, word->copier.sequence}, word);
}

void end_copies()
{
    const Copies& mine = copies[machine.self];
    for (const std::vector<Copy>& group : mine.groups)
        check_ended(group);
    check_ended(mine.open);
}

// What others read here must come before the end of one of the block's threads.
void end_shared()
{
    has_ended[machine.rank] = true;
    for (const RemoteRead& read : remote_reads[machine.rank]) {
        bool is_known_here = false;
        for (int thread = 0; thread < machine.block_threads && !is_known_here; ++thread)
            is_known_here = is_known(machine.rank * machine.block_threads + thread, read.stamp.at);
        if (is_known_here)
            continue;
        const int64_t ended = machine.block();
        machine.rank = read.stamp.at.who / machine.block_threads;
        machine.thread = machine.thread_of(read.stamp.at.who);
        fault(Kind::remote_ended, read.stamp.line, SHARED, read.offset, read.words, ended);
    }
}

}  // namespace emulate
