"""What makes problems unlike one another, and who is chosen among those that are near."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from store_helpers import T4, cube, live, tune

from autotune import defaults, nearness, space, storefile
from autotune.lookup import answer
from autotune.problems.sgemm import LAYOUTS, Sgemm
from autotune.types import Match

SMS = 40


def traits(problem: Sgemm, sm_count: int = SMS) -> nearness.Traits:
    return nearness.traits(
        "sgemm", problem.shape, float(problem.flops), storefile.regime(problem), sm_count
    )


def distance(one: Sgemm, other: Sgemm, sm_count: int = SMS) -> float:
    return traits(one, sm_count).distance(traits(other, sm_count))


def test_another_layout_counts_as_an_octave() -> None:
    for one in LAYOUTS:
        for other in LAYOUTS:
            between = distance(cube(1024, layout=one), cube(1024, layout=other))
            assert between == (0.0 if one == other else nearness.TEXT)


def test_sizes_of_the_output_count_more_than_the_depth() -> None:
    base = cube(4096)
    wider, deeper = Sgemm(m=4096, n=8192, k=4096), Sgemm(m=4096, n=4096, k=8192)
    # So many tiles that their number no longer matters, and all sizes divide alike.
    assert distance(base, wider) == pytest.approx(nearness.OUTPUT)
    assert distance(base, deeper) == pytest.approx(nearness.SUMMED)
    assert distance(base, cube(4096, batch=2)) == pytest.approx(nearness.BATCH)


def test_few_tiles_are_another_matter() -> None:
    """A small output leaves multiprocessors idle; with deep sums they must be split as well."""
    few = Sgemm(m=256, n=256, k=256)
    fewer = Sgemm(m=256, n=128, k=256)
    deep = [Sgemm(m=each.m, n=each.n, k=65536) for each in (few, fewer)]
    plain = nearness.OUTPUT
    assert plain < distance(few, fewer) <= distance(*deep)
    # The same two on a GPU that even the smaller one fills.
    assert distance(few, fewer, sm_count=1) < distance(few, fewer)


def test_alignment_and_divisors_count_a_little() -> None:
    base = cube(1024)
    assert 0 < distance(base, cube(1024, align_a=4)) < nearness.OUTPUT
    # 1000 is 8 times 125; 992 is 32 times 31: as near, and more alike.
    assert distance(base, cube(1008)) < distance(base, cube(1000)) < distance(base, cube(999))
    prime, round_ = Sgemm(m=1032, n=1024, k=1024), Sgemm(m=1056, n=1024, k=1024)
    assert distance(base, round_) < distance(base, prime)


def test_another_number_of_multiprocessors_is_seen() -> None:
    small = cube(512)
    assert traits(small, 20).distance(traits(small, 80)) > 0
    assert traits(cube(8192), 20).distance(traits(cube(8192), 80)) == 0


def test_nothing_within_reach_is_beyond_it() -> None:
    """The bound at which the walk through a store ends."""
    chance = random.Random(3)

    def drawn() -> Sgemm:
        m, n, k = (chance.choice([1, 3, 16, 100, 1000, 4096]) for _ in range(3))
        return Sgemm(m=m, n=n, k=k * chance.choice([1, 7, 64]), batch=chance.choice([1, 2, 64]))

    for _ in range(2000):
        one, other = drawn(), drawn()
        octaves = abs(math.log2(one.flops / other.flops))
        assert octaves <= traits(one).reach * distance(one, other) + 1e-9


def test_nothing_to_sum_has_traits_too() -> None:
    assert math.isfinite(distance(Sgemm(m=64, n=64, k=0), cube(64)))


def test_ratios_in_words() -> None:
    assert nearness.ratios("sgemm", "1000x512x64", "1024x512x32") == "m x0.977, k x2"
    assert nearness.ratios("sgemm", "8x8x8", "8x8x8") == ""


def test_the_model_has_a_say_among_near_configs(tmp_path: Path) -> None:
    """A config that was best a little nearer, and that the model thinks slow here, is left."""
    kernels, path = space.load("sgemm"), tmp_path / "r.db"
    good = defaults.default(cube(2048), T4)
    tune(path, cube(1984), {1: 1e12}, config=kernels.preset("naive"))
    tune(path, cube(2304), {2: 1e12}, config=good)
    found = answer(cube(2048), device=live(), store=path, seed_folder=None)
    assert (found.match, found.config) == (Match.near_shape, good)
    nearest = min((1984, 2304), key=lambda size: distance(cube(2048), cube(size)))
    assert nearest == 1984


def test_a_rule_of_thumb_says_that_it_is_one() -> None:
    loss = nearness.Loss()
    assert loss.source == "by a rule of thumb"
    assert loss.at(0.0) == loss.least and loss.at(1e3) == 0.9
