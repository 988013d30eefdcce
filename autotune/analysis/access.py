"""Accesses to memory, counted, whatever kernel makes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from autotune.analysis.async_copies import copy_cost
from autotune.analysis.global_memory import sectors
from autotune.analysis.shared_memory import LANES, WORD_BYTES, wavefronts

Kind = Literal[
    "shared load", "shared store", "shared copy", "global load", "global store", "global add",
    "cluster load", "bulk load",
]  # fmt: skip
"""`shared copy` is what cp.async does; the hardware counts it apart from stores."""
KINDS: tuple[Kind, ...] = get_args(Kind)
"""In the order of `Access` in emulate/runtime/machine.h."""
SHARED_KINDS = tuple(kind for kind in KINDS if kind.startswith("shared"))

Words = Sequence[int | None]
"""Where each lane accesses, in words of 4 bytes; None for one that takes no part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One kind of access to one operand, over the whole launch.

    Attributes:
        operand: `a`, `b` or `c`.
        width_bytes: Bytes per lane; 0 where requests of several widths are counted together.
        requests: Accesses of warps.
        wavefronts: Passes through shared memory; 0 for global memory.
        conflicts: Wavefronts lost to bank conflicts.
        sectors: 32-byte sectors of global memory; 0 for shared memory.
    """

    operand: str
    kind: Kind
    width_bytes: int
    requests: int
    wavefronts: int = 0
    conflicts: int = 0
    sectors: int = 0

    @property
    def conflict_share(self) -> float:
        """Conflicts among the wavefronts, 0 to 1."""
        return self.conflicts / self.wavefronts if self.wavefronts else 0.0


def total(operand: str, kind: Kind, counted: Sequence[Access]) -> Access:
    """The sum of several."""
    widths = {access.width_bytes for access in counted}
    return Access(
        operand=operand,
        kind=kind,
        width_bytes=widths.pop() if len(widths) == 1 else 0,
        requests=sum(access.requests for access in counted),
        wavefronts=sum(access.wavefronts for access in counted),
        conflicts=sum(access.conflicts for access in counted),
        sectors=sum(access.sectors for access in counted),
    )


def counted(operand: str, kind: Kind, width: int, requests: Iterable[tuple[Words, int]]) -> Access:
    """Adds up requests of warps, each with the number of times that it is made.

    Args:
        kind: Other than `shared copy`, for which `copied` is.
        width: Words per lane.
    """
    assert kind != "shared copy", "what a copy costs depends on its sources as well"
    width_bytes = WORD_BYTES * width
    made = passes = conflicts = touched = 0
    for words, times in requests:
        offsets = [_bytes(word) for word in words]
        made += times
        if kind.startswith("shared"):
            cost = wavefronts(offsets, width_bytes, "load" if kind == "shared load" else "store")
            passes += times * cost.wavefronts
            conflicts += times * cost.conflicts
        elif kind.startswith("global"):
            touched += times * sectors(offsets, width_bytes)
    return Access(
        operand=operand,
        kind=kind,
        width_bytes=width_bytes,
        requests=made,
        wavefronts=passes,
        conflicts=conflicts,
        sectors=touched,
    )


def copied(operand: str, width: int, requests: Iterable[tuple[Words, Words, int]]) -> Access:
    """Adds up copies of warps by cp.async: where each lane reads, where it writes, and how often.

    Args:
        width: Words per lane.
    """
    made = passes = conflicts = 0
    for *places, times in requests:
        source, target = ([*map(_bytes, words), *[None] * (LANES - len(words))] for words in places)
        cost = copy_cost(source, target, WORD_BYTES * width)
        made += times
        passes += times * cost.wavefronts
        conflicts += times * cost.conflicts
    return Access(
        operand=operand,
        kind="shared copy",
        width_bytes=WORD_BYTES * width,
        requests=made,
        wavefronts=passes,
        conflicts=conflicts,
    )


def _bytes(word: int | None) -> int | None:
    return None if word is None else WORD_BYTES * word
