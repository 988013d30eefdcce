"""What a config of the SGEMM kernel for a short side of C asks of memory, access by access.

Guards are left out: every block and chunk counts as a whole one, and rows of global memory as
starting where the first does.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.analysis.access import Access, Kind, Words, counted, total
from autotune.analysis.sgemm_skinny_work import Shape
from autotune.analysis.shared_memory import LANES
from autotune.problems.sgemm import Sgemm
from autotune.types import Config


def accesses(problem: Sgemm, config: Config) -> list[Access]:
    """Counts every access of a launch; see `sgemm_accesses.accesses`."""
    layout = _Layout(problem, Shape.of(problem, config))
    found = [
        layout.stream(),
        layout.fetch(),
        layout.store(),
        layout.load(),
        layout.sums("shared store"),
        layout.sums("shared load"),
    ]
    stores, loads = [layout.result("global store")], []
    if not problem.beta_zero:
        loads.append(layout.result("global load"))
    if layout.shape.split_k > 1:
        stores.append(layout.parts("global store"))
        loads.append(layout.parts("global load"))
        if layout.shape.is_last_mode:
            found.append(layout.arrivals())
    found += [total("c", accesses[0].kind, accesses) for accesses in (stores, loads) if accesses]
    return found


class _Layout:
    """Places of all lanes, in floats."""

    def __init__(self, problem: Sgemm, shape: Shape) -> None:
        self.problem = problem
        self.shape = shape
        self.x, self.y = ("b", "a") if shape.short_is_m else ("a", "b")
        self.blocks = -(-shape.long // shape.block_long) * problem.batch
        """that do not share a part of C"""
        self.chunks = -(-problem.k // shape.chunk)

    def stream(self) -> Access:
        """The streamed operand: each element once."""
        shape = self.shape
        words = [shape.vector_x * lane for lane in range(LANES)]
        requests = self.blocks * shape.warps_long * shape.strips * -(-self.problem.k // shape.span)
        return counted(self.x, "global load", shape.vector_x, [(words, requests)])

    def fetch(self) -> Access:
        """The short operand on its way to shared memory."""
        leading = self.problem.lda if self.y == "a" else self.problem.ldb
        count = self.blocks * self.chunks
        along_line, along_k = (leading, 1) if self.shape.y_along_k else (1, leading)
        places = [p and p[0] * along_line + p[1] * along_k for p in self.pieces()]
        return counted(self.y, "global load", self.shape.vector_y, self.requests(places, count))

    def store(self) -> Access:
        """The same into shared memory; after the last chunk zeros."""
        places = [p and p[0] * self.shape.pitch + p[1] for p in self.pieces()]
        count = self.blocks * (self.chunks + self.shape.split_k)
        return counted(self.y, "shared store", self.shape.vector_y, self.requests(places, count))

    def load(self) -> Access:
        """The same for multiplying: all lanes the same, or each its own steps of k."""
        shape = self.shape
        words = [shape.vector_x * lane * shape.x_along_k for lane in range(LANES)]
        steps = shape.chunk // (shape.span if shape.x_along_k else shape.vector_k)
        requests = self.blocks * self.chunks * shape.warps_long * shape.short * steps
        return counted(self.y, "shared load", shape.vector_k, [(words, requests)])

    def sums(self, kind: Kind) -> Access:
        """The sums of slices, written and read."""
        shape = self.shape
        blocks = self.blocks * shape.split_k
        # Whether a block is the last of a part of C is said by one thread to all.
        is_asked = shape.split_k > 1 and shape.is_last_mode
        if kind == "shared load":
            places = [column * shape.row_c + line for line, column in self.items()]
            requests = self.requests(places, blocks * shape.slices)
            requests += [([0] * LANES, blocks * shape.warps)] * is_asked
            return counted("c", kind, 1, requests)
        said = [counted("c", kind, 1, [([0], blocks)])] * is_asked
        return total("c", kind, [self.collected(blocks * shape.warps), *said])

    def collected(self, warps: int) -> Access:
        """What warps put together."""
        shape = self.shape
        if not shape.x_along_k:
            words = [shape.vector_x * lane for lane in range(LANES)]
            return counted(
                "c", "shared store", shape.vector_x, [(words, warps * shape.short * shape.strips)]
            )
        numbers, spare, before = [0] * LANES, 0, shape.sums
        for distance, left in zip((16, 8, 4, 2, 1), shape.halvings, strict=True):
            if left == before:
                spare += distance
            for lane in range(LANES):
                numbers[lane] += left * bool(lane & distance) * (left != before)
            before = left
        requests: list[tuple[Words, int]] = [
            (
                [
                    None if lane & spare else self.place(numbers[lane] + index)
                    for lane in range(LANES)
                ],
                warps,
            )
            for index in range(before)
        ]
        return counted("c", "shared store", 1, requests)

    def place(self, number: int) -> int:
        """Of a sum of a warp's rows."""
        row, line = divmod(number, self.shape.short)
        return line * self.shape.row_c + row

    def result(self, kind: Kind) -> Access:
        """C: neighbouring threads, neighbouring elements."""
        ldc = self.problem.ldc
        places = [
            column * ldc + line if self.shape.short_is_m else line * ldc + column
            for line, column in self.items()
        ]
        return counted("c", kind, 1, self.requests(places, self.blocks))

    def parts(self, kind: Kind) -> Access:
        """What blocks that split k leave for one another."""
        places = range(self.shape.short * self.shape.block_long)
        return counted("c", kind, 1, self.requests(places, self.blocks * self.shape.split_k))

    def arrivals(self) -> Access:
        """Of blocks, to find the last one."""
        return counted("c", "global add", 1, [([0], self.blocks * self.shape.split_k)])

    def pieces(self) -> list[tuple[int, int] | None]:
        """Line and step of each piece of the short operand, in the order of threads."""
        shape = self.shape
        steps = range(0, shape.chunk, shape.vector_y)
        if shape.y_along_k:
            return [(line, step) for line in range(shape.short) for step in steps]
        lines = range(shape.lines_y)
        return [(line, step) if line < shape.short else None for step in steps for line in lines]

    def items(self) -> list[tuple[int, int]]:
        """Place along the long and the short side of each element of C, in the order of threads."""
        long, short = range(self.shape.block_long), range(self.shape.short)
        if self.shape.short_is_m:
            return [(line, column) for column in short for line in long]
        return [(line, column) for line in long for column in short]

    @staticmethod
    def requests(places: Sequence[int | None], count: int) -> list[tuple[Words, int]]:
        """The accesses of warps of 32 threads each, each so many times."""
        return [(places[first : first + LANES], count) for first in range(0, len(places), LANES)]
