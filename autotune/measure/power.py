"""What a kernel draws: it runs back to back for a while, and NVML is asked before and after.

A kernel takes microseconds, NVML renews its figures some ten times a second: only many runs in a
row have a power. The energy counter is read where it changes, so that the window begins and ends
with a fresh figure; where a device has no such counter, its power readings are averaged.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from autotune.device import Monitor
from autotune.gpu import Context
from autotune.measure.timing import Run

WARM_UP_S = 0.2
_BATCH_NS = 2e6
_MOST_RUNS = 500
_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """A kernel running back to back, on operands that may lie in the L2 cache.

    Attributes:
        power_w: Mean of the whole device; None where `message` says why.
        run_ns: From one run to the next.
        busy: Share of that in which the device works; the rest it waits for the host.
        source: `energy`, the device's counter, or `readings`, the mean of its power readings.
    """

    power_w: float | None = None
    run_ns: float | None = None
    busy: float | None = None
    source: Literal["energy", "readings", ""] = ""
    message: str = ""

    def gflops_per_watt(self, flops: int) -> float | None:
        """Work for the energy, in GFLOP/s per W, of a kernel with so many operations."""
        if self.power_w is None or self.run_ns is None:
            return None
        return flops / self.run_ns / self.power_w


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tick:
    """Time and runs so far when a figure was fresh."""

    at_s: float
    runs: int
    energy_j: float | None


def watch(run: Run, run_ns: float, context: Context, monitor: Monitor, seconds: float) -> Power:
    """Runs back to back for `WARM_UP_S` and then for so many seconds.

    Args:
        run_ns: Time of one run on a busy device.
    """
    batch = min(max(1, math.ceil(_BATCH_NS / run_ns)), _MOST_RUNS)
    ticks: list[_Tick] = []
    readings: list[float] = []
    runs, last_j = 0, monitor.energy_j()
    started = time.monotonic()
    begin, end = started + WARM_UP_S, started + WARM_UP_S + seconds
    while True:
        for _ in range(batch):
            run()
        context.synchronize()
        runs += batch
        now, energy_j = time.monotonic(), monitor.energy_j()
        if now < begin:
            last_j = energy_j
            continue
        if energy_j is None or energy_j != last_j:
            ticks.append(_Tick(at_s=now, runs=runs, energy_j=energy_j))
            last_j = energy_j
            if energy_j is None and (reading := monitor.conditions().power_w) is not None:
                readings.append(reading)
        # The counter is waited for, but not for ever.
        if now >= end and (len(ticks) > 1 or now >= end + _PATIENCE_S):
            return _conclude(ticks, readings, run_ns)


def _conclude(ticks: list[_Tick], readings: list[float], busy_ns: float) -> Power:
    if len(ticks) < 2:
        return Power(message="the energy counter of the device stands still")
    first, last = ticks[0], ticks[-1]
    elapsed_s, runs = last.at_s - first.at_s, last.runs - first.runs
    run_ns = elapsed_s / runs * 1e9
    busy = min(1.0, busy_ns / run_ns)
    if first.energy_j is not None and last.energy_j is not None:
        power_w = (last.energy_j - first.energy_j) / elapsed_s
        return Power(power_w=power_w, run_ns=run_ns, busy=busy, source="energy")
    if readings:
        return Power(power_w=fmean(readings), run_ns=run_ns, busy=busy, source="readings")
    return Power(
        run_ns=run_ns,
        busy=busy,
        message="no power: NVML does not say (see `autotune devices`)",
    )
