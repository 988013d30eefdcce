"""The kernel for a short side of C on a GPU: right, and as fast as memory lets it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from autotune import render, space
from autotune.compile import compile_one
from autotune.measure import Job, Worker
from autotune.problems.sgemm import LAYOUTS, Sgemm
from autotune.types import Binary, Config, Device, Measurement

pytestmark = pytest.mark.gpu

KERNELS = space.load("sgemm")
PRESETS = [name for name in KERNELS.starts if KERNELS.preset(name)["method"] == "skinny"]


@pytest.fixture(scope="module")
def worker(live: Device) -> Iterator[Worker]:
    with Worker(live, door="cuda-bindings") as worker:
        yield worker


def measured(worker: Worker, problem: Sgemm, config: Config, arch: int) -> Measurement:
    variant = render.render(problem, config, arch)
    binary = compile_one(variant.body, arch)
    assert isinstance(binary, Binary), binary
    return worker.measure(Job(problem=problem, plan=variant.plan, cubin=binary.cubin))


def drawn(problem: Sgemm, arch: int, rng: np.random.Generator) -> Config:
    """A valid config, each as likely."""
    own = [p for p in KERNELS.parameters if p.only in ("", "skinny")]
    while True:
        values = {p.name: p.values[rng.integers(len(p.values))] for p in own}
        config = KERNELS.config({**values, "method": "skinny"})
        if KERNELS.is_valid(config, problem, arch):
            return config


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("is_tall", [False, True], ids=["short-m", "short-n"])
def test_every_layout_is_right(worker: Worker, live: Device, layout: str, is_tall: bool) -> None:
    rng = np.random.default_rng([LAYOUTS.index(layout), is_tall])
    for short, long, k in [(1, 1000, 1500), (3, 515, 333), (8, 4096, 512), (31, 640, 2000)]:
        m, n = (long, short) if is_tall else (short, long)
        problem = Sgemm(
            m=m, n=n, k=k, layout=layout, beta_zero=short != 3, batch=2 if short == 8 else 1
        )  # type: ignore[arg-type]
        for _ in range(3):
            config = drawn(problem, live.arch, rng)
            found = measured(worker, problem, config, live.arch)
            assert found.is_ok, f"{problem.key} {config}: {found}"


@pytest.mark.parametrize(
    ("shape", "layout"),
    [("1x8192x8192", "nn"), ("1x8192x8192", "nt"), ("8192x4x8192", "nn"), ("4x8192x8192", "nn")],
)
def test_a_preset_streams_at_most_of_the_bandwidth(
    worker: Worker, live: Device, shape: str, layout: str
) -> None:
    problem = Sgemm.parse(shape, layout=layout)
    times = []
    for name in PRESETS:
        config = KERNELS.fitted(KERNELS.preset(name), problem, live.arch)
        if config is not None:
            found = measured(worker, problem, config, live.arch)
            assert found.is_ok and found.median_ns is not None, f"{name}: {found}"
            times.append(found.median_ns)
    assert problem.bytes_min / min(times) > 0.7 * live.bandwidth_gbs
