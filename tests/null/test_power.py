"""Power of a kernel that runs back to back: energy counter, readings, neither; on a fake clock."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from fake_door import DEVICE, PROBE, FakeContext, FakeDoor, Spec, plan

from autotune.device import Monitor
from autotune.errors import UsageError
from autotune.measure import Job, Power, Worker, power
from autotune.measure.bench import Bench
from autotune.problems.sgemm import Sgemm
from autotune.types import Conditions

PROBLEM = Sgemm.parse("24x20x16")
TICK_S = 0.1
IDLE_W, BUSY_W = 80.0, 500.0


class Meter:
    """Stands in for NVML: a counter that is renewed every `TICK_S`, or readings of power."""

    def __init__(self, context: FakeContext) -> None:
        self.context = context
        self.has_counter = True
        self.stands_still = False
        self.reading_w: float | None = BUSY_W

    def energy_j(self, _: Monitor) -> float | None:
        if not self.has_counter:
            return None
        now_s = 0.0 if self.stands_still else self.context.clock_ns / 1e9
        return 1000 + BUSY_W * TICK_S * math.floor(now_s / TICK_S + 1e-9)

    def conditions(self, _: Monitor) -> Conditions:
        return Conditions(power_w=self.reading_w)


@pytest.fixture
def context() -> FakeContext:
    return FakeDoor().open(0)


@pytest.fixture
def meter(context: FakeContext, monkeypatch: pytest.MonkeyPatch) -> Meter:
    made = Meter(context)
    monkeypatch.setattr(Monitor, "energy_j", lambda monitor: made.energy_j(monitor))
    monkeypatch.setattr(Monitor, "conditions", lambda monitor: made.conditions(monitor))
    clock = SimpleNamespace(monotonic=lambda: context.clock_ns / 1e9)
    monkeypatch.setattr(power, "time", clock)
    return made


@pytest.fixture
def fake_bench(context: FakeContext) -> Iterator[Bench]:
    bench = Bench(context, "fake", PROBE, 0, lambda step, job: None)
    yield bench
    bench.close()


def job(fault: str = "", ns: float = 1e6) -> Job:
    cubin = Spec(problem=PROBLEM, fault=fault, ns=ns).cubin
    return Job(problem=PROBLEM, plan=plan(PROBLEM), cubin=cubin)


@pytest.mark.parametrize("seconds", [0.05, 0.5])
def test_the_counter_is_read_where_it_changes(
    fake_bench: Bench, meter: Meter, seconds: float
) -> None:
    """The window is a whole number of the counter's ticks, whatever was asked for."""
    found = fake_bench.power(job(ns=1e6), seconds)
    assert found.source == "energy" and found.message == ""
    assert found.power_w == pytest.approx(BUSY_W, rel=0.03)
    assert found.run_ns == pytest.approx(1e6)
    assert found.busy == pytest.approx(1.0)
    rate = PROBLEM.flops / 1e6 / BUSY_W
    assert found.gflops_per_watt(PROBLEM.flops) == pytest.approx(rate, rel=0.03)


def test_waiting_for_the_host_is_told(
    fake_bench: Bench, meter: Meter, context: FakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device is busy for a quarter of the time when the host needs three times as long."""
    before = context.synchronize

    def slow_host() -> None:
        before()
        context.clock_ns += 6e6  # beside the 2 ms of a batch

    monkeypatch.setattr(context, "synchronize", slow_host)
    found = fake_bench.power(job(ns=1e6), 0.2)
    assert found.busy == pytest.approx(0.25, rel=0.05)


def test_readings_stand_in_for_a_counter(fake_bench: Bench, meter: Meter) -> None:
    meter.has_counter = False
    found = fake_bench.power(job(), 0.2)
    assert (found.source, found.power_w) == ("readings", BUSY_W)
    meter.reading_w = None
    nothing = fake_bench.power(job(), 0.2)
    assert nothing.power_w is None and nothing.gflops_per_watt(100) is None
    assert "NVML does not say" in nothing.message
    assert nothing.run_ns == pytest.approx(1e6)


def test_a_counter_that_stands_still_ends_the_wait(
    fake_bench: Bench, meter: Meter, context: FakeContext
) -> None:
    meter.stands_still = True
    before = context.clock_ns
    found = fake_bench.power(job(), 0.2)
    assert found.power_w is None and "stands still" in found.message
    assert context.clock_ns - before < 3e9


def test_what_the_driver_refuses_has_no_power(fake_bench: Bench, meter: Meter) -> None:
    found = fake_bench.power(job("load"), 0.2)
    assert found == Power(message="cuModuleLoadData failed: CUDA_ERROR_NO_BINARY_FOR_GPU (209)")
    assert fake_bench.power(job(), 0.2).power_w is not None


def test_the_worker_survives_a_kernel_that_crashes_while_it_is_watched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    with Worker(DEVICE, door=FakeDoor, probe_cubin=PROBE) as worker:
        crashed = worker.power(job("illegal late"), 0.05)
        assert crashed.power_w is None
        assert crashed.message.startswith("crash: ") and "ILLEGAL_ADDRESS" in crashed.message
        assert worker.measure(job()).is_ok
        assert worker.starts == 2
        with pytest.raises(UsageError, match="give a time above 0"):
            worker.power(job(), 0.0)
