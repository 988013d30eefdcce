"""What one search knows so far: its trials by outcome, its best, and how busy the device was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from autotune.types import Config, Measurement, Outcome

SUSPECT_RESULTS = 5
CLOCK_SHARE = 0.95
"""Clocks that differ by more than this are worth a warning."""

Span = tuple[float, float]
"""From when to when, on the monotonic clock in seconds."""


@dataclass(slots=True)
class Tally:
    """The trials of a problem, those of earlier runs included.

    Attributes:
        number: Trials.
        times_ns: Of each config, measured or predicted; None for a failure.
        since_best: Trials after the best one.
    """

    counts: Counter[Outcome] = field(default_factory=Counter)
    messages: dict[Outcome, Counter[str]] = field(default_factory=dict)
    best: Config | None = None
    best_ns: float | None = None
    since_best: int = 0
    number: int = 0
    times_ns: dict[Config, float | None] = field(default_factory=dict)
    clocks_mhz: list[int] = field(default_factory=list)

    def add(self, config: Config, measurement: Measurement, time_ns: float | None) -> None:
        """Counts one trial."""
        self.number += 1
        self.times_ns[config] = time_ns
        if measurement.conditions.sm_clock_mhz:
            self.clocks_mhz.append(measurement.conditions.sm_clock_mhz)
        self.since_best += 1
        self.counts[measurement.outcome] += 1
        if not measurement.is_ok:
            messages = self.messages.setdefault(measurement.outcome, Counter())
            messages[measurement.message] += 1
        elif time_ns is not None and (self.best_ns is None or time_ns < self.best_ns):
            self.best, self.best_ns, self.since_best = config, time_ns, 0

    def commonest(self) -> dict[Outcome, str]:
        """The commonest message of each failing outcome."""
        return {outcome: found.most_common(1)[0][0] for outcome, found in self.messages.items()}

    def notes(self) -> list[str]:
        """What should make the reader of a result careful."""
        notes = []
        wrong, ok = self.counts[Outcome.wrong_result], self.counts[Outcome.ok]
        if wrong >= SUSPECT_RESULTS and wrong > 4 * ok:
            notes.append(
                f"{wrong} of {wrong + ok} kernels gave a wrong result: suspect the device or the "
                "reference before the kernels"
            )
        if self.clocks_mhz and min(self.clocks_mhz) < CLOCK_SHARE * max(self.clocks_mhz):
            notes.append(
                f"the SM clock moved between {min(self.clocks_mhz)} and {max(self.clocks_mhz)} MHz "
                "while candidates were timed; only the confirm round compares them fairly"
            )
        return notes


class Pace:
    """How fast a search went, over all of its slices.

    Attributes:
        active_s: Seconds in which it was searching.
        trials: Trials made in them.
    """

    SETTLING_S = 5.0
    """The beginning, in which the first kernels are compiled, does not count as idle."""

    def __init__(self) -> None:
        self.active_s = 0.0
        self.trials = 0
        self._settled_s = 0.0
        self._busy_s = 0.0

    def add(self, slice_: Span, spans: Sequence[Span], trials: int) -> None:
        """Counts a slice: its time, the times in which the worker was measuring, its trials."""
        start, end = slice_
        settled = min(end, start + max(0.0, self.SETTLING_S - self.active_s))
        self._settled_s += end - settled
        self._busy_s += sum(max(0.0, min(b, end) - max(a, settled)) for a, b in spans)
        self.active_s += end - start
        self.trials += trials

    @property
    def busy_share(self) -> float | None:
        """Share of the time in which the worker was measuring; None for a search that was over
        before it had settled."""
        return self._busy_s / self._settled_s if self._settled_s > 0 else None

    @property
    def trials_per_s(self) -> float | None:
        """Trials a second; None where there was none."""
        return self.trials / self.active_s if self.trials else None
