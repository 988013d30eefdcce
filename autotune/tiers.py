"""Orders what is known for a question: by evidence, age of the template, tier, distance."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotune import nearness, storefile
from autotune.nearness import MAX_DISTANCE, Traits
from autotune.reader import Reader, Row
from autotune.types import Device, Evidence, Match, Problem

TRIES = 8
"""How many of the nearest configs are checked before a tier is given up."""

_TIERS = list(Match)
_NEAREST_KIND = (False, False, _TIERS.index(Match.near_shape))
"""Of the candidates that come before all others but the exact ones: measured, not stale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked.

    Attributes:
        device: The model that it is asked for; the typical one where none was named.
        is_named: Whether a model was named; if not, every one of the architecture counts.
        template_sha256: Rows of other templates are stale; None when no row is.
    """

    problem: Problem
    device: Device
    is_named: bool
    template_sha256: str | None

    @property
    def traits(self) -> Traits:
        """What the problem is like on the device."""
        problem = self.problem
        return nearness.traits(
            problem.kernel,
            problem.shape,
            float(problem.flops),
            storefile.regime(problem),
            self.device.sm_count,
        )


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row that is known, and how it relates to the question.

    Attributes:
        reader: Where it is from.
        source: Number of that reader: those of the user come first.
        device_distance: Octaves between the numbers of multiprocessors.
    """

    row: Row
    reader: Reader
    source: int
    tier: Match
    distance: float
    device_distance: float
    stale: bool

    @property
    def is_measured(self) -> bool:
        """Whether a time is behind it, not a prediction."""
        return bool(self.row["evidence"] == Evidence.measured)

    @property
    def kind(self) -> tuple[Any, ...]:
        """What comes before any distance; smaller is better."""
        return (not self.is_measured, self.stale, _TIERS.index(self.tier))

    @property
    def rank(self) -> tuple[Any, ...]:
        """Smaller is better; no two rows share one."""
        return (
            *self.kind,
            self.distance,
            self.device_distance,
            self.source,
            # The same answer in every process: by row, where nothing else decides.
            0.0 if self.is_measured else self.row["time_ns"],
            self.row["best_id"] or 0,
            self.row["measurement_id"] or 0,
            self.row["problem"],
        )


def candidates(question: Question, readers: Sequence[Reader]) -> Iterator[Candidate]:
    """Every row that may answer, best first. Predictions of another template say nothing."""
    asked = question.problem.key, question.device.arch
    same = [
        _candidate(question, row, 0.0, reader, source)
        for source, reader in enumerate(readers)
        for row in (*reader.bests(*asked), *reader.predictions(*asked))
    ]
    certain = [c for c in same if c.tier is Match.exact and not c.stale and c.is_measured]
    yield from sorted(certain, key=lambda c: c.rank)
    # Walking to other shapes costs more than all the rest; most calls end above.
    rest = [c for c in same if c not in certain]
    for source, reader in enumerate(readers):
        rest += _near(question, reader, source)
    rest = [c for c in rest if c.is_measured or not c.stale]
    yield from sorted(rest, key=lambda c: c.rank)


def _candidate(
    question: Question, row: Row, distance: float, reader: Reader, source: int
) -> Candidate:
    device = question.device
    model = (device.arch, device.sm_count, device.memory_bytes)
    is_here = not question.is_named or storefile.same_model(
        model, (row["arch"], row["sm_count"], row["memory_bytes"])
    )
    is_same = row["problem"] == question.problem.key
    return Candidate(
        row=row,
        reader=reader,
        source=source,
        tier=Match.sibling_device if not is_here else Match.exact if is_same else Match.near_shape,
        distance=distance,
        device_distance=abs(math.log2(row["sm_count"] / device.sm_count)),
        stale=question.template_sha256 not in (None, row["template_sha256"]),
    )


def _near(question: Question, reader: Reader, source: int) -> Iterator[Candidate]:
    """The nearest problems: up to `TRIES` for each kind of answer.

    Rows come in the order of their FLOPs, away from the problem's own on either side. Beyond the
    reach of a distance nothing is nearer, which ends the walk early in a full store.
    """
    problem, asked = question.problem, question.traits
    flops = nearness.octaves(problem.flops)
    start = {
        "kernel": problem.kernel,
        "arch": question.device.arch,
        "key": problem.key,
        "flops": float(problem.flops),
    }
    walks = heapq.merge(
        *(
            reader.walk(up, regime=regime, **start)  # type: ignore[arg-type]
            for regime in reader.regimes(problem.kernel, question.device.arch)
            for up in (True, False)
        ),
        key=lambda row: abs(nearness.octaves(row["flops"]) - flops),
    )
    nearest: dict[tuple[Any, ...], list[tuple[float, float, int, Candidate]]] = {}
    for number, row in enumerate(walks):
        octaves = abs(nearness.octaves(row["flops"]) - flops)
        if octaves > asked.reach * MAX_DISTANCE:
            break
        here = nearest.get(_NEAREST_KIND, [])
        if len(here) == TRIES and octaves > asked.reach * -here[0][0]:
            break
        known = nearness.traits(
            problem.kernel, row["shape"], row["flops"], row["regime"], row["sm_count"]
        )
        distance = asked.distance(known)
        if distance > MAX_DISTANCE:
            continue
        candidate = _candidate(question, row, distance, reader, source)
        best = nearest.setdefault(candidate.kind, [])
        entry = (-distance, -candidate.device_distance, -(row["best_id"] or number), candidate)
        if len(best) < TRIES:
            heapq.heappush(best, entry)
        elif entry[:3] > best[0][:3]:
            heapq.heapreplace(best, entry)
    for entries in nearest.values():
        for *_, candidate in entries:
            yield replace(candidate, row=reader.whole(candidate.row))
