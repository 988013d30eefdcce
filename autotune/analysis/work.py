"""What a kernel asks of the device, in numbers that do not depend on the kernel's family."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One launch of blocks that all do the same: a main loop, and an edge around it.

    Attributes:
        blocks: Of the grid.
        threads: Per block.
        registers: Per thread.
        shared_bytes: Per block.
        iterations: Turns of the main loop.
        prefetch: Turns by which loads from global memory run ahead of their use.
        barriers: Per turn.
        fma: Fused multiply-adds per thread and turn.
        slots: Issue slots per warp and turn beside those of the fused multiply-adds.
        wavefronts: Passes through shared memory per warp and turn.
        load_bytes: Read from global memory per block and turn.
        edge_slots: Issue slots per warp before and after the loop.
        edge_bytes: Read and written by a block before and after the loop.
        dram_bytes: Fewest bytes of device memory traffic of the whole launch.
    """

    blocks: int
    threads: int
    registers: int
    shared_bytes: int
    iterations: int
    prefetch: int
    barriers: int
    fma: int
    slots: float
    wavefronts: float
    load_bytes: int
    edge_slots: float
    edge_bytes: int
    dram_bytes: int

    @property
    def warps(self) -> int:
        """Warps per block."""
        return -(-self.threads // 32)
