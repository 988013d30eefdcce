"""The memory that plans need beside the operands, kept from one candidate to the next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from autotune import verify
from autotune.errors import DeviceError, ShapeError
from autotune.gpu import Context
from autotune.types import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class _Buffer:
    """Device memory for all workspaces of one name: the largest so far, and a guard zone."""

    address: int
    size_bytes: int


class Workspaces:
    """Buffers by name, which only grow.

    One that is zero between runs is zeroed when it is made and when a run left it otherwise; every
    other is filled with poison before a run that is verified.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._buffers: dict[tuple[str, bool], _Buffer] = {}

    def addresses(self, workspaces: Iterable[Workspace]) -> dict[str, int]:
        """Of the workspaces of a plan that were reserved, by name."""
        return {each.name: self._buffer(each).address for each in workspaces}

    def _buffer(self, workspace: Workspace) -> _Buffer:
        return self._buffers[workspace.name, workspace.is_zeroed]

    def reserve(self, workspaces: Iterable[Workspace]) -> None:
        """Makes every buffer at least as large as it has to be; one that grows moves.

        Raises:
            ShapeError: more than the device has.
            DeviceError: more than is free.
        """
        for each in workspaces:
            key = each.name, each.is_zeroed
            buffer = self._buffers.get(key)
            if buffer is not None and buffer.size_bytes >= each.size_bytes:
                continue
            if buffer is not None:
                self._context.free(self._buffers.pop(key).address)
            total_bytes = each.size_bytes + verify.GUARD_BYTES
            what = f"workspace {each.name} takes {{}}"
            require_bytes(total_bytes, *self._context.memory(), what, "a config that splits less")
            address = self._context.allocate(total_bytes)
            self._buffers[key] = _Buffer(address=address, size_bytes=each.size_bytes)
            if each.is_zeroed:
                self._context.fill_bytes(address, 0, total_bytes)

    def poison(self, workspaces: Iterable[Workspace]) -> None:
        """Fills those of a plan that are not zero between runs, and their guard zones."""
        for each in workspaces:
            if not each.is_zeroed:
                words = (each.size_bytes + verify.GUARD_BYTES) // verify.WORD_BYTES
                self._context.fill_words(self._buffer(each).address, verify.POISON, words)

    def fault(self, workspaces: Iterable[Workspace]) -> str:
        """What a run did to a plan's workspaces that it may not do; empty when nothing.

        What should be zero is made so again, for the next candidate.
        """
        faults = []
        for each in workspaces:
            first_byte = 0 if each.is_zeroed else each.size_bytes
            last_byte = each.size_bytes + verify.GUARD_BYTES
            address = self._buffer(each).address
            words = np.empty((last_byte - first_byte) // verify.WORD_BYTES, np.uint32)
            self._context.download(words, address + first_byte)
            wrong = np.flatnonzero(words != (0 if each.is_zeroed else verify.POISON))
            if wrong.size:
                what = "are not zero after the run" if each.is_zeroed else "beyond it were written"
                faults.append(
                    f"{wrong.size} words of workspace {each.name} {what}, first "
                    f"{first_byte + int(wrong[0]) * verify.WORD_BYTES} bytes from its start"
                )
                if each.is_zeroed:
                    self._context.fill_bytes(address, 0, last_byte)
        return "; ".join(faults)

    def close(self) -> None:
        """Frees the memory."""
        while self._buffers:
            self._context.free(self._buffers.popitem()[1].address)


def require_bytes(needed: int, free_bytes: int, total_bytes: int, what: str, smaller: str) -> None:
    """Refuses what does not fit.

    Args:
        what: Who needs it, with `{}` where the size belongs.
        smaller: What to choose instead.

    Raises:
        ShapeError: more than the device has.
        DeviceError: more than is free.
    """
    if needed <= free_bytes:
        return
    size = f"{needed} bytes ({needed / 2**30:.1f} GiB) of device memory"
    sizes = (
        f"{what.format(size)}; free are {free_bytes} ({free_bytes / 2**30:.1f} GiB) of "
        f"{total_bytes}"
    )
    if needed > total_bytes:
        raise ShapeError(f"{sizes}; choose {smaller}")
    raise DeviceError(f"{sizes}; end other programs on the GPU, or choose {smaller}")
