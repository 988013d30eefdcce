"""A first, simple model of a kernel's time, to rank candidates where no GPU can.

A block's turn of the main loop keeps three units of its SM busy: the issue slots, shared memory,
and the path to the L2 cache. They overlap, imperfectly. To that come what waiting costs where too
few warps are resident to hide it, the blocks' beginning and end, the SMs without work in the last
wave, and the launch. Which order of instructions the compiler finds, spilled registers and the
reuse of the L2 cache are not modelled.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autotune.analysis import sgemm_work
from autotune.analysis.occupancy import occupancy
from autotune.analysis.waves import waves
from autotune.analysis.work import Work
from autotune.errors import InfeasibleError
from autotune.problems.sgemm import Sgemm
from autotune.types import Config, Device, Problem

_SCHEDULERS = 4
_WARP = 32
_L2_BYTES_PER_CYCLE_AND_SM = 32
_MEMORY_LATENCY_CYCLES = 600
_BARRIER_CYCLES = 40
"""Until all warps have met and the first operands are back from shared memory."""
_FMA_EFFICIENCY = 0.93
"""Of the issue slots, where operands have to be fetched."""
_OVERLAP = 3
"""Exponent of the norm that joins overlapping times: 1 adds them, infinity takes the longest."""
_LAUNCH_NS = 2500.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A time and what it is made of.

    Attributes:
        time_ns: Predicted time of the launch.
        terms: In ns. `issue`, `shared`, `l2` and `dram` as if each were alone and spread evenly
            over the SMs; they overlap. To the first three together come `tail`, `latency` (waiting
            for barriers and memory), `edge` (before and after the main loop) and `launch`.
        blocks_per_sm: Resident blocks that it assumes.
    """

    time_ns: float
    terms: Mapping[str, float]
    blocks_per_sm: int


def candidate(
    problem: Problem, config: Config, device: Device, registers: int | None = None
) -> Prediction | None:
    """Predicts the time of a config; None for a kernel family that no model knows.

    Args:
        config: A point of the space that its constraints admit for `problem`.
        device: For example `archs.get(75).typical`.
        registers: Per thread, from the binary; estimated while there is none.

    Raises:
        InfeasibleError: not one block fits an SM.
    """
    if isinstance(problem, Sgemm):
        return predict(sgemm_work.work(problem, config, registers), device)
    return None


def predict(work: Work, device: Device) -> Prediction:
    """Predicts the time of a launch.

    Raises:
        InfeasibleError: not one block fits an SM.
        ArchitectureError: a device of an architecture that is not known.
    """
    resident = occupancy(work.threads, work.registers, work.shared_bytes, device)
    if not resident.blocks:
        raise InfeasibleError(f"no block fits an SM: {resident.reason}")
    grid = waves(work.blocks, device.sm_count, resident.blocks)
    ns = 1e6 / device.sm_clock_khz

    # An SM runs `count` waves of `blocks` blocks each: all it can hold, then what the last wave
    # leaves it.
    units = _units(work, device)
    last = -(-grid.tail_blocks // device.sm_count)
    busy = latency = edge = 0.0
    for count, blocks in ((grid.full, resident.blocks), (1 if last else 0, last)):
        if count:
            busy += count * work.iterations * _throughput(work, units, blocks)
            latency += count * work.iterations * _waiting(work, units, blocks)
            edge += count * _edge(work, blocks)
    # The same turns, spread evenly over the SMs.
    turns = work.blocks / device.sm_count * work.iterations
    issue, shared, l2 = (turns * cycles for cycles in units)

    dram_ns = work.dram_bytes / device.bandwidth_gbs
    time_ns = max((busy + latency + edge) * ns, dram_ns) + _LAUNCH_NS
    return Prediction(
        time_ns=time_ns,
        terms={
            "issue": issue * ns,
            "shared": shared * ns,
            "l2": l2 * ns,
            "dram": dram_ns,
            "latency": latency * ns,
            "edge": edge * ns,
            "tail": (busy - turns * _together(units)) * ns,
            "launch": _LAUNCH_NS,
        },
        blocks_per_sm=resident.blocks,
    )


def _units(work: Work, device: Device) -> tuple[float, float, float]:
    """Cycles that one block's turn keeps an SM's issue slots, shared memory and L2 path busy."""
    warps = work.warps
    # On an SM with 64 lanes an FMA holds its pipe for two cycles, which leaves every second issue
    # slot to other instructions.
    pipe = _SCHEDULERS * _WARP / device.cores_per_sm
    fma = work.fma / _FMA_EFFICIENCY
    return (
        warps / _SCHEDULERS * max(fma * pipe, fma + work.slots),
        warps * work.wavefronts,
        work.load_bytes / _L2_BYTES_PER_CYCLE_AND_SM,
    )


def _together(units: Iterable[float]) -> float:
    """Cycles that units take which overlap imperfectly."""
    return math.pow(sum(unit**_OVERLAP for unit in units), 1 / _OVERLAP)


def _throughput(work: Work, units: tuple[float, float, float], blocks: int) -> float:
    """Cycles of one turn of so many resident blocks when nothing waits."""
    issue, shared, l2 = (blocks * unit for unit in units)
    # The busiest scheduler decides.
    warps = blocks * work.warps
    return _together((issue * -(-warps // _SCHEDULERS) * _SCHEDULERS / warps, shared, l2))


def _waiting(work: Work, units: tuple[float, float, float], blocks: int) -> float:
    """Cycles that waiting adds to one turn of so many resident blocks."""
    throughput = _throughput(work, units, blocks)
    barrier = work.barriers * _BARRIER_CYCLES
    # The warps of a block wait together, for a barrier and for loads that do not run ahead; the
    # other blocks go on meanwhile.
    alone = _throughput(work, units, 1) + barrier
    if work.prefetch:
        memory = _MEMORY_LATENCY_CYCLES / work.prefetch
    else:
        memory = alone + _MEMORY_LATENCY_CYCLES
    return max(throughput + barrier / blocks, alone, memory) - throughput


def _edge(work: Work, blocks: int) -> float:
    """Cycles before and after the loop: the first tile's way, and the results'."""
    warps = blocks * work.warps
    moved = blocks * work.edge_bytes / _L2_BYTES_PER_CYCLE_AND_SM
    return _MEMORY_LATENCY_CYCLES + max(moved, warps * work.edge_slots / _SCHEDULERS)
