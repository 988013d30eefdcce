"""Memory through which blocks hand data to one another, in one launch or from launch to launch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernels import changed, emulate, line_of, said
from toys import COLUMNS, Slip, launch, operands, toy

from autotune.emulate import FaultKind as K
from autotune.types import Argument, Workspace

BLOCKS = 3
PARTS = Workspace(name="parts", size_bytes=BLOCKS * 4 * COLUMNS * 4, is_zeroed=False)
COUNTERS = Workspace(name="counters", size_bytes=4, is_zeroed=True)


def workspaces(*names: str) -> tuple[Argument, ...]:
    return (*operands(), *(Argument(kind="workspace", name=name) for name in names))


PARTIAL = """
// A block's share of the sums of a column.
__device__ __forceinline__ void multiply(float (&sums)[4], const float* a, const float* b, int k)
{
    for (int step = blockIdx.x; step < k; step += gridDim.x) {
        float value = 0.0f;
        if (threadIdx.x < 100)
            value = load_global<1>(b + step * 128 + threadIdx.x).at[0];
        for (int i = 0; i < 4; ++i)
            sums[i] += load_global<1>(a + i * k + step).at[0] * value;
    }
}

"""

# ---- the last block to come adds up

LAST = f"""{PARTIAL}
extern "C" __global__ void
toy(const float* a, const float* b, float* c, int k, float* parts, unsigned* counters)
{{
    extern __shared__ __align__(16) float shared[];
    const int thread = threadIdx.x;
    const unsigned others = gridDim.x - 1;
    float sums[4] = {{}};
    multiply(sums, a, b, k);
    for (int i = 0; i < 4; ++i)
        store_workspace<1>(parts + (blockIdx.x * 4 + i) * 128 + thread, {{sums[i]}});
    barrier();
    if (thread == 0)
        store_shared<1>(shared, {{count_arrival(counters, others) == others ? 1.0f : 0.0f}});
    barrier();
    if (load_shared<1>(shared).at[0] == 0.0f)
        return;
    const int column = thread ^ 1;
    for (int i = 0; i < 4; ++i) {{
        float sum = 0.0f;
        for (int part = 0; part <= others; ++part)
            sum += load_workspace<1>(parts + (part * 4 + i) * 128 + column).at[0];
        if (column < 100)
            store_global<1>(c + i * 128 + column, {{sum}});
    }}
}}
"""
LAST_TOY = toy(
    LAST,
    ["workspace", "arrival"],
    launch(blocks=BLOCKS, shared_bytes=16, arguments=workspaces("parts", "counters")),
    workspaces=[PARTS, COUNTERS],
)
LEAVE = "store_workspace<1>(parts + (blockIdx.x * 4 + i) * 128 + thread, {sums[i]});"
TAKE = "sum += load_workspace<1>(parts + (part * 4 + i) * 128 + column).at[0];"
COUNT = "count_arrival(counters, others) == others"

LAST_SLIPS = [
    Slip(
        "no barrier before the arrival",
        f"        {LEAVE}\n    barrier();\n", f"        {LEAVE}\n",
        K.unsynchronised_read, TAKE, f"of block 0 wrote at line <<{LEAVE}>>, with no arrival",
    ),
    Slip(
        "the block with the last number takes the others to be there",
        COUNT, "blockIdx.x == others",
        K.unsynchronised_read, TAKE, f"of block 0 wrote at line <<{LEAVE}>>, with no arrival",
    ),
    Slip(
        "blocks are expected in the order of their numbers",
        COUNT, "count_arrival(counters, others) <= others && blockIdx.x == others",
        K.unwritten_workspace, TAKE, "reads parts[1] (row 0, column 1), which no block has",
    ),
    Slip(
        "nobody waits for the last",
        "        return;\n", "        ;\n",
        K.unwritten_workspace, TAKE,
    ),
    Slip(
        "only the thread that arrived knows",
        "0.0f});\n    barrier();\n    if (load_shared<1>(shared).at[0] == 0.0f)",
        "0.0f});\n    if (blockIdx.x < others)",
        K.unsynchronised_read, TAKE,
    ),
    Slip(
        "a load that the L1 cache may serve",
        "load_workspace<1>(parts + (part", "load_global<1>(parts + (part",
        K.unsynchronised_read,
        "sum += load_global<1>(parts + (part * 4 + i) * 128 + column).at[0];",
        "only load_workspace does not",
    ),
    Slip(
        "a counter that does not return to zero",
        "count_arrival(counters, others)", "count_arrival(counters, others + 1)",
        K.not_zeroed, "", "1 words of workspace counters are not zero",
    ),
    Slip(
        "a part where another's is",
        "(blockIdx.x * 4 + i) * 128 + thread", "i * 128 + thread",
        K.written_twice, "store_workspace<1>(parts + i * 128 + thread, {sums[i]});",
        "thread 0 of block 0 wrote at line",
    ),
    Slip(
        "a part past the end",
        "(blockIdx.x * 4 + i) * 128 + thread", "(blockIdx.x * 4 + i + 1) * 128 + thread",
        K.out_of_bounds_global,
        "store_workspace<1>(parts + (blockIdx.x * 4 + i + 1) * 128 + thread, {sums[i]});",
        "accesses parts[1536]",
    ),
    Slip(
        "a neighbour's part with no barrier between",
        "    barrier();\n    if (thread == 0)",
        "    if (thread)\n        load_workspace<1>(parts + blockIdx.x * 512 + thread - 1);\n"
        "    barrier();\n    if (thread == 0)",
        K.read_after_write, "load_workspace<1>(parts + blockIdx.x * 512 + thread - 1);",
        f"thread 0 writes at line <<{LEAVE}>>",
    ),
    Slip(
        "a part overwritten while a neighbour may read it",
        "    for (int i = 0; i < 4; ++i)\n        store_workspace",
        "    store_workspace<1>(parts + blockIdx.x * 512 + thread, {0.0f});\n    barrier();\n"
        "    if (thread % 2 == 0)\n"
        "        load_workspace<1>(parts + blockIdx.x * 512 + thread + 1);\n"
        "    for (int i = 0; i < 4; ++i)\n        store_workspace",
        K.write_after_read, LEAVE,
        "thread 0 reads at line <<load_workspace<1>(parts + blockIdx.x * 512 + thread + 1);>>",
    ),
]  # fmt: skip

# ---- a launch of its own adds up

TWO = f"""{PARTIAL}
extern "C" __global__ void
leave(const float* a, const float* b, float* c, int k, float* parts)
{{
    extern __shared__ __align__(16) float shared[];
    float sums[4] = {{}};
    multiply(sums, a, b, k);
    for (int i = 0; i < 4; ++i)
        store_workspace<1>(parts + (blockIdx.x * 4 + i) * 128 + threadIdx.x, {{sums[i]}});
}}

extern "C" __global__ void
add(const float* a, const float* b, float* c, int k, float* parts)
{{
    for (int i = 0; i < 4 && threadIdx.x < 100; ++i) {{
        float sum = 0.0f;
        for (int part = 0; part < 3; ++part)
            sum += load_global<1>(parts + (part * 4 + i) * 128 + threadIdx.x).at[0];
        store_global<1>(c + i * 128 + threadIdx.x, {{sum}});
    }}
}}
"""
LEAVING = launch("leave", blocks=BLOCKS, arguments=workspaces("parts"))
ADDING = launch("add", arguments=workspaces("parts"))
TWO_TOY = toy(TWO, ["workspace"], LEAVING, ADDING, workspaces=[PARTS])

# ---- adds in any order

ATOMIC = f"""{PARTIAL}
extern "C" __global__ void
clear(const float* a, const float* b, float* c, int k)
{{
    extern __shared__ __align__(16) float shared[];
    for (int i = 0; i < 4 && threadIdx.x < 100; ++i)
        store_global<1>(c + i * 128 + threadIdx.x, {{0.0f}});
}}

extern "C" __global__ void
toy(const float* a, const float* b, float* c, int k)
{{
    float sums[4] = {{}};
    multiply(sums, a, b, k);
    for (int i = 0; i < 4 && threadIdx.x < 100; ++i)
        add_global<1>(c + i * 128 + threadIdx.x, {{sums[i]}});
}}
"""
ATOMIC_TOY = toy(ATOMIC, ["atomic"], launch("clear"), launch(blocks=BLOCKS))
ADD = "add_global<1>(c + i * 128 + threadIdx.x, {sums[i]});"

ATOMIC_SLIPS = [
    Slip(
        "one block stores",
        f"        {ADD}",
        "        if (blockIdx.x == 1)\n"
        "            store_global<1>(c + i * 128 + threadIdx.x, {sums[i]});\n"
        f"        else\n            {ADD}",
        K.mixed_atomic, "store_global<1>(c + i * 128 + threadIdx.x, {sums[i]});",
        f"thread 0 of block 0 did at line <<{ADD}>>",
    ),
    Slip(
        "a sum is read where others still add",
        f"        {ADD}",
        f"    {{\n        {ADD}\n        load_global<1>(c + i * 128 + threadIdx.x);\n    }}",
        K.mixed_atomic, "load_global<1>(c + i * 128 + threadIdx.x);",
        f"thread 0 did at line <<{ADD}>>",
    ),
    Slip(
        "C holds nothing to add to",
        "threadIdx.x, {0.0f});", "(threadIdx.x & 62), {0.0f});",
        K.written_twice, "store_global<1>(c + i * 128 + (threadIdx.x & 62), {0.0f});",
    ),
    Slip(
        "A is added to",
        ADD, "add_global<1>(const_cast<float*>(a), {sums[i]});",
        K.forbidden_write, "add_global<1>(const_cast<float*>(a), {sums[i]});",
    ),
    Slip(
        "a pair of floats at an odd place",
        ADD, "add_global<2>(c + 1, {});",
        K.misaligned, "add_global<2>(c + 1, {});",
    ),
]  # fmt: skip

SLIPS = [*LAST_SLIPS, *ATOMIC_SLIPS]


@pytest.mark.parametrize("right", [LAST_TOY, TWO_TOY, ATOMIC_TOY], ids=["last", "two", "atomic"])
def test_right_ways_raise_nothing(right: object) -> None:
    report = emulate(right)  # type: ignore[arg-type]
    assert report.verdict == "ok", said(report)


@pytest.mark.parametrize("slip", LAST_SLIPS, ids=lambda slip: slip.name.replace(" ", "-"))
def test_a_slip_of_the_last_block_is_named(slip: Slip) -> None:
    slip.check(LAST_TOY)


@pytest.mark.parametrize("slip", ATOMIC_SLIPS, ids=lambda slip: slip.name.replace(" ", "-"))
def test_a_slip_of_atomic_adds_is_named(slip: Slip) -> None:
    slip.check(ATOMIC_TOY)


def test_a_part_that_an_earlier_launch_did_not_write_is_named() -> None:
    plan = replace(TWO_TOY.plan, launches=(replace(LEAVING, grid=(2, 1, 1)), ADDING))
    fault = emulate(replace(TWO_TOY, plan=plan)).faults[0]
    assert fault.kind is K.unwritten_workspace
    line = "sum += load_global<1>(parts + (part * 4 + i) * 128 + threadIdx.x).at[0];"
    assert fault.line == line_of(TWO_TOY, line)
    assert fault.address == "parts[1024] (row 0, column 1024)"


def test_adding_to_what_nobody_wrote_is_named() -> None:
    plan = replace(ATOMIC_TOY.plan, launches=ATOMIC_TOY.plan.launches[1:])
    fault = emulate(replace(ATOMIC_TOY, plan=plan)).faults[0]
    assert (fault.kind, fault.line) == (K.unwritten_workspace, line_of(ATOMIC_TOY, ADD))


def test_all_blocks_run_where_they_need_one_another() -> None:
    report = emulate(LAST_TOY, blocks="sample")
    assert (report.blocks_run, report.blocks_total) == (BLOCKS, BLOCKS)


def test_adds_and_arrivals_are_counted() -> None:
    counted = {a.text: a for a in emulate(ATOMIC_TOY).accesses if a.kind == "global add"}
    # Four warps of three blocks and four rows; the last warp has 4 of its 32 columns.
    assert (counted[ADD].requests, counted[ADD].sectors) == (4 * 12, 12 * (3 * 4 + 1))
    (arrival,) = (a for a in emulate(LAST_TOY).accesses if a.kind == "global add")
    assert (arrival.requests, arrival.sectors) == (BLOCKS, BLOCKS)


def test_who_is_last_differs() -> None:
    """A block that is right only as the last one of a run is found out in another order."""
    only_last = changed(LAST_TOY, "{sum});", "{blockIdx.x == 2 ? sum : 0.0f});")
    fault = emulate(only_last).faults[0]
    assert (fault.kind, fault.block) == (K.wrong_result, 0)
