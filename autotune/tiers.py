"""Orders what the store knows for a question: by tier, evidence, age of the template, distance."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from autotune import archs, storefile
from autotune.reader import Reader, Row
from autotune.types import Evidence, Match, Problem

MAX_DISTANCE = 3.5
"""Farthest problem whose config is still tried; every size four times larger is at 3.46."""

TRIES = 8
"""How many of the nearest configs are checked before a tier is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of a store.

    Attributes:
        model: Architecture, SMs and bytes of memory; None for every model of the architecture.
        template_sha256: Rows of other templates are stale; None when no row is.
    """

    problem: Problem
    arch: int
    model: tuple[int, int, int] | None
    template_sha256: str | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A stored row, and how it relates to the question."""

    row: Row
    tier: Match
    distance: float
    device_distance: float
    stale: bool

    @property
    def is_measured(self) -> bool:
        """Whether a time is behind it, not a prediction."""
        return bool(self.row["evidence"] == Evidence.measured)

    @property
    def rank(self) -> tuple[Any, ...]:
        """Smaller is better; no two rows of a store share one."""
        tiers = list(Match)
        return (
            self.stale,
            not self.is_measured,
            tiers.index(self.tier),
            self.distance,
            self.device_distance,
            # The same answer in every process: by row, where nothing else decides.
            0.0 if self.is_measured else self.row["time_ns"],
            self.row["best_id"] or 0,
            self.row["measurement_id"],
        )


def candidates(question: Question, reader: Reader) -> Iterator[Candidate]:
    """Every row that may answer, best first."""
    asked = question.problem.key, question.arch
    rows = [*reader.bests(*asked), *reader.predictions(*asked)]
    same = [_candidate(question, row, 0.0) for row in rows]
    certain = [c for c in same if c.tier is Match.exact and not c.stale and c.is_measured]
    yield from sorted(certain, key=lambda c: c.rank)
    # Walking to other shapes costs more than all the rest; most calls end above.
    rest = [c for c in same if c not in certain] + list(_near(question, reader))
    yield from sorted(rest, key=lambda c: c.rank)


def _candidate(question: Question, row: Row, distance: float) -> Candidate:
    device_distance = 0.0
    here = True
    model = (row["arch"], row["sm_count"], row["memory_bytes"])
    if question.model is not None:
        here = storefile.same_model(question.model, model)
        device_distance = abs(math.log2(row["sm_count"] / question.model[1]))
    else:
        typical = archs.get(question.arch).typical
        device_distance = abs(math.log2(row["sm_count"] / typical.sm_count))
    exact = row["problem"] == question.problem.key
    tier = Match.sibling_device if not here else Match.exact if exact else Match.near_shape
    return Candidate(
        row=row,
        tier=tier,
        distance=distance,
        device_distance=device_distance,
        stale=question.template_sha256 not in (None, row["template_sha256"]),
    )


def _near(question: Question, reader: Reader) -> Iterator[Candidate]:
    """The nearest measured problems of the same regime: up to `TRIES` for each kind of answer.

    Rows come in the order of their FLOPs, away from the problem's own on either side. Nothing
    nearer than a distance d has FLOPs more than sqrt(sizes + 1) * d octaves away, which ends the
    walk early in a full store.
    """
    problem = question.problem
    sizes, flops = _log_sizes(problem.shape), _log(problem.flops)
    dimensions = math.sqrt(len(sizes) + 1)
    start = {
        "kernel": problem.kernel,
        "regime": storefile.regime(problem),
        "arch": question.arch,
        "key": problem.key,
        "flops": float(problem.flops),
    }
    walks = heapq.merge(
        reader.walk(up=True, **start),
        reader.walk(up=False, **start),
        key=lambda row: abs(_log(row["flops"]) - flops),
    )
    nearest: dict[tuple[bool, bool], list[tuple[float, float, int, Candidate]]] = {}
    for row in walks:
        octaves = abs(_log(row["flops"]) - flops)
        if octaves > dimensions * MAX_DISTANCE:
            break
        here = nearest.get((True, False), [])
        if len(here) == TRIES and octaves > -dimensions * here[0][0]:
            break
        distance = _distance(sizes, flops, _log_sizes(row["shape"]), _log(row["flops"]))
        if distance > MAX_DISTANCE:
            continue
        candidate = _candidate(question, row, distance)
        kind = (candidate.tier is Match.near_shape, candidate.stale)
        best = nearest.setdefault(kind, [])
        entry = (-distance, -candidate.device_distance, -row["best_id"], candidate)
        if len(best) < TRIES:
            heapq.heappush(best, entry)
        elif entry[:3] > best[0][:3]:
            heapq.heapreplace(best, entry)
    for entries in nearest.values():
        for *_, candidate in entries:
            yield replace(candidate, row=reader.best(candidate.row["best_id"]))


def _log(count: float) -> float:
    """Octaves above one; of nothing (k = 0) as of one."""
    return math.log2(max(1, count))


@lru_cache(maxsize=65536)
def _log_sizes(shape: str) -> tuple[float, ...]:
    return tuple(_log(int(size)) for size in shape.split("x"))


def _distance(
    sizes: tuple[float, ...], flops: float, other_sizes: tuple[float, ...], other_flops: float
) -> float:
    """Length of the vector of log2 ratios: of each size, and of the FLOPs beyond the sizes (the
    batch)."""
    ratios = [one - other for one, other in zip(sizes, other_sizes, strict=True)]
    return math.hypot(*ratios, flops - other_flops - sum(ratios))
