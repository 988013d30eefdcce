"""The confirm round: the finalists are timed against each other, and only it names a best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune import defaults
from autotune.measure import (
    AnyJob,
    Job,
    VendorJob,
    Worker,
    launches_a_round,
    rounds_for,
    vendor_library,
    vendor_missing,
)
from autotune.search.budget import Effort
from autotune.search.builder import Builder
from autotune.search.events import Confirmed, Confirming, Finalist
from autotune.store import VariantRow
from autotune.types import Binary, Config, LaunchPlan, Stage

STARTING_S = 0.5
"""Of the estimate: compiling what is new, and the vendor library's start."""
PREPARING_S = 0.05
"""Of each entrant: loading it, warming up, and the host's part of its checks."""
PROVING_LAUNCHES = 12
"""Of each entrant: its checks before and after timing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the round decided.

    Attributes:
        best: None when no finalist passed.
        interval_ns: What its median lies in; see `Measurement.low_ns`.
        ties: Other configs that cannot be told from the best.
        message: Why there is no vendor time; empty where there is one.
    """

    best: Config | None
    best_ns: float | None
    interval_ns: tuple[float, float] | None
    vendor_ns: float | None
    ties: Sequence[Config]
    message: str


def hold(run_id: int, builder: Builder, worker: Worker) -> Verdict:
    """Times incumbent, default, vendor and the fastest few, records all and names the best."""
    setting, problem = builder.setting, builder.problem
    roles = entrants(builder)
    compiled = [
        (roles[variant.config], variant, result)
        for variant, result in builder.compile_all(list(roles))
        if isinstance(result, Binary) and not builder.refused(variant, result, Stage.confirm)
    ]
    jobs: list[AnyJob] = [
        Job(
            problem=problem,
            plan=variant.plan,
            cubin=result.cubin,
            stage=Stage.confirm,
            cold=setting.cold,
        )
        for _, variant, result in compiled
    ]
    no_vendor = vendor_missing(problem)
    if no_vendor is None:
        jobs.append(VendorJob(problem=problem, cold=setting.cold))
    setting.listener(Confirming(problem=problem, candidates=len(jobs)))
    measurements = worker.confirm(jobs, rounds=setting.effort.rounds, seed=setting.seed)

    rows, ids = [], []
    for (role, variant, result), measurement in zip(compiled, measurements, strict=False):
        ids.append(setting.store.record(run_id, builder.row(variant, result), measurement))
        rows.append(Finalist(role=role, config=variant.config, measurement=measurement))
    vendor_ns = None
    if no_vendor is None:
        vendor = measurements[-1]
        row = VariantRow.vendor(*vendor_library(problem), setting.arch)
        setting.store.record(run_id, row, vendor)
        rows.append(Finalist(role="vendor", config=None, measurement=vendor))
        vendor_ns = vendor.median_ns
        if not vendor.is_ok:
            no_vendor = f"the vendor library failed: {vendor.message}"
    confirmation = setting.store.confirm(run_id, ids)
    timed = {row.config: row.measurement for row in rows}
    winner = timed.get(confirmation.config) if confirmation else None
    rows.sort(key=lambda row: row.measurement.median_ns or float("inf"))
    setting.listener(Confirmed(problem=problem, rows=rows))
    return Verdict(
        best=confirmation.config if confirmation else None,
        best_ns=confirmation.median_ns if confirmation else None,
        interval_ns=winner.interval_ns if winner else None,
        vendor_ns=vendor_ns,
        ties=confirmation.ties if confirmation else (),
        message=no_vendor or "",
    )


def seconds(time_ns: float, effort: Effort) -> float:
    """About how long the round takes, for kernels of this time: those that were chosen for it, and
    incumbent, default and vendor."""
    rounds = rounds_for(time_ns, effort.rounds)
    launches = rounds * launches_a_round(time_ns) + PROVING_LAUNCHES
    one_s = PREPARING_S + launches * time_ns / 1e9
    return STARTING_S + (effort.finalists + 3) * one_s


def entrants(builder: Builder) -> dict[Config, str]:
    """Who takes part, and as what: incumbent, default, and the fastest few, each binary once."""
    setting, problem = builder.setting, builder.problem
    roles: dict[Config, str] = {}
    incumbent = setting.store.best(problem, setting.device)
    if incumbent is not None and incumbent["template_sha256"] == builder.template_sha256:
        # A row may be older than a parameter.
        roles[setting.space.config(Config.from_json(str(incumbent["config_json"])))] = "incumbent"
    roles.setdefault(defaults.default(problem, setting.device, setting.space), "default")
    timed = [
        (trial.measurement.median_ns, trial.id, trial)
        for trial in builder.trials()
        if trial.measurement.is_ok
        and trial.measurement.median_ns is not None
        and not trial.measurement.truncated
    ]
    binaries: set[tuple[str | None, LaunchPlan]] = set()
    for _, _, trial in sorted(timed, key=lambda entry: entry[:2]):
        # A resumed search may find trials of a space whose rules have changed since.
        if not setting.space.is_valid(trial.config, problem, setting.arch):
            continue
        identity = (trial.cubin_sha256, builder.plan(trial.config))
        if identity not in binaries and len(binaries) < setting.effort.finalists:
            binaries.add(identity)
            roles.setdefault(trial.config, "finalist")
    return {
        config: role
        for config, role in roles.items()
        if setting.space.is_valid(config, problem, setting.arch)
    }
