"""What a search tells whoever watches, in the order in which it happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from autotune.search.budget import Budget
from autotune.types import Config, Device, Evidence, Measurement, Outcome, Problem

Status = Literal["finished", "truncated", "interrupted", "failed", "not reached"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(Event):
    """Before the first problem: who will do what.

    Attributes:
        evidence: `measured`, or `predicted` where no GPU of the architecture is present.
        seconds: Wall time for all problems together; None where each has its own budget.
        note: Why nothing is timed, if nothing is.
    """

    device: Device
    compiler: str
    door: str
    evidence: Evidence
    problems: Sequence[Problem]
    store: str
    seconds: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(Event):
    """Another process holds the device."""

    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Event):
    """A problem's search begins.

    Attributes:
        valid: Valid points of its space.
        resumed_trials: Trials that the store already held.
    """

    problem: Problem
    valid: int
    budget: Budget
    resumed_trials: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried(Event):
    """One more config was tried and stored.

    Attributes:
        number: Trials so far, the resumed ones included.
        total: Wanted trials; None when only time limits the search.
        best_ns: Best time so far, this one included; predicted where nothing is measured.
    """

    problem: Problem
    number: int
    total: int | None
    config: Config
    measurement: Measurement
    predicted_ns: float | None
    best_ns: float | None
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirming(Event):
    """The finalists are about to be timed against each other."""

    problem: Problem
    candidates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalist:
    """One entrant of the confirm round; `role` is incumbent, default, finalist or vendor."""

    role: str
    config: Config | None
    measurement: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed(Event):
    """The confirm round is over; `rows` are its entrants, fastest first."""

    problem: Problem
    rows: Sequence[Finalist]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the search of one problem came to.

    Attributes:
        status: `finished` when the wanted number of trials was reached or the space is used up,
            `truncated` when time or patience ended it, `interrupted`, `failed`, or `not reached`
            in the time for all problems.
        run_id: Row of the run in the store; None where it did not come to one.
        best_ns: Confirmed median, or the predicted time.
        interval_ns: What that median lies in with 95 % confidence; see `Measurement.low_ns`.
        vendor_ns: The vendor library's time in the same confirm round.
        ties: Other configs that cannot be told from the best.
        counts: Trials by outcome, the resumed ones included.
        messages: The commonest message of each failing outcome.
        seconds: Of this search, confirm round included.
        busy_share: Share of the time after the first 5 s in which the worker was measuring; None
            where nothing was timed for so long.
        trials_per_s: Trials a second, confirm round not counted; None where none was made.
        message: Why it failed or was not reached, or why there is no vendor time.
        notes: What should make the reader careful: clocks that moved, a suspect reference.
    """

    problem: Problem
    device: Device
    evidence: Evidence
    status: Status
    run_id: int | None = None
    best: Config | None = None
    best_ns: float | None = None
    interval_ns: tuple[float, float] | None = None
    vendor_ns: float | None = None
    ties: Sequence[Config] = ()
    counts: Mapping[Outcome, int] = field(default_factory=dict)
    messages: Mapping[Outcome, str] = field(default_factory=dict)
    seconds: float = 0.0
    busy_share: float | None = None
    trials_per_s: float | None = None
    message: str = ""
    notes: Sequence[str] = ()

    @property
    def tflops(self) -> float | None:
        """Rate of the best config in TFLOP/s."""
        return None if self.best_ns is None else self.problem.flops / self.best_ns / 1e3

    @property
    def peak_share(self) -> float | None:
        """That rate as a share of the device's theoretical FP32 rate."""
        return None if self.tflops is None else self.tflops / self.device.fp32_tflops

    @property
    def vendor_share(self) -> float | None:
        """Vendor's time / ours: above 1 means faster than the vendor."""
        if self.best_ns is None or self.vendor_ns is None:
            return None
        return self.vendor_ns / self.best_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(Event):
    """A problem is done."""

    report: Report


Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """A listener that does not listen."""


def remaining(event: Tried, budget: Budget | None) -> float | None:
    """Seconds until a budget is used up at the pace so far; None without one."""
    ends = []
    if event.total and event.number:
        ends.append(event.elapsed_s / event.number * (event.total - event.number))
    if budget is not None and budget.seconds is not None:
        ends.append(budget.seconds - event.elapsed_s)
    return max(0.0, min(ends)) if ends else None
