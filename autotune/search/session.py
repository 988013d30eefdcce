"""The search of one problem: where it begins, in one go or in slices, and how the finals end it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autotune.errors import InfeasibleError
from autotune.region import Region
from autotune.search import finals, prior
from autotune.search.builder import Builder
from autotune.search.events import Report, Started, Status
from autotune.search.loop import Asking, Loop
from autotune.search.progress import Progress
from autotune.search.setting import Setting
from autotune.search.starts import Leaders, Start, counted, first_points, leading, starts
from autotune.search.strategy import Strategy
from autotune.types import Config, Problem

PRIOR_STARTS = 16
"""Points that the model chooses for the beginning of a measured search."""
GRACE_S = 1.0
"""What the kernel on the device at the end of a search may still take."""


class Listed:
    """Points in an order that was fixed before."""

    def __init__(self, configs: Sequence[Config]) -> None:
        self._configs = iter(configs)

    def ask(self) -> Config | None:
        return next(self._configs, None)

    def tell(self, config: Config, time_ns: float | None) -> None:
        pass


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
        self._progress = Progress(setting)
        self._loop: Loop | None = None
        self._static: list[Config] = []
        self._starts: list[Start] = []
        self._favourites: list[Config] = []
        self._has_ended = False

    @property
    def best_ns(self) -> float | None:
        return self._progress.tally.best_ns

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
        try:
            with self._progress.slice():
                if self._region is None:
                    self.prepare()
                region = self._region
                assert region is not None
                if self._loop is None:
                    self._loop = self._open(region)
                # Counted from here: a slice that was used up by getting ready would be none.
                ends_at = None if seconds is None else time.monotonic() + seconds
                if status := self._progress.status():
                    return status
                return self._loop.run(self._asking(region), ends_at=ends_at, grace_s=grace_s)
        finally:
            self._leaders[self.problem] = leading(self._progress.tally.times_ns)

    def conclude(self, status: Status) -> Report:
        """Holds the finals, ends the run and reports."""
        started = time.monotonic()
        ended = "interrupted"
        try:
            report = self._decide(status)
            ended = status
        finally:
            self._end(ended)
        return replace(report, seconds=self._progress.seconds + time.monotonic() - started)

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

    def not_reached(self, message: str) -> Report:
        """The report of a search for which there was no time."""
        return replace(self._report("not reached"), message=message)

    # *** before the first point ***

    def _open(self, region: Region) -> Loop:
        """Gathers what is known already and where to start, and begins the run."""
        setting, tried = self.setting, self._progress.tally.times_ns
        if region.size == 0:
            raise InfeasibleError(f"no config of {setting.space.path} can serve {self.problem.key}")
        trials = self._builder.trials()
        for trial in trials:
            self._progress.add(trial.config, trial.measurement, trial.predicted_ns)
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
                exclude={*tried, *self._static},
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
            budget=str(setting.budget),
            starts=counted(begun, len(trials)),
            argv=setting.argv,
            git_sha=setting.git_sha,
        )
        setting.listener(
            Started(
                problem=self.problem,
                valid=region.size,
                budget=setting.budget,
                resumed_trials=len(trials),
            )
        )
        return Loop(self._builder, self._progress, run_id=self.run_id, earlier=trials)

    def _asking(self, region: Region) -> Asking:
        """The strategy, made anew from what is known: what a resumed search does as well."""
        tried = self._progress.tally.times_ns
        if self.setting.worker is None:
            return Listed([config for config in self._favourites if config not in tried])
        initial = first_points(self._starts, self.problem, self.setting, self._leaders)
        return Strategy(
            region,
            seed=self.setting.seed,
            sampler=self.setting.sampler,
            initial=[*initial, *self._favourites],
            known=list(tried.items()),
            barred=self._static,
            predicted=prior.model(self.problem, self.setting.device),
        )

    # *** concluding ***

    def _decide(self, status: Status) -> Report:
        tally, worker = self._progress.tally, self.setting.worker
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
        progress = self._progress
        return Report(
            problem=self.problem,
            device=self.setting.device,
            evidence=self.setting.evidence,
            status=status,
            run_id=self.run_id,
            counts=dict(progress.tally.counts),
            messages=progress.tally.commonest(),
            seconds=progress.seconds,
            busy_share=progress.pace.busy_share,
            trials_per_s=progress.pace.trials_per_s,
            notes=progress.tally.notes(),
        )
