"""How long a compile may take, judged by those that came to an end."""

from __future__ import annotations

import bisect

FIRST_S = 60.0
"""Until enough is known."""
LEAST_S = 5.0
ENOUGH = 20
QUANTILE = 0.9
FACTOR = 10.0
"""A compile may take this many times what nine in ten take: only a compiler that hangs, or a kernel
that would take minutes, is given up."""


class Patience:
    """Shared by all problems of a batch, since kernels of one family compile alike."""

    def __init__(self) -> None:
        self._seconds: list[float] = []

    def saw(self, seconds: float) -> None:
        """A compile took so long; at its time, where the binary comes from the cache."""
        bisect.insort(self._seconds, seconds)

    @property
    def limit_s(self) -> float:
        """For the next compile: between `LEAST_S` and `FIRST_S`."""
        if len(self._seconds) < ENOUGH:
            return FIRST_S
        usual_s = self._seconds[int(QUANTILE * len(self._seconds))]
        return min(FIRST_S, max(LEAST_S, FACTOR * usual_s))
