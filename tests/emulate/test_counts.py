"""What a kernel asks of memory, counted from the accesses that its source makes."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import SPACE, changed, emulate, line_of, said, variant

from autotune.analysis.access import Kind
from autotune.analysis.global_memory import sectors
from autotune.analysis.shared_memory import wavefronts
from autotune.emulate import AccessCount, Report
from autotune.problems.sgemm import Sgemm

T4 = Sgemm(m=2048, n=2048, k=2048)


def figures(report: Report, kind: Kind) -> tuple[int, int, int]:
    total = report.total(kind)
    return total.requests, total.wavefronts, total.conflicts


# Published figures of Nsight Compute on a T4.
@pytest.mark.parametrize(
    ("preset", "loads", "stores", "shared_bytes"),
    [
        ("seed-v3", (16_777_216, 83_886_080, 33_554_432), (2_621_440, 6_291_456, 2_097_152), 16384),
        ("seed-v3.1", (16_777_216, 50_331_648, 0), (2_621_440, 6_291_456, 2_097_152), 16384),
        ("seed-v3.2", (16_777_216, 50_331_648, 0), (2_621_440, 4_194_304, 0), 16640),
    ],
)
def test_the_seed_counts_what_a_t4_counted(
    preset: str, loads: tuple[int, int, int], stores: tuple[int, int, int], shared_bytes: int
) -> None:
    report = emulate(variant(T4, preset), blocks="sample")
    assert report.verdict == "ok", said(report)
    assert figures(report, "shared load") == loads
    assert figures(report, "shared store") == stores
    assert report.shared_bytes == shared_bytes
    assert (report.blocks_run, report.blocks_total) == (3, 256)
    (only,) = report.classes
    assert (only.rows, only.columns, only.blocks, only.is_uniform) == (128, 128, 256, True)


def test_global_memory_of_the_seed() -> None:
    report = emulate(variant(T4), blocks="sample")
    # Each operand is read once per row or column of tiles, 16 bytes a lane, in whole sectors.
    loads = report.total("global load")
    assert loads.requests == 2 * 2048 * 2048 // 4 // 32 * 16
    assert loads.sectors == 2 * 2048 * 2048 * 16 * 4 // 32
    stores = report.total("global store")
    assert (stores.requests, stores.sectors) == (2048 * 2048 // 4 // 32, 2048 * 2048 * 4 // 32)
    assert (loads.wavefronts, loads.conflicts, stores.wavefronts) == (0, 0, 0)


@pytest.mark.parametrize(
    "problem",
    [
        Sgemm(m=400, n=360, k=24),
        Sgemm(m=256, n=384, k=20, ldc=400, beta_zero=False),
        Sgemm(m=300, n=400, k=36, layout="tn", batch=2),
        Sgemm(m=257, n=513, k=17, layout="nt", align_c=4),
    ],
    ids=lambda problem: problem.key,
)
@pytest.mark.parametrize("group_m", [1, 2])
def test_a_sample_counts_what_all_blocks_count(problem: Sgemm, group_m: int) -> None:
    small = variant(
        problem, "seed-v3.1", block_m=64, block_n=64, thread_m=8, thread_n=4, group_m=group_m
    )
    whole = emulate(small)
    sample = emulate(small, blocks="sample")
    assert whole.verdict == sample.verdict == "ok", said(whole) + said(sample)
    assert sample.blocks_run < whole.blocks_run == whole.blocks_total
    assert sample.accesses == whole.accesses
    assert all(part.is_uniform for part in sample.classes)
    assert sum(part.blocks for part in sample.classes) == whole.blocks_total
    assert whole.classes == ()


def test_counts_of_named_blocks_are_theirs_alone() -> None:
    kernel = variant(Sgemm(m=256, n=256, k=32))
    one, three = emulate(kernel, blocks=[2]), emulate(kernel, blocks=[0, 1, 3])
    assert (one.blocks_run, three.blocks_run, three.blocks_total) == (1, 3, 4)
    assert figures(three, "shared load") == tuple(3 * n for n in figures(one, "shared load"))


def test_lines_and_widths_are_those_of_the_source() -> None:
    kernel = variant(Sgemm(m=256, n=256, k=32))
    found = {(access.kind, access.text): access for access in emulate(kernel).accesses}
    text = "fragment_a[f] = load_shared<4>(a + step * ROW_A + f * 64);"
    # 4 blocks of 8 warps, 32 steps of k, two fragments; two passes each.
    assert found["shared load", text] == AccessCount(
        line=line_of(kernel, text),
        text=text,
        kind="shared load",
        width_bytes=16,
        requests=4 * 8 * 32 * 2,
        wavefronts=4 * 8 * 32 * 2 * 2,
    )
    text = "store_global<4>(target + column, value);"
    assert found["global store", text].width_bytes == 16
    assert found["global store", text].requests == 256 * 256 // 4 // 32


def test_lanes_that_leave_a_loop_early_meet_again() -> None:
    # Lanes from column 100 on leave the loop over columns; the others go on to the second vector.
    kernel = variant(Sgemm(m=128, n=100, k=8), "seed-v3")
    (store,) = (a for a in emulate(kernel).accesses if a.kind == "global store")
    assert store.requests == 8 * 8 * 2
    # A warp's 2 rows: 13 lanes write their first vector, 12 their second, each in its own sector,
    # but where 400-byte rows start in the middle of one.
    offsets = [
        [
            row * 400 + lane * 32 + 16 * vector if lane * 8 + 4 * vector < 100 else None
            for row in (first, first + 8)
            for lane in range(16)
        ]
        for warp in range(8)
        for first in range(16 * warp, 16 * warp + 8)
        for vector in (0, 1)
    ]
    assert store.sectors == sum(sectors(request, 16) for request in offsets)


def test_conditional_accesses_count_only_lanes_that_take_part() -> None:
    # 16 rows of 2 pieces are 32 pieces of A: one warp of four copies it.
    kernel = variant(
        Sgemm(m=16, n=256, k=16),
        block_m=16, block_n=256, thread_m=4, thread_n=8, lanes_m=4, lane_map="row",
        pad_a=0, fragment_split="contiguous",
    )  # fmt: skip
    report = emulate(kernel)
    assert report.verdict == "ok", said(report)
    (store,) = (
        a for a in report.accesses if "staged_a" in a.text and a.kind == "shared store" and a.line
        == min(b.line for b in report.accesses if b.kind == "shared store")
    )  # fmt: skip
    assert store.requests == 4


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("kind", ["load", "store"])
def test_random_requests_cost_what_the_rule_says(width: int, kind: str) -> None:
    """A kernel made to access shared memory at places of our choosing."""
    rng = np.random.default_rng(width)
    words = rng.permutation(512 // width)[:32] * width
    if kind == "load" and width > 1:
        words = np.repeat(words[::2], 2)  # pairs that the hardware serves together
    table = ", ".join(map(str, words))
    access = f"load_shared<{width}>(shared + place[thread])"
    if kind == "store":
        access = f"store_shared<{width}>(shared + place[thread], {{}})"
    start = "    const int thread = threadIdx.x;\n"
    fill = (
        "    for (int i = thread; i < 512; i += 32)\n        store_shared<1>(shared + i, {0.0f});\n"
    )
    kernel = changed(
        variant(Sgemm(m=16, n=16, k=8), "smallest"),
        start,
        f"{start}{fill}    barrier();\n    const int place[32] = {{{table}}};\n"
        f"    if (thread < 27)\n        {access};\n    barrier();\n",
    )
    report = emulate(kernel)
    assert report.verdict == "ok", said(report)
    (found,) = (a for a in report.accesses if a.text == f"{access};")
    offsets = [4 * int(word) if lane < 27 else None for lane, word in enumerate(words)]
    cost = wavefronts(offsets, 4 * width, "load" if kind == "load" else "store")
    assert (found.requests, found.wavefronts, found.conflicts) == (
        1,
        cost.wavefronts,
        cost.conflicts,
    )


def test_the_presets_of_the_figures_are_those_of_the_space() -> None:
    assert {"seed-v3", "seed-v3.1", "seed-v3.2"} <= set(SPACE.presets)
