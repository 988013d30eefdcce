"""What a config of the SGEMM kernel asks of shared and of global memory, access by access.

Counted from the layout that search_spaces/sgemm.toml describes. Guards are left out: every tile
counts as a whole one, and rows of global memory as starting where the first does. What cp.async
brings counts as a load and as a copy; bulk copies are no accesses of warps. The
emulator counts the accesses of the rendered source instead, where it can run.
"""

from __future__ import annotations

from autotune.analysis import sgemm_rest, sgemm_skinny_accesses
from autotune.analysis.access import KINDS, Access, Kind, copied, counted, total
from autotune.analysis.sgemm_work import STRIP_PAD, fragment, lane, line_place, parts_left
from autotune.analysis.shared_memory import LANES
from autotune.analysis.waves import tiles
from autotune.problems.sgemm import Sgemm
from autotune.types import Config


def accesses(problem: Sgemm, config: Config) -> tuple[Access, ...]:
    """Counts every access of a launch.

    Args:
        config: A point of the space that its constraints admit for `problem`.
    """
    found = (
        sgemm_skinny_accesses.accesses(problem, config)
        if config.get("method") == "skinny"
        else _tiled(problem, config)
    )
    keys = {(KINDS.index(access.kind), access.operand) for access in found}
    return tuple(
        total(
            operand,
            KINDS[kind],
            [each for each in found if (each.operand, each.kind) == (operand, KINDS[kind])],
        )
        for kind, operand in sorted(keys)
    )


def _tiled(problem: Sgemm, config: Config) -> list[Access]:
    if sgemm_rest.lines(problem, config):
        of_tiles = _tiled(sgemm_rest.tiled(problem, config), config.but(rest="tiles"))
        return of_tiles + sgemm_rest.accesses(problem, config)
    layout = _Layout(problem, config)
    found = []
    for operand in ("a", "b"):
        way = config[f"copy_{operand}"]
        if way == "direct":
            found.append(layout.direct(operand))
            continue
        found.append(layout.load(operand))
        if way != "bulk":
            brought = layout.copy if way == "async" else layout.store
            found += [brought(operand), layout.fetch(operand)]
    if layout.slices > 1:
        found += [layout.hand_over("shared store"), layout.hand_over("shared load")]
    return found + layout.results()


class _Layout:
    """Places of all lanes, in floats."""

    def __init__(self, problem: Sgemm, config: Config) -> None:
        self.problem = problem
        self.config = config
        lanes_m = self.number("lanes_m")
        self.lanes = {"m": lanes_m, "n": LANES // lanes_m}
        self.warps = (self.number("block_m") // (lanes_m * self.number("thread_m"))) * (
            self.number("block_n") // (self.lanes["n"] * self.number("thread_n"))
        )
        block = (self.number("block_m"), self.number("block_n"))
        self.blocks = tiles((problem.m, problem.n), block) * problem.batch
        self.turns = self.blocks * -(-problem.k // self.number("block_k"))
        self.slices = self.number("k_slices")
        self.whole_lines = config["a_layout"] == "mxk"

    def number(self, name: str) -> int:
        return int(self.config[name])

    def load(self, operand: str) -> Access:
        """Fragments: each thread, each k."""
        axis = "m" if operand == "a" else "n"
        size, block_k = self.number(f"thread_{axis}"), self.number("block_k")
        if operand == "a" and self.whole_lines:
            # Four k of a row at a time; a thread's rows come one by one.
            width, loads = 4, size * block_k // 4
            words = [line_place(row, 0, block_k) for row, _ in self.places()]
        else:
            width = fragment(size)
            loads = block_k * (size // width)
            words = [self.stride(axis) * place["mn".index(axis)] for place in self.places()]
        # Slices share the k of a tile out.
        return counted(operand, "shared load", width, [(words, self.turns * self.warps * loads)])

    def store(self, operand: str) -> Access:
        """Pieces of a tile on their way in."""
        width, requests = self.targets(operand)
        return counted(operand, "shared store", width, [(words, self.turns) for words in requests])

    def copy(self, operand: str) -> Access:
        """The same where cp.async brings them, whose sources cost as well."""
        width, requests = self.targets(operand)
        copies = zip(self.sources(operand), requests, strict=True)
        return copied(operand, width, [(*places, self.turns) for places in copies])

    def targets(self, operand: str) -> tuple[int, list[list[int]]]:
        """Words of an access, and where each puts its pieces: scattered along k, or as they lie."""
        rows, vector, pieces, along_k = self.tile(operand)
        row = rows + self.number(f"pad_{operand}")
        is_swizzled = operand == "a" and self.config["swizzle_a"] == "xor"
        whole_lines = operand == "a" and self.whole_lines
        is_transposing = along_k and not whole_lines
        made = []
        for request in self.requests(operand):
            for element in range(vector if is_transposing else 1):
                words = []
                for index in request:
                    line, piece = divmod(index, pieces)
                    if whole_lines:
                        words.append(line_place(line, piece, self.number("block_k")))
                    elif along_k:
                        step = LANES // pieces * piece if is_swizzled else 0
                        words.append((vector * piece + element) * row + (line ^ step))
                    else:
                        words.append(line * row + piece * vector)
                made.append(words)
        return (1 if is_transposing else vector), made

    def fetch(self, operand: str) -> Access:
        """The same pieces as they come from global memory."""
        made = [(words, self.turns) for words in self.sources(operand)]
        return counted(operand, "global load", self.tile(operand)[1], made)

    def sources(self, operand: str) -> list[list[int]]:
        """Where each access finds its pieces."""
        _, vector, pieces, _ = self.tile(operand)
        leading = self.problem.lda if operand == "a" else self.problem.ldb
        return [
            [index // pieces * leading + index % pieces * vector for index in request]
            for request in self.requests(operand)
        ]

    def results(self) -> list[Access]:
        """All that becomes of the sums. What the shares of a `stream` cut depends on the device and
        is left out: every tile counts as one that a block computes in whole."""
        split_k, mode = self.number("split_k"), self.config["split_k_mode"]
        reading: list[Kind] = [] if self.problem.beta_zero else ["global load"]
        if self.config["epilogue"] == "shared":
            found = [self.strips("shared store"), self.strips("shared load")]
            found += [self.lines(kind) for kind in ("global store", *reading)]
        elif split_k > 1 and mode == "atomic":
            added = self.result("global add")
            found = [total("c", "global add", [added] * split_k)]
            found += [self.lines(kind) for kind in ("global store", *reading)]
        else:
            found = [self.result(kind) for kind in ("global store", *reading)]
        if split_k == 1 or mode == "atomic":
            return found
        if mode == "cluster":
            found += [self.parts("shared store", split_k), self.parts("cluster load", split_k)]
        if (left := parts_left(self.config)) > 1:
            found += [self.parts("global store", left), self.parts("global load", left)]
            if mode != "workspace":
                found += self.arrivals()
        return found

    def parts(self, kind: Kind, count: int) -> Access:
        """So many parts of each tile, every thread's vectors beside those of its neighbours."""
        thread_m, thread_n = self.number("thread_m"), self.number("thread_n")
        width = fragment(thread_n)
        requests = self.blocks * count * self.warps * thread_m * thread_n // width
        return counted("c", kind, width, [(_neighbours(width), requests)])

    def arrivals(self) -> list[Access]:
        """One thread of a block counts it, and tells the others whether it was the last."""
        blocks = self.blocks * self.number("split_k")
        told = blocks * self.warps
        return [
            counted("c", "global add", 1, [([0], blocks)]),
            counted("c", "shared store", 1, [([0], blocks)]),
            counted("c", "shared load", 1, [([0] * LANES, told)]),
        ]

    def strips(self, kind: Kind) -> Access:
        """A row of each thread on its way through shared memory."""
        thread_m, thread_n = self.number("thread_m"), self.number("thread_n")
        row = self.number("block_n") + STRIP_PAD
        if kind == "shared store":
            width, count = fragment(thread_n), thread_n // fragment(thread_n)
            words = [line * row + self.stride("n") * column for line, column in self.places()]
        else:
            width, count = self.number("vector_c"), thread_n // self.number("vector_c")
            pieces = self.number("block_n") // width
            words = [index // pieces * row + index % pieces * width for index in range(LANES)]
        requests = self.blocks * self.warps * thread_m * max(1, count)
        return counted("c", kind, width, [(words, requests)])

    def lines(self, kind: Kind) -> Access:
        """C in whole lines, by lanes side by side."""
        vector = self.number("vector_c")
        floats = self.blocks * self.number("block_m") * self.number("block_n")
        return counted("c", kind, vector, [(_neighbours(vector), floats // (LANES * vector))])

    def result(self, kind: Kind) -> Access:
        """C: each thread's rows, vector by vector."""
        vector, thread_n = self.number("vector_c"), self.number("thread_n")
        words = [
            self.stride("m") * row * self.problem.ldc + self.stride("n") * column
            for row, column in self.places()
        ]
        requests = self.blocks * self.warps * self.number("thread_m") * (thread_n // vector)
        return counted("c", kind, vector, [(words, requests)])

    def direct(self, operand: str) -> Access:
        """Each thread's own rows or columns from global memory, float by float."""
        axis = "m" if operand == "a" else "n"
        size = self.number(f"thread_{axis}")
        leading = self.problem.lda if operand == "a" else self.problem.ldb
        step = leading if self.tile(operand)[3] else 1
        words = [self.stride(axis) * place["mn".index(axis)] * step for place in self.places()]
        requests = self.blocks * self.problem.k * self.warps * size
        return counted(operand, "global load", 1, [(words, requests)])

    def hand_over(self, kind: Kind) -> Access:
        """Sums of all slices but the first, from lane to lane of the first."""
        thread_m, thread_n = self.number("thread_m"), self.number("thread_n")
        width = fragment(thread_n)
        requests = self.blocks * self.warps * (self.slices - 1) * thread_m * thread_n // width
        return counted("c", kind, width, [(_neighbours(width), requests)])

    def stride(self, axis: str) -> int:
        """Rows or columns from one lane to the next."""
        size = self.number(f"thread_{axis}")
        if self.config["fragment_split"] == "contiguous":
            return size
        return 1 if axis == "m" and self.whole_lines else fragment(size)

    def places(self) -> list[tuple[int, int]]:
        """Row and column of every lane in its warp."""
        lane_map = str(self.config["lane_map"])
        return [lane(lane_map, self.lanes["m"], index) for index in range(LANES)]

    def tile(self, operand: str) -> tuple[int, int, int, bool]:
        """Rows of a tile, floats in a piece, pieces in a line; whether lines run along k."""
        along_k = self.problem.layout[0] == "n" if operand == "a" else self.problem.layout[1] == "t"
        rows = self.number("block_m" if operand == "a" else "block_n")
        vector = self.number(f"vector_{operand}")
        return rows, vector, (self.number("block_k") if along_k else rows) // vector, along_k

    def requests(self, operand: str) -> list[range]:
        """The pieces that each warp access of a tile copies."""
        rows, vector, _, _ = self.tile(operand)
        count = rows * self.number("block_k") // vector
        return [range(first, min(first + LANES, count)) for first in range(0, count, LANES)]


def _neighbours(width: int) -> list[int]:
    """Lanes side by side."""
    return [width * lane for lane in range(LANES)]
