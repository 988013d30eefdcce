"""What a config of the SGEMM kernel for a short side of C asks of the device.

Counted from the parameters of search_spaces/sgemm.toml that are of this method alone; names and
formulas are the ones there. A turn of the main loop is what a warp does with the loads that it has
on their way: it multiplies them, and starts the next ones as registers become free.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.analysis.global_memory import SECTOR_BYTES
from autotune.analysis.shared_memory import LANES, wavefronts
from autotune.analysis.work import Work, register_bound
from autotune.problems.sgemm import FLOAT_BYTES, Sgemm
from autotune.types import Config

_LOOP_SLOTS = 4
"""Pointer, counter and branch of one turn."""
_LOAD_SLOTS = 4
"""Address, bound and predicate of one load of the streamed operand."""
_CHUNK_SLOTS = 14
"""Barrier, counters and addresses of one chunk, and the branches around it."""
_COPY_SLOTS = 5
"""Address, bound and predicate of one piece of the short operand."""
_REDUCE_SLOTS = 4
"""Of two values that lanes exchange: two choices, the exchange, the sum."""
_RESULT_SLOTS = 8
"""Place, address and scaling of one element of C."""
_OTHER_REGISTERS = 44
"""Addresses, counters, and what the compiler loads early; the median of 110 binaries."""
_LINE_BYTES = 128
_NUMBERS = ("vector_x", "strips", "ahead", "warps_long", "slices", "chunk", "split_k")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The derived values of the space, for one problem and config."""

    short: int
    long: int
    short_is_m: bool
    x_along_k: bool
    y_along_k: bool
    vector_x: int
    vector_y: int
    strips: int
    ahead: int
    warps_long: int
    slices: int
    chunk: int
    split_k: int
    is_last_mode: bool

    @classmethod
    def of(cls, problem: Sgemm, config: Config) -> Shape:
        short_is_m = problem.m <= problem.n
        names = problem.variables
        along_k = (bool(names["a_k_contiguous"]), bool(names["b_k_contiguous"]))
        y_along_k, x_along_k = along_k if short_is_m else along_k[::-1]
        limit = names["vector_limit_a" if short_is_m else "vector_limit_b"]
        return cls(
            short=min(problem.m, problem.n),
            long=max(problem.m, problem.n),
            short_is_m=short_is_m,
            x_along_k=x_along_k,
            y_along_k=y_along_k,
            vector_y=int(limit) if y_along_k else 1,
            is_last_mode=config["split_k_mode"] == "last",
            **{name: int(config[name]) for name in _NUMBERS},
        )

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return self.warps_long * self.slices

    @property
    def span(self) -> int:
        """Steps of k in one load of a warp."""
        return LANES * self.vector_x if self.x_along_k else 1

    @property
    def strip(self) -> int:
        """Lines along the long side in one load of a warp."""
        return 1 if self.x_along_k else LANES * self.vector_x

    @property
    def warp_long(self) -> int:
        """Lines along the long side of a warp."""
        return self.strips * self.strip

    @property
    def block_long(self) -> int:
        """Lines along the long side of a block."""
        return self.warps_long * self.warp_long

    @property
    def group(self) -> int:
        """Steps of k of a warp's turn."""
        return self.ahead * self.span

    @property
    def vector_k(self) -> int:
        """Floats in one load of the short operand from shared memory."""
        return self.vector_x if self.x_along_k else min(self.ahead, 4)

    @property
    def pitch(self) -> int:
        """Floats from one line of the short operand in shared memory to the next."""
        return self.chunk if self.y_along_k else self.chunk + 4

    @property
    def row_c(self) -> int:
        """Floats from one line of sums in shared memory to the next."""
        return self.block_long if self.short_is_m else self.block_long + 4

    @property
    def lines_y(self) -> int:
        """Lines of the short operand that threads are dealt to."""
        return self.short if self.y_along_k else 1 << (self.short - 1).bit_length()

    @property
    def passes_y(self) -> int:
        """Loads of the short operand that a thread makes for a chunk."""
        return -(-self.lines_y * self.chunk // (LANES * self.warps * self.vector_y))

    @property
    def sums(self) -> int:
        """Sums of a thread."""
        return self.short * self.strips * (1 if self.x_along_k else self.vector_x)

    @property
    def halvings(self) -> list[int]:
        """How many sums a lane has after each exchange with another one, 16 to 1 lanes apart; they
        are shared out while their number is even."""
        left, counts = self.sums, []
        for _ in range(5):
            left = left // 2 if left % 2 == 0 else left
            counts.append(left)
        return counts


def work(problem: Sgemm, config: Config, registers: int | None = None) -> Work:
    """Counts the work of a config; see `sgemm_work.work`."""
    shape = Shape.of(problem, config)
    warps, vector = shape.warps, shape.vector_x
    split = shape.split_k
    chunks = -(-problem.k // shape.chunk)
    turns = shape.chunk // (shape.slices * shape.group)
    loads = shape.ahead * shape.strips
    reads = shape.short * shape.ahead * (1 if shape.x_along_k else 1 / shape.vector_k)
    offsets = [FLOAT_BYTES * vector * lane * shape.x_along_k for lane in range(LANES)]
    width = FLOAT_BYTES * shape.vector_k
    # Zeros where a load lies outside take a slot for two registers.
    slots = reads + loads * (1 + _LOAD_SLOTS + -(-vector // 2)) + _LOOP_SLOTS
    slots += (shape.passes_y * (2 + _COPY_SLOTS) + _CHUNK_SLOTS) / turns

    block_bytes = FLOAT_BYTES * problem.k * shape.block_long // split
    short_bytes = FLOAT_BYTES * problem.k * shape.short // split
    turn_steps = shape.slices * shape.group
    items = shape.short * shape.block_long
    # C written once, or also read; a part of split k is written once and read once.
    passes = 2 if split > 1 else 1 if problem.beta_zero else 2
    edge_slots = items / (LANES * warps) * (_RESULT_SLOTS + shape.slices) * passes
    edge_slots += shape.sums / (1 if shape.x_along_k else vector)
    if shape.x_along_k:
        edge_slots += _REDUCE_SLOTS * sum(shape.halvings)
    needed = shape.sums + loads * vector + shape.passes_y * shape.vector_y + _OTHER_REGISTERS
    bound = register_bound(warps * int(config["min_blocks"]))
    tiles = -(-shape.long // shape.block_long)
    return Work(
        blocks=tiles * problem.batch * split,
        threads=LANES * warps,
        registers=min(needed, bound) if registers is None else registers,
        spilled=max(0, needed - bound) if registers is None or registers >= bound else 0,
        shared_bytes=FLOAT_BYTES * shape.short * max(2 * shape.pitch, shape.slices * shape.row_c),
        iterations=-(-chunks // split) * turns,
        # A turn's loads start as the turn before ends.
        prefetch=0,
        barriers=0,
        fma=shape.sums * shape.ahead * (vector if shape.x_along_k else 1),
        slots=slots,
        wavefronts=reads * wavefronts(offsets, width, "load").wavefronts,
        store_wavefronts=0,
        load_bytes=FLOAT_BYTES * turn_steps * (shape.block_long + shape.short),
        load_lines=FLOAT_BYTES * turn_steps * (shape.block_long + shape.short) / _LINE_BYTES,
        edge_slots=edge_slots,
        edge_bytes=FLOAT_BYTES * items * passes,
        edge_lines=FLOAT_BYTES * items * passes / SECTOR_BYTES,
        edge_dram_bytes=FLOAT_BYTES * items * passes,
        dram_bytes=problem.bytes_min,
        tile_rows=1 if shape.short_is_m else tiles,
        tile_columns=tiles if shape.short_is_m else 1,
        group_rows=1,
        row_bytes=short_bytes if shape.short_is_m else block_bytes,
        column_bytes=block_bytes if shape.short_is_m else short_bytes,
        side_launches=1 if split > 1 and not shape.is_last_mode else 0,
    )
