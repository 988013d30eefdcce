"""How many passes through shared memory one access of a warp takes.

Shared memory has 32 banks of 4-byte words and delivers one word per bank in a pass, a "wavefront".
A wide access is split into groups of lanes, each with at least one pass of its own; within a group
the busiest bank decides. The rule here was checked against 492 patterns counted by Nsight Compute
on an H200 and against published counts from a T4.

Inactive lanes were not measured: they take no bank, and they neither allow nor prevent the merging
of groups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from autotune.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Access = Literal["load", "store"]

LANES = 32
BANKS = 32
WORD_BYTES = 4
WIDTHS_BYTES = (4, 8, 16)

INACTIVE = -1
"""Marks a lane that takes no part, in the arrays of `wavefronts_of_many`."""


@dataclass(frozen=True, slots=True)
class Wavefronts:
    """Cost of one access of a warp.

    Attributes:
        wavefronts: Passes that it takes.
        ideal: Passes that its width alone asks for.
    """

    wavefronts: int
    ideal: int

    @property
    def conflicts(self) -> int:
        """Passes lost to bank conflicts."""
        return self.wavefronts - self.ideal


def wavefronts(byte_offsets: Sequence[int | None], width_bytes: int, access: Access) -> Wavefronts:
    """Counts the wavefronts of one access.

    Args:
        byte_offsets: Where each lane accesses, in bytes from an address that is a multiple of 128;
            None for an inactive lane. Fewer than 32 entries leave the last lanes inactive.
        width_bytes: Bytes per lane: 4, 8 or 16.
        access: `load` or `store`.

    Raises:
        UsageError: more than 32 lanes, another width, an offset that is negative or not a multiple
            of the width, or an access that is neither.
    """
    _check(width_bytes, access)
    if len(byte_offsets) > LANES:
        raise UsageError(f"{len(byte_offsets)} byte offsets were given; a warp has {LANES} lanes")
    for lane, offset in enumerate(byte_offsets):
        if offset is not None and (offset < 0 or offset % width_bytes):
            raise _misplaced(lane, offset, width_bytes)
    words = [None if offset is None else offset // WORD_BYTES for offset in byte_offsets]
    words += [None] * (LANES - len(words))
    words_per_lane = width_bytes // WORD_BYTES
    group_lanes = LANES // words_per_lane
    if access == "load" and words_per_lane > 1 and (_is_paired(words, 1) or _is_paired(words, 2)):
        group_lanes *= 2
    total = ideal = 0
    for start in range(0, LANES, group_lanes):
        banks: defaultdict[int, set[int]] = defaultdict(set)
        for first in words[start : start + group_lanes]:
            if first is not None:
                for word in range(first, first + words_per_lane):
                    banks[word % BANKS].add(word)
        if banks:
            total += max(len(distinct) for distinct in banks.values())
            ideal += 1
    return Wavefronts(total, ideal)


def wavefronts_of_many(
    byte_offsets: NDArray[np.integer], width_bytes: int, access: Access
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`wavefronts` of many accesses of one width at once.

    Args:
        byte_offsets: Array of shape (accesses, 32); `INACTIVE` where a lane takes no part.
        width_bytes, access: As for `wavefronts`.

    Returns:
        Two arrays of shape (accesses,): wavefronts and ideal; conflicts are their difference.

    Raises:
        UsageError: as `wavefronts` does, or an array of another shape or of a type that is not
            an integer.
    """
    # Late: a look-up's default rests on this module, and is not to wait for NumPy.
    import numpy as np

    _check(width_bytes, access)
    if (
        byte_offsets.ndim != 2
        or byte_offsets.shape[1] != LANES
        or not np.issubdtype(byte_offsets.dtype, np.integer)
    ):
        raise UsageError(
            f"byte offsets of shape {byte_offsets.shape} and type {byte_offsets.dtype}; "
            f"needed are integers of shape (accesses, {LANES})"
        )
    offsets = byte_offsets.astype(np.int64)
    active = offsets != INACTIVE
    misplaced = active & ((offsets < 0) | (offsets % width_bytes != 0))
    if misplaced.any():
        row, lane = (int(index) for index in np.argwhere(misplaced)[0])
        raise _misplaced(lane, int(offsets[row, lane]), width_bytes, f" of access {row}")
    accesses = len(offsets)
    words_per_lane = width_bytes // WORD_BYTES
    words = offsets // WORD_BYTES
    lanes = np.arange(LANES)
    groups = np.full(accesses, words_per_lane)
    if access == "load" and words_per_lane > 1:
        paired = np.zeros(accesses, dtype=bool)
        for distance in (1, 2):
            partner = lanes ^ distance
            equal = (words == words[:, partner]) | ~active | ~active[:, partner]
            paired |= equal.all(axis=1)
        groups[paired] //= 2

    # Slot = (access, group, bank). Sorting its words side by side leaves one entry a distinct word.
    group = lanes * groups[:, None] // LANES
    every = (words[:, :, None] + np.arange(words_per_lane))[active]
    slot = (np.arange(accesses)[:, None] * words_per_lane + group)[active][:, None] * BANKS
    slot = (slot + every % BANKS).ravel()
    every = every.ravel()
    order = np.lexsort((every, slot))
    slot, every = slot[order], every[order]
    distinct = np.ones(len(slot), dtype=bool)
    distinct[1:] = (slot[1:] != slot[:-1]) | (every[1:] != every[:-1])
    counts = np.bincount(slot[distinct], minlength=accesses * words_per_lane * BANKS)
    passes = counts.reshape(accesses, words_per_lane, BANKS).max(axis=2)
    return passes.sum(axis=1), np.count_nonzero(passes, axis=1).astype(np.int64)


def _is_paired(words: Sequence[int | None], distance: int) -> bool:
    """Whether each lane and the one at `lane ^ distance` read the same address."""
    return all(
        word is None or (partner := words[lane ^ distance]) is None or word == partner
        for lane, word in enumerate(words)
    )


def _check(width_bytes: int, access: str) -> None:
    if width_bytes not in WIDTHS_BYTES:
        raise UsageError(f"an access of {width_bytes} bytes per lane; possible are 4, 8 and 16")
    if access not in ("load", "store"):
        raise UsageError(f"access {access!r} is neither 'load' nor 'store'")


def _misplaced(lane: int, offset: int, width_bytes: int, where: str = "") -> UsageError:
    return UsageError(
        f"lane {lane}{where} accesses byte offset {offset}; with {width_bytes} bytes per lane "
        f"it must be a multiple of {width_bytes} and not negative"
    )
