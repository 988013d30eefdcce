"""Plans that share out the work: launches, workspaces, grids, rules, and what is foreseen."""

import numpy as np
import pytest

from autotune import archs, space
from autotune.analysis import sgemm_work
from autotune.analysis.predict import candidate
from autotune.errors import InfeasibleError
from autotune.problems.sgemm import Sgemm
from autotune.render import render
from autotune.report import text
from autotune.types import LaunchPlan, Workspace

KERNELS = space.load("sgemm")
SQUARE = Sgemm.parse("2048x2048x2048")
DEEP = Sgemm.parse("128x128x16384")


def config(preset="small", **changes):
    return KERNELS.config({**KERNELS.preset(preset), **changes})


def plan(problem=SQUARE, arch=90, sm_count=None, **changes) -> LaunchPlan:
    return KERNELS.plan(config(**changes), problem, arch, sm_count)


def test_a_plain_plan_is_one_launch():
    found = plan()
    assert [launch.entry for launch in found.launches] == ["sgemm"]
    assert (found.workspaces, found.is_deterministic) == ((), True)
    assert found.main.grid == (32 * 32, 1, 1)


def test_blocks_are_numbered_over_the_batch():
    # More than the 65,535 that a grid has in z.
    problem = Sgemm(m=64, n=128, k=64, batch=70_000)
    assert plan(problem).main.grid == (140_000, 1, 1)
    assert KERNELS.is_valid(config(group_m=1), problem, 90)
    huge = Sgemm(m=2**20, n=2**20, k=64, batch=64)
    why = KERNELS.explain(config(), huge, 90)
    assert why is not None and "more blocks than the 2147483647 of a grid" in why


def test_a_split_through_a_workspace_is_two_launches():
    main, reduce = (found := plan(DEEP, split_k=8)).launches
    assert (main.entry, main.grid) == ("sgemm", (4, 8, 1))
    # A block for each of the eight vectors of four that a thread of the first launch has.
    assert (reduce.entry, reduce.grid, reduce.block) == ("sgemm_reduce", (4 * 8, 1, 1), (128, 1, 1))
    assert found.workspaces == (
        Workspace(name="parts", size_bytes=4 * 8 * 64 * 64 * 4, is_zeroed=False),
    )
    assert found.main is main and found.is_deterministic


def test_the_last_block_needs_a_counter_for_each_tile():
    found = plan(DEEP, split_k=8, split_k_mode="last")
    assert len(found.launches) == 1
    assert found.workspaces[1] == Workspace(name="counters", size_bytes=16, is_zeroed=True)


def test_a_cluster_keeps_its_parts_in_shared_memory():
    found = plan(DEEP, split_k=4, split_k_mode="cluster")
    assert (found.workspaces, found.main.grid) == ((), (4, 4, 1))
    assert found.main.shared_bytes == 64 * 64 * 4
    assert (
        "__cluster_dims__(1, CLUSTER, 1)"
        in render(DEEP, config(split_k=4, split_k_mode="cluster", min_blocks=1, group_m=1), 90).body
    )


def test_several_clusters_leave_parts_in_memory():
    found = plan(DEEP, split_k=32, split_k_mode="cluster")
    assert (len(found.launches), found.main.grid) == (1, (4, 32, 1))
    parts, counters = found.workspaces
    assert parts == Workspace(name="parts", size_bytes=4 * 4 * 64 * 64 * 4, is_zeroed=False)
    # Each block of a cluster has vectors of its own to count for.
    assert counters == Workspace(name="counters", size_bytes=4 * 8 * 4, is_zeroed=True)


def test_atomics_scale_c_first_and_are_not_deterministic():
    scale, main = (found := plan(split_k=2, split_k_mode="atomic")).launches
    assert (scale.entry, scale.grid) == ("sgemm_scale", (2048 * 2048 // 4 // 256, 1, 1))
    assert found.main is main
    assert not found.is_deterministic


def test_grids_that_fit_the_device_follow_its_sms():
    blocks = {n: plan(sm_count=n, schedule="persistent").main.blocks for n in (None, 20, 114)}
    assert blocks == {None: 132 * 2, 20: 40, 114: 228}
    found = plan(sm_count=20, schedule="stream")
    # Each block has two parts of tiles at most, and twice as many tiles at most are cut.
    assert [workspace.size_bytes for workspace in found.workspaces] == [
        2 * 40 * 64 * 64 * 4, 2 * 40 * 4,
    ]  # fmt: skip
    few = Sgemm(m=64, n=128, k=16 * 1100)
    assert plan(few, sm_count=2000, schedule="stream").main.blocks == 2 * 1100, "one tile of k each"
    bodies = {render(SQUARE, config(schedule="stream"), 90, sm_count=n).body for n in (20, 132)}
    assert len(bodies) == 1, "the source does not depend on it"


@pytest.mark.parametrize(
    ("changes", "problem", "arch", "why"),
    [
        ({"split_k": 32}, SQUARE, 90, None),
        ({"split_k": 64}, SQUARE, 90, "leaves fewer than 64 steps"),
        ({"split_k_mode": "last"}, SQUARE, 90, "k is not split"),
        ({"split_k": 4, "split_k_mode": "cluster"}, DEEP, 89, "a cluster needs sm_90, not sm_89"),
        ({"split_k": 12, "split_k_mode": "cluster"}, DEEP, 90, "at most 8 blocks, of which 12"),
        ({"split_k": 8, "split_k_mode": "last"}, DEEP, 62, "needs sm_70, not sm_62"),
        ({"split_k": 4, "schedule": "stream"}, SQUARE, 90, "k is split by the grid alone"),
        ({"schedule": "persistent"}, DEEP, 90, "4 tiles for 132 SMs"),
        ({"schedule": "stream"}, DEEP, 90, None),
        ({"schedule": "stream"}, Sgemm.parse("64x64x4096"), 90, "fewer than 128 steps"),
        ({"split_k": 16}, Sgemm.parse("8192x8192x8192"), 90, "at most 536870912"),
        ({"split_k": 2, "split_k_mode": "atomic"}, SQUARE, 90, None),
        ({"split_k": 2, "split_k_mode": "atomic"}, SQUARE, 80, "adding 4 floats at once"),
        ({"split_k": 2, "split_k_mode": "atomic", "vector_c": 1}, SQUARE, 80, None),
        ({"epilogue": "shared"}, SQUARE, 90, "already write whole lines of C"),
        ({"epilogue": "shared", "vector_c": 1}, SQUARE, 90, None),
        ({"epilogue": "shared", "vector_c": 1, "split_k": 2}, SQUARE, 90, "no block has a whole"),
        ({"schedule": "stream", "k_slices": 2, "register_buffers": 1, "k_unroll": 8}, SQUARE, 90,
         "all threads of a block meet after the main loop"),
    ],
)  # fmt: skip
def test_what_is_valid(changes, problem, arch, why):
    found = KERNELS.explain(config(**{"group_m": 1, **changes}), problem, arch)
    assert (found is None) if why is None else (found is not None and why in found), found


def test_a_search_tries_atomics_only_when_asked():
    tried = KERNELS.without_opt_in()
    assert "atomic" in KERNELS.parameter("split_k_mode").values
    assert "atomic" not in tried.parameter("split_k_mode").values
    atomic = config(split_k=2, split_k_mode="atomic")
    with pytest.raises(InfeasibleError, match="split_k_mode = 'atomic' is not in the space"):
        tried.check(atomic, SQUARE, 90)
    rng = np.random.default_rng(0)
    modes = {
        chosen["split_k_mode"]
        for chosen in tried.region(DEEP, 90).sample(200, rng)
        if "split_k_mode" in chosen
    }
    assert modes == {"workspace", "last", "cluster"}


def test_reports_say_what_is_not_deterministic():
    assert text.config(config(split_k=2, split_k_mode="atomic"), KERNELS).endswith(
        "not deterministic"
    )
    assert "deterministic" not in text.config(config(split_k=2), KERNELS)
    assert KERNELS.is_deterministic({"block_m": 64}), "a config of an older space may lack names"


def test_work_of_shared_out_tiles():
    whole, split = (
        sgemm_work.work(DEEP, config(group_m=1, **changes)) for changes in ({}, {"split_k": 16})
    )
    assert (split.blocks, split.iterations) == (16 * whole.blocks, whole.iterations / 16)
    assert (split.parts, split.side_launches) == (16, 1)
    # Every part is read, and C is written.
    assert split.side_bytes == (16 + 1) * 128 * 128 * 4
    last = sgemm_work.work(DEEP, config(split_k=16, split_k_mode="last"))
    assert (last.side_launches, last.closing_parts, last.part_bytes) == (0, 16, 64 * 64 * 4)
    cluster = sgemm_work.work(DEEP, config(split_k=8, split_k_mode="cluster"))
    assert (cluster.side_launches, cluster.closing_parts) == (0, 1)
    clusters = sgemm_work.work(DEEP, config(split_k=32, split_k_mode="cluster"))
    assert (clusters.side_launches, clusters.closing_parts) == (0, 1 + 4 / 8)
    assert cluster.shared_bytes == 64 * 64 * 4
    atomic = sgemm_work.work(DEEP, config(split_k=16, split_k_mode="atomic"))
    assert (atomic.side_launches, atomic.side_bytes) == (1, 128 * 128 * 4)
    strip = sgemm_work.work(SQUARE, config(epilogue="shared", vector_c=1))
    assert (
        strip.shared_bytes
        == KERNELS.plan(config(epilogue="shared", vector_c=1), SQUARE, 90).main.shared_bytes
    )


def test_splitting_pays_where_tiles_are_few():
    device = archs.get(90).typical

    def ns(problem, **changes):
        found = candidate(problem, config(**changes), device)
        assert found is not None
        return found

    assert ns(DEEP, split_k=32).time_ns < 0.2 * ns(DEEP).time_ns
    assert ns(DEEP).terms["parts"] == 0 < ns(DEEP, split_k=32).terms["parts"]
    # Four rounds of 264 blocks hold 1,024 tiles with little to spare: nothing to win by splitting.
    assert ns(SQUARE, split_k=2).time_ns > ns(SQUARE).time_ns
    # 300 tiles on 132 SMs: three on some and two on most. Dealt evenly, nobody waits.
    uneven = Sgemm.parse("1280x960x4096")
    assert ns(uneven, schedule="stream").time_ns < 0.9 * ns(uneven).time_ns
