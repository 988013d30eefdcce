"""The views of the results store, and the guard of what may be best.

`best_config`, `failures`, `speedup_vs_vendor` and `results` answer the common questions with all
names joined. `confirmed` says which measurements may be best; triggers on `best` ask it, so that
no other program can write a best that was not confirmed.
"""

from __future__ import annotations

from sqlalchemy import DDL, ColumnElement, SQLColumnExpression, case, event, func, select
from sqlalchemy.orm import aliased
from sqlalchemy.schema import CreateView

from autotune.schema import (
    GENERATED,
    Base,
    Best,
    Device,
    Double,
    Environment,
    Measurement,
    Problem,
    Run,
    Tie,
    Variant,
)


def _ratio(
    above: SQLColumnExpression[float], below: SQLColumnExpression[float | None]
) -> ColumnElement[float]:
    # SQLAlchemy's `/` guards against integer division with `+ 0.0`; these are never integers.
    return above.op("/", precedence=8, return_type=Double)(below)


_TFLOPS = _ratio(Problem.flops, Measurement.median_ns * 1000)

JOINED = (
    Measurement.__table__.join(Run.__table__, Measurement.run_id == Run.id)
    .join(Variant.__table__, Measurement.variant_id == Variant.id)
    .join(Problem.__table__, Variant.problem_id == Problem.id)
    .join(Device.__table__, Run.device_id == Device.id)
    .join(Environment.__table__, Run.environment_id == Environment.id)
)

_PROBLEM = (
    Problem.kernel,
    Problem.shape,
    Problem.m,
    Problem.n,
    Problem.k,
    Problem.layout,
    Problem.batch,
    Problem.key.label("problem"),
)
_DEVICE = (
    Device.arch,
    Device.name.label("device"),
    Device.sm_count,
    Device.memory_bytes,
)
_TIMES = (
    Measurement.median_ns,
    Measurement.p20_ns,
    Measurement.p80_ns,
    Measurement.low_ns,
    Measurement.high_ns,
    Measurement.samples,
    _TFLOPS.label("tflops"),
    _ratio(100 * _TFLOPS, func.nullif(Device.fp32_tflops, 0)).label("percent_of_peak"),
)
_VARIANT = (
    Variant.config_json,
    Variant.registers,
    Variant.shared_bytes,
    Variant.spill_bytes,
    Variant.stack_bytes,
)
_PROVENANCE = (
    Environment.driver,
    Variant.compiler,
    Environment.autotune_version,
    Variant.config_sha256,
    Variant.template_sha256,
    Variant.source_sha256,
    Variant.cubin_sha256,
)

results = CreateView(
    select(
        Measurement.id,
        *_PROBLEM,
        *_DEVICE,
        Variant.provider,
        Measurement.outcome,
        Measurement.stage,
        Measurement.evidence,
        *_TIMES,
        Measurement.predicted_ns,
        Measurement.roofline_ns,
        *_VARIANT,
        Measurement.message,
        Measurement.max_error,
        Measurement.checks,
        Measurement.door,
        Measurement.cold_l2,
        Measurement.truncated,
        Measurement.sm_clock_mhz,
        Measurement.memory_clock_mhz,
        Measurement.temperature_c,
        Measurement.power_w,
        Measurement.throttle_reasons,
        *_PROVENANCE,
        Measurement.variant_id,
        Measurement.run_id,
        Measurement.measured_at,
    ).select_from(JOINED),
    "results",
    metadata=Base.metadata,
).table
"""Every measurement, all names joined."""

failures = CreateView(
    select(
        Measurement.id,
        *_PROBLEM,
        *_DEVICE,
        Variant.provider,
        Measurement.outcome,
        Measurement.stage,
        Measurement.message,
        *_VARIANT,
        Measurement.max_error,
        Measurement.door,
        *_PROVENANCE,
        Measurement.variant_id,
        Measurement.run_id,
        Measurement.measured_at,
    )
    .select_from(JOINED)
    .where(Measurement.outcome != "ok"),
    "failures",
    metadata=Base.metadata,
).table
"""Every trial that failed, with its class and message."""

best_config = CreateView(
    select(
        Best.id,
        *_PROBLEM,
        *_DEVICE,
        *_TIMES,
        *_VARIANT,
        select(func.count())
        .select_from(Tie)
        .where(Tie.best_id == Best.id)
        .scalar_subquery()
        .label("ties"),
        Measurement.door,
        Best.origin,
        *_PROVENANCE,
        Best.problem_id,
        Best.device_id,
        Best.variant_id,
        Best.measurement_id,
        Measurement.run_id,
        Measurement.measured_at,
        Best.updated_at,
    ).select_from(JOINED.join(Best.__table__, Best.measurement_id == Measurement.id)),
    "best_config",
    metadata=Base.metadata,
).table
"""The confirmed best of every problem and device."""

_vendor_variant = aliased(Variant, name="vendor_variant")
_vendor_time = aliased(Measurement, name="vendor_measurement")
_vendor = (
    select(
        _vendor_time.run_id,
        _vendor_variant.provider,
        func.min(_vendor_time.median_ns).label("median_ns"),
    )
    .join(_vendor_variant, _vendor_time.variant_id == _vendor_variant.id)
    .where(
        _vendor_variant.provider != GENERATED,
        _vendor_time.stage == "confirm",
        _vendor_time.outcome == "ok",
    )
    .group_by(_vendor_time.run_id, _vendor_variant.provider)
    .subquery("vendor_time")
)

speedup_vs_vendor = CreateView(
    select(
        best_config.c.id,
        *(best_config.c[name] for name in (*(c.key for c in _PROBLEM), *(c.key for c in _DEVICE))),
        best_config.c.median_ns,
        best_config.c.tflops,
        _vendor.c.provider.label("vendor"),
        _vendor.c.median_ns.label("vendor_ns"),
        _ratio(best_config.c.tflops * best_config.c.median_ns, _vendor.c.median_ns).label(
            "vendor_tflops"
        ),
        _ratio(_vendor.c.median_ns, best_config.c.median_ns).label("speedup"),
        best_config.c.config_json,
        best_config.c.run_id,
        best_config.c.measured_at,
    ).join_from(best_config, _vendor, _vendor.c.run_id == best_config.c.run_id),
    "speedup_vs_vendor",
    metadata=Base.metadata,
).table
"""Best configs beside the vendor's kernel that the same confirm round timed."""

confirmed = CreateView(
    select(
        Measurement.id.label("measurement_id"),
        Measurement.variant_id,
        Variant.problem_id,
        Run.device_id,
        Measurement.run_id,
        Measurement.median_ns,
        Variant.config_sha256,
        Variant.template_sha256,
    )
    .select_from(JOINED)
    .where(
        Measurement.stage == "confirm",
        Measurement.outcome == "ok",
        Measurement.evidence == "measured",
        Measurement.truncated == 0,
        Measurement.median_ns >= Measurement.roofline_ns,
        Variant.provider == GENERATED,
        Variant.arch == Device.arch,
        Variant.problem_id == Run.problem_id,
        Device.present == 1,
    ),
    "confirmed",
    metadata=Base.metadata,
).table
"""The measurements that may be best: the one place where that is decided."""

_OWN = (Variant.provider == GENERATED) & (Measurement.stage != "confirm")
_TIMED = _OWN & (Measurement.outcome == "ok") & (Measurement.truncated == 0)

runs = (
    select(
        Run.id,
        *_PROBLEM,
        *_DEVICE,
        Run.status,
        Run.started_at,
        Run.finished_at,
        Run.sampler,
        Run.seed,
        Run.budget,
        Run.starts,
        func.count(case((_OWN, Measurement.id))).label("trials"),
        func.count(case((_TIMED, Measurement.id))).label("ok"),
        func.min(
            case((_TIMED, func.coalesce(Measurement.median_ns, Measurement.predicted_ns)))
        ).label("best_ns"),
        func.max(Measurement.measured_at).label("last_at"),
        Environment.driver,
        Environment.compiler,
        Environment.autotune_version,
        Run.argv,
        Run.host,
    )
    .select_from(
        Run.__table__.join(Problem.__table__, Run.problem_id == Problem.id)
        .join(Device.__table__, Run.device_id == Device.id)
        .join(Environment.__table__, Run.environment_id == Environment.id)
        .outerjoin(Measurement.__table__, Measurement.run_id == Run.id)
        .outerjoin(Variant.__table__, Measurement.variant_id == Variant.id)
    )
    .group_by(Run.id, Problem.id, Device.id, Environment.id)
    .subquery("runs")
)
"""Every run with the number of its trials, those with a whole time, and the fastest of these. Asked
like a view, but no part of the schema."""

VIEWS = (results, failures, best_config, speedup_vs_vendor, confirmed)

_REFUSAL = (
    "only a verified time of the confirm round, possible on that device, can be best "
    "(see the view confirmed)"
)
_IS_CONFIRMED = (
    "EXISTS (SELECT 1 FROM confirmed WHERE measurement_id = NEW.measurement_id AND "
    "variant_id = NEW.variant_id AND problem_id = NEW.problem_id AND device_id = NEW.device_id)"
)


def _on_create(statement: str, dialect: str) -> None:
    ddl = DDL(statement)  # type: ignore[no-untyped-call]
    event.listen(Best.__table__, "after_create", ddl.execute_if(dialect=dialect))


for _verb in ("INSERT", "UPDATE"):
    _on_create(
        f"CREATE TRIGGER best_is_confirmed_{_verb.lower()} BEFORE {_verb} ON best "
        f"WHEN NOT {_IS_CONFIRMED} BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END",
        "sqlite",
    )
_on_create(
    "CREATE FUNCTION best_is_confirmed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    f"IF NOT {_IS_CONFIRMED} THEN RAISE EXCEPTION '{_REFUSAL}'; END IF; RETURN NEW; END $$",
    "postgresql",
)
_on_create(
    "CREATE TRIGGER best_is_confirmed BEFORE INSERT OR UPDATE ON best "
    "FOR EACH ROW EXECUTE FUNCTION best_is_confirmed()",
    "postgresql",
)
