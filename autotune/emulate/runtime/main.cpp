// emulator KERNEL.so WRITTEN < job > result: runs blocks of a plan's launches.
//
// run.py writes the job and reads the result. WRITTEN receives, for every element that was written,
// operand, element, value and writer.

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <sys/mman.h>

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
        operand.values = sparse<float>(span);
        operand.writers = sparse<uint64_t>(span);
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

Argument read_argument()
{
    Argument argument = {};
    char kind;
    if (scanf(" %c", &kind) != 1)
        fail("the job ends early");
    if (kind == 'p') {
        const int operand = int(number());
        argument.operand = reinterpret_cast<float*>(
            base_of(operand) + uintptr_t(machine.operands[operand].offset_bytes));
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
        const struct {
            int64_t element;
            uint64_t writer;
            int32_t operand;
            float value;
        } row = {element, operand.writers[element] - 1, index, operand.values[element]};
        if (fwrite(&row, sizeof row, 1, file) != 1)
            fail("cannot write the results");
    }
    if (fclose(file))
        fail("cannot write the results");
}

void print_faults()
{
    for (const Fault& fault : machine.faults)
        printf("fault %d %d %" PRId64 " %d %d %" PRId64 " %d %d %d\n", int(fault.kind), fault.line,
               fault.block, fault.thread, fault.space, fault.offset_bytes, fault.words,
               fault.other_thread, fault.other_line);
}

}  // namespace

int main(int, char** arguments)
{
    void* kernel = dlopen(arguments[1], RTLD_NOW);
    if (!kernel)
        fail(dlerror());
    auto call = reinterpret_cast<Call>(dlsym(kernel, "emulate_call"));
    auto shared = reinterpret_cast<char* (*)()>(dlsym(kernel, "emulate_shared"));
    if (!call || !shared)
        fail("the kernel lacks its entry points");
    machine.shared_base = shared();
    // What lies in shared memory is kept elsewhere; an access that passes by the primitives crashes.
    mprotect(shared(), SHARED_RESERVED_BYTES, PROT_NONE);

    for (int64_t left = number(); left > 0; --left)
        machine.operands.push_back(read_operand());
    const int launches = int(number());
    for (int index = 0; index < launches && machine.faults.empty(); ++index) {
        Launch launch;
        launch.grid = read_index();
        launch.block = read_index();
        launch.shared_bytes = number();
        for (int64_t left = number(); left > 0; --left)
            launch.arguments.push_back(read_argument());
        for (int64_t left = number(); left > 0; --left) {
            const int64_t block = number();
            if (machine.faults.size() >= FAULT_LIMIT)
                continue;
            if (run_block(call, index, launch, block))
                print_counts(index, block);
        }
    }
    print_patterns();
    print_faults();
    write_elements(arguments[2]);
    printf("end\n");
}
