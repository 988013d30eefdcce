"""The memory that the launches of a stream share, one after the other.

Two launches may not use a workspace at the same time. Those of one stream never do, so each stream
has workspaces of its own, which grow to the largest plan's. Handles of streams are used again,
hence the driver's number for a stream is what they are kept by; and a lock is held while a plan is
enqueued, because two threads may share a stream and a plan may have several launches.

What is captured into a graph is launched later, on whatever stream, perhaps next to the stream that
it was captured on: it gets memory of its own, allocated and freed by the graph itself.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from autotune.errors import DeviceError, DriverError
from autotune.gpu import caller
from autotune.types import Workspace

KEPT_STREAMS = 32
"""Streams of a context whose workspaces are kept; of more, those that were used longest ago go."""

_ALIGNMENT_BYTES = 256

Kind = tuple[str, bool]
"""Name, and whether it is zero between runs."""


class _Stream:
    """The workspaces of one stream: address and bytes of each kind.

    Attributes:
        lock: Held while they are used, or given back.
        is_kept: Whether they are still there.
        used_at: When they were used last, counted in uses.
    """

    __slots__ = ("_buffers", "is_kept", "lock", "used_at")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_kept = True
        self.used_at = 0
        self._buffers: dict[Kind, tuple[int, int]] = {}

    def address(self, workspace: Workspace, stream: int) -> int:
        """Of a workspace that is large enough, and zero if it has to be."""
        kind = workspace.name, workspace.is_zeroed
        address, size_bytes = self._buffers.get(kind, (0, 0))
        if size_bytes < workspace.size_bytes:
            with caller.apart_from_captures():
                if address:
                    del self._buffers[kind]
                    caller.free(address)
                address = _allocated(workspace)
            self._buffers[kind] = address, workspace.size_bytes
            if workspace.is_zeroed:
                caller.zero_on(stream, address, workspace.size_bytes)
        return address

    def free(self) -> None:
        """Gives all memory back, when the launches that use it are done."""
        self.is_kept = False
        with caller.apart_from_captures():
            while self._buffers:
                caller.free(self._buffers.popitem()[1][0])


class _Use:
    """Entered, the addresses of a stream's workspaces, which nobody else uses meanwhile."""

    __slots__ = ("_handle", "_needed", "_own")

    def __init__(self, own: _Stream, needed: Sequence[Workspace], handle: int) -> None:
        self._own, self._needed, self._handle = own, needed, handle

    def __enter__(self) -> list[int]:
        try:
            return [self._own.address(each, self._handle) for each in self._needed]
        except BaseException:
            self._own.lock.release()
            raise

    def __exit__(self, *_: object) -> None:
        self._own.lock.release()


class Workspaces:
    """Those of one context, which is current wherever they are used."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: dict[int, _Stream] = {}
        self._uses = itertools.count()

    def of(self, needed: Sequence[Workspace], stream: int) -> AbstractContextManager[list[int]]:
        """The addresses of a plan's workspaces; what uses them is enqueued inside.

        Raises:
            DeviceError: the device has not so much memory left.
        """
        if caller.is_capturing(stream):
            return _in_graph(needed, stream)
        return _Use(self._locked(caller.stream_id(stream)), needed, stream)

    def _locked(self, number: int) -> _Stream:
        """The stream's own, locked."""
        while True:
            own = self._streams.get(number) or self._added(number)
            own.lock.acquire()
            if own.is_kept:
                own.used_at = next(self._uses)
                return own
            own.lock.release()  # it went while this thread waited

    def _added(self, number: int) -> _Stream:
        """A new stream's; the surplus of others goes."""
        with self._lock:
            own = self._streams.setdefault(number, _Stream())
            own.used_at = next(self._uses)
            by_age = sorted(self._streams, key=lambda each: self._streams[each].used_at)
            for old in by_age[: max(0, len(by_age) - KEPT_STREAMS)]:
                each = self._streams[old]
                if each.lock.acquire(blocking=False):
                    del self._streams[old]
                    each.free()
                    each.lock.release()
            return own


def _allocated(workspace: Workspace) -> int:
    try:
        return caller.allocate(workspace.size_bytes)
    except DriverError as error:
        if not error.is_out_of_memory:
            raise
        raise DeviceError(
            f"workspace {workspace.name} takes {workspace.size_bytes} bytes of device memory, "
            "which are not free; free some (torch.cuda.empty_cache() gives back what PyTorch "
            "holds without using it)"
        ) from error


@contextmanager
def _in_graph(workspaces: Sequence[Workspace], stream: int) -> Iterator[list[int]]:
    """One allocation for all, which belongs to the graph that is being captured."""
    offsets = [0]
    for each in workspaces:
        size_bytes = -(-each.size_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        offsets.append(offsets[-1] + size_bytes)
    base = caller.allocate_on(stream, offsets[-1])
    addresses = [base + offset for offset in offsets[:-1]]
    for each, address in zip(workspaces, addresses, strict=True):
        if each.is_zeroed:
            caller.zero_on(stream, address, each.size_bytes)
    yield addresses
    caller.free_on(stream, base)
