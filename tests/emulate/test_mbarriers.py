"""Barriers in shared memory, copies of the copy engine that complete them, warps with a role."""

from __future__ import annotations

import pytest
from kernels import changed, emulate, line_of, said
from toys import COLUMNS, PROBLEM, Slip, launch, operands, toy

from autotune.emulate import FaultKind as K
from autotune.problems.sgemm import Sgemm
from autotune.types import Argument, TensorMap, Variant

STAGES = 3
ROWS_OF_B = Argument(
    kind="tensor_map",
    name="map_b",
    tensor_map=TensorMap(
        operand="b",
        columns=PROBLEM.n,
        rows=PROBLEM.k,
        leading_dimension=COLUMNS,
        box_columns=COLUMNS,
        box_rows=1,
    ),
)

CODE = """
constexpr int STAGES = 3;

extern "C" __global__ void __launch_bounds__(256)
toy(const __grid_constant__ TensorMap map, const float* a, const float* b, float* c, int k)
{
    extern __shared__ __align__(128) float shared[];
    Mbarrier* const arrived = reinterpret_cast<Mbarrier*>(shared + STAGES * 128);
    Mbarrier* const released = arrived + STAGES;
    const int thread = threadIdx.x;
    if (thread == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(&arrived[stage], 1);
            barrier_init(&released[stage], 4);
        }
        fence_barrier_init();
    }
    barrier();
    if (thread >= 128) {
        give_registers<24>();
        if (thread == 128)
            for (int step = 0; step < k; ++step) {
                const int stage = step % STAGES;
                barrier_wait(&released[stage], step / STAGES % 2 ^ 1);
                barrier_expect(&arrived[stage], 512);
                bulk_load_2d(shared + stage * 128, map, 0, step, &arrived[stage]);
            }
        return;
    }
    take_registers<240>();
    float sums[4] = {};
    for (int step = 0; step < k; ++step) {
        const int stage = step % STAGES;
        barrier_wait(&arrived[stage], step / STAGES % 2);
        const float value = load_shared<1>(shared + stage * 128 + thread).at[0];
        fence_async();
        warp_barrier();
        if (thread % 32 == 0)
            barrier_arrive(&released[stage]);
        for (int i = 0; i < 4; ++i)
            sums[i] += load_global<1>(a + i * k + step).at[0] * value;
    }
    for (int i = 0; i < 4; ++i)
        if (thread < 100)
            store_global<1>(c + i * 128 + thread, {sums[i]});
}
"""
TOY = toy(
    CODE,
    ["mbarrier", "bulk", "registers", "warp"],
    launch(
        threads=256, shared_bytes=STAGES * (512 + 16), arguments=(ROWS_OF_B, *operands())
    ),
)  # fmt: skip

COPY = "bulk_load_2d(shared + stage * 128, map, 0, step, &arrived[stage]);"
READ = "const float value = load_shared<1>(shared + stage * 128 + thread).at[0];"
WAIT_RELEASED = "barrier_wait(&released[stage], step / STAGES % 2 ^ 1);"
WAIT_ARRIVED = "barrier_wait(&arrived[stage], step / STAGES % 2);"
EXPECT = "barrier_expect(&arrived[stage], 512);"
ARRIVE = "barrier_arrive(&released[stage]);"

SLIPS = [
    Slip(
        "no fence between reading and releasing",
        "        fence_async();\n", "",
        K.unfenced_copy, COPY, f"thread 0 accessed at line <<{READ}>> without a fence_async",
    ),
    Slip(
        "one lane releases before the others have read",
        "        warp_barrier();\n", "",
        K.write_after_read, COPY, f"which thread 1 reads at line <<{READ}>>",
    ),
    Slip(
        "released before it is read",
        f"        {READ}\n        fence_async();\n        warp_barrier();\n"
        f"        if (thread % 32 == 0)\n            {ARRIVE}\n",
        f"        warp_barrier();\n        if (thread % 32 == 0)\n            {ARRIVE}\n"
        f"        {READ}\n",
        K.write_after_read, COPY, f"which thread 0 reads at line <<{READ}>>",
    ),
    Slip(
        "the producer does not wait",
        f"                {WAIT_RELEASED}\n", "",
        K.barrier_misuse, EXPECT, "all of whose 1 arrivals have come",
    ),
    Slip(
        "the consumers do not wait",
        f"        {WAIT_ARRIVED}\n", "",
        K.unwritten_shared, READ,
    ),
    Slip(
        "the consumers wait for the other parity",
        WAIT_ARRIVED, "barrier_wait(&arrived[stage], step / STAGES % 2 ^ 1);",
        K.unwritten_shared, READ,
    ),
    Slip(
        "the consumers wait for the stage before",
        WAIT_ARRIVED, "barrier_wait(&arrived[(step + 2) % STAGES], (step + 2) / STAGES % 2 ^ 1);",
        K.unwritten_shared, READ,
    ),
    Slip(
        "fewer bytes expected than come",
        EXPECT, "barrier_expect(&arrived[stage], 256);",
        K.deadlock, WAIT_ARRIVED, "its phase 0 lacks 0 of 1 arrivals and has 256 bytes too many",
    ),
    Slip(
        "more bytes expected than come",
        EXPECT, "barrier_expect(&arrived[stage], 1024);",
        K.deadlock, WAIT_ARRIVED, "its phase 0 lacks 0 of 1 arrivals and 512 bytes",
    ),
    Slip(
        "more arrivals expected than come",
        "barrier_init(&released[stage], 4);", "barrier_init(&released[stage], 5);",
        K.deadlock, WAIT_ARRIVED, f"thread 128 waits at line <<{WAIT_RELEASED}>>",
    ),
    Slip(
        "fewer arrivals expected than come",
        "barrier_init(&released[stage], 4);", "barrier_init(&released[stage], 3);",
        K.write_after_read, COPY, f"which thread 96 reads at line <<{READ}>>",
    ),
    Slip(
        "no bytes expected",
        EXPECT, "barrier_arrive(&arrived[stage]);",
        K.read_in_flight, READ, f"the copy that thread 128 started at line <<{COPY}>>",
    ),
    Slip(
        "a barrier that nobody initialised",
        "            barrier_init(&released[stage], 4);\n", "",
        K.uninitialised_barrier, WAIT_RELEASED, "without a barrier_init that the thread knows of",
    ),
    Slip(
        "no barrier after the initialisation",
        "        fence_barrier_init();\n    }\n    barrier();\n",
        "        fence_barrier_init();\n    }\n",
        K.uninitialised_barrier, WAIT_ARRIVED, "without a barrier_init that the thread knows of",
    ),
    Slip(
        "no fence after the initialisation",
        "        fence_barrier_init();\n", "",
        K.uninitialised_barrier, COPY, "without a fence_barrier_init after its barrier_init",
    ),
    Slip(
        "a barrier initialised again",
        "        fence_barrier_init();\n",
        "        barrier_init(arrived, 1);\n        fence_barrier_init();\n",
        K.barrier_misuse, "barrier_init(arrived, 1);", "a second time",
    ),
    Slip(
        "a barrier for no arrival",
        "barrier_init(&arrived[stage], 1);", "barrier_init(&arrived[stage], 0);",
        K.barrier_misuse, "barrier_init(&arrived[stage], 0);", "for 0 arrivals; 1 to 1048575",
    ),
    Slip(
        "one warp does not wait",
        WAIT_ARRIVED, f"if (thread / 32 != 3 || step == 0)\n            {WAIT_ARRIVED}",
        K.read_in_flight, READ, f"the copy that thread 128 started at line <<{COPY}>>",
    ),
    Slip(
        "a barrier used as memory",
        "    take_registers<240>();\n",
        "    store_shared<1>(shared + STAGES * 128 + 2, {0.0f});\n    take_registers<240>();\n",
        K.barrier_misuse, "store_shared<1>(shared + STAGES * 128 + 2, {0.0f});",
        "shared + 1544 bytes, which is part of an mbarrier",
    ),
    Slip(
        "a copy that nobody waits for",
        "step < k; ++step) {\n                const", "step <= k; ++step) {\n                const",
        K.never_awaited, COPY,
    ),
    Slip(
        "a copy beyond shared memory",
        COPY, "bulk_load_2d(shared + (stage + 1) * 128, map, 0, step, &arrived[stage]);",
        K.out_of_bounds_shared,
        "bulk_load_2d(shared + (stage + 1) * 128, map, 0, step, &arrived[stage]);",
    ),
    Slip(
        "a copy to an address that is no multiple of 128 bytes",
        COPY, "bulk_load_2d(shared + stage * 128 + 4, map, 0, step, &arrived[stage]);",
        K.misaligned, "bulk_load_2d(shared + stage * 128 + 4, map, 0, step, &arrived[stage]);",
    ),
    Slip(
        "shared memory that is not declared to be aligned",
        "__align__(128)", "__align__(16)",
        K.misaligned, COPY,
    ),
    Slip(
        "stores before the copy, not fenced off",
        "    barrier();\n    if (thread >= 128) {",
        "    store_shared<1>(shared + thread, {0.0f});\n    barrier();\n    if (thread >= 128) {",
        K.unfenced_copy, COPY, "at line <<store_shared<1>(shared + thread, {0.0f});>>",
    ),
    Slip(
        "a lane passes the others by",
        "        warp_barrier();\n", "        if (thread != 37)\n            warp_barrier();\n",
        K.deadlock, WAIT_ARRIVED,
    ),
    Slip(
        "registers in steps of 4",
        "give_registers<24>();", "give_registers<28>();",
        K.divergent_registers, "give_registers<28>();", "asks for 28 registers; 24 to 256 in steps",
    ),
    Slip(
        "one warp of a group gives its registers",
        "        give_registers<24>();\n",
        "        if (thread < 160)\n            give_registers<24>();\n",
        K.divergent_registers, "give_registers<24>();", "threads 128 to 255 must do the same",
    ),
]  # fmt: skip

FENCED_STORE = changed(
    TOY,
    "    barrier();\n    if (thread >= 128) {",
    "    store_shared<1>(shared + thread, {0.0f});\n    fence_async();\n    barrier();\n"
    "    if (thread >= 128) {",
)


@pytest.mark.parametrize("right", [TOY, FENCED_STORE], ids=["pipeline", "stores-fenced-off"])
def test_right_pipelines_raise_nothing(right: Variant) -> None:
    report = emulate(right)
    assert report.verdict == "ok", said(report)


@pytest.mark.parametrize("slip", SLIPS, ids=lambda slip: slip.name.replace(" ", "-"))
def test_a_slip_is_named(slip: Slip) -> None:
    slip.check(TOY)


def test_a_deadlock_names_who_waits_where() -> None:
    planted = changed(
        TOY, "barrier_init(&released[stage], 4);", "barrier_init(&released[stage], 5);"
    )
    (fault,) = emulate(planted).faults
    assert (fault.thread, fault.address) == (0, "shared + 1536 bytes")
    assert fault.message.startswith(
        f"line {line_of(TOY, WAIT_ARRIVED)}, block 0, thread 0: waits in barrier_wait for ever, "
        "and 127 others there, for parity 1 of the mbarrier at shared + 1536 bytes: its phase 1 "
        "lacks 1 of 1 arrivals and 0 bytes; thread 128 waits at line "
    )
    assert "and 0 others there; 127 threads have ended" in fault.message


def test_bulk_copies_are_counted() -> None:
    (copy,) = (a for a in emulate(TOY).accesses if a.kind == "bulk load")
    # 100 floats of each row lie inside, in 13 sectors.
    assert (copy.requests, copy.sectors, copy.width_bytes) == (7, 7 * 13, 512)
    reads = {a.text: a for a in emulate(TOY).accesses}[READ]
    assert (reads.requests, reads.wavefronts) == (7 * 4, 7 * 4)


# ---- boxes: where the copy engine puts what

BOX = """
extern "C" __global__ void
toy(const __grid_constant__ TensorMap map, const float* a, const float* b, float* c, int k)
{
    extern __shared__ __align__(1024) float shared[];
    constexpr int WIDTH = @WIDTH@;
    Mbarrier* const arrived = reinterpret_cast<Mbarrier*>(shared + 32 * WIDTH);
    const int row = threadIdx.x;
    if (row == 0) {
        barrier_init(arrived, 1);
        fence_barrier_init();
        barrier_expect(arrived, 32 * WIDTH * 4);
        bulk_load_2d(shared, map, 0, 0, arrived);
    }
    barrier();
    barrier_wait(arrived, 0);
    float sum = 0.0f;
    for (int step = 0; step < WIDTH; ++step) {
        const int place = (step / 4 ^ @SWIZZLE@) * 4 + step % 4;
        // What lies outside of A is zero, so that it does not matter what it is multiplied by.
        const float factor = step < k ? load_global<1>(b + step).at[0] : 1.0f;
        sum += load_shared<1>(shared + row * WIDTH + place).at[0] * factor;
    }
    if (row < 30)
        store_global<1>(c + row, {sum});
    else if (sum != 0.0f)
        store_global<1>(c, {0.0f});
}
"""
SWIZZLES = {0: "0", 32: "row / 4 % 2", 64: "row / 2 % 4", 128: "row % 8"}


def box(swizzle_bytes: int, formula: str, **changes: int) -> Variant:
    """Multiplies A, brought as one box that is larger than A, with one column."""
    width = swizzle_bytes // 4 or 16
    problem = Sgemm(m=30, n=1, k=width - 3, lda=width)
    shape = TensorMap(
        operand="a", columns=width - 3, rows=30, leading_dimension=width, box_columns=width,
        box_rows=32, swizzle_bytes=swizzle_bytes,  # type: ignore[arg-type]
    )  # fmt: skip
    arguments = (
        Argument(kind="tensor_map", name="map_a", tensor_map=shape),
        *operands()[:3],
        Argument(kind="int32", name="k", value=width - 3),
    )
    return toy(
        BOX.replace("@WIDTH@", str(width)).replace("@SWIZZLE@", formula),
        ["mbarrier", "bulk"],
        launch(threads=32, shared_bytes=32 * width * 4 + 8, arguments=arguments),
        problem=problem,
    )


@pytest.mark.parametrize("swizzle_bytes", SWIZZLES)
def test_a_box_lies_where_the_swizzle_puts_it(swizzle_bytes: int) -> None:
    report = emulate(box(swizzle_bytes, SWIZZLES[swizzle_bytes]))
    assert report.verdict == "ok", said(report)


@pytest.mark.parametrize("swizzle_bytes", SWIZZLES)
def test_a_box_that_is_read_otherwise_gives_a_wrong_result(swizzle_bytes: int) -> None:
    wrong = "row % 2" if swizzle_bytes != 128 else "row / 2 % 8"
    assert emulate(box(swizzle_bytes, wrong)).faults[0].kind is K.wrong_result


def test_a_swizzled_box_needs_a_place_that_is_a_multiple_of_its_pattern() -> None:
    moved = changed(
        box(128, "row % 8"), "bulk_load_2d(shared, map", "bulk_load_2d(shared + 128, map"
    )
    assert emulate(moved).faults[0].kind is K.misaligned
