"""One candidate at a time, on the fake device: verdicts, timing, early stop, memory."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from fake_door import DEVICE, PROBE, FakeContext, FakeDoor, FakeModule, Spec, plan

from autotune import archs, device, verify
from autotune.errors import DeviceError, DriverError, ShapeError
from autotune.gpu import Values
from autotune.measure import Job, Limits, VendorJob, bench, timing, vendor, vendor_missing
from autotune.measure.arena import Arena, require_memory
from autotune.measure.bench import Bench, is_sticky, shortages
from autotune.measure.places import PAGE_BYTES, Block, layout
from autotune.problems.sgemm import Sgemm
from autotune.types import Launch, LaunchPlan, Measurement, Outcome, Problem, Stage, Workspace

PROBLEM = Sgemm.parse("40x24x32", ldc=28, align_a=4, layout="tn")
WITH_BETA = Sgemm.parse("17x19x23", beta_zero=False, batch=2)


@pytest.fixture(autouse=True)
def no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_nvml_or_reason", lambda: (None, "planted"))


@pytest.fixture
def context() -> FakeContext:
    return FakeDoor().open(0)


@pytest.fixture
def fake_bench(context: FakeContext) -> Iterator[Bench]:
    bench = Bench(context, "fake", PROBE, 0, lambda step, job: None)
    yield bench
    bench.close()


def job(fault: str = "", problem: Sgemm = PROBLEM, ns: float = 1e6, **options: object) -> Job:
    spec = Spec(problem=problem, fault=fault, ns=ns)
    return Job(problem=problem, plan=plan(problem), cubin=spec.cubin, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("problem", [PROBLEM, WITH_BETA, Sgemm.parse("1x1x1")])
def test_a_right_kernel(fake_bench: Bench, problem: Sgemm) -> None:
    measured = fake_bench.measure(job(problem=problem))
    elements = problem.m * problem.n * problem.batch
    assert measured.outcome is Outcome.ok
    assert measured.median_ns == measured.p20_ns == measured.p80_ns == measured.min_ns == 1e6
    assert measured.checks == (
        f"exact, guards, inputs, fp64 of {elements}, exact x8 after timing, seed 0"
    )
    assert measured.max_error is not None and 0 <= measured.max_error < 1
    assert (measured.door, measured.cold_l2, measured.truncated) == ("fake", True, False)
    assert measured.stage is Stage.search
    assert measured.measured_at.endswith("+00:00")


@pytest.mark.parametrize(
    ("fault", "problem", "message"),
    [
        ("empty", PROBLEM, "exact check: 960 of 960 elements are wrong"),
        ("empty", WITH_BETA, "elements are wrong"),
        ("half rows", PROBLEM, "exact check: 480 of 960 elements are wrong"),
        ("half k", PROBLEM, "exact check: "),
        ("reads c", PROBLEM, "got nan"),
        ("corrupt 0", PROBLEM, "1 of 960 elements are wrong, first batch 0 row 0 column 0"),
        ("corrupt 959", PROBLEM, "first batch 0 row 39 column 23"),
        ("corrupt -24", PROBLEM, "first batch 0 row 39 column 0"),
        ("corrupt 500", WITH_BETA, "1 of 646 elements are wrong, first batch 1"),
        ("tf32", PROBLEM, "FP64 check: "),
        ("racy", PROBLEM, "of 8 after timing: 1 of 960 elements are wrong"),
        ("writes guard", PROBLEM, "1 words outside of c were written"),
        ("writes padding", PROBLEM, "first 96 bytes from its first element"),
        ("writes input", PROBLEM, "inputs: the kernel wrote where it may only read: a (exact"),
    ],
)
def test_a_wrong_kernel_is_found_and_does_no_harm(
    fake_bench: Bench, fault: str, problem: Sgemm, message: str
) -> None:
    assert fake_bench.measure(job(problem=problem)).is_ok
    wrong = fake_bench.measure(job(fault, problem))
    assert wrong.outcome is Outcome.wrong_result
    assert message in wrong.message
    assert (wrong.samples, wrong.median_ns, wrong.checks) == (0, None, "")
    assert fake_bench.measure(job(problem=problem)).is_ok, "the next one finds everything in order"


WORKSPACES = (
    Workspace(name="parts", size_bytes=1024, is_zeroed=False),
    Workspace(name="counters", size_bytes=1024, is_zeroed=True),
)


def split(fault: str = "", problem: Sgemm = PROBLEM, ns: float = 1e6) -> Job:
    """A job whose kernel uses workspaces."""
    return replace(job(fault, problem, ns), plan=plan(problem, workspaces=WORKSPACES))


def test_workspaces_are_kept_and_only_grow(fake_bench: Bench, context: FakeContext) -> None:
    assert fake_bench.measure(split()).is_ok
    free = context.memory()
    assert fake_bench.measure(split(ns=2e6)).is_ok
    assert fake_bench.measure(job()).is_ok, "a plan without them leaves them"
    assert context.memory() == free
    larger = replace(WORKSPACES[0], size_bytes=2**20)
    grown = plan(PROBLEM, workspaces=(larger, WORKSPACES[1]))
    assert fake_bench.measure(replace(split(), plan=grown)).is_ok
    assert free[0] - context.memory()[0] == 2**20 - 1024, "the smaller one is freed"
    answers = fake_bench.confirm([split(), replace(split(), plan=grown), job()], rounds=2, seed=0)
    assert all(answer.is_ok for answer in answers)


def test_a_buffer_that_grows_in_a_confirm_round_moves_under_nobody(fake_bench: Bench) -> None:
    larger = plan(PROBLEM, workspaces=(replace(WORKSPACES[0], size_bytes=2**20), WORKSPACES[1]))
    jobs = [split(), replace(split(), plan=larger)]
    assert all(answer.is_ok for answer in fake_bench.confirm(jobs, rounds=2, seed=0))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("counts on", "exact check: 1 words of workspace counters are not zero after the run, "
         "first 12 bytes from its start"),
        ("counts wrong at last", "after timing: 1 words of workspace counters are not zero"),
        ("writes beyond", "exact check: 1 words of workspace parts beyond it were written, first "
         "1028 bytes from its start"),
    ],
)  # fmt: skip
def test_a_workspace_that_is_left_wrong_is_a_wrong_result(
    fake_bench: Bench, fault: str, message: str
) -> None:
    wrong = fake_bench.measure(split(fault))
    assert wrong.outcome is Outcome.wrong_result
    assert message in wrong.message
    assert fake_bench.measure(split()).is_ok, "the next one finds zeros"


def test_a_workspace_that_does_not_fit_is_the_configs_fault(fake_bench: Bench) -> None:
    huge = (Workspace(name="parts", size_bytes=2**44, is_zeroed=False),)
    refused = fake_bench.measure(replace(job(), plan=plan(PROBLEM, workspaces=huge)))
    assert refused.outcome is Outcome.infeasible
    assert "workspace parts takes 17592186109952 bytes" in refused.message
    answers = fake_bench.confirm(
        [replace(job(), plan=plan(PROBLEM, workspaces=huge)), job()], rounds=1, seed=0
    )
    assert [answer.outcome for answer in answers] == [Outcome.infeasible, Outcome.ok]


def test_a_plan_without_launches_fails(fake_bench: Bench) -> None:
    nothing = replace(job(), plan=LaunchPlan(launches=()))
    assert fake_bench.measure(nothing).outcome is Outcome.wrong_result


def test_a_comparison_that_passes_everything_is_noticed(
    context: FakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.measure.probe.Probe.differences", lambda *args: 0)
    with pytest.raises(DeviceError, match="a kernel that does nothing passes"):
        Bench(context, "fake", PROBE, 0, lambda step, job: None).measure(job())


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("load", "cuModuleLoadData failed: CUDA_ERROR_NO_BINARY_FOR_GPU (209)"),
        ("launch", "cuLaunchKernel failed: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)"),
    ],
)
def test_what_the_driver_refuses_is_a_launch_error(
    fake_bench: Bench, fault: str, message: str
) -> None:
    refused = fake_bench.measure(job(fault))
    assert (refused.outcome, refused.message) == (Outcome.launch_error, message)
    assert fake_bench.measure(job()).is_ok


@pytest.mark.parametrize("fault", ["illegal", "wide"])
def test_what_breaks_the_context_leaves(fake_bench: Bench, fault: str) -> None:
    with pytest.raises(DriverError) as caught:
        fake_bench.measure(job(fault))
    assert is_sticky(caught.value)


def test_shortages_give_the_numbers(fake_bench: Bench) -> None:
    spec = Spec(problem=PROBLEM, registers=254, threads_per_block=256)
    heavy = fake_bench.measure(
        Job(problem=PROBLEM, plan=plan(PROBLEM, threads=1024), cubin=spec.cubin)
    )
    assert heavy.outcome is Outcome.launch_error
    assert heavy.message == (
        "launch resources: kernel wants 1024 threads a block x 254 registers = 260096, of 65536 "
        "registers; at most 256 threads fit"
    )
    spec = Spec(problem=PROBLEM, static_shared_bytes=1)
    large = Job(problem=PROBLEM, plan=plan(PROBLEM, shared_bytes=65536), cubin=spec.cubin)
    assert fake_bench.measure(large).message == (
        "launch resources: kernel wants 65537 bytes of shared memory a block, of 65536"
    )


@pytest.mark.parametrize(
    ("kib", "fits"), [(47, True), (48, True), (49, True), (64, True), (96, False)]
)
def test_shared_memory_against_the_opt_in_limit(kib: int, fits: bool) -> None:
    launch = plan(PROBLEM, shared_bytes=kib * 1024).launches[0]
    kernel = FakeDoor().open(0).load(Spec(problem=PROBLEM).cubin).kernel("kernel")
    assert bool(shortages(kernel, launch, DEVICE)) is not fits
    assert not shortages(kernel, launch, archs.get(90).typical)


def test_a_grid_of_no_blocks_is_said() -> None:
    launch = replace(plan(PROBLEM).launches[0], grid=(1, 70000, 1))
    kernel = FakeDoor().open(0).load(Spec(problem=PROBLEM).cubin).kernel("kernel")
    assert shortages(kernel, launch, DEVICE).endswith("wants 70000 blocks in y, of 65535")
    assert "wants 0 blocks in x" in shortages(kernel, replace(launch, grid=(0, 1, 1)), DEVICE)


# --- timing -----------------------------------------------------------------------------------


def test_the_first_launch_is_not_in_the_time(fake_bench: Bench) -> None:
    # It costs 100 ms more; whoever comes first does not pay for it.
    assert fake_bench.measure(job("lazy")).median_ns == 1e6


def test_a_slow_kernel_is_cut_early(fake_bench: Bench) -> None:
    slower = fake_bench.measure(job(ns=1.3e6, best_ns=1e6))
    assert (slower.outcome, slower.truncated, slower.samples) == (Outcome.ok, True, 5)
    near = fake_bench.measure(job(ns=1.1e6, best_ns=1e6))
    assert (near.outcome, near.truncated, near.samples) == (Outcome.ok, False, 5)


def test_a_long_slow_kernel_is_timed_once(fake_bench: Bench, context: FakeContext) -> None:
    fake_bench.measure(job(ns=3e6))
    before = context.clock_ns
    slower = fake_bench.measure(job(ns=4e6, best_ns=3e6))
    assert (slower.outcome, slower.truncated, slower.samples) == (Outcome.ok, True, 1)
    assert "exact, guards, inputs, fp64 of 960, exact x1 after timing" in slower.checks
    launches = (context.clock_ns - before) / 4e6
    assert 4 <= launches < 4.1, "two to verify, one to time, one to verify again"


def test_a_hiccup_does_not_cut_a_kernel(fake_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    once = fake_bench._timer.once
    # The run of the FP64 check, which is the first on that data, is slow by accident.
    monkeypatch.setattr(fake_bench._timer, "once", lambda run: 2 * once(run))
    steady = fake_bench.measure(job(ns=4e6, best_ns=4e6))
    assert (steady.truncated, steady.samples, steady.median_ns) == (False, 5, 4e6)


def test_a_hopeless_kernel_runs_once(fake_bench: Bench, context: FakeContext) -> None:
    fake_bench.measure(job())
    before = context.clock_ns
    hopeless = fake_bench.measure(job(ns=1e9, best_ns=1e6))
    assert (hopeless.outcome, hopeless.truncated, hopeless.samples) == (Outcome.ok, True, 1)
    assert hopeless.median_ns == 1e9
    assert hopeless.checks == "exact, guards, inputs, seed 0", "and it was verified"
    assert context.clock_ns - before < 1.01e9


def test_the_flush_lies_outside_of_the_events(fake_bench: Bench, context: FakeContext) -> None:
    # A fill takes 1000 ns of the fake clock, as long as the kernel itself.
    for cold in (True, False):
        assert fake_bench.measure(job(ns=1000, cold=cold)).median_ns == 1000
    context.filled.clear()
    fake_bench.measure(job(ns=1e6, cold=False))
    warm = sum(count == timing.flush_bytes(DEVICE.l2_bytes) for _, count in context.filled)
    fake_bench.measure(job(ns=1e6, cold=True))
    cold = sum(count == timing.flush_bytes(DEVICE.l2_bytes) for _, count in context.filled) - warm
    assert cold == warm + 5, "one before each sample"


def test_the_mode_is_kept_with_the_row(fake_bench: Bench) -> None:
    assert fake_bench.measure(job(cold=False)).cold_l2 is False
    assert fake_bench.measure(job("empty", cold=False)).cold_l2 is False


def test_windows_that_waited_for_the_host_are_taken_again(
    fake_bench: Bench, context: FakeContext
) -> None:
    late = iter([True, False, True] + [False] * 6)
    runs: list[int] = []

    def run() -> None:
        runs.append(1)
        # What the host was late for takes as long as the host did.
        context.clock_ns += 5e3 if len(runs) in (2, 4, 5, 6) else 9e3

    context.is_ahead = lambda: next(late)
    timer = fake_bench._timer
    wait_ns = timer._enqueue_ns
    assert timer.sample(run, 3, cold=True) == [5e3, 5e3, 5e3]
    assert len(runs) == 5, "two of three, and both again"
    assert timer._enqueue_ns == 2 * wait_ns, "most were late: it waits longer from now on"
    assert timer.sample(run, 1, cold=True) == [5e3]
    assert timer._enqueue_ns == 2 * wait_ns


def test_a_host_that_is_never_in_time_is_no_time(fake_bench: Bench, context: FakeContext) -> None:
    context.is_ahead = lambda: True
    with pytest.raises(DeviceError, match="the host's and not the device's; is it overloaded"):
        fake_bench.measure(job())


def test_a_run_that_is_verified_is_never_repeated(fake_bench: Bench, context: FakeContext) -> None:
    # An output that is read too would be another after a second run.
    context.is_ahead = lambda: True
    runs: list[int] = []
    fake_bench._timer.once(lambda: runs.append(1))
    assert runs == [1]


@pytest.mark.parametrize(
    ("l2_mib", "flush_mib"),
    [(0, 32), (2, 32), (4, 32), (50, 100), (60, 120), (256, 512), (1024, 512)],
)
def test_the_flush_follows_the_cache(l2_mib: int, flush_mib: int) -> None:
    assert timing.flush_bytes(l2_mib * 2**20) == flush_mib * 2**20


def test_half_width_of_the_median() -> None:
    assert timing.half_width([5.0]) == math.inf
    assert timing.half_width([5.0] * 9) == 0.0
    narrow = timing.half_width([99.0, 100.0, 101.0] * 12)
    assert narrow == pytest.approx(1.96 * 1.253 * (2 / 1.683) / 6 / 100)
    assert timing.half_width([99.0, 100.0, 101.0] * 48) == pytest.approx(narrow / 2)
    assert timing.half_width([100.0] * 20 + [900.0]) == 0.0, "one outlier does not matter"


class Noisy:
    """Stands in for sampling: hands out what it is given."""

    def __init__(self, times: list[float]) -> None:
        self.times = times

    def __call__(self, run: object, count: int, **options: object) -> list[float]:
        batch, self.times = self.times[:count], self.times[count:]
        return batch


def timed(
    context: FakeContext, monkeypatch: pytest.MonkeyPatch, times: list[float], limits: Limits
) -> list[float]:
    timer = Bench(context, "fake", PROBE, 0, lambda step, job: None)._timer
    monkeypatch.setattr(timer, "sample", Noisy(times))
    samples, _ = timer.measure(lambda: None, times[0], None, cold=True, limits=limits)
    return samples


def test_noise_asks_for_more_samples(context: FakeContext, monkeypatch: pytest.MonkeyPatch) -> None:
    steady = timed(context, monkeypatch, [1e5] * 100, Limits())
    assert len(steady) == 5
    noisy = timed(context, monkeypatch, [1e5, 1.03e5] * 50, Limits())
    assert 5 < len(noisy) < 40 and timing.half_width(noisy) > 0
    wild = timed(context, monkeypatch, [1e5, 2e5] * 50, Limits())
    assert len(wild) == 40, "but never more than the most"


def test_the_budget_ends_sampling(context: FakeContext, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(timed(context, monkeypatch, [4e7, 8e7] * 50, Limits(budget_ms=250))) in (4, 5, 6)
    assert len(timed(context, monkeypatch, [1e9] * 50, Limits(budget_ms=250))) == 1


def test_warm_windows_hold_many_short_launches(context: FakeContext) -> None:
    timer = Bench(context, "fake", PROBE, 0, lambda step, job: None)._timer
    launches = 0

    def run() -> None:
        nonlocal launches
        launches += 1
        context.clock_ns += 2000

    samples, _ = timer.measure(run, 2000, None, cold=False, limits=Limits())
    assert samples == [2000.0] * len(samples)
    assert launches == 50 * len(samples), "100 us a window"


def test_a_short_kernel_says_what_the_events_cost(
    fake_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake_bench._timer, "resolution_ns", 500.0)
    assert "events, which alone read 500 ns" in fake_bench.measure(job(ns=5000)).message
    assert fake_bench.measure(job(ns=50000)).message == ""


def test_a_time_below_the_roofline_is_no_record(fake_bench: Bench) -> None:
    problem = Sgemm.parse("128x128x128")
    least = problem.flops / (DEVICE.fp32_tflops * 1e3)
    at_once = Limits(warm_up_ms=0)
    fast = fake_bench.measure(job(problem=problem, ns=0.9 * least, limits=at_once))
    assert fast.outcome is Outcome.wrong_result
    assert fast.median_ns is None
    assert f"needs {least:.0f} ns or more for 128x128x128" in fast.message
    near = fake_bench.measure(job(problem=problem, ns=0.97 * least, limits=at_once))
    assert near.is_ok, "clocks vary"


@pytest.mark.parametrize(
    ("count", "left_out", "coverage"),
    [(5, 0, 0.9375), (6, 0, 0.96875), (9, 1, 0.961), (15, 3, 0.965)],
)
def test_the_interval_of_a_median(count: int, left_out: int, coverage: float) -> None:
    values = [float(each) for each in range(count)]
    assert timing.median_interval(values[::-1]) == (left_out, count - 1 - left_out)
    # Counted, not computed: how often the interval of normal samples holds the true median.
    draws = np.sort(np.random.default_rng(count).standard_normal((20000, count)), axis=1)
    inside = (draws[:, left_out] <= 0) & (draws[:, count - 1 - left_out] >= 0)
    assert inside.mean() == pytest.approx(coverage, abs=0.006)


def test_the_interval_of_one_value_is_that_value() -> None:
    assert timing.median_interval([7.0]) == (7.0, 7.0)


def test_the_floor_counts_what_must_be_done() -> None:
    square = Sgemm.parse("4096x4096x4096")
    arithmetic = square.flops / (DEVICE.fp32_tflops * 1e3)
    assert timing.floor_ns(square, DEVICE, True, None) == pytest.approx(arithmetic)
    boosted = timing.floor_ns(square, DEVICE, True, 2 * DEVICE.sm_clock_khz // 1000)
    assert boosted == pytest.approx(arithmetic / 2), "a higher clock was seen"
    # One row: reading B is all there is; C may stay in the cache, and with a warm one B too.
    thin = Sgemm.parse("1x4096x4096")
    read = 4 * (4096 + 4096 * 4096) / DEVICE.bandwidth_gbs
    assert timing.floor_ns(thin, DEVICE, True, None) == pytest.approx(read)
    assert timing.floor_ns(thin, DEVICE, False, None) < read / 10


# --- confirm, vendor, memory ------------------------------------------------------------------


def medians(results: list[Measurement]) -> list[float | None]:
    return [result.median_ns for result in results]


def test_confirm_interleaves_in_an_order_that_varies(context: FakeContext) -> None:
    steps: list[tuple[str, int]] = []
    fake = Bench(context, "fake", PROBE, 0, lambda step, job: steps.append((step, job)))
    jobs = [job(ns=ns, stage=Stage.confirm) for ns in (3e6, 1e6, 2e6)]
    results = fake.confirm(jobs, rounds=5, seed=1)
    assert medians(results) == [3e6, 1e6, 2e6]
    assert [(r.samples, r.stage, r.truncated) for r in results] == [(15, Stage.confirm, False)] * 3
    assert all("exact x8 after timing" in result.checks for result in results)
    rounds = [number for step, number in steps if step == "time"][3:]
    orders = [tuple(rounds[at : at + 3]) for at in range(0, 15, 3)]
    assert all(sorted(order) == [0, 1, 2] for order in orders), "each once a round"
    assert len(set(orders)) > 1
    steps.clear()
    fake.confirm(jobs, rounds=5, seed=1)
    assert [number for step, number in steps if step == "time"][3:] == rounds, "seeded"


def test_confirm_warms_up_with_the_finalists(context: FakeContext) -> None:
    fake = Bench(context, "fake", PROBE, 0, lambda step, job: None)
    fake.confirm([job(ns=1e6), job(ns=2e6)], rounds=1, seed=0)
    # Not so long that a device would reach its limit of power, and lower its clocks.
    assert 20e6 < context.clock_ns < 100e6


def placed(context: FakeContext, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """Addresses that timed runs get, one entry a bound run."""
    seen: list[dict[str, int]] = []
    prepare = FakeModule.prepare

    def spy(module: FakeModule, launch: Launch, values: Values) -> Callable[[], None]:
        if module.spec is not None:
            seen.append({name: int(values[name]) for name in "abc"})
        return prepare(module, launch, values)

    monkeypatch.setattr(FakeModule, "prepare", spy)
    return seen


@pytest.mark.parametrize("problem", [PROBLEM, WITH_BETA])
def test_each_confirm_round_lies_elsewhere(
    fake_bench: Bench, context: FakeContext, monkeypatch: pytest.MonkeyPatch, problem: Sgemm
) -> None:
    seen = placed(context, monkeypatch)
    inputs: list[np.ndarray] = []
    run = FakeModule.run

    def spy(module: FakeModule, spec: Spec, values: Values) -> None:
        words = context.words(int(values["a"]), problem.operands[0].span_elements)
        inputs.append(words.copy())
        run(module, spec, values)

    monkeypatch.setattr(FakeModule, "run", spy)
    fake_bench.measure(job(problem=problem))
    free_bytes, _ = context.memory()
    seen.clear()
    jobs = [job(problem=problem), job(problem=problem, ns=2e6)]
    assert medians(fake_bench.confirm(jobs, rounds=7, seed=0)) == [1e6, 2e6]
    assert context.memory()[0] == free_bytes, "and all of it is freed"

    bound = seen[4:]  # after those of both kernels on both data
    assert len(bound) == 2 * 7
    turns = [bound[at] for at in range(0, 14, 2)]
    assert turns == [bound[at] for at in range(1, 14, 2)], "both in the same place"
    for name in "abc":
        starts = [turn[name] for turn in turns]
        assert len(set(starts)) == 7
        assert len({start % PAGE_BYTES for start in starts}) > 5, "not at the starts of pages"
        aligned = [start % 256 for start in starts]
        assert len(set(aligned)) == 1, "its alignment is the problem's"
    values = {words.tobytes() for words in inputs}
    assert len(values) == 2, "integers and random data, the same in every place"


def test_large_operands_lie_where_an_allocator_puts_them() -> None:
    large = Block(lead_bytes=2**16, total_bytes=3 * PAGE_BYTES)
    small = Block(lead_bytes=2**16, total_bytes=PAGE_BYTES)
    last = Block(lead_bytes=0, total_bytes=512)
    blocks = [small, large, small, large, last]
    seen: list[tuple[int, ...]] = []
    draw = random.Random(0)
    for _ in range(20):
        starts, end_bytes = layout(blocks, draw)
        ends = [start + block.total_bytes for start, block in zip(starts, blocks, strict=True)]
        assert starts[0] >= 0 and ends[-1] == end_bytes
        data = [start + block.lead_bytes for start, block in zip(starts, blocks, strict=True)]
        assert [each % PAGE_BYTES for each in (data[1], data[3])] == [0, 0]
        assert all(each % 256 == 0 for each in data)
        for end, after, next_data in zip(ends, starts[1:], data[1:], strict=False):
            assert end <= after, "none in another"
            assert (end - 1) // PAGE_BYTES < next_data // PAGE_BYTES, "nor in its pages"
        seen.append(tuple(each % PAGE_BYTES for each in data))
    for drawn in (0, 2, 4):
        assert len({each[drawn] for each in seen}) > 15


def test_large_operands_are_bound_to_the_starts_of_pages(
    fake_bench: Bench, context: FakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    # C is larger than a page, A and B are not; B may only be read by words.
    problem = Sgemm.parse("1024x1024x4", align_b=4)
    seen = placed(context, monkeypatch)
    assert fake_bench.confirm([job(problem=problem)], rounds=4, seed=0)[0].is_ok
    places = seen[2:]  # after the checks on both data
    assert len(places) == 4
    assert {place["c"] % PAGE_BYTES for place in places} == {0}
    assert {place["b"] % 256 for place in places} == {4}
    for name in "abc":
        assert len({place[name] for place in places}) == 4


def test_a_short_kernel_is_confirmed_in_more_places(fake_bench: Bench) -> None:
    (short,) = fake_bench.confirm([job(ns=4e4)], rounds=5, seed=0)
    (longer,) = fake_bench.confirm([job(ns=6e4)], rounds=5, seed=0)
    assert (short.samples, longer.samples) == (45, 15)
    assert [bench.rounds_for(ns, 9) for ns in (4.9e4, 5e4)] == [27, 9]


def test_the_interval_says_what_another_place_does(
    fake_bench: Bench, context: FakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = FakeModule.run

    def slower_there(module: FakeModule, spec: Spec, values: Values) -> None:
        run(module, spec, values)
        context.clock_ns += int(values["a"]) % PAGE_BYTES / PAGE_BYTES * 1e5

    monkeypatch.setattr(FakeModule, "run", slower_there)
    (measured,) = fake_bench.confirm([job(ns=1e6)], rounds=9, seed=0)
    low_ns, high_ns = measured.interval_ns or (0, 0)
    assert high_ns - low_ns > 2e4, "samples of one place agree to the nanosecond"


def test_there_are_fewer_places_where_memory_is_short(
    fake_bench: Bench, context: FakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = placed(context, monkeypatch)
    fake_bench.measure(job())
    _, total_bytes = context.memory()
    for free_bytes, expected in ((4 * 12 * PAGE_BYTES, 2), (4 * PAGE_BYTES, 0)):
        monkeypatch.setattr(context, "memory", lambda free=free_bytes: (free, total_bytes))
        seen.clear()
        (measured,) = fake_bench.confirm([job()], rounds=5, seed=0)
        assert (measured.is_ok, measured.samples) == (True, 15)
        addresses = {each["a"] for each in seen[2:]}
        assert len(addresses) == expected, "it takes turns with those that there are"

    def full(size_bytes: int) -> int:
        raise DriverError("cuMemAlloc", 2, "CUDA_ERROR_OUT_OF_MEMORY")

    monkeypatch.setattr(context, "memory", lambda: (total_bytes, total_bytes))
    monkeypatch.setattr(context, "allocate", full)
    assert fake_bench.confirm([job()], rounds=2, seed=0)[0].is_ok, "another program was faster"


def test_places_have_workspaces_of_their_own(
    fake_bench: Bench, context: FakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocate = context.allocate

    def dirty(size_bytes: int) -> int:
        address = allocate(size_bytes)
        context.bytes_at(address, size_bytes)[:] = 0xA5
        return address

    monkeypatch.setattr(context, "allocate", dirty)
    # The fake kernel asserts that counters are zero before each run.
    assert all(each.is_ok for each in fake_bench.confirm([split(), split()], rounds=4, seed=0))


def test_nothing_is_placed_for_kernels_that_all_fail(
    fake_bench: Bench, context: FakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fake_bench.measure(job()).is_ok
    monkeypatch.setattr(context, "allocate", None)
    (failed,) = fake_bench.confirm([job("half rows")], rounds=2, seed=0)
    assert failed.outcome is Outcome.wrong_result


def test_confirm_leaves_out_what_fails(fake_bench: Bench) -> None:
    jobs = [job(), job("half rows"), job("load"), job("racy"), job(ns=2e6, best_ns=1e3)]
    results = fake_bench.confirm(jobs, rounds=2, seed=0)
    assert [result.outcome for result in results] == [
        Outcome.ok,
        Outcome.wrong_result,
        Outcome.launch_error,
        Outcome.wrong_result,
        Outcome.ok,
    ]
    assert results[4].samples == 6, "no early stop among finalists"


def test_an_absent_vendor_library_says_why(
    fake_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vendor, "find_spec", lambda name: None)
    assert vendor_missing(PROBLEM) == (
        "cuBLAS is not timed: CuPy is not installed (pip install cupy-cuda13x)"
    )
    results = fake_bench.confirm([job(), VendorJob(problem=PROBLEM)], rounds=2, seed=0)
    assert results[0].is_ok
    assert (results[1].outcome, results[1].message) == (
        Outcome.infeasible,
        vendor_missing(PROBLEM),
    )


def test_tf32_and_emulation_are_off_where_the_library_looks() -> None:
    code = (
        "import ctypes\n"
        "from autotune.measure import vendor\n"
        "vendor.forbid_shortcuts()\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.getenv.restype = ctypes.c_char_p\n"
        "for name in (b'NVIDIA_TF32_OVERRIDE', b'CUBLAS_EMULATE_SINGLE_PRECISION',\n"
        "             b'CUBLAS_EMULATION_STRATEGY'):\n"
        "    print(libc.getenv(name))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "NVIDIA_TF32_OVERRIDE": "1",
            "CUBLAS_EMULATE_SINGLE_PRECISION": "1",
            "CUBLAS_EMULATION_STRATEGY": "eager",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["b'0'", "b'0'", "None"]


class Cublas:
    """Records the calls; numbers as in cublas_api.h."""

    CUBLAS_OP_N, CUBLAS_OP_T = 0, 1

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def sgemm(self, *arguments: object) -> None:
        self.calls.append(arguments)

    sgemmStridedBatched = sgemm


@pytest.mark.parametrize(
    ("layout", "ops"), [("nn", (0, 0)), ("nt", (1, 0)), ("tn", (0, 1)), ("tt", (1, 1))]
)
def test_the_vendor_call_swaps_the_operands(
    monkeypatch: pytest.MonkeyPatch, layout: str, ops: tuple[int, int]
) -> None:
    library = Cublas()
    monkeypatch.setattr(vendor, "_cublas", lambda index: (library, 77))
    monkeypatch.setattr(vendor, "find_spec", lambda name: object())
    values = {"a": 1000, "b": 2000, "c": 3000, "alpha": 2.0, "beta": -1.0}
    plain = Sgemm.parse("5x6x7", layout=layout, lda=9, ldb=10, ldc=11)
    vendor.prepare(plain, values, DEVICE)()
    handle, op_b, op_a, n, m, k, alpha, b, ldb, a, lda, beta, c, ldc = library.calls[0]
    assert (handle, op_b, op_a) == (77, *ops)
    assert (n, m, k, b, ldb, a, lda, c, ldc) == (6, 5, 7, 2000, 10, 1000, 9, 3000, 11)
    assert isinstance(alpha, int) and beta == alpha + 4
    batched = Sgemm.parse("5x6x7", layout=layout, batch=3)
    vendor.prepare(batched, values, DEVICE)()
    call = library.calls[1]
    assert (call[7], call[9], call[10], call[12]) == (2000, 42, 1000, 35)
    assert call[14:] == (3000, 6, 30, 3)


def test_memory_stays_flat(fake_bench: Bench, context: FakeContext) -> None:
    faults = ["", "half rows", "load", "launch", "racy", "writes input"]
    for fault in faults:
        fake_bench.measure(job(fault))
    free = context.memory()
    for fault in faults * 5:
        fake_bench.measure(job(fault))
    fake_bench.confirm([job(), job("racy"), job("load")], rounds=1, seed=0)
    assert context.memory() == free, "modules are unloaded, buffers reused"


def test_problems_keep_their_data_while_there_is_room(
    fake_bench: Bench, context: FakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Problem] = []

    class Counted(Arena):
        def _allocate_all(self) -> None:
            made.append(self.problem)
            super()._allocate_all()

    monkeypatch.setattr(bench, "Arena", Counted)
    for problem in (PROBLEM, WITH_BETA, PROBLEM, WITH_BETA):
        assert fake_bench.measure(job(problem=problem)).is_ok
    assert made == [PROBLEM, WITH_BETA]
    free = context.memory()
    # Room for one and a half: the other one goes.
    share = 1.5 * verify.needed_bytes(WITH_BETA) / context.device.memory_bytes
    monkeypatch.setattr(bench, "_ARENAS_SHARE", share)
    third = replace(PROBLEM, align_b=4)
    assert fake_bench.measure(job(problem=third)).is_ok
    assert context.memory() > free and made[2:] == [third]
    assert fake_bench.measure(job(problem=PROBLEM)).is_ok
    assert made[3:] == [PROBLEM]


def test_what_another_problems_kernel_overwrote_is_made_anew(
    fake_bench: Bench, context: FakeContext
) -> None:
    assert fake_bench.measure(job()).is_ok
    kept = fake_bench._arenas[PROBLEM]
    assert fake_bench.measure(job(problem=WITH_BETA)).is_ok
    context.words(kept.values("exact")["a"], 1)[0] ^= 1
    assert fake_bench.measure(job()).is_ok


def test_a_problem_that_does_not_fit_says_both_numbers() -> None:
    problem = Sgemm.parse("100000x100000x100000")
    with pytest.raises(ShapeError, match=r"needs 2400\d+ bytes .* free are 16000000000 .* smaller"):
        require_memory(problem, 16 * 10**9, 17 * 10**9)
    with pytest.raises(DeviceError, match=r"free are 1000 .*end other programs on the GPU"):
        require_memory(PROBLEM, 1000, 17 * 10**9)
    require_memory(PROBLEM, 10**7, 10**9)


def test_an_argument_that_the_problem_lacks_is_the_candidates_fault(fake_bench: Bench) -> None:
    beta = plan(WITH_BETA)
    wrong = fake_bench.measure(replace(job(), plan=beta))
    assert wrong.outcome is Outcome.launch_error
    assert "takes float32 'beta', which neither problem nor plan has" in wrong.message


def test_limits_of_time_follow_the_best() -> None:
    assert Limits().kernel_seconds(None) == 10
    assert Limits().kernel_seconds(1e6) == 10
    assert Limits().kernel_seconds(1e9) == 50


def test_sticky_names_exist() -> None:
    from cuda.bindings import driver

    assert {name for name in bench.STICKY if not hasattr(driver.CUresult, name)} <= {
        # Younger than the oldest bindings that are supported.
        "CUDA_ERROR_CONTAINED",
        "CUDA_ERROR_TENSOR_MEMORY_LEAK",
    }
