"""What a search would do: a line a problem, and the sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from autotune.report import text
from autotune.report.tables import table

if TYPE_CHECKING:
    from autotune.search import Outlook

COLUMNS = (
    "problem", "shape", "state", "median_ns", "distance", "trials", "wanted", "seconds", "reason",
)  # fmt: skip
"""Of `row`, in order."""


def row(outlook: Outlook) -> dict[str, Any]:
    """One problem as a row for programs."""
    return {
        "problem": outlook.problem.key,
        "shape": outlook.problem.shape,
        "state": outlook.state,
        "median_ns": outlook.time_ns,
        "distance": outlook.distance,
        "trials": outlook.trials,
        "wanted": outlook.wanted,
        "seconds": round(outlook.seconds, 1),
        "reason": outlook.reason,
    }


def table_of(outlooks: Sequence[Outlook]) -> Table:
    """A line for each problem."""
    headings = ["problem", "state", "TFLOP/s", "trials", "wanted", "expected", "best known"]
    rows = [
        [
            outlook.problem.key,
            outlook.state,
            text.number(
                text.tflops(outlook.problem.flops, outlook.time_ns)
                if outlook.state == "tuned"
                else None,
                2,
            ),
            str(outlook.trials),
            text.DASH if outlook.wanted is None else str(outlook.wanted),
            text.duration(outlook.seconds) if outlook.seconds else text.DASH,
            outlook.reason,
        ]
        for outlook in outlooks
    ]
    left = ["problem", "state", "best known"]
    return table(headings, rows, left=left, fold=["best known"])


def summary(outlooks: Sequence[Outlook], total_s: float | None) -> str:
    """How many stand how, and the minutes expected of all."""
    states = Counter(outlook.state for outlook in outlooks)
    counts = ", ".join(f"{count} {state}" for state, count in states.most_common())
    seconds = sum(outlook.seconds for outlook in outlooks) if total_s is None else total_s
    shared = "" if total_s is None else " for all, where it is expected to gain most"
    return f"{counts}; about {max(1, round(seconds / 60))} min{shared}; nothing was done"
