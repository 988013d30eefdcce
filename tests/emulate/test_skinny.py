"""The kernel for a short side of C: right for every layout, and its accesses are those foreseen."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import ARCH, SPACE, changed, emulate, line_of, said, variant

from autotune.analysis import sgemm_accesses
from autotune.emulate import FaultKind
from autotune.explain.gather import by_operand
from autotune.problems.sgemm import LAYOUTS, Sgemm
from autotune.render import render
from autotune.types import Config, Scalar, Variant


def skinny(problem: Sgemm, **changes: Scalar) -> Variant:
    return variant(problem, "skinny-columns", **{"min_blocks": 1, **changes})


def drawn(problem: Sgemm, rng: np.random.Generator) -> Config:
    """A valid config, each as likely."""
    own = [p for p in SPACE.parameters if p.only in ("", "skinny")]
    while True:
        values = {p.name: p.values[rng.integers(len(p.values))] for p in own}
        config = SPACE.config({**values, "method": "skinny"})
        if SPACE.is_valid(config, problem, ARCH):
            return config


# ---- right results

ODDITIES: list[dict[str, object]] = [
    {},
    {"beta_zero": False, "batch": 2},
    {"align_a": 8, "align_b": 8, "align_c": 4},
    {"lda": 331, "ldb": 333, "ldc": 337},
]
SIZES = [(1, 150, 136), (3, 129, 99), (8, 100, 260), (17, 64, 131)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("is_tall", [False, True], ids=["short-m", "short-n"])
def test_every_layout_is_right(layout: str, is_tall: bool) -> None:
    shift = LAYOUTS.index(layout) + is_tall
    rng = np.random.default_rng([shift, is_tall])
    for index, (short, long, k) in enumerate([*SIZES, *SIZES]):
        oddity = ODDITIES[(index + index // 4 + shift) % 4]
        m, n = (long, short) if is_tall else (short, long)
        problem = Sgemm(m=m, n=n, k=k, layout=layout, **oddity)  # type: ignore[arg-type]
        config = drawn(problem, rng)
        report = emulate(render(problem, config, ARCH))
        assert report.verdict == "ok", f"{problem.key} {config}\n{said(report)}"


@pytest.mark.parametrize("mode", ["workspace", "last"])
@pytest.mark.parametrize(
    "problem",
    [
        Sgemm(m=5, n=301, k=901, batch=2),
        Sgemm(m=301, n=5, k=900, beta_zero=False),
        # Fewer chunks than parts: some blocks have nothing to multiply.
        Sgemm(m=2, n=128, k=300, layout="tt"),
    ],
    ids=lambda problem: problem.key,
)
def test_split_k_is_right(problem: Sgemm, mode: str) -> None:
    kernel = skinny(
        problem, split_k=4, split_k_mode=mode, slices=1, warps_long=4, ahead=1, chunk=256
    )
    report = emulate(kernel)
    assert report.verdict == "ok", said(report)
    assert report.blocks_total > report.blocks_run / 2


@pytest.mark.parametrize(
    "changes", [{}, {"split_k": 2, "split_k_mode": "last"}], ids=["whole", "split"]
)
@pytest.mark.parametrize("is_tall", [False, True])
def test_what_is_multiplied_by_zero_is_not_read(is_tall: bool, changes: dict[str, Scalar]) -> None:
    m, n = (130, 4) if is_tall else (4, 130)
    kernel = skinny(
        Sgemm(m=m, n=n, k=256, beta_zero=False),
        slices=1,
        warps_long=4,
        ahead=1,
        chunk=128,
        **changes,
    )
    for scalars, unread in (
        ({"alpha": 0.0, "beta": -1.0}, ("a", "b")),
        ({"alpha": 2.0, "beta": 0.0}, ("c",)),
    ):
        report = emulate(kernel, scalars=scalars, unread=unread)
        assert report.verdict == "ok", said(report)


def test_offsets_past_32_bits() -> None:
    for problem in (
        Sgemm(m=3, n=256, k=40, lda=1_000_000_000, ldb=100_000_000),
        Sgemm(m=40, n=3, k=128, lda=100_000_000, ldb=40_000_000, ldc=80_000_000),
    ):
        assert max(operand.span_elements for operand in problem.operands) > 2**31
        report = emulate(skinny(problem, slices=1, warps_long=4, ahead=1, chunk=128, vector_x=2))
        assert report.verdict == "ok", said(report)


# ---- counts


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("m", "n", "options"),
    [(1, 512, {}), (7, 512, {"beta_zero": False}), (512, 16, {}), (256, 2, {"batch": 2})],
)
def test_accesses_are_those_foreseen(
    m: int, n: int, options: dict[str, object], layout: str
) -> None:
    mode = ("none", "workspace", "last")[(LAYOUTS.index(layout) + m) % 3]
    problem = Sgemm(m=m, n=n, k=512, layout=layout, **options)  # type: ignore[arg-type]
    split: dict[str, Scalar] = {"split_k": 2, "split_k_mode": mode} if mode != "none" else {}
    kernel = skinny(problem, slices=2, warps_long=2, ahead=1, strips=2, chunk=256, **split)
    report = emulate(kernel)
    assert report.verdict == "ok", said(report)
    assert by_operand(report) == sgemm_accesses.accesses(problem, kernel.config)


def test_a_sample_counts_what_all_blocks_count() -> None:
    kernel = skinny(Sgemm(m=6, n=900, k=130), vector_x=2, chunk=64, slices=2)
    whole, sample = emulate(kernel), emulate(kernel, blocks="sample")
    assert whole.verdict == sample.verdict == "ok", said(whole) + said(sample)
    assert sample.blocks_run < whole.blocks_run == whole.blocks_total
    assert sample.accesses == whole.accesses
    assert {(c.rows, c.columns) for c in sample.classes} == {(6, 64), (6, 4)}


# ---- planted faults

COLUMNS = skinny(Sgemm(m=5, n=300, k=150), ahead=4, slices=4, chunk=32)
ROWS = skinny(Sgemm(m=300, n=5, k=200), ahead=1, slices=2, warps_long=2, strips=4, chunk=256)
SPLIT = skinny(
    Sgemm(m=5, n=256, k=256), ahead=4, slices=4, chunk=32, split_k=4, split_k_mode="last"
)
K = FaultKind
RELOAD = "streamed_b[u + e] = load_global_if<4>("
STORE = "store_global<1>(target, {alpha * sum});"
SUM = "float sum = load_shared<1>(place).at[0];"


@pytest.mark.parametrize(
    ("original", "old", "new", "kind", "line"),
    [
        pytest.param(COLUMNS, "line0 < n ? end : begin", "end", K.out_of_bounds_global,
                     RELOAD, id="no guard of the long side at a load"),
        pytest.param(COLUMNS, "next + u + e < last", "true", K.out_of_bounds_global,
                     RELOAD, id="no guard of k at a load"),
        pytest.param(COLUMNS, "first + step + steps < end", "true", K.out_of_bounds_global,
                     "staged_a[pass] = load_global_if<2>(", id="no guard of k at a chunk"),
        pytest.param(COLUMNS, "item % BLOCK_LONG >= n", "item < 0", K.written_twice,
                     STORE, id="no guard of the long side at the store"),
        pytest.param(COLUMNS, "    barrier();\n\n    // ---- C", "\n    // ---- C",
                     K.read_after_write, SUM, id="no barrier before the slices are summed"),
        pytest.param(COLUMNS, "staged_a, thread);\n        barrier();", "staged_a, thread);",
                     K.write_after_write,
                     "store_shared<2>(target + lines * PITCH + steps, staged_a[pass]);",
                     id="no barrier between chunks"),
        pytest.param(COLUMNS, "other * SUMS_C", "(other - 1) * SUMS_C", K.wrong_result,
                     STORE, id="the wrong slice"),
        pytest.param(COLUMNS, "shared + slice * SUMS_C", "shared + slice / 2 * SUMS_C",
                     K.write_after_write, "store_shared<4>(own + s * ROW_C, sums[s]);",
                     id="two slices in one place"),
        pytest.param(ROWS, "kept + shuffle_xor(given, 8)", "kept", K.wrong_result,
                     STORE, id="half of the lanes left out"),
        pytest.param(ROWS, "kept + shuffle_xor(given, 8)",
                     "lane == 3 ? kept : kept + shuffle_xor(given, 8)", K.deadlock,
                     None, id="a lane left out"),
        pytest.param(ROWS, "line0 + r < m", "true", K.out_of_bounds_global,
                     "streamed_a[u][r] = load_global_if<4>(", id="no guard of rows at a load"),
        pytest.param(SPLIT, "part + split * PART + item", "part + item", K.written_twice,
                     "store_workspace<1>(part + item, {sum});", id="parts in one place"),
        pytest.param(SPLIT, "SPLIT_K - 1, shared", "SPLIT_K - 2, shared", K.unwritten_workspace,
                     "sum += load_workspace<1>(part + item + other * PART).at[0];",
                     id="the last block but one adds up"),
    ],
)  # fmt: skip
def test_a_planted_fault_is_named(
    original: Variant, old: str, new: str, kind: FaultKind, line: str | None
) -> None:
    planted = changed(original, old, new, original.body.count(old))
    assert emulate(original).verdict == "ok"
    report = emulate(planted)
    assert [fault.kind for fault in report.faults][:1] == [kind], said(report)
    if line is not None:
        lines = [n for n, text in enumerate(planted.source.splitlines(), 1) if text.strip() == line]
        assert report.faults[0].line in lines and line_of(planted, line)
