"""What a running search says on stderr: a live bar for people, a line now and then for logs."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from autotune import space
from autotune.cli import app
from autotune.report import text
from autotune.search import (
    Budget,
    Confirming,
    Event,
    Finished,
    Planned,
    Started,
    Tried,
    Waiting,
)
from autotune.types import Device, Evidence

if TYPE_CHECKING:
    from rich.progress import Progress

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
        match event:
            case Planned():
                self.plan = event
                self._say(self._planned(event))
            case Waiting():
                self._say(event.owner)
            case Started():
                self._budget = event.budget
                self._say(self._started(event))
                self._start_bar(event)
            case Tried():
                self._tried(event)
            case Confirming():
                self._say(f"{event.problem.shape}: timing {event.candidates} finalists in turns")
            case Finished():
                self._end_bar()

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
        if self._live is not None:
            self._move_bar(self._live, event)
        elif event.number % LINE_TRIALS == 0 or (
            time.monotonic() - self._last_line_s >= LINE_SECONDS
        ):
            self._last_line_s = time.monotonic()
            of = f" of {event.total}" if event.total else ""
            self._say(
                f"{event.problem.shape}: trial {event.number}{of}, {self._best(event)}, "
                f"{text.duration(event.elapsed_s)}{self._left(event)}"
            )

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

    # *** the bar ***

    def _start_bar(self, event: Started) -> None:
        if self._live is not None:
            self._live.add_task(event.problem.shape, total=None, best="", left="")

    def _move_bar(self, live: Progress, event: Tried) -> None:
        if not live.task_ids:
            return
        done, total = float(event.number), float(event.total) if event.total else None
        seconds = self._budget.seconds if self._budget else None
        if seconds and (total is None or event.elapsed_s / seconds > done / total):
            done, total = event.elapsed_s, seconds
        live.update(
            live.task_ids[-1],
            completed=done,
            total=total,
            description=f"{event.problem.shape} trial {event.number}",
            best=self._best(event),
            left=self._left(event).removeprefix(", "),
        )

    def _end_bar(self) -> None:
        if self._live is not None:
            for task in self._live.task_ids:
                self._live.remove_task(task)


def remaining(event: Tried, budget: Budget | None) -> float | None:
    """Seconds until a budget is used up at the pace so far; None without one."""
    ends = []
    if event.total and event.number:
        ends.append(event.elapsed_s / event.number * (event.total - event.number))
    if budget is not None and budget.seconds is not None:
        ends.append(budget.seconds - event.elapsed_s)
    return max(0.0, min(ends)) if ends else None


def _live() -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[best]}"),
        TextColumn("{task.fields[left]}"),
        console=app.stderr(),
        transient=True,
    )
