"""Which stream is meant: what callers write for one, as the driver's handle."""

from __future__ import annotations

from typing import Any

from autotune.errors import UsageError
from autotune.gpu.caller import LEGACY_STREAM

_LEGACY_NAME = 1
"""The legacy default stream as the array interface, DLPack and CUDA's headers spell it."""

_HANDLES = ("cuda_stream", "ptr", "handle")
"""Where streams of PyTorch, CuPy and PyCUDA keep their handle."""


def handle(stream: Any) -> int:
    """The handle of a stream: an int, a stream of PyTorch, CuPy or PyCUDA, or anything with
    `__cuda_stream__`.

    Raises:
        UsageError: none of these.
    """
    if stream.__class__ is int and stream >= 0:
        return LEGACY_STREAM if stream == _LEGACY_NAME else int(stream)
    if hasattr(stream, "__cuda_stream__"):
        stream = stream.__cuda_stream__()[1]
    for name in _HANDLES:
        if hasattr(stream, name):
            stream = getattr(stream, name)
            break
    try:
        found = int(stream)
    except (TypeError, ValueError):
        found = -1
    if found < 0:
        raise UsageError(
            f"stream {stream!r} is none; pass a handle as an int, a stream of PyTorch, CuPy or "
            "PyCUDA, or anything with __cuda_stream__"
        )
    return LEGACY_STREAM if found == _LEGACY_NAME else found


class External:
    """A handle as an object that libraries take for a stream."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        """Version of the protocol, and the handle."""
        return 0, self._handle


def exported(stream: int) -> int:
    """A handle as array interface and DLPack write it, where 0 has no meaning."""
    return _LEGACY_NAME if stream == LEGACY_STREAM else stream
