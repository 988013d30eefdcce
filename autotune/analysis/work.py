"""What a plan asks of the device, in numbers that do not depend on the kernel's family."""

from __future__ import annotations

from dataclasses import dataclass

_PARTITIONS = 4
_LANES = 32
_REGISTERS_PER_SM = 65536
_REGISTERS_PER_THREAD = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One launch of blocks that all do the same: a main loop, and an edge around it.

    A turn of the main loop multiplies one tile that lies in shared memory, and then puts the next
    one there, which has been on its way from global memory meanwhile.

    Attributes:
        blocks: Of the grid.
        threads: Per block.
        registers: Per thread.
        spilled: Registers per thread that the compiler cannot keep, so that they go to memory and
            back in each turn.
        shared_bytes: Per block.
        iterations: Turns of the main loop.
        prefetch: Turns by which loads from global memory run ahead of their use: 1 where they
            start with the turn before, 0.5 where they start in its middle, 0 where nothing is
            done meanwhile.
        barriers: Per turn.
        fma: Fused multiply-adds per thread and turn.
        slots: Issue slots per warp and turn beside those of the fused multiply-adds.
        wavefronts: Passes through shared memory per warp and turn.
        store_wavefronts: Those of them that put the next tile there: nobody multiplies meanwhile.
        load_bytes: Read from global memory per block and turn.
        load_lines: Lines of 128 bytes that the requests of a block touch in a turn, each request
            for itself.
        edge_slots: Issue slots per warp before and after the loop.
        edge_bytes: Read and written by a block before and after the loop, in whole sectors of 32
            bytes, each request for itself.
        edge_lines: As `load_lines`, before and after the loop.
        edge_dram_bytes: Fewest bytes of device memory traffic of a block before and after the loop.
        dram_bytes: Fewest bytes of device memory traffic of the whole launch.
        tile_rows, tile_columns: Of a matrix of tiles, one block each; `blocks` is a multiple.
        group_rows: Rows of tiles that are walked together, column by column.
        row_bytes, column_bytes: Of the operands that a row and a column of tiles share.
        resident: Blocks on an SM where the grid is made to fit the device; 0: as many as fit.
        is_dealt: Such blocks share the turns of all tiles out evenly, so that they end together.
        cluster: Blocks that the device holds together or not at all.
        asking: Threads per block that only ask for copies.
        parts: Blocks that multiply for the same tile, each of which leaves a part of its sums;
            where turns are dealt, it follows from the device.
        part_bytes: Of such a part; 0 where there are none.
        closing_parts: Parts that a block reads when all of its tile are there; 0 where another
            launch does.
        left_bytes: Of all parts that blocks leave in memory.
        side_launches: Launches before and after the main one, which only move memory.
        side_bytes: That they move; parts that blocks left are among them.
    """

    blocks: int
    threads: int
    registers: int
    spilled: int
    shared_bytes: int
    iterations: int
    prefetch: float
    barriers: int
    fma: int
    slots: float
    wavefronts: float
    store_wavefronts: float
    load_bytes: int
    load_lines: float
    edge_slots: float
    edge_bytes: float
    edge_lines: float
    edge_dram_bytes: int
    dram_bytes: int
    tile_rows: int
    tile_columns: int
    group_rows: int
    row_bytes: int
    column_bytes: int
    resident: int = 0
    is_dealt: bool = False
    cluster: int = 1
    asking: int = 0
    parts: int = 1
    part_bytes: int = 0
    closing_parts: float = 0.0
    left_bytes: int = 0
    side_launches: int = 0
    side_bytes: float = 0.0

    @property
    def warps(self) -> int:
        """Warps per block that compute."""
        return -(-(self.threads - self.asking) // 32)


def register_bound(warps: int) -> int:
    """Registers per thread that launch bounds leave where so many warps must fit an SM."""
    per_partition = -(-warps // _PARTITIONS)
    most = _REGISTERS_PER_SM // _PARTITIONS // (per_partition * _LANES) // 8 * 8
    return min(most, _REGISTERS_PER_THREAD)
