"""The worker process on the fake device: death, replacement, time limits, lock, interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_door import DEVICE, PROBE, FakeDoor, Spec, no_device, plan

from autotune.errors import DeviceError, ShapeError, UsageError
from autotune.measure import DeviceLock, Job, Limits, Worker
from autotune.measure.lock import lock_path
from autotune.problems.sgemm import Sgemm
from autotune.types import Outcome, Stage

PROBLEM = Sgemm.parse("24x20x16")
QUICK = Limits(seconds=0.5)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker(DEVICE, door=FakeDoor, probe_cubin=PROBE) as worker:
        yield worker


def job(fault: str = "", ns: float = 1e6, **options: object) -> Job:
    spec = Spec(problem=PROBLEM, fault=fault, ns=ns)
    return Job(
        problem=PROBLEM,
        plan=plan(PROBLEM),
        cubin=spec.cubin,
        limits=QUICK,
        **options,  # type: ignore[arg-type]
    )


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    return state == "Z"


def until(condition: object, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.01)
    return False


def test_one_process_serves_many_jobs(worker: Worker) -> None:
    for fault in ("", "half rows", "racy", "load", ""):
        outcome = worker.measure(job(fault)).outcome
        assert outcome == {"": "ok", "load": "launch_error"}.get(fault, "wrong_result")
    assert (worker.starts, worker.door) == (1, "fake")
    child = worker._child
    assert child is not None
    assert os.getpgid(child.pid) != os.getpgid(0), "Ctrl-C does not reach it"


@pytest.mark.parametrize(
    ("fault", "outcome", "message"),
    [
        ("illegal", Outcome.crash, "CUDA_ERROR_ILLEGAL_ADDRESS (700)"),
        ("wide", Outcome.crash, "CUDA_ERROR_MISALIGNED_ADDRESS"),
        ("exit", Outcome.crash, "the worker process ended with 3 in the step 'verify'"),
        ("killed", Outcome.crash, "the worker process was ended by SIGKILL in the step 'verify'"),
        ("hang", Outcome.timeout, "no end after 0.5 s in the step 'verify'"),
    ],
)
def test_a_kernel_that_takes_the_process_down(
    worker: Worker, fault: str, outcome: Outcome, message: str
) -> None:
    assert worker.measure(job()).is_ok
    bad = worker.measure(job(fault))
    assert bad.outcome is outcome
    assert message in bad.message
    assert (bad.door, bad.stage, bad.samples) == ("fake", Stage.search, 0)
    assert worker.measure(job()).is_ok, "the next one finds a working process"
    assert worker.starts == 2


def test_confirm_goes_on_without_the_one_that_crashes(worker: Worker) -> None:
    jobs = [
        job(ns=2e6, stage=Stage.confirm),
        job("illegal late", stage=Stage.confirm),
        job("hang", stage=Stage.confirm),
        job(ns=1e6, stage=Stage.confirm),
    ]
    results = worker.confirm(jobs, rounds=2)
    assert [result.outcome for result in results] == ["ok", "crash", "timeout", "ok"]
    assert [result.median_ns for result in results] == [2e6, None, None, 1e6]
    assert {result.stage for result in results} == {Stage.confirm}


def test_confirm_refuses_what_makes_no_sense(worker: Worker) -> None:
    other = Sgemm.parse("8x8x8")
    mixed = [job(), Job(problem=other, plan=plan(other), cubin=Spec(problem=other).cubin)]
    with pytest.raises(UsageError, match="jobs of one problem"):
        worker.confirm(mixed)
    with pytest.raises(UsageError, match="at least one round; got 0"):
        worker.confirm([job()], rounds=0)
    assert worker.confirm([]) == []


def test_faults_of_the_program_are_not_swallowed(worker: Worker) -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError: planted"):
        worker.measure(job("bug"))
    assert worker.measure(job()).is_ok


def test_a_shape_that_does_not_fit_is_refused_and_others_go_on(worker: Worker) -> None:
    huge = Sgemm.parse("100000x100000x100000")
    with pytest.raises(ShapeError, match="needs 24"):
        worker.measure(Job(problem=huge, plan=plan(huge), cubin=Spec(problem=huge).cubin))
    assert worker.measure(job()).is_ok
    assert worker.starts == 1


def test_without_a_device_the_reason_comes_through() -> None:
    with (
        Worker(DEVICE, door=no_device, probe_cubin=PROBE) as worker,
        pytest.raises(DeviceError, match="there is no NVIDIA driver: planted"),
    ):
        worker.measure(job())


def test_another_device_under_the_same_number_is_refused() -> None:
    moved = replace(DEVICE, uuid="GPU-ffffffff-fake")
    with (
        Worker(moved, door=FakeDoor, probe_cubin=PROBE) as worker,
        pytest.raises(DeviceError, match="the numbering of the devices has changed"),
    ):
        worker.measure(job())


def test_close_ends_a_stuck_process_within_a_second() -> None:
    worker = Worker(DEVICE, door=FakeDoor, probe_cubin=PROBE)
    worker.measure(job())
    child = worker._child
    assert child is not None
    with pytest.raises(KeyboardInterrupt):
        interrupt_soon()
        worker.measure(replace(job("hang"), limits=Limits(seconds=60)))
    started = time.monotonic()
    worker.close()
    assert time.monotonic() - started < 1
    assert is_gone(child.pid)
    with DeviceLock(DEVICE, limit_s=0) as lock:
        assert lock.path.exists(), "and the device is free"


def interrupt_soon() -> None:
    """Ctrl-C while the call below waits."""
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()


def test_after_an_interrupt_answers_are_not_mixed_up(worker: Worker) -> None:
    worker.measure(job())
    with pytest.raises(KeyboardInterrupt):
        interrupt_soon()
        worker.measure(replace(job("hang", ns=5e6), limits=Limits(seconds=60)))
    assert worker.measure(job(ns=7e6)).median_ns == 7e6


OWNER = """
    import os, sys, time
    sys.path.insert(0, {tests!r})
    from fake_door import *
    from autotune.measure import *
    from autotune.problems.sgemm import Sgemm
    # No main guard: the worker must not run this script again.
    problem = Sgemm.parse("24x20x16")
    worker = Worker(DEVICE, door=FakeDoor, probe_cubin=PROBE)
    def job(fault):
        cubin = Spec(problem=problem, fault=fault).cubin
        return Job(problem=problem, plan=plan(problem), cubin=cubin)
    assert worker.measure(job("")).is_ok
    print(worker._child.pid, flush=True)
    worker.measure(job("hang"))
"""


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another program that holds the device and hangs in a kernel; and its worker's pid."""
    script = tmp_path / "owner.py"
    script.write_text(textwrap.dedent(OWNER.format(tests=str(Path(__file__).parent))))
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    yield process, child
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_killed_parent_takes_its_process_and_its_lock_with_it(
    owner: tuple[subprocess.Popen[str], int],
) -> None:
    process, child = owner
    assert not is_gone(child)
    heard: list[str] = []
    with pytest.raises(
        DeviceError, match=f"is being measured on by process {process.pid}: .*owner"
    ):
        Worker(DEVICE, door=FakeDoor, probe_cubin=PROBE, on_wait=heard.append, lock_limit_s=0.3)
    assert len(heard) == 1 and heard[0].startswith("waiting for Tesla T4 (GPU-00000000-fake)")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert until(lambda: is_gone(child)), "although its kernel never ends"
    with Worker(DEVICE, door=FakeDoor, probe_cubin=PROBE, lock_limit_s=5) as worker:
        assert worker.measure(job()).is_ok


def test_the_lock_is_one_a_device() -> None:
    first = DeviceLock(DEVICE)
    other = DeviceLock(replace(DEVICE, uuid="GPU-other"), limit_s=0)
    with pytest.raises(DeviceError, match="or choose another device with --device"):
        DeviceLock(DEVICE, limit_s=0)
    first.release()
    first.release()
    again = DeviceLock(DEVICE, limit_s=0)
    assert lock_path(DEVICE).read_text().startswith(f"process {os.getpid()}: ")
    again.release()
    other.release()


def test_waiting_is_said_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.measure.lock._REMIND_S", 0.1)
    monkeypatch.setattr("autotune.measure.lock._POLL_S", 0.05)
    heard: list[str] = []
    held = DeviceLock(DEVICE)
    with pytest.raises(DeviceError):
        DeviceLock(DEVICE, on_wait=heard.append, limit_s=0.5)
    held.release()
    assert 3 <= len(heard) <= 6


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "locks").write_text("in the way")
    with pytest.raises(DeviceError, match=r"cannot open the device lock .*AUTOTUNE_CACHE_DIR"):
        DeviceLock(DEVICE)
