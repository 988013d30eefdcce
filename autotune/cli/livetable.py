"""The table that a person watches while a search runs: a line a problem, and the whole below."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from autotune.report import text
from autotune.report.tables import table
from autotune.search import (
    Budget,
    Confirmed,
    Confirming,
    Event,
    Finished,
    Planned,
    Started,
    Tried,
    remaining,
)
from autotune.types import Problem

MOST_LINES = 12
"""Problems shown at a time: those that are searched, then the last that were."""


@dataclass(slots=True)
class _Line:
    """What is shown of a problem."""

    name: str
    flops: float
    state: str = "waits"
    trials: int = 0
    wanted: int | None = None
    best_ns: float | None = None
    vendor_ns: float | None = None
    left_s: float | None = None
    touched_s: float = 0.0


class LiveTable:
    """Follows the events of a search.

    Args:
        clock: Seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines: dict[str, _Line] = {}
        self._budgets: dict[str, Budget] = {}
        self._peak_tflops = 0.0
        self._started_s = clock()
        self._total_s: float | None = None

    def take(self, event: Event) -> None:
        """Takes an event."""
        if isinstance(event, Planned):
            self._peak_tflops = event.device.fp32_tflops
            self._total_s, self._started_s = event.seconds, self._clock()
            self._lines = {problem.key: _line(problem) for problem in event.problems}
            return
        problem = event.report.problem if isinstance(event, Finished) else None
        if isinstance(event, Started | Tried | Confirming | Confirmed):
            problem = event.problem
        if problem is None:
            return
        line = self._lines.setdefault(problem.key, _line(problem))
        line.touched_s = self._clock()
        match event:
            case Started():
                self._budgets[problem.key] = event.budget
                line.state, line.wanted = "search", event.budget.trials
                line.trials = event.resumed_trials
            case Tried():
                line.state, line.trials, line.wanted = "search", event.number, event.total
                line.best_ns = event.best_ns
                line.left_s = remaining(event, self._budgets.get(problem.key))
            case Confirming():
                line.state, line.left_s = "finals", None
            case Confirmed():
                vendors = [row.measurement for row in event.rows if row.role == "vendor"]
                line.vendor_ns = vendors[0].median_ns if vendors else None
            case Finished():
                line.state, line.left_s = event.report.status, None
                line.best_ns, line.vendor_ns = event.report.best_ns, event.report.vendor_ns

    def render(self) -> RenderableType:
        """The table as it stands."""
        shown = sorted(self._lines.values(), key=lambda line: -line.touched_s)[:MOST_LINES]
        headings = ["problem", "state", "trials", "TFLOP/s", "% peak", "% vendor", "left"]
        rows = [self._cells(line) for line in self._lines.values() if line in shown]
        return Group(
            table(headings, rows, left=["problem", "state"]),
            Text(self._summary()),
        )

    def _cells(self, line: _Line) -> list[str]:
        rate = text.tflops(line.flops, line.best_ns)
        peak = 100 * rate / self._peak_tflops if rate and self._peak_tflops else None
        vendor = line.vendor_ns / line.best_ns if line.vendor_ns and line.best_ns else None
        return [
            line.name,
            line.state,
            f"{line.trials}/{line.wanted}" if line.wanted else str(line.trials),
            text.number(rate, 2),
            text.number(peak),
            text.number(None if vendor is None else 100 * vendor),
            text.DASH if line.left_s is None else text.duration(line.left_s),
        ]

    def _summary(self) -> str:
        """How many are done, and how long the rest takes at most."""
        lines = list(self._lines.values())
        ended = [line for line in lines if line.state not in ("waits", "search", "finals")]
        spent_s = self._clock() - self._started_s
        words = f"{len(ended)} of {len(lines)} problems done, {text.duration(spent_s)}"
        left_s = None
        if self._total_s is not None:
            left_s = max(0.0, self._total_s - spent_s)
        elif ended:
            left_s = spent_s / len(ended) * (len(lines) - len(ended))
        return words if left_s is None else f"{words}, about {text.duration(left_s)} left"


def _line(problem: Problem) -> _Line:
    """All are of one family, whose name says nothing here."""
    return _Line(problem.key.removeprefix(f"{problem.kernel}/"), float(problem.flops))
