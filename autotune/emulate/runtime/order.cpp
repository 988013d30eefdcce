// What comes before what: the one place that knows.
//
// Every thread of a team (the blocks that run together: one, or those of a cluster) has a time. An
// access is stamped with its thread and that thread's time: an event. A clock holds a time for every
// thread: all that a thread did up to its time there is known to whoever holds the clock.
//
//   release   the thread's clock, with its own time, is joined to another; then its time moves on
//   acquire   another clock is joined to the thread's
//
// Barriers, mbarriers and counters are no more than that: who arrives releases, who leaves acquires.
// Two accesses to one place, one of them a write, must be ordered: the earlier one's event known to
// the later one's thread. The copy engine of an mbarrier is one more "thread", whose time is the
// phase that its copies complete.
//
// The copy engine passes by the path of ordinary accesses. Before its copies come only those whose
// thread called `fence_async` after them and released after that.
//
// At a barrier of the whole block every thread's clock becomes the same: it is kept once a block, in
// `base`. Only what a thread learnt otherwise since then is kept for itself, in `own`.

#include <algorithm>

#include "machine.h"

namespace emulate {

namespace {

std::vector<Time> times;               // of the threads
std::vector<Clock> base;               // by rank
std::vector<Clock> own;                // by thread; empty where it learnt nothing since `base`
std::vector<std::vector<Time>> fences;  // by thread: its times when it called `fence_async`
int width;

void join(Clock& into, const Clock& from)
{
    if (from.empty())
        return;
    if (into.empty())
        into.assign(size_t(width), 0);
    Time* const to = into.data();
    const Time* const of = from.data();
    for (int i = 0; i < width; ++i)
        to[i] = std::max(to[i], of[i]);
}

void release_of(int thread, Clock& into)
{
    join(into, base[thread / machine.block_threads]);
    join(into, own[thread]);
    into[thread] = times[thread]++;
}

Time known(int knower, int who)
{
    const Time time = base[knower / machine.block_threads][who];
    return own[knower].empty() ? time : std::max(time, own[knower][who]);
}

// Whoever is among them knows all that any of them did.
void meet(int first, int count, Clock& all)
{
    for (int thread = first; thread < first + count; ++thread) {
        join(all, own[thread]);
        own[thread].clear();
        all[thread] = times[thread]++;
    }
}

}  // namespace

void begin_order(int ranks, int threads)
{
    width = threads + ENGINES;
    times.assign(size_t(threads), 1);
    base.assign(size_t(ranks), Clock(size_t(width), 0));
    own.assign(size_t(threads), {});
    fences.assign(size_t(threads), {});
}

Event now() { return {machine.self, times[machine.self]}; }

bool is_known(int knower, Event event)
{
    return event.who == knower || event.when <= known(knower, event.who);
}

bool is_ordered(Event event)
{
    return event.who == machine.self || event.when <= base[machine.rank][event.who]
           || (!own[machine.self].empty() && event.when <= own[machine.self][event.who]);
}

bool is_fenced(Event event)
{
    if (event.who >= machine.team_threads())
        return true;
    const std::vector<Time>& calls = fences[event.who];
    const auto call = std::lower_bound(calls.begin(), calls.end(), event.when);
    return call != calls.end() && is_known(machine.self, {event.who, *call + 1});
}

void advance() { ++times[machine.self]; }

void fence()
{
    fences[machine.self].push_back(times[machine.self]);
    advance();
}

void release(Clock& clock) { release_of(machine.self, clock); }

void acquire(const Clock& clock) { join(own[machine.self], clock); }

void meet_block(int rank)
{
    meet(rank * machine.block_threads, machine.block_threads, base[rank]);
}

void meet_team()
{
    Clock all = base[0];
    for (const Clock& clock : base)
        join(all, clock);
    meet(0, machine.team_threads(), all);
    std::fill(base.begin(), base.end(), all);
}

void meet_lanes(int first, int count)
{
    Clock all;
    for (int lane = first; lane < first + count; ++lane)
        release_of(lane, all);
    for (int lane = first; lane < first + count; ++lane)
        join(own[lane], all);
}

int engine(int number) { return machine.team_threads() + number; }

}  // namespace emulate
