"""Every copy path x lane map x split x vector width x shared layout, on ragged shapes.

These five are gone through one by one; hypothesis chooses tiles, stages, buffers, orders, shapes
and strides, the same ones in every run.
"""

from __future__ import annotations

import zlib
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, seed, settings
from hypothesis import strategies as st
from kernels import ARCH, SPACE, emulate, said

from autotune.problems.sgemm import LAYOUTS, Layout, Sgemm
from autotune.render import render
from autotune.types import Config, Scalar

# How an operand's tile may lie in shared memory, where it is stored transposed and where it is not.
SHARED: dict[Layout, dict[str, dict[str, Scalar]]] = {
    "nn": {"tight": {}, "pad": {"pad_a": 4}, "xor": {"swizzle_a": "xor"}},
    "nt": {"tight": {}, "pad": {"pad_a": 4, "pad_b": 8}, "xor": {"swizzle_a": "xor", "pad_b": 4}},
    "tn": {"tight": {}},
    "tt": {"tight": {}, "pad": {"pad_b": 4}},
}
LANE_MAPS = SPACE.parameter("lane_map").values
SPLITS = SPACE.parameter("fragment_split").values
VECTORS = (1, 2, 4)

# Tiles that need few threads come first: hypothesis takes them for the simplest.
TILES: list[dict[str, Scalar]] = sorted(
    (
        {
            "block_m": block_m,
            "block_n": block_n,
            "thread_m": thread_m,
            "thread_n": thread_n,
            "lanes_m": lanes_m,
        }
        for block_m, block_n, thread_m, thread_n, lanes_m in product(
            (16, 32, 64, 96, 128), (16, 32, 64, 96, 128), (1, 2, 4, 8, 12), (1, 2, 4, 8, 12, 16),
            (1, 2, 4, 8, 16, 32),
        )
        if block_m % (lanes_m * thread_m) == 0
        and block_n % (32 // lanes_m * thread_n) == 0
        and thread_m <= 4 * thread_n
        and thread_n <= 4 * thread_m
        and block_m * block_n // (thread_m * thread_n) <= 256
    ),
    key=lambda tile: int(tile["block_m"]) * int(tile["block_n"]),
)  # fmt: skip
ORDERS: list[dict[str, Scalar]] = [
    {},
    {"order": "columns", "order_serpentine": 1},
    {"order_block_m": 2, "order_block_n": 2, "order_inner_reverse": "lines"},
    {"order_block_m": 2, "order_inner_reverse": "blocks", "order_serpentine": 1},
    {"order_block_m": 4, "order_block_n": 2, "order": "columns", "order_inner": "columns"},
]


@st.composite
def points(
    draw: st.DrawFn, layout: Layout, chosen: dict[str, Scalar], vector: int
) -> tuple[Sgemm, Config]:
    """A problem that is ragged in every dimension, and a valid config for it."""
    tile = draw(st.sampled_from(TILES))
    block_k = draw(st.sampled_from([8, 16, 32]))
    buffers = draw(st.sampled_from([1, 2]))

    def size(block: int) -> int:
        # From a little over half a tile to two and a half, and never a whole number of them.
        least, most = block // 2 // vector + 1, block * 5 // 2 // vector
        chosen = vector * draw(st.integers(least, most))
        return chosen if chosen % block else chosen + vector

    m, n = size(int(tile["block_m"])), size(int(tile["block_n"]))
    k = vector * draw(st.integers(1, 3 * block_k // vector))
    batch = draw(st.sampled_from([1, 1, 2]))
    tight = Sgemm(m=m, n=n, k=k, layout=layout)
    problem = Sgemm(
        m=m,
        n=n,
        k=k,
        layout=layout,
        batch=batch,
        beta_zero=draw(st.booleans()),
        align_a=max(4 * vector, draw(st.sampled_from([16, 8, 4]))),
        align_b=max(4 * vector, draw(st.sampled_from([16, 8, 4]))),
        align_c=draw(st.sampled_from([16, 8, 4])),
        **{f"ld{o.name}": o.columns + vector * draw(st.integers(0, 3)) for o in tight.operands},
    )
    config = SPACE.config(
        {
            **tile,
            **chosen,
            **draw(st.sampled_from(ORDERS)),
            "block_k": block_k,
            "stages": draw(st.sampled_from([1, 2])),
            "register_buffers": buffers,
            "k_unroll": block_k if buffers == 2 else 4,
            "group_m": draw(st.sampled_from([1, 2])),
            "vector_c": draw(st.sampled_from([1, 2, 4])),
        }
    )
    assume(SPACE.is_valid(config, problem, ARCH))
    return problem, config


CASES = [
    (layout, shared, lane_map, split, vector)
    for layout in LAYOUTS
    for shared, lane_map, split, vector in product(SHARED[layout], LANE_MAPS, SPLITS, VECTORS)
]


@pytest.mark.parametrize(("layout", "shared", "lane_map", "split", "vector"), CASES, ids=str)
def test_the_template_is_right(
    layout: Layout, shared: str, lane_map: str, split: str, vector: int
) -> None:
    chosen = {
        **SHARED[layout][shared],
        "lane_map": lane_map,
        "fragment_split": split,
        "vector_a": vector,
        "vector_b": vector,
    }
    ran = 0

    @seed(zlib.crc32(f"{layout} {shared} {lane_map} {split} {vector}".encode()))
    @settings(max_examples=3, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(points(layout, chosen, vector))
    def check(point: tuple[Sgemm, Config]) -> None:
        nonlocal ran
        problem, config = point
        report = emulate(render(problem, config, ARCH))
        assert report.verdict == "ok", f"{problem.key} {config.json}: {said(report)}"
        ran += 1

    check()
    assert ran >= 2


# Anything that the space holds, tiles beyond the sweep's included.
@pytest.mark.parametrize(
    "problem",
    [
        Sgemm(m=197, n=131, k=45, beta_zero=False),
        Sgemm(m=260, n=390, k=44, layout="nt", ldc=400),
        Sgemm(m=130, n=198, k=70, layout="tn", align_b=8),
        Sgemm(m=70, n=516, k=36, layout="tt", batch=2),
    ],
    ids=lambda problem: problem.key,
)
def test_random_points_of_the_space_are_right(problem: Sgemm) -> None:
    for config in SPACE.region(problem, ARCH).sample(12, np.random.default_rng(0)):
        report = emulate(render(problem, config, ARCH))
        assert report.verdict == "ok", f"{problem.key} {config.json}: {said(report)}"
