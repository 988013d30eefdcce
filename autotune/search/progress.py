"""How far the search of one problem has come, and whether its budget is used."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from autotune.search.events import Status
from autotune.search.setting import Setting
from autotune.search.tally import Pace, Tally
from autotune.types import Config, Measurement

FINALS_SHARE = 0.15
FINALS_S = 8.0
"""What is left of a time budget to the finals: this share of it, but no more than so long."""


class Progress:
    """What has been tried, in how much time, beside the setting's budget.

    Attributes:
        tally: The trials, those of earlier runs included.
        pace: How fast they were made in this run.
        seconds: Of the slices that are over.
    """

    def __init__(self, setting: Setting) -> None:
        self.tally = Tally()
        self.pace = Pace()
        self.seconds = 0.0
        self._setting = setting
        self._slice_started: float | None = None

    @contextmanager
    def slice(self) -> Iterator[None]:
        """A slice of the search, whose time counts."""
        self._slice_started = time.monotonic()
        try:
            yield
        finally:
            self.seconds = self.elapsed_s
            self._slice_started = None

    @property
    def elapsed_s(self) -> float:
        """Seconds of searching, in the slice that runs and those before."""
        if self._slice_started is None:
            return self.seconds
        return self.seconds + time.monotonic() - self._slice_started

    def add(
        self, config: Config, measurement: Measurement, predicted_ns: float | None
    ) -> float | None:
        """Counts one trial.

        Args:
            predicted_ns: What the model says of it; None for a failure, or where it does not know.

        Returns:
            Its time in ns: measured, or predicted where nothing can be timed; None for a failure.
        """
        time_ns = None
        if measurement.is_ok:
            time_ns = measurement.median_ns if self._setting.worker else predicted_ns
        self.tally.add(config, measurement, time_ns)
        return time_ns

    def status(self) -> Status | None:
        """How the search has ended; None while its budget lasts."""
        budget, tally = self._setting.budget, self.tally
        if budget.trials is not None and tally.number >= budget.trials:
            return "finished"
        if budget.seconds is not None:
            has_finals = self._setting.worker is not None
            finals_s = min(FINALS_SHARE * budget.seconds, FINALS_S) if has_finals else 0.0
            if self.elapsed_s >= budget.seconds - finals_s:
                return "truncated"
        if budget.patience is not None and tally.since_best >= budget.patience:
            return "truncated"
        return None
