// Runs a block: each thread on a stack of its own from one barrier to the next, in their order.
//
// Which order hardly matters: accesses that only an order makes right are faults (memory.cpp).

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

enum class State { fresh, waiting, ended };

// A thread is entered through its context once; after that setjmp and longjmp switch, which spares
// the system calls that swapcontext makes.
struct Thread {
    State state;
    ucontext_t context;
    jmp_buf here;
    unsigned long long path;
    int line;  // of the barrier at which it waits
};

Thread* threads;
jmp_buf scheduler;
bool is_inside;  // a thread is running
Call kernel;
int launch_number;
const Argument* launch_arguments;

enum { SWITCHED = 1, FAULTED = 2 };

void enter()
{
    kernel(launch_number, launch_arguments);
    threads[machine.thread].state = State::ended;
    _longjmp(scheduler, SWITCHED);
}

char* stacks()
{
    static char* all = nullptr;
    if (!all) {
        all = static_cast<char*>(mmap(nullptr, 1024 * STACK_BYTES, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        if (all == MAP_FAILED)
            abort();
    }
    return all;
}

// Lets the current thread run on; false when it ended in a fault.
__attribute__((noinline)) bool resume()
{
    int why = _setjmp(scheduler);
    if (why == 0) {
        Thread& thread = threads[machine.thread];
        is_inside = true;
        if (thread.state != State::fresh)
            _longjmp(thread.here, 1);
        getcontext(&thread.context);
        thread.context.uc_stack.ss_sp = stacks() + machine.thread * STACK_BYTES;
        thread.context.uc_stack.ss_size = STACK_BYTES;
        thread.context.uc_link = nullptr;
        makecontext(&thread.context, enter, 0);
        setcontext(&thread.context);
    }
    is_inside = false;
    return why != FAULTED;
}

void note(Kind kind, int line, int space, int64_t offset_bytes, int words, int other_thread,
          int other_line)
{
    machine.faults.push_back({kind, line, machine.block, machine.thread, space, offset_bytes, words,
                              other_thread, other_line});
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
    note(Kind::crash, 0, is_shared ? SHARED : NOWHERE, is_shared ? offset : 0, signal, -1,
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

// Every thread waits at the same barrier in the same turn of its loops, or all have ended. In the
// fault, `words` is 1 where the thread has ended, and the other's line is 0 where that one has.
bool has_converged(int count)
{
    const Thread& first = threads[0];
    for (int i = 1; i < count; ++i) {
        const Thread& other = threads[i];
        if (other.state == first.state
            && (first.state == State::ended
                || (other.line == first.line && other.path == first.path)))
            continue;
        bool is_waiting = other.state == State::waiting;
        machine.thread = i;
        if (is_waiting)
            note(Kind::divergent_barrier, other.line, NOWHERE, 0, 0, 0,
                 first.state == State::waiting ? first.line : 0);
        else
            note(Kind::divergent_barrier, first.line, NOWHERE, 0, 1, 0, first.line);
        return false;
    }
    return true;
}

}  // namespace

void barrier(int line)
{
    Thread& thread = threads[machine.thread];
    thread.path = path;
    thread.line = line;
    if (_setjmp(thread.here) == 0) {
        thread.state = State::waiting;
        _longjmp(scheduler, SWITCHED);
    }
}

void fault(Kind kind, int line, int space, int64_t offset_bytes, int words, int other_thread,
           int other_line)
{
    note(kind, line, space, offset_bytes, words, other_thread, other_line);
    _longjmp(scheduler, FAULTED);
}

bool run_block(Call call, int number, const Launch& launch, int64_t block)
{
    static bool is_ready = false;
    if (!is_ready) {
        catch_signals();
        threads = static_cast<Thread*>(calloc(1024, sizeof(Thread)));
        is_ready = true;
    }
    kernel = call;
    launch_number = number;
    launch_arguments = launch.arguments.data();
    grid_size = launch.grid;
    block_size = launch.block;
    block_index = {unsigned(block % grid_size.x), unsigned(block / grid_size.x % grid_size.y),
                   unsigned(block / grid_size.x / grid_size.y)};
    const int count = int(block_size.x * block_size.y * block_size.z);
    for (int i = 0; i < count; ++i) {
        threads[i].state = State::fresh;
        threads[i].path = 0;
    }
    machine.block = block;
    machine.epoch = 1;
    clear_shared(launch.shared_bytes);
    for (;; ++machine.epoch) {
        for (int i = 0; i < count; ++i) {
            machine.thread = i;
            thread_index = {i % block_size.x, i / block_size.x % block_size.y,
                            i / block_size.x / block_size.y};
            path = threads[i].path;
            machine.sequence = 0;
            machine.last_line = 0;
            begin_lane();
            const bool is_alive = resume();
            if (i % 32 == 31 || i == count - 1 || !is_alive)
                end_warp();
            if (!is_alive)
                return false;
        }
        if (!has_converged(count) || suspect()) {
            if (const Fault* found = suspect())
                machine.faults.push_back(*found);
            return false;
        }
        if (threads[0].state == State::ended)
            return true;
    }
}

}  // namespace emulate
