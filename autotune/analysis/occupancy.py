"""How many blocks an SM holds at a time, what limits that, and what one more would need.

The count is the one of `cuOccupancyMaxActiveBlocksPerMultiprocessor` for a kernel that may use all
shared memory of a block and states no carve-out: the driver then gives shared memory as much of the
L1 cache as the blocks need, so the largest carve-out counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from autotune import archs
from autotune.archs import Architecture
from autotune.errors import UsageError
from autotune.types import Device

Limiter = Literal["threads", "registers", "shared memory", "blocks"]

_THREAD_REGISTERS = 8
"""A warp's registers come in units of 256, so a thread's in units of 8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """What of a kernel is resident on one SM.

    Attributes:
        blocks: Resident blocks; 0 when not even one fits.
        warps: Resident warps.
        fraction: `warps` of the warps that an SM can hold, 0 to 1.
        limited_by: Every limit that stands in the way of one more block.
        next_step: What one more block would take, for people; empty when nothing is to be gained.
        reason: Why no block fits; empty when one does.
    """

    blocks: int
    warps: int
    fraction: float
    limited_by: tuple[Limiter, ...]
    next_step: str
    reason: str


@lru_cache(4096)
def occupancy(
    threads: int, registers: int, shared_bytes: int, limits: Architecture | Device
) -> Occupancy:
    """Occupancy of a kernel.

    Args:
        threads: Per block, at least 1.
        registers: Per thread, as the compiler reports them, at least 1.
        shared_bytes: Per block, static and dynamic together.
        limits: The architecture, or a device, whose own limits then count.

    Raises:
        UsageError: a count that no kernel has.
        ArchitectureError: a device of an architecture whose allocation units are not known.
    """
    if threads < 1 or registers < 1 or shared_bytes < 0:
        raise UsageError(
            f"{threads} threads, {registers} registers and {shared_bytes} bytes of shared memory "
            "describe no kernel: at least 1, 1 and 0 are needed"
        )
    sm = limits if isinstance(limits, Architecture) else _limits_of(limits)
    warps = -(-threads // sm.warp_size)
    most: dict[Limiter, int] = {
        "threads": _blocks_by_threads(threads, sm),
        "registers": _blocks_by_registers(registers, warps, sm),
        "shared memory": _blocks_by_shared_memory(shared_bytes, sm),
        "blocks": sm.blocks_per_sm,
    }
    blocks = min(most.values())
    limited_by = tuple(limiter for limiter, count in most.items() if count == blocks)
    is_full = blocks * warps == sm.warps_per_sm
    return Occupancy(
        blocks=blocks,
        warps=blocks * warps,
        fraction=blocks * warps / sm.warps_per_sm,
        limited_by=limited_by,
        next_step="" if is_full else _next_step(blocks + 1, warps, limited_by, sm),
        reason="" if blocks else _reason(threads, registers, shared_bytes, limited_by, sm),
    )


@lru_cache
def _limits_of(device: Device) -> Architecture:
    return replace(
        archs.get(device.arch),
        shared_bytes_per_sm=device.shared_bytes_per_sm,
        shared_bytes_per_block_optin=device.shared_bytes_per_block_optin,
        threads_per_sm=device.threads_per_sm,
        blocks_per_sm=device.blocks_per_sm,
        registers_per_sm=device.registers_per_sm,
        threads_per_block=device.threads_per_block,
    )


def _blocks_by_threads(threads: int, sm: Architecture) -> int:
    if threads > sm.threads_per_block:
        return 0
    return sm.warps_per_sm // -(-threads // sm.warp_size)


def _blocks_by_registers(registers: int, warps: int, sm: Architecture) -> int:
    per_warp = _up(registers * sm.warp_size, sm.register_unit)
    # A launch is refused by a count that rounds the block's warps up to all partitions of the SM.
    if (
        registers > sm.registers_per_thread
        or per_warp * _up(warps, sm.warp_unit) > sm.registers_per_block
    ):
        return 0
    # Each partition of the SM has its own registers: what is left over in one serves no other.
    warps_per_partition = sm.registers_per_sm // sm.warp_unit // per_warp
    return warps_per_partition * sm.warp_unit // warps


def _blocks_by_shared_memory(shared_bytes: int, sm: Architecture) -> int:
    if shared_bytes > sm.shared_bytes_per_block_optin:
        return 0
    taken = _up(shared_bytes + sm.shared_reserved_bytes_per_block, sm.shared_unit_bytes)
    return sm.shared_bytes_per_sm // taken if taken else sm.blocks_per_sm


def _next_step(blocks: int, warps: int, limited_by: tuple[Limiter, ...], sm: Architecture) -> str:
    """What would give that many blocks; every limit in the way has to give way."""
    if "blocks" in limited_by:
        return f"an SM holds at most {sm.blocks_per_sm} blocks: only more threads per block help"
    needs = []
    for limiter in limited_by:
        if limiter == "threads":
            most = min(sm.warps_per_sm // blocks * sm.warp_size, sm.threads_per_block)
            name = "threads"
        elif limiter == "registers":
            # Counted down in the unit in which they are allocated.
            most = min(sm.registers_per_thread, sm.registers_per_sm // sm.warp_size)
            while most > 0 and _blocks_by_registers(most, warps, sm) < blocks:
                most = (most - 1) // _THREAD_REGISTERS * _THREAD_REGISTERS
            name = "registers"
        else:
            share = sm.shared_bytes_per_sm // blocks // sm.shared_unit_bytes * sm.shared_unit_bytes
            most = min(share - sm.shared_reserved_bytes_per_block, sm.shared_bytes_per_block_optin)
            name = "shared bytes"
        if most <= 0:
            return f"no number of {name} gives {_blocks(blocks)} of {warps} warps"
        needs.append(f"{name} <= {most}")
    return f"{' and '.join(needs)} would give {_blocks(blocks)}"


def _reason(
    threads: int,
    registers: int,
    shared_bytes: int,
    limited_by: tuple[Limiter, ...],
    sm: Architecture,
) -> str:
    faults = []
    if "threads" in limited_by:
        faults.append(f"a block of {threads} threads, sm_{sm.number} allows {sm.threads_per_block}")
    if "registers" in limited_by:
        if registers > sm.registers_per_thread:
            faults.append(
                f"{registers} registers per thread, sm_{sm.number} allows {sm.registers_per_thread}"
            )
        else:
            faults.append(
                f"{registers} registers x {threads} threads, allocated as "
                f"{_allocated_registers(registers, threads, sm)}, "
                f"sm_{sm.number} allows {sm.registers_per_block} per block"
            )
    if "shared memory" in limited_by:
        faults.append(
            f"{shared_bytes} bytes of shared memory per block, sm_{sm.number} allows "
            f"{sm.shared_bytes_per_block_optin}"
        )
    return "; ".join(faults)


def _allocated_registers(registers: int, threads: int, sm: Architecture) -> int:
    warps = _up(-(-threads // sm.warp_size), sm.warp_unit)
    return _up(registers * sm.warp_size, sm.register_unit) * warps


def _up(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count} blocks"
