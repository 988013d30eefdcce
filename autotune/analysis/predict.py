"""A model of a kernel's time: ranks candidates where no GPU can, and before one does.

A block's turn of the main loop keeps four units of its SM busy: the issue slots, shared memory, the
tags of the L1 cache and the path to the L2 cache. Between, it waits: for the results of its own
instructions, for barriers, for global memory. Blocks that share an SM fill one another's waiting as
far as there are blocks to do so, which is a closed queue with one server. To that come what blocks
do before and after the loop, the SMs without work in the last wave, device memory, and the launch.

docs/model.md tells how the constants were found and how well they do on shapes held out from that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autotune.analysis import sgemm_work
from autotune.analysis.occupancy import occupancy
from autotune.analysis.waves import Waves, waves
from autotune.analysis.work import Work
from autotune.errors import InfeasibleError
from autotune.problems.sgemm import Sgemm
from autotune.types import Config, Device, Problem

_SCHEDULERS = 4
_WARP = 32
_LOAD_BYTES_PER_CYCLE = 32
"""From the L2 cache to one SM, while all of them read."""
_CLOSING_BYTES_PER_CYCLE = 64
"""The same while most others have ended."""
_STORE_BYTES_PER_CYCLE = 64
"""From one SM to the L2 cache, sectors that are written in part included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """What no data sheet tells; the values fit four shapes measured on an H200.

    Rates, sizes and clocks are the device's. These are properties of an SM's pipelines and of the
    compiler, taken to be alike on all architectures until one is measured that is not.

    Attributes:
        fma_efficiency: Share of its slots in which an FMA finds its operands; the rest of the time
            the register file's banks are in one another's way.
        overlap: Exponent of the norm that joins the times of units which work at once: 1 adds them,
            infinity takes the longest.
        memory_overlap: The same for waiting for memory beside computing, which meet less often.
        dependency: Slots that a warp alone on its scheduler loses to waiting for its own results,
            for each that it uses.
        barrier_cycles: Until all warps have met and the first operands are back.
        store_cycles: For each wavefront that puts a tile into shared memory between barriers.
        line_cycles: In which the L1 cache looks up one line of a request.
        memory_latency_ns: From a load to its data, with a cold L2 cache.
        spill_slots: For each register and turn that has to go to memory and back.
        launch_ns: From the launch to the first instruction, and from the last one to the end.
        relaunch_ns: From the last block of a launch to the first of the next. Assumed: no variant
            that the other constants were fitted on has more than one launch.
    """

    fma_efficiency: float = 0.945
    overlap: float = 2.75
    memory_overlap: float = 5.4
    dependency: float = 0.51
    barrier_cycles: float = 12.0
    store_cycles: float = 0.32
    line_cycles: float = 2.5
    memory_latency_ns: float = 405.0
    spill_slots: float = 5.5
    launch_ns: float = 3700.0
    relaunch_ns: float = 1500.0


FITTED = Constants()
FITTED_ON = ("512x512x512", "1024x1024x1024", "4096x4096x4096", "4096x4096x64")
"""Shapes that the constants were fitted on; every other one tells how well they do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A time and what it is made of.

    Attributes:
        time_ns: Predicted time of the plan.
        terms: In ns. As if each were alone and spread evenly over the SMs, so that they overlap:
            `issue` (issue slots), `shared` (wavefronts of shared memory), `l1` (lines of the main
            loop's loads), `l2` (their bytes) and `dram` (traffic of device memory).
            To the first four together come `tail` (SMs and schedulers without work), `latency`
            (waiting for results, barriers and memory), `edge` (before and after the main loop),
            `parts` (adding up what several blocks computed of a tile, and further launches) and
            `launch`.
        blocks_per_sm: Resident blocks that it assumes.
    """

    time_ns: float
    terms: Mapping[str, float]
    blocks_per_sm: int

    @property
    def limiter(self) -> str:
        """The largest of the terms."""
        return max(self.terms, key=lambda name: self.terms[name])


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


def ranking_ns(problem: Problem, config: Config, device: Device) -> float | None:
    """What configs that are not compiled are ranked by: the predicted time, infinity where not one
    block fits an SM; None for a kernel family that no model knows."""
    try:
        prediction = candidate(problem, config, device)
    except InfeasibleError:
        return math.inf
    return prediction.time_ns if prediction else None


def predict(work: Work, device: Device, constants: Constants = FITTED) -> Prediction:
    """Predicts the time of a plan.

    Raises:
        InfeasibleError: not one block fits an SM.
        ArchitectureError: a device of an architecture that is not known.
    """
    resident = occupancy(work.threads, work.registers, work.shared_bytes, device)
    if not resident.blocks:
        raise InfeasibleError(f"no block fits an SM: {resident.reason}")
    most = min(resident.blocks, work.resident or resident.blocks)
    grid = waves(work.blocks, device.sm_count, most, work.cluster)
    ns = 1e6 / device.sm_clock_khz
    turn = _Turn.of(work, device, constants)

    # An SM runs `count` waves of `blocks` blocks each: all it can hold, then what the last wave
    # leaves it.
    last = -(-grid.tail_blocks // device.sm_count)
    shares: tuple[tuple[float, int], ...] = ((grid.full, most), (1 if last else 0, last))
    if work.is_dealt:
        shares = ((work.blocks / grid.blocks_per_wave, most),)
    busy = latency = edge = 0.0
    for count, blocks in shares:
        if count:
            throughput = turn.throughput(blocks)
            busy += count * work.iterations * throughput
            latency += count * work.iterations * (turn.cycles(blocks) - throughput)
            edge += count * _edge(work, turn, blocks)
    # The same turns, spread evenly over the SMs.
    turns = work.blocks / device.sm_count * work.iterations

    dram_ns = _dram_bytes(work, device, grid.blocks_per_wave) / device.bandwidth_gbs
    # Blocks of one wave come to their edges together. Later ones drift apart, and each finds others
    # on its SM that are in their loops.
    apart = (1 - 1 / most) * (1 - 1 / grid.count)
    loops = busy + latency
    edge -= apart * (loops + edge - _together(constants.overlap, loops, edge))
    closing = _closing(work, turn, grid)
    on_sms_ns = (loops + edge + closing) * ns
    side_ns = work.side_launches * constants.relaunch_ns
    side_ns += max(
        work.side_bytes / (device.sm_count * _LOAD_BYTES_PER_CYCLE) * ns,
        _lost_bytes(work, device) / device.bandwidth_gbs,
    )
    time_ns = _together(constants.memory_overlap, on_sms_ns, dram_ns)
    time_ns += constants.launch_ns + side_ns
    units = (turn.issue * work.warps / _SCHEDULERS, turn.shared, turn.l1, turn.l2)
    issue, shared, l1, l2 = (turns * cycles * ns for cycles in units)
    return Prediction(
        time_ns=time_ns,
        terms={
            "issue": issue,
            "shared": shared,
            "l1": l1,
            "l2": l2,
            "dram": dram_ns,
            "latency": latency * ns,
            "edge": edge * ns,
            "tail": (busy - turns * _together(constants.overlap, *units)) * ns,
            "parts": closing * ns + side_ns,
            "launch": constants.launch_ns,
        },
        blocks_per_sm=most,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """Cycles of a turn of the main loop.

    Attributes:
        warps: Per block.
        issue: That one warp keeps its scheduler busy.
        shared, l1, l2: That one block keeps these units of its SM busy.
        stall: That a warp alone on its scheduler waits for its own results.
        fixed: That a block waits for barriers, and for a tile to be put into shared memory.
        memory: From a load to its data.
        prefetch: Of the work.
        dram_share: Bytes per cycle of device memory for each SM that has a block.
    """

    constants: Constants
    warps: int
    issue: float
    shared: float
    l1: float
    l2: float
    stall: float
    fixed: float
    memory: float
    prefetch: float
    dram_share: float

    @classmethod
    def of(cls, work: Work, device: Device, constants: Constants) -> _Turn:
        # On an SM with 64 lanes an FMA holds its pipe for two cycles, which leaves every second
        # issue slot to other instructions.
        pipe = _SCHEDULERS * _WARP / device.cores_per_sm
        fma = work.fma / constants.fma_efficiency
        slots = fma + work.slots + constants.spill_slots * work.spilled
        issue = max(fma * pipe, slots)
        warps = work.warps
        stores = constants.store_cycles * warps * work.store_wavefronts
        return cls(
            constants=constants,
            warps=warps,
            issue=issue,
            shared=warps * work.wavefronts,
            l1=constants.line_cycles * work.load_lines,
            l2=work.load_bytes / _LOAD_BYTES_PER_CYCLE,
            stall=max(0.0, (1 + constants.dependency) * slots - issue),
            fixed=constants.barrier_cycles * work.barriers + stores,
            memory=constants.memory_latency_ns * device.sm_clock_khz / 1e6,
            prefetch=work.prefetch,
            dram_share=device.bandwidth_gbs
            / min(work.blocks, device.sm_count)
            * (1e6 / device.sm_clock_khz),
        )

    def throughput(self, blocks: int) -> float:
        """Of so many resident blocks when nothing waits."""
        return _together(
            self.constants.overlap,
            # The busiest scheduler decides.
            -(-blocks * self.warps // _SCHEDULERS) * self.issue,
            blocks * self.shared,
            blocks * self.l1,
            blocks * self.l2,
        )

    def cycles(self, blocks: int) -> float:
        """Of so many resident blocks."""
        own = -(-self.warps // _SCHEDULERS) * self.issue
        # The warps of a block fill one another's stalls, blocks fill one another's waiting.
        multiplying = _shared(own, self.issue, self.stall)
        waiting = multiplying - own + self.fixed
        computing = _shared(self.throughput(blocks), self.throughput(1), waiting)
        # Loads that start late in the turn before wait for what was done before they started.
        ahead = max(1, math.ceil(self.prefetch))
        before = (ahead - self.prefetch) * multiplying
        arriving = (self.memory + self.fixed + before) / ahead
        return _together(self.constants.memory_overlap, computing, arriving)


def _edge(work: Work, turn: _Turn, blocks: int) -> float:
    """Cycles before and after the loop: the first tile's way, and the results'."""

    def throughput(blocks: int) -> float:
        warps = -(-blocks * work.warps // _SCHEDULERS)
        lines = turn.constants.line_cycles * work.edge_lines
        return _together(
            turn.constants.overlap,
            warps * work.edge_slots,
            blocks * (work.edge_bytes / _STORE_BYTES_PER_CYCLE + lines),
            # All SMs come to their edges at about the same time.
            blocks * work.edge_dram_bytes / turn.dram_share,
        )

    return _shared(throughput(blocks), throughput(1), turn.memory)


def _closing(work: Work, turn: _Turn, grid: Waves) -> float:
    """Cycles in which the last block of a tile reads what the others left of it."""
    parts = work.closing_parts
    if work.is_dealt:
        # Shares end within tiles, and with fewer tiles than blocks several lie in one.
        parts = 0.0 if not grid.tail_blocks else 1 + max(1.0, grid.blocks_per_wave / work.blocks)
    if not parts:
        return 0.0
    # Its own part has to arrive before it is counted, then the others' have to come.
    return 2 * turn.memory + parts * work.part_bytes / _CLOSING_BYTES_PER_CYCLE


def _dram_bytes(work: Work, device: Device, resident: int) -> float:
    """Traffic of device memory: what each wave of blocks reads, unless it still lies in L2."""
    tiles = work.tile_rows * work.tile_columns
    resident = min(resident, tiles)
    rows = min(work.group_rows, work.tile_rows)
    columns = -(-resident // rows)
    if columns > work.tile_columns:
        columns = work.tile_columns
        rows = -(-resident // columns)
    fewest = work.tile_rows * work.row_bytes + work.tile_columns * work.column_bytes
    every = tiles / resident * (rows * work.row_bytes + columns * work.column_bytes)
    missing = 1 - min(1, device.l2_bytes / max(1, fewest))
    # Parts that L2 does not keep are written out, and come back in this launch or the next.
    passes = 1 if work.side_launches else 2
    parts = passes * _lost_bytes(work, device)
    return work.dram_bytes + work.blocks / tiles * missing * max(0, every - fewest) + parts


def _lost_bytes(work: Work, device: Device) -> float:
    """Of the parts that blocks leave, those that do not stay in the L2 cache."""
    return max(0.0, work.left_bytes - device.l2_bytes)


def _together(exponent: float, *times: float) -> float:
    """Time of what overlaps imperfectly."""
    longest = max(times)
    if not longest:
        return 0.0
    # Relative to the longest, so that no power leaves the range of floats.
    return longest * math.pow(sum((time / longest) ** exponent for time in times), 1 / exponent)


def _shared(load: float, service: float, waiting: float) -> float:
    """Time in which each of `load / service` customers is served once by one server.

    Each waits elsewhere for `waiting` between its turns. This is Schweitzer's approximation of mean
    value analysis, solved: `service + waiting` for one customer, near `load` for many.
    """
    return (load + waiting + math.sqrt((load - waiting) ** 2 + 4 * service * waiting)) / 2
