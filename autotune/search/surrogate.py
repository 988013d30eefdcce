"""What the trials so far, and the model, say of points that nobody has tried.

Times enter as logarithms, cut off well above the best: how slow a slow kernel is says little about
fast ones. A trial that has not ended counts with what was expected of it, so that points which are
asked for together differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from autotune.search.features import Features, Floats
from autotune.search.gaussian import Gaussian
from autotune.search.history import History
from autotune.space import Parameter
from autotune.types import Config

Predicted = Callable[[Config], float | None]
"""A model's time of a point in ns: infinity for what cannot run, None for what it does not know."""

MOST_TRIALS = 400
"""Trials that a fit rests on: its cost grows with their cube."""
WORST = 1.2
"""Log times beyond the best from which on a trial is just slow."""
_LEAST_REFIT, _REFIT_SHARE = 8, 8
"""New trials after which weights are chosen again: so many, or this part of all."""
_MOST_PREDICTIONS = 100_000
"""Of the model, that are remembered."""
_LEAST_SCALE = 1e-3
"""What a model leaves unexplained at least: no time is measured better."""


class Surrogate:
    """Expected improvement of watched points over the best trial.

    Args:
        predicted: A model. Its log time, times the factor that fits the trials best, is what is
            expected where there are no trials.
    """

    def __init__(
        self, parameters: Sequence[Parameter], history: History, predicted: Predicted | None = None
    ) -> None:
        self._history = history
        self._features = Features(parameters)
        self._predicted = predicted
        self._predictions: dict[Config, float] = {}
        self._gaussian = Gaussian(self._features.owner)
        self._rows: dict[Config, Floats] = {}
        self._models: Floats = np.zeros(0)
        self._least = 0.0
        self._believed: dict[Config, float] = {}
        self._read = 0
        self._fitted_at = 0
        self._trust = 0.0
        self._watched: list[Config] = []
        self._watched_models: Floats = np.zeros(0)
        self._places: dict[Config, int] = {}
        self._is_open = np.zeros(0, dtype=bool)

    @property
    def trust(self) -> float:
        """The factor of the model's log time: 0 where it tells nothing, 1 where it is right."""
        return self._trust

    def learn(self) -> None:
        """Takes up what the history has got since the last time; call before asking."""
        history, ended = self._history, len(self._history.times)
        fresh = history.begun[self._read :]
        self._read = len(history.begun)
        self._is_open[[self._places[config] for config in fresh if config in self._places]] = False
        if not self._rows or ended - self._fitted_at >= max(_LEAST_REFIT, ended // _REFIT_SHARE):
            self._fit()
            return
        for config, row in zip(fresh, self._features.rows(fresh), strict=True):
            model = self._model([config])
            if config in history.running:
                mean, scale, residuals = self._standardised()
                expected = mean + scale * self._gaussian.at(row, residuals)
                expected += self._trust * float(self._beyond(model)[0])
                self._believed[config] = self._best + expected
            self._rows[config] = row
            self._models = np.append(self._models, model)
            self._gaussian.add(row)

    def watch(self, configs: Sequence[Config]) -> None:
        """Points that may be asked for next: valid ones that nobody has seen."""
        self._watched = list(configs)
        self._watched_models = self._model(self._watched)
        self._places = {config: place for place, config in enumerate(self._watched)}
        self._is_open = np.ones(len(self._watched), dtype=bool)
        self._gaussian.watch(self._features.rows(self._watched))

    def leading(self, count: int, among: Iterable[Config] | None = None) -> list[Config]:
        """Watched points of most expected improvement that nobody has seen, best first.

        Args:
            among: Only these, as far as they are watched.
        """
        places = np.flatnonzero(self._is_open)
        if among is not None:
            wanted = [self._places[config] for config in among if config in self._places]
            places = np.intersect1d(wanted, places).astype(np.int64)
        if not len(places):
            return []
        improvement = self._improvement()[places]
        if count == 1:
            return [self._watched[int(places[np.argmax(improvement)])]]
        order = np.argsort(-improvement, kind="stable")[:count]
        return [self._watched[place] for place in places[order]]

    def _improvement(self) -> Floats:
        mean, scale, residuals = self._standardised()
        means, spreads = self._gaussian.at_watched(residuals)
        means = mean + scale * means + self._trust * self._beyond(self._watched_models)
        spreads = scale * spreads
        z = -means / spreads
        density = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
        improvement: Floats = spreads * (z * _normal_below(z) + density)
        return improvement

    # *** trials ***

    def _fit(self) -> None:
        history, times = self._history, self._history.times
        kept = list(times)
        if len(kept) > MOST_TRIALS:
            # The fastest, and of the others the latest.
            fastest = history.leaders(MOST_TRIALS // 2)
            kept = list(dict.fromkeys([*fastest, *kept[-MOST_TRIALS // 2 :]]))
        configs = [*kept, *history.running]
        self._rows = dict(zip(configs, self._features.rows(configs), strict=True))
        self._models = self._model(configs)
        self._least = float(self._models.min())
        self._fitted_at = len(times)
        # What was asked for before the first fit is expected to be like the others.
        usual = float(self._logs(times).mean()) + self._best if times else 0.0
        self._believed = {c: self._believed.get(c, usual) for c in history.running}
        self._trust = _slope(self._beyond(self._models), self._logs(self._rows))
        _, _, residuals = self._standardised()
        self._gaussian.fit(np.array(list(self._rows.values())), residuals)

    @property
    def _best(self) -> float:
        """Log time of the fastest trial."""
        return math.log(self._history.best_ns or 1.0)

    def _logs(self, configs: Iterable[Config]) -> Floats:
        """Log times beyond the best: measured or believed, of failures the worst."""
        best, times, logs = self._best, self._history.times, []
        for config in configs:
            if config not in times:
                logs.append(self._believed[config] - best)
            else:
                time_ns = times[config]
                logs.append(WORST if time_ns is None else math.log(time_ns) - best)
        return np.minimum(logs, WORST)

    def _standardised(self) -> tuple[float, float, Floats]:
        """Mean and scale of what the model leaves unexplained, and that in terms of them."""
        residuals = self._logs(self._rows) - self._trust * self._beyond(self._models)
        mean, scale = float(residuals.mean()), max(float(residuals.std()), _LEAST_SCALE)
        return mean, scale, (residuals - mean) / scale

    # *** the model ***

    def _model(self, configs: Sequence[Config]) -> Floats:
        """Log times by the model; 0 where there is none."""
        if self._predicted is None:
            return np.zeros(len(configs))
        # Most are asked for again and again; a search may be long, though.
        if len(self._predictions) > _MOST_PREDICTIONS:
            self._predictions.clear()
        known = self._predictions
        for config in configs:
            if config not in known:
                time_ns = self._predicted(config)
                known[config] = 0.0 if time_ns is None else math.log(time_ns)
        return np.array([known[config] for config in configs])

    def _beyond(self, models: Floats) -> Floats:
        """The model's log times beyond that of its favourite among the trials, cut off as well."""
        return np.minimum(models - self._least, WORST)


def _slope(models: Floats, logs: Floats) -> float:
    """The factor of the model that leaves least of the log times, from 0 to 1."""
    centred = models - models.mean()
    return float(np.clip(centred @ logs / max(centred @ centred, 1e-9), 0.0, 1.0))


def _normal_below(z: Floats) -> Floats:
    """Standard normal distribution function; Abramowitz and Stegun 26.2.17, to 1e-7."""
    t = 1 / (1 + 0.2316419 * np.abs(z))
    powers = np.polynomial.polynomial.polyval(
        t, [0.0, 0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429]
    )
    tail = np.exp(-z * z / 2) / np.sqrt(2 * np.pi) * powers
    below: Floats = np.where(z > 0, 1 - tail, tail)
    return below
