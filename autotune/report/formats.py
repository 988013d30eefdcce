"""Rows and objects for programs: one JSON value, or CSV with a header."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def as_json(value: Row | Sequence[Row]) -> str:
    """One JSON value."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def as_csv(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """A header and a line for each row; None becomes an empty field."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().removesuffix("\n")
