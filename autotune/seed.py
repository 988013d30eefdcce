"""The best configs that ship with the package: JSON lines in db/seed, one a problem and device.

A file for each kernel family and architecture, sorted, with sorted keys, so that the same bests
give the same bytes. Read as a store is, and never written by a look-up: results of the user's own
come first.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from autotune import assets, problems, storefile, templates
from autotune.errors import AutotuneError, NotFoundError, StoreError
from autotune.reader import FileReader, Reader, Row, ServerReader, StoreReader
from autotune.types import Evidence, Problem

COLUMNS = {
    "arch": "compute capability without its dot",
    "autotune_version": "version of the package that searched",
    "compiler": "name and version",
    "config": "value of every parameter",
    "device": "product name; of a prediction the typical device of the architecture",
    "driver": "version of the NVIDIA driver; empty for a prediction",
    "evidence": "measured, or predicted: the model's choice, never timed",
    "flops": "floating-point operations",
    "git_sha": "commit that searched; empty for an installed package",
    "kernel": "kernel family",
    "measured_at": "UTC, ISO 8601",
    "memory_bytes": "bytes of device memory",
    "options": "fields of the problem beside its shape that are not the default",
    "problem": "the problem's key",
    "regime": "as in the table problem",
    "shape": "the sizes alone",
    "sm_count": "streaming multiprocessors",
    "template_sha256": "digest of the templates that made the kernel",
    "ties": "configs that the confirm round could not tell from this one",
    "time_ns": "ns; median of the confirm round, or the prediction",
    "vendor_ns": "ns; the vendor's library in the same confirm round; null where it was not timed",
}
"""What every line names, with its meaning."""

_log = logging.getLogger("autotune")


@cache
def shipped() -> Path | None:
    """The folder of the package's own; None in an installation without one."""
    try:
        folder = assets.folder("db") / "seed"
    except AutotuneError:
        return None
    return folder if folder.is_dir() else None


def file_name(kernel: str, arch: int) -> str:
    """Name of the file of a family and an architecture."""
    return f"{kernel}-sm_{arch}.jsonl"


# *** reading ***


class SeedReader(Reader):
    """The seed of a folder; each file is read when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._damaged: set[tuple[str, int]] = set()

    def _rows(self, kernel: str, arch: int) -> list[dict[str, Any]]:
        """The lines of a file; none, after a warning, where it is damaged."""
        if (kernel, arch) in self._damaged:
            return []
        try:
            return load(self._folder, kernel, arch)
        except StoreError as error:
            self._damaged.add((kernel, arch))
            _log.warning("%s; looking up goes on without it", error)
            return []

    def bests(self, key: str, arch: int) -> list[Row]:
        return self._same(key, arch, Evidence.measured)

    def predictions(self, key: str, arch: int) -> list[Row]:
        return self._same(key, arch, Evidence.predicted)

    def _same(self, key: str, arch: int, evidence: Evidence) -> list[Row]:
        return [
            self.whole(row)
            for kernel in problems.FAMILIES
            for row in self._rows(kernel, arch)
            if row["problem"] == key and row["evidence"] == evidence
        ]

    def regimes(self, kernel: str, arch: int) -> list[str]:
        return sorted({row["regime"] for row in self._rows(kernel, arch)})

    def walk(
        self, up: bool, *, kernel: str, regime: str, arch: int, flops: float, key: str
    ) -> Iterator[Row]:
        rows = self._rows(kernel, arch)
        start = bisect.bisect_left(rows, flops, key=lambda row: row["flops"])
        for row in rows[start:] if up else reversed(rows[:start]):
            if row["regime"] == regime and row["problem"] != key:
                yield row

    def whole(self, row: Row) -> Row:
        config = json.dumps(row["config"], sort_keys=True, separators=(",", ":"))
        return {
            **row,
            "config_json": config,
            "config_sha256": hashlib.sha256(config.encode()).hexdigest(),
            "measurement_id": None,
        }


@cache
def load(folder: Path, kernel: str, arch: int) -> list[dict[str, Any]]:
    """The lines of a file in the order of their FLOPs; none where there is no file.

    Raises:
        StoreError: a line that is not a JSON object with every one of `COLUMNS`.
    """
    file = folder / file_name(kernel, arch)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            missing = COLUMNS.keys() - row.keys()
        except (ValueError, AttributeError) as error:
            raise StoreError(f"{file}, line {number}: {error}; reinstall autotune-cuda") from None
        if missing:
            raise StoreError(f"{file}, line {number} lacks {sorted(missing)[0]!r}")
        rows.append({**row, "best_id": None})
    return sorted(rows, key=lambda row: row["flops"])


def problem(row: Mapping[str, Any]) -> Problem:
    """The problem of a line."""
    return problems.parse(row["shape"], row["kernel"], row["options"])


# *** writing ***


def of_store(location: str | Path | None = None) -> list[dict[str, Any]]:
    """What a store knows, as lines: each confirmed best, and where a problem was only predicted on
    a device, the fastest prediction; of the current templates, where there is one.

    Raises:
        NotFoundError: no store there, or nothing in it.
        StoreError: it cannot be read.
    """
    place = storefile.resolve(location)
    reader: StoreReader = FileReader(place) if isinstance(place, Path) else ServerReader(place)
    reader.state()
    with reader.snapshot():
        bests, predictions = reader.every_best(), reader.every_prediction()
    # The fastest first; of those, lines of the current templates go before stale ones.
    predictions.sort(key=lambda row: row["template_sha256"] != templates.sha256(row["kernel"]))
    found: dict[tuple[str, int, int, int], dict[str, Any]] = {}
    for row in (*bests, *predictions):
        where = (row["problem"], row["arch"], row["sm_count"], row["memory_bytes"])
        if where not in found:
            found[where] = _line(row)
    if not found:
        raise NotFoundError(f"results store {place} has neither bests nor predictions to export")
    return list(found.values())


def stale(lines: Sequence[Mapping[str, Any]]) -> int:
    """How many lines another version of the templates made."""
    return sum(line["template_sha256"] != templates.sha256(line["kernel"]) for line in lines)


def _line(row: Row) -> dict[str, Any]:
    line = {name: row[name] for name in COLUMNS if name not in ("config", "options")}
    plain = problems.parse(row["shape"], row["kernel"]).columns()
    columns = json.loads(row["columns_json"])
    options = {name: value for name, value in columns.items() if value != plain[name]}
    return {**line, "config": json.loads(row["config_json"]), "options": options}


def write(folder: Path, rows: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Writes a file for each family and architecture among the lines, in place of what was there.

    Raises:
        StoreError: the folder cannot be written.
    """
    files: dict[str, list[str]] = {}
    order = sorted(rows, key=lambda row: (row["problem"], row["sm_count"], row["memory_bytes"]))
    for row in order:
        text = json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        files.setdefault(file_name(row["kernel"], row["arch"]), []).append(text + "\n")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, texts in files.items():
            (folder / name).write_text("".join(texts), encoding="utf-8")
    except OSError as error:
        raise StoreError(f"the seed cannot be written to {folder}: {error.strerror}") from None
    load.cache_clear()
    return [folder / name for name in sorted(files)]
