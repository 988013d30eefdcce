"""A Python process of our own: started fresh, spoken to through a pipe, ended with all it started.

Not multiprocessing's spawn, which runs the caller's main module again in the child: a script
without a main guard would start itself, and the command line would load all of its imports. A fresh
interpreter also obeys CUDA's fork rule.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from multiprocessing import Pipe
from typing import Any


class Child:
    """A process that runs `main(file_descriptor)` of a module. It leads a session of its own, so
    that Ctrl-C does not reach it, and should end when its pipe closes.

    Raises:
        OSError: no process, or no memory for one.
    """

    def __init__(self, module: str, label: str) -> None:
        # In memory, because the temporary folder may be full.
        self._printed = os.fdopen(os.memfd_create(label), "w+b")
        self._pipe, theirs = Pipe()
        self._lock = threading.Lock()
        start = (
            f"import sys; sys.path[:] = sys.argv[2:]; from {module} import main; "
            "main(int(sys.argv[1]))"
        )
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", start, str(theirs.fileno()), *sys.path],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=self._printed,
                    stderr=self._printed,
                    start_new_session=True,
                )
        except OSError:
            self._pipe.close()
            self._printed.close()
            raise

    @property
    def pid(self) -> int:
        """Of the process, and of its group."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def send(self, item: object) -> None:
        """Passes something on; that the child is dead is for `receive` to notice."""
        with suppress(OSError):
            self._pipe.send(item)

    def receive(self, limit_s: float | None) -> Any:
        """Its next message.

        Raises:
            TimeoutError: none came in time.
            EOFError: it is gone.
        """
        try:
            if not self._pipe.poll(limit_s):
                raise TimeoutError
            return self._pipe.recv()
        except ConnectionError as error:
            raise EOFError from error

    def ending(self) -> tuple[int, str]:
        """How a process that is gone ended: exit code, or minus the signal, and what it printed."""
        code = self._process.wait()
        self._printed.seek(0)
        return code, self._printed.read().decode(errors="replace").strip()

    def kill(self, limit_s: float | None = None) -> None:
        """Ends it and everything it started, now; from any thread.

        Args:
            limit_s: How long to wait for it to be gone; a driver that cannot stop its kernel keeps
                the process.
        """
        with self._lock:
            # The group outlives its leader's death, but not the wait: hence this order.
            if self._process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(limit_s)

    def close(self, *, polite_s: float = 0.0, limit_s: float | None = None) -> None:
        """Closes the pipe, waits so long for the process to notice, then kills it."""
        self._pipe.close()
        deadline = time.monotonic() + polite_s
        while self.is_alive and time.monotonic() < deadline:
            time.sleep(0.005)
        self.kill(limit_s)
        self._printed.close()
