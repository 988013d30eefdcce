"""Samples of a run's time, and when there are enough of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from autotune.device import Monitor
from autotune.errors import DeviceError
from autotune.gpu import Context, Event
from autotune.measure.jobs import Limits
from autotune.measure.probe import Probe
from autotune.types import Conditions, Device, Problem

Run = Callable[[], None]
"""Enqueues every launch of a plan once."""

MIB = 1024 * 1024
_WINDOW_NS = 100_000
_MOST_LAUNCHES = 200
_ENQUEUE_NS = 15_000
"""For the host's part of a launch or an event: how long the device waits at first."""
_ATTEMPTS = 10
_FIRST_BATCH = 5
_BATCH = 4
_IMPOSSIBLE = 0.95


def flush_bytes(l2_bytes: int) -> int:
    """Size of the buffer that empties the L2 cache: twice the cache, within 32-512 MiB."""
    return min(max(2 * l2_bytes, 32 * MIB), 512 * MIB)


def quantile(samples: Sequence[float], share: float) -> float:
    """A quantile of the samples, between two of them where it falls there."""
    return float(np.quantile(np.asarray(samples), share))


def half_width(samples: Sequence[float]) -> float:
    """Half the 95 % interval of the median, as a share of the median; infinite for one sample.

    From the spread between the 20th and 80th percentile (1.683 standard deviations of a normal
    distribution), which a few outliers do not move; a median's standard error is 1.253 times a
    mean's.
    """
    if len(samples) < 2:
        return math.inf
    deviation = (quantile(samples, 0.8) - quantile(samples, 0.2)) / 1.683
    return 1.96 * 1.253 * deviation / math.sqrt(len(samples)) / quantile(samples, 0.5)


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """What the median of the distribution behind independent values lies in, whatever its form.

    The narrowest pair of order statistics, as many from below as from above, whose coverage (a
    binomial sum) is at least the confidence; the extremes where no pair is that sure: 5 values
    cover 93.75 %.
    """
    ordered = sorted(values)
    count = len(ordered)
    outside, left_out = 0.0, 0
    for each in range(count // 2):
        outside += 2 * math.comb(count, each) / 2**count
        if outside > 1 - confidence:
            break
        left_out = each
    return ordered[left_out], ordered[count - 1 - left_out]


def floor_ns(problem: Problem, device: Device, cold: bool, sm_clock_mhz: int | None) -> float:
    """The shortest time that the device's highest rates allow.

    Arithmetic at the highest clock that is known, the reported or the observed one; with a cold
    cache, also reading each input once. Writes do not count: they may stay in the cache.
    """
    clock_khz = max(device.sm_clock_khz, 1000 * (sm_clock_mhz or 0))
    flops_per_s = device.sm_count * device.cores_per_sm * 2 * clock_khz * 1e3
    arithmetic = problem.flops / flops_per_s * 1e9 if flops_per_s else 0.0
    if not cold or not device.bandwidth_gbs:
        return arithmetic
    read = sum(
        4 * o.rows * o.columns * (o.batch if o.batch_stride else 1)
        for o in problem.operands
        if o.role != "out"
    )
    return max(arithmetic, read / device.bandwidth_gbs)


def is_impossible(time_ns: float, least_ns: float) -> bool:
    """Whether a time is below what the device can do, beyond what clocks may be off by."""
    return time_ns < _IMPOSSIBLE * least_ns


class Timer:
    """Times runs on one device."""

    def __init__(self, context: Context, probe: Probe, monitor: Monitor) -> None:
        self._context = context
        self._probe = probe
        self._monitor = monitor
        self._flush_bytes = flush_bytes(context.device.l2_bytes)
        self._flush = context.allocate(self._flush_bytes)
        self._events: list[tuple[Event, Event]] = []
        self._enqueue_ns = _ENQUEUE_NS
        self.conditions = Conditions()
        # What two events with nothing between them read: the part of a time that is not the run's.
        self.resolution_ns = quantile(self.sample(lambda: None, 9, cold=True), 0.5)

    def once(self, run: Run) -> float:
        """Time of one run in ns, its first launch's costs and the host's included."""
        ((time_ns, _),) = self._windows(run, 1, cold=True, launches=1)
        return time_ns

    def warm_up(self, run: Run, estimate_ns: float, warm_up_ms: float) -> None:
        """Runs for about so long; not at all for a time below zero."""
        count = math.ceil(warm_up_ms * 1e6 / max(estimate_ns, 1.0))
        for _ in range(min(count, 1000)):
            run()
        self._context.synchronize()

    def sample(self, run: Run, count: int, *, cold: bool, launches: int = 1) -> list[float]:
        """Times of `count` windows of so many runs, in ns a run.

        Windows in which the device waited for the host are taken again, behind a longer wait if
        most did.

        Raises:
            DeviceError: the host does not keep up, however long the device waits.
        """
        times: list[float] = []
        for _ in range(_ATTEMPTS):
            taken = self._windows(run, count - len(times), cold=cold, launches=launches)
            good = [time_ns for time_ns, is_late in taken if not is_late]
            times += good
            if len(times) == count:
                return times
            if 2 * len(good) < len(taken):
                self._enqueue_ns *= 2
        raise DeviceError(
            f"this machine takes more than {self._enqueue_ns / 1e6:.1f} ms to enqueue a launch, so "
            "that times would be the host's and not the device's; is it overloaded?"
        )

    def _windows(
        self, run: Run, count: int, *, cold: bool, launches: int
    ) -> list[tuple[float, bool]]:
        """Windows with times in ns a run, and whether the host was late for each.

        All are enqueued at once, each behind a wait in which the host enqueues its events and runs:
        a time would be the host's, were the device through with a wait before.
        """
        while len(self._events) < count:
            self._events.append((self._context.event(), self._context.event()))
        pairs = self._events[:count]
        late = []
        for start, end in pairs:
            if cold:
                self._context.fill_bytes(self._flush, 0, self._flush_bytes)
                # What was filled is still to be written back. The run must not pay for that: 50 MB
                # are a fifth of what a large matrix-vector product reads.
                self._probe.read(self._flush, self._flush_bytes)
            self._probe.delay(self._enqueue_ns * (launches + 2))
            start.record()
            for _ in range(launches):
                run()
            end.record()
            late.append(start.is_done())
        # Asked while the device is busy: an idle one reports other clocks.
        self.conditions = self._monitor.conditions()
        self._context.synchronize()
        times = [end.elapsed_ns(start) / launches for start, end in pairs]
        return list(zip(times, late, strict=True))

    def launches(self, estimate_ns: float) -> int:
        """How many runs one window of a warm cache takes: short ones would drown in the events."""
        return min(max(1, math.ceil(_WINDOW_NS / estimate_ns)), _MOST_LAUNCHES)

    def measure(
        self, run: Run, estimate_ns: float, best_ns: float | None, *, cold: bool, limits: Limits
    ) -> tuple[list[float], bool]:
        """Samples in ns a run, and whether they were cut short because it is clearly slower."""
        launches = 1 if cold else self.launches(estimate_ns)
        samples: list[float] = []
        spent_ns = 0.0
        while len(samples) < limits.max_samples:
            count = _BATCH if samples else _FIRST_BATCH
            # A run that takes long by itself is sampled one at a time.
            affordable = int((limits.budget_ms * 1e6 - spent_ns) / (estimate_ns * launches))
            count = max(1, min(count, affordable, limits.max_samples - len(samples)))
            samples += self.sample(run, count, cold=cold, launches=launches)
            median = quantile(samples, 0.5)
            spent_ns += sum(samples[-count:]) * launches
            estimate_ns = max(median, 1.0)
            if best_ns is not None and median > limits.slower_factor * best_ns:
                return samples, True
            if spent_ns >= limits.budget_ms * 1e6:
                break
            if len(samples) >= limits.min_samples and half_width(samples) <= limits.relative_error:
                break
        return samples, False

    def close(self) -> None:
        """Frees the flush buffer."""
        self._context.free(self._flush)
