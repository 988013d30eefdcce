"""The memory that the launches of a stream share, one after the other.

Two launches may not use a workspace at the same time. Those of one stream never do, so each stream
has workspaces of its own, which grow to the largest plan's. Handles of streams are used again,
hence the driver's number for a stream is what they are kept by; and a lock is held while a plan is
enqueued, because two threads may share a stream and a plan may have several launches.

What is captured into a graph is launched later, on whatever stream, perhaps next to the stream that
it was captured on: it gets memory of its own, allocated and freed by the graph itself.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from autotune.errors import DeviceError, DriverError
from autotune.gpu import caller
from autotune.types import Workspace

KEPT_STREAMS = 32
"""Streams of a context whose workspaces are kept; of more, those that were used longest ago go."""

_ALIGNMENT_BYTES = 256

Kind = tuple[str, bool]
"""Name, and whether it is zero between runs."""


class _Stream:
    """The workspaces of one stream: address and bytes of each kind."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
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
        while self._buffers:
            caller.free(self._buffers.popitem()[1][0])


class Workspaces:
    """Those of one context, which is current wherever they are used."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: OrderedDict[int, _Stream] = OrderedDict()

    @contextmanager
    def of(self, workspaces: Sequence[Workspace], stream: int) -> Iterator[list[int]]:
        """The addresses of a plan's workspaces; what uses them is enqueued inside.

        Raises:
            DeviceError: the device has not so much memory left.
        """
        if caller.is_capturing(stream):
            with _in_graph(workspaces, stream) as addresses:
                yield addresses
            return
        own = self._stream(caller.stream_id(stream))
        try:
            yield [own.address(each, stream) for each in workspaces]
        finally:
            own.lock.release()

    def _stream(self, number: int) -> _Stream:
        """The stream's own, locked."""
        while True:
            with self._lock:
                own = self._streams.setdefault(number, _Stream())
                self._streams.move_to_end(number)
                surplus = self._surplus(number)
            if surplus is not None:
                with caller.apart_from_captures():
                    surplus.free()
                surplus.lock.release()
            own.lock.acquire()
            with self._lock:
                if self._streams.get(number) is own:
                    return own
            own.lock.release()  # it went while this thread waited

    def _surplus(self, number: int) -> _Stream | None:
        """A stream's that is one too many, locked and forgotten; None where there is none."""
        if len(self._streams) > KEPT_STREAMS:
            for oldest, each in self._streams.items():
                if oldest != number and each.lock.acquire(blocking=False):
                    del self._streams[oldest]
                    return each
        return None


def _allocated(workspace: Workspace) -> int:
    try:
        return caller.allocate(workspace.size_bytes)
    except DriverError as error:
        if error.name != "CUDA_ERROR_OUT_OF_MEMORY":
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
