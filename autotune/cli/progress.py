"""What a running search says on stderr: a live table for people, a line now and then for logs."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from autotune import space
from autotune.cli import app
from autotune.cli.livetable import LiveTable
from autotune.report import text
from autotune.search import (
    Budget,
    Confirming,
    Event,
    Finished,
    Planned,
    Report,
    Started,
    Tried,
    Waiting,
    remaining,
)
from autotune.types import Device, Evidence

if TYPE_CHECKING:
    from rich.live import Live

LINE_TRIALS = 20
"""Trials from one line to the next where nobody watches."""
LINE_SECONDS = 30.0
"""Or so long after the last line, when trials are slow."""


class Listener:
    """Follows the events of a search; a context manager.

    Attributes:
        plan: What the search is going to do; None before it knows.
    """

    def __init__(self, *, verbosity: int, interactive: bool) -> None:
        self.plan: Planned | None = None
        self._verbosity = verbosity
        self._live = _live() if interactive and verbosity >= 0 else None
        self._table = LiveTable()
        self._budget: Budget | None = None
        self._last_line_s = time.monotonic()

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: Event) -> None:
        """Takes an event of the search."""
        self._table.take(event)
        match event:
            case Planned():
                self.plan = event
                self._say(self._planned(event))
            case Waiting():
                self._say(event.owner)
            case Started():
                self._budget = event.budget
                self._say(self._started(event))
            case Tried():
                self._tried(event)
            case Confirming():
                self._say(f"{event.problem.shape}: timing {event.candidates} finalists in turns")
            case Finished():
                self._say(self._finished(event.report))
        self._refresh()

    def _say(self, line: str) -> None:
        if self._verbosity >= 0:
            app.note(line)

    def _planned(self, event: Planned) -> str:
        device = event.device
        here = f"device {device.index}, bus {device.bus_id}, {device.uuid}"
        where = here if device.is_present else "not here"
        line = f"{device.name} (sm_{device.arch}, {where}), {event.compiler}"
        if event.evidence is Evidence.measured:
            line += f", timed through {event.door}"
        if event.note:
            line += f"\nNothing will be timed: {event.note}"
        return f"{line}\nstore: {event.store}"

    def _started(self, event: Started) -> str:
        line = f"{event.problem.key}: {event.valid:,} valid configs; budget: {event.budget}"
        if event.resumed_trials:
            line += f"; goes on after {event.resumed_trials} trials of earlier runs"
        return line

    def _tried(self, event: Tried) -> None:
        measurement = event.measurement
        if not measurement.is_ok and self._verbosity > 0:
            message = text.first_line(measurement.message)
            words = text.config(event.config, space.load(event.problem.kernel))
            self._say(f"trial {event.number}: {measurement.outcome}: {message} ({words})")
        if self._live is None and (
            event.number % LINE_TRIALS == 0 or time.monotonic() - self._last_line_s >= LINE_SECONDS
        ):
            self._last_line_s = time.monotonic()
            of = f" of {event.total}" if event.total else ""
            self._say(
                f"{event.problem.shape}: trial {event.number}{of}, {self._best(event)}, "
                f"{text.duration(event.elapsed_s)}{self._left(event)}"
            )

    def _finished(self, report: Report) -> str:
        """What came of a problem, in a line."""
        if report.best is None:
            return f"{report.problem.key}: {report.status}: {text.first_line(report.message)}"
        kind = "predicted " if report.evidence is Evidence.predicted else ""
        line = (
            f"{report.problem.key}: {report.status}, best {kind}{text.number(report.tflops, 2)} "
            "TFLOP/s"
        )
        if report.vendor_share is not None:
            line += f", {100 * report.vendor_share:.1f} % of vendor"
        return f"{line}, {text.duration(report.seconds)}"

    def _best(self, event: Tried) -> str:
        """The best so far: rate and share of the device's peak."""
        rate = text.tflops(event.problem.flops, event.best_ns)
        if rate is None:
            return "nothing runs yet"
        peak = self._device.fp32_tflops if self._device else 0.0
        share = f" ({100 * rate / peak:.0f} % of peak)" if peak else ""
        kind = "predicted " if self._is_predicted else ""
        return f"best {kind}{rate:.2f} TFLOP/s{share}"

    @property
    def _is_predicted(self) -> bool:
        return self.plan is not None and self.plan.evidence is Evidence.predicted

    @property
    def _device(self) -> Device | None:
        return self.plan.device if self.plan else None

    def _left(self, event: Tried) -> str:
        seconds = remaining(event, self._budget)
        return "" if seconds is None else f", {text.duration(seconds)} left at most"

    # *** the table ***

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.update(self._table.render())


def _live() -> Live:
    from rich.live import Live

    return Live(console=app.stderr(), transient=True, refresh_per_second=4)
