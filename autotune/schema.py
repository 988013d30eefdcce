"""The tables of the results store.

Facts are appended: `device environment problem variant run measurement`. `best` and `tie` are
derived from them by the confirm round. db/README.md describes every column; `autotune.views` has
the views. A change to either needs a migration in db/migrations; a test compares them.
"""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import (
    REAL,
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects.postgresql import DOUBLE_PRECISION
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeEngine

from autotune.types import Evidence, Outcome, Stage

GENERATED = "generated"
"""`variant.provider` of our own kernels; a vendor's library stands there by its name."""

# STRICT tables of SQLite know INTEGER, REAL and TEXT only; PostgreSQL's types of these names hold
# 32 bits.
Whole = Integer().with_variant(BigInteger(), "postgresql")
Double: TypeEngine[float] = REAL().with_variant(DOUBLE_PRECISION(), "postgresql")
_STRICT = {"sqlite_strict": True}


class RunStatus(StrEnum):
    """How a run stands. `running` with a dead process is an abandoned one."""

    running = "running"
    finished = "finished"
    interrupted = "interrupted"
    truncated = "truncated"
    """the budget ended before the space or the confirm round did"""


class Origin(StrEnum):
    """Where a best config comes from."""

    local = "local"
    seed = "seed"
    imported = "import"


class Base(DeclarativeBase):
    type_annotation_map = {int: Whole, float: Double, str: Text()}  # noqa: RUF012 (SQLAlchemy's)
    metadata = MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "ix": "ix_%(table_name)s_%(column_0_name)s",
        }
    )


def _one_of(column: str, values: type[StrEnum]) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=column)


def _flag(column: str) -> CheckConstraint:
    return CheckConstraint(f"{column} IN (0, 1)", name=column)


class Device(Base):
    """A model of GPU: architecture, number of SMs and memory are what it is; the name informs."""

    __tablename__ = "device"
    __table_args__ = (
        UniqueConstraint("arch", "sm_count", "memory_bytes"),
        _flag("present"),
        _STRICT,
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    arch: Mapped[int]
    sm_count: Mapped[int]
    memory_bytes: Mapped[int]
    present: Mapped[int]
    cores_per_sm: Mapped[int]
    l2_bytes: Mapped[int]
    sm_clock_khz: Mapped[int]
    memory_clock_khz: Mapped[int]
    memory_bus_bits: Mapped[int]
    shared_bytes_per_block: Mapped[int]
    shared_bytes_per_sm: Mapped[int]
    registers_per_sm: Mapped[int]
    fp32_tflops: Mapped[float]
    bandwidth_gbs: Mapped[float]


class Environment(Base):
    """The software around a run. Text that is not known is empty, so that rows stay unique."""

    __tablename__ = "environment"
    __table_args__ = (
        UniqueConstraint("driver", "compiler", "autotune_version", "git_sha", "python", "os"),
        _STRICT,
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    driver: Mapped[str]
    compiler: Mapped[str]
    autotune_version: Mapped[str]
    git_sha: Mapped[str]
    python: Mapped[str]
    os: Mapped[str]


class Problem(Base):
    """What is computed. Columns of `Problem.columns()` that stand here are filled by name; the
    family's whole set is in `columns_json`."""

    __tablename__ = "problem"
    __table_args__ = (
        UniqueConstraint("key"),
        # The order in which a look-up walks away from a size.
        Index(None, "kernel", "regime", "flops"),
        CheckConstraint("json_valid(columns_json)", name="columns_json").ddl_if("sqlite"),
        _STRICT,
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str]
    kernel: Mapped[str]
    shape: Mapped[str]
    regime: Mapped[str]
    flops: Mapped[float]
    bytes_min: Mapped[float]
    m: Mapped[int | None]
    n: Mapped[int | None]
    k: Mapped[int | None]
    layout: Mapped[str | None]
    lda: Mapped[int | None]
    ldb: Mapped[int | None]
    ldc: Mapped[int | None]
    batch: Mapped[int | None]
    stride_a: Mapped[int | None]
    stride_b: Mapped[int | None]
    stride_c: Mapped[int | None]
    beta_zero: Mapped[int | None]
    align_a: Mapped[int | None]
    align_b: Mapped[int | None]
    align_c: Mapped[int | None]
    columns_json: Mapped[str]


class Variant(Base):
    """A config rendered and compiled for a problem and an architecture; or a vendor's kernel."""

    __tablename__ = "variant"
    __table_args__ = (
        UniqueConstraint(
            "problem_id",
            "provider",
            "arch",
            "config_sha256",
            "template_sha256",
            "source_sha256",
            "compiler",
        ),
        # What did not compile, whatever the shape.
        Index(None, "template_sha256", "arch", "compiler"),
        CheckConstraint("json_valid(config_json)", name="config_json").ddl_if("sqlite"),
        _STRICT,
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    problem_id: Mapped[int] = mapped_column(ForeignKey("problem.id"))
    provider: Mapped[str]
    arch: Mapped[int]
    config_json: Mapped[str]
    config_sha256: Mapped[str]
    template_sha256: Mapped[str]
    source_sha256: Mapped[str]
    compiler: Mapped[str]
    registers: Mapped[int | None]
    shared_bytes: Mapped[int | None]
    spill_bytes: Mapped[int | None]
    stack_bytes: Mapped[int | None]
    cubin_sha256: Mapped[str | None]


class Run(Base):
    """One search over one problem on one device."""

    __tablename__ = "run"
    __table_args__ = (_one_of("status", RunStatus), _STRICT)

    id: Mapped[int] = mapped_column(primary_key=True)
    device_id: Mapped[int] = mapped_column(ForeignKey("device.id"), index=True)
    environment_id: Mapped[int] = mapped_column(ForeignKey("environment.id"))
    problem_id: Mapped[int] = mapped_column(ForeignKey("problem.id"), index=True)
    status: Mapped[str]
    started_at: Mapped[str]
    finished_at: Mapped[str | None]
    sampler: Mapped[str]
    seed: Mapped[int | None]
    budget: Mapped[str]
    starts: Mapped[str] = mapped_column(server_default="")
    argv: Mapped[str]
    host: Mapped[str]
    pid: Mapped[int]
    device_uuid: Mapped[str]
    device_bus_id: Mapped[str]


class Measurement(Base):
    """What one trial gave: a time, a prediction, or a failure with its class and message."""

    __tablename__ = "measurement"
    __table_args__ = (
        _one_of("outcome", Outcome),
        _one_of("stage", Stage),
        _one_of("evidence", Evidence),
        _flag("cold_l2"),
        _flag("truncated"),
        CheckConstraint("(stage = 'predict') = (evidence = 'predicted')", name="predict"),
        CheckConstraint("evidence = 'measured' OR median_ns IS NULL", name="no_time"),
        CheckConstraint(
            "outcome <> 'ok' OR evidence = 'predicted' OR median_ns IS NOT NULL", name="ok_has_time"
        ),
        CheckConstraint("median_ns > 0", name="median_ns"),
        _STRICT,
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"), index=True)
    variant_id: Mapped[int] = mapped_column(ForeignKey("variant.id"), index=True)
    outcome: Mapped[str]
    stage: Mapped[str]
    evidence: Mapped[str]
    message: Mapped[str]
    median_ns: Mapped[float | None]
    p20_ns: Mapped[float | None]
    p80_ns: Mapped[float | None]
    min_ns: Mapped[float | None]
    low_ns: Mapped[float | None]
    high_ns: Mapped[float | None]
    samples: Mapped[int]
    predicted_ns: Mapped[float | None]
    roofline_ns: Mapped[float]
    max_error: Mapped[float | None]
    checks: Mapped[str]
    door: Mapped[str]
    cold_l2: Mapped[int]
    truncated: Mapped[int]
    sm_clock_mhz: Mapped[int | None]
    memory_clock_mhz: Mapped[int | None]
    temperature_c: Mapped[int | None]
    power_w: Mapped[float | None]
    throttle_reasons: Mapped[str | None]
    measured_at: Mapped[str]


class Best(Base):
    """The confirmed best config of a problem on a device."""

    __tablename__ = "best"
    __table_args__ = (
        UniqueConstraint("problem_id", "device_id"),
        _one_of("origin", Origin),
        _STRICT,
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    problem_id: Mapped[int] = mapped_column(ForeignKey("problem.id"))
    device_id: Mapped[int] = mapped_column(ForeignKey("device.id"), index=True)
    variant_id: Mapped[int] = mapped_column(ForeignKey("variant.id"), index=True)
    measurement_id: Mapped[int] = mapped_column(ForeignKey("measurement.id"), index=True)
    origin: Mapped[str]
    updated_at: Mapped[str]


class Tie(Base):
    """A confirmed measurement that the best config's round could not tell from the fastest."""

    __tablename__ = "tie"
    __table_args__ = (UniqueConstraint("best_id", "measurement_id"), _STRICT)

    id: Mapped[int] = mapped_column(primary_key=True)
    best_id: Mapped[int] = mapped_column(ForeignKey("best.id"))
    measurement_id: Mapped[int] = mapped_column(ForeignKey("measurement.id"))
