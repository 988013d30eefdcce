"""The process that compiles for a pool, one job after another, until its pipe closes.

It leads a process group of its own, which nvcc and its children join: killing the group ends a
compile for certain. A thread waits for the pipe, so that the group also ends when the parent was
killed and could not say so.
"""

from __future__ import annotations

import os
import queue
import shutil
import signal
import threading
from contextlib import suppress
from multiprocessing.connection import Connection

from autotune.compile import nvcc, nvrtc
from autotune.compile.job import Compiler, Died, Job
from autotune.compile.toolchain import find
from autotune.errors import CompilerError
from autotune.types import Binary, Failure

Task = tuple[Job, str]
"""A job, and the folder for nvcc's files; empty for NVRTC, which makes none."""

Reply = Binary | Failure | Died | CompilerError

_NICENESS = 5


def main(descriptor: int) -> None:
    """Serve the pool at the other end of the socket: its compiler first, then tasks."""
    # With a process on every core, those that measure and choose go first.
    with suppress(OSError):
        os.nice(_NICENESS)
    # The parent decides what an interrupt means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A duplicate: the descriptor itself stays open to the very end, so that the parent notices the
    # end only when the exit status is decided.
    pipe: Connection = Connection(os.dup(descriptor))
    compiler: Compiler = pipe.recv()
    pipe.send(_prepare(compiler))
    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, tasks), daemon=True).start()
    while True:
        pipe.send(_compile(compiler, *tasks.get()))


def _prepare(compiler: Compiler) -> CompilerError | None:
    """Load the library now, so that no job's time limit pays for it, and see that it is the one
    whose name the results will bear."""
    if compiler.kind == "nvcc":
        return None
    try:
        own = find("nvrtc")
    except CompilerError as error:
        return error
    if own == compiler:
        return None
    return CompilerError(
        f"compiler processes find {own.label}, but this process has {compiler.label} loaded: "
        "tune in a process that does not load that one, or use --compiler nvcc"
    )


def _compile(compiler: Compiler, job: Job, folder: str) -> Reply:
    try:
        if compiler.kind == "nvcc":
            return nvcc.build(compiler, job, folder)
        return nvrtc.build(compiler, job)
    except (Died, CompilerError) as error:
        return error


def _receive(pipe: Connection, tasks: queue.SimpleQueue[Task]) -> None:
    folder = ""
    try:
        while True:
            task: Task = pipe.recv()
            folder = task[1]
            tasks.put(task)
    except (EOFError, OSError):
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
        os.killpg(0, signal.SIGKILL)
