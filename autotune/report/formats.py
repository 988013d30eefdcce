"""Rows and objects for programs: one JSON value, or CSV with a header."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.errors import MissingExtraError

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


def write_parquet(file: Path, rows: Sequence[Row], columns: Sequence[str]) -> None:
    """A Parquet file with these columns; None becomes null.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise MissingExtraError(
            "Parquet needs pyarrow; pip install 'autotune-cuda[parquet]', or choose csv"
        ) from None
    values = {name: [row[name] for row in rows] for name in columns}
    parquet.write_table(pyarrow.table(values), file)
