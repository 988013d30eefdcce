"""Which point to try next: starts, the model's favourites, then what a sampler makes of both."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Protocol

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import Trial, TrialState, create_trial

from autotune.errors import UsageError
from autotune.search.surrogate import Surrogate
from autotune.space import Parameter, settled
from autotune.types import Config

MIX = ("local", "tpe", "local", "tpe", "local", "tpe", "random")
"""Turns of `auto`. Local moves find the last tenth, the sampler other valleys."""
BATCH = 4
"""Points that the surrogate chooses at a time."""
LEADERS = 4
"""Best trials whose surroundings are looked at."""
POOL = 1500
"""Random points among which the surrogate chooses."""
FAR = 150
"""Points two moves from each leader that it looks at as well."""
LEAST = 16
"""Trials before the surrogate is asked; until then points are drawn at random."""
_ASKS = 4
_ASIDE = 0.4
"""How often a local move starts from another leader than the best."""


class Points(Protocol):
    """The valid points of a space, however they are known; `autotune.region.Region` is one."""

    @property
    def parameters(self) -> Sequence[Parameter]:
        """The dimensions."""

    @property
    def size(self) -> int:
        """Number of valid points."""

    def sample(
        self, count: int, rng: np.random.Generator, exclude: Collection[Config] = ()
    ) -> list[Config]:
        """Different valid points, each equally likely; fewer where there are no more."""

    def neighbours(self, config: Config, changes: int = 1) -> list[Config]:
        """The valid points that differ in exactly so many parameters, 1 or 2."""

    def valid(self, configs: Sequence[Config]) -> list[Config]:
        """Those that are valid."""


class Strategy:
    """Proposes valid points that nobody has tried, and learns from what they gave.

    Trials are those of an Optuna study, asked and told one by one; the study is rebuilt from what
    the store holds, so that a search can stop and go on anywhere.

    Args:
        sampler: One of `SAMPLERS`.
        initial: Points to try first, in this order.
        known: Points tried before, with their times in ns; None for a failure.
        barred: Further points that must never be proposed.

    Raises:
        UsageError: an unknown sampler.
    """

    def __init__(
        self,
        points: Points,
        *,
        seed: int,
        sampler: str = "auto",
        initial: Sequence[Config] = (),
        known: Sequence[tuple[Config, float | None]] = (),
        barred: Sequence[Config] = (),
    ) -> None:
        if sampler not in SAMPLERS:
            raise UsageError(f"{sampler!r} is not a sampler; possible are {', '.join(SAMPLERS)}")
        self._points = points
        # A resumed search must not draw the same random points again.
        self._rng = np.random.default_rng([seed, len(known)])
        self._choose = SAMPLERS[sampler]
        self._turns = cycle(MIX)
        self._surrogate = Surrogate(points.parameters)
        self._distributions: dict[str, BaseDistribution] = {
            parameter.name: CategoricalDistribution(parameter.values)
            for parameter in points.parameters
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
        self._times: dict[Config, float | None] = dict(known)
        self._seen: set[Config] = {*barred, *self._times}
        self._running: dict[Config, Trial] = {}
        for config, time_ns in self._times.items():
            self._study.add_trial(
                create_trial(
                    params=dict(config),
                    distributions=self._distributions,
                    value=self._value(time_ns),
                )
            )
        self._queue = deque(c for c in dict.fromkeys(initial) if c not in self._seen)

    def ask(self) -> Config | None:
        """The next point; None when every valid point has been tried."""
        if not self._queue:
            self._queue.extend(self._choose(self) or self._draw(BATCH))
        while self._queue:
            config = self._queue.popleft()
            if config in self._seen:
                continue
            self._seen.add(config)
            if config not in self._running:
                self._study.enqueue_trial(dict(config))
                self._running[config] = self._study.ask(self._distributions)
            return config
        return None

    def tell(self, config: Config, time_ns: float | None) -> None:
        """What a point gave: its time, or None for a failure."""
        self._times[config] = time_ns
        self._study.tell(self._running.pop(config), self._value(time_ns))

    def _value(self, time_ns: float | None) -> float:
        # A failure must look bad to the sampler, which forgets failed trials and proposes their
        # neighbourhood again: twice the worst time is bad and does not distort the scale.
        if time_ns is None:
            times = [time for time in self._times.values() if time is not None]
            return float(np.log(2 * max(times, default=1e9)))
        return float(np.log(time_ns))

    # *** where points come from ***

    def _draw(self, count: int) -> list[Config]:
        return self._points.sample(count, self._rng, exclude=self._seen)

    def _leaders(self) -> list[Config]:
        """The best few, best first."""
        timed = [(time, config.json, config) for config, time in self._times.items() if time]
        return [config for _, _, config in sorted(timed)[:LEADERS]]

    def _near(self, changes: int = 1) -> list[Config]:
        """Untried points around the leaders."""
        found = (c for leader in self._leaders() for c in self._points.neighbours(leader, changes))
        return [config for config in dict.fromkeys(found) if config not in self._seen]

    def _shuffled(self, configs: list[Config], count: int) -> list[Config]:
        return [configs[i] for i in self._rng.permutation(len(configs))[:count]]

    # *** samplers: each gives the next few points ***

    def _auto(self) -> list[Config]:
        return SAMPLERS[next(self._turns)](self)

    def _gp(self) -> list[Config]:
        """Half by expected improvement over a wide pool, half the best mean next to a leader.

        The first finds other valleys, the second the last steps of this one.
        """
        if len(self._times) < LEAST:
            return self._draw(1)
        self._surrogate.fit(list(self._times.items()))
        near = self._near()
        pool = [*near, *self._shuffled(self._near(2), FAR * LEADERS), *self._draw(POOL)]
        pool = list(dict.fromkeys(pool))
        if not pool:
            return []
        order = np.argsort(-self._surrogate.improvement(pool), kind="stable")
        chosen = [pool[index] for index in order[: BATCH - BATCH // 2]]
        rest = [config for config in near if config not in chosen]
        if rest:
            mean, _ = self._surrogate.predict(rest)
            chosen += [rest[index] for index in np.argsort(mean, kind="stable")[: BATCH // 2]]
        return chosen

    def _tpe(self) -> list[Config]:
        """Optuna's TPE; a proposal that is invalid or known gives way to the nearest that is not,
        by number of differing parameters."""
        for _ in range(_ASKS):
            trial = self._study.ask(self._distributions)
            drawn = Config(trial.params)
            wanted = settled(drawn, self._points.parameters)
            is_new = wanted not in self._seen and bool(self._points.valid([wanted]))
            if is_new and wanted == drawn:
                self._running[wanted] = trial
            else:
                self._study.tell(trial, state=TrialState.FAIL)
            if is_new:
                return [wanted]
        pool = [*self._draw(200), *self._near()]
        return [min(pool, key=lambda config: _differences(config, wanted))] if pool else []

    def _local(self) -> list[Config]:
        """A one-parameter move from one of the leaders; two where those are used up."""
        leaders = self._leaders()
        if len(leaders) > 1 and self._rng.random() < _ASIDE:
            leaders = self._shuffled(leaders, len(leaders))
        for leader in leaders:
            for changes in (1, 2):
                moves = self._points.neighbours(leader, changes)
                fresh = [config for config in moves if config not in self._seen]
                if fresh:
                    return self._shuffled(fresh, 1)
        return self._draw(1)

    def _random(self) -> list[Config]:
        return self._draw(1)


SAMPLERS: dict[str, Callable[[Strategy], list[Config]]] = {
    "auto": Strategy._auto,
    "gp": Strategy._gp,
    "tpe": Strategy._tpe,
    "local": Strategy._local,
    "random": Strategy._random,
}
"""Ways to choose, by name; benchmarks/replay.py compares them."""


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
