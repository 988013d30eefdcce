"""Which points a surrogate looks at: all of a small space, a changing pool of a large one.

Hardly any point of a large space is good, so a pool holds few that are drawn from all of it. The
rest lies around the fastest trials: their neighbours, pairs of moves, and mixtures of two of them.
What the surrogate liked most stays for the next pool.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.search.history import History
from autotune.search.points import Points
from autotune.search.variations import Variations
from autotune.types import Config

SMALL = 20_000
"""Points of a space up to which all of them are looked at."""
LEADERS = 4
"""Fastest trials whose neighbours are looked at."""
STARTS = 10
"""Fastest starts whose neighbours are looked at."""
PARENTS = 12
"""Fastest trials that are mixed."""
WIDE, PAIRS, MIXTURES, KEPT = 120, 160, 120, 240
"""Points of a pool that are drawn from all, that are pairs of moves from leaders or mixtures of
parents before those that are not valid are dropped, and that stay."""


class Candidates:
    """Unseen valid points of a space.

    Args:
        starts: Points that are tried first, and whose neighbours are looked at too.
    """

    def __init__(
        self,
        points: Points,
        history: History,
        rng: np.random.Generator,
        starts: Sequence[Config] = (),
    ) -> None:
        self._starts = frozenset(starts)
        self._points = points
        self._history = history
        self._rng = rng
        self._variations = Variations(points.parameters, rng)
        self._near: dict[Config, list[Config]] = {}

    @property
    def is_all(self) -> bool:
        """Whether no point is left out."""
        return self._points.size <= SMALL

    def all(self) -> list[Config]:
        """Every unseen valid point, of a small space."""
        return self._history.unseen(self._points.unrank(range(self._points.size)))

    def pool(self, kept: list[Config]) -> list[Config]:
        """Another pool.

        Args:
            kept: Points of the last one, best first.
        """
        leaders = self._history.leaders(LEADERS)
        fresh = [self._pair(leader) for leader in leaders for _ in range(PAIRS // LEADERS)]
        parents = self._history.leaders(PARENTS)
        if len(parents) > 1:
            fresh += [self._mixture(parents) for _ in range(MIXTURES)]
        fresh = self._history.unseen(fresh)
        return self._history.unseen(
            [
                *self.around(leaders),
                *self.around(self.starts()),
                *kept[:KEPT],
                *self._points.valid(fresh),
                *self._points.sample(WIDE, self._rng, exclude=self._history.seen),
            ]
        )

    def starts(self) -> list[Config]:
        """The fastest starts that have been timed."""
        return self._history.leaders(STARTS, self._starts)

    def around(self, configs: Sequence[Config]) -> list[Config]:
        """The neighbours of several points."""
        return [near for config in configs for near in self.neighbours(config)]

    def neighbours(self, config: Config) -> list[Config]:
        """The valid points one move away, seen or not."""
        if config not in self._near:
            self._near[config] = self._points.neighbours(config)
        return self._near[config]

    def _pair(self, leader: Config) -> Config:
        """Two moves from a leader: one that is valid alone, and any other.

        Many moves need another with them, so that two valid ones would not do.
        """
        near = self.neighbours(leader)
        first = near[self._rng.integers(len(near))] if near else leader
        return self._variations.moved(first)

    def _mixture(self, parents: list[Config]) -> Config:
        one, other = (parents[i] for i in self._rng.permutation(len(parents))[:2])
        return self._variations.mixed(one, other)
