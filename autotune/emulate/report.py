"""What the emulator found: faults with their place, and accesses counted by source line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from autotune.analysis.access import Kind


class FaultKind(StrEnum):
    """What can be wrong with a kernel."""

    write_after_write = "write_after_write"
    """two threads wrote one word of shared memory with no barrier between"""
    read_after_write = "read_after_write"
    """a thread read what another, earlier in the program, wrote with no barrier between"""
    write_after_read = "write_after_read"
    """a thread overwrote what another, earlier in the program, reads with no barrier between"""
    unwritten_shared = "unwritten_shared"
    """shared memory was read that the block had not written"""
    out_of_bounds_shared = "out_of_bounds_shared"
    """an access beyond the shared memory of the launch"""
    out_of_bounds_global = "out_of_bounds_global"
    """an access outside every operand, or between the rows of one"""
    misaligned = "misaligned"
    """an address that is no multiple of the width of the access"""
    read_in_flight = "read_in_flight"
    """shared memory was read while a copy to it was on its way: before the wait that promises it"""
    write_in_flight = "write_in_flight"
    """memory was written that a copy on its way writes or reads"""
    never_awaited = "never_awaited"
    """a copy was started and nobody waited for it"""
    unfenced_copy = "unfenced_copy"
    """the copy engine overwrote what a thread had accessed and not fenced off by `fence_async`"""
    uninitialised_barrier = "uninitialised_barrier"
    """an mbarrier was used by who could not know that it was initialised"""
    barrier_misuse = "barrier_misuse"
    """an mbarrier was accessed as data, initialised wrongly, or had more arrivals than it is for"""
    divergent_barrier = "divergent_barrier"
    """some threads of the block wait where others do not"""
    deadlock = "deadlock"
    """threads wait for what no thread and no copy can bring any more"""
    divergent_registers = "divergent_registers"
    """registers moved by a number that is not allowed, or not by all threads of a warp group"""
    remote_ended = "remote_ended"
    """shared memory was read of a block of the cluster that may have ended"""
    forbidden_read = "forbidden_read"
    """an operand was read that must not be: C when beta is 0, A and B when alpha is 0"""
    forbidden_write = "forbidden_write"
    """an operand was written that is only an input"""
    written_twice = "written_twice"
    """two threads of the grid wrote one element of the output"""
    unwritten_workspace = "unwritten_workspace"
    """a part of a result was read, or added to, that no block had written"""
    unsynchronised_read = "unsynchronised_read"
    """a block read what another wrote in the same launch, without the arrivals that show it"""
    mixed_atomic = "mixed_atomic"
    """an element was accessed both atomically and otherwise in one launch"""
    crash = "crash"
    """the kernel accessed memory other than through a primitive, or divided by zero"""
    hang = "hang"
    """the kernel did not end in the time that it was given"""
    not_written = "not_written"
    """an element of the output was left as it was"""
    not_zeroed = "not_zeroed"
    """a workspace that every run must leave zero was left otherwise"""
    wrong_result = "wrong_result"
    """an element of the output is not the exact result"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault and where it happened.

    Attributes:
        line: Of `Variant.source`, from 1; 0 where no line can be named (`crash`, `hang`,
            `not_written`).
        block: Linear number of the block, x fastest; -1 where none can be named.
        thread: Linear number of the thread in its block; -1 where none can be named.
        address: Operand and element, with row and column, or bytes from the start of shared
            memory; empty where there is none.
        message: The fault in a sentence, with line, block, thread and address.
    """

    kind: FaultKind
    line: int
    block: int
    thread: int
    address: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessCount:
    """What one source line asks of memory, over the whole grid.

    Attributes:
        line: Of `Variant.source`, from 1.
        text: That line.
        kind: A copy by cp.async counts as a global load and as a shared copy. A cluster load goes
            to another SM: it is no traffic of this one's banks.
        width_bytes: Bytes per lane: 4, 8 or 16; of a bulk load those of its box.
        requests: Accesses of warps in which a lane took part; of a bulk load the copies.
        wavefronts: Passes through shared memory; 0 for global memory, cluster and bulk loads.
        conflicts: Wavefronts lost to bank conflicts.
        sectors: 32-byte sectors of global memory; 0 for shared memory.
    """

    line: int
    text: str
    kind: Kind
    width_bytes: int
    requests: int
    wavefronts: int = 0
    conflicts: int = 0
    sectors: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TileClass:
    """Blocks that compute equally large parts of the output: counts of one stand for all.

    Attributes:
        rows, columns: Of the part.
        blocks: That the grid has of this class.
        blocks_run: Of these, how many were run.
        is_uniform: Whether all that were run counted the same; otherwise their mean stands for
            the class.
    """

    rows: int
    columns: int
    blocks: int
    blocks_run: int
    is_uniform: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome of a run.

    Attributes:
        faults: Empty for a right kernel; a kernel is stopped after the first few.
        accesses: By line; of the whole grid for blocks "all" and "sample", of the blocks that
            were run where they were named. Empty after a fault.
        classes: How sampled counts were extended to the grid; empty unless they were.
        shared_bytes: Shared memory of a block.
        seconds: Time taken, compiling included.
        blocks_run, blocks_total: Blocks, over all launches.
    """

    faults: tuple[Fault, ...]
    accesses: tuple[AccessCount, ...]
    classes: tuple[TileClass, ...]
    shared_bytes: int
    seconds: float
    blocks_run: int
    blocks_total: int

    @property
    def verdict(self) -> Literal["ok", "fault"]:
        """`ok` when nothing was wrong with the blocks that were run."""
        return "fault" if self.faults else "ok"

    def total(self, kind: Kind) -> AccessCount:
        """The sum over all lines of one kind; its line and width are 0."""
        chosen = [access for access in self.accesses if access.kind == kind]
        return AccessCount(
            line=0,
            text="",
            kind=kind,
            width_bytes=0,
            requests=sum(access.requests for access in chosen),
            wavefronts=sum(access.wavefronts for access in chosen),
            conflicts=sum(access.conflicts for access in chosen),
            sectors=sum(access.sectors for access in chosen),
        )
