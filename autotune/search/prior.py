"""What the model thinks of points that nobody has tried."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from autotune.analysis import predict
from autotune.region import Region
from autotune.search.surrogate import Predicted
from autotune.search.variations import Variations
from autotune.types import Config, Device, Problem

SAMPLES = 800
"""Points that are drawn from the whole region."""
PARENTS, CHILDREN, GENERATIONS = 24, 240, 11
"""Favourites that are varied, variations of a generation of which the valid ones are ranked, and
how often."""

IMPLAUSIBLE = 1.5
"""What the model expects to take so many times as long as its favourite is not worth a trial. Seen
once in the stored trials of 48 problems on one H200, not recorded: that leaves out two of five
presets, none of which came within a third of the best of its problem."""


def model(problem: Problem, device: Device) -> Predicted:
    """The model's time of a config, as a strategy asks for it."""
    return lambda config: predict.ranking_ns(problem, config, device)


def plausible(problem: Problem, device: Device, configs: Sequence[Config]) -> list[Config]:
    """Those of the configs that may be the fastest of them, in their order."""
    predicted = model(problem, device)
    times = [predicted(config) for config in configs]
    least = min((time for time in times if time is not None), default=np.inf)
    return [
        config
        for config, time in zip(configs, times, strict=True)
        if time is None or time <= IMPLAUSIBLE * least
    ]


def ranked(
    region: Region,
    device: Device,
    rng: np.random.Generator,
    *,
    count: int,
    starts: Iterable[Config] = (),
    exclude: Collection[Config] = (),
) -> list[Config]:
    """The points that the model likes best, each unlike the others to it.

    A uniform sample and `starts` are ranked; then moves from the best and mixtures of two of them,
    again and again. Points of equal predicted time differ only in what the model does not see: one
    of them is enough.

    Returns:
        At most `count` points, best first; a uniform sample where no model knows the family.
    """
    predicted = model(region.problem, device)
    scores: dict[Config, float] = {}

    def add(configs: Iterable[Config]) -> None:
        for config in configs:
            if config not in scores:
                score = predicted(config)
                scores[config] = np.inf if score is None else score

    def top(number: int, method: str | None = None) -> list[Config]:
        different: dict[float, Config] = {}
        for config in sorted(scores, key=scores.__getitem__):
            if method is None or region.space.method(config) == method:
                different.setdefault(round(scores[config], 3), config)
        return list(different.values())[:number]

    add(starts)
    sample = region.sample(SAMPLES, rng)
    add(sample)
    if not any(np.isfinite(score) for score in scores.values()):
        return [config for config in sample if config not in exclude][:count]
    variations = Variations(region.parameters, rng)
    methods = [method for method, size in region.sizes.items() if size]
    for _ in range(GENERATIONS):
        children: dict[Config, None] = {}
        # Each method for itself: what is ahead early need not be so once both are good.
        for method in methods:
            parents = top(PARENTS, method)
            for _ in range(CHILDREN // len(methods)):
                # Better ones have more children.
                first, second = (parents[int(len(parents) * x * x)] for x in rng.random(2))
                child = variations.mixed(first, second) if rng.random() < 0.5 else first
                children[variations.moved(child)] = None
        add(region.valid([child for child in children if child not in scores]))
    return [config for config in top(count + len(exclude)) if config not in exclude][:count]
