// Puts the accesses of a warp's lanes together to requests, and counts equal ones.
//
// Lanes run one after another. The first lane leaves a list of what it accessed since the warp's
// lanes last stood at one place; each further lane finds its place in it by source line, kind, width
// and the turns of the loops around it. A request's cost depends only on where lanes access relative to one another, so
// equal patterns are counted, and Python applies its rules once to each.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <unordered_map>

#include "machine.h"

namespace emulate {

namespace {

constexpr int64_t SECTOR_BYTES = 32;
constexpr int64_t LINE_BYTES = 128;
constexpr int BYPASSING_WORDS = 4;  // of a copy past the L1 cache
constexpr uint32_t INACTIVE = 0xffffffff;

struct Request {
    unsigned long long path;
    Access access;
    int words, line;
    uint32_t lanes;  // a bit for each lane that takes part
    int64_t offsets[LANES];
    int64_t sources[LANES];  // of a copy
    uint32_t inside;         // a bit for each lane of a copy that reads its source
};

struct Pattern {
    Access access;
    int words, line;
    uint32_t offsets[LANES];
    uint32_t sources[LANES];
    uint32_t inside;

    bool operator==(const Pattern& other) const { return !memcmp(this, &other, sizeof *this); }
};

struct Hash {
    size_t operator()(const Pattern& pattern) const
    {
        uint64_t hash = uint64_t(pattern.line) * 64 + pattern.words * 8 + uint64_t(pattern.access);
        for (uint32_t offset : pattern.offsets)
            hash = (hash ^ offset) * 0x9E3779B97F4A7C15ull, hash ^= hash >> 29;
        if (pattern.access != Access::copy_shared)
            return hash;
        for (uint32_t source : pattern.sources)
            hash = (hash ^ source) * 0x9E3779B97F4A7C15ull, hash ^= hash >> 29;
        return hash ^ pattern.inside;
    }
};

struct Warp {
    std::vector<Request> requests;
    size_t cursors[LANES];  // where a lane's next access is expected
};

int warps_of_block;
std::vector<Warp> warps;  // of the team
std::unordered_map<Pattern, size_t, Hash> numbers;
std::vector<Pattern> patterns;
std::vector<std::vector<uint64_t>> counts;  // by rank and pattern

size_t find(std::vector<Request>& requests, size_t cursor, Access access, int words, int line,
            uint32_t bit)
{
    auto fits = [&](const Request& request) {
        return request.line == line && request.path == path && request.access == access
               && request.words == words && !(request.lanes & bit);
    };
    for (size_t i = cursor; i < requests.size(); ++i)
        if (fits(requests[i]))
            return i;
    for (size_t i = 0; i < cursor; ++i)
        if (fits(requests[i]))
            return i;
    requests.push_back({path, access, words, line, 0, {}, {}, 0});
    return requests.size() - 1;
}

// The request that the running lane's access belongs to.
Request& request(Access access, int words, int line, int64_t offset_bytes)
{
    machine.last_line = line;
    Warp& warp = warps[machine.rank * warps_of_block + machine.thread / LANES];
    const int lane = machine.thread % LANES;
    const size_t i = find(warp.requests, warp.cursors[lane], access, words, line, 1u << lane);
    warp.cursors[lane] = i + 1;
    warp.requests[i].lanes |= 1u << lane;
    warp.requests[i].offsets[lane] = offset_bytes;
    return warp.requests[i];
}

// Where the lanes access, from the first of them, to the last multiple of `step` bytes before it.
void place(const Request& from, const int64_t* offsets, int64_t step, uint32_t* placed)
{
    int64_t least = INT64_MAX;
    for (int lane = 0; lane < LANES; ++lane)
        if (from.lanes >> lane & 1)
            least = std::min(least, offsets[lane]);
    least -= least % step;
    for (int lane = 0; lane < LANES; ++lane) {
        // Farther apart than 4 GiB: another sector all the same.
        const int64_t offset = offsets[lane] - least;
        placed[lane] = from.lanes >> lane & 1
            ? uint32_t(offset < INACTIVE ? offset : offset % (int64_t(1) << 31)) : INACTIVE;
    }
}

}  // namespace

void begin_requests(int ranks, int number)
{
    warps_of_block = number;
    warps.assign(size_t(ranks * number), {});
    counts.assign(size_t(ranks), {});
}

void record(Access access, int words, int line, int64_t offset_bytes)
{
    request(access, words, line, offset_bytes);
}

void record_copy(int words, int line, int64_t source_bytes, int64_t target_bytes, bool inside)
{
    Request& copy = request(Access::copy_shared, words, line, target_bytes);
    const int lane = machine.thread % LANES;
    copy.sources[lane] = source_bytes;
    copy.inside |= uint32_t(inside) << lane;
}

void end_requests(int rank, int number)
{
    Warp& warp = warps[rank * warps_of_block + number];
    for (const Request& request : warp.requests) {
        Pattern pattern;
        memset(&pattern, 0, sizeof pattern);
        pattern.access = request.access;
        pattern.words = request.words;
        pattern.line = request.line;
        // Banks are alike, so a request may be moved by any distance; others by whole sectors, and
        // copies past the L1 cache by whole lines.
        int64_t step = 1;
        if (request.access == Access::load_global || request.access == Access::store_global
            || request.access == Access::add_global)
            step = SECTOR_BYTES;
        if (request.access == Access::copy_shared) {
            step = request.words == BYPASSING_WORDS ? LINE_BYTES : 1;
            place(request, request.sources, step, pattern.sources);
            pattern.inside = request.inside;
        }
        // The sectors of a bulk copy are no place.
        if (request.access == Access::load_bulk)
            step = INT64_MAX;
        place(request, request.offsets, step, pattern.offsets);
        auto [entry, is_new] = numbers.try_emplace(pattern, patterns.size());
        if (is_new)
            patterns.push_back(pattern);
        counts[rank].resize(patterns.size());
        ++counts[rank][entry->second];
    }
    warp.requests.clear();
    std::fill(warp.cursors, warp.cursors + LANES, 0);
}

void print_counts(int launch, int rank, int64_t block)
{
    printf("block %d %lld", launch, static_cast<long long>(block));
    for (size_t i = 0; i < counts[rank].size(); ++i)
        if (counts[rank][i])
            printf(" %zu %llu", i, static_cast<unsigned long long>(counts[rank][i]));
    printf("\n");
}

void print_patterns()
{
    for (const Pattern& pattern : patterns) {
        printf("pattern %d %d %d", int(pattern.access), pattern.words, pattern.line);
        for (uint32_t offset : pattern.offsets)
            printf(" %lld", offset == INACTIVE ? -1ll : static_cast<long long>(offset));
        if (pattern.access == Access::copy_shared) {
            for (uint32_t source : pattern.sources)
                printf(" %lld", source == INACTIVE ? -1ll : static_cast<long long>(source));
            printf(" %u", unsigned(pattern.inside));
        }
        printf("\n");
    }
}

}  // namespace emulate
