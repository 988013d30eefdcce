"""How evenly a grid fills a device: blocks run in waves, and the last one may be half empty."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Waves:
    """A grid on a device.

    Attributes:
        blocks: Blocks of the grid.
        blocks_per_wave: Blocks that the device holds at a time.
    """

    blocks: int
    blocks_per_wave: int

    @property
    def full(self) -> int:
        """Waves that fill the device."""
        return self.blocks // self.blocks_per_wave

    @property
    def tail_blocks(self) -> int:
        """Blocks of the last wave where it does not fill the device, else 0."""
        return self.blocks % self.blocks_per_wave

    @property
    def tail_fraction(self) -> float:
        """How much of the device the last, partial wave fills, 0 to 1; 0 when there is none."""
        return self.tail_blocks / self.blocks_per_wave

    @property
    def count(self) -> int:
        """Waves, the partial one included."""
        return -(-self.blocks // self.blocks_per_wave)

    @property
    def efficiency(self) -> float:
        """Share of the device's block slots that have work while the grid runs, above 0 to 1."""
        return self.blocks / (self.count * self.blocks_per_wave)

    def recovered(self, blocks: int) -> float:
        """Share of the time that the same work, cut into another number of blocks, would save.

        Negative when it would take longer. Split-K by s has `blocks * s`; what splitting itself
        costs is not counted.
        """
        other = waves(blocks, 1, self.blocks_per_wave)
        return 1 - self.efficiency / other.efficiency


CLUSTER_SHARES = {1: 1.0, 2: 1.0, 3: 0.9, 4: 0.92, 5: 0.86, 6: 0.85, 7: 0.83, 8: 0.92}
"""Of the blocks that a device holds, those that it holds in clusters of so many: a cluster lies in
one part of the device, which is no multiple of every size. Seen on an H200, whose driver counts
within 6 % of it for one to four blocks an SM (benchmarks/clusters.py)."""


def waves(blocks: int, sm_count: int, blocks_per_sm: int, cluster: int = 1) -> Waves:
    """The waves of a grid.

    Args:
        blocks: Of the grid, at least 1.
        sm_count: SMs of the device, at least 1.
        blocks_per_sm: Blocks that an SM holds (`occupancy`), at least 1.
        cluster: Blocks of a cluster, 1 to 8, which the device holds together or not at all.

    Raises:
        UsageError: a count below 1.
    """
    if min(blocks, sm_count, blocks_per_sm) < 1:
        raise UsageError(
            f"{blocks} blocks on {sm_count} SMs with {blocks_per_sm} blocks each: every count must "
            "be at least 1"
        )
    clusters = int(CLUSTER_SHARES[cluster] * sm_count * blocks_per_sm / cluster)
    return Waves(blocks=blocks, blocks_per_wave=max(1, clusters) * cluster)


def tiles(sizes: tuple[int, ...], tile: tuple[int, ...]) -> int:
    """Tiles that cover a matrix, partial ones included: `tiles((m, n), (block_m, block_n))`."""
    count = 1
    for size, step in zip(sizes, tile, strict=True):
        count *= -(-size // step)
    return count
