// Runs a team of blocks: each thread on a stack of its own, from one wait to the next, in their order.
//
// Which order hardly matters: accesses that only an order makes right are faults (shared.cpp,
// global.cpp). A team is one block, or the blocks of a cluster.

#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <sys/mman.h>
#include <ucontext.h>

#include "machine.h"

namespace emulate {

Index thread_index, block_index, block_size, grid_size;
unsigned long long path;
Machine machine;

namespace {

constexpr size_t STACK_BYTES = 256 * 1024;
constexpr int WARPGROUP = 128;

// A thread is entered through its context once; after that setjmp and longjmp switch, which spares
// the system calls that swapcontext makes.
struct Thread {
    ucontext_t context;
    jmp_buf here;
    unsigned long long path;
    bool is_fresh;
    Wait wait;
    int line;  // where it waits
    Phase phase;
    uint64_t sequence;
    uint64_t registers;  // a hash of what it said of its registers
    int registers_line;
};

Thread* threads;  // of the team
int count;
std::vector<uint32_t> generations;  // by rank
jmp_buf scheduler;
bool is_inside;  // a thread is running
Call kernel;
int launch_number;
const Argument* launch_arguments;

enum { SWITCHED = 1, FAULTED = 2 };

bool has_ended(int rank)
{
    const Thread* const first = threads + rank * machine.block_threads;
    return std::all_of(first, first + machine.block_threads,
                       [](const Thread& thread) { return thread.wait == Wait::ended; });
}

// All threads of a warpgroup must have said the same of their registers.
void check_registers()
{
    const Thread* const block = threads + machine.rank * machine.block_threads;
    for (int i = 0; i < machine.block_threads; ++i) {
        const int first = i / WARPGROUP * WARPGROUP;
        const bool is_whole = first + WARPGROUP <= machine.block_threads;
        if (block[i].registers == block[first].registers && (is_whole || !block[i].registers))
            continue;
        machine.thread = i;
        const bool is_his = block[i].registers_line;
        fault(Kind::divergent_registers,
              is_his ? block[i].registers_line : block[first].registers_line, NOWHERE, 0, is_his,
              machine.block(), first);
    }
}

void enter()
{
    kernel(launch_number, launch_arguments);
    end_copies();
    threads[machine.self].wait = Wait::ended;
    if (has_ended(machine.rank)) {
        check_registers();
        end_mbarriers(machine.rank);
        end_shared();
    }
    _longjmp(scheduler, SWITCHED);
}

void* reserve(size_t bytes)
{
    void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED)
        abort();
    return pages;
}

// Room for the threads of the largest cluster; pages that nobody touches take no memory.
constexpr int THREADS_MAX = 16 * 1024;

char* stacks()
{
    static char* all = static_cast<char*>(reserve(THREADS_MAX * STACK_BYTES));
    return all;
}

void choose(int self)
{
    machine.self = self;
    machine.rank = self / machine.block_threads;
    machine.thread = self % machine.block_threads;
    machine.generation = generations[machine.rank];
}

// Lets a thread run on; false when it ended in a fault.
__attribute__((noinline)) bool resume(int self)
{
    Thread& thread = threads[self];
    choose(self);
    const auto block = uint64_t(machine.block());
    const auto number = unsigned(machine.thread);
    block_index = {unsigned(block % grid_size.x), unsigned(block / grid_size.x % grid_size.y),
                   unsigned(block / grid_size.x / grid_size.y)};
    thread_index = {number % block_size.x, number / block_size.x % block_size.y,
                    number / block_size.x / block_size.y};
    path = thread.path;
    machine.sequence = thread.sequence;
    machine.last_line = 0;
    int why = _setjmp(scheduler);
    if (why == 0) {
        is_inside = true;
        thread.wait = Wait::nothing;
        if (!thread.is_fresh)
            _longjmp(thread.here, 1);
        thread.is_fresh = false;
        getcontext(&thread.context);
        thread.context.uc_stack.ss_sp = stacks() + size_t(self) * STACK_BYTES;
        thread.context.uc_stack.ss_size = STACK_BYTES;
        thread.context.uc_link = nullptr;
        makecontext(&thread.context, enter, 0);
        setcontext(&thread.context);
    }
    is_inside = false;
    threads[machine.self].sequence = machine.sequence;
    return why != FAULTED;
}

void note(Kind kind, int line, int space, int64_t offset_bytes, int words, int64_t other_block,
          int other_thread, int other_line, std::vector<int64_t> detail = {})
{
    machine.faults.push_back({kind, line, machine.block(), machine.thread, space, offset_bytes,
                              words, other_block, other_thread, other_line, std::move(detail)});
}

// A signal is the kernel's if one of its threads was running. In the fault, `words` is the signal,
// and the other line is that of the thread's last access through a primitive.
void crashed(int signal, siginfo_t* info, void*)
{
    if (!is_inside) {
        std::signal(signal, SIG_DFL);
        raise(signal);
        return;
    }
    const int64_t offset = static_cast<const char*>(info->si_addr) - machine.shared_base;
    const bool is_shared = signal == SIGSEGV && offset >= 0 && offset < SHARED_RESERVED_BYTES;
    note(Kind::crash, 0, is_shared ? SHARED : NOWHERE, is_shared ? offset : 0, signal, -1, -1,
         machine.last_line);
    _longjmp(scheduler, FAULTED);
}

void catch_signals()
{
    static char stack[64 * 1024];
    stack_t alternate = {};
    alternate.ss_sp = stack;
    alternate.ss_size = sizeof stack;
    sigaltstack(&alternate, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = crashed;
    // Left by longjmp, so the signal must not stay blocked.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL})
        sigaction(signal, &action, nullptr);
}

// Runs the lanes of a warp for as long as only they wait for one another.
bool run_warp(int first, int lanes, bool& has_run)
{
    const int rank = first / machine.block_threads;
    const int warp = first % machine.block_threads / LANES;
    for (bool again = true; again;) {
        for (int self = first; self < first + lanes; ++self) {
            const Thread& thread = threads[self];
            if (thread.wait != Wait::nothing
                && !(thread.wait == Wait::phase && is_over(thread.phase)))
                continue;
            has_run = true;
            if (!resume(self))
                return false;
        }
        int waiting = 0, ended = 0;
        bool are_apart = false;
        const Thread* alive = nullptr;
        for (const Thread* lane = threads + first; lane < threads + first + lanes; ++lane) {
            waiting += lane->wait == Wait::warp;
            if (lane->wait == Wait::ended) {
                ++ended;
                continue;
            }
            alive = alive ? alive : lane;
            are_apart |= lane->line != alive->line || lane->path != alive->path;
        }
        again = waiting && waiting + ended == lanes;
        if (again) {
            meet_lanes(first, lanes);
            for (int self = first; self < first + lanes; ++self)
                if (threads[self].wait == Wait::warp)
                    threads[self].wait = Wait::nothing;
        }
        if (again || !are_apart)
            end_requests(rank, warp);
    }
    return true;
}

// Whether every thread of a block waits at the same barrier in the same turn of its loops. In the
// fault, `words` is 1 where the thread has ended, and the other's line is 0 where that one has.
bool has_converged(int rank)
{
    const Thread* const block = threads + rank * machine.block_threads;
    const Thread& first = block[0];
    for (int i = 1; i < machine.block_threads; ++i) {
        const Thread& other = block[i];
        if (other.wait == first.wait
            && (first.wait == Wait::ended
                || (other.line == first.line && other.path == first.path)))
            continue;
        choose(rank * machine.block_threads + i);
        if (other.wait == Wait::block)
            note(Kind::divergent_barrier, other.line, NOWHERE, 0, 0, machine.block(), 0,
                 first.wait == Wait::block ? first.line : 0);
        else
            note(Kind::divergent_barrier, first.line, NOWHERE, 0, 1, machine.block(), 0,
                 first.line);
        return false;
    }
    return true;
}

int waiting(int first, int number, Wait what)
{
    return int(std::count_if(threads + first, threads + first + number,
                             [what](const Thread& thread) { return thread.wait == what; }));
}

void let_go(int first, int number)
{
    for (int self = first; self < first + number; ++self)
        if (threads[self].wait != Wait::ended)
            threads[self].wait = Wait::nothing;
}

void begin_generation(int rank)
{
    ++generations[rank];
    Thread* const block = threads + rank * machine.block_threads;
    for (Thread* thread = block; thread < block + machine.block_threads; ++thread)
        thread->sequence = uint64_t(generations[rank]) << 32;
}

// Opens the barriers at which all have arrived; false after a fault.
bool open_barriers(bool& has_opened)
{
    const int size = machine.block_threads;
    for (int rank = 0; rank < int(machine.blocks.size()); ++rank) {
        const int here = waiting(rank * size, size, Wait::block);
        if (!here || here + waiting(rank * size, size, Wait::ended) < size)
            continue;
        if (!has_converged(rank))
            return false;
        meet_block(rank);
        begin_generation(rank);
        let_go(rank * size, size);
        has_opened = true;
    }
    const int here = waiting(0, count, Wait::cluster);
    if (here && here + waiting(0, count, Wait::ended) == count) {
        meet_team();
        for (int rank = 0; rank < int(machine.blocks.size()); ++rank)
            begin_generation(rank);
        let_go(0, count);
        has_opened = true;
    }
    return true;
}

// Nobody can run. Named are the first thread that waits for a phase, or else the first that waits,
// and another that waits elsewhere; describe.py knows the order of the details.
void note_deadlock()
{
    const Thread* first = nullptr;
    const Thread* other = nullptr;
    for (const Thread* thread = threads; thread < threads + count; ++thread)
        if (thread->wait != Wait::ended
            && (!first || (first->wait != Wait::phase && thread->wait == Wait::phase)))
            first = thread;
    for (const Thread* thread = threads; thread < threads + count; ++thread)
        if (!other && thread->wait != Wait::ended && thread->line != first->line)
            other = thread;
    choose(int(first - threads));
    const auto alike = [](const Thread* of) {
        return std::count_if(threads, threads + count, [of](const Thread& thread) {
            return thread.wait == of->wait && thread.line == of->line;
        });
    };
    const bool is_phase = first->wait == Wait::phase;
    std::vector<int64_t> detail = {int64_t(first->wait), alike(first), other ? alike(other) : 0,
                                   waiting(0, count, Wait::ended)};
    if (is_phase)
        for (const int64_t number : missing(first->phase))
            detail.push_back(number);
    const int self = other ? int(other - threads) : -1;
    note(Kind::deadlock, first->line, is_phase ? SHARED : NOWHERE,
         is_phase ? offset_of(first->phase) : 0, 0, other ? machine.block_of(self) : -1,
         other ? machine.thread_of(self) : -1, other ? other->line : 0, std::move(detail));
}

void begin_team(const Launch& launch, const std::vector<int64_t>& blocks)
{
    static bool is_ready = false;
    if (!is_ready) {
        catch_signals();
        threads = static_cast<Thread*>(reserve(THREADS_MAX * sizeof(Thread)));
        is_ready = true;
    }
    grid_size = launch.grid;
    block_size = launch.block;
    machine.block_threads = int(block_size.x * block_size.y * block_size.z);
    machine.blocks = blocks;
    const int ranks = int(blocks.size());
    count = machine.team_threads();
    for (Thread* thread = threads; thread < threads + count; ++thread) {
        thread->is_fresh = true;
        thread->wait = Wait::nothing;
        thread->path = 0;
        thread->line = 0;
        thread->sequence = 0;
        thread->registers = 0;
        thread->registers_line = 0;
    }
    generations.assign(size_t(ranks), 1);
    begin_order(ranks, count);
    // A barrier of the block orders neither other blocks nor the copy engine.
    begin_shared(launch.shared_bytes, ranks, ranks > 1 || launch.has_maps);
    begin_global();
    begin_mbarriers();
    begin_requests(ranks, (machine.block_threads + LANES - 1) / LANES);
}

}  // namespace

void wait_for(Wait what, int line, Phase phase)
{
    Thread& thread = threads[machine.self];
    thread.path = path;
    thread.line = line;
    thread.phase = phase;
    if (_setjmp(thread.here) == 0) {
        thread.wait = what;
        _longjmp(scheduler, SWITCHED);
    }
}

void barrier(int line) { wait_for(Wait::block, line); }

void warp_barrier(int line) { wait_for(Wait::warp, line); }

void cluster_barrier(int line) { wait_for(Wait::cluster, line); }

void change_registers(int number, int line)
{
    if (number < 24 || number > 256 || number % 8)
        fault(Kind::divergent_registers, line, NOWHERE, 0, number, machine.block(), -1);
    Thread& thread = threads[machine.self];
    thread.registers = thread.registers * 1000003 + uint64_t(line) * 1024 + uint64_t(number);
    thread.registers_line = line;
}

void fault(Kind kind, int line, int space, int64_t offset_bytes, int words, int64_t other_block,
           int other_thread, int other_line, std::vector<int64_t> detail)
{
    note(kind, line, space, offset_bytes, words, other_block, other_thread, other_line,
         std::move(detail));
    _longjmp(scheduler, FAULTED);
}

bool run_team(Call call, int number, const Launch& launch, const std::vector<int64_t>& blocks)
{
    kernel = call;
    launch_number = number;
    launch_arguments = launch.arguments.data();
    begin_team(launch, blocks);
    for (;;) {
        bool has_run = false, has_opened = false;
        for (int rank = 0; rank < int(blocks.size()); ++rank)
            for (int first = 0; first < machine.block_threads; first += LANES)
                if (!run_warp(rank * machine.block_threads + first,
                              std::min(LANES, machine.block_threads - first), has_run))
                    return false;
        const bool is_right = open_barriers(has_opened);
        if (const Fault* found = suspected())
            machine.faults.push_back(*found);
        if (!is_right || suspected())
            return false;
        if (waiting(0, count, Wait::ended) == count)
            return true;
        if (has_run || has_opened || land())
            continue;
        note_deadlock();
        return false;
    }
}

}  // namespace emulate
