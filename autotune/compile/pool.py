"""Many compiles at a time, each of which can be ended.

A thread waits on each worker process. NVRTC gives up the GIL, so threads alone would keep the cores
busy; but only a process can be killed, and a compile that is stuck knows no other end.
"""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from types import TracebackType

from autotune import settings
from autotune.child import Child
from autotune.compile import nvrtc
from autotune.compile.cache import Cache
from autotune.compile.job import Compiler, Died, Job
from autotune.compile.toolchain import find
from autotune.compile.worker import Reply
from autotune.errors import CompilerError
from autotune.types import Binary, Failure, Outcome

_START_LIMIT_S = 60.0


class Pool:
    """Compiles sources in worker processes, through the cache.

    Workers start when the first job that is not in the cache needs them. As a context manager it
    drops on the way out what is not done; take the results inside.

    Attributes:
        compiler: What compiles.
        cache: Where results are kept.
        compiles: Jobs given to the compiler so far.
        cache_hits: Jobs answered by the cache so far.
    """

    def __init__(
        self,
        compiler: Compiler | None = None,
        *,
        jobs: int | None = None,
        cache: Cache | None = None,
    ) -> None:
        """Make a pool; no process starts yet.

        Args:
            compiler: None means `find()`.
            jobs: Workers, at least 1; None means `settings.jobs()`.
            cache: None means the user's.

        Raises:
            CompilerError: there is no compiler.
        """
        self.compiler = compiler or find()
        self.cache = cache or Cache()
        self.compiles = 0
        self.cache_hits = 0
        self._threads = ThreadPoolExecutor(jobs or settings.jobs(), "autotune-compile")
        self._lock = threading.Lock()
        self._workers: set[_Worker] = set()
        self._idle: list[_Worker] = []
        self._gate = _Gate()
        self._closed = False

    def submit(
        self,
        source: str,
        arch: int,
        *,
        timeout_s: float | None = 60.0,
        target: str = "",
        options: tuple[str, ...] = (),
    ) -> Future[Binary | Failure]:
        """Compile a source to a cubin.

        Args:
            source: CUDA C++17 that includes no file of its own.
            arch: For example 75.
            timeout_s: Seconds of compiling, waiting for a worker not counted; None for no limit.
            target: For the compiler, when not as `archs` says: for example `sm_120a`.
            options: Further options of the compiler.

        Returns:
            A future whose result is a `Failure` (`compile_error`, `compile_timeout`) for a source
            that does not compile. It raises `CompilerError` when nothing can compile here (no host
            compiler, no room for temporary files), and `CancelledError` when the pool was closed.
        """
        job = Job(source=source, arch=arch, target=target, options=options)
        return self._threads.submit(self._compile, job, timeout_s)

    def close(self, cancel: bool = True) -> None:
        """End the workers; with `cancel` at once, without it when all jobs are done."""
        if cancel:
            with self._lock:
                self._closed = True
                workers = list(self._workers)
            for worker in workers:
                worker.kill()
        self._threads.shutdown(wait=True, cancel_futures=cancel)
        with self._lock:
            self._closed = True
            while self._workers:
                self._workers.pop().close()
            self._idle.clear()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _compile(self, job: Job, timeout_s: float | None) -> Binary | Failure:
        key = job.key(self.compiler)
        if (known := self.cache.load(key)) is not None:
            with self._lock:
                self.cache_hits += 1
            return known
        try:
            try:
                with self._gate.shared():
                    result = self._run(job, timeout_s)
            except Died:
                # Most often the kernel's out-of-memory killer: once more, with the memory of all.
                with self._gate.alone():
                    result = self._run(job, timeout_s)
        except Died as died:
            # Says nothing of the source, so it is no compile error, which bars a config for good.
            what = f"the compiler was twice {died.reason}"
            return job.failure(self.compiler, Outcome.crash, what, died.log)
        except TimeoutError:
            what = f"not done within the limit of {timeout_s:g} s"
            return job.failure(self.compiler, Outcome.compile_timeout, what)
        self.cache.store(key, job.source, result)
        return result

    def _run(self, job: Job, timeout_s: float | None) -> Binary | Failure:
        worker = self._take()
        try:
            result = worker.run(job, timeout_s)
        except BaseException:
            with self._lock:
                self._workers.discard(worker)
                closed = self._closed
            worker.close()
            if closed:
                raise CancelledError from None
            raise
        with self._lock:
            self._idle.append(worker)
        return result

    def _take(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise CancelledError
            self.compiles += 1
            if self._idle:
                return self._idle.pop()
            worker = _Worker(self.compiler)
            self._workers.add(worker)
            return worker


def compile_one(
    source: str,
    arch: int,
    *,
    compiler: Compiler | None = None,
    cache: Cache | None = None,
    timeout_s: float | None = None,
    target: str = "",
    options: tuple[str, ...] = (),
) -> Binary | Failure:
    """Compile one source, through the same cache; arguments as for `Pool.submit`.

    NVRTC runs in this process unless there is a time limit, which needs one that can be killed.

    Raises:
        CompilerError: there is no compiler, or nothing can compile here.
    """
    compiler = compiler or find()
    cache = cache or Cache()
    if compiler.kind == "nvcc" or timeout_s is not None:
        with Pool(compiler, jobs=1, cache=cache) as pool:
            return pool.submit(
                source, arch, timeout_s=timeout_s, target=target, options=options
            ).result()
    job = Job(source=source, arch=arch, target=target, options=options)
    key = job.key(compiler)
    if (known := cache.load(key)) is not None:
        return known
    try:
        result = nvrtc.build(compiler, job)
    except Died as died:
        what = f"the compiler {died.reason}"
        return job.failure(compiler, Outcome.compile_error, what, died.log)
    cache.store(key, source, result)
    return result


class _Gate:
    """Lets many through together, or one alone, who goes before those that come later."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._loners = 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._loners == 0)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._loners += 1
            self._changed.wait_for(lambda: self._inside == 0)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._loners -= 1
                self._inside -= 1
                self._changed.notify_all()


class _Worker:
    """The parent's side of `autotune.compile.worker`. Used by one thread at a time, but for
    `kill`."""

    def __init__(self, compiler: Compiler) -> None:
        self._needs_folder = compiler.kind == "nvcc"
        self._is_ready = False
        try:
            self._child = Child("autotune.compile.worker", "autotune-compiler")
        except OSError as error:
            raise CompilerError(
                f"cannot start a compiler process ({error}); set AUTOTUNE_JOBS to fewer"
            ) from error
        self._child.send(compiler)

    def run(self, job: Job, timeout_s: float | None) -> Binary | Failure:
        """One job. After any exception the worker is dead.

        Raises:
            TimeoutError: the limit passed.
            Died: the compiler was killed by a signal, or ran out of memory.
            CompilerError: nothing can compile here.
        """
        try:
            self._await_start()
            with self._folder() as folder:
                try:
                    self._child.send((job, folder))
                    reply = self._receive(timeout_s)
                except BaseException:
                    self.kill()  # before its folder goes
                    raise
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            raise CompilerError(
                f"no room for the compiler's temporary files ({error}); set TMPDIR to a folder "
                "that can be written"
            ) from error
        if isinstance(reply, Exception):
            raise reply
        assert reply is not None
        return reply

    def kill(self) -> None:
        """End it and everything it started, now."""
        self._child.kill()

    def close(self) -> None:
        """Kill it and free what it held."""
        self._child.kill()
        self._child.close()

    def _await_start(self) -> None:
        if self._is_ready:
            return
        try:
            problem = self._receive(_START_LIMIT_S)
        except TimeoutError:
            raise CompilerError(
                f"a compiler process did not start within {_START_LIMIT_S:g} s; is the machine "
                "out of memory? set AUTOTUNE_JOBS to fewer"
            ) from None
        if isinstance(problem, Exception):
            raise problem
        self._is_ready = True

    def _folder(self) -> tempfile.TemporaryDirectory[str] | nullcontext[str]:
        if self._needs_folder:
            return tempfile.TemporaryDirectory(prefix="autotune-", ignore_cleanup_errors=True)
        return nullcontext("")

    def _receive(self, timeout_s: float | None) -> Reply | None:
        try:
            reply: Reply | None = self._child.receive(timeout_s)
            return reply
        except EOFError:
            self.kill()
        code, printed = self._child.ending()
        if code < 0:
            raise Died(f"killed by {signal.Signals(-code).name}", printed)
        last = printed.splitlines()[-1] if printed else "no text"
        raise CompilerError(f"a compiler process ended with exit code {code}: {last}")
