"""What past runs say: how fast each came near the best, and how long a trial takes here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from autotune.errors import NotFoundError, UsageError
from autotune.store import Store
from autotune.types import Device, Outcome, Stage

NEAR = (0.05, 0.01)
"""Distances from the best that are asked for, as shares of its time."""
RECENT_RUNS = 20

Row = dict[str, Any]


def compare(store: Store, run_ids: Sequence[int]) -> list[Row]:
    """Runs of one problem and device beside each other.

    Returns:
        For each run what the store has of it, `percent_of_best` (its best time against the best of
        all these runs), and how many trials and seconds it took to come within 5 % and within 1 %
        of that: `trials_to_5`, `seconds_to_5`, `trials_to_1`, `seconds_to_1`; None where it did
        not. Seconds are wall time from the run's start: of a run that shared its time with other
        problems, theirs as well.

    Raises:
        NotFoundError: no such run.
        UsageError: fewer than two runs, or runs of several problems or devices.
    """
    if len(set(run_ids)) < 2:
        raise UsageError("name two runs or more; `autotune results runs` lists them")
    runs = [_run(store, run_id) for run_id in run_ids]
    for name in ("problem", "device"):
        if len(found := {str(run[name]) for run in runs}) > 1:
            raise UsageError(
                f"runs of one {name} can be compared, these are of {', '.join(sorted(found))}"
            )
    courses = [_course(store, run) for run in runs]
    times = [ns for course in courses for _, ns in course if ns is not None]
    best_ns = min(times, default=None)
    return [_compared(run, course, best_ns) for run, course in zip(runs, courses, strict=True)]


def _run(store: Store, run_id: int) -> Row:
    found = store.runs(id=run_id)
    if not found:
        raise NotFoundError(f"there is no run {run_id}; `autotune results runs` lists them")
    return found[0]


Course = list[tuple[float, float | None]]
"""Of each trial the seconds from the run's start, and its time in ns; None for a failure and for
what was cut short."""


def _course(store: Store, run: Mapping[str, Any]) -> Course:
    started = datetime.fromisoformat(run["started_at"])
    course: Course = []
    for row in store.results(run_id=run["id"], sort="id"):
        if row["stage"] == Stage.confirm:
            continue
        is_timed = row["outcome"] == Outcome.ok and not row["truncated"]
        time_ns = row["predicted_ns"] if row["stage"] == Stage.predict else row["median_ns"]
        seconds = (datetime.fromisoformat(row["measured_at"]) - started).total_seconds()
        course.append((max(0.0, seconds), time_ns if is_timed else None))
    return course


def _compared(run: Row, course: Course, best_ns: float | None) -> Row:
    own_ns = min((ns for _, ns in course if ns is not None), default=None)
    row = {
        "run_id": run["id"],
        **{
            name: run[name]
            for name in (
                "problem", "device", "status", "started_at", "sampler", "seed", "budget", "starts",
                "trials",
            )
        },
        "best_ns": own_ns,
        "percent_of_best": 100 * best_ns / own_ns if best_ns and own_ns else None,
    }  # fmt: skip
    for share in NEAR:
        enough = [
            (number, seconds)
            for number, (seconds, ns) in enumerate(course, start=1)
            if ns is not None and best_ns is not None and ns <= best_ns * (1 + share)
        ]
        number, seconds = enough[0] if enough else (None, None)
        row[f"trials_to_{100 * share:g}"] = number
        row[f"seconds_to_{100 * share:g}"] = None if seconds is None else round(seconds, 3)
    return row


def trial_seconds(store: Store, device: Device, kernel: str) -> float | None:
    """Wall time of a trial in recent runs on this model of device; None where there were none."""
    trials, seconds = 0, 0.0
    runs = store.runs(kernel=kernel, arch=device.arch, sort="-id", limit=RECENT_RUNS)
    for run in runs:
        is_alike = run["sm_count"] == device.sm_count
        # Of a time for all problems, the others' is in it.
        if is_alike and run["trials"] > 1 and run["last_at"] and "for all" not in run["budget"]:
            begun, last = (datetime.fromisoformat(run[name]) for name in ("started_at", "last_at"))
            trials += run["trials"]
            seconds += max(0.0, (last - begun).total_seconds())
    return seconds / trials if trials else None
