"""The search of one problem: tries points, in one go or in slices, then lets the finals decide."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from autotune.analysis import predict
from autotune.errors import InfeasibleError
from autotune.measure import Job
from autotune.region import Region
from autotune.search import finals, prior
from autotune.search.budget import Budget
from autotune.search.builder import Builder, Compiling
from autotune.search.events import Report, Started, Status, Tried
from autotune.search.lane import Lane, MeasuringLane, PredictingLane, done
from autotune.search.setting import Setting
from autotune.search.starts import Leaders, Start, counted, leading, near, starts
from autotune.search.strategy import Strategy
from autotune.search.tally import Pace, Tally
from autotune.store import Trial
from autotune.types import (
    Binary,
    Config,
    Failure,
    LaunchPlan,
    Measurement,
    Problem,
    Stage,
    Variant,
)

PRIOR_STARTS = 16
"""Points that the model chooses for the beginning of a measured search."""
FINALS_SHARE = 0.15
FINALS_S = 8.0
"""What is left of a time budget to the finals: this share of it, but no more than so long."""
GRACE_S = 1.0
"""What the kernel on the device at the end of a search may still take."""
POLL_S = 0.25
"""How often a clock is looked at while nothing happens."""

Identity = tuple[str, LaunchPlan]
"""A binary and how it is launched: what is equal here is the same kernel."""


class Asking(Protocol):
    """Where points come from."""

    def ask(self) -> Config | None:
        """The next one; None when there is none."""

    def tell(self, config: Config, time_ns: float | None) -> None:
        """What it gave."""


class Listed:
    """Points in an order that was fixed before."""

    def __init__(self, configs: Sequence[Config]) -> None:
        self._configs = iter(configs)

    def ask(self) -> Config | None:
        return next(self._configs, None)

    def tell(self, config: Config, time_ns: float | None) -> None:
        pass


@dataclass(slots=True)
class _Attempt:
    """A point on its way.

    Attributes:
        judged: Once there is a binary or a failure.
        is_twin: Its binary is that of an earlier attempt, whose measurement it shares.
    """

    variant: Variant
    compiling: Compiling
    judged: Future[Measurement] | None = None
    is_twin: bool = False

    @property
    def awaited(self) -> Future[Binary | Failure] | Future[Measurement]:
        return self.compiling if self.judged is None else self.judged


class Session:
    """Searches one problem under a setting.

    `advance` tries points, as often as wanted; `conclude` holds the finals; `abandon` leaves what
    was tried to a later search.

    Attributes:
        best_ns: Best time so far, not confirmed; predicted where nothing is measured.
        run_id: The run's row; None before the first `advance`.
    """

    def __init__(self, problem: Problem, setting: Setting, leaders: Leaders | None = None) -> None:
        self.problem = problem
        self.setting = setting
        self.run_id: int | None = None
        self._leaders: Leaders = {} if leaders is None else leaders
        self._builder = Builder(problem, setting)
        self._region: Region | None = None
        self._is_open = False
        self._tally = Tally()
        self._pace = Pace()
        self._known: dict[Config, float | None] = {}
        self._measured: dict[Identity, Future[Measurement]] = {}
        self._static: list[Config] = []
        self._starts: list[Start] = []
        self._favourites: list[Config] = []
        self._has_ended = False
        self._seconds = 0.0
        self._slice_started = time.monotonic()

    @property
    def best_ns(self) -> float | None:
        return self._tally.best_ns

    @property
    def budget(self) -> Budget:
        """Of this kind of search."""
        effort = self.setting.effort
        if self.setting.worker is not None:
            return effort.budget
        return replace(effort.budget, trials=effort.predictions)

    def prepare(self) -> None:
        """Counts the valid points, which the first `advance` does otherwise: that takes a second or
        two of one core, and may be done in another thread while another problem is searched.

        Raises:
            SpaceError: the space cannot be counted.
        """
        region = self.setting.space.region(self.problem, self.setting.arch)
        region.size  # noqa: B018 - the region counts when first asked, and remembers
        self._region = region

    def stored_trials(self) -> int:
        """How many trials earlier runs left."""
        return len(self._builder.trials())

    def finals_s(self, time_ns: float) -> float:
        """About how long the finals of kernels of this time take."""
        return finals.seconds(time_ns, self.setting.effort) if self.setting.worker else 0.0

    def advance(self, seconds: float | None = None, *, grace_s: float = GRACE_S) -> Status | None:
        """Tries points until the budget is used, or for so many seconds.

        Args:
            grace_s: What the kernel on the device may take beyond that; then it is dropped, and
                may be tried again.

        Returns:
            How the search ended; None when only the seconds are over.

        Raises:
            InfeasibleError: no config of the space can serve the problem.
            StoreError, CompilerError, DeviceError, ShapeError: the environment ends the search.
            KeyboardInterrupt: as it came.
        """
        self._slice_started = time.monotonic()
        try:
            if self._region is None:
                self.prepare()
            region = self._region
            assert region is not None
            if not self._is_open:
                self._open(region)
                self._is_open = True
            # Counted from here: a slice that was used up by getting ready would be none.
            ends_at = None if seconds is None else time.monotonic() + seconds
            if over := self._is_over():
                return over
            return self._try(self._asking(region), ends_at, grace_s)
        finally:
            self._seconds = self._elapsed()
            self._leaders[self.problem] = leading(self._known)

    def conclude(self, status: Status) -> Report:
        """Holds the finals, ends the run and reports."""
        started = time.monotonic()
        ended = "interrupted"
        try:
            report = self._decide(status)
            ended = status
        finally:
            self._end(ended)
        return replace(report, seconds=self._seconds + time.monotonic() - started)

    def abandon(self) -> None:
        """Marks the run as interrupted, unless it has ended."""
        self._end("interrupted")

    def _end(self, status: str) -> None:
        if self.run_id is not None and not self._has_ended:
            self._has_ended = True
            self.setting.store.end_run(self.run_id, status)

    def failed(self, message: str) -> Report:
        """The report of a search that came to nothing."""
        return replace(self._report("failed"), message=message)

    # *** before the first point ***

    def _open(self, region: Region) -> None:
        """What is known already, where to start, and the run's row."""
        setting = self.setting
        if region.size == 0:
            raise InfeasibleError(f"no config of {setting.space.path} can serve {self.problem.key}")
        trials = self._builder.trials()
        for trial in trials:
            time_ns = self._time(trial)
            self._known[trial.config] = time_ns
            self._tally.add(trial.config, trial.measurement, time_ns)
            if setting.worker and trial.cubin_sha256 and trial.measurement.is_ok:
                identity = trial.cubin_sha256, self._builder.plan(trial.config)
                self._measured[identity] = done(trial.measurement)
        self._static = list(
            setting.store.static_failures(
                self.problem.kernel,
                setting.arch,
                self._builder.template_sha256,
                setting.compiler.label,
            )
        )
        self._starts = starts(self.problem, setting, self._leaders)
        if setting.seeded or setting.worker is None:
            self._favourites = prior.ranked(
                region,
                setting.device,
                np.random.default_rng([setting.seed, len(trials)]),
                count=PRIOR_STARTS if setting.worker else setting.effort.predictions,
                starts=[start.config for start in self._starts],
                exclude={*self._known, *self._static},
            )
        begun = [*self._starts]
        if setting.worker is not None:
            begun += [Start(config, "model") for config in self._favourites]
        self.run_id = setting.store.begin_run(
            self.problem,
            setting.device,
            compiler=setting.compiler.label,
            sampler=setting.sampler if setting.worker else "model",
            seed=setting.seed,
            budget=str(self.budget),
            starts=counted(begun, len(trials)),
            argv=setting.argv,
            git_sha=setting.git_sha,
        )
        setting.listener(
            Started(
                problem=self.problem,
                valid=region.size,
                budget=self.budget,
                resumed_trials=len(trials),
            )
        )

    def _time(self, trial: Trial) -> float | None:
        if not trial.measurement.is_ok:
            return None
        return trial.measurement.median_ns if self.setting.worker else trial.predicted_ns

    def _asking(self, region: Region) -> Asking:
        """The strategy, made anew from what is known: what a resumed search does as well."""
        if self.setting.worker is None:
            return Listed([config for config in self._favourites if config not in self._known])
        initial = [start.config for start in self._starts]
        if self.setting.seeded:
            hints = near(self.problem, self._leaders)
            fitted = (
                self.setting.space.fitted(config, self.problem, self.setting.arch)
                for config in hints
            )
            initial = [*(config for config in fitted if config), *initial, *self._favourites]
        return Strategy(
            region,
            seed=self.setting.seed,
            sampler=self.setting.sampler,
            initial=initial,
            known=list(self._known.items()),
            barred=self._static,
            predicted=prior.model(self.problem, self.setting.device),
        )

    # *** trying ***

    def _elapsed(self) -> float:
        """Seconds of searching, in the slice that runs and those before."""
        return self._seconds + time.monotonic() - self._slice_started

    def _is_over(self) -> Status | None:
        budget, tally = self.budget, self._tally
        if budget.trials is not None and tally.number >= budget.trials:
            return "finished"
        if budget.seconds is not None:
            finals_s = min(FINALS_SHARE * budget.seconds, FINALS_S) if self.setting.worker else 0.0
            if self._elapsed() >= budget.seconds - finals_s:
                return "truncated"
        if budget.patience is not None and tally.since_best >= budget.patience:
            return "truncated"
        return None

    def _try(self, asking: Asking, ends_at: float | None, grace_s: float) -> Status | None:
        """Points are chosen, compiled and measured at the same time; each is told as it is done."""
        worker = self.setting.worker
        lane: Lane = PredictingLane() if worker is None else MeasuringLane(worker)
        attempts: list[_Attempt] = []
        before, started = self._tally.number, time.monotonic()
        has_more = True
        try:
            with lane:
                while True:
                    for attempt in attempts:
                        if attempt.judged is None and attempt.compiling.done():
                            self._judge(attempt, lane)
                    over = self._is_over()
                    if over or (ends_at is not None and time.monotonic() >= ends_at):
                        lane.settle(grace_s)
                        self._take_all(attempts, asking)
                        return over
                    # Asked before told, so that a seed means the same search twice as long as the
                    # binaries come in the order of asking.
                    if has_more and len(attempts) < self._room():
                        if (config := asking.ask()) is None:
                            has_more = False
                        else:
                            variant = self._builder.render(config)
                            attempts.append(_Attempt(variant, self._builder.submit(variant)))
                    elif not self._take(attempts, asking):
                        if not attempts:
                            return "finished"
                        waiting: list[Future[Any]] = [attempt.awaited for attempt in attempts]
                        wait(waiting, timeout=POLL_S, return_when=FIRST_COMPLETED)
        finally:
            for attempt in attempts:
                attempt.compiling.cancel()
            # What was dropped may be tried again in the next slice.
            self._measured = {
                identity: future
                for identity, future in self._measured.items()
                if future.done() and not future.cancelled() and future.exception() is None
            }
            self._pace.add((started, time.monotonic()), lane.spans, self._tally.number - before)

    def _room(self) -> int:
        """How many points may be on their way: no more than the budget still wants."""
        trials = self.budget.trials
        if trials is None:
            return self.setting.ahead
        return min(self.setting.ahead, trials - self._tally.number)

    def _judge(self, attempt: _Attempt, lane: Lane) -> None:
        """Sends what has compiled to the device, unless it cannot run or was there before."""
        setting, variant = self.setting, attempt.variant
        result = attempt.compiling.result()
        stage = Stage.predict if setting.worker is None else Stage.search
        refused = self._builder.refused(variant, result, stage)
        if refused is not None:
            attempt.judged = done(refused)
            return
        assert isinstance(result, Binary)
        setting.patience.saw(result.compile_seconds)
        identity = (result.sha256, variant.plan)
        known = self._measured.get(identity)
        # Only what worked is worth as much the second time.
        if known is not None and not (known.done() and not known.result().is_ok):
            attempt.judged, attempt.is_twin = known, True
            return
        attempt.judged = lane.submit(
            Job(
                problem=self.problem,
                plan=variant.plan,
                cubin=result.cubin,
                best_ns=self._tally.best_ns,
                cold=setting.cold,
            )
        )
        if setting.worker is not None:
            self._measured[identity] = attempt.judged

    def _take(self, attempts: list[_Attempt], asking: Asking) -> bool:
        """Records and tells the first that is done, if one is."""
        for place, attempt in enumerate(attempts):
            judged = attempt.judged
            if judged is not None and judged.done() and not judged.cancelled():
                del attempts[place]
                measurement = judged.result()
                if attempt.is_twin:
                    measurement = replace(measurement, message="same binary as an earlier trial")
                time_ns = self._record(attempt.variant, attempt.compiling.result(), measurement)
                asking.tell(attempt.variant.config, time_ns)
                return True
        return False

    def _take_all(self, attempts: list[_Attempt], asking: Asking) -> None:
        while self._take(attempts, asking):
            pass

    def _record(
        self, variant: Variant, result: Binary | Failure, measurement: Measurement
    ) -> float | None:
        """Stores a trial; returns its time, measured or predicted."""
        assert self.run_id is not None
        predicted_ns = None
        if measurement.is_ok and isinstance(result, Binary):
            prediction = predict.candidate(
                self.problem, variant.config, self.setting.device, result.registers
            )
            predicted_ns = prediction.time_ns if prediction else None
        row = self._builder.row(variant, result)
        self.setting.store.record(self.run_id, row, measurement, predicted_ns=predicted_ns)
        time_ns = measurement.median_ns if self.setting.worker else predicted_ns
        self._known[variant.config] = time_ns
        self._tally.add(variant.config, measurement, time_ns)
        self.setting.listener(
            Tried(
                problem=self.problem,
                number=self._tally.number,
                total=self.budget.trials,
                config=variant.config,
                measurement=measurement,
                predicted_ns=predicted_ns,
                best_ns=self._tally.best_ns,
                elapsed_s=self._elapsed(),
            )
        )
        return time_ns

    # *** concluding ***

    def _decide(self, status: Status) -> Report:
        tally, worker = self._tally, self.setting.worker
        if tally.best is None:
            return self.failed(f"none of {tally.number} configs gave a usable kernel")
        report = self._report(status)
        if worker is None:
            return replace(report, best=tally.best, best_ns=tally.best_ns)
        assert self.run_id is not None
        verdict = finals.hold(self.run_id, self._builder, worker)
        if verdict.best is None:
            return self.failed("no finalist passed the confirm round")
        return replace(
            report,
            best=verdict.best,
            best_ns=verdict.best_ns,
            interval_ns=verdict.interval_ns,
            vendor_ns=verdict.vendor_ns,
            ties=verdict.ties,
            message=verdict.message,
        )

    def _report(self, status: Status) -> Report:
        return Report(
            problem=self.problem,
            device=self.setting.device,
            evidence=self.setting.evidence,
            status=status,
            run_id=self.run_id,
            counts=dict(self._tally.counts),
            messages=self._tally.commonest(),
            seconds=self._seconds,
            busy_share=self._pace.busy_share,
            trials_per_s=self._pace.trials_per_s,
            notes=self._tally.notes(),
        )
