"""The parent's side: one process a GPU, replaced when a kernel takes it down."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from types import TracebackType

from autotune.child import Child
from autotune.errors import DeviceError, UsageError
from autotune.measure import probe
from autotune.measure.bench import failure
from autotune.measure.child import (
    Broken,
    Bug,
    Done,
    DoorMaker,
    Ready,
    Refused,
    Request,
    Setup,
    Step,
)
from autotune.measure.jobs import AnyJob, VendorJob
from autotune.measure.lock import DeviceLock, Waiting, logger
from autotune.measure.power import Power
from autotune.types import Device, Measurement, Outcome

_START_LIMIT_S = 120.0
_POLITE_END_S = 0.3
_DEATH_S = 20.0


class Worker:
    """Verifies and times kernels on one GPU, in a process of its own.

    It holds the device's lock from the start to `close`, so that two of them take turns. Whatever
    a kernel does, a call returns its measurement, and the next call finds a working process. Use it
    as a context manager, from one thread at a time, but for `interrupt`.
    """

    def __init__(
        self,
        device: Device,
        *,
        door: str | DoorMaker | None = None,
        seed: int = 0,
        probe_cubin: bytes | None = None,
        on_wait: Waiting = logger.warning,
        lock_limit_s: float | None = None,
    ) -> None:
        """Waits for the device; its process starts with the first job.

        Args:
            door: `pycuda`, `cuda-bindings`, or a picklable function that makes a `gpu.Door`; None
                for the first that works.
            seed: Of the data that kernels are verified and timed with.
            probe_cubin: The kernels of `measure.probe`, where they are not to be compiled here.
            on_wait: Told who holds the device while it is waited for.
            lock_limit_s: How long to wait at most.

        Raises:
            DeviceError: another process kept the device for longer than `lock_limit_s`.
            CompilerError: nothing here compiles for the device.
        """
        self.device = device
        self.door = ""
        self.starts = 0
        self._lock = DeviceLock(device, on_wait=on_wait, limit_s=lock_limit_s)
        try:
            self._setup = Setup(
                device=device,
                door=door,
                probe=probe.build(device.arch) if probe_cubin is None else probe_cubin,
                seed=seed,
            )
        except BaseException:
            self._lock.release()
            raise
        self._child: Child | None = None

    def measure(self, job: AnyJob) -> Measurement:
        """Verifies and times one kernel.

        Raises:
            ShapeError: the problem needs more memory than the device has.
            DeviceError: it needs more than is free, or the device does not come back.
        """
        return self._ask(Request(jobs=(job,)))[0]

    def confirm(
        self, jobs: Sequence[AnyJob], *, rounds: int = 9, seed: int = 0
    ) -> list[Measurement]:
        """Times kernels of one problem against each other.

        They warm the device up themselves, then take turns in rounds, in an order that a generator
        with `seed` draws for each. One that fails is left out and the others start again.

        Args:
            rounds: Each gives three samples of a kernel, or one where a run takes over 20 ms, with
                the data in another place of memory. There are three times as many where the fastest
                takes less than 50 us.

        Returns:
            A measurement for each job, in their order.

        Raises:
            UsageError: the jobs are of several problems, or `rounds` is below 1.
            ShapeError, DeviceError: as for `measure`.
        """
        if rounds < 1 or len({job.problem for job in jobs}) > 1:
            raise UsageError(
                f"confirm takes jobs of one problem and at least one round; got {rounds} rounds "
                f"of {', '.join(sorted({job.problem.key for job in jobs}))}"
            )
        results: dict[int, Measurement] = {}
        while alive := [number for number in range(len(jobs)) if number not in results]:
            request = Request(jobs=[jobs[number] for number in alive], rounds=rounds, seed=seed)
            try:
                answer = self._exchange(request).measurements
                for number, measurement in zip(alive, answer, strict=True):
                    results[number] = measurement
            except _JobEnded as ended:
                results[alive[ended.job]] = ended.measurement
        return [results[number] for number in range(len(jobs))]

    def power(self, job: AnyJob, seconds: float) -> Power:
        """What a kernel that was verified before draws while it runs back to back for so long.

        Raises:
            UsageError: no time to run in.
            ShapeError, DeviceError: as for `measure`.
        """
        if not seconds > 0:
            raise UsageError(f"a power over {seconds:g} s is none; give a time above 0")
        try:
            return self._exchange(Request(jobs=(job,), power_s=seconds)).powers[0]
        except _JobEnded as ended:
            return Power(message=f"{ended.measurement.outcome}: {ended.measurement.message}")

    def interrupt(self) -> None:
        """Ends what the process is doing, from any thread: the call that waits for it returns, and
        the next one starts another process."""
        if (child := self._child) is not None:
            child.kill(_DEATH_S)

    def close(self) -> None:
        """Ends the process, whatever it is doing, and gives the device back; within a second."""
        self._end_child()
        self._lock.release()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, request: Request) -> Sequence[Measurement]:
        try:
            return self._exchange(request).measurements
        except _JobEnded as ended:
            return [ended.measurement]

    def _exchange(self, request: Request) -> Done:
        """Sends a request and follows its steps to the answer.

        Raises:
            _JobEnded: a job took the process down with it.
        """
        child = self._ready_child()
        try:
            child.send(request)
            answer = self._follow(child, request)
        except BaseException:
            # Whatever interrupted, the child is no longer in step with us.
            self._end_child()
            raise
        if isinstance(answer, Refused):
            raise answer.error
        return answer

    def _follow(self, child: Child, request: Request) -> Done | Refused:
        step = Step(name="prepare", job=0)
        while True:
            job = request.jobs[step.job]
            is_ours = step.name == "prepare"
            limit_s = job.limits.kernel_seconds(job.best_ns) + request.power_s
            # The vendor library is some hundred megabytes, read from disk at its first use.
            if is_ours or (step.name == "load" and isinstance(job, VendorJob)):
                limit_s = job.limits.prepare_seconds
            try:
                message = child.receive(limit_s)
            except TimeoutError:
                outcome = Outcome.timeout
                reason = f"no end after {limit_s:g} s in the step '{step.name}'"
            except EOFError:
                outcome = Outcome.crash
                reason = f"the worker process {_last_words(child)} in the step '{step.name}'"
            else:
                if isinstance(message, Step):
                    step = message
                    continue
                if isinstance(message, Done | Refused):
                    return message
                if isinstance(message, Bug):
                    raise RuntimeError(f"fault in the worker process\n{message.text}")
                assert isinstance(message, Broken)
                outcome, reason = message.outcome, message.message
            if is_ours:
                raise DeviceError(
                    f"{self.device.name} does not get {job.problem.key} ready: {reason}; if it "
                    "happens again, look at the device with nvidia-smi"
                )
            raise _JobEnded(step.job, failure(job, outcome, reason, self.door))

    def _ready_child(self) -> Child:
        if self._child is not None and self._child.is_alive:
            return self._child
        self._end_child()
        try:
            self._child = Child("autotune.measure.child", "autotune-worker")
        except OSError as error:
            raise DeviceError(f"cannot start the worker process: {error}") from error
        self._child.send(self._setup)
        self.starts += 1
        try:
            message = self._child.receive(_START_LIMIT_S)
        except TimeoutError:
            reason = f"it was not ready after {_START_LIMIT_S:g} s"
        except EOFError:
            reason = f"it {_last_words(self._child)}"
        else:
            if isinstance(message, Ready):
                self.door = message.door
                return self._child
            if isinstance(message, Refused):
                self._end_child()
                raise message.error
            reason = message.text if isinstance(message, Bug) else str(message)
        self._end_child()
        raise DeviceError(f"the worker process of {self.device.name} does not start: {reason}")

    def _end_child(self) -> None:
        if self._child is not None:
            child, self._child = self._child, None
            child.close(polite_s=_POLITE_END_S, limit_s=_DEATH_S)


class _JobEnded(Exception):
    """A job ended together with the process; the measurement says how."""

    def __init__(self, job: int, measurement: Measurement) -> None:
        super().__init__(measurement.message)
        self.job = job
        self.measurement = measurement


def _last_words(child: Child) -> str:
    """How a process that is gone ended, and the last line that it printed."""
    code, printed = child.ending()
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
    return f"{how} ({printed.splitlines()[-1].strip()})" if printed else how
