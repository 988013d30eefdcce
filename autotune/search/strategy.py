"""Which point to try next: starts first, then what a sampler chooses."""

from __future__ import annotations

import logging
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import Trial, create_trial

from autotune.errors import UsageError
from autotune.search.history import History
from autotune.search.points import Points
from autotune.search.samplers import SAMPLERS
from autotune.search.surrogate import Predicted
from autotune.types import Config

GRID_LIMIT = 100_000
"""Points beyond which no search finishes a grid."""

_log = logging.getLogger("autotune")


class Strategy:
    """Proposes valid points that nobody has tried, and learns from what they gave.

    Trials are those of an Optuna study, asked and told one by one; the study is rebuilt from what
    the store holds, so that a search can stop and go on anywhere.

    Args:
        sampler: One of `SAMPLERS`.
        initial: Points to try first, in this order.
        known: Points tried before, with their times in ns; None for a failure.
        barred: Further points that must never be proposed.
        predicted: A model's time of a valid point in ns, infinity for one that cannot run, None
            where the model does not know. `auto` and `gp` trust it as far as trials bear it out.

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
        predicted: Predicted | None = None,
    ) -> None:
        if sampler not in SAMPLERS:
            raise UsageError(f"{sampler!r} is not a sampler; possible are {', '.join(SAMPLERS)}")
        self._points = points
        # A resumed search must not draw the same random points again.
        self._rng = np.random.default_rng([seed, len(known)])
        self._history = History(known, barred)
        if sampler == "grid" and points.size > GRID_LIMIT:
            _log.warning(
                "a grid of %d points will not be finished: it tries them in the order of the "
                "space; --sampler auto finds good ones sooner",
                points.size,
            )
        with _quiet():
            self._study = optuna.create_study(
                sampler=SAMPLERS[sampler](points, self._history, self._rng, initial, predicted)
            )
        self._distributions: dict[str, BaseDistribution] = {
            parameter.name: optuna.distributions.CategoricalDistribution(parameter.values)
            for parameter in points.parameters
        }
        for config, time_ns in known:
            self._study.add_trial(
                create_trial(
                    params=dict(config),
                    distributions=self._distributions,
                    value=self._value(time_ns),
                )
            )
        self._running: dict[Config, Trial] = {}
        self._queue = deque(self._history.unseen(initial))

    def ask(self) -> Config | None:
        """The next point; None when every valid point has been tried."""
        if self._queue:
            self._study.enqueue_trial(dict(self._queue.popleft()))
        elif self._is_exhausted():
            return None
        trial = self._study.ask(self._distributions)
        config = Config(trial.params)
        self._history.begin(config)
        self._running[config] = trial
        return config

    def tell(self, config: Config, time_ns: float | None) -> None:
        """What a point gave: its time, or None for a failure."""
        self._history.end(config, time_ns)
        self._study.tell(self._running.pop(config), self._value(time_ns))

    def _is_exhausted(self) -> bool:
        # Seen points need not be valid ones, so counting them decides one way only.
        if self._points.size > len(self._history.seen):
            return False
        return not self._points.sample(1, self._rng, exclude=self._history.seen)

    def _value(self, time_ns: float | None) -> float:
        # A failure must look bad to the sampler, which forgets failed trials and proposes their
        # neighbourhood again: twice the worst time is bad and does not distort the scale.
        if time_ns is None:
            times = [time for time in self._history.times.values() if time is not None]
            return float(np.log(2 * max(times, default=1e9)))
        return float(np.log(time_ns))


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
