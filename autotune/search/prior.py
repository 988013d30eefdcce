"""What the model thinks of points that nobody has tried."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from autotune.analysis import predict
from autotune.region import Region
from autotune.types import Config, Device

SAMPLES = 3000
CLIMBERS = 24
STEPS = 4


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

    A uniform sample and `starts` are ranked, and the best climb along one-parameter moves. Points
    of equal predicted time differ only in what the model does not see: one of them is enough.

    Returns:
        At most `count` points, best first; a uniform sample where no model knows the family.
    """
    scores: dict[Config, float] = {}

    def add(configs: Iterable[Config]) -> None:
        for config in configs:
            if config not in scores:
                score = predict.ranking_ns(region.problem, config, device)
                scores[config] = np.inf if score is None else score

    def top(number: int) -> list[Config]:
        different: dict[float, Config] = {}
        for config in sorted(scores, key=lambda config: (scores[config], config.json)):
            different.setdefault(round(scores[config], 3), config)
        return list(different.values())[:number]

    add(starts)
    sample = region.sample(SAMPLES, rng)
    add(sample)
    if not any(np.isfinite(score) for score in scores.values()):
        return [config for config in sample if config not in exclude][:count]
    for _ in range(STEPS):
        before = len(scores)
        for config in top(CLIMBERS):
            add(region.neighbours(config))
        if len(scores) == before:
            break
    return [config for config in top(count + len(exclude)) if config not in exclude][:count]
