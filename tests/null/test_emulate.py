"""The emulator's parts that need no compiler, and what it says where there is none."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from autotune import assets, space
from autotune.emulate import FaultKind, emulate, host, sample, source
from autotune.emulate.check import Output
from autotune.emulate.counts import Counts, extended
from autotune.emulate.data import Data, output
from autotune.emulate.describe import described, element_address
from autotune.emulate.run import RawFault, Written
from autotune.errors import CompilerError, UsageError
from autotune.problems.sgemm import Sgemm
from autotune.render import render
from autotune.types import Variant

SPACE = space.load("sgemm")
PROBLEM = Sgemm(m=256, n=384, k=16)


def kernel(problem: Sgemm = PROBLEM) -> Variant:
    config = SPACE.fitted(SPACE.preset("seed-v3.1"), problem, 90)
    assert config is not None
    return render(problem, config, 90)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH of one folder, and an empty cache."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    return folder


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_without_a_compiler_it_says_what_is_missing_and_what_works(tools: Path) -> None:
    with pytest.raises(CompilerError) as caught:
        emulate(kernel())
    text = str(caught.value)
    assert "none of g++, clang++, c++ is on PATH" in text
    assert "work without it" in text


def test_a_compiler_that_fails_is_quoted(tools: Path) -> None:
    script(
        tools / "c++", 'if [ "$1" = --version ]; then echo cc 1; else echo broken >&2; exit 1; fi'
    )
    with pytest.raises(CompilerError, match=r"c\+\+ does not compile .*\n.*broken"):
        host.library(kernel())
    # Nothing is left behind that a later run would take for a result.
    left = [file for file in tools.parent.joinpath("cache").rglob("*") if file.is_file()]
    assert left == []


def test_what_was_built_once_is_not_built_again(tools: Path) -> None:
    log = tools.parent / "log"
    script(
        tools / "g++",
        'if [ "$1" = --version ]; then echo g++ 1; exit; fi\n'
        f'echo built >> {log}\nfor last; do\n'
        '[ "$take" ] && out="$last"; take=; [ "$last" = -o ] && take=1\ndone\necho x > "$out"',
    )  # fmt: skip
    one, two = host.library(kernel()), host.library(kernel())
    assert one == two and one.read_text() == "x\n"
    # Another shape that needs the same code shares the library.
    assert host.library(kernel(Sgemm(m=512, n=512, k=64))) == one
    assert log.read_text() == "built\n"
    # Ragged code is other code.
    assert host.library(kernel(Sgemm(m=257, n=512, k=64))) != one
    assert log.read_text() == "built\nbuilt\n"


def test_a_cache_that_cannot_be_written_costs_only_time(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tools.parent / "file").write_text("")
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tools.parent / "file"))
    script(tools / "g++", 'shift; while [ "$1" != -o ]; do shift; done; echo x > "$2"')
    assert host.library(kernel()).is_file()


def test_lines_keep_their_numbers() -> None:
    variant = kernel()
    body = source.host_source(variant).split('#line 1 "kernel.cu"\n')[1].splitlines()
    for number, line in enumerate(variant.source.splitlines()):
        if "load_shared<4>(a +" in line or "barrier();" in line or "store_global<4>(target" in line:
            assert body[number] == line


def test_every_primitive_that_accesses_memory_or_waits_has_a_twin() -> None:
    primitives = {file.stem for file in (assets.folder("templates") / "primitives").iterdir()}
    twins = {file.stem for file in source.twin_files()}
    # The vector type is plain C++.
    assert twins == primitives - {"vector"}


def test_shared_memory_declared_otherwise_is_refused() -> None:
    variant = kernel()
    other = replace(variant, body=variant.body.replace("extern __shared__", "__shared__"))
    with pytest.raises(CompilerError, match="cannot watch its shared memory"):
        source.host_source(other)


@pytest.mark.parametrize("blocks", [[], [-1], [6], [0, 1_000_000]])
def test_blocks_beyond_the_grid_are_refused(blocks: list[int]) -> None:
    with pytest.raises(UsageError, match="each from 0 to 5"):
        emulate(kernel(), blocks=blocks)


def test_data_are_small_integers_that_differ() -> None:
    data = Data(PROBLEM, {"alpha": 1.0}, seed=3)
    a, b, _ = PROBLEM.operands
    everything = [np.arange(1), np.arange(256), np.arange(16)]
    values = data.values(a, *everything)
    assert values.shape == (1, 256, 16)
    assert values.dtype == np.float32
    assert (values == np.round(values)).all() and (values != 0).all()
    assert np.abs(values).max() <= data.limit == 993
    # Sign, magnitude and place are unrelated.
    assert abs(float(np.sign(values).mean())) < 0.05
    assert len(np.unique(values)) > 1000
    assert not np.array_equal(values, Data(PROBLEM, {"alpha": 1.0}, seed=4).values(a, *everything))
    assert data.operand_seed(a) != data.operand_seed(b)


@pytest.mark.parametrize(
    ("k", "scalars"),
    [(1, {"alpha": 1.0}), (4096, {"alpha": 2.0, "beta": -1.0}), (10**6, {"alpha": 1.0})],
)
def test_no_sum_can_pass_what_is_exact(k: int, scalars: dict[str, float]) -> None:
    limit = Data(Sgemm(m=7, n=9, k=k, beta_zero=len(scalars) == 1), scalars, seed=0).limit
    assert sum(map(abs, scalars.values())) * (k + 1) * limit**2 <= 2**24


def test_a_part_of_the_expected_result_equals_the_whole() -> None:
    problem = Sgemm(m=30, n=20, k=10, layout="tt", batch=3, ldc=24, beta_zero=False)
    data = Data(problem, problem.scalars, seed=0)
    axes = np.arange(3), np.arange(30), np.arange(20)
    whole = data.expected(*axes)
    part = data.expected(axes[0][1:2], axes[1][7:13], axes[2][5:6])
    assert whole.shape == (3, 30, 20)
    assert np.array_equal(part, whole[1:2, 7:13, 5:6])


@pytest.mark.parametrize("group_m", [1, 2, 4])
@pytest.mark.parametrize(("m", "n"), [(256, 384), (300, 384), (256, 400), (700, 500), (64, 70)])
def test_sampled_blocks_cover_every_class(m: int, n: int, group_m: int) -> None:
    problem = Sgemm(m=m, n=n, k=8, batch=2)
    config = SPACE.config({"block_m": 64, "block_n": 64, "group_m": group_m})
    chosen = sample.blocks(problem, config, (64, 64), seed=1)
    grid = sample.parts(problem, (64, 64))
    tiles_m, tiles_n = -(-m // 64), -(-n // 64)
    assert sum(grid.values()) == tiles_m * tiles_n * 2
    # The walk, block by block.
    walk = []
    for start in range(0, tiles_m, group_m):
        rows = range(start, min(start + group_m, tiles_m))
        walk += [(row, column) for column in range(tiles_n) for row in rows]
    parts = [(min(64, m - 64 * row), min(64, n - 64 * column)) for row, column in walk]
    assert {parts[block % len(parts)] for block in chosen} == set(grid)
    assert all(0 <= block < 2 * len(parts) for block in chosen)
    assert len(chosen) <= sample.BLOCKS_PER_CLASS * len(grid)
    assert sample.blocks(problem, config, (64, 64), seed=1) == chosen


def test_counts_of_a_class_stand_for_all_its_blocks() -> None:
    key = (10, 0, 4)
    one: Counts = {key: (4, 8, 2, 0)}
    two: Counts = {key: (4, 10, 4, 0)}
    small: Counts = {key: (1, 1, 0, 0)}
    total, classes = extended(
        [((64, 64), one), ((64, 64), two), ((64, 6), small)],
        Counter({(64, 64): 10, (64, 6): 3}),
    )
    assert total == {key: (4 * 10 + 3, 9 * 10 + 3, 3 * 10, 0)}
    assert [(c.rows, c.columns, c.blocks, c.blocks_run, c.is_uniform) for c in classes] == [
        (64, 64, 10, 2, False),
        (64, 6, 3, 1, True),
    ]


def test_written_elements_are_found_by_matrix_row_and_column() -> None:
    problem = Sgemm(m=5, n=7, k=3, ldc=10, batch=2, stride_c=60)
    places = list(product((0, 1), (0, 4), (0, 6)))
    element = np.array([60 * b + 10 * r + c for b, r, c in places])
    nothing = np.zeros(len(element), np.int64)
    block = np.array([0, 0, 0, 0, 9, 9, 9, 9])
    found = Output(
        output(problem), Written(element, nothing.astype(np.float32), block, nothing, nothing)
    )
    assert list(zip(found.batch, found.row, found.column, strict=True)) == places
    region = found.region(9, (4, 4))
    assert region is not None
    assert (region.batch, region.rows, region.columns) == ((1, 2), (0, 4), (0, 4))
    assert found.region(5, (4, 4)) is None


def test_an_address_is_told_by_row_and_column() -> None:
    _, b, c = Sgemm(m=5, n=7, k=3, ldb=10, batch=2, stride_c=60).operands
    assert element_address(b, 23) == "b[23] (row 2, column 3 of matrix 0)"
    assert element_address(c, 60 + 2 * 7 + 5) == "c[79] (row 2, column 5 of matrix 1)"
    assert element_address(b, -1) == "b[-1] (row -1, column 9 of matrix 0)"


def raw(kind: FaultKind, **values: int) -> RawFault:
    fields = dict(
        line=7, block=2, thread=33, space=-1, offset_bytes=64, words=4, other_block=2,
        other_thread=5, other_line=9,
    )  # fmt: skip
    return RawFault(kind=list(FaultKind).index(kind), **{**fields, **values})


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            raw(FaultKind.write_after_read),
            "line 7, block 2, thread 33: writes shared + 64 bytes, which thread 5 reads at line 9 "
            "with no barrier between: the line",
        ),
        (
            raw(FaultKind.misaligned, space=0, words=2),
            "line 7, block 2, thread 33: accesses a[16] (row 1, column 0), 2 floats at an address "
            "that is no multiple of 8 bytes: the line",
        ),
        (
            raw(FaultKind.out_of_bounds_global, space=-2, offset_bytes=4096),
            "line 7, block 2, thread 33: accesses address 0x1000, 4 floats, outside the operand or "
            "between its rows: the line",
        ),
        (
            raw(FaultKind.divergent_barrier, words=0),
            "line 7, block 2: thread 33 waits at the barrier of line 7 while thread 5 waits at "
            "that of line 9",
        ),
        (
            raw(FaultKind.divergent_barrier, words=0, other_line=7),
            "line 7, block 2: thread 33 waits at the barrier of line 7 while thread 5 waits there "
            "in another turn of a loop",
        ),
        (
            raw(FaultKind.divergent_barrier, words=0, other_line=0),
            "line 7, block 2: thread 33 waits at the barrier of line 7 while thread 5 has ended",
        ),
        (
            raw(FaultKind.divergent_barrier, words=1, other_line=7),
            "line 7, block 2: thread 33 has ended while thread 5 waits at that of line 7",
        ),
        (
            raw(FaultKind.crash, line=0, words=11),
            "block 2, thread 33 after line 9: the kernel accessed shared + 64 bytes other than "
            "through a primitive (SIGSEGV)",
        ),
        (
            raw(FaultKind.crash, line=0, space=-2, words=8, other_line=0),
            "block 2, thread 33: the kernel divided by zero, or by an overflow (SIGFPE)",
        ),
    ],
)
def test_faults_in_words(fault: RawFault, message: str) -> None:
    assert described(fault, kernel(), lambda line: "the line").message == message
