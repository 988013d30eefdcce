"""The results store: facts appended by a search, the confirmed best, and questions about both.

SQLite by default, PostgreSQL by URL. Every call is one short transaction, committed when it
returns: whatever ends a search, each trial that was recorded stays. `autotune.storefile` opens
files, `autotune.schema` has the tables, db/README.md describes every column.
"""

from __future__ import annotations

import os
import platform
import shlex
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, func, select

from autotune import archs, database, rows, schema, views
from autotune.confirm import Confirmation, confirm
from autotune.database import describe, export, upgrade
from autotune.errors import NotFoundError, StoreError, UsageError
from autotune.rows import Row, VariantRow
from autotune.schema import GENERATED, RunStatus
from autotune.types import (
    Config,
    Device,
    Evidence,
    Measurement,
    Outcome,
    Problem,
    Stage,
)

__all__ = [
    "Confirmation",
    "StaticFailure",
    "Store",
    "Trial",
    "VariantRow",
    "describe",
    "export",
    "upgrade",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A recorded trial, for a search that resumes."""

    id: int
    config: Config
    measurement: Measurement
    predicted_ns: float | None
    cubin_sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFailure:
    """Why a config fails whatever the shape."""

    outcome: Outcome
    message: str


class Store:
    """An open results store; a context manager.

    Threads may share one. A process that forks opens its own.
    """

    def __init__(self, engine: Engine, place: Path | str, *, read_only: bool) -> None:
        self.place = place
        """Absolute path of the file, or URL."""
        self.read_only = read_only
        self._engine = engine
        self._writer = engine.execution_options(immediate=True)

    @classmethod
    def open(cls, location: str | Path | None = None, *, read_only: bool = False) -> Self:
        """Opens a store. One that is to be written is created where there is none.

        Args:
            location: A path, a `sqlite:///` or `postgresql://` URL; None for the user's own.
            read_only: Never create or change anything.

        Raises:
            NotFoundError: `read_only`, and no store there or an empty one.
            SchemaError: a store of an older or newer schema; it is left as it is.
            StoreError: a folder, not writable, not a results store, damaged.
            MissingExtraError: PostgreSQL without the extra `postgres`.
        """
        engine, place = database.connect(location, read_only=read_only)
        return cls(engine, place, read_only=read_only)

    def close(self) -> None:
        """Closes every connection."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # *** recording ***

    def begin_run(
        self,
        problem: Problem,
        device: Device,
        *,
        compiler: str,
        sampler: str = "",
        seed: int | None = None,
        budget: str = "",
        starts: str = "",
        argv: Sequence[str] = (),
        git_sha: str = "",
    ) -> int:
        """Records that a search of one problem on one device starts.

        Runs of this machine whose process is gone are marked as interrupted on the way.

        Args:
            device: A live one, or the typical one of an architecture that is not here.
            budget: As the user wrote it.
            starts: What it begins with, by source.
            argv: The command that was run, so that it can be shown again.
            git_sha: Commit of the checkout that runs; empty for an installed package.

        Returns:
            The run's id.
        """
        with self.writing() as connection:
            self._close_abandoned(connection)
            environment = {
                "driver": device.driver_version,
                "compiler": compiler,
                "autotune_version": rows.package_version(),
                "git_sha": git_sha,
                "python": platform.python_version(),
                "os": platform.platform(),
            }
            run = {
                "device_id": rows.device_id(connection, device),
                "environment_id": rows.get_or_add(connection, schema.Environment, environment),
                "problem_id": rows.problem_id(connection, problem),
                "status": RunStatus.running,
                "started_at": rows.now(),
                "sampler": sampler,
                "seed": seed,
                "budget": budget,
                "starts": starts,
                "argv": shlex.join(argv),
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "device_uuid": device.uuid,
                "device_bus_id": device.bus_id,
            }
            return rows.add(connection, schema.Run, run)

    def end_run(self, run_id: int, status: RunStatus | str) -> None:
        """Records how a run ended: `finished`, `interrupted` or `truncated`.

        Raises:
            NotFoundError: no such run.
        """
        with self.writing() as connection:
            done = connection.execute(
                sa.update(schema.Run)
                .where(schema.Run.id == run_id)
                .values(status=RunStatus(status), finished_at=rows.now())
            )
            if not done.rowcount:
                raise NotFoundError(f"results store {self.place} has no run {run_id}")

    def record(
        self,
        run_id: int,
        variant: VariantRow,
        measurement: Measurement,
        predicted_ns: float | None = None,
    ) -> int:
        """Appends one trial of a run.

        A time below the roofline of the device is kept, with the bound beside it, and can never
        be best.

        Args:
            predicted_ns: What the model expected; of a trial of the stage `predict` the answer.

        Returns:
            The measurement's id.

        Raises:
            NotFoundError: no such run.
            StoreError: a measured trial on a device that is not present, or a kernel of another
                architecture than the run's device.
        """
        with self.writing() as connection:
            run = connection.execute(
                select(
                    schema.Run.problem_id,
                    schema.Device.arch,
                    schema.Device.name,
                    schema.Device.present,
                    schema.Device.fp32_tflops,
                    schema.Device.bandwidth_gbs,
                    schema.Device.l2_bytes,
                    schema.Problem.flops,
                    schema.Problem.bytes_min,
                )
                .join(schema.Device, schema.Run.device_id == schema.Device.id)
                .join(schema.Problem, schema.Run.problem_id == schema.Problem.id)
                .where(schema.Run.id == run_id)
            ).one_or_none()
            if run is None:
                raise NotFoundError(f"results store {self.place} has no run {run_id}")
            if variant.arch != run.arch:
                raise StoreError(
                    f"a kernel for sm_{variant.arch} cannot be recorded in run {run_id}, which is "
                    f"for sm_{run.arch} ({run.name})"
                )
            predicted = measurement.stage is Stage.predict
            if measurement.median_ns is not None and (predicted or not run.present):
                raise StoreError(
                    f"run {run_id} is for {run.name}, which was not timed: a prediction goes into "
                    "predicted_ns at the stage predict"
                )
            evidence = Evidence.predicted if predicted else Evidence.measured
            conditions = measurement.conditions
            return rows.add(
                connection,
                schema.Measurement,
                {
                    "run_id": run_id,
                    "variant_id": rows.variant_id(connection, run.problem_id, variant),
                    "outcome": measurement.outcome,
                    "stage": measurement.stage,
                    "evidence": evidence,
                    "message": measurement.message,
                    "median_ns": measurement.median_ns,
                    "p20_ns": measurement.p20_ns,
                    "p80_ns": measurement.p80_ns,
                    "min_ns": measurement.min_ns,
                    "low_ns": measurement.low_ns,
                    "high_ns": measurement.high_ns,
                    "samples": measurement.samples,
                    "predicted_ns": predicted_ns,
                    "roofline_ns": rows.roofline_ns(run),
                    "max_error": measurement.max_error,
                    "checks": measurement.checks,
                    "door": measurement.door,
                    "cold_l2": int(measurement.cold_l2),
                    "truncated": int(measurement.truncated),
                    **{field.name: getattr(conditions, field.name) for field in fields(conditions)},
                    "measured_at": measurement.measured_at or rows.now(),
                },
            )

    def confirm(self, run_id: int, measurement_ids: Sequence[int]) -> Confirmation | None:
        """Decides the best config of a run's problem and device from its confirm round.

        The fastest candidate wins, but an incumbent keeps its place while it ties. An incumbent
        that failed in this round, or that an older template made, goes. One that the round did
        not time (another search wrote it meanwhile) goes only if its own time is beaten.

        Args:
            measurement_ids: Candidates of the stage `confirm`, one a config; of a config that
                comes twice the later one counts.

        Returns:
            None when no candidate may be best.

        Raises:
            NotFoundError: no such run.
        """
        with self.writing() as connection:
            return confirm(connection, run_id, measurement_ids)

    # *** what a search asks ***

    def trials(
        self, problem: Problem, device: Device, template_sha256: str, compiler: str
    ) -> list[Trial]:
        """Every recorded trial of our own kernels that still counts, in the order of recording.

        Those of another template, compiler or driver do not.
        """
        statement = (
            select(
                schema.Measurement,
                schema.Variant.config_json,
                schema.Variant.cubin_sha256,
            )
            .join(schema.Variant, schema.Measurement.variant_id == schema.Variant.id)
            .join(schema.Problem, schema.Variant.problem_id == schema.Problem.id)
            .join(schema.Run, schema.Measurement.run_id == schema.Run.id)
            .join(schema.Environment, schema.Run.environment_id == schema.Environment.id)
            .where(
                schema.Problem.key == problem.key,
                schema.Environment.driver == device.driver_version,
                schema.Variant.provider == GENERATED,
                schema.Variant.template_sha256 == template_sha256,
                schema.Variant.compiler == compiler,
            )
            .order_by(schema.Measurement.id)
        )
        with self.reading() as connection:
            ids = rows.device_ids(connection, device)
            found = connection.execute(statement.where(schema.Run.device_id.in_(ids))).all()
        return [
            Trial(
                id=row.id,
                config=Config.from_json(row.config_json),
                measurement=rows.as_measurement(row),
                predicted_ns=row.predicted_ns,
                cubin_sha256=row.cubin_sha256,
            )
            for row in found
        ]

    def static_failures(
        self, kernel: str, arch: int, template_sha256: str, compiler: str
    ) -> dict[Config, StaticFailure]:
        """Configs that fail for every shape, and why.

        Those are the ones that did not compile, and those that compiled and were infeasible by
        their registers, spills or shared memory. What a constraint refuses has no binary, and may
        fit another shape.
        """
        statement = (
            select(
                schema.Variant.config_json, schema.Measurement.outcome, schema.Measurement.message
            )
            .join(schema.Variant, schema.Measurement.variant_id == schema.Variant.id)
            .join(schema.Problem, schema.Variant.problem_id == schema.Problem.id)
            .where(
                schema.Problem.kernel == kernel,
                schema.Variant.arch == arch,
                schema.Variant.template_sha256 == template_sha256,
                schema.Variant.compiler == compiler,
                schema.Variant.provider == GENERATED,
                schema.Measurement.outcome.in_([Outcome.compile_error, Outcome.compile_timeout])
                | (
                    (schema.Measurement.outcome == Outcome.infeasible)
                    & schema.Variant.registers.is_not(None)
                ),
            )
            .order_by(schema.Measurement.id)
        )
        with self.reading() as connection:
            return {
                Config.from_json(row.config_json): StaticFailure(
                    outcome=Outcome(row.outcome), message=row.message
                )
                for row in connection.execute(statement)
            }

    def best(self, problem: Problem, device: Device) -> Row | None:
        """The row of the view `best_config` for a problem on a device; None when there is none."""
        view = views.best_config.c
        with self.reading() as connection:
            row = connection.execute(
                select(views.best_config)
                .where(view.problem == problem.key)
                .where(view.device_id.in_(rows.device_ids(connection, device)))
                .order_by(view.id)
                .limit(1)
            ).one_or_none()
        return None if row is None else dict(row._mapping)

    def device_uuid(self, measurement_id: int) -> str:
        """UUID of the device that a measurement was made on; empty where it is not known."""
        with self.reading() as connection:
            found = connection.scalar(
                select(schema.Run.device_uuid)
                .join(schema.Measurement, schema.Measurement.run_id == schema.Run.id)
                .where(schema.Measurement.id == measurement_id)
            )
        return found or ""

    # *** what people ask ***

    def results(self, **filters: Any) -> list[Row]:
        """Rows of the view `results`: every trial, all names joined.

        Args:
            **filters: `arch` in any spelling; `device`, a part of its name; `shape`, `kernel`,
                `provider`, `outcome`, `stage`, `evidence`; `sort`, a column, from high to low
                with a `-` before it; `limit`, a number of rows.

        Raises:
            UsageError: a filter or column that the view does not have.
        """
        return self._rows(views.results, **filters)

    def failures(self, **filters: Any) -> list[Row]:
        """Rows of the view `failures`; arguments as for `results`."""
        return self._rows(views.failures, **filters)

    def bests(self, **filters: Any) -> list[Row]:
        """Rows of the view `best_config`; arguments as for `results`."""
        return self._rows(views.best_config, **filters)

    def speedups(self, **filters: Any) -> list[Row]:
        """Rows of the view `speedup_vs_vendor`; arguments as for `results`."""
        return self._rows(views.speedup_vs_vendor, **filters)

    def runs(self, **filters: Any) -> list[Row]:
        """A row for each run, with its budget, its starts and what came of it; arguments as for
        `results`."""
        return self._rows(views.runs, **filters)

    def _rows(
        self,
        view: sa.FromClause,
        *,
        sort: str | None = None,
        limit: int | None = None,
        **filters: Any,
    ) -> list[Row]:
        statement = select(view).limit(limit)
        for name, value in filters.items():
            column = _column(view, name)
            if value is None:
                continue
            if name == "device":
                statement = statement.where(
                    func.lower(column).contains(str(value).lower(), autoescape=True)
                )
            else:
                wanted = archs.parse(value) if name == "arch" else value
                statement = statement.where(column == wanted)
        if sort:
            column = _column(view, sort.removeprefix("-"))
            order = column.desc() if sort.startswith("-") else column.asc()
            statement = statement.order_by(order.nulls_last())
        with self.reading() as connection:
            found = connection.execute(statement.order_by(view.c.id))
            return [dict(row._mapping) for row in found]

    def _close_abandoned(self, connection: Connection) -> None:
        running = connection.execute(
            select(schema.Run.id, schema.Run.pid).where(
                schema.Run.status == RunStatus.running, schema.Run.host == socket.gethostname()
            )
        ).all()
        for row in running:
            if not _is_alive(row.pid):
                connection.execute(
                    sa.update(schema.Run)
                    .where(schema.Run.id == row.id)
                    .values(status=RunStatus.interrupted)
                )

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that reads; database errors become a `StoreError`."""
        with database.faults(self.place), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that has the write lock; it is undone when the block raises."""
        with database.faults(self.place), self._writer.begin() as connection:
            yield connection


def _column(view: sa.FromClause, name: str) -> sa.ColumnElement[Any]:
    if name not in view.c:
        raise UsageError(
            f"{view.description} has no column {name!r}; possible are {', '.join(view.c.keys())}"
        )
    return view.c[name]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
