// Puts the accesses of a warp's lanes together to requests, and counts equal ones.
//
// Lanes run one after another. The first lane leaves a list of what it accessed since the last
// barrier; each further lane finds its place in it by source line, kind, width and the turns of the
// loops around it. A request's cost depends only on where lanes access relative to one another, so
// equal patterns are counted, and Python applies its rules once to each.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <unordered_map>

#include "machine.h"

namespace emulate {

namespace {

constexpr int LANES = 32;
constexpr int64_t SECTOR_BYTES = 32;
constexpr uint32_t INACTIVE = 0xffffffff;

struct Request {
    unsigned long long path;
    Access access;
    int words, line;
    uint32_t lanes;  // a bit for each lane that takes part
    int64_t offsets[LANES];
};

struct Pattern {
    Access access;
    int words, line;
    uint32_t offsets[LANES];

    bool operator==(const Pattern& other) const { return !memcmp(this, &other, sizeof *this); }
};

struct Hash {
    size_t operator()(const Pattern& pattern) const
    {
        uint64_t hash = uint64_t(pattern.line) * 64 + pattern.words * 8 + uint64_t(pattern.access);
        for (uint32_t offset : pattern.offsets)
            hash = (hash ^ offset) * 0x9E3779B97F4A7C15ull, hash ^= hash >> 29;
        return hash;
    }
};

std::vector<Request> requests;
size_t cursor;  // where the lane's next access is expected
std::unordered_map<Pattern, size_t, Hash> numbers;
std::vector<Pattern> patterns;
std::vector<uint64_t> counts;  // of the block that runs, by pattern

size_t find(Access access, int words, int line, uint32_t bit)
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
    requests.push_back({path, access, words, line, 0, {}});
    return requests.size() - 1;
}

}  // namespace

void record(Access access, int words, int line, int64_t offset_bytes)
{
    machine.last_line = line;
    const int lane = machine.thread % LANES;
    const size_t i = find(access, words, line, 1u << lane);
    requests[i].lanes |= 1u << lane;
    requests[i].offsets[lane] = offset_bytes;
    cursor = i + 1;
}

void begin_lane() { cursor = 0; }

void end_warp()
{
    for (const Request& request : requests) {
        Pattern pattern;
        memset(&pattern, 0, sizeof pattern);
        pattern.access = request.access;
        pattern.words = request.words;
        pattern.line = request.line;
        int64_t least = INT64_MAX;
        for (int lane = 0; lane < LANES; ++lane)
            if (request.lanes >> lane & 1)
                least = std::min(least, request.offsets[lane]);
        // Banks are alike, so a request may be moved by any distance; sectors by whole ones.
        if (request.access >= Access::load_global)
            least -= least % SECTOR_BYTES;
        for (int lane = 0; lane < LANES; ++lane) {
            // Farther apart than 4 GiB: another sector all the same.
            const int64_t offset = request.offsets[lane] - least;
            pattern.offsets[lane] = request.lanes >> lane & 1
                ? uint32_t(offset < INACTIVE ? offset : offset % (int64_t(1) << 31)) : INACTIVE;
        }
        auto [entry, is_new] = numbers.try_emplace(pattern, patterns.size());
        if (is_new) {
            patterns.push_back(pattern);
            counts.push_back(0);
        }
        ++counts[entry->second];
    }
    requests.clear();
}

void print_counts(int launch, int64_t block)
{
    printf("block %d %lld", launch, static_cast<long long>(block));
    for (size_t i = 0; i < counts.size(); ++i)
        if (counts[i])
            printf(" %zu %llu", i, static_cast<unsigned long long>(counts[i]));
    printf("\n");
    std::fill(counts.begin(), counts.end(), 0);
}

void print_patterns()
{
    for (const Pattern& pattern : patterns) {
        printf("pattern %d %d %d", int(pattern.access), pattern.words, pattern.line);
        for (uint32_t offset : pattern.offsets)
            printf(" %lld", offset == INACTIVE ? -1ll : static_cast<long long>(offset));
        printf("\n");
    }
}

}  // namespace emulate
