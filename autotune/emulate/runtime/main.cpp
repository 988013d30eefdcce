// emulator KERNEL.so WRITTEN < job > result: runs blocks of a plan's launches.
//
// run.py writes the job and reads the result. WRITTEN receives, for every element that was written,
// operand, element, value and who wrote it last.

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unordered_set>

#include "machine.h"

using namespace emulate;

namespace {

constexpr size_t FAULT_LIMIT = 4;

[[noreturn]] void fail(const char* what)
{
    printf("error %s\n", what);
    exit(1);
}

int64_t number()
{
    int64_t value;
    if (scanf("%" SCNd64, &value) != 1)
        fail("the job ends early");
    return value;
}

// Pages that nobody touches take no memory, so a matrix of any size may be written here and there.
template <typename T>
T* sparse(int64_t elements)
{
    void* pages = mmap(nullptr, size_t(elements) * sizeof(T), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED)
        fail("this machine reserves no address space for an output of that size");
    return static_cast<T*>(pages);
}

Operand read_operand()
{
    Operand operand = {};
    for (int64_t* field : {&operand.rows, &operand.columns, &operand.leading_dimension,
                           &operand.batch, &operand.batch_stride, &operand.offset_bytes})
        *field = number();
    operand.role = unsigned(number());
    operand.seed = uint64_t(number());
    operand.limit = uint64_t(number());
    if (operand.role & WRITTEN) {
        const int64_t span = (operand.batch - 1) * operand.batch_stride
                             + (operand.rows - 1) * operand.leading_dimension + operand.columns;
        operand.elements = sparse<Element>(span);
    }
    return operand;
}

Index read_index()
{
    Index index;
    for (unsigned* field : {&index.x, &index.y, &index.z})
        *field = unsigned(number());
    return index;
}

float* read_origin()
{
    const int operand = int(number());
    return reinterpret_cast<float*>(base_of(operand)
                                    + uintptr_t(machine.operands[operand].offset_bytes));
}

const TensorMap* read_map()
{
    static std::deque<TensorMap> maps;
    TensorMap map = {};
    map.origin = read_origin();
    for (long long* field : {&map.columns, &map.rows, &map.row_stride})
        *field = number();
    for (int* field : {&map.box_columns, &map.box_rows, &map.swizzle_bytes})
        *field = int(number());
    maps.push_back(map);
    return &maps.back();
}

Argument read_argument()
{
    Argument argument = {};
    char kind;
    if (scanf(" %c", &kind) != 1)
        fail("the job ends early");
    if (kind == 'p') {
        argument.operand = read_origin();
    } else if (kind == 't') {
        argument.map = read_map();
    } else if (kind == 'i') {
        argument.integer = number();
    } else if (scanf("%f", &argument.real) != 1) {
        fail("an argument is no number");
    }
    return argument;
}

void write_elements(const char* path)
{
    FILE* file = fopen(path, "wb");
    if (!file)
        fail("cannot write the results");
    for (auto [index, element] : machine.written) {
        const Operand& operand = machine.operands[index];
        const Element& written = operand.elements[element];
        const struct {
            int64_t element, block;
            int32_t thread, line, operand;
            float value;
        } row = {element, written.writer.block, int32_t(written.writer.thread),
                 int32_t(written.writer.line), index, written.value};
        if (fwrite(&row, sizeof row, 1, file) != 1)
            fail("cannot write the results");
    }
    if (fclose(file))
        fail("cannot write the results");
}

void print_faults()
{
    for (const Fault& fault : machine.faults) {
        printf("fault %d %d %" PRId64 " %d %d %" PRId64 " %d %" PRId64 " %d %d", int(fault.kind),
               fault.line, fault.block, fault.thread, fault.space, fault.offset_bytes, fault.words,
               fault.other_block, fault.other_thread, fault.other_line);
        for (const int64_t number : fault.detail)
            printf(" %" PRId64, number);
        printf("\n");
    }
}

// The blocks of the cluster that a block is in, by rank.
std::vector<int64_t> cluster_of(int64_t block, const Index& grid, const Index& cluster)
{
    const int64_t x = block % grid.x, y = block / grid.x % grid.y, z = block / grid.x / grid.y;
    std::vector<int64_t> blocks;
    for (int64_t k = z - z % cluster.z; k < z - z % cluster.z + cluster.z; ++k)
        for (int64_t j = y - y % cluster.y; j < y - y % cluster.y + cluster.y; ++j)
            for (int64_t i = x - x % cluster.x; i < x - x % cluster.x + cluster.x; ++i)
                blocks.push_back((k * grid.y + j) * grid.x + i);
    return blocks;
}

}  // namespace

int main(int, char** arguments)
{
    void* kernel = dlopen(arguments[1], RTLD_NOW);
    if (!kernel)
        fail(dlerror());
    auto call = reinterpret_cast<Call>(dlsym(kernel, "emulate_call"));
    auto shared = reinterpret_cast<char* (*)(int64_t*)>(dlsym(kernel, "emulate_shared"));
    auto cluster = reinterpret_cast<void (*)(int, Index*)>(dlsym(kernel, "emulate_cluster"));
    if (!call || !shared || !cluster)
        fail("the kernel lacks its entry points");
    machine.shared_base = shared(&machine.shared_alignment);
    // What lies in shared memory is kept elsewhere; an access that passes by the primitives crashes.
    mprotect(const_cast<char*>(machine.shared_base), SHARED_RESERVED_BYTES, PROT_NONE);

    for (int64_t left = number(); left > 0; --left)
        machine.operands.push_back(read_operand());
    const int launches = int(number());
    for (int index = 0; index < launches && machine.faults.empty(); ++index) {
        Launch launch;
        launch.grid = read_index();
        launch.block = read_index();
        cluster(index, &launch.cluster);
        launch.shared_bytes = number();
        for (int64_t left = number(); left > 0; --left) {
            launch.arguments.push_back(read_argument());
            launch.has_maps |= launch.arguments.back().map != nullptr;
        }
        machine.launch = index + 1;
        begin_launch();
        std::unordered_set<int64_t> done;
        for (int64_t left = number(); left > 0; --left) {
            const int64_t block = number();
            if (machine.faults.size() >= FAULT_LIMIT || done.count(block))
                continue;
            const std::vector<int64_t> team = cluster_of(block, launch.grid, launch.cluster);
            if (team.size() > 1)
                done.insert(team.begin(), team.end());
            if (run_team(call, index, launch, team))
                for (size_t rank = 0; rank < team.size(); ++rank)
                    print_counts(index, int(rank), team[rank]);
        }
    }
    if (machine.is_dependent)
        printf("dependent\n");
    print_patterns();
    print_faults();
    write_elements(arguments[2]);
    printf("end\n");
}
