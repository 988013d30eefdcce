"""Reads the store for look-ups: a few questions in SQL, and a state that tells when to ask again.

Files are read through the standard library; only a store in PostgreSQL loads SQLAlchemy.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from autotune import storefile

Row = Mapping[str, Any]

_COLUMNS = """
    problem.key AS problem, problem.kernel, problem.shape, problem.regime, problem.flops,
    problem.columns_json, device.name AS device, device.arch, device.sm_count, device.memory_bytes,
    variant.config_json, variant.config_sha256, variant.template_sha256, variant.compiler,
    environment.driver, environment.autotune_version, environment.git_sha,
    measurement.id AS measurement_id, measurement.evidence, measurement.measured_at
"""

# The vendor's time is that of the same confirm round, as in the view speedup_vs_vendor.
_BEST = f"""
SELECT best.id AS best_id, measurement.median_ns AS time_ns,
    (SELECT count(*) FROM tie WHERE tie.best_id = best.id) AS ties,
    (SELECT min(timed.median_ns) FROM measurement AS timed
        JOIN variant AS kernel ON kernel.id = timed.variant_id
        WHERE timed.run_id = measurement.run_id AND timed.stage = 'confirm'
            AND timed.outcome = 'ok' AND kernel.provider <> 'generated') AS vendor_ns,
    {_COLUMNS}
FROM best
JOIN problem ON problem.id = best.problem_id
JOIN device ON device.id = best.device_id
JOIN variant ON variant.id = best.variant_id
JOIN measurement ON measurement.id = best.measurement_id
JOIN run ON run.id = measurement.run_id
JOIN environment ON environment.id = run.environment_id
"""

_PREDICTED = f"""
SELECT NULL AS best_id, measurement.predicted_ns AS time_ns, 0 AS ties, NULL AS vendor_ns,
    {_COLUMNS}
FROM problem
JOIN variant ON variant.problem_id = problem.id
JOIN measurement ON measurement.variant_id = variant.id
JOIN run ON run.id = measurement.run_id
JOIN device ON device.id = run.device_id
JOIN environment ON environment.id = run.environment_id
WHERE measurement.evidence = 'predicted' AND measurement.outcome = 'ok'
    AND measurement.predicted_ns IS NOT NULL
"""
_OF_PROBLEM = """ AND problem.key = :key AND device.arch = :arch
ORDER BY measurement.predicted_ns, measurement.id
LIMIT 64
"""

# CROSS JOIN keeps SQLite from starting with another table than the one whose index has the order.
_WALK = """
SELECT best.id AS best_id, problem.key AS problem, problem.shape, problem.flops, problem.regime,
    device.arch, device.sm_count, device.memory_bytes,
    variant.template_sha256, 'measured' AS evidence
FROM problem
CROSS JOIN best
CROSS JOIN device
CROSS JOIN variant
WHERE problem.kernel = :kernel AND problem.regime = :regime AND problem.flops {beyond} :flops
    AND problem.key <> :key AND best.problem_id = problem.id AND device.id = best.device_id
    AND device.arch = :arch AND variant.id = best.variant_id
ORDER BY problem.flops {order}
"""


class Reader(ABC):
    """What look-ups ask of a store, or of the best configs that ship with the package."""

    @abstractmethod
    def bests(self, key: str, arch: int) -> list[Row]:
        """Confirmed bests of a problem on every model of an architecture."""

    @abstractmethod
    def predictions(self, key: str, arch: int) -> list[Row]:
        """The fastest predictions for a problem on every model of an architecture."""

    @abstractmethod
    def regimes(self, kernel: str, arch: int) -> list[str]:
        """The regimes of the problems that `walk` may find."""

    @abstractmethod
    def walk(
        self, up: bool, *, kernel: str, regime: str, arch: int, flops: float, key: str
    ) -> Iterator[Row]:
        """Bests of a regime in the order of their FLOPs, up or down from some value.

        Args:
            key: Of a problem to leave out.
        """

    @abstractmethod
    def whole(self, row: Row) -> Row:
        """A row of `walk` with all its columns."""


class StoreReader(Reader):
    """One store, read only."""

    @abstractmethod
    def state(self) -> Hashable | None:
        """A value that differs after every committed change; None where that cannot be told.

        Raises:
            NotFoundError: no store there.
            StoreError: the store cannot be read.
        """

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[None]:
        """All questions inside see one state of the store.

        Raises:
            StoreError: a question failed.
        """

    @abstractmethod
    def _ask(self, sql: str, values: Mapping[str, Any]) -> Iterator[Row]:
        """The rows of a question, read one by one."""

    def bests(self, key: str, arch: int) -> list[Row]:
        where = "WHERE problem.key = :key AND device.arch = :arch ORDER BY best.id"
        return list(self._ask(_BEST + where, {"key": key, "arch": arch}))

    def predictions(self, key: str, arch: int) -> list[Row]:
        return list(self._ask(_PREDICTED + _OF_PROBLEM, {"key": key, "arch": arch}))

    def regimes(self, kernel: str, arch: int) -> list[str]:
        distinct = "SELECT DISTINCT regime FROM problem WHERE kernel = :kernel ORDER BY regime"
        return [row["regime"] for row in self._ask(distinct, {"kernel": kernel})]

    def walk(
        self, up: bool, *, kernel: str, regime: str, arch: int, flops: float, key: str
    ) -> Iterator[Row]:
        beyond, order = (">=", "ASC") if up else ("<", "DESC")
        values = {"kernel": kernel, "regime": regime, "arch": arch, "flops": flops, "key": key}
        return self._ask(_WALK.format(beyond=beyond, order=order), values)

    def whole(self, row: Row) -> Row:
        return next(self._ask(_BEST + "WHERE best.id = :id", {"id": row["best_id"]}))

    def every_best(self) -> list[Row]:
        """All confirmed bests, in the order of their ids."""
        return list(self._ask(_BEST + "ORDER BY best.id", {}))

    def every_prediction(self) -> list[Row]:
        """All predictions, the fastest first."""
        order = "ORDER BY measurement.predicted_ns, measurement.id"
        return list(self._ask(_PREDICTED + order, {}))


class FileReader(StoreReader):
    """A store in a file. A file that is replaced, removed or repaired is noticed as well."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    def state(self) -> Hashable:
        try:
            stat = self._path.stat()
        except OSError:
            self._close()
            storefile.require(self._path)
            raise
        if self._connection is None or self._file != (stat.st_dev, stat.st_ino):
            self._close()
            self._connection = storefile.read(self._path)
            self._connection.row_factory = sqlite3.Row
            self._file = (stat.st_dev, stat.st_ino)
        try:
            version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error as error:
            self._close()
            raise storefile.fault(error, self._path) from error
        # Size and time as well: a file opened as immutable has no changing data version.
        return (*self._file, stat.st_size, stat.st_mtime_ns, version)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        assert self._connection is not None
        try:
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                # Also ends what was not read to the end.
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            self._close()
            raise storefile.fault(error, self._path) from error

    def _ask(self, sql: str, values: Mapping[str, Any]) -> Iterator[Row]:
        assert self._connection is not None
        return iter(self._connection.execute(sql, values))

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class ServerReader(StoreReader):
    """A store in PostgreSQL: asked anew each time."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._engine: Any = None
        self._connection: Any = None

    def state(self) -> None:
        from autotune import database

        if self._engine is None:
            self._engine, self._name = database.connect(self._url, read_only=True)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        from autotune import database

        with database.faults(self._name), self._engine.connect() as self._connection:
            yield

    def _ask(self, sql: str, values: Mapping[str, Any]) -> Iterator[Row]:
        from sqlalchemy import text

        return iter(self._connection.execute(text(sql), dict(values)).mappings())
