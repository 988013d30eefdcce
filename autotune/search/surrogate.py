"""What the trials so far say of points that nobody has tried: a Gaussian process over a space.

Kernels of one family depend on sizes through their ratios (a block's rows over a thread's rows are
its threads, and so on), so the features of a point are the logarithms of its numbers and all their
differences; texts count as equal or not. Times enter as logarithms, cut off well above the best:
how slow a slow kernel is says little about fast ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.space import Parameter
from autotune.types import Config

Floats = NDArray[np.float64]

MOST_TRIALS = 400
"""Trials that a fit rests on: its cost grows with their cube."""
_WORST = 1.2
"""Log times beyond the best from which on a trial is just slow."""
_SCALES = tuple(itertools.product((0.1, 0.2, 0.4, 0.7), (0.0, 0.07, 0.15, 0.3), (1e-3, 3e-2)))
"""Inverse length scales of single features and of differences, and noise, tried at a fit."""
_REFIT = 12
"""New trials after which the scales are chosen again."""


class Features:
    """Turns configs of a space into rows of numbers.

    Attributes:
        singles: Columns of single features; the rest are differences.
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        varied = [p for p in parameters if len(p.values) > 1]
        self._numbers = [p for p in varied if isinstance(p.values[0], int)]
        self._texts = [p for p in varied if isinstance(p.values[0], str)]
        # Zero is a value of flags and paddings; only sizes and counts form ratios.
        sizes = [i for i, p in enumerate(self._numbers) if all(value != 0 for value in p.values)]
        pairs = np.array(list(itertools.combinations(sizes, 2)), dtype=int).reshape(-1, 2)
        self._left, self._right = pairs[:, 0], pairs[:, 1]
        self.singles = len(self._numbers) + sum(len(p.values) for p in self._texts)

    def rows(self, configs: Sequence[Config]) -> Floats:
        """A row for each config."""
        numbers = np.array(
            [[config[p.name] for p in self._numbers] for config in configs], dtype=np.float64
        ).reshape(len(configs), len(self._numbers))
        # Zero stands one step below one.
        logs = np.log2(np.maximum(numbers, 0.5))
        texts = [
            np.array([[config[p.name] == value for value in p.values] for config in configs])
            for p in self._texts
        ]
        return np.hstack([logs, *texts, logs[:, self._left] - logs[:, self._right]])


class Surrogate:
    """Mean and spread of the log time of any config, relative to the trials it was fitted to."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self._features = Features(parameters)
        self._rows: dict[Config, Floats] = {}
        self._scales = _SCALES[0]
        self._chosen_at = -_REFIT

    def fit(self, times: Sequence[tuple[Config, float | None]]) -> None:
        """Learns from trials: configs with their times in ns, None for a failure.

        Of many trials the fastest count, and of the others the latest.
        """
        timed = sorted(((t, i) for i, (_, t) in enumerate(times) if t is not None))
        kept = {index for _, index in timed[: MOST_TRIALS // 2]}
        kept |= set(range(max(0, len(times) - MOST_TRIALS // 2), len(times)))
        chosen = [times[index] for index in sorted(kept)]
        best = np.log(min((time for _, time in chosen if time is not None), default=1.0))
        # A failure is as bad as the slowest that still matters.
        logs = np.array(
            [_WORST if time is None else min(np.log(time) - best, _WORST) for _, time in chosen]
        )
        self._targets = (logs - logs.mean()) / (logs.std() + 1e-9)
        self._base = self._cached([config for config, _ in chosen])
        if len(times) - self._chosen_at >= _REFIT:
            self._chosen_at = len(times)
            self._scales = max(_SCALES, key=lambda scales: self._solve(scales))
        self._solve(self._scales)

    def improvement(self, configs: Sequence[Config]) -> Floats:
        """Expected improvement of each config over the best trial."""
        mean, spread = self.predict(configs)
        z = (self._targets.min() - mean) / spread
        density = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
        improvement: Floats = spread * (z * _normal_below(z) + density)
        return improvement

    def predict(self, configs: Sequence[Config]) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the standardised log time."""
        rows = self._weighted(self._features.rows(configs))
        cross = _matern(rows, self._points)
        mean = cross @ self._weights
        variance = 1.0 - np.square(np.linalg.solve(self._factor, cross.T)).sum(axis=0)
        return mean, np.sqrt(np.maximum(variance, 1e-9))

    def _cached(self, configs: Sequence[Config]) -> Floats:
        fresh = [config for config in configs if config not in self._rows]
        if fresh:
            self._rows.update(zip(fresh, self._features.rows(fresh), strict=True))
        return np.array([self._rows[config] for config in configs])

    def _weighted(self, rows: Floats) -> Floats:
        single, difference, _ = self._scales
        weights = np.full(rows.shape[1], difference)
        weights[: self._features.singles] = single
        weighted: Floats = rows * weights
        return weighted

    def _solve(self, scales: tuple[float, float, float]) -> float:
        """Factorises the covariance; the log likelihood of the targets."""
        self._scales = scales
        self._points = self._weighted(self._base)
        covariance = _matern(self._points, self._points)
        covariance[np.diag_indices_from(covariance)] += scales[2]
        self._factor = np.linalg.cholesky(covariance)
        half = np.linalg.solve(self._factor, self._targets)
        self._weights = np.linalg.solve(self._factor.T, half)
        return float(-0.5 * half @ half - np.log(np.diag(self._factor)).sum())


def _matern(a: Floats, b: Floats) -> Floats:
    """Matern covariance of smoothness 5/2 at unit length scale."""
    squared = np.square(a).sum(1)[:, None] + np.square(b).sum(1)[None] - 2 * a @ b.T
    distance = np.sqrt(5 * np.maximum(squared, 0.0))
    covariance: Floats = (1 + distance + distance * distance / 3) * np.exp(-distance)
    return covariance


def _normal_below(z: Floats) -> Floats:
    """Standard normal distribution function; Abramowitz and Stegun 26.2.17, to 1e-7."""
    t = 1 / (1 + 0.2316419 * np.abs(z))
    powers = np.polynomial.polynomial.polyval(
        t, [0.0, 0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429]
    )
    tail = np.exp(-z * z / 2) / np.sqrt(2 * np.pi) * powers
    below: Floats = np.where(z > 0, 1 - tail, tail)
    return below
