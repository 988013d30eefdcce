"""What a search came to: a row a problem, and how its trials ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from autotune.report import text
from autotune.report.tables import table
from autotune.types import Evidence, Outcome

if TYPE_CHECKING:
    from autotune.search import Report
    from autotune.space import Space

COLUMNS = (
    "kernel", "shape", "problem", "arch", "device", "status", "evidence", "config_json",
    "median_ns", "low_ns", "high_ns", "predicted_ns", "tflops", "percent_of_peak", "vendor_ns",
    "percent_of_vendor", "ties", "tried", *(str(outcome) for outcome in Outcome), "seconds",
    "busy_share", "trials_per_s", "run_id", "message",
)  # fmt: skip
"""Of `row`, in order."""


def row(report: Report) -> dict[str, Any]:
    """One search as a row for programs: the store's column names, then counts by outcome."""
    measured = report.evidence is Evidence.measured
    return {
        "kernel": report.problem.kernel,
        "shape": report.problem.shape,
        "problem": report.problem.key,
        "arch": report.device.arch,
        "device": report.device.name,
        "status": report.status,
        "evidence": report.evidence,
        "config_json": report.best.json if report.best else None,
        "median_ns": report.best_ns if measured else None,
        "low_ns": report.interval_ns[0] if report.interval_ns else None,
        "high_ns": report.interval_ns[1] if report.interval_ns else None,
        "predicted_ns": None if measured else report.best_ns,
        "tflops": report.tflops,
        "percent_of_peak": _percent(report.peak_share),
        "vendor_ns": report.vendor_ns,
        "percent_of_vendor": _percent(report.vendor_share),
        "ties": len(report.ties),
        "tried": sum(report.counts.values()),
        **{str(outcome): report.counts.get(outcome, 0) for outcome in Outcome},
        "seconds": round(report.seconds, 3),
        "busy_share": report.busy_share,
        "trials_per_s": report.trials_per_s,
        "run_id": report.run_id,
        "message": report.message,
    }


def bests(reports: Sequence[Report], space: Space) -> Table:
    """The best config of each problem."""
    headings = ["problem", "time", "TFLOP/s", "% of peak", "% of vendor", "ties", "evidence",
                "best config"]  # fmt: skip
    rows = [
        [
            report.problem.key,
            text.time_within(report.best_ns, report.interval_ns),
            text.number(report.tflops, 2),
            text.number(_percent(report.peak_share)),
            text.number(_percent(report.vendor_share)),
            str(len(report.ties)) if report.best else text.DASH,
            str(report.evidence) if report.best else text.DASH,
            text.config(report.best, space) if report.best else report.status,
        ]
        for report in reports
    ]
    return table(headings, rows, left=["problem", "best config", "evidence"], fold=["best config"])


def outcomes(reports: Sequence[Report]) -> Table:
    """How many trials of each problem ended how; outcomes that did not occur are left out."""
    seen = [o for o in Outcome if o is Outcome.ok or any(r.counts.get(o) for r in reports)]
    headings = ["problem", "tried", *(_words(outcome) for outcome in seen), "took"]
    rows = [
        [
            report.problem.key,
            str(sum(report.counts.values())),
            *(str(report.counts.get(outcome, 0)) for outcome in seen),
            text.duration(report.seconds),
        ]
        for report in reports
    ]
    return table(headings, rows, left=["problem"])


def ties(reports: Sequence[Report], space: Space) -> list[str]:
    """Each config that cannot be told from the best."""
    return [
        f"{report.problem.key}, ties with the best: {text.config(config, space)}"
        for report in reports
        for config in report.ties
    ]


def paces(reports: Sequence[Report]) -> list[str]:
    """For each problem that was timed how fast, and how much of the time on the GPU."""
    lines = []
    for report in reports:
        if report.evidence is Evidence.measured and report.trials_per_s is not None:
            line = f"{report.problem.key}: {report.trials_per_s:.1f} verified variants/s"
            if report.busy_share is not None:
                line += f", GPU process busy {100 * report.busy_share:.0f} % after the first 5 s"
            lines.append(f"{line} (run {report.run_id})")
    return lines


def notes(reports: Sequence[Report]) -> list[str]:
    """What should make the reader careful."""
    return [f"{report.problem.key}: {note}" for report in reports for note in report.notes]


def reasons(reports: Sequence[Report]) -> list[str]:
    """For each problem and kind of failure the commonest message."""
    return [
        f"{report.problem.key}, {_words(outcome)}: {text.first_line(message)}"
        for report in reports
        for outcome, message in report.messages.items()
    ]


def _words(outcome: Outcome) -> str:
    return outcome.replace("_", " ")


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
