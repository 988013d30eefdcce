"""Which point to try next: starts, the model's favourites, then Optuna and local moves."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import Trial, TrialState, create_trial

from autotune.region import Region
from autotune.types import Config

_MIX = ("local", "tpe", "local", "tpe", "local", "tpe", "random")
"""Turns of the proposers. Local moves find the last tenth, the sampler other valleys."""
_LEADERS = 3
_ASKS = 4


class Strategy:
    """Proposes valid points that nobody has tried, and learns from what they gave.

    Optuna's study is rebuilt from the trials that the store holds, so that a search can stop and
    go on anywhere. A proposal of the sampler that is invalid or known is replaced by the nearest
    point, by number of differing parameters, that is neither.

    Args:
        initial: Points to try first, in this order.
        known: Points tried before, with their times in ns; None for a failure.
        barred: Further points that must never be proposed.
    """

    def __init__(
        self,
        region: Region,
        *,
        seed: int,
        initial: Sequence[Config],
        known: Sequence[tuple[Config, float | None]],
        barred: Sequence[Config] = (),
    ) -> None:
        self._region = region
        # A resumed search must not draw the same random points again.
        self._rng = np.random.default_rng([seed, len(known)])
        self._distributions: dict[str, BaseDistribution] = {
            parameter.name: CategoricalDistribution(parameter.values)
            for parameter in region.space.parameters
        }
        with _quiet():
            self._study = optuna.create_study(
                sampler=optuna.samplers.TPESampler(
                    seed=int(self._rng.integers(2**31)),
                    n_startup_trials=0,
                    multivariate=True,
                    constant_liar=True,
                )
            )
        self._times: dict[Config, float | None] = {}
        self._seen: set[Config] = set(barred)
        self._running: dict[Config, Trial] = {}
        for config, time_ns in known:
            self._seen.add(config)
            self._times[config] = time_ns
        for config, time_ns in self._times.items():
            self._study.add_trial(
                create_trial(
                    params=dict(config),
                    distributions=self._distributions,
                    value=self._value(time_ns),
                )
            )
        self._initial = [config for config in dict.fromkeys(initial) if config not in self._seen]
        self._turns = cycle(_MIX)
        self._proposers = {"local": self._local, "tpe": self._tpe, "random": self._random}

    def ask(self) -> Config | None:
        """The next point; None when every valid point has been tried."""
        if self._initial:
            config: Config | None = self._initial.pop(0)
        else:
            config = self._proposers[next(self._turns)]()
        if config is None:
            return None
        self._seen.add(config)
        if config not in self._running:
            self._study.enqueue_trial(dict(config))
            self._running[config] = self._study.ask(self._distributions)
        return config

    def tell(self, config: Config, time_ns: float | None) -> None:
        """What a point gave: its time, or None for a failure."""
        self._times[config] = time_ns
        self._study.tell(self._running.pop(config), self._value(time_ns))

    def drop(self, config: Config) -> None:
        """A point that was asked for and not tried."""
        self._study.tell(self._running.pop(config), state=TrialState.FAIL)

    def _value(self, time_ns: float | None) -> float:
        # A failure must look bad to the sampler, which forgets failed trials and proposes their
        # neighbourhood again: twice the worst time is bad and does not distort the scale.
        if time_ns is None:
            times = [time for time in self._times.values() if time is not None]
            return float(np.log(2 * max(times, default=1e9)))
        return float(np.log(time_ns))

    def _unseen(self, count: int) -> list[Config]:
        return self._region.sample(count, self._rng, exclude=self._seen)

    def _random(self) -> Config | None:
        found = self._unseen(1)
        return found[0] if found else None

    def _local(self) -> Config | None:
        """A one-parameter move from one of the leaders; two parameters where those are used up."""
        for leader in self._leaders():
            for changes in (1, 2):
                moves = [c for c in self._region.neighbours(leader, changes) if c not in self._seen]
                if moves:
                    return moves[int(self._rng.integers(len(moves)))]
        return self._random()

    def _leaders(self) -> list[Config]:
        """The best few, in a random order that prefers the best."""
        timed = [(time, config) for config, time in self._times.items() if time is not None]
        timed.sort(key=lambda pair: (pair[0], pair[1].json))
        best = [config for _, config in timed[:_LEADERS]]
        if len(best) > 1 and self._rng.random() < 0.4:
            self._rng.shuffle(best)
        return best

    def _tpe(self) -> Config | None:
        for _ in range(_ASKS):
            trial = self._study.ask(self._distributions)
            wanted = Config(trial.params)
            if wanted not in self._seen and self._region.valid([wanted]):
                self._running[wanted] = trial
                return wanted
            self._study.tell(trial, state=TrialState.FAIL)
        pool = self._unseen(200)
        for leader in self._leaders():
            pool += [c for c in self._region.neighbours(leader) if c not in self._seen]
        return min(pool, key=lambda config: _differences(config, wanted), default=None)


def _differences(config: Config, other: Config) -> int:
    return sum(config[name] != other[name] for name in config)


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna announces every study on stderr, and warns that `multivariate` is young."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)
