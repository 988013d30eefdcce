"""Stored bests beside their new measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from autotune.report import text
from autotune.report.tables import table

if TYPE_CHECKING:
    from autotune.drift import Drift

COLUMNS = (
    "problem", "device", "config_json", "claimed_ns", "claimed_low_ns", "claimed_high_ns",
    "outcome", "median_ns", "low_ns", "high_ns", "drift_percent", "holds", "changes", "checks",
    "message", "best_id",
)  # fmt: skip
"""Of `row`, in order."""


def row(drift: Drift) -> dict[str, Any]:
    """One best as a row for programs."""
    measured = drift.measurement
    return {
        "problem": drift.problem,
        "device": drift.device,
        "config_json": drift.config.json,
        "claimed_ns": drift.claimed_ns,
        "claimed_low_ns": drift.claimed_interval_ns[0],
        "claimed_high_ns": drift.claimed_interval_ns[1],
        "outcome": measured.outcome,
        "median_ns": measured.median_ns,
        "low_ns": measured.low_ns,
        "high_ns": measured.high_ns,
        "drift_percent": None if drift.percent is None else round(drift.percent, 3),
        "holds": drift.holds,
        "changes": drift.changes,
        "checks": measured.checks,
        "message": measured.message,
        "best_id": drift.best_id,
    }


def table_of(drifts: Sequence[Drift]) -> Table:
    """A line for each best."""
    headings = ["problem", "claimed", "now", "drift", "holds", "changed since"]
    rows = [
        [
            drift.problem,
            text.time_within(drift.claimed_ns, drift.claimed_interval_ns),
            text.time_within(drift.measurement.median_ns, drift.measurement.interval_ns),
            text.DASH if drift.percent is None else f"{drift.percent:+.2f} %",
            "yes" if drift.holds else "no",
            drift.changes.replace(",", ", ") or text.DASH,
        ]
        for drift in drifts
    ]
    return table(headings, rows, left=["problem", "holds", "changed since"])


def complaint(drift: Drift) -> str:
    """Why a best does not hold, and what to do."""
    measured = drift.measurement
    if not measured.is_ok:
        what = f"{measured.outcome}: {text.first_line(measured.message)}"
    else:
        what = (
            f"{text.time(measured.median_ns)} now, {text.time(drift.claimed_ns)} claimed, beyond "
            f"the tolerance of {100 * drift.tolerance:g} %"
        )
    since = f" (changed since: {drift.changes.replace(',', ', ')})" if drift.changes else ""
    return f"{drift.problem}: {what}{since}; search the shape again to replace it"
