"""No preset raises a false alarm, whatever the shape, the layout and the strides."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from kernels import ARCH, SPACE, emulate, said

from autotune.problems.sgemm import LAYOUTS, Sgemm
from autotune.render import render
from autotune.types import Config, Scalar

# Ragged in no dimension, in each, and in all; a single row, column and step; more tiles than one
# group has; less than one tile.
SHAPES = [
    (256, 512, 64),
    (300, 256, 32),
    (256, 300, 32),
    (128, 256, 36),
    (131, 257, 37),
    (1, 300, 40),
    (300, 1, 40),
    (140, 270, 1),
    (15, 17, 9),
    # Deep enough to be split, and whole vectors in every row, which whole lines of k and the copy
    # engine need.
    (70, 100, 640),
    (64, 64, 1030),
    (96, 68, 644),
    (132, 128, 512),
    (200, 260, 100),
    (260, 132, 68),
    (64, 64, 1024),
    (68, 260, 258),
    (130, 140, 300),
]
# With a short side, for the method that is made for it; deep enough for many parts.
SHORT = [
    (1, 36, 4100), (3, 60, 4500), (16, 20, 4100), (31, 33, 4101), (70, 2, 4096),
    (45, 7, 4104), (36, 16, 4352), (40, 32, 5001), (64, 4, 4300), (4, 64, 4097),
]  # fmt: skip
# So deep that several clusters share a tile.
DEEP = [
    (17, 65, 2052), (16, 66, 2049), (20, 68, 2048), (18, 70, 2056), (33, 67, 2053), (19, 130, 2050),
]  # fmt: skip

# In turn each meets every shape and layout.
EXTRAS: list[dict[str, object]] = [
    {},
    {"beta_zero": False, "batch": 3},
    {"align_a": 8, "align_b": 8, "align_c": 8},
    # Matrices of A that overlap one another.
    {"batch": 2, "stride_a": 16, "beta_zero": False, "align_a": 8},
    {"align_a": 4, "align_b": 4, "align_c": 4, "beta_zero": False},
]


def arch_of(preset: str) -> int:
    """One that has what the preset needs."""
    return 100 if SPACE.preset(preset)["fma"] == "pairs" else ARCH


def adapted(preset: str, problem: Sgemm) -> Config | None:
    """The preset with no more given up than the problem demands; None if its tile is too large.

    What is given up: blocks per SM and groups, which a run on the CPU does not depend on; vectors;
    then what only some layouts can have.
    """
    give_up: list[dict[str, Scalar]] = [
        {},
        {"min_blocks": 1},
        {"min_blocks": 1, "swizzle_a": "none"},
        {"min_blocks": 1, "swizzle_a": "none", "pad_a": 0, "pad_b": 0},
        # So many tiles that a block has several take too long here; test_copies has such a case.
        {"min_blocks": 1, "schedule": "grid"},
    ]
    for changes in give_up:
        config = SPACE.fitted(SPACE.preset(preset).but(**changes), problem, arch_of(preset))
        if config is not None:
            return config
    return None


def problems(shapes: Sequence[tuple[int, int, int]], first: int) -> list[list[Sgemm]]:
    """Every shape in the four layouts, beginning with another one each time; with extras in turn,
    then without, and in every second shape the rows of all operands lie apart."""
    result = []
    for number, (m, n, k) in enumerate(shapes):
        gap = 4 if number % 2 else 0
        variants = []
        for extra in (EXTRAS[(number + first) % len(EXTRAS)], EXTRAS[0]):
            for turn in range(len(LAYOUTS)):
                layout = LAYOUTS[(number + first + turn) % len(LAYOUTS)]
                tight = Sgemm(m=m, n=n, k=k, layout=layout)
                leading = {f"ld{o.name}": o.columns + gap for o in tight.operands}
                variants.append(Sgemm(m=m, n=n, k=k, layout=layout, **leading, **extra))  # type: ignore[arg-type]
        result.append(variants)
    return result


@pytest.mark.parametrize("preset", SPACE.presets)
def test_a_preset_raises_no_false_alarm(preset: str) -> None:
    served = 0
    first = list(SPACE.presets).index(preset)
    shapes = {"skinny": SHORT, "clusters": DEEP}.get(preset.split("-")[0], SHAPES)
    every = problems(shapes, first)
    for variants in every[first % len(every) :] + every[: first % len(every)]:
        if served == 6:
            break
        # Some ways of copying serve some layouts only: the first that can be served.
        fitting = ((problem, adapted(preset, problem)) for problem in variants)
        problem, config = next(((p, c) for p, c in fitting if c is not None), (variants[0], None))
        if config is None:
            continue
        report = emulate(render(problem, config, arch_of(preset)))
        assert report.verdict == "ok", f"{problem.key}: {said(report)}"
        assert report.blocks_run == report.blocks_total
        served += 1
    assert served >= 5


def test_a_change_of_seed_changes_the_data_and_not_the_verdict() -> None:
    problem = Sgemm(m=131, n=257, k=37)
    config = adapted("seed-v3.2", problem)
    assert config is not None
    kernel = render(problem, config, ARCH)
    one, two = emulate(kernel, seed=1), emulate(kernel, seed=2)
    assert one.verdict == two.verdict == "ok"
    assert one.accesses == two.accesses
