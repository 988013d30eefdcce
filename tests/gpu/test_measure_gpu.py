"""The worker on a GPU: verdicts, crashes, time limits, timing, the vendor library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sources import RACY, job, plan, source

from autotune import device, gpu
from autotune.measure import Limits, VendorJob, Worker, vendor_missing
from autotune.problems.sgemm import Sgemm
from autotune.types import Device, Outcome, Stage

pytestmark = pytest.mark.gpu

PROBLEM = Sgemm.parse("200x136x96", ldc=140)
RAGGED = Sgemm.parse("61x53x47", align_a=4, align_b=8, align_c=4)
LARGE = Sgemm.parse("1024x1024x1024")
QUICK = Limits(seconds=2)


@pytest.fixture(scope="module", params=gpu.DOORS)
def worker(request: pytest.FixtureRequest, live: Device) -> Iterator[Worker]:
    if request.param == "pycuda":
        pytest.importorskip("pycuda")
    with Worker(live, door=request.param) as worker:
        yield worker


@pytest.mark.parametrize("problem", [PROBLEM, RAGGED, LARGE])
def test_a_right_kernel(worker: Worker, live: Device, problem: Sgemm) -> None:
    measured = worker.measure(job(problem, live.arch, source("")))
    assert measured.is_ok, measured
    assert measured.door == worker.door
    assert measured.checks.startswith("exact, guards, inputs, fp64 of ")
    assert measured.checks.endswith("exact x8 after timing, seed 0")
    assert measured.max_error is not None and 0 < measured.max_error < 1
    assert measured.samples >= 5
    assert measured.min_ns is not None and measured.median_ns is not None
    assert 1000 < measured.min_ns <= measured.median_ns < 1e8


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("empty", "exact check: 27200 of 27200 elements are wrong"),
        ("half rows", "exact check: 13600 of 27200 elements are wrong, first batch 0 row 1"),
        ("reads c", "got nan"),
        ("one element", "1 of 27200 elements are wrong, first batch 0 row 199 column 135"),
        ("writes guard", "1 words outside of c were written"),
        ("writes padding", "first 544 bytes from its first element"),
        ("writes input", "inputs: the kernel wrote where it may only read: b (exact data)"),
    ],
)
def test_a_wrong_kernel(worker: Worker, live: Device, fault: str, message: str) -> None:
    wrong = worker.measure(job(PROBLEM, live.arch, source(fault)))
    assert wrong.outcome is Outcome.wrong_result
    assert message in wrong.message
    assert worker.measure(job(PROBLEM, live.arch, source(""))).is_ok


def test_a_kernel_that_is_wrong_now_and_then(worker: Worker, live: Device) -> None:
    racy = worker.measure(job(PROBLEM, live.arch, RACY))
    assert racy.outcome is Outcome.wrong_result
    assert "1 of 27200 elements are wrong" in racy.message


@pytest.mark.parametrize(
    ("fault", "outcome", "message"),
    [
        ("illegal", Outcome.crash, "CUDA_ERROR_ILLEGAL_ADDRESS (700)"),
        ("misaligned", Outcome.crash, "CUDA_ERROR_MISALIGNED_ADDRESS (716)"),
        ("trap", Outcome.crash, "CUDA_ERROR_"),
        ("endless", Outcome.timeout, "no end after 2 s in the step 'verify'"),
    ],
)
def test_a_kernel_that_breaks_the_context(
    worker: Worker, live: Device, fault: str, outcome: Outcome, message: str
) -> None:
    bad = worker.measure(job(PROBLEM, live.arch, source(fault), limits=QUICK))
    assert bad.outcome is outcome, bad
    assert message in bad.message
    assert worker.measure(job(PROBLEM, live.arch, source(""))).is_ok, "the next one is fine"


def test_a_kernel_a_thousand_times_slower_is_cut(worker: Worker, live: Device) -> None:
    good = worker.measure(job(PROBLEM, live.arch, source("")))
    slow = worker.measure(job(PROBLEM, live.arch, source("slow"), best_ns=good.median_ns))
    assert (slow.outcome, slow.truncated, slow.samples) == (Outcome.ok, True, 1)
    assert slow.median_ns is not None and good.median_ns is not None
    assert slow.median_ns > 100 * good.median_ns


def test_too_many_threads_are_refused_with_numbers(worker: Worker, live: Device) -> None:
    wide = plan(PROBLEM, threads=(32, 32, 1))
    refused = worker.measure(replace(job(PROBLEM, live.arch, source("")), plan=wide))
    assert refused.outcome is Outcome.launch_error
    assert "wants 1024 threads a block x " in refused.message
    assert "at most 256 threads fit" in refused.message


def test_cold_and_warm_are_told_apart(worker: Worker, live: Device) -> None:
    small = Sgemm.parse("256x256x256")
    cold = worker.measure(job(small, live.arch, source("")))
    warm = worker.measure(job(small, live.arch, source(""), cold=False))
    assert cold.cold_l2 and not warm.cold_l2
    assert cold.median_ns is not None and warm.median_ns is not None
    assert warm.median_ns < cold.median_ns < warm.median_ns + 20_000, "without the flush's time"


def test_the_place_in_the_order_does_not_matter(worker: Worker, live: Device) -> None:
    times = []
    for _ in range(3):
        times.append(worker.measure(job(LARGE, live.arch, source(""))).median_ns)
        worker.measure(job(LARGE, live.arch, source("half rows")))
    assert max(times) / min(times) < 1.03  # type: ignore[operator,type-var]


def test_the_vendor_library_is_one_more_candidate(worker: Worker, live: Device) -> None:
    if (reason := vendor_missing(LARGE)) is not None:
        pytest.skip(reason)
    naive, vendor = worker.confirm(
        [
            job(LARGE, live.arch, source(""), stage=Stage.confirm),
            VendorJob(problem=LARGE),
        ],
        rounds=5,
    )
    assert vendor.is_ok, vendor
    assert vendor.max_error is not None and vendor.max_error < 1
    assert naive.samples == vendor.samples == 15
    assert naive.median_ns is not None and vendor.median_ns is not None
    assert vendor.median_ns < naive.median_ns


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_the_vendor_library_is_right_in_every_layout(worker: Worker, layout: str) -> None:
    for options in (
        {"lda": 120, "ldb": 140, "ldc": 150},
        {"batch": 3},
        {"beta_zero": False, "align_a": 4, "align_c": 8},
    ):
        problem = Sgemm.parse("72x88x104", layout=layout, **options)
        if (reason := vendor_missing(problem)) is not None:
            pytest.skip(reason)
        assert worker.measure(VendorJob(problem=problem)).is_ok


def test_device_memory_stays_flat(worker: Worker, live: Device) -> None:
    kinds = [source(fault) for fault in ("", "half rows", "writes guard")]
    few = Limits(min_samples=1, max_samples=3)
    with closing(gpu.choose().open(live.index)) as context:
        for text in kinds:
            worker.measure(job(PROBLEM, live.arch, text, limits=few))
        child = worker._child
        assert child is not None
        free, resident = context.memory()[0], resident_kib(child.pid)
        for turn in range(150):
            worker.measure(job(PROBLEM, live.arch, kinds[turn % 3], limits=few))
        assert worker._child is child
        assert context.memory()[0] >= free - 2**21
        assert resident_kib(child.pid) < resident + 20_000


def resident_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def test_only_the_chosen_device_is_touched() -> None:
    present = device.devices()
    if len(present) < 2:
        pytest.skip("one GPU")
    chosen, door = present[-1], gpu.choose("cuda-bindings")
    with closing(door.open(0)) as first:
        before = first.memory()[0]
        with Worker(chosen) as worker:
            measured = worker.measure(job(LARGE, chosen.arch, source("")))
            assert measured.is_ok
            assert abs(first.memory()[0] - before) < 2**20
            with closing(door.open(chosen.index)) as last:
                used = last.memory()[1] - last.memory()[0]
            assert used > 30 * 2**20, "its buffers lie there"
