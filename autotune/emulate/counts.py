"""Requests, wavefronts, conflicts and sectors by source line, from patterns of requests."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from autotune.analysis.access import KINDS
from autotune.analysis.async_copies import copy_cost
from autotune.analysis.global_memory import sectors
from autotune.analysis.shared_memory import LANES, Access, wavefronts_of_many
from autotune.emulate.report import AccessCount, TileClass
from autotune.emulate.run import Pattern
from autotune.emulate.sample import Part

_WORD_BYTES = 4

Key = tuple[int, int, int]
"""Line, kind and words of an access."""
Cost = tuple[int, int, int, int]
"""Requests, wavefronts, conflicts, sectors."""
Counts = dict[Key, Cost]


def of_blocks(patterns: Sequence[Pattern], blocks: Sequence[Mapping[int, int]]) -> list[Counts]:
    """The counts of each block."""
    costs = _costs(patterns)
    result = []
    for block in blocks:
        sums: dict[Key, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        for number, times in block.items():
            pattern = patterns[number]
            total = sums[pattern.line, pattern.access, pattern.words]
            for index, cost in enumerate(costs[number]):
                total[index] += times * cost
        result.append({key: (c[0], c[1], c[2], c[3]) for key, c in sums.items()})
    return result


def added(blocks: Sequence[Counts]) -> Counts:
    """The sum over blocks."""
    total: Counts = {}
    for block in blocks:
        for key, cost in block.items():
            before = total.get(key, (0, 0, 0, 0))
            total[key] = (
                before[0] + cost[0],
                before[1] + cost[1],
                before[2] + cost[2],
                before[3] + cost[3],
            )
    return total


def extended(
    blocks: Sequence[tuple[Part, Counts]], grid: Counter[Part]
) -> tuple[Counts, tuple[TileClass, ...]]:
    """Counts of the grid from those of some blocks of each class."""
    total: list[Counts] = []
    classes = []
    for part, number in sorted(grid.items(), reverse=True):
        mine = [counts for where, counts in blocks if where == part]
        classes.append(
            TileClass(
                rows=part[0],
                columns=part[1],
                blocks=number,
                blocks_run=len(mine),
                is_uniform=all(counts == mine[0] for counts in mine),
            )
        )
        total.append(
            {
                key: (
                    round(cost[0] * number / len(mine)),
                    round(cost[1] * number / len(mine)),
                    round(cost[2] * number / len(mine)),
                    round(cost[3] * number / len(mine)),
                )
                for key, cost in added(mine).items()
            }
        )
    return added(total), tuple(classes)


def by_line(counts: Counts, lines: Sequence[str]) -> tuple[AccessCount, ...]:
    """As the report has them."""
    return tuple(
        AccessCount(
            line=line,
            text=lines[line - 1].strip(),
            kind=KINDS[access],
            width_bytes=words * _WORD_BYTES,
            requests=cost[0],
            wavefronts=cost[1],
            conflicts=cost[2],
            sectors=cost[3],
        )
        for (line, access, words), cost in sorted(counts.items())
    )


def _costs(patterns: Sequence[Pattern]) -> list[Cost]:
    """What one request of each pattern costs."""
    costs: list[Cost] = [(1, 0, 0, 0)] * len(patterns)
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, pattern in enumerate(patterns):
        alike[pattern.access, pattern.words].append(number)
    for (access, words), numbers in alike.items():
        kind = KINDS[access]
        width = words * _WORD_BYTES
        if kind == "shared copy":
            for number in numbers:
                costs[number] = _copy(patterns[number], width)
        elif kind.startswith("shared"):
            direction: Access = "load" if kind == "shared load" else "store"
            offsets = np.array([patterns[number].offsets_bytes for number in numbers])
            passes, ideal = wavefronts_of_many(offsets, width, direction)
            for number, taken, least in zip(numbers, passes, ideal, strict=True):
                costs[number] = (1, int(taken), int(taken - least), 0)
        elif kind == "bulk load":
            for number in numbers:
                copies = [count for count in patterns[number].offsets_bytes if count >= 0]
                costs[number] = (len(copies), 0, 0, sum(copies))
        elif kind != "cluster load":
            for number in numbers:
                lanes = [None if o < 0 else o for o in patterns[number].offsets_bytes]
                costs[number] = (1, 0, 0, sectors(lanes, width))
    return costs


def _copy(pattern: Pattern, width_bytes: int) -> Cost:
    sources, targets = (
        [None if place < 0 else place for place in places]
        for places in (pattern.sources_bytes, pattern.offsets_bytes)
    )
    is_inside = [bool(pattern.inside >> lane & 1) for lane in range(LANES)]
    cost = copy_cost(sources, targets, width_bytes, is_inside)
    return 1, cost.wavefronts, cost.conflicts, 0
