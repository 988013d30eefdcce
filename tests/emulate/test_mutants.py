"""Every planted fault is found and named; the same kernel without it is right."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from kernels import ARCH, SPACE, changed, emulate, line_of, said, variant
from mutants import EVEN, LOAD_A, MUTANTS, STORE_C, Mutant
from test_async import SLIPS as ASYNC
from test_clusters import SLIPS as CLUSTERS
from test_mbarriers import SLIPS as MBARRIERS
from test_workspaces import SLIPS as WORKSPACES

from autotune.emulate import FaultKind
from autotune.problems.sgemm import Sgemm
from autotune.render import render
from autotune.types import Config, Variant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_planted_fault_is_named(mutant: Mutant) -> None:
    original = emulate(mutant.original())
    assert original.verdict == "ok", said(original)
    planted = mutant.planted()
    report = emulate(planted)
    assert report.verdict == "fault"
    first = report.faults[0]
    assert first.kind is mutant.kind, said(report)
    assert first.line == mutant.line_number(planted), said(report)
    assert report.accesses == ()


def test_every_kind_of_fault_is_planted() -> None:
    slips = (*ASYNC, *CLUSTERS, *MBARRIERS, *WORKSPACES)
    planted = {wrong.kind for wrong in (*MUTANTS, *slips)}
    assert planted | {FaultKind.hang} == set(FaultKind)


def mutant(name: str) -> Mutant:
    (found,) = (mutant for mutant in MUTANTS if mutant.name == name)
    return found


def test_a_race_names_both_threads_and_the_place() -> None:
    planted = mutant("no barrier after the first tile is stored").planted()
    fault = emulate(planted).faults[0]
    # Thread 0 reads row 0 at all k; thread 1 stores it from k = 4 on, 132 floats apart.
    assert (fault.block, fault.thread, fault.address) == (0, 0, "shared + 2112 bytes")
    assert re.fullmatch(
        rf"line {line_of(planted, LOAD_A)}, block 0, thread 0: reads shared \+ 2112 bytes, which "
        rf"thread 1 writes at line \d+ with no barrier between: {re.escape(LOAD_A)}",
        fault.message,
    )


def test_an_access_out_of_bounds_names_row_and_column() -> None:
    fault = emulate(mutant("a store goes in front of C").planted()).faults[0]
    assert (fault.block, fault.thread) == (0, 0)
    assert fault.address == "c[-4] (row -1, column 252)"


def test_an_access_past_the_primitives_names_what_it_can() -> None:
    fault = emulate(mutant("shared memory is read past the primitive").planted()).faults[0]
    assert (fault.block, fault.thread, fault.address) == (0, 0, "shared + 0 bytes")
    assert "accessed shared + 0 bytes other than through a primitive" in fault.message


def without(kernel: Variant, barrier: re.Match[str]) -> Variant:
    return replace(kernel, body=kernel.body[: barrier.start()] + kernel.body[barrier.end() :])


def passes_every_barrier(config: Config, problem: Sgemm) -> bool:
    """Whether a block has more tiles of k than stages, and no barrier which is there for other
    numbers of tiles alone, as before the sums of slices take the place of the last tile."""
    tiles = problem.k // (int(config["split_k"]) * int(config["block_k"]))
    return tiles > int(config["stages"]) and config["k_slices"] == 1


@pytest.mark.parametrize(
    "problem",
    [Sgemm(m=132, n=100, k=260), Sgemm(m=132, n=100, k=261, layout="tn")],
    ids=lambda problem: problem.key,
)
def test_no_barrier_of_any_kernel_can_be_spared(problem: Sgemm) -> None:
    races = {
        FaultKind.read_after_write,
        FaultKind.write_after_read,
        FaultKind.read_in_flight,
        FaultKind.unsynchronised_read,
        FaultKind.uninitialised_barrier,
    }
    sample = SPACE.region(problem, ARCH).sample(100, np.random.default_rng(5))
    for config in [config for config in sample if passes_every_barrier(config, problem)][:8]:
        kernel = render(problem, config, ARCH)
        for barrier in re.finditer(r"^ +barrier\(\);", kernel.body, re.MULTILINE):
            report = emulate(without(kernel, barrier))
            assert report.verdict == "fault", config.json
            assert report.faults[0].kind in races, said(report)


def test_a_wrong_result_names_its_element_and_who_stored_it() -> None:
    planted = changed(
        variant(EVEN),
        STORE_C,
        "if (blockIdx.x == 3 && thread == 17 && i == 2)\n                value.at[1] += 1.0f;\n"
        f"            {STORE_C}",
    )
    (fault,) = emulate(planted).faults
    # Thread 17: lane_m 1, lane_n 1; its third row and its first fragment's second column.
    assert (fault.kind, fault.block, fault.thread) == (FaultKind.wrong_result, 3, 17)
    assert fault.line == line_of(planted, STORE_C)
    row, column = 128 + 4 + 2, 128 + 4 + 1
    assert fault.address == f"c[{row * 256 + column}] (row {row}, column {column})"
    assert fault.message.startswith("2 elements are wrong")


def test_an_unwritten_tile_is_said_of_the_block_that_owes_it() -> None:
    planted = mutant("the last row of a thread is not written").planted()
    (fault,) = emulate(planted, blocks=[1]).faults
    assert (fault.kind, fault.block) == (FaultKind.not_written, 1)
    # Rows of a thread come in fragments of 4, so the first one missing is the fourth of the second.
    assert fault.address == f"c[{67 * 256 + 128}] (row 67, column 128)"


def test_a_block_that_writes_nothing_is_named() -> None:
    planted = mutant("the kernel leaves a tile out").planted()
    (fault,) = emulate(planted, blocks=[1, 2]).faults
    assert (fault.kind, fault.block) == (FaultKind.not_written, 2)
    assert emulate(planted, blocks=[0, 1, 3]).verdict == "ok"


def test_a_kernel_that_never_ends_is_stopped() -> None:
    start = "const int thread = threadIdx.x;"
    endless = f"{start}\n    volatile int forever = 1;\n    while (forever)\n        ;"
    planted = changed(variant(EVEN), start, endless)
    (fault,) = emulate(planted, timeout_s=0.5).faults
    assert fault.kind is FaultKind.hang
    assert fault.message == "the kernel did not end in 0.5 s"


def test_only_the_first_faulty_blocks_are_listed() -> None:
    planted = changed(
        variant(Sgemm(m=1280, n=256, k=16)), "a + step * ROW_A", "a - 4096 + step * ROW_A"
    )
    assert [fault.block for fault in emulate(planted).faults] == [0, 1, 2, 3]


def test_reading_what_alpha_makes_zero_is_a_fault() -> None:
    problem = Sgemm(m=100, n=68, k=20, beta_zero=False)
    right = variant(problem)
    alpha_zero = {"alpha": 0.0, "beta": -1.0}
    report = emulate(right, scalars=alpha_zero, unread={"a", "b"})
    assert report.verdict == "ok", said(report)
    assert report.total("global load").requests == report.total("global store").requests > 0
    eager = changed(right, "alpha == 0.0f ? 0 : ", "")
    report = emulate(eager, scalars=alpha_zero, unread={"a", "b"})
    assert report.faults[0].kind is FaultKind.forbidden_read
    assert report.faults[0].address.startswith("a[")


def test_beta_of_zero_at_run_time_does_not_read_c() -> None:
    right = variant(Sgemm(m=100, n=68, k=20, beta_zero=False))
    beta_zero = {"alpha": 2.0, "beta": 0.0}
    assert emulate(right, scalars=beta_zero, unread={"c"}).verdict == "ok"
    eager = changed(right, "beta == 0.0f ? Vector<4>{} : ", "")
    report = emulate(eager, scalars=beta_zero, unread={"c"})
    assert report.faults[0].kind is FaultKind.forbidden_read
    assert report.faults[0].address == "c[0] (row 0, column 0)"


def test_a_tile_of_b_that_the_copy_engine_cannot_write_to() -> None:
    """Seen on an H200: A's tiles, padded by 2, leave B's at no multiple of 128 bytes."""
    config = SPACE.config(
        {"block_m": 16, "block_n": 64, "thread_m": 2, "thread_n": 2, "lanes_m": 2, "k_unroll": 4,
         "stages": 3, "pad_a": 2, "vector_a": 2, "vector_c": 2, "copy_b": "bulk",
         "fragment_split": "contiguous"}
    )  # fmt: skip
    problem = Sgemm(m=32, n=64, k=64)
    assert "144 floats each" in str(SPACE.explain(config, problem, ARCH))
    allowed = [c for c in SPACE.constraints if c.name != "aligned bulk copies of B"]
    assert len(allowed) == len(SPACE.constraints) - 1
    unchecked = replace(SPACE, constraints=tuple(allowed))
    report = emulate(render(problem, config, ARCH, family_space=unchecked))
    assert report.faults[0].kind is FaultKind.misaligned, said(report)
    assert "no multiple of 128 bytes: bulk_load_2d(tile_b" in report.faults[0].message
    wider = render(problem, config.but(pad_a=4), ARCH)
    assert emulate(wider).verdict == "ok"
