"""Copies of what timed runs touch, elsewhere in memory.

Which pages a problem's data gets decides up to a tenth of a short kernel's time, and a process that
repeats a run repeats it there (docs/tuning.md). So each turn of a confirm round lies elsewhere, and
its interval says what another process may find.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autotune import verify
from autotune.errors import DriverError
from autotune.gpu import Context, Values
from autotune.types import Problem, Workspace
from autotune.verify import ALLOCATION_BYTES, Placement

PAGE_BYTES = 2 * 2**20
"""Of device memory: an allocation of more gets pages that are its own."""
_SHARE = 0.25
"""Of the memory that is free: what all places together may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where an operand of the timed data lies, with its guards."""

    address: int
    placement: Placement


class Places:
    """Places of a problem's timed data, each in pages of its own and from a drawn address on.

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
        self._operands: dict[str, int] = {}
        self._workspaces: dict[tuple[str, bool], int] = {}
        sizes: dict[tuple[str, bool], int] = {}
        for each in workspaces:
            key = each.name, each.is_zeroed
            sizes[key] = max(sizes.get(key, 0), each.size_bytes + verify.GUARD_BYTES)
        end = 0
        for name, source in sources.items():
            self._operands[name] = end + source.placement.offset_bytes
            end += source.placement.total_bytes
        for key, size_bytes in sizes.items():
            self._workspaces[key] = end
            end += -(-size_bytes // ALLOCATION_BYTES) * ALLOCATION_BYTES

        self._allocations: list[int] = []
        self._starts: list[int] = []
        draw = random.Random(seed)
        free_bytes, _ = context.memory()
        room = int(_SHARE * free_bytes) // (end + PAGE_BYTES)
        for _ in range(min(count, room)):
            try:
                address = context.allocate(end + PAGE_BYTES)
            except DriverError as error:
                if not error.is_out_of_memory:
                    raise
                break  # another program was faster
            self._allocations.append(address)
            start = address + draw.randrange(0, PAGE_BYTES, ALLOCATION_BYTES)
            self._starts.append(start)
            for name, source in sources.items():
                target = start + self._operands[name] - source.placement.offset_bytes
                context.copy(target, source.address, source.placement.total_bytes)
            for (name, is_zeroed), size_bytes in sizes.items():
                if is_zeroed:
                    context.fill_bytes(start + self._workspaces[name, is_zeroed], 0, size_bytes)

    def __len__(self) -> int:
        return len(self._starts)

    def values(self, place: int, workspaces: Iterable[Workspace]) -> Values:
        """What a kernel's arguments are bound to in a place, with its plan's workspaces."""
        start = self._starts[place]
        values: dict[str, int | float] = dict(self._problem.scalars)
        for each in workspaces:
            values[each.name] = start + self._workspaces[each.name, each.is_zeroed]
        for name, offset in self._operands.items():
            values[name] = start + offset
        return values

    def close(self) -> None:
        """Waits for what runs, and frees the memory."""
        self._context.synchronize()
        while self._allocations:
            self._context.free(self._allocations.pop())
