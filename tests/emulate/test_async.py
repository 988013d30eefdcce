"""cp.async: data is there after the wait that promises it, for other threads a barrier later."""

from __future__ import annotations

import pytest
from kernels import emulate, said
from toys import COLUMNS, Slip, launch, toy

from autotune.emulate import FaultKind as K

CODE = """
constexpr int STAGES = 3;

extern "C" __global__ void __launch_bounds__(128)
toy(const float* a, const float* b, float* c, int k)
{
    extern __shared__ __align__(16) float shared[];
    const int thread = threadIdx.x;
    const bool inside = thread < 100;
    float* const target = shared + thread;
    const float* const source = b + thread;
    float sums[4] = {};
    for (int next = 0; next < STAGES - 1; ++next) {
        copy_async_if<1>(target + next * 128, source + next * 128, inside);
        commit_async();
    }
    for (int step = 0; step < k; ++step) {
        wait_async<STAGES - 2>();
        barrier();
        const int next = step + STAGES - 1;
        if (next < k)
            copy_async_if<1>(target + next % STAGES * 128, source + next * 128, inside);
        commit_async();
        // Its neighbour's column, which the neighbour copied.
        const float value = load_shared<1>(shared + step % STAGES * 128 + (thread ^ 1)).at[0];
        for (int i = 0; i < 4; ++i)
            sums[i] += load_global<1>(a + i * k + step).at[0] * value;
    }
    for (int i = 0; i < 4; ++i)
        if (inside)
            store_global<1>(c + i * 128 + (thread ^ 1), {sums[i]});
}
"""
TOY = toy(CODE, ["async", "async_if"], launch(shared_bytes=3 * 4 * COLUMNS))

FIRST = "copy_async_if<1>(target + next * 128, source + next * 128, inside);"
COPY = "copy_async_if<1>(target + next % STAGES * 128, source + next * 128, inside);"
READ = "const float value = load_shared<1>(shared + step % STAGES * 128 + (thread ^ 1)).at[0];"

SLIPS = [
    Slip(
        "nobody waits",
        "        wait_async<STAGES - 2>();\n", "",
        K.read_in_flight, READ, f"at line <<{FIRST}>>",
    ),
    Slip(
        "one group too few is waited for",
        "wait_async<STAGES - 2>()", "wait_async<STAGES - 1>()",
        K.read_in_flight, READ, f"at line <<{FIRST}>>",
    ),
    Slip(
        "copies that no group holds",
        "inside);\n        commit_async();\n        // Its", "inside);\n        // Its",
        K.read_in_flight, READ, f"at line <<{FIRST}>>",
    ),
    Slip(
        "no barrier after the wait",
        "        barrier();\n", "",
        K.read_after_write, READ, f"at line <<{FIRST}>>",
    ),
    Slip(
        "the barrier stands before the wait",
        "        wait_async<STAGES - 2>();\n        barrier();\n",
        "        barrier();\n        wait_async<STAGES - 2>();\n",
        K.read_in_flight, READ, f"at line <<{FIRST}>>",
    ),
    Slip(
        "a copy to the stage that others still read",
        "next % STAGES * 128, source", "step % STAGES * 128, source",
        K.read_in_flight, READ,
        "<<copy_async_if<1>(target + step % STAGES * 128, source + next * 128, inside);>>",
    ),
    Slip(
        "a copy to that stage after it was read",
        "    for (int i = 0; i < 4; ++i)\n        if (inside)",
        "    copy_async<1>(target + (k - 1) % STAGES * 128, b);\n    commit_async();\n"
        "    wait_async<0>();\n    for (int i = 0; i < 4; ++i)\n        if (inside)",
        K.write_after_read,
        "copy_async<1>(target + (k - 1) % STAGES * 128, b);", f"at line <<{READ}>>",
    ),
    Slip(
        "a store to a word that a copy is on its way to",
        "        const int next = step + STAGES - 1;\n",
        "        store_shared<1>(target + (step + 1) % STAGES * 128, {0.0f});\n"
        "        const int next = step + STAGES - 1;\n",
        K.write_in_flight, "store_shared<1>(target + (step + 1) % STAGES * 128, {0.0f});",
        f"at line <<{FIRST}>>",
    ),
    Slip(
        "two copies to one word",
        f"            {COPY}",
        f"            {COPY}\n        copy_async<1>(target + next % STAGES * 128, source);",
        K.write_in_flight, "copy_async<1>(target + next % STAGES * 128, source);",
        f"at line <<{COPY}>>",
    ),
    Slip(
        "a copy that nobody waits for",
        "    for (int i = 0; i < 4; ++i)\n        if (inside)",
        "    copy_async<1>(target + k % STAGES * 128, source);\n"
        "    for (int i = 0; i < 4; ++i)\n        if (inside)",
        K.never_awaited, "copy_async<1>(target + k % STAGES * 128, source);",
    ),
    Slip(
        "no guard at the source",
        COPY, "copy_async<1>(target + next % STAGES * 128, source + next * 128);",
        K.out_of_bounds_global,
        "copy_async<1>(target + next % STAGES * 128, source + next * 128);",
    ),
    Slip(
        "a copy beyond shared memory",
        FIRST, "copy_async_if<1>(target + 3 * 128, source + next * 128, inside);",
        K.out_of_bounds_shared,
        "copy_async_if<1>(target + 3 * 128, source + next * 128, inside);",
    ),
    Slip(
        "a target that is no multiple of 16 bytes",
        FIRST, "copy_async<4>(target + 1 + next * 128, b);",
        K.misaligned, "copy_async<4>(target + 1 + next * 128, b);",
    ),
    Slip(
        "a source that is no multiple of 8 bytes",
        FIRST, "copy_async<2>(shared, b + 1);",
        K.misaligned, "copy_async<2>(shared, b + 1);",
    ),
]  # fmt: skip


def test_a_right_pipeline_raises_nothing() -> None:
    report = emulate(TOY)
    assert report.verdict == "ok", said(report)


@pytest.mark.parametrize("slip", SLIPS, ids=lambda slip: slip.name.replace(" ", "-"))
def test_a_slip_is_named(slip: Slip) -> None:
    slip.check(TOY)


def test_a_copy_counts_as_a_load_and_a_shared_copy() -> None:
    accesses = {(a.text, a.kind): a for a in emulate(TOY).accesses}
    loads, stores = accesses[FIRST, "global load"], accesses[FIRST, "shared copy"]
    # Four warps, two stages; the last warp has 4 lanes inside, the others of it write zeros.
    assert (loads.requests, loads.sectors) == (8, 2 * (3 * 4 + 1))
    assert (stores.requests, stores.wavefronts, stores.conflicts) == (8, 8, 0)
