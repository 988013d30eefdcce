"""What one cp.async of a warp costs: passes through shared memory, and sectors that it asks for.

The cost of a copy depends on where it comes from as well as on where it goes, and on the way that
it takes.

Copies of 4 and 8 bytes pass through the L1 cache, whose lines lie in the same banks as shared
memory. Lanes wait for one another where they read or write the same bank: in each group of lanes
(32 of 4 bytes, 16 of 8) the lane that shares a bank with most others, as source or as target,
decides. A lane that copies nothing, because its source is outside, still writes its zeros.

Copies of 16 bytes go from the L2 cache past the L1 cache. They are asked for by sectors: a lane, or
two neighbours, bring a sector, whole or by half, to a sector. One request takes sectors of one line
of 128 bytes to one line, all by the same half or in whole, each to another sector, and all from
even to even sectors and from odd to odd, or all the other way round. Where a lane copies nothing,
the instruction costs that for all its lanes, and the passes of a copy through the cache as well.

The rules were found from patterns counted by Nsight Compute on an H200. They give every count of
the 653 that benchmarks/async_copies.py records but for 7, in which several lanes that copy nothing
name one source: 1 or 2 passes more than foreseen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.analysis.global_memory import SECTOR_BYTES
from autotune.analysis.shared_memory import BANKS, LANES, WIDTHS_BYTES, WORD_BYTES
from autotune.errors import UsageError

BYPASSING_BYTES = 16
"""Width of copies past the L1 cache."""

LINE_BYTES = 128


@dataclass(frozen=True, slots=True)
class CopyCost:
    """Cost of one copy of a warp, as the device counts it for LDGSTS.

    Attributes:
        wavefronts: Passes through shared memory.
        conflicts: Those lost to banks.
        sectors: 32-byte sectors that are asked for, a sector twice where its halves go to different
            ones.
    """

    wavefronts: int
    conflicts: int
    sectors: int


@dataclass(frozen=True, slots=True)
class _Lane:
    source: int
    target: int
    is_inside: bool


def copy_cost(
    sources_bytes: Sequence[int | None],
    targets_bytes: Sequence[int | None],
    width_bytes: int,
    is_inside: Sequence[bool] | None = None,
) -> CopyCost:
    """Counts one copy.

    Args:
        sources_bytes: Where each lane reads global memory, in bytes from an address that is a
            multiple of 128; None for a lane that takes no part.
        targets_bytes: Where it writes shared memory, likewise.
        width_bytes: Bytes per lane: 4, 8 or 16.
        is_inside: False where a lane takes part but copies nothing and writes zeros; None: all do.

    Raises:
        UsageError: other than 32 lanes, another width, or an offset that is no multiple of it.
    """
    given = [True] * LANES if is_inside is None else list(is_inside)
    if width_bytes not in WIDTHS_BYTES:
        raise UsageError(f"a copy of {width_bytes} bytes per lane; possible are 4, 8 and 16")
    if not len(sources_bytes) == len(targets_bytes) == len(given) == LANES:
        raise UsageError(f"a copy needs a source and a target for each of {LANES} lanes")
    groups: defaultdict[int, list[_Lane]] = defaultdict(list)
    for index, (source, target) in enumerate(zip(sources_bytes, targets_bytes, strict=True)):
        if source is None or target is None:
            continue
        if source % width_bytes or target % width_bytes:
            raise UsageError(
                f"lane {index} copies from byte {source} to byte {target}, which are not both "
                f"multiples of its {width_bytes} bytes"
            )
        lane = _Lane(source, target, given[index])
        groups[index * width_bytes // (LANES * WORD_BYTES)].append(lane)
    lanes = [lane for group in groups.values() for lane in group]
    copied = [lane for lane in lanes if lane.is_inside]
    banked = sum(_passes(group, width_bytes) for group in groups.values())
    if width_bytes < BYPASSING_BYTES:
        sectors = len({lane.source // SECTOR_BYTES for lane in copied})
        return CopyCost(banked, banked - len(groups), sectors)
    asked = len(_sectors(copied))
    if len(copied) == len(lanes):
        return CopyCost(_requests(lanes), 0, asked)
    filled = sum(_passes(group, width_bytes, every_source=True) for group in groups.values())
    return CopyCost(_requests(lanes) + filled, banked - len(groups), asked)


def _passes(lanes: Sequence[_Lane], width_bytes: int, every_source: bool = False) -> int:
    """Of a group of lanes through the banks; with every source, also of those that copy nothing."""
    # Accesses are aligned, so that two have all of their banks in common, or none.
    places = BANKS * WORD_BYTES // width_bytes
    banks = [
        (lane.source // width_bytes % places if lane.is_inside or every_source else None,
         lane.target // width_bytes % places)
        for lane in lanes
    ]  # fmt: skip
    return max(
        sum(
            target == other_target or (source is not None and source == other_source)
            for other_source, other_target in banks
        )
        for source, target in banks
    )


_Sector = tuple[int, int, tuple[tuple[int, int], ...]]
"""Of source and of target, by number; and the halves that go from one to the other."""


def _sectors(lanes: Sequence[_Lane]) -> list[_Sector]:
    """What copies past the L1 cache are asked for, in the order of the lanes."""
    last = {lane.target: lane for lane in lanes}  # of several writers only one is asked for
    halves: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for lane in lanes:
        if last[lane.target] is lane:
            (source, from_), (target, to) = (
                divmod(place // BYPASSING_BYTES, SECTOR_BYTES // BYPASSING_BYTES)
                for place in (lane.source, lane.target)
            )
            halves[source, target].append((from_, to))
    found: list[_Sector] = []
    for (source, target), moved in halves.items():
        if len({from_ for from_, _ in moved}) == len(moved):
            found.append((source, target, tuple(sorted(moved))))
        else:  # one half, to both
            found += [(source, target, (each,)) for each in moved]
    return found


def _requests(lanes: Sequence[_Lane]) -> int:
    """In which the sectors of copies past the L1 cache are asked for."""
    per_line = LINE_BYTES // SECTOR_BYTES
    alike: defaultdict[object, list[tuple[int, int]]] = defaultdict(list)
    for source, target, halves in _sectors(lanes):
        key = source // per_line, target // per_line, halves, (source ^ target) % 2
        alike[key].append((source, target))
    return sum(
        max(max(Counter(sources).values()), max(Counter(targets).values()))
        for sources, targets in (zip(*pairs, strict=True) for pairs in alike.values())
    )
