"""Every way to share out the work on a GPU: exact on ragged shapes, equal bits in every run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from autotune import space
from autotune.compile import compile_one
from autotune.measure import Job, Worker
from autotune.problems.sgemm import Sgemm
from autotune.render import render
from autotune.types import Binary, Device, Scalar, Variant

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from paths import runs

pytestmark = pytest.mark.gpu

KERNELS = space.load("sgemm")
LAUNCHES = 50
WAYS: dict[str, dict[str, Scalar]] = {
    "workspace": {"split_k": 8},
    "last": {"split_k": 6, "split_k_mode": "last"},
    "last, shared": {"split_k": 3, "split_k_mode": "last", "epilogue": "shared", "vector_c": 1},
    "cluster": {"split_k": 4, "split_k_mode": "cluster"},
    "uneven cluster": {"split_k": 3, "split_k_mode": "cluster"},
    "clusters": {"split_k": 8, "split_k_mode": "cluster"},
    "several clusters": {"split_k": 16, "split_k_mode": "cluster"},
    "atomic": {"split_k": 4, "split_k_mode": "atomic"},
    "persistent": {"schedule": "persistent"},
    "stream": {"schedule": "stream"},
    "stream, shared": {"schedule": "stream", "epilogue": "shared", "vector_c": 1},
    "shared": {"epilogue": "shared", "vector_c": 1},
}
PROBLEMS = [
    Sgemm.parse("1000x1100x1300", beta_zero=False),
    Sgemm.parse("515x770x2051", layout="tt", batch=2),
    Sgemm.parse("640x1024x1536", layout="nt", ldc=1028),
    Sgemm.parse("199x3001x778", layout="tn", batch=3, beta_zero=False),
]


def variants(way: str, problem: Sgemm, device: Device) -> list[Variant]:
    """That way with a large and a small tile, as far as the device and the problem admit it."""
    found = []
    for preset in ("medium", "small"):
        wanted = KERNELS.config({**KERNELS.preset(preset), **WAYS[way]})
        config = KERNELS.fitted(wanted, problem, device.arch)
        if config is not None:
            found.append(render(problem, config, device.arch, sm_count=device.sm_count))
    return found


def cubin(variant: Variant) -> bytes:
    binary = compile_one(variant.body, variant.arch)
    assert isinstance(binary, Binary), binary
    return binary.cubin


@pytest.fixture(scope="module")
def worker(live: Device) -> Iterator[Worker]:
    with Worker(live, door="cuda-bindings") as worker:
        yield worker


def needed(way: str, device: Device) -> int:
    """Variants that must have run: all of the problems' but for clusters before sm_90."""
    return 0 if "cluster" in way and device.arch < 90 else 4


@pytest.mark.parametrize("way", WAYS)
def test_every_way_is_exact(worker: Worker, live: Device, way: str) -> None:
    ran = 0
    for problem in PROBLEMS:
        for variant in variants(way, problem, live):
            job = Job(problem=problem, plan=variant.plan, cubin=cubin(variant))
            found = worker.measure(job)
            assert found.is_ok, f"{way} {problem.key} {variant.config.json}: {found}"
            ran += 1
    assert ran >= needed(way, live)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "atomic"])
def test_every_run_gives_the_same_bits(live: Device, way: str) -> None:
    problem = PROBLEMS[0]
    for variant in variants(way, problem, live):
        assert variant.plan.is_deterministic
        first, *others = runs(variant, live, LAUNCHES)
        assert all(np.array_equal(first, other) for other in others), variant.config.json


def test_a_sum_of_nothing(worker: Worker, live: Device) -> None:
    for problem in (
        Sgemm.parse("300x200x0", beta_zero=False),
        Sgemm.parse("300x200x0", layout="tt", batch=2),
    ):
        config = KERNELS.fitted(KERNELS.preset("small"), problem, live.arch)
        assert config is not None
        variant = render(problem, config, live.arch)
        found = worker.measure(Job(problem=problem, plan=variant.plan, cubin=cubin(variant)))
        assert found.is_ok, found


def test_more_matrices_than_a_grid_has_in_z(worker: Worker, live: Device) -> None:
    problem = Sgemm(m=8, n=8, k=16, batch=70_000)
    config = KERNELS.fitted(KERNELS.preset("smallest"), problem, live.arch)
    assert config is not None
    variant = render(problem, config, live.arch)
    found = worker.measure(Job(problem=problem, plan=variant.plan, cubin=cubin(variant)))
    assert found.is_ok, found
