"""Blocks of a cluster run together and read one another's shared memory."""

from __future__ import annotations

import pytest
from kernels import emulate, said
from toys import COLUMNS, Slip, launch, toy

from autotune.emulate import FaultKind as K

CODE = """
constexpr int RANKS = 2;

extern "C" __global__ void __cluster_dims__(RANKS, 1, 1) __launch_bounds__(128)
toy(const float* a, const float* b, float* c, int k)
{
    extern __shared__ __align__(16) float shared[];
    const int thread = threadIdx.x;
    const int rank = blockIdx.x % RANKS;
    float sums[4] = {};
    for (int step = rank; step < k; step += RANKS) {
        const float value = thread < 100 ? load_global<1>(b + step * 128 + thread).at[0] : 0.0f;
        for (int i = 0; i < 4; ++i)
            sums[i] += load_global<1>(a + i * k + step).at[0] * value;
    }
    for (int i = 0; i < 4; ++i)
        store_shared<1>(shared + i * 128 + thread, {sums[i]});
    cluster_barrier();
    for (int i = rank; i < 4; i += RANKS) {
        float sum = 0.0f;
        for (int other = 0; other < RANKS; ++other)
            sum += load_cluster<1>(shared + i * 128 + (thread ^ 1), other).at[0];
        if ((thread ^ 1) < 100)
            store_global<1>(c + i * 128 + (thread ^ 1), {sum});
    }
    cluster_barrier();  // nobody ends while others read its shared memory
}
"""
TOY = toy(CODE, ["cluster"], launch(blocks=2, shared_bytes=4 * COLUMNS * 4))

LEAVE = "store_shared<1>(shared + i * 128 + thread, {sums[i]});"
TAKE = "sum += load_cluster<1>(shared + i * 128 + (thread ^ 1), other).at[0];"
LAST = "    cluster_barrier();  // nobody ends while others read its shared memory\n"

SLIPS = [
    Slip(
        "no barrier after writing",
        "    cluster_barrier();\n    for", "    for",
        K.read_after_write, TAKE, f"which thread 1 writes at line <<{LEAVE}>>",
    ),
    Slip(
        "a barrier of the block is not enough",
        "    cluster_barrier();\n    for", "    barrier();\n    for",
        K.read_after_write, TAKE, f"thread 1 of block 1 writes at line <<{LEAVE}>>",
    ),
    Slip(
        "a block ends while others read",
        LAST, "",
        K.remote_ended, TAKE, "which may have ended",
    ),
    Slip(
        "shared memory is used again while others read",
        LAST, f"    barrier();\n    store_shared<1>(shared + thread, {{0.0f}});\n{LAST}",
        K.write_after_read, "store_shared<1>(shared + thread, {0.0f});", 
        f"of block 0 reads at line <<{TAKE}>>",
    ),
    Slip(
        "a block that the cluster does not have",
        "other < RANKS", "other <= RANKS",
        K.out_of_bounds_shared, TAKE,
    ),
    Slip(
        "one block passes the barrier by",
        LAST, f"    if (rank == 0)\n    {LAST}",
        K.remote_ended, TAKE, "of block 1, which may have ended",
    ),
]  # fmt: skip


def test_a_right_cluster_raises_nothing() -> None:
    report = emulate(TOY)
    assert report.verdict == "ok", said(report)
    (read,) = (a for a in report.accesses if a.kind == "cluster load")
    assert (read.requests, read.wavefronts, read.sectors) == (2 * 4 * 2 * 2, 0, 0)
    assert report.blocks_run == 2


@pytest.mark.parametrize("slip", SLIPS, ids=lambda slip: slip.name.replace(" ", "-"))
def test_a_slip_is_named(slip: Slip) -> None:
    slip.check(TOY)
