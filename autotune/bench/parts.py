"""What a bench is made of: problems, kernels with their times, and a row for each problem."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from autotune.analysis.roofline import Roofline
from autotune.lookup import Answer
from autotune.measure import Power
from autotune.types import Config, Measurement, Problem

BEST, DEFAULT, VENDOR = "best", "default", "vendor"
"""Names of what is timed besides presets: what look-up gives, the default, the vendor library."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A problem of a suite.

    Attributes:
        classes: The suite's classes that it belongs to, for example `square`; often one.
    """

    problem: Problem
    classes: tuple[str, ...] = ()

    @classmethod
    def of(cls, listed: Iterable[tuple[Problem, str]]) -> list[Self]:
        """A case for each problem of a list of problems and classes; an empty class is none."""
        classes: dict[Problem, dict[str, None]] = {}
        for problem, name in listed:
            classes.setdefault(problem, {}).update({name: None} if name else {})
        return [cls(problem=problem, classes=tuple(names)) for problem, names in classes.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A kernel that was timed, or that failed.

    Attributes:
        names: `BEST`, `DEFAULT`, `VENDOR`, names of presets: one config may be several.
        config: None for the vendor's.
        registers: Per thread; None without a binary.
        power: None where it was not asked for, or where there is no time.
    """

    names: tuple[str, ...]
    config: Config | None
    measurement: Measurement
    registers: int | None = None
    power: Power | None = None

    @property
    def median_ns(self) -> float | None:
        """Its time; None for a failure."""
        return self.measurement.median_ns if self.measurement.is_ok else None

    @property
    def failure(self) -> str:
        """Why there is no time, in words; empty where there is one."""
        if self.measurement.is_ok:
            return ""
        return f"{', '.join(self.names)}: {self.measurement.outcome}: {self.measurement.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One problem of a suite with everything that was timed in turns.

    Attributes:
        answer: What look-up said; None where it was not reached.
        roofline: None where the device's clocks are not known.
        message: Why there are no entries; empty where there are.
        no_vendor: Why the vendor library was not timed; empty where it was, or was not wanted.
    """

    case: Case
    answer: Answer | None = None
    entries: Sequence[Entry] = ()
    roofline: Roofline | None = None
    message: str = ""
    no_vendor: str = ""

    def entry(self, name: str) -> Entry | None:
        """The kernel of that name; None where it did not take part."""
        return next((entry for entry in self.entries if name in entry.names), None)

    def time_ns(self, name: str) -> float | None:
        """The time of the kernel of that name; None where there is none."""
        entry = self.entry(name)
        return entry.median_ns if entry else None

    def ratio(self, to: str) -> float | None:
        """Time of the kernel of that name / time of the best config: above 1 we are ahead."""
        theirs, ours = self.time_ns(to), self.time_ns(BEST)
        return theirs / ours if theirs and ours else None

    @property
    def failures(self) -> list[str]:
        """All that went wrong, in words."""
        return [self.message] if self.message else [e.failure for e in self.entries if e.failure]
