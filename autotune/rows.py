"""How problems, devices and variants become rows of the store, and rows measurements."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, select
from sqlalchemy.dialects import postgresql, sqlite

from autotune import schema, storefile
from autotune.schema import GENERATED
from autotune.types import Conditions, Config, Device, Measurement, Outcome, Problem, Stage

Row = dict[str, Any]
"""Column name to value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRow:
    """A variant as the store keeps it.

    Attributes:
        compiler: Name and version, for example `nvrtc 13.5`; of a vendor's library, its version.
        registers, shared_bytes, spill_bytes, stack_bytes, cubin_sha256: None when there is no
            binary.
        provider: `generated`, or the name of a vendor's library, whose config is empty.
    """

    config: Config
    arch: int
    template_sha256: str = ""
    source_sha256: str = ""
    compiler: str = ""
    registers: int | None = None
    shared_bytes: int | None = None
    spill_bytes: int | None = None
    stack_bytes: int | None = None
    cubin_sha256: str | None = None
    provider: str = GENERATED

    @classmethod
    def vendor(cls, library: str, version: str, arch: int) -> VariantRow:
        """The vendor's own kernel, for example of `cublas`."""
        return cls(config=Config({}), arch=arch, compiler=version, provider=library)


def now() -> str:
    """The time, ISO 8601 in UTC, to the millisecond: the form of every time in the store."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def package_version() -> str:
    """Version of the installed package; empty in a checkout that is not installed."""
    try:
        return metadata.version("autotune-cuda")
    except metadata.PackageNotFoundError:
        return ""


Table = type[schema.Base]


def insert(connection: Connection, table: Table, values: Row) -> Any:
    """The dialect's own INSERT, which alone knows ON CONFLICT; both spell it alike."""
    insert: Any = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    return insert(table.__table__).values(values)


def add(connection: Connection, table: Table, values: Row) -> int:
    inserted = connection.execute(insert(connection, table, values))
    key = inserted.inserted_primary_key
    assert key is not None
    return int(key[0])


def get_or_add(connection: Connection, table: Table, key: Row, others: Row | None = None) -> int:
    """The id of the row with these values under a UNIQUE constraint, added when it is new."""
    columns = table.__table__.c
    found = select(columns.id).where(*(columns[name] == value for name, value in key.items()))
    id_ = connection.scalar(found)
    if id_ is None:
        adding = insert(connection, table, {**key, **(others or {})})
        connection.execute(adding.on_conflict_do_nothing())
        id_ = connection.scalar(found)
    assert isinstance(id_, int)
    return id_


def device_ids(connection: Connection, device: Device) -> list[int]:
    """The rows of a device's model, oldest first; rarely more than one."""
    table = schema.Device
    rows = connection.execute(
        select(table.id, table.arch, table.sm_count, table.memory_bytes)
        .where(table.arch == device.arch, table.sm_count == device.sm_count)
        .order_by(table.id)
    )
    model = (device.arch, device.sm_count, device.memory_bytes)
    return [
        row.id
        for row in rows
        if storefile.same_model(model, (row.arch, row.sm_count, row.memory_bytes))
    ]


def device_id(connection: Connection, device: Device) -> int:
    values: Row = {
        name: getattr(device, name)
        for name in schema.Device.__table__.columns.keys()  # noqa: SIM118
        if name not in ("id", "present")
    }
    values["present"] = int(device.is_present)
    ids = device_ids(connection, device)
    if not ids:
        key = {name: values.pop(name) for name in ("arch", "sm_count", "memory_bytes")}
        return get_or_add(connection, schema.Device, key, values)
    if device.is_present:
        # The row may be of the typical device that predictions assumed before this one came.
        table = schema.Device
        connection.execute(
            sa.update(table).where(table.id == ids[0], table.present == 0).values(values)
        )
    return ids[0]


def problem_id(connection: Connection, problem: Problem) -> int:
    columns = problem.columns()
    known = set(schema.Problem.__table__.columns.keys())
    plain = {name: value for name, value in columns.items() if name in known}
    return get_or_add(
        connection,
        schema.Problem,
        {"key": problem.key},
        {
            **plain,
            "kernel": problem.kernel,
            "shape": problem.shape,
            "regime": storefile.regime(problem),
            "flops": float(problem.flops),
            "bytes_min": float(problem.bytes_min),
            "columns_json": json.dumps(dict(columns), separators=(",", ":")),
        },
    )


_BINARY = ("registers", "shared_bytes", "spill_bytes", "stack_bytes", "cubin_sha256")


def variant_id(connection: Connection, problem_id: int, variant: VariantRow) -> int:
    key: Row = {
        "problem_id": problem_id,
        "provider": variant.provider,
        "arch": variant.arch,
        "config_sha256": variant.config.sha256,
        "template_sha256": variant.template_sha256,
        "source_sha256": variant.source_sha256,
        "compiler": variant.compiler,
    }
    binary: Row = {name: getattr(variant, name) for name in _BINARY}
    name = variant.provider if not variant.config else key["config_sha256"][:12]
    others = {"name": name, "config_json": variant.config.json, **binary}
    id_ = get_or_add(connection, schema.Variant, key, others)
    if variant.cubin_sha256 is not None:
        # It may have been recorded first when its compiling timed out.
        table = schema.Variant
        connection.execute(
            sa.update(table).where(table.id == id_, table.cubin_sha256.is_(None)).values(binary)
        )
    return id_


def roofline_ns(run: Any) -> float:
    """Time in which the device cannot possibly be done: the arithmetic at its peak rate, or the
    memory traffic that its L2 cannot hold at its peak bandwidth. 0 where the device's rates are
    not known."""
    arithmetic = run.flops / (run.fp32_tflops * 1e3) if run.fp32_tflops else 0.0
    traffic = max(0.0, run.bytes_min - run.l2_bytes)
    return float(max(arithmetic, traffic / run.bandwidth_gbs if run.bandwidth_gbs else 0.0))


def as_measurement(row: Any) -> Measurement:
    return Measurement(
        outcome=Outcome(row.outcome),
        stage=Stage(row.stage),
        message=row.message,
        samples=row.samples,
        median_ns=row.median_ns,
        p20_ns=row.p20_ns,
        p80_ns=row.p80_ns,
        min_ns=row.min_ns,
        low_ns=row.low_ns,
        high_ns=row.high_ns,
        max_error=row.max_error,
        checks=row.checks,
        cold_l2=bool(row.cold_l2),
        door=row.door,
        truncated=bool(row.truncated),
        conditions=Conditions(
            **{field.name: getattr(row, field.name) for field in fields(Conditions)}
        ),
        measured_at=row.measured_at,
    )
