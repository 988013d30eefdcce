"""What a worker is asked to do: frozen values that cross to its process."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.types import LaunchPlan, Problem, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long and how exactly to measure.

    Attributes:
        warm_up_ms: Device time of untimed launches before the first sample.
        min_samples, max_samples: Timed runs; the early stop may end before the least.
            Few and not very exact will do: the confirm round times the best ones again.
        relative_error: Sampling ends once the 95 % interval of the median is this narrow to each
            side, as a share of the median.
        budget_ms: Device time after which no further samples are taken.
        slower_factor: Sampling ends once the median is this many times the best.
        recheck_launches: Launches that are verified after timing.
        seconds: Least time that a kernel's job may take before its process is ended.
        seconds_per_best: Or this many times the best kernel's time, where that is more.
        prepare_seconds: Time for making data and reference of a problem, or for loading the
            vendor library.
    """

    warm_up_ms: float = 5.0
    min_samples: int = 5
    max_samples: int = 40
    relative_error: float = 0.01
    budget_ms: float = 150.0
    slower_factor: float = 1.2
    recheck_launches: int = 8
    seconds: float = 10.0
    seconds_per_best: float = 50.0
    prepare_seconds: float = 600.0

    def kernel_seconds(self, best_ns: float | None) -> float:
        """How long a kernel's job may take."""
        return max(self.seconds, self.seconds_per_best * (best_ns or 0.0) / 1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One kernel to verify and time.

    Attributes:
        best_ns: The best time so far, for the early stop; None when there is none.
        cold: Empty the L2 cache before each sample.
    """

    problem: Problem
    plan: LaunchPlan
    cubin: bytes
    stage: Stage = Stage.search
    best_ns: float | None = None
    cold: bool = True
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorJob:
    """The vendor library's own kernel for a problem, measured like any other."""

    problem: Problem
    stage: Stage = Stage.confirm
    best_ns: float | None = None
    cold: bool = True
    limits: Limits = Limits()


AnyJob = Job | VendorJob
