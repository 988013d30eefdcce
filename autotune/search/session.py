"""The search of one problem: tries points until the budget is used, then lets the finals decide."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass, field, replace

import numpy as np

from autotune.analysis import predict
from autotune.errors import InfeasibleError
from autotune.measure import Job
from autotune.region import Region
from autotune.search import finals, prior
from autotune.search.budget import Budget
from autotune.search.builder import Builder, Compiling
from autotune.search.events import Report, Started, Status, Tried
from autotune.search.setting import Setting
from autotune.search.strategy import Strategy
from autotune.store import Trial
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

PRIOR_STARTS = 16
"""Points that the model chooses for the beginning of a measured search."""
FINALS_SHARE = 0.15
FINALS_S = 8.0
"""What is left of a time budget to the finals: this share of it, but no more than so long."""
SUSPECT_RESULTS = 5
CLOCK_SHARE = 0.95
"""Clocks that differ by more than this are worth a warning."""


@dataclass(slots=True)
class _Progress:
    """What one search knows so far."""

    counts: Counter[Outcome] = field(default_factory=Counter)
    messages: dict[Outcome, Counter[str]] = field(default_factory=dict)
    best: Config | None = None
    best_ns: float | None = None
    since_best: int = 0
    number: int = 0
    clocks_mhz: list[int] = field(default_factory=list)

    def add(self, config: Config, measurement: Measurement, time_ns: float | None) -> None:
        self.number += 1
        if measurement.conditions.sm_clock_mhz:
            self.clocks_mhz.append(measurement.conditions.sm_clock_mhz)
        self.since_best += 1
        self.counts[measurement.outcome] += 1
        if not measurement.is_ok:
            messages = self.messages.setdefault(measurement.outcome, Counter())
            messages[measurement.message] += 1
        elif time_ns is not None and (self.best_ns is None or time_ns < self.best_ns):
            self.best, self.best_ns, self.since_best = config, time_ns, 0

    def notes(self) -> list[str]:
        """What should make the reader of a result careful."""
        notes = []
        wrong, ok = self.counts[Outcome.wrong_result], self.counts[Outcome.ok]
        if wrong >= SUSPECT_RESULTS and wrong > 4 * ok:
            notes.append(
                f"{wrong} of {wrong + ok} kernels gave a wrong result: suspect the device or the "
                "reference before the kernels"
            )
        if self.clocks_mhz and min(self.clocks_mhz) < CLOCK_SHARE * max(self.clocks_mhz):
            notes.append(
                f"the SM clock moved between {min(self.clocks_mhz)} and {max(self.clocks_mhz)} MHz "
                "while candidates were timed; only the confirm round compares them fairly"
            )
        return notes


class Session:
    """Searches one problem under a setting; `run` may be called once."""

    def __init__(self, problem: Problem, setting: Setting) -> None:
        self.problem = problem
        self.setting = setting
        self._builder = Builder(problem, setting)
        self._progress = _Progress()
        self._started = time.monotonic()
        self._measured: dict[tuple[str, LaunchPlan], Measurement] = {}

    def run(self) -> Report:
        """The whole search; whatever ends it, each trial that was made is in the store.

        Raises:
            StoreError, CompilerError, DeviceError, ShapeError: the environment ends the search.
            KeyboardInterrupt: as it came; the run is marked as interrupted.
        """
        setting = self.setting
        region = setting.space.region(self.problem, setting.arch)
        if region.size == 0:
            return self.failed(f"no config of {setting.space.path} can serve {self.problem.key}")
        trials = self._builder.trials()
        run_id = setting.store.begin_run(
            self.problem,
            setting.device,
            compiler=setting.compiler.label,
            sampler=setting.sampler if setting.worker else "model",
            seed=setting.seed,
            budget=str(self._budget),
            argv=setting.argv,
            git_sha=setting.git_sha,
        )
        ended = "interrupted"
        try:
            for trial in trials:
                self._progress.add(trial.config, trial.measurement, self._time(trial))
            setting.listener(
                Started(
                    problem=self.problem,
                    valid=region.size,
                    budget=self._budget,
                    resumed_trials=len(trials),
                )
            )
            status = self._is_over() or self._try(run_id, region, trials)
            report = self._conclude(run_id, status)
            ended = status
        finally:
            setting.store.end_run(run_id, ended)
        return report

    def failed(self, message: str) -> Report:
        """The report of a search that came to nothing."""
        return replace(self._report("failed"), message=message)

    # *** trying ***

    @property
    def _budget(self) -> Budget:
        effort = self.setting.effort
        if self.setting.worker is not None:
            return effort.budget
        return replace(effort.budget, trials=effort.predictions)

    def _time(self, trial: Trial) -> float | None:
        if not trial.measurement.is_ok:
            return None
        return trial.measurement.median_ns if self.setting.worker else trial.predicted_ns

    def _elapsed(self) -> float:
        return time.monotonic() - self._started

    def _is_over(self) -> Status | None:
        budget, progress = self._budget, self._progress
        if budget.trials is not None and progress.number >= budget.trials:
            return "finished"
        if budget.seconds is not None:
            finals_s = min(FINALS_SHARE * budget.seconds, FINALS_S) if self.setting.worker else 0.0
            if self._elapsed() >= budget.seconds - finals_s:
                return "truncated"
        if budget.patience is not None and progress.since_best >= budget.patience:
            return "truncated"
        return None

    def _try(self, run_id: int, region: Region, trials: Sequence[Trial]) -> Status:
        setting = self.setting
        static = setting.store.static_failures(
            self.problem.kernel,
            setting.arch,
            self._builder.template_sha256,
            setting.compiler.label,
        )
        known = {trial.config: self._time(trial) for trial in trials}
        starts = self._starts()
        favourites = prior.ranked(
            region,
            setting.device,
            np.random.default_rng([setting.seed, len(trials)]),
            count=PRIOR_STARTS if setting.worker else setting.effort.predictions,
            starts=starts,
            exclude={*known, *static},
        )
        if setting.worker is None:
            return self._predict(run_id, favourites)
        self._measured = {
            (trial.cubin_sha256, self._builder.plan(trial.config)): trial.measurement
            for trial in trials
            if trial.cubin_sha256 and trial.measurement.is_ok
        }
        strategy = Strategy(
            region,
            seed=setting.seed,
            sampler=setting.sampler,
            initial=[*starts, *favourites],
            known=list(known.items()),
            barred=list(static),
        )
        return self._measure(run_id, strategy)

    def _starts(self) -> list[Config]:
        """The family's presets, and the best configs of other shapes on this architecture."""
        setting = self.setting
        starts = setting.space.start_configs(self.problem, setting.arch)
        for row in setting.store.bests(kernel=self.problem.kernel, arch=setting.arch, limit=50):
            try:
                config = setting.space.config(Config.from_json(str(row["config_json"])))
            except InfeasibleError:  # of an older space
                continue
            fitted = setting.space.fitted(config, self.problem, setting.arch)
            if fitted is not None:
                starts.append(fitted)
        return list(dict.fromkeys(starts))

    def _measure(self, run_id: int, strategy: Strategy) -> Status:
        """Keeps the compilers ahead of the device, and tells the strategy what each point gave."""
        running: dict[Compiling, Variant] = {}
        try:
            while True:
                while len(running) < self._room() and (config := strategy.ask()) is not None:
                    variant = self._builder.render(config)
                    running[self._builder.submit(variant)] = variant
                if not running:
                    return "finished"
                done, _ = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
                # In the order of asking, not the set's, so that a seed means the same search twice.
                for compiled in [each for each in running if each in done]:
                    variant = running.pop(compiled)
                    measurement = self._measure_one(variant, compiled.result())
                    self._record(run_id, variant, compiled.result(), measurement)
                    time_ns = measurement.median_ns if measurement.is_ok else None
                    strategy.tell(variant.config, time_ns)
                    if over := self._is_over():
                        return over
                if over := self._is_over():
                    return over
        finally:
            for compiled in running:
                compiled.cancel()

    def _room(self) -> int:
        """How many candidates may be on their way: no more than the budget still wants."""
        trials = self._budget.trials
        if trials is None:
            return self.setting.ahead
        return min(self.setting.ahead, trials - self._progress.number)

    def _measure_one(self, variant: Variant, result: Binary | Failure) -> Measurement:
        setting = self.setting
        assert setting.worker is not None
        refused = self._builder.refused(variant, result, Stage.search)
        if refused is not None:
            return refused
        assert isinstance(result, Binary)
        identity = (result.sha256, variant.plan)
        if identity in self._measured:
            return replace(self._measured[identity], message="same binary as an earlier trial")
        measurement = setting.worker.measure(
            Job(
                problem=self.problem,
                plan=variant.plan,
                cubin=result.cubin,
                best_ns=self._progress.best_ns,
                cold=setting.cold,
            )
        )
        if measurement.is_ok:
            self._measured[identity] = measurement
        return measurement

    def _predict(self, run_id: int, configs: Sequence[Config]) -> Status:
        """Compiles the model's favourites, and asks it again with their real registers."""
        for variant, result in self._builder.compile_all(configs, stop=self._is_over):
            measurement = self._builder.refused(variant, result, Stage.predict) or Measurement(
                outcome=Outcome.ok, stage=Stage.predict, cold_l2=self.setting.cold
            )
            self._record(run_id, variant, result, measurement)
            if over := self._is_over():
                return over
        return self._is_over() or "finished"

    def _record(
        self, run_id: int, variant: Variant, result: Binary | Failure, measurement: Measurement
    ) -> None:
        predicted_ns = None
        if measurement.is_ok and isinstance(result, Binary):
            prediction = predict.candidate(
                self.problem, variant.config, self.setting.device, result.registers
            )
            predicted_ns = prediction.time_ns if prediction else None
        self.setting.store.record(
            run_id, self._builder.row(variant, result), measurement, predicted_ns=predicted_ns
        )
        time_ns = measurement.median_ns if self.setting.worker else predicted_ns
        self._progress.add(variant.config, measurement, time_ns)
        self.setting.listener(
            Tried(
                problem=self.problem,
                number=self._progress.number,
                total=self._budget.trials,
                config=variant.config,
                measurement=measurement,
                predicted_ns=predicted_ns,
                best_ns=self._progress.best_ns,
                elapsed_s=self._elapsed(),
            )
        )

    # *** concluding ***

    def _conclude(self, run_id: int, status: Status) -> Report:
        progress = self._progress
        if progress.best is None:
            return self.failed(f"none of {progress.number} configs gave a usable kernel")
        report = self._report(status)
        if self.setting.worker is None:
            return replace(report, best=progress.best, best_ns=progress.best_ns)
        verdict = finals.hold(run_id, self._builder, self.setting.worker)
        if verdict.best is None:
            return self.failed("no finalist passed the confirm round")
        return replace(
            report,
            best=verdict.best,
            best_ns=verdict.best_ns,
            vendor_ns=verdict.vendor_ns,
            ties=verdict.ties,
            message=verdict.message,
            seconds=self._elapsed(),
        )

    def _report(self, status: Status) -> Report:
        return Report(
            problem=self.problem,
            device=self.setting.device,
            evidence=self.setting.evidence,
            status=status,
            counts=dict(self._progress.counts),
            messages={
                outcome: messages.most_common(1)[0][0]
                for outcome, messages in self._progress.messages.items()
            },
            seconds=self._elapsed(),
            notes=self._progress.notes(),
        )
