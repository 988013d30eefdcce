"""What the model proposes for the beginning: valid, different, better than chance would find."""

from __future__ import annotations

import numpy as np
import pytest

from autotune import archs, space
from autotune.analysis import predict
from autotune.problems.sgemm import Sgemm
from autotune.search import prior
from autotune.types import Config

KERNELS = space.load("sgemm")
DEVICE = archs.get(90).typical
REGIONS = [KERNELS.region(Sgemm.parse(shape), 90) for shape in ("1024x1024x1024", "16x2048x2048")]


def times(configs: list[Config], number: int) -> list[float]:
    model = prior.model(REGIONS[number].problem, DEVICE)
    return [model(config) or 0.0 for config in configs]


@pytest.mark.parametrize("number", [0, 1])
def test_favourites_are_valid_different_and_in_order(number: int) -> None:
    region = REGIONS[number]
    found = prior.ranked(region, DEVICE, np.random.default_rng(0), count=16)
    assert region.valid(found) == found
    predicted = times(found, number)
    assert predicted == sorted(predicted) and len(set(np.round(predicted, 3))) == 16
    # Some 2,500 questions to the model find more than 3,000 by chance, or as much where those are
    # a good part of all.
    chance = sorted(times(region.sample(3000, np.random.default_rng(1)), number))
    assert predicted[0] < 1.01 * chance[0] and np.median(predicted) < chance[20]


def test_a_seed_gives_the_same_favourites_and_starts_may_be_among_them() -> None:
    def ranked(**options: object) -> list[Config]:
        return prior.ranked(REGIONS[0], DEVICE, np.random.default_rng(3), count=8, **options)

    first = ranked()
    assert first == ranked()
    again = ranked(exclude=set(first))
    assert len(again) == 8 and not set(first) & set(again)
    # What is best already stays best, wherever it comes from.
    assert min(times(ranked(starts=first[:1]), 0)) <= times(first, 0)[0]


def test_without_a_model_they_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "ranking_ns", lambda problem, config, device: None)
    region = REGIONS[0]
    barred = region.sample(prior.SAMPLES, np.random.default_rng(4))[:300]
    found = prior.ranked(region, DEVICE, np.random.default_rng(4), count=50, exclude=barred)
    assert len(found) == 50 and not set(found) & set(barred) and region.valid(found) == found


def test_presets_that_are_hopeless_are_no_starts() -> None:
    problem, space = Sgemm.parse("4096x4096x4096"), REGIONS[0].space
    presets = space.start_configs(problem, DEVICE.arch)
    model = prior.model(problem, DEVICE)
    kept = prior.plausible(problem, DEVICE, presets)
    assert 1 < len(kept) < len(presets)
    assert kept == [config for config in presets if config in kept]
    least = min(model(config) or 0.0 for config in presets)
    for config in presets:
        assert (config in kept) == ((model(config) or 0.0) <= 1.5 * least)
    assert prior.plausible(problem, DEVICE, []) == []


def test_where_no_model_is_no_preset_is_hopeless(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, space = Sgemm.parse("4096x4096x4096"), REGIONS[0].space
    presets = space.start_configs(problem, DEVICE.arch)
    monkeypatch.setattr(prior, "model", lambda problem, device: lambda config: None)
    assert prior.plausible(problem, DEVICE, presets) == presets
