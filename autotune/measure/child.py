"""The process that owns a GPU's context: takes jobs from a pipe until the parent is gone.

It runs in a session of its own, so that Ctrl-C reaches the parent alone. A thread reads the pipe:
when the parent dies, even by SIGKILL, this process ends at once, stuck kernel or not.
"""

from __future__ import annotations

import os
import queue
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from autotune import gpu
from autotune.errors import AutotuneError, DeviceError, DriverError
from autotune.measure import vendor
from autotune.measure.bench import Bench, is_sticky
from autotune.measure.jobs import AnyJob
from autotune.measure.power import Power
from autotune.types import Device, Measurement, Outcome

DoorMaker = Callable[[], gpu.Door]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a child needs before the first job.

    Attributes:
        door: A name for `gpu.choose`, or something that makes the door.
        probe: Cubin of `measure.probe.SOURCE`.
        seed: Of the data.
    """

    device: Device
    door: str | DoorMaker | None
    probe: bytes
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Jobs to measure: one by itself, or several of one problem in `rounds`.

    Attributes:
        power_s: Above zero, the jobs run back to back for so long and their power is the answer.
    """

    jobs: Sequence[AnyJob]
    rounds: int = 0
    seed: int = 0
    power_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The context is open."""

    door: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of a job begins."""

    name: str
    job: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The answer to a request."""

    measurements: Sequence[Measurement] = ()
    powers: Sequence[Power] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The job of the last step broke the context; the process ends."""

    outcome: Outcome
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An expected fault that no job is to blame for."""

    error: AutotuneError


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """A fault of the program."""

    text: str


Message = Ready | Step | Done | Broken | Refused | Bug


def main(descriptor: int) -> None:
    """Serves the parent at the other end of the socket: its setup first, then requests."""
    # A duplicate: the descriptor itself stays open to the very end, so that the parent notices the
    # end only when the exit status is decided.
    pipe: Connection = Connection(os.dup(descriptor))
    setup: Setup = pipe.recv()
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, requests), daemon=True).start()
    try:
        vendor.forbid_shortcuts()
        door = setup.door() if callable(setup.door) else gpu.choose(setup.door)
        context = door.open(setup.device.index)
        if context.device.uuid != setup.device.uuid:
            raise DeviceError(
                f"device {setup.device.index} is {context.device.uuid} now, not "
                f"{setup.device.uuid}; the numbering of the devices has changed"
            )
        bench = Bench(
            context,
            door.name,
            setup.probe,
            setup.seed,
            lambda name, job: pipe.send(Step(name=name, job=job)),
        )
        pipe.send(Ready(door=door.name))
        while True:
            _serve(pipe, bench, requests.get())
    except AutotuneError as error:
        pipe.send(Refused(error=_portable(error)))
    except BaseException:
        pipe.send(Bug(text=traceback.format_exc()))
    # A broken context makes libraries fail, or hang, on the way out.
    os._exit(1)


def _serve(pipe: Connection, bench: Bench, request: Request) -> None:
    try:
        if request.power_s:
            done = Done(powers=[bench.power(job, request.power_s) for job in request.jobs])
        elif request.rounds:
            done = Done(measurements=bench.confirm(request.jobs, request.rounds, request.seed))
        else:
            done = Done(measurements=[bench.measure(job) for job in request.jobs])
        pipe.send(done)
    except DriverError as error:
        if not is_sticky(error):
            raise
        outcome = Outcome.crash
        if error.name == "CUDA_ERROR_LAUNCH_TIMEOUT":
            outcome = Outcome.timeout
        pipe.send(Broken(outcome=outcome, message=str(error)))
        os._exit(1)
    except AutotuneError as error:
        bench.close()
        pipe.send(Refused(error=_portable(error)))


def _receive(pipe: Connection, requests: queue.SimpleQueue[Request]) -> None:
    try:
        while True:
            requests.put(pipe.recv())
    except (EOFError, OSError):
        os._exit(0)


def _portable(error: AutotuneError) -> AutotuneError:
    """A copy that pickles: a DriverError is made of more than its text."""
    return DeviceError(str(error)) if isinstance(error, DriverError) else error
