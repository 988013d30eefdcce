"""Copies of what timed runs touch, elsewhere in memory.

Which pages a problem's data gets decides up to a tenth of a short kernel's time, and a process that
repeats a run repeats it there (docs/tuning.md). So each turn of a confirm round lies elsewhere, and
its interval covers most of what another process may find. But only where a program's data is
likely to lie: a large matrix has an allocation of its own (in PyTorch from 10 MB on, says its
`c10/cuda/CUDACachingAllocator.cpp`), which is taken to begin with a page.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autotune import verify
from autotune.errors import DriverError
from autotune.gpu import Context, Values
from autotune.types import Problem, Workspace
from autotune.verify import ALLOCATION_BYTES, Placement

PAGE_BYTES = 2 * 2**20
"""Of device memory: what takes more, with its guards, starts at a page; the rest anywhere."""
_SHARE = 0.25
"""Of the memory that is free: what all places together may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where an operand of the timed data lies, with its guards."""

    address: int
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Bytes that lie together, of which `lead_bytes` come before what is placed."""

    lead_bytes: int
    total_bytes: int


class Places:
    """Places of a problem's timed data, everything in pages of its own, and where an allocator
    would put it: large operands at the start of a page, small ones at a drawn address.

    Args:
        sources: What is copied, by name of the operand.
        workspaces: Of all plans that will run here.
        count: As many as are wanted; where memory is short there are fewer, or none.
    """

    def __init__(
        self,
        context: Context,
        problem: Problem,
        sources: Mapping[str, Source],
        workspaces: Iterable[Workspace],
        count: int,
        seed: int,
    ) -> None:
        self._context = context
        self._problem = problem
        self._sources = sources
        sizes: dict[tuple[str, bool], int] = {}
        for each in workspaces:
            key = each.name, each.is_zeroed
            sizes[key] = max(sizes.get(key, 0), each.size_bytes + verify.GUARD_BYTES)
        blocks = [
            Block(lead_bytes=verify.GUARD_BYTES, total_bytes=source.placement.total_bytes)
            for source in sources.values()
        ]
        blocks += [Block(lead_bytes=0, total_bytes=size) for size in sizes.values()]

        self._allocations: list[int] = []
        self._operands: list[dict[str, int]] = []
        self._workspaces: list[dict[tuple[str, bool], int]] = []
        draw = random.Random(seed)
        free_bytes, _ = context.memory()
        room_bytes = int(_SHARE * free_bytes)
        for _ in range(count):
            starts, size_bytes = layout(blocks, draw)
            room_bytes -= size_bytes + PAGE_BYTES
            if room_bytes < 0:
                break
            try:
                allocation = context.allocate(size_bytes + PAGE_BYTES)
            except DriverError as error:
                if not error.is_out_of_memory:
                    raise
                break  # another program was faster
            self._allocations.append(allocation)
            base = -(-allocation // PAGE_BYTES) * PAGE_BYTES
            addresses = [base + start for start in starts]
            operands = dict(zip(sources, addresses[: len(sources)], strict=True))
            placed = dict(zip(sizes, addresses[len(sources) :], strict=True))
            for name, source in sources.items():
                context.copy(operands[name], source.address, source.placement.total_bytes)
            for (name, is_zeroed), size in sizes.items():
                if is_zeroed:
                    context.fill_bytes(placed[name, is_zeroed], 0, size)
            self._operands.append(operands)
            self._workspaces.append(placed)

    def __len__(self) -> int:
        return len(self._operands)

    def values(self, place: int, workspaces: Iterable[Workspace]) -> Values:
        """What a kernel's arguments are bound to in a place, with its plan's workspaces."""
        values: dict[str, int | float] = dict(self._problem.scalars)
        for each in workspaces:
            values[each.name] = self._workspaces[place][each.name, each.is_zeroed]
        for name, source in self._sources.items():
            values[name] = self._operands[place][name] + source.placement.offset_bytes
        return values

    def close(self) -> None:
        """Waits for what runs, and frees the memory."""
        self._context.synchronize()
        while self._allocations:
            self._context.free(self._allocations.pop())


def layout(blocks: Sequence[Block], draw: random.Random) -> tuple[list[int], int]:
    """Where blocks start, from the start of a page on, and where the last one ends, in bytes.

    No page serves two of them. What is larger than a page begins, after its lead, with one; what is
    not begins anywhere in one that an allocator may give.
    """
    starts, end = [], 0
    for block in blocks:
        page = -(-(end + block.lead_bytes) // PAGE_BYTES) * PAGE_BYTES
        is_large = block.total_bytes > PAGE_BYTES
        into = 0 if is_large else draw.randrange(0, PAGE_BYTES, ALLOCATION_BYTES)
        starts.append(page + into - block.lead_bytes)
        end = starts[-1] + block.total_bytes
    return starts, end
