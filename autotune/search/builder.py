"""From configs to binaries of one problem, and the rows that the store keeps of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace

from autotune import render, templates
from autotune.analysis.occupancy import occupancy
from autotune.search.setting import Setting
from autotune.store import Trial, VariantRow
from autotune.types import (
    Binary,
    Config,
    Failure,
    LaunchPlan,
    Measurement,
    Outcome,
    Problem,
    Stage,
    Variant,
)

_STOP_S = 0.25

Compiling = Future[Binary | Failure]


class Builder:
    """Makes variants and binaries of one problem under a setting."""

    def __init__(self, problem: Problem, setting: Setting) -> None:
        self.problem = problem
        self.setting = setting
        self.template_sha256 = templates.sha256(problem.kernel)

    def trials(self) -> list[Trial]:
        """The stored trials that still count here: same template, compiler, driver, kind of
        evidence and state of the cache, and a config that the space still has."""
        setting = self.setting
        return [
            trial
            for trial in setting.store.trials(
                self.problem, setting.device, self.template_sha256, setting.compiler.label
            )
            if self._counts(trial)
        ]

    def _counts(self, trial: Trial) -> bool:
        setting, measurement = self.setting, trial.measurement
        if setting.worker is None:
            is_alike = measurement.stage is Stage.predict
        else:
            is_alike = measurement.stage is Stage.search and measurement.cold_l2 == setting.cold
        return is_alike and setting.space.is_valid(trial.config, self.problem, setting.arch)

    def plan(self, config: Config) -> LaunchPlan:
        """The launches of a config."""
        return self.setting.space.plan(
            config, self.problem, self.setting.arch, self.setting.device.sm_count
        )

    def render(self, config: Config) -> Variant:
        """The source of a config."""
        return render.render(
            self.problem,
            config,
            self.setting.arch,
            family_space=self.setting.space,
            sm_count=self.setting.device.sm_count,
        )

    def submit(self, variant: Variant) -> Compiling:
        """Starts compiling a variant."""
        setting = self.setting
        return setting.pool.submit(variant.body, setting.arch, timeout_s=setting.patience.limit_s)

    def compile_all(
        self, configs: Sequence[Config], stop: Callable[[], object] = lambda: None
    ) -> Iterator[tuple[Variant, Binary | Failure]]:
        """Variants and binaries of configs in their order, all compilers busy.

        Args:
            stop: Asked while a binary is waited for; anything true ends the sequence.
        """
        variants = [self.render(config) for config in configs]
        futures = [self.submit(variant) for variant in variants]
        try:
            for variant, future in zip(variants, futures, strict=True):
                while not wait([future], timeout=_STOP_S).done:
                    if stop():
                        return
                yield variant, future.result()
        finally:
            for future in futures:
                future.cancel()

    def refused(
        self, variant: Variant, result: Binary | Failure, stage: Stage
    ) -> Measurement | None:
        """Why a variant is not worth a launch: it has no binary, or none of its blocks fits."""
        cold = self.setting.cold
        if isinstance(result, Failure):
            return Measurement(
                outcome=result.outcome, stage=stage, message=result.message, cold_l2=cold
            )
        for launch in variant.plan.launches:
            resident = occupancy(
                launch.threads,
                result.registers,
                launch.shared_bytes + result.static_shared_bytes,
                self.setting.device,
            )
            if resident.blocks == 0:
                return Measurement(
                    outcome=Outcome.infeasible, stage=stage, message=resident.reason, cold_l2=cold
                )
        return None

    def row(self, variant: Variant, result: Binary | Failure) -> VariantRow:
        """What the store keeps of a variant."""
        row = VariantRow(
            config=variant.config,
            arch=variant.arch,
            template_sha256=variant.template_sha256,
            source_sha256=variant.source_sha256,
            compiler=self.setting.compiler.label,
        )
        if isinstance(result, Failure):
            return row
        shared = max(launch.shared_bytes for launch in variant.plan.launches)
        return replace(
            row,
            registers=result.registers,
            shared_bytes=shared + result.static_shared_bytes,
            spill_bytes=result.spill_bytes,
            stack_bytes=result.stack_bytes,
            cubin_sha256=result.sha256,
        )
