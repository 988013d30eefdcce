"""A Gaussian process over rows of numbers, made to be asked after every single trial.

Its covariance is a Matern function of smoothness 5/2 with one weight a parameter. Weights and noise
are the most probable ones under a prior by which a parameter matters moderately, the less the more
of them there are: without that, a few trials in many dimensions explain anything.

A trial that is added extends the triangular factor by a row, and so what is known of the watched
rows: that costs one pass over them, where starting anew costs as many as there are trials.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.search.features import Floats

Singles = NDArray[np.float32]

_WEIGHT = 1.16
"""Prior median of a weight is this over the root of the number of parameters: a third for ten."""
_WEIGHT_SPREAD = 0.7
"""Of the weight's logarithm."""
_WEIGHT_RANGE = (-6.0, 1.5)
_NOISE, _NOISE_SPREAD = 0.01, 1.5
"""Prior median of the noise as a share of the variance, and the spread of its logarithm."""
_NOISE_RANGE = (1e-4, 0.3)
_FIRST_STEPS, _STEPS = 25, 10
"""Steps towards better weights: of the first fit, and of later ones, which go on from there."""
_STEP, _LONGEST_STEP = 0.15, 0.5
_LEAST_VARIANCE = 1e-6


class Gaussian:
    """Mean and spread of standardised targets at watched rows.

    Args:
        owner: For each column of a row the number of the parameter that it is of.
    """

    def __init__(self, owner: NDArray[np.int64]) -> None:
        self._owner = owner
        count = int(owner.max(initial=-1)) + 1
        self._prior = np.log(_WEIGHT / np.sqrt(max(count, 1)))
        self._logs = np.full(count, self._prior)
        self._log_noise = float(np.log(_NOISE))
        self._is_fitted = False
        self._rows: Floats = np.zeros((0, len(owner)))
        self._watched: Singles = np.zeros((0, len(owner)), np.float32)
        self._factor: Floats = np.zeros((0, 0))
        # From the trials to the watched rows: solved triangular system, and variance left.
        self._reach: Singles = np.zeros((0, 0), np.float32)
        self._variance: Singles = np.zeros(0, np.float32)

    def __len__(self) -> int:
        """Number of trials."""
        return len(self._rows)

    def fit(self, rows: Floats, targets: Floats) -> None:
        """Begins anew with these trials, and improves the weights for them."""
        self._rows = rows
        self._improve(targets)
        self._restart()

    def watch(self, rows: Floats) -> None:
        """Rows whose means and spreads are wanted."""
        self._watched = rows.astype(np.float32)
        self._restart()

    def add(self, row: Floats) -> None:
        """Another trial, with the weights as they are."""
        count = len(self._rows)
        size = count + 1
        near = np.linalg.solve(self._factor, self._covariance(self._rows, row[None])[:, 0])
        pivot = np.sqrt(max(1 + np.exp(self._log_noise) - near @ near, _LEAST_VARIANCE))
        factor = np.zeros((size, size))
        factor[:count, :count] = self._factor
        factor[count, :count] = near
        factor[count, count] = pivot
        self._factor = factor
        self._rows = np.vstack([self._rows, row])
        if size > len(self._reach):
            spare = np.zeros((size // 2, len(self._watched)), np.float32)
            self._reach = np.vstack([self._reach, spare])
        reach = self._covariance(row[None], self._watched)[0]
        reach -= near.astype(np.float32) @ self._reach[:count]
        self._reach[count] = reach / pivot
        self._variance -= self._reach[count] ** 2

    def at_watched(self, targets: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation at each watched row, given the trials' targets."""
        half = np.linalg.solve(self._factor, targets)
        scale = max(half @ half / len(half), _LEAST_VARIANCE)
        mean = half.astype(np.float32) @ self._reach[: len(half)]
        spread = np.sqrt(scale * np.maximum(self._variance, _LEAST_VARIANCE))
        return mean.astype(np.float64), spread.astype(np.float64)

    def at(self, row: Floats, targets: Floats) -> float:
        """Mean at a row that need not be watched."""
        weights = np.linalg.solve(self._factor.T, np.linalg.solve(self._factor, targets))
        return float(self._covariance(row[None], self._rows)[0] @ weights)

    def _restart(self) -> None:
        """Factorises the covariance of all trials, and reaches from there to the watched rows."""
        count = len(self._rows)
        covariance = self._covariance(self._rows, self._rows)
        covariance[np.diag_indices(count)] += np.exp(self._log_noise)
        self._factor = np.linalg.cholesky(covariance)
        inverse = np.linalg.inv(self._factor).astype(np.float32)
        self._reach = np.zeros((count + 32, len(self._watched)), np.float32)
        self._reach[:count] = inverse @ self._covariance(self._rows, self._watched)
        self._variance = 1 - np.square(self._reach[:count]).sum(axis=0)

    def _covariance(self, rows: NDArray[Any], others: NDArray[Any]) -> NDArray[Any]:
        weights = np.exp(self._logs)[self._owner].astype(others.dtype)
        left, right = rows.astype(others.dtype) * weights, others * weights
        squared = np.square(left).sum(1)[:, None] + np.square(right).sum(1) - 2 * left @ right.T
        return _matern(squared)[0]

    def _improve(self, targets: Floats) -> None:
        """Climbs to weights and noise of higher posterior density, by the signs of the gradient.

        Each has a step of its own that grows while its sign stays (resilient propagation): no
        line search, and no scale to choose. The scale of the targets is always the best one.
        """
        count = len(self._rows)
        apart = np.zeros((len(self._logs), count * count))
        for column, owner in zip(self._rows.T, self._owner, strict=True):
            apart[owner] += np.square(column[:, None] - column).ravel()
        steps = np.full(len(self._logs) + 1, _STEP)
        before = np.zeros_like(steps)
        for _ in range(_STEPS if self._is_fitted else _FIRST_STEPS):
            weights, noise = np.exp(2 * self._logs), np.exp(self._log_noise)
            covariance, slope = _matern((weights @ apart).reshape(count, count))
            inverse = np.linalg.inv(covariance + noise * np.eye(count))
            solved = inverse @ targets
            blame = inverse - np.outer(solved, solved) * (
                count / max(float(targets @ solved), 1e-12)
            )
            uphill = np.append(
                weights * (apart @ (blame * slope).ravel())
                + (self._logs - self._prior) / _WEIGHT_SPREAD**2,
                noise * np.trace(blame) / 2 + (self._log_noise - np.log(_NOISE)) / _NOISE_SPREAD**2,
            )
            turned = uphill * before
            steps *= np.where(turned > 0, 1.3, np.where(turned < 0, 0.5, 1.0))
            steps = np.minimum(steps, _LONGEST_STEP)
            before = np.where(turned < 0, 0.0, uphill)
            moved = np.sign(before) * steps
            self._logs = np.clip(self._logs - moved[:-1], *_WEIGHT_RANGE)
            self._log_noise = float(np.clip(self._log_noise - moved[-1], *np.log(_NOISE_RANGE)))
        self._is_fitted = True


def _matern(squared: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Matern function of smoothness 5/2 of a squared distance, and its derivative."""
    distance = np.sqrt(5 * np.maximum(squared, 0))
    decay = np.exp(-distance)
    return (1 + distance + distance * distance / 3) * decay, -5 / 6 * (1 + distance) * decay
