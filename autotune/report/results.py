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
                "config"]  # fmt: skip
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
            _config(row),
        ]
        for row in rows
    ]
    left = ["problem", "device", "stage", "outcome", "config"]
    return table(headings, cells, left=left, fold=["config"])


def bests(rows: Sequence[Row]) -> Table:
    """Rows of the view `best_config`."""
    headings = ["problem", "device", "time", "TFLOP/s", "% of peak", "ties", "config"]
    cells = [
        [
            row["problem"],
            row["device"],
            text.time(row["median_ns"]),
            text.number(row["tflops"], 2),
            text.number(row["percent_of_peak"]),
            str(row["ties"]),
            _config(row),
        ]
        for row in rows
    ]
    return table(headings, cells, left=["problem", "device", "config"], fold=["config"])


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


def _config(row: Row) -> str:
    try:
        config = Config.from_json(row["config_json"])
        # A vendor's kernel has no config, but a name.
        return text.config(config, space.load(row["kernel"])) if config else row["provider"]
    except (AutotuneError, ValueError, TypeError):
        # A row of a family or a form that this version does not know is still worth its line.
        return str(row["config_json"])
