"""The loop of trials: points are chosen, compiled and measured at the same time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from typing import Any, Protocol

from autotune.analysis import predict
from autotune.measure import Job
from autotune.search.builder import Builder, Compiling
from autotune.search.events import Status, Tried
from autotune.search.lane import Lane, MeasuringLane, PredictingLane, done
from autotune.search.progress import Progress
from autotune.store import Trial
from autotune.types import Binary, Config, Failure, LaunchPlan, Measurement, Stage, Variant

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


class Loop:
    """Tries points of one problem, and keeps what they gave.

    From one `run` to the next it remembers which binaries were measured: none is measured twice.

    Args:
        progress: Counts every trial, and says when there are enough.
        run_id: Row of the run that the trials belong to.
        earlier: Trials of other runs, already counted; their binaries are known.
    """

    def __init__(
        self, builder: Builder, progress: Progress, *, run_id: int, earlier: Sequence[Trial]
    ) -> None:
        self._builder = builder
        self._setting = builder.setting
        self._progress = progress
        self._run_id = run_id
        self._measured: dict[Identity, Future[Measurement]] = {}
        if self._setting.worker is not None:
            for trial in earlier:
                if trial.cubin_sha256 and trial.measurement.is_ok:
                    identity = trial.cubin_sha256, builder.plan(trial.config)
                    self._measured[identity] = done(trial.measurement)

    def run(self, asking: Asking, *, ends_at: float | None, grace_s: float) -> Status | None:
        """Tries points until the budget is used, there are no more, or the time is over.

        Each is told to `asking` as it is done, and stored before that.

        Args:
            ends_at: On the monotonic clock in seconds; None where only the budget ends it.
            grace_s: What the kernel on the device may take beyond either; then it is dropped, and
                may be tried again.

        Returns:
            How the search has ended; None when only the time is over.

        Raises:
            StoreError, CompilerError, DeviceError, ShapeError: the environment ends the search.
            KeyboardInterrupt: as it came.
        """
        setting, progress = self._setting, self._progress
        lane: Lane = PredictingLane() if setting.worker is None else MeasuringLane(setting.worker)
        attempts: list[_Attempt] = []
        before, started = progress.tally.number, time.monotonic()
        has_more = True
        try:
            with lane:
                while True:
                    for attempt in attempts:
                        if attempt.judged is None and attempt.compiling.done():
                            self._judge(attempt, lane)
                    status = progress.status()
                    if status or (ends_at is not None and time.monotonic() >= ends_at):
                        lane.settle(grace_s)
                        while self._take(attempts, asking):
                            pass
                        return status
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
            made = progress.tally.number - before
            progress.pace.add((started, time.monotonic()), lane.spans, made)

    def _room(self) -> int:
        """How many points may be on their way: no more than the budget still wants."""
        trials = self._setting.budget.trials
        if trials is None:
            return self._setting.ahead
        return min(self._setting.ahead, trials - self._progress.tally.number)

    def _judge(self, attempt: _Attempt, lane: Lane) -> None:
        """Sends what has compiled to the device, unless it cannot run or was there before."""
        setting, variant = self._setting, attempt.variant
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
                problem=self._builder.problem,
                plan=variant.plan,
                cubin=result.cubin,
                best_ns=self._progress.tally.best_ns,
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

    def _record(
        self, variant: Variant, result: Binary | Failure, measurement: Measurement
    ) -> float | None:
        """Stores, counts and announces a trial; returns its time, measured or predicted."""
        builder, setting, progress = self._builder, self._setting, self._progress
        predicted_ns = None
        if measurement.is_ok and isinstance(result, Binary):
            prediction = predict.candidate(
                builder.problem, variant.config, setting.device, result.registers
            )
            predicted_ns = prediction.time_ns if prediction else None
        row = builder.row(variant, result)
        setting.store.record(self._run_id, row, measurement, predicted_ns=predicted_ns)
        time_ns = progress.add(variant.config, measurement, predicted_ns)
        setting.listener(
            Tried(
                problem=builder.problem,
                number=progress.tally.number,
                total=setting.budget.trials,
                config=variant.config,
                measurement=measurement,
                predicted_ns=predicted_ns,
                best_ns=progress.tally.best_ns,
                elapsed_s=progress.elapsed_s,
            )
        )
        return time_ns
