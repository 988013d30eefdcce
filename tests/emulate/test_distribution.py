"""Every way of splitting k, of scheduling tiles and of writing C, on the CPU; and slips in them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from kernels import ARCH, SPACE, changed, emulate, said

from autotune.analysis.sgemm_accesses import KINDS, accesses
from autotune.emulate import FaultKind
from autotune.errors import UsageError
from autotune.problems.sgemm import Sgemm
from autotune.render import render
from autotune.types import Scalar, Variant

SMS = 5
"""So few that small problems fill them several times over."""

Changes = dict[str, Scalar]

ASYNC: Changes = {"copy_a": "async", "copy_b": "async", "vector_a": 1, "swizzle_a": "none"}
WAYS: dict[str, Changes] = {
    "workspace": {"split_k": 4},
    "many parts": {"split_k": 6, "thread_m": 2, "thread_n": 2, "fragment_split": "contiguous"},
    "slices too": {"split_k": 3, "k_slices": 2, "register_buffers": 1, "k_unroll": 4},
    "last": {"split_k": 3, "split_k_mode": "last"},
    "last, shared": {"split_k": 2, "split_k_mode": "last", "epilogue": "shared", "vector_c": 2},
    "last, async": {"split_k": 3, "split_k_mode": "last", **ASYNC, "stages": 3},
    "cluster": {"split_k": 2, "split_k_mode": "cluster"},
    "uneven cluster": {"split_k": 3, "split_k_mode": "cluster"},
    "clusters": {"split_k": 16, "split_k_mode": "cluster"},
    "atomic": {"split_k": 2, "split_k_mode": "atomic"},
    "persistent": {"schedule": "persistent"},
    "persistent, shared": {"schedule": "persistent", "epilogue": "shared", "vector_c": 1},
    "stream": {"schedule": "stream"},
    "stream, shared": {"schedule": "stream", "epilogue": "shared", "vector_c": 1},
    "stream, async": {"schedule": "stream", **ASYNC, "stages": 4},
    "shared": {"epilogue": "shared", "vector_c": 1},
    "shared, narrow": {"epilogue": "shared", "vector_c": 2, "lanes_m": 16, "thread_m": 1},
}
# Ragged in m, n and k, in k alone, in m alone and in nothing; every layout; with and without C.
DEEP = [
    Sgemm(m=50, n=40, k=391, beta_zero=False),
    Sgemm(m=32, n=36, k=404, batch=3, layout="tt"),
    Sgemm(m=33, n=64, k=388, layout="nt", batch=2, beta_zero=False, ldc=68),
    Sgemm(m=32, n=32, k=400, layout="tn", align_c=4),
]
# The same for more parts than a cluster has blocks.
DEEPER = [replace(problem, k=problem.k + 640, lda=0, ldb=0) for problem in DEEP]
# The same for schedules, which have to have enough to deal out.
MANY = [
    Sgemm(m=195, n=180, k=130, beta_zero=False),
    Sgemm(m=96, n=100, k=136, batch=4, layout="tt"),
    Sgemm(m=113, n=160, k=120, layout="nt", batch=2, beta_zero=False, ldc=164),
    Sgemm(m=192, n=208, k=128, layout="tn", align_c=4),
]


def problems(way: str) -> list[Sgemm]:
    """Those that a way can serve."""
    return MANY if "schedule" in WAYS[way] else DEEPER if way == "clusters" else DEEP


def distributed(
    problem: Sgemm, preset: str = "smallest", sm_count: int = SMS, **changes: Scalar
) -> Variant:
    """A preset with some values changed, for a device of few SMs, fitted to the problem."""
    if problem.layout[0] == "t" and "copy_a" in changes:
        changes["vector_a"] = 4
    wanted = SPACE.config({**SPACE.preset(preset), "min_blocks": 1, **changes})
    config = SPACE.fitted(wanted, problem, ARCH)
    assert config is not None, SPACE.explain(wanted, problem, ARCH)
    return render(problem, config, ARCH, sm_count=sm_count)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_is_right(way: str) -> None:
    changes = WAYS[way]
    for number, problem in enumerate(problems(way)):
        variant = distributed(problem, **changes, group_m=1 + number % 2)
        report = emulate(variant)
        assert report.verdict == "ok", f"{way} {problem.key}: {said(report)}"


@pytest.mark.parametrize("way", ["workspace", "last, shared", "cluster", "atomic"])
def test_several_warps(way: str) -> None:
    report = emulate(distributed(DEEP[0], "tiny", **WAYS[way]))
    assert report.verdict == "ok", said(report)


@pytest.mark.parametrize("sm_count", [1, 2, 3, 7, 11, 64, 132])
def test_a_config_serves_any_number_of_sms(sm_count: int) -> None:
    # Shares of the stream that are whole tiles, longer ones, and such as lie within one tile.
    problem = Sgemm(m=40, n=40, k=1900, beta_zero=False)
    report = emulate(distributed(problem, sm_count=sm_count, schedule="stream"))
    assert report.verdict == "ok", said(report)
    many = Sgemm(m=190, n=190, k=9)
    report = emulate(distributed(many, sm_count=sm_count, schedule="persistent"))
    assert report.verdict == "ok", said(report)


@pytest.mark.parametrize(
    "way", ["workspace", "last", "cluster", "clusters", "atomic", "stream", "shared"]
)
def test_nothing_is_read_that_is_multiplied_by_zero(way: str) -> None:
    problem = problems(way)[0]
    variant = distributed(problem, **WAYS[way])
    zero = {"alpha": 0.0, "beta": -1.0}
    report = emulate(variant, scalars=zero, unread={"a", "b"})
    assert report.verdict == "ok", said(report)
    report = emulate(variant, scalars={"alpha": 2.0, "beta": 0.0}, unread={"c"})
    assert report.verdict == "ok", said(report)


@pytest.mark.parametrize("preset", ["tiny", "smallest"])
def test_a_sum_of_nothing(preset: str) -> None:
    for problem in (
        Sgemm(m=40, n=24, k=0, beta_zero=False),
        Sgemm(m=40, n=24, k=0, batch=2, layout="tt"),
        Sgemm(m=300, n=300, k=0, beta_zero=False, layout="tn"),
    ):
        report = emulate(distributed(problem, preset))
        assert report.verdict == "ok", said(report)
    many = Sgemm(m=400, n=400, k=0, beta_zero=False)
    report = emulate(distributed(many, preset, schedule="persistent"))
    assert report.verdict == "ok", said(report)


def test_many_matrices_of_a_batch() -> None:
    # More than a grid has in z.
    problem = Sgemm(m=1, n=4, k=8, batch=65_600)
    variant = distributed(problem)
    assert variant.plan.launches[0].grid == (65_600, 1, 1)
    report = emulate(variant, blocks=[0, 1, 65_535, 65_536, 65_599])
    assert report.verdict == "ok", said(report)


def test_some_blocks_of_a_split_are_not_run_alone() -> None:
    for way in ("workspace", "last", "stream"):
        problem = problems(way)[0]
        with pytest.raises(UsageError, match="run all of them"):
            emulate(distributed(problem, **WAYS[way]), blocks=[0])


@dataclass(frozen=True)
class Slip:
    """A change of a rendered source, and the fault that it is; `number` is that of a problem."""

    name: str
    way: str
    old: str
    new: str
    kind: FaultKind
    number: int = 0

    def planted(self) -> Variant:
        problem = problems(self.way)[self.number]
        return changed(distributed(problem, **WAYS[self.way]), self.old, self.new)


K = FaultKind
SLIPS = [
    Slip(
        "a part is left out", "workspace",
        "split = 1; split < SPLIT_K", "split = 2; split < SPLIT_K", K.wrong_result,
    ),
    Slip(
        "a part is added twice", "workspace",
        "load_workspace<4>(part + split * PART)", "load_workspace<4>(part + (split - 1) * PART)",
        K.wrong_result,
    ),
    Slip(
        "another tile's part", "last",
        "parts + blockIdx.x * (long long) (SPLIT_K * PART)",
        "parts + blockIdx.x * (long long) PART", K.written_twice,
    ),
    Slip(
        "a part beyond the workspace", "workspace",
        "leave_part(parts + blockIdx.x", "leave_part(parts + 1 + blockIdx.x", K.misaligned,
    ),
    Slip(
        "parts of k overlap", "last",
        "+ min(split, k_tiles % SPLIT_K);", "+ 0;", K.wrong_result,
    ),
    Slip(
        "the rest of k everywhere", "last",
        "first_tile > 0 ? BLOCK_K : ", "", K.wrong_result,
    ),
    Slip(
        "the last block is taken to be the one before", "last",
        "== others ? 1.0f", "== others - 1 ? 1.0f", K.unwritten_workspace,
    ),
    Slip(
        "a counter is not returned to zero", "last",
        "count_arrival(counter, others)", "count_arrival(counter, others + 1)", K.not_zeroed,
    ),
    Slip(
        "a part is counted before it is written", "last",
        "    barrier();  // the part is written, and the tiles in shared memory are read\n",
        "", K.write_after_read,
    ),
    Slip(
        "whoever comes last does not wait", "last",
        "    barrier();\n    return load_shared<1>(shared)", "    return load_shared<1>(shared)",
        K.write_after_read,
    ),
    Slip(
        "sums are not cleared", "last",
        "sums[i][j] = 0.0f;", "sums[i][j] += 0.0f;", K.wrong_result,
    ),
    Slip(
        "a neighbour's share is left out", "stream",
        "block <= last_block;", "block < last_block;", K.wrong_result,
    ),
    Slip(
        "shares are taken one too far", "stream",
        "(blockIdx.x + 1ull) * dealt / gridDim.x", "(blockIdx.x + 1ull) * dealt / gridDim.x + 1",
        K.out_of_bounds_global,
    ),
    Slip(
        "the tile before is still read", "stream",
        "        barrier();  // everyone has read what the tile before left in shared memory\n",
        "", K.write_after_read,
    ),
    Slip(
        "a block writes the tile of another", "persistent, shared",
        "index += gridDim.x)", "index += gridDim.x - 1)", K.written_twice, 1,
    ),
    Slip(
        "the cluster does not wait for the parts", "cluster",
        "    leave_part(part, sums);\n    cluster_barrier();", "    leave_part(part, sums);",
        K.read_after_write,
    ),
    Slip(
        "a block ends while others read", "cluster",
        "    cluster_barrier();  // nobody ends while others read its shared memory\n", "",
        K.remote_ended,
    ),
    Slip(
        "clusters end while others read", "clusters",
        "    cluster_barrier();  // nobody ends while others read its shared memory\n", "",
        K.read_after_write,
    ),
    Slip(
        "the last block adds up before all clusters have come", "clusters",
        "if (!is_last(counters + blockIdx.x * CLUSTER + rank, CLUSTERS - 1, shared))",
        "if (is_last(counters + blockIdx.x * CLUSTER + rank, CLUSTERS - 1, shared))",
        K.unwritten_workspace,
    ),
    Slip(
        "blocks of one rank count for another", "clusters",
        "counters + blockIdx.x * CLUSTER + rank", "counters + blockIdx.x * CLUSTER",
        K.unwritten_workspace,
    ),
    Slip(
        "C is not scaled first", "atomic",
        "        store_global<4>(target, value);\n", "", K.wrong_result,
    ),
    Slip(
        "rows go through shared memory unguarded", "shared",
        "        barrier();  // everyone has read what lies there\n", "", K.write_after_read,
    ),
]  # fmt: skip


@pytest.mark.parametrize("slip", SLIPS, ids=lambda slip: slip.name)
def test_slips_are_found(slip: Slip) -> None:
    report = emulate(slip.planted())
    assert report.faults, "nothing was found"
    assert report.faults[0].kind is slip.kind, said(report)


@pytest.mark.parametrize(
    "way",
    [
        "workspace",
        "last",
        "last, shared",
        "cluster",
        "clusters",
        "atomic",
        "shared",
        "shared, narrow",
    ],
)
def test_accesses_are_foreseen(way: str) -> None:
    problem = Sgemm(m=32, n=64, k=1024, beta_zero=False)
    variant = distributed(problem, **WAYS[way])
    counted = emulate(variant)
    foreseen = accesses(problem, variant.config)
    for kind in KINDS:
        total = counted.total(kind)
        own = [access for access in foreseen if access.kind == kind]
        assert total.sectors == sum(access.sectors for access in own), kind
        assert total.wavefronts == sum(access.wavefronts for access in own), kind
        assert total.requests == sum(access.requests for access in own), kind
