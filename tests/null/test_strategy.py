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
from autotune.search.candidates import SMALL, Candidates
from autotune.search.features import Features
from autotune.search.gaussian import Gaussian
from autotune.search.history import History
from autotune.search.samplers import BATCH, LEAST, SAMPLERS
from autotune.search.strategy import Strategy
from autotune.search.surrogate import MOST_TRIALS, Surrogate
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


@pytest.mark.parametrize("sampler", ["auto", "gp", "tpe"])
def test_samplers_that_learn_beat_chance(sampler: str) -> None:
    # The best of a hundred is a matter of luck over few seeds; what is proposed once there is
    # something to learn from is not.
    ours = [np.mean(play(sampler, seed, 120, SPOKEN)[60:]) for seed in range(2)]
    chance = [np.mean(play("random", seed, 120, SPOKEN)[60:]) for seed in range(2)]
    assert max(ours) < 0.8 * min(chance), (ours, chance)


def test_a_space_is_tried_to_its_end() -> None:
    small = KERNELS.region(Sgemm.parse("1x1x1"), 75)
    points = small.sample(30, np.random.default_rng(0))

    class Few:
        parameters = KERNELS.parameters
        size = len(points)

        def unrank(self, numbers):
            return [points[number] for number in numbers]

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


def test_a_grid_goes_through_the_space_in_its_order(caplog: pytest.LogCaptureFixture) -> None:
    small = KERNELS.region(Sgemm.parse("1x1x1"), 75)
    barred = small.unrank([1, 3])
    strategy = Strategy(small, seed=0, sampler="grid", barred=barred)
    assert [strategy.ask() for _ in range(4)] == small.unrank([0, 2, 4, 5])
    assert f"a grid of {small.size} points will not be finished" in caplog.text
    caplog.clear()
    Strategy(small, seed=0, sampler="random")
    assert not caplog.text


def test_points_that_are_asked_for_together_differ_and_a_late_answer_counts() -> None:
    starts = REGION.sample(2 * LEAST, np.random.default_rng(9))
    known = [(config, landscape(config)) for config in starts]
    strategy = Strategy(REGION, seed=0, known=known)
    asked = [strategy.ask() for _ in range(24)]
    assert len(set(asked)) == 24
    for config in reversed(asked):
        assert config is not None
        strategy.tell(config, landscape(config))
    assert strategy.ask() not in asked


def test_a_search_of_nothing_but_failures_goes_on() -> None:
    strategy = Strategy(REGION, seed=0)
    for _ in range(3 * LEAST):
        config = strategy.ask()
        assert config is not None
        strategy.tell(config, None)


# *** the surrogate and its parts ***


def history(configs: list[Config], times: list[float | None] | None = None) -> History:
    return History(list(zip(configs, times or map(landscape, configs), strict=True)), [])


def test_features_are_logarithms_and_texts_are_equal_or_not() -> None:
    features = Features(KERNELS.parameters)
    config = KERNELS.preset("seed-v3.2")
    one, half, text = features.rows([config, config.but(block_m=64), config.but(order="columns")])
    assert len(one) == len(features.owner)
    assert sorted(np.abs(one - half))[-2:] == [0.0, 1.0]
    assert np.sum((one - text) ** 2) == pytest.approx(1.0)
    assert len(set(features.owner[one != text])) == 1


def test_adding_trials_one_by_one_equals_starting_anew() -> None:
    rng = np.random.default_rng(2)
    rows, watched = rng.normal(size=(60, 4)), rng.normal(size=(30, 4))
    targets = np.sin(rows[:, 0]) + 0.1 * rows[:, 1]
    owner = np.arange(4)
    step_by_step, at_once = Gaussian(owner), Gaussian(owner)
    step_by_step.watch(watched)
    step_by_step.fit(rows[:20], targets[:20])
    for row in rows[20:]:
        step_by_step.add(row)
    at_once._logs, at_once._log_noise = step_by_step._logs, step_by_step._log_noise
    at_once._rows = rows
    at_once.watch(watched)
    for one, other in zip(
        step_by_step.at_watched(targets), at_once.at_watched(targets), strict=True
    ):
        assert np.allclose(one, other, atol=2e-3)
    assert step_by_step.at(watched[0], targets) == pytest.approx(
        at_once.at_watched(targets)[0][0], abs=2e-3
    )


def test_weights_show_which_columns_matter() -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(80, 6))
    targets = np.sin(2 * rows[:, 1])
    gaussian = Gaussian(np.arange(6))
    gaussian.fit(rows, (targets - targets.mean()) / targets.std())
    assert np.argmax(gaussian._logs) == 1
    assert gaussian._logs[1] > np.delete(gaussian._logs, 1).max() + 1


def test_the_gradient_of_the_weights_is_that_of_the_density() -> None:
    # A step that only looked downhill would end anywhere: the density must have grown.
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(40, 3))
    targets = np.cos(rows[:, 0]) * rows[:, 2]
    targets = (targets - targets.mean()) / targets.std()
    gaussian = Gaussian(np.arange(3))

    def density() -> float:
        weights = np.exp(gaussian._logs)
        apart = np.square((rows[:, None] - rows) * weights).sum(-1)
        distance = np.sqrt(5 * apart)
        covariance = (1 + distance + distance**2 / 3) * np.exp(-distance)
        covariance += np.exp(gaussian._log_noise) * np.eye(len(rows))
        scale = targets @ np.linalg.solve(covariance, targets) / len(rows)
        _, volume = np.linalg.slogdet(covariance)
        return float(-(len(rows) * np.log(scale) + volume) / 2)

    before = density()
    gaussian.fit(rows, targets)
    assert density() > before + 5


def test_the_surrogate_prefers_what_is_like_the_fastest() -> None:
    configs = SPOKEN.sample(150, np.random.default_rng(5))
    surrogate = Surrogate(SPOKEN.parameters, history(configs))
    watched = SPOKEN.sample(300, np.random.default_rng(6), exclude=configs)
    surrogate.learn()
    surrogate.watch(watched)
    chosen = [landscape(config) for config in surrogate.leading(20)]
    assert np.mean(chosen) < 0.75 * np.mean([landscape(config) for config in watched])
    assert surrogate.leading(3, among=watched[:2]) != []
    assert set(surrogate.leading(3, among=watched[:2])) <= set(watched[:2])


def test_a_model_that_is_right_is_trusted_and_one_that_is_not_is_ignored() -> None:
    configs = REGION.sample(60, np.random.default_rng(5))
    noise = dict(zip(configs, np.random.default_rng(1).permutation(60) + 1.0, strict=True))
    models = {
        "right": landscape,
        "upside down": lambda config: 1e12 / landscape(config),
        "noise": noise.__getitem__,
        "silent": lambda config: None,
    }
    trust = {}
    for name, model in models.items():
        surrogate = Surrogate(REGION.parameters, history(configs), model)
        surrogate.learn()
        trust[name] = surrogate.trust
    assert trust["right"] == pytest.approx(1.0, abs=0.05)
    assert trust["upside down"] == trust["silent"] == 0.0
    assert trust["noise"] < 0.3


def test_a_failure_counts_as_slow() -> None:
    configs = SPOKEN.sample(120, np.random.default_rng(7))
    # Whatever has small tiles fails.
    times = [None if config["block_m"] == 32 else 1e5 for config in configs]
    surrogate = Surrogate(SPOKEN.parameters, history(configs, times))
    surrogate.learn()
    surrogate.watch(SPOKEN.sample(200, np.random.default_rng(8), exclude=configs))
    assert all(config["block_m"] != 32 for config in surrogate.leading(20))


def test_a_long_search_rests_on_the_best_and_the_latest() -> None:
    configs = REGION.sample(MOST_TRIALS + 200, np.random.default_rng(8))
    surrogate = Surrogate(KERNELS.parameters, history(configs))
    surrogate.learn()
    assert MOST_TRIALS // 2 < len(surrogate._rows) <= MOST_TRIALS
    assert min(configs, key=landscape) in surrogate._rows and configs[-1] in surrogate._rows


def test_a_pool_is_of_unseen_valid_points_around_the_fastest() -> None:
    configs = REGION.sample(40, np.random.default_rng(11))
    tried = history(configs)
    candidates = Candidates(REGION, tried, np.random.default_rng(0))
    assert REGION.size > SMALL and not candidates.is_all
    pool = candidates.pool(configs[:3])
    assert len(set(pool)) == len(pool) and not set(pool) & tried.seen
    assert REGION.valid(pool) == pool
    assert set(tried.unseen(REGION.neighbours(min(configs, key=landscape)))) <= set(pool)


@pytest.mark.parametrize("sampler", [name for name in SAMPLERS if name != "grid"])
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
