"""The kernel for a short side of C compiles in every shape; its main loop is as foreseen."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from autotune import render, space
from autotune.analysis import sass, sgemm_work
from autotune.compile import Pool, compile_one
from autotune.problems.sgemm import LAYOUTS, Sgemm
from autotune.types import Binary, Config

ARCHS = (75, 80, 86, 89, 90, 100, 120)
KERNELS = space.load("sgemm")
SHORT = (1, 2, 3, 4, 7, 8, 16, 31, 32)


def drawn(problem: Sgemm, arch: int, rng: np.random.Generator) -> Config:
    """A valid config, each as likely."""
    own = [p for p in KERNELS.parameters if p.only in ("", "skinny")]
    while True:
        values = {p.name: p.values[rng.integers(len(p.values))] for p in own}
        config = KERNELS.config({**values, "method": "skinny"})
        if KERNELS.is_valid(config, problem, arch):
            return config


def corners() -> list[tuple[Sgemm, Config, int]]:
    """Every short side in both orientations and all layouts, every value of every parameter, and
    every architecture with every short side."""
    rng = np.random.default_rng(0)
    mine = [p for p in KERNELS.parameters if p.only in ("", "skinny")]
    wanted = {(p.name, value) for p in mine for value in p.values}
    # What the other method alone has.
    wanted -= {("method", "tiled"), ("split_k_mode", "cluster"), ("split_k_mode", "atomic")}
    found = []
    for number, (short, layout, is_tall) in enumerate(product(SHORT, LAYOUTS, (False, True))):
        long, k = (4096, 4096) if number % 2 else (1001, 2050)
        m, n = (long, short) if is_tall else (short, long)
        problem = Sgemm(
            m=m, n=n, k=k, layout=layout, beta_zero=number % 3 > 0, batch=1 + (number % 5 == 0)
        )
        arch = ARCHS[number % 7]
        sample = [drawn(problem, arch, rng) for _ in range(12)]
        sample.sort(key=lambda config: -len(wanted & set(config.items())))
        wanted -= set(sample[0].items())
        found.append((problem, sample[0], arch))
    assert not wanted
    return found


def test_every_corner_compiles() -> None:
    with Pool() as pool:
        jobs = []
        for problem, config, arch in corners():
            variant = render.render(problem, config, arch)
            jobs.append((variant, pool.submit(variant.body, arch)))
        for variant, job in jobs:
            result = job.result()
            assert isinstance(result, Binary), (variant.config, result)
            assert "warning" not in result.log, (variant.config, result.log)
            assert result.static_shared_bytes == 0


@pytest.mark.parametrize(
    ("shape", "layout", "preset"),
    [
        ("1x8192x8192", "nn", "skinny-columns-split"),
        ("1x8192x8192", "nt", "skinny-rows"),
        ("4x7680x2560", "nn", "skinny-columns-split"),
        ("16x8192x8192", "nn", "skinny-columns-split"),
        ("8192x16x8192", "nn", "skinny-rows"),
        ("16x512x500000", "nn", "skinny-columns-deep"),
    ],
)
def test_the_main_loop_is_what_the_model_counts(shape: str, layout: str, preset: str) -> None:
    problem = Sgemm.parse(shape, layout=layout)
    config = KERNELS.fitted(KERNELS.preset(preset), problem, 90)
    assert config is not None
    binary = compile_one(render.render(problem, config, 90).body, 90)
    assert isinstance(binary, Binary)
    found = sass.analyse(binary.cubin, "sgemm")
    work = sgemm_work.work(problem, config, binary.registers)
    assert binary.spill_bytes == 0 and found.spill_loads == found.spill_stores == 0
    assert found.loop is not None
    # A compiler may take several turns at once.
    turns = found.loop.ffma / work.fma
    assert turns == int(turns) >= 1
    assert found.loop.instructions / turns == pytest.approx(work.fma + work.slots, rel=0.2, abs=20)
    loads = int(config["ahead"]) * int(config["strips"])
    assert found.loop.widths["LDG"][16] >= turns * loads
    assert 4 not in found.loop.widths["LDS"] and 8 not in found.loop.widths["LDS"]
