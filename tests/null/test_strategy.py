"""Which points a search tries: valid ones, none twice, better ones than chance would."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from autotune import space
from autotune.errors import UsageError
from autotune.problems.sgemm import Sgemm
from autotune.region import Region
from autotune.search.strategy import BATCH, SAMPLERS, Strategy
from autotune.search.surrogate import MOST_TRIALS, Features, Surrogate
from autotune.types import Config

KERNELS = space.load("sgemm")
PROBLEM = Sgemm.parse("1024x1024x1024")
REGION = KERNELS.region(PROBLEM, 90)
# What the landscape below says nothing of. A hundred trials are too few to find out that these do
# not matter: over the whole space no sampler is sure to beat chance by then.
SILENT = {
    "method", "copy_a", "copy_b", "a_layout", "k_slices", "threads_producer", "fma", "split_k",
    "split_k_mode", "schedule", "epilogue",
}  # fmt: skip
SPOKEN = replace(
    KERNELS,
    parameters=tuple(
        replace(p, values=(p.default,), opt_in=()) if p.name in SILENT else p
        for p in KERNELS.parameters
    ),
).region(PROBLEM, 90)
RNG = np.random.default_rng(0)


def landscape(config: Config) -> float:
    """A time in ns with one valley: 64 x 64 tiles of 8 x 4, 32 deep, and some finer choices."""
    wanted = {"block_m": 64, "block_n": 64, "thread_m": 8, "thread_n": 4, "block_k": 32}
    distance = sum(abs(math.log2(int(config[n]) / value)) for n, value in wanted.items())
    finer = (config["lane_map"] != "zorder") + (config["stages"] != 2) + (config["vector_a"] != 4)
    return 50_000 * (1 + 0.2 * distance + 0.05 * finer)


def play(sampler: str, seed: int, trials: int, region: Region = REGION) -> list[float]:
    strategy = Strategy(region, seed=seed, sampler=sampler)
    times, seen = [], set()
    for _ in range(trials):
        config = strategy.ask()
        assert config is not None and config not in seen
        assert region.valid([config]) == [config]
        seen.add(config)
        times.append(landscape(config))
        strategy.tell(config, times[-1])
    return times


@pytest.mark.parametrize("sampler", list(SAMPLERS))
def test_only_valid_points_and_none_twice(sampler: str) -> None:
    assert len(play(sampler, 0, 40)) == 40


@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_samplers_that_learn_beat_chance(sampler: str) -> None:
    # The best of a hundred is a matter of luck over three seeds; what is proposed once there is
    # something to learn from is not.
    ours = [np.mean(play(sampler, seed, 100, SPOKEN)[50:]) for seed in range(3)]
    chance = [np.mean(play("random", seed, 100, SPOKEN)[50:]) for seed in range(3)]
    assert max(ours) < 0.8 * min(chance), (ours, chance)


def test_a_space_is_tried_to_its_end() -> None:
    small = KERNELS.region(Sgemm.parse("1x1x1"), 75)
    points = small.sample(30, np.random.default_rng(0))

    class Few:
        parameters = KERNELS.parameters
        size = len(points)

        def sample(self, count, rng, exclude=()):
            return [points[i] for i in rng.permutation(30) if points[i] not in exclude][:count]

        def neighbours(self, config, changes=1):
            return [p for p in points if sum(p[n] != config[n] for n in p) == changes]

        def valid(self, configs):
            return [config for config in configs if config in points]

    for sampler in SAMPLERS:
        strategy = Strategy(Few(), seed=1, sampler=sampler)
        found = []
        while (config := strategy.ask()) is not None:
            found.append(config)
            strategy.tell(config, landscape(config) if len(found) % 3 else None)
        assert len(found) == 30 and set(found) == set(points)


def test_what_is_known_or_barred_is_not_proposed() -> None:
    known = REGION.sample(60, np.random.default_rng(3))
    strategy = Strategy(
        REGION,
        seed=3,
        initial=known[:5],
        known=[(config, landscape(config)) for config in known[:30]],
        barred=known[30:],
    )
    for _ in range(3 * BATCH):
        config = strategy.ask()
        assert config is not None and config not in known
        strategy.tell(config, None)


def test_initial_points_come_first_and_in_order() -> None:
    initial = REGION.sample(5, np.random.default_rng(4))
    strategy = Strategy(REGION, seed=0, initial=initial)
    assert [strategy.ask() for _ in initial] == initial


def test_an_unknown_sampler() -> None:
    with pytest.raises(UsageError, match="'guess' is not a sampler; possible are auto"):
        Strategy(REGION, seed=0, sampler="guess")


def test_features_are_logarithms_and_their_differences() -> None:
    features = Features(KERNELS.parameters)
    config = KERNELS.preset("seed-v3.2")
    one, other = features.rows([config, config.but(block_m=64)])
    assert len(one) > features.singles > len(KERNELS.parameters)
    # Half of block_m: one logarithm changes by one, and so does each difference that it is in.
    assert set(np.round(np.abs(one - other), 9)) == {0.0, 1.0}
    sizes = sum(
        len(p.values) > 1 and all(isinstance(v, int) and v > 0 for v in p.values)
        for p in KERNELS.parameters
    )
    assert np.count_nonzero(one - other) == sizes


def test_the_surrogate_knows_its_trials_and_is_unsure_elsewhere() -> None:
    configs = REGION.sample(60, np.random.default_rng(5))
    surrogate = Surrogate(KERNELS.parameters)
    surrogate.fit([(config, landscape(config)) for config in configs])
    mean, spread = surrogate.predict(configs)
    order = np.argsort([landscape(config) for config in configs])
    assert set(np.argsort(mean)[:5]) & set(order[:5])
    _, elsewhere = surrogate.predict(REGION.sample(60, np.random.default_rng(6)))
    assert elsewhere.mean() > spread.mean()


def test_a_failure_counts_as_slow() -> None:
    configs = REGION.sample(40, np.random.default_rng(7))
    surrogate = Surrogate(KERNELS.parameters)
    surrogate.fit([(c, 1e5 if i % 2 else None) for i, c in enumerate(configs)])
    mean, _ = surrogate.predict(configs)
    assert mean[1::2].mean() < mean[::2].mean()


def test_a_long_search_rests_on_the_best_and_the_latest() -> None:
    configs = REGION.sample(2 * MOST_TRIALS, np.random.default_rng(8))
    surrogate = Surrogate(KERNELS.parameters)
    surrogate.fit([(config, landscape(config)) for config in configs])
    assert MOST_TRIALS // 2 < len(surrogate._targets) <= MOST_TRIALS
    best = min(configs, key=landscape)
    assert np.any(np.all(surrogate._base == surrogate._features.rows([best]), axis=1))


@pytest.mark.parametrize("sampler", list(SAMPLERS))
def test_methods_are_searched_side_by_side(sampler: str) -> None:
    region = KERNELS.region(Sgemm.parse("16x2048x2048"), 90)
    strategy = Strategy(region, seed=0, sampler=sampler, initial=region.sample(8, RNG))
    methods = []
    for _ in range(40):
        config = strategy.ask()
        assert config is not None and region.valid([config]) == [config]
        methods.append(config["method"])
        # The streaming method is twice as fast, the more of k is on its way the better.
        streams = config["method"] == "skinny"
        strategy.tell(config, 1000 / int(config["ahead"]) if streams else 2000.0)
    assert methods.count("skinny") >= 12
