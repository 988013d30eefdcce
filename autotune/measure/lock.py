"""One measuring process a GPU: a lock that dies with its owner."""

from __future__ import annotations

import fcntl
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from autotune import settings
from autotune.errors import DeviceError
from autotune.types import Device

logger = logging.getLogger("autotune")

_POLL_S = 0.1
_REMIND_S = 30.0

Waiting = Callable[[str], None]
"""Told who holds the GPU: once at the start of a wait, then every 30 s."""


class DeviceLock:
    """Held by whoever times kernels on a device, across the processes of one user.

    `flock` belongs to the open file: the kernel gives it back when the owner ends, however it ends.
    """

    def __init__(
        self,
        device: Device,
        *,
        on_wait: Waiting = logger.warning,
        limit_s: float | None = None,
    ) -> None:
        """Takes the lock, waiting for it.

        Args:
            limit_s: How long to wait at most; None for as long as it takes.

        Raises:
            DeviceError: it took longer than `limit_s`, or the lock's file cannot be made.
        """
        self.path = lock_path(device)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+")
        except OSError as error:
            raise DeviceError(
                f"cannot open the device lock {self.path}: {error.strerror}; point "
                "AUTOTUNE_CACHE_DIR to a folder that can be written"
            ) from error
        try:
            self._wait(device, on_wait, limit_s)
            self._file.truncate(0)
            self._file.write(f"process {os.getpid()}: {' '.join(sys.argv) or sys.executable}\n")
            self._file.flush()
        except BaseException:
            self._file.close()
            raise

    def _wait(self, device: Device, on_wait: Waiting, limit_s: float | None) -> None:
        started = time.monotonic()
        reminded = -_REMIND_S
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                waited = time.monotonic() - started
            self._file.seek(0)
            owner = self._file.read().strip() or "another process"
            name = f"{device.name} ({device.uuid or device.index})"
            if limit_s is not None and waited >= limit_s:
                raise DeviceError(
                    f"{name} is being measured on by {owner}; waited {waited:.0f} s for "
                    f"{self.path}; end that search, or choose another device with --device"
                )
            if waited - reminded >= _REMIND_S:
                reminded = waited
                on_wait(f"waiting for {name}: {owner} is measuring on it")
            time.sleep(_POLL_S)

    def release(self) -> None:
        """Gives the lock back; may be called twice."""
        self._file.close()

    def __enter__(self) -> DeviceLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def lock_path(device: Device) -> Path:
    """The lock's file, named by UUID so that every numbering of the devices finds the same."""
    return settings.cache_folder() / "locks" / f"{device.uuid or device.name}.lock"
