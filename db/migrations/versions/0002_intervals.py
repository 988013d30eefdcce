"""Intervals of confirmed medians, and what a run began with.

Revision ID: 0002
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy import Column

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

REAL = sa.REAL().with_variant(sa.DOUBLE_PRECISION(), "postgresql")

# The order in which they rest on one another.
VIEWS = ("results", "best_config", "speedup_vs_vendor")
CREATE = (
    """
CREATE VIEW results AS SELECT measurement.id, problem.kernel, problem.shape, problem.m,
    problem.n, problem.k, problem.layout, problem.batch, problem."key" AS problem,
    device.arch, device.name AS device, device.sm_count, device.memory_bytes,
    variant.provider, measurement.outcome, measurement.stage, measurement.evidence,
    measurement.median_ns, measurement.p20_ns, measurement.p80_ns, measurement.low_ns,
    measurement.high_ns, measurement.samples, problem.flops / (measurement.median_ns * 1000)
    AS tflops, (100 * (problem.flops / (measurement.median_ns * 1000))) /
    nullif(device.fp32_tflops, 0) AS percent_of_peak, measurement.predicted_ns,
    measurement.roofline_ns, variant.config_json, variant.registers, variant.shared_bytes,
    variant.spill_bytes, variant.stack_bytes, measurement.message, measurement.max_error,
    measurement.checks, measurement.door, measurement.cold_l2, measurement.truncated,
    measurement.sm_clock_mhz, measurement.memory_clock_mhz, measurement.temperature_c,
    measurement.power_w, measurement.throttle_reasons, environment.driver, variant.compiler,
    environment.autotune_version, variant.config_sha256, variant.template_sha256,
    variant.source_sha256, variant.cubin_sha256, measurement.variant_id, measurement.run_id,
    measurement.measured_at
FROM measurement
JOIN run ON measurement.run_id = run.id
JOIN variant ON measurement.variant_id = variant.id
JOIN problem ON variant.problem_id = problem.id
JOIN device ON run.device_id = device.id
JOIN environment ON run.environment_id = environment.id
""",
    """
CREATE VIEW best_config AS SELECT best.id, problem.kernel, problem.shape, problem.m,
    problem.n, problem.k, problem.layout, problem.batch, problem."key" AS problem,
    device.arch, device.name AS device, device.sm_count, device.memory_bytes,
    measurement.median_ns, measurement.p20_ns, measurement.p80_ns, measurement.low_ns,
    measurement.high_ns, measurement.samples, problem.flops / (measurement.median_ns * 1000)
    AS tflops, (100 * (problem.flops / (measurement.median_ns * 1000))) /
    nullif(device.fp32_tflops, 0) AS percent_of_peak, variant.config_json,
    variant.registers, variant.shared_bytes, variant.spill_bytes, variant.stack_bytes,
    (SELECT count(*) AS count_1
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
)


def upgrade() -> None:
    for name in reversed(VIEWS):
        op.execute(f"DROP VIEW {name}")
    op.add_column("measurement", Column("low_ns", REAL))
    op.add_column("measurement", Column("high_ns", REAL))
    op.add_column("run", Column("starts", sa.Text(), nullable=False, server_default=""))
    for view in CREATE:
        op.execute(view)
