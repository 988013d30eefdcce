"""How the next point is chosen: Optuna samplers that propose valid points which nobody has seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from autotune.search.candidates import KEPT, LEADERS, Candidates
from autotune.search.history import History
from autotune.search.points import Points
from autotune.search.surrogate import Predicted, Surrogate
from autotune.space import settled
from autotune.types import Config

LEAST = 8
"""Trials before a surrogate is asked; until then points are drawn at random."""
CONTRAST = 4
"""Points drawn at random even where starts are enough: these are all good, and alike."""
BATCH = 8
"""Points that are chosen from a pool before it is changed."""
NEAREST, FARTHEST = 2, 16
"""Wide turns of `auto` between two among neighbours: at first, and at most."""
START_TURNS = 5
"""Turns of `auto` among the neighbours of starts, for each of those."""
_ASIDE = 0.4
"""How often a local move starts from another leader than the best."""
_TPE_DRAWS, _TPE_POOL = 4, 200
"""Draws of TPE until one is new and valid; after them, random points of which the nearest is
taken."""


class Sampler(BaseSampler):
    """A sampler over the valid points of a space.

    Args:
        history: What was proposed so far; the caller keeps it.
        starts: Points that are tried first; `auto` goes on around them.
        predicted: A model of the time; only surrogates use it.
    """

    def __init__(
        self,
        points: Points,
        history: History,
        rng: np.random.Generator,
        starts: Sequence[Config] = (),
        predicted: Predicted | None = None,
    ) -> None:
        self.points = points
        self.history = history
        self.rng = rng
        self.predicted = predicted
        self.candidates = Candidates(points, history, rng, starts)

    def choose(self, study: Study, trial: FrozenTrial) -> Config:
        """The next point; called only while there is one that nobody has seen."""
        return self.draw()

    def draw(self) -> Config:
        """Any point, each equally likely."""
        return self.points.sample(1, self.rng, exclude=self.history.seen)[0]

    def near(self) -> list[Config]:
        """Neighbours of the leaders."""
        return self.candidates.around(self.history.leaders(LEADERS))

    # *** Optuna's side ***

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return {
            parameter.name: optuna.distributions.CategoricalDistribution(parameter.values)
            for parameter in self.points.parameters
        }

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return dict(self.choose(study, trial))

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: Any
    ) -> Any:
        raise NotImplementedError(f"{param_name} is not a parameter of the space")


class Random(Sampler):
    """Any point, each equally likely."""


class Grid(Sampler):
    """Every point in the order of the space."""

    _next = 0

    def choose(self, study: Study, trial: FrozenTrial) -> Config:
        while True:
            (config,) = self.points.unrank([self._next])
            self._next += 1
            if config not in self.history.seen:
                return config


class Local(Sampler):
    """A one-parameter move from one of the leaders; two where those are used up."""

    def choose(self, study: Study, trial: FrozenTrial) -> Config:
        leaders = self.history.leaders(LEADERS)
        if len(leaders) > 1 and self.rng.random() < _ASIDE:
            leaders = [leaders[i] for i in self.rng.permutation(len(leaders))]
        for leader in leaders:
            for find in (self.candidates.neighbours, partial(self.points.neighbours, changes=2)):
                moves = self.history.unseen(find(leader))
                if moves:
                    return moves[self.rng.integers(len(moves))]
        return self.draw()


class Tpe(Sampler):
    """Optuna's TPE; a proposal that is invalid or known gives way to the nearest that is not, by
    number of differing parameters."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._tpe = optuna.samplers.TPESampler(
            seed=int(self.rng.integers(2**31)),
            n_startup_trials=0,
            multivariate=True,
            constant_liar=True,
        )

    def choose(self, study: Study, trial: FrozenTrial) -> Config:
        space = self.infer_relative_search_space(study, trial)
        for _ in range(_TPE_DRAWS):
            drawn = Config(self._tpe.sample_relative(study, trial, space))
            wanted = settled(drawn, self.points.parameters)
            if wanted not in self.history.seen and self.points.valid([wanted]):
                return wanted
        pool = self.points.sample(_TPE_POOL, self.rng, exclude=self.history.seen)
        pool += self.history.unseen(self.near())
        return min(pool, key=lambda config: sum(config[n] != wanted[n] for n in config))


class Gp(Sampler):
    """The point of most expected improvement by a Gaussian process."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.surrogate = Surrogate(self.points.parameters, self.history, self.predicted)
        self._asked = self._drawn = 0
        self._around: list[Config] = []

    def choose(self, study: Study, trial: FrozenTrial) -> Config:
        return self.improve() or self.draw()

    def improve(self, among: Callable[[], Sequence[Config]] | None = None) -> Config | None:
        """The unseen candidate of most expected improvement; None where there is none, or where
        too little is known to tell.

        Args:
            among: Gives the points to consider, in place of all candidates.
        """
        if len(self.history.times) < LEAST or self._drawn < CONTRAST:
            self._drawn += 1
            return None
        self.surrogate.learn()
        self._look()
        found = self.surrogate.leading(1, among() if among else None)
        return found[0] if found else None

    def _look(self) -> None:
        """Sees to it that there are candidates, around those that lead now."""
        leaders = self.history.leaders(LEADERS)
        self._asked += 1
        if self.candidates.is_all:
            if self._asked == 1:
                self.surrogate.watch(self.candidates.all())
        elif self._asked % BATCH == 1 or leaders[:1] != self._around[:1]:
            self._around = leaders
            self.surrogate.watch(self.candidates.pool(self.surrogate.leading(KEPT)))


class Auto(Gp):
    """Expected improvement over all candidates, in turns with some of the neighbours alone.

    Those of the fastest starts have every second turn, a few for each: what a sibling's best points
    lack is often a single move away, and it is not where the fastest of them lead. Those of the
    leaders find the last steps sooner, but only in one valley: each such turn that brings no
    improvement doubles the number of wide ones until the next, and an improvement sets it back.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._best_ns: float | None = None
        self._gap = self._wait = NEAREST
        self._turn = 0

    def choose(self, study: Study, trial: FrozenTrial) -> Config:
        self._turn += 1
        starts = self.candidates.starts()
        if self._turn % 2 and self._turn < 2 * START_TURNS * len(starts):
            found = self.improve(lambda: self.candidates.around(starts))
        else:
            found = self._near_leaders()
        return found or super().choose(study, trial)

    def _near_leaders(self) -> Config | None:
        """A point among the leaders' neighbours, where it is their turn."""
        best_ns = self.history.best_ns
        if best_ns != self._best_ns:
            self._best_ns = best_ns
            self._gap = self._wait = NEAREST
        if self._wait:
            self._wait -= 1
            return None
        self._gap = self._wait = min(2 * self._gap, FARTHEST)
        return self.improve(self.near)


SAMPLERS: dict[str, type[Sampler]] = {
    "auto": Auto,
    "gp": Gp,
    "tpe": Tpe,
    "local": Local,
    "random": Random,
    "grid": Grid,
}
"""Ways to choose, by name; benchmarks/replay.py compares them."""
