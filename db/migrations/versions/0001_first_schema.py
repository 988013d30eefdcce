"""The first schema.

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    PrimaryKeyConstraint,
    UniqueConstraint,
)

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

INTEGER = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
REAL = sa.REAL().with_variant(sa.DOUBLE_PRECISION(), "postgresql")
TEXT = sa.Text()

VIEWS = (
    """
CREATE VIEW results AS SELECT measurement.id, problem.kernel, problem.shape, problem.m,
    problem.n, problem.k, problem.layout, problem.batch, problem."key" AS problem,
    device.arch, device.name AS device, device.sm_count, device.memory_bytes,
    variant.provider, measurement.outcome, measurement.stage, measurement.evidence,
    measurement.median_ns, measurement.p20_ns, measurement.p80_ns, measurement.samples,
    problem.flops / (measurement.median_ns * 1000) AS tflops,
    (100 * (problem.flops / (measurement.median_ns * 1000))) / nullif(device.fp32_tflops,
    0) AS percent_of_peak, measurement.predicted_ns, measurement.roofline_ns,
    variant.config_json, variant.registers, variant.shared_bytes, variant.spill_bytes,
    variant.stack_bytes, measurement.message, measurement.max_error, measurement.checks,
    measurement.door, measurement.cold_l2, measurement.truncated, measurement.sm_clock_mhz,
    measurement.memory_clock_mhz, measurement.temperature_c, measurement.power_w,
    measurement.throttle_reasons, environment.driver, variant.compiler,
    environment.autotune_version, variant.config_sha256, variant.template_sha256,
    variant.source_sha256, variant.cubin_sha256, measurement.variant_id,
    measurement.run_id, measurement.measured_at
FROM measurement
JOIN run ON measurement.run_id = run.id
JOIN variant ON measurement.variant_id = variant.id
JOIN problem ON variant.problem_id = problem.id
JOIN device ON run.device_id = device.id
JOIN environment ON run.environment_id = environment.id
""",
    """
CREATE VIEW failures AS SELECT measurement.id, problem.kernel, problem.shape, problem.m,
    problem.n, problem.k, problem.layout, problem.batch, problem."key" AS problem,
    device.arch, device.name AS device, device.sm_count, device.memory_bytes,
    variant.provider, measurement.outcome, measurement.stage, measurement.message,
    variant.config_json, variant.registers, variant.shared_bytes, variant.spill_bytes,
    variant.stack_bytes, measurement.max_error, measurement.door, environment.driver,
    variant.compiler, environment.autotune_version, variant.config_sha256,
    variant.template_sha256, variant.source_sha256, variant.cubin_sha256,
    measurement.variant_id, measurement.run_id, measurement.measured_at
FROM measurement
JOIN run ON measurement.run_id = run.id
JOIN variant ON measurement.variant_id = variant.id
JOIN problem ON variant.problem_id = problem.id
JOIN device ON run.device_id = device.id
JOIN environment ON run.environment_id = environment.id
WHERE measurement.outcome != 'ok'
""",
    """
CREATE VIEW best_config AS SELECT best.id, problem.kernel, problem.shape, problem.m,
    problem.n, problem.k, problem.layout, problem.batch, problem."key" AS problem,
    device.arch, device.name AS device, device.sm_count, device.memory_bytes,
    measurement.median_ns, measurement.p20_ns, measurement.p80_ns, measurement.samples,
    problem.flops / (measurement.median_ns * 1000) AS tflops,
    (100 * (problem.flops / (measurement.median_ns * 1000))) / nullif(device.fp32_tflops,
    0) AS percent_of_peak, variant.config_json, variant.registers, variant.shared_bytes,
    variant.spill_bytes, variant.stack_bytes, (SELECT count(*) AS count_1
FROM tie
WHERE tie.best_id = best.id) AS ties, measurement.door, best.origin, environment.driver,
    variant.compiler, environment.autotune_version, variant.config_sha256,
    variant.template_sha256, variant.source_sha256, variant.cubin_sha256, best.problem_id,
    best.device_id, best.variant_id, best.measurement_id, measurement.run_id,
    measurement.measured_at, best.updated_at
FROM measurement
JOIN run ON measurement.run_id = run.id
JOIN variant ON measurement.variant_id = variant.id
JOIN problem ON variant.problem_id = problem.id
JOIN device ON run.device_id = device.id
JOIN environment ON run.environment_id = environment.id
JOIN best ON best.measurement_id = measurement.id
""",
    """
CREATE VIEW speedup_vs_vendor AS SELECT best_config.id, best_config.kernel,
    best_config.shape, best_config.m, best_config.n, best_config.k, best_config.layout,
    best_config.batch, best_config.problem, best_config.arch, best_config.device,
    best_config.sm_count, best_config.memory_bytes, best_config.median_ns,
    best_config.tflops, vendor_time.provider AS vendor, vendor_time.median_ns AS vendor_ns,
    (best_config.tflops * best_config.median_ns) / vendor_time.median_ns AS vendor_tflops,
    vendor_time.median_ns / best_config.median_ns AS speedup, best_config.config_json,
    best_config.run_id, best_config.measured_at
FROM best_config
JOIN (SELECT vendor_measurement.run_id AS run_id, vendor_variant.provider AS provider,
    min(vendor_measurement.median_ns) AS median_ns
FROM measurement AS vendor_measurement
JOIN variant AS vendor_variant ON vendor_measurement.variant_id = vendor_variant.id
WHERE vendor_variant.provider != 'generated'
AND vendor_measurement.stage = 'confirm'
AND vendor_measurement.outcome = 'ok'
GROUP BY vendor_measurement.run_id,
    vendor_variant.provider) AS vendor_time ON vendor_time.run_id = best_config.run_id
""",
    """
CREATE VIEW confirmed AS SELECT measurement.id AS measurement_id, measurement.variant_id,
    variant.problem_id, run.device_id, measurement.run_id, measurement.median_ns,
    variant.config_sha256, variant.template_sha256
FROM measurement
JOIN run ON measurement.run_id = run.id
JOIN variant ON measurement.variant_id = variant.id
JOIN problem ON variant.problem_id = problem.id
JOIN device ON run.device_id = device.id
JOIN environment ON run.environment_id = environment.id
WHERE measurement.stage = 'confirm'
AND measurement.outcome = 'ok'
AND measurement.evidence = 'measured'
AND measurement.truncated = 0
AND measurement.median_ns >= measurement.roofline_ns
AND variant.provider = 'generated'
AND variant.arch = device.arch
AND variant.problem_id = run.problem_id
AND device.present = 1
""",
)

REFUSAL = (
    "only a verified time of the confirm round, possible on that device, can be best "
    "(see the view confirmed)"
)
IS_CONFIRMED = (
    "EXISTS (SELECT 1 FROM confirmed WHERE measurement_id = NEW.measurement_id AND "
    "variant_id = NEW.variant_id AND problem_id = NEW.problem_id AND device_id = NEW.device_id)"
)
TRIGGERS = {
    "sqlite": (
        "CREATE TRIGGER best_is_confirmed_insert BEFORE INSERT ON best "
        f"WHEN NOT {IS_CONFIRMED} BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END",
        "CREATE TRIGGER best_is_confirmed_update BEFORE UPDATE ON best "
        f"WHEN NOT {IS_CONFIRMED} BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END",
    ),
    "postgresql": (
        "CREATE FUNCTION best_is_confirmed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF NOT {IS_CONFIRMED} THEN RAISE EXCEPTION '{REFUSAL}'; END IF; RETURN NEW; END $$",
        "CREATE TRIGGER best_is_confirmed BEFORE INSERT OR UPDATE ON best "
        "FOR EACH ROW EXECUTE FUNCTION best_is_confirmed()",
    ),
}


def upgrade() -> None:
    op.create_table(
        "device",
        Column("id", INTEGER, nullable=False),
        Column("name", TEXT, nullable=False),
        Column("arch", INTEGER, nullable=False),
        Column("sm_count", INTEGER, nullable=False),
        Column("memory_bytes", INTEGER, nullable=False),
        Column("present", INTEGER, nullable=False),
        Column("cores_per_sm", INTEGER, nullable=False),
        Column("l2_bytes", INTEGER, nullable=False),
        Column("sm_clock_khz", INTEGER, nullable=False),
        Column("memory_clock_khz", INTEGER, nullable=False),
        Column("memory_bus_bits", INTEGER, nullable=False),
        Column("shared_bytes_per_block", INTEGER, nullable=False),
        Column("shared_bytes_per_sm", INTEGER, nullable=False),
        Column("registers_per_sm", INTEGER, nullable=False),
        Column("fp32_tflops", REAL, nullable=False),
        Column("bandwidth_gbs", REAL, nullable=False),
        CheckConstraint("present IN (0, 1)", name=op.f("ck_device_present")),
        PrimaryKeyConstraint("id", name="pk_device"),
        UniqueConstraint("arch", "sm_count", "memory_bytes", name="uq_device_arch"),
        sqlite_strict=True,
    )
    op.create_table(
        "environment",
        Column("id", INTEGER, nullable=False),
        Column("driver", TEXT, nullable=False),
        Column("compiler", TEXT, nullable=False),
        Column("autotune_version", TEXT, nullable=False),
        Column("git_sha", TEXT, nullable=False),
        Column("python", TEXT, nullable=False),
        Column("os", TEXT, nullable=False),
        PrimaryKeyConstraint("id", name="pk_environment"),
        UniqueConstraint(
            "driver",
            "compiler",
            "autotune_version",
            "git_sha",
            "python",
            "os",
            name="uq_environment_driver",
        ),
        sqlite_strict=True,
    )
    op.create_table(
        "problem",
        Column("id", INTEGER, nullable=False),
        Column("key", TEXT, nullable=False),
        Column("kernel", TEXT, nullable=False),
        Column("shape", TEXT, nullable=False),
        Column("regime", TEXT, nullable=False),
        Column("flops", REAL, nullable=False),
        Column("bytes_min", REAL, nullable=False),
        Column("m", INTEGER),
        Column("n", INTEGER),
        Column("k", INTEGER),
        Column("layout", TEXT),
        Column("lda", INTEGER),
        Column("ldb", INTEGER),
        Column("ldc", INTEGER),
        Column("batch", INTEGER),
        Column("stride_a", INTEGER),
        Column("stride_b", INTEGER),
        Column("stride_c", INTEGER),
        Column("beta_zero", INTEGER),
        Column("align_a", INTEGER),
        Column("align_b", INTEGER),
        Column("align_c", INTEGER),
        Column("columns_json", TEXT, nullable=False),
        CheckConstraint("json_valid(columns_json)", name=op.f("ck_problem_columns_json")).ddl_if(
            "sqlite"
        ),
        PrimaryKeyConstraint("id", name="pk_problem"),
        UniqueConstraint("key", name="uq_problem_key"),
        sqlite_strict=True,
    )
    op.create_index("ix_problem_kernel", "problem", ["kernel", "regime", "flops"])
    op.create_table(
        "run",
        Column("id", INTEGER, nullable=False),
        Column("device_id", INTEGER, nullable=False),
        Column("environment_id", INTEGER, nullable=False),
        Column("problem_id", INTEGER, nullable=False),
        Column("status", TEXT, nullable=False),
        Column("started_at", TEXT, nullable=False),
        Column("finished_at", TEXT),
        Column("sampler", TEXT, nullable=False),
        Column("seed", INTEGER),
        Column("budget", TEXT, nullable=False),
        Column("argv", TEXT, nullable=False),
        Column("host", TEXT, nullable=False),
        Column("pid", INTEGER, nullable=False),
        Column("device_uuid", TEXT, nullable=False),
        Column("device_bus_id", TEXT, nullable=False),
        CheckConstraint(
            "status IN ('running', 'finished', 'interrupted', 'truncated')",
            name=op.f("ck_run_status"),
        ),
        ForeignKeyConstraint(["device_id"], ["device.id"], name="fk_run_device_id"),
        ForeignKeyConstraint(["environment_id"], ["environment.id"], name="fk_run_environment_id"),
        ForeignKeyConstraint(["problem_id"], ["problem.id"], name="fk_run_problem_id"),
        PrimaryKeyConstraint("id", name="pk_run"),
        sqlite_strict=True,
    )
    op.create_index("ix_run_device_id", "run", ["device_id"])
    op.create_index("ix_run_problem_id", "run", ["problem_id"])
    op.create_table(
        "variant",
        Column("id", INTEGER, nullable=False),
        Column("name", TEXT, nullable=False),
        Column("problem_id", INTEGER, nullable=False),
        Column("provider", TEXT, nullable=False),
        Column("arch", INTEGER, nullable=False),
        Column("config_json", TEXT, nullable=False),
        Column("config_sha256", TEXT, nullable=False),
        Column("template_sha256", TEXT, nullable=False),
        Column("source_sha256", TEXT, nullable=False),
        Column("compiler", TEXT, nullable=False),
        Column("registers", INTEGER),
        Column("shared_bytes", INTEGER),
        Column("spill_bytes", INTEGER),
        Column("stack_bytes", INTEGER),
        Column("cubin_sha256", TEXT),
        CheckConstraint("json_valid(config_json)", name=op.f("ck_variant_config_json")).ddl_if(
            "sqlite"
        ),
        ForeignKeyConstraint(["problem_id"], ["problem.id"], name="fk_variant_problem_id"),
        PrimaryKeyConstraint("id", name="pk_variant"),
        UniqueConstraint(
            "problem_id",
            "provider",
            "arch",
            "config_sha256",
            "template_sha256",
            "source_sha256",
            "compiler",
            name="uq_variant_problem_id",
        ),
        sqlite_strict=True,
    )
    op.create_index(
        "ix_variant_template_sha256", "variant", ["template_sha256", "arch", "compiler"]
    )
    op.create_table(
        "measurement",
        Column("id", INTEGER, nullable=False),
        Column("run_id", INTEGER, nullable=False),
        Column("variant_id", INTEGER, nullable=False),
        Column("outcome", TEXT, nullable=False),
        Column("stage", TEXT, nullable=False),
        Column("evidence", TEXT, nullable=False),
        Column("message", TEXT, nullable=False),
        Column("median_ns", REAL),
        Column("p20_ns", REAL),
        Column("p80_ns", REAL),
        Column("min_ns", REAL),
        Column("samples", INTEGER, nullable=False),
        Column("predicted_ns", REAL),
        Column("roofline_ns", REAL, nullable=False),
        Column("max_error", REAL),
        Column("checks", TEXT, nullable=False),
        Column("door", TEXT, nullable=False),
        Column("cold_l2", INTEGER, nullable=False),
        Column("truncated", INTEGER, nullable=False),
        Column("sm_clock_mhz", INTEGER),
        Column("memory_clock_mhz", INTEGER),
        Column("temperature_c", INTEGER),
        Column("power_w", REAL),
        Column("throttle_reasons", TEXT),
        Column("measured_at", TEXT, nullable=False),
        CheckConstraint(
            "(stage = 'predict') = (evidence = 'predicted')", name=op.f("ck_measurement_predict")
        ),
        CheckConstraint(
            "evidence = 'measured' OR median_ns IS NULL", name=op.f("ck_measurement_no_time")
        ),
        CheckConstraint(
            "evidence IN ('measured', 'predicted')", name=op.f("ck_measurement_evidence")
        ),
        CheckConstraint(
            "outcome <> 'ok' OR evidence = 'predicted' OR median_ns IS NOT NULL",
            name=op.f("ck_measurement_ok_has_time"),
        ),
        CheckConstraint(
            "outcome IN ('ok', 'infeasible', 'compile_error', 'compile_timeout', 'launch_error', "
            "'crash', 'timeout', 'wrong_result')",
            name=op.f("ck_measurement_outcome"),
        ),
        CheckConstraint(
            "stage IN ('search', 'confirm', 'predict')", name=op.f("ck_measurement_stage")
        ),
        CheckConstraint("cold_l2 IN (0, 1)", name=op.f("ck_measurement_cold_l2")),
        CheckConstraint("median_ns > 0", name=op.f("ck_measurement_median_ns")),
        CheckConstraint("truncated IN (0, 1)", name=op.f("ck_measurement_truncated")),
        ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_measurement_run_id"),
        ForeignKeyConstraint(["variant_id"], ["variant.id"], name="fk_measurement_variant_id"),
        PrimaryKeyConstraint("id", name="pk_measurement"),
        sqlite_strict=True,
    )
    op.create_index("ix_measurement_run_id", "measurement", ["run_id"])
    op.create_index("ix_measurement_variant_id", "measurement", ["variant_id"])
    op.create_table(
        "best",
        Column("id", INTEGER, nullable=False),
        Column("problem_id", INTEGER, nullable=False),
        Column("device_id", INTEGER, nullable=False),
        Column("variant_id", INTEGER, nullable=False),
        Column("measurement_id", INTEGER, nullable=False),
        Column("origin", TEXT, nullable=False),
        Column("updated_at", TEXT, nullable=False),
        CheckConstraint("origin IN ('local', 'seed', 'import')", name=op.f("ck_best_origin")),
        ForeignKeyConstraint(["device_id"], ["device.id"], name="fk_best_device_id"),
        ForeignKeyConstraint(["measurement_id"], ["measurement.id"], name="fk_best_measurement_id"),
        ForeignKeyConstraint(["problem_id"], ["problem.id"], name="fk_best_problem_id"),
        ForeignKeyConstraint(["variant_id"], ["variant.id"], name="fk_best_variant_id"),
        PrimaryKeyConstraint("id", name="pk_best"),
        UniqueConstraint("problem_id", "device_id", name="uq_best_problem_id"),
        sqlite_strict=True,
    )
    op.create_index("ix_best_device_id", "best", ["device_id"])
    op.create_index("ix_best_measurement_id", "best", ["measurement_id"])
    op.create_index("ix_best_variant_id", "best", ["variant_id"])
    op.create_table(
        "tie",
        Column("id", INTEGER, nullable=False),
        Column("best_id", INTEGER, nullable=False),
        Column("measurement_id", INTEGER, nullable=False),
        ForeignKeyConstraint(["best_id"], ["best.id"], name="fk_tie_best_id"),
        ForeignKeyConstraint(["measurement_id"], ["measurement.id"], name="fk_tie_measurement_id"),
        PrimaryKeyConstraint("id", name="pk_tie"),
        UniqueConstraint("best_id", "measurement_id", name="uq_tie_best_id"),
        sqlite_strict=True,
    )

    for view in VIEWS:
        op.execute(view)
    for trigger in TRIGGERS[op.get_bind().dialect.name]:
        op.execute(trigger)
