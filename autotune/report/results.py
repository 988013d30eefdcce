"""Rows of the store's views as tables for people: the columns that fit a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from autotune import space
from autotune.errors import AutotuneError
from autotune.report import text
from autotune.report.tables import table
from autotune.types import Config, Stage

Row = Mapping[str, Any]


def trials(rows: Sequence[Row]) -> Table:
    """Rows of the view `results`; the time of a predicted one is the prediction."""
    headings = ["id", "problem", "device", "stage", "outcome", "time", "TFLOP/s", "% of peak",
                "stale", "config"]  # fmt: skip
    cells = [
        [
            str(row["id"]),
            row["problem"],
            row["device"],
            row["stage"],
            row["outcome"],
            text.time(row["predicted_ns"] if row["stage"] == Stage.predict else row["median_ns"]),
            text.number(row["tflops"], 2),
            text.number(row["percent_of_peak"]),
            row["stale"].replace(",", ", ") or text.DASH,
            _config(row),
        ]
        for row in rows
    ]
    left = ["problem", "device", "stage", "outcome", "stale", "config"]
    return table(headings, cells, left=left, fold=["config"])


def bests(rows: Sequence[Row]) -> Table:
    """Rows of the view `best_config`."""
    headings = ["problem", "device", "time", "TFLOP/s", "% of peak", "ties", "stale", "config"]
    cells = [
        [
            row["problem"],
            row["device"],
            text.time_within(row["median_ns"], _interval(row)),
            text.number(row["tflops"], 2),
            text.number(row["percent_of_peak"]),
            str(row["ties"]),
            row["stale"].replace(",", ", ") or text.DASH,
            _config(row),
        ]
        for row in rows
    ]
    return table(headings, cells, left=["problem", "device", "stale", "config"], fold=["config"])


def failures(rows: Sequence[Row]) -> Table:
    """Rows of the view `failures`, with the first line of each message."""
    headings = ["id", "problem", "device", "outcome", "message", "config"]
    cells = [
        [
            str(row["id"]),
            row["problem"],
            row["device"],
            row["outcome"],
            text.first_line(row["message"]),
            _config(row),
        ]
        for row in rows
    ]
    return table(headings, cells, left=headings[1:], fold=["message", "config"])


def runs(rows: Sequence[Row]) -> Table:
    """Rows of `Store.runs`."""
    headings = ["run", "problem", "device", "started", "status", "sampler", "seed", "trials",
                "best", "budget", "starts"]  # fmt: skip
    cells = [
        [
            str(row["id"]),
            row["problem"],
            row["device"],
            row["started_at"],
            row["status"],
            row["sampler"] or text.DASH,
            text.DASH if row["seed"] is None else str(row["seed"]),
            str(row["trials"]),
            text.time(row["best_ns"]),
            row["budget"] or text.DASH,
            row["starts"] or text.DASH,
        ]
        for row in rows
    ]
    left = ["problem", "device", "started", "status", "sampler", "budget", "starts"]
    return table(headings, cells, left=left, fold=["starts"])


def compared(rows: Sequence[Row]) -> Table:
    """Rows of `autotune.history.compare`."""
    headings = ["run", "seed", "sampler", "trials", "best", "% of best", "within 5 %", "within 1 %",
                "starts"]  # fmt: skip
    cells = [
        [
            str(row["run_id"]),
            text.DASH if row["seed"] is None else str(row["seed"]),
            row["sampler"] or text.DASH,
            str(row["trials"]),
            text.time(row["best_ns"]),
            text.number(row["percent_of_best"]),
            _reached(row, "5"),
            _reached(row, "1"),
            row["starts"] or text.DASH,
        ]
        for row in rows
    ]
    return table(headings, cells, left=["sampler", "starts"], fold=["starts"])


def _reached(row: Row, percent: str) -> str:
    trials, seconds = row[f"trials_to_{percent}"], row[f"seconds_to_{percent}"]
    return text.DASH if trials is None else f"trial {trials}, {text.duration(seconds)}"


def _interval(row: Row) -> tuple[float, float] | None:
    low_ns, high_ns = row["low_ns"], row["high_ns"]
    return None if low_ns is None or high_ns is None else (low_ns, high_ns)


def _config(row: Row) -> str:
    try:
        config = Config.from_json(row["config_json"])
        # A vendor's kernel has no config, but a name.
        return text.config(config, space.load(row["kernel"])) if config else row["provider"]
    except (AutotuneError, ValueError, TypeError):
        # A row of a family or a form that this version does not know is still worth its line.
        return str(row["config_json"])
