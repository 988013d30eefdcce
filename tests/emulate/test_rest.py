"""The launch for a few rows or columns of C beyond whole tiles."""

from __future__ import annotations

import pytest
from kernels import ARCH, SPACE, changed, emulate, said, variant

from autotune.analysis.sgemm_accesses import KINDS, accesses
from autotune.emulate import FaultKind
from autotune.errors import InfeasibleError
from autotune.explain.gather import by_operand
from autotune.problems.sgemm import LAYOUTS, Sgemm

# One beyond a tile, several, as many as are allowed; k within a chunk of 256, beyond one, none.
SHAPES = {
    "rows": [(129, 70, 300), (133, 64, 1), (144, 33, 513), (130, 96, 0)],
    "columns": [(70, 129, 300), (64, 133, 1), (33, 144, 513), (96, 130, 0)],
}
TILES = {"block_m": 64, "block_n": 64, "thread_m": 8, "thread_n": 4, "min_blocks": 1}


@pytest.mark.parametrize("rest", ["rows", "columns"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "more", [{}, {"beta_zero": False, "batch": 2}, {"align_a": 4, "align_b": 4}]
)
def test_every_layout(rest: str, layout: str, more: dict[str, object]) -> None:
    for m, n, k in SHAPES[rest]:
        problem = Sgemm(m=m, n=n, k=k, layout=layout, **more)  # type: ignore[arg-type]
        kernel = variant(problem, "seed-v3.2", **TILES, rest=rest)
        assert [launch.entry for launch in kernel.plan.launches] == ["sgemm", "sgemm_rest"]
        report = emulate(kernel)
        assert report.verdict == "ok", f"{problem.key}: {said(report)}"


@pytest.mark.parametrize("rest", ["rows", "columns"])
@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("async-64x64x32", {}),
        ("tma-256x128x32", {"threads_producer": 0, "schedule": "grid", "stages": 2}),
        (
            "stream-128x128x8",
            {
                "block_m": 32,
                "block_n": 32,
                "thread_m": 4,
                "thread_n": 4,
                "order_block_n": 2,
                "fragment_split": "contiguous",
                "group_m": 2,
            },
        ),
        ("split-64x64", {"split_k_mode": "workspace"}),
        ("split-64x64", {"split_k_mode": "last"}),
        ("cluster-64x64", {}),
        ("naive", {}),
    ],
)
def test_beside_every_schedule(rest: str, preset: str, changes: dict[str, object]) -> None:
    block_m, block_n = (int(SPACE.preset(preset).but(**changes)[f"block_{x}"]) for x in "mn")  # type: ignore[arg-type]
    # Whole rounds and shares of a stream take many tiles.
    tiles, k = (6, 600) if preset.startswith("stream") else (2, 512)
    m, n = (tiles * block_m, tiles * block_n)
    m, n = (m + 4, n) if rest == "rows" else (m, n + 4)
    problem = Sgemm(m=m, n=n, k=k, beta_zero=False)
    kernel = variant(problem, preset, **changes, min_blocks=1, rest=rest)
    assert kernel.plan.launches[-1].entry == "sgemm_rest"
    report = emulate(kernel)
    assert report.verdict == "ok", said(report)


@pytest.mark.parametrize("rest", ["rows", "columns"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("left", [1, 3, 16])
def test_accesses_are_foreseen(rest: str, layout: str, left: int) -> None:
    m, n = (64 + left, 64) if rest == "rows" else (64, 64 + left)
    problem = Sgemm(m=m, n=n, k=512, layout=layout, lda=640, ldb=640, ldc=128, beta_zero=False)
    kernel = variant(problem, "seed-v3.2", **TILES, rest=rest)
    report = emulate(kernel)
    assert report.verdict == "ok", said(report)
    counted, foreseen = by_operand(report), accesses(problem, kernel.config)
    assert [(x.operand, x.kind) for x in counted] == [(x.operand, x.kind) for x in foreseen]
    for one, other in zip(counted, foreseen, strict=True):
        assert one.requests == other.requests, one
        assert one.wavefronts == other.wavefronts, one
    assert {access.kind for access in foreseen} <= set(KINDS)


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (
            "        barrier();  // everyone has used the chunk before\n",
            "",
            FaultKind.write_after_read,
        ),
        ("(n - REST)", "(n - REST + 1)", FaultKind.out_of_bounds_global),
        ("first + step < steps", "first + step <= steps", FaultKind.out_of_bounds_global),
        ("step < steps && line0 + l < m", "step < steps", FaultKind.out_of_bounds_global),
        ("lane == 0 && line < m", "lane == 0 && line < m - 1", FaultKind.not_written),
        ("fmaf(beta, old, alpha * sum)", "fmaf(beta, old, sum)", FaultKind.wrong_result),
    ],
)
def test_slips_are_found(old: str, new: str, kind: FaultKind) -> None:
    problem = Sgemm(m=70, n=67, k=300, beta_zero=False, lda=300, ldb=67, ldc=67)
    kernel = variant(problem, "seed-v3.2", **TILES, rest="columns")
    head, _, rest = kernel.body.partition('extern "C" __global__ void __launch_bounds__(256)\n')
    del head
    count = rest.count(old)
    assert count
    report = emulate(changed(kernel, old, new, kernel.body.count(old)))
    assert report.faults and report.faults[0].kind is kind, said(report)


@pytest.mark.parametrize(
    ("changes", "shape", "reason"),
    [
        ({"rest": "columns"}, (64, 128, 64), "leaves 0"),
        ({"rest": "rows"}, (64 + 17, 64, 64), "leaves 17"),
        ({"rest": "rows", "split_k": 2, "split_k_mode": "atomic"}, (65, 64, 512), "scaled again"),
    ],
)
def test_what_it_does_not_serve(
    changes: dict[str, object], shape: tuple[int, int, int], reason: str
) -> None:
    m, n, k = shape
    config = SPACE.config({**SPACE.preset("seed-v3.2"), **TILES, **changes})
    with pytest.raises(InfeasibleError, match=reason):
        SPACE.check(config, Sgemm(m=m, n=n, k=k), ARCH)
