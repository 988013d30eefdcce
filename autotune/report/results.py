"""Rows of the store's views as tables for people: the columns that fit a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from autotune import space
from autotune.errors import AutotuneError
from autotune.report import text
from autotune.report.tables import table
from autotune.types import Config

Row = Mapping[str, Any]


def trials(rows: Sequence[Row]) -> Table:
    """Rows of the view `results`."""
    headings = ["id", "problem", "device", "arch", "by", "stage", "outcome", "time", "TFLOP/s",
                "% of peak", "config"]  # fmt: skip
    cells = [
        [
            str(row["id"]),
            row["problem"],
            row["device"],
            str(row["arch"]),
            row["provider"],
            row["stage"],
            row["outcome"],
            _time(row),
            text.number(row["tflops"], 2),
            text.number(row["percent_of_peak"]),
            _config(row),
        ]
        for row in rows
    ]
    left = ["problem", "device", "by", "stage", "outcome", "config"]
    return table(headings, cells, left=left)


def bests(rows: Sequence[Row]) -> Table:
    """Rows of the view `best_config`."""
    headings = ["problem", "device", "arch", "time", "TFLOP/s", "% of peak", "ties", "measured",
                "config"]  # fmt: skip
    cells = [
        [
            row["problem"],
            row["device"],
            str(row["arch"]),
            text.time(row["median_ns"]),
            text.number(row["tflops"], 2),
            text.number(row["percent_of_peak"]),
            str(row["ties"]),
            row["measured_at"][:10],
            _config(row),
        ]
        for row in rows
    ]
    return table(headings, cells, left=["problem", "device", "measured", "config"])


def failures(rows: Sequence[Row]) -> Table:
    """Rows of the view `failures`."""
    headings = ["id", "problem", "device", "arch", "stage", "outcome", "message", "config"]
    cells = [
        [
            str(row["id"]),
            row["problem"],
            row["device"],
            str(row["arch"]),
            row["stage"],
            row["outcome"],
            text.first_line(row["message"]),
            _config(row),
        ]
        for row in rows
    ]
    return table(headings, cells, left=[name for name in headings if name not in ("id", "arch")])


def _time(row: Row) -> str:
    if row["median_ns"] is None and row["predicted_ns"] is not None:
        return f"{text.time(row['predicted_ns'])} predicted"
    return text.time(row["median_ns"])


def _config(row: Row) -> str:
    try:
        return text.config(Config.from_json(row["config_json"]), space.load(row["kernel"]))
    except (AutotuneError, ValueError, TypeError):
        # A row of a family or a form that this version does not know is still worth its line.
        return str(row["config_json"])
