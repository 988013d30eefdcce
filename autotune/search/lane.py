"""Where binaries are judged while the next points are chosen, rendered and compiled."""

from __future__ import annotations

import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from typing import Protocol

from autotune.measure import Job, Worker
from autotune.search.tally import Span
from autotune.types import Measurement, Outcome, Stage

_POLL_S = 0.05
_SWITCH_S = 2e-4
"""How long a thread that computes keeps the interpreter from one that waits for it. The worker
tells of every step of a job, and the device must not wait Python's 5 ms for each to be heard."""


class Lane(AbstractContextManager["Lane"], Protocol):
    """Takes one job after the other; on the way out it drops what is not done.

    Attributes:
        spans: When it was measuring.
    """

    spans: list[Span]

    def submit(self, job: Job) -> Future[Measurement]:
        """Queues a job."""

    def settle(self, limit_s: float) -> None:
        """Drops what is queued, and lets the running job end if it does so in time."""


class MeasuringLane(Lane):
    """Measures in a thread of its own, since a worker answers one job at a time."""

    def __init__(self, worker: Worker) -> None:
        self.spans = []
        self._worker = worker
        self._thread = ThreadPoolExecutor(1, "autotune-measure")
        self._futures: list[Future[Measurement]] = []
        self._switch_s = sys.getswitchinterval()

    def __enter__(self) -> MeasuringLane:
        sys.setswitchinterval(min(_SWITCH_S, self._switch_s))
        return self

    def submit(self, job: Job) -> Future[Measurement]:
        future = self._thread.submit(self._measure, job)
        self._futures = [each for each in self._futures if not each.done()] + [future]
        return future

    def settle(self, limit_s: float) -> None:
        self._futures = [future for future in self._futures if not future.cancel()]
        wait(self._futures, timeout=limit_s)

    def __exit__(self, *_: object) -> None:
        sys.setswitchinterval(self._switch_s)
        self._futures = [future for future in self._futures if not future.cancel()]
        # Again and again: the thread may just be starting another process.
        while wait(self._futures, timeout=_POLL_S).not_done:
            self._worker.interrupt()
        self._thread.shutdown()

    def _measure(self, job: Job) -> Measurement:
        started = time.monotonic()
        try:
            return self._worker.measure(job)
        finally:
            self.spans.append((started, time.monotonic()))


class PredictingLane(Lane):
    """Stands in where there is no device: whatever compiles is worth a prediction."""

    def __init__(self) -> None:
        self.spans = []

    def submit(self, job: Job) -> Future[Measurement]:
        return done(Measurement(outcome=Outcome.ok, stage=Stage.predict, cold_l2=job.cold))

    def settle(self, limit_s: float) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def done(measurement: Measurement) -> Future[Measurement]:
    """A measurement that nobody has to wait for."""
    future: Future[Measurement] = Future()
    future.set_result(measurement)
    return future
