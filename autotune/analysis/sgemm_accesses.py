"""What a config of the SGEMM kernel asks of shared and of global memory, access by access.

Counted from the layout that search_spaces/sgemm.toml describes. Guards are left out: every tile
counts as a whole one, and rows of global memory as starting where the first does. What cp.async
brings counts as the load and the store that it is; bulk copies are no accesses of warps. The
emulator counts the accesses of the rendered source instead, where it can run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autotune.analysis import sgemm_skinny_accesses
from autotune.analysis.access import KINDS, Access, Kind, total
from autotune.analysis.global_memory import sectors
from autotune.analysis.sgemm_work import STRIP_PAD, lane, line_place
from autotune.analysis.shared_memory import LANES, wavefronts
from autotune.analysis.waves import tiles
from autotune.problems.sgemm import FLOAT_BYTES, Sgemm
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
    return tuple(sorted(found, key=lambda access: (KINDS.index(access.kind), access.operand)))


def _tiled(problem: Sgemm, config: Config) -> list[Access]:
    layout = _Layout(problem, config)
    found = []
    for operand in ("a", "b"):
        way = config[f"copy_{operand}"]
        if way == "direct":
            found.append(layout.direct(operand))
            continue
        found.append(layout.load(operand))
        if way != "bulk":
            found += [layout.store(operand), layout.fetch(operand)]
    if layout.slices > 1:
        found += [layout.hand_over("shared store"), layout.hand_over("shared load")]
    found += layout.results()
    keys = dict.fromkeys((access.operand, access.kind) for access in found)
    return [
        total(*key, [each for each in found if (each.operand, each.kind) == key]) for key in keys
    ]


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
            width = _fragment(size)
            loads = block_k * (size // width)
            words = [self.stride(axis) * place["mn".index(axis)] for place in self.places()]
        cost = wavefronts(_bytes(words), FLOAT_BYTES * width, "load")
        # Slices share the k of a tile out.
        requests = self.turns * self.warps * loads
        return Access(
            operand=operand,
            kind="shared load",
            width_bytes=FLOAT_BYTES * width,
            requests=requests,
            wavefronts=requests * cost.wavefronts,
            conflicts=requests * cost.conflicts,
        )

    def store(self, operand: str) -> Access:
        """Pieces of a tile on their way in: scattered along k, or as they lie."""
        rows, vector, pieces, along_k = self.tile(operand)
        row = rows + self.number(f"pad_{operand}")
        is_swizzled = operand == "a" and self.config["swizzle_a"] == "xor"
        whole_lines = operand == "a" and self.whole_lines
        is_transposing = along_k and not whole_lines
        width = 1 if is_transposing else vector
        counted = []
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
                counted.append(wavefronts(_bytes(words), FLOAT_BYTES * width, "store"))
        return Access(
            operand=operand,
            kind="shared store",
            width_bytes=FLOAT_BYTES * width,
            requests=self.turns * len(counted),
            wavefronts=self.turns * sum(cost.wavefronts for cost in counted),
            conflicts=self.turns * sum(cost.conflicts for cost in counted),
        )

    def fetch(self, operand: str) -> Access:
        """The same pieces as they come from global memory."""
        _, vector, pieces, _ = self.tile(operand)
        leading = self.problem.lda if operand == "a" else self.problem.ldb
        counted = [
            sectors(
                _bytes(index // pieces * leading + index % pieces * vector for index in request),
                FLOAT_BYTES * vector,
            )
            for request in self.requests(operand)
        ]
        return Access(
            operand=operand,
            kind="global load",
            width_bytes=FLOAT_BYTES * vector,
            requests=self.turns * len(counted),
            sectors=self.turns * sum(counted),
        )

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
        if split_k > 1 and mode in ("workspace", "last"):
            found += [self.parts("global store"), self.parts("global load")]
        if split_k > 1 and mode == "last":
            found += self.arrivals()
        if split_k > 1 and mode == "cluster":
            found += [self.parts("shared store"), self.parts("cluster load")]
        return found

    def parts(self, kind: Kind) -> Access:
        """The parts of all tiles, every thread's vectors beside those of its neighbours."""
        thread_m, thread_n = self.number("thread_m"), self.number("thread_n")
        width = _fragment(thread_n)
        words = _bytes(range(0, LANES * width, width))
        requests = self.blocks * self.number("split_k") * self.warps * thread_m * thread_n // width
        is_shared = kind == "shared store"
        return Access(
            operand="c",
            kind=kind,
            width_bytes=FLOAT_BYTES * width,
            requests=requests,
            wavefronts=requests * wavefronts(words, FLOAT_BYTES * width, "store").wavefronts
            if is_shared
            else 0,
            sectors=requests * sectors(words, FLOAT_BYTES * width)
            if kind.startswith("global")
            else 0,
        )

    def arrivals(self) -> list[Access]:
        """One thread of a block counts it, and tells the others whether it was the last."""
        blocks = self.blocks * self.number("split_k")
        told = blocks * self.warps
        return [
            Access(operand="c", kind="global add", width_bytes=4, requests=blocks, sectors=blocks),
            Access(
                operand="c", kind="shared store", width_bytes=4, requests=blocks, wavefronts=blocks
            ),
            Access(operand="c", kind="shared load", width_bytes=4, requests=told, wavefronts=told),
        ]

    def strips(self, kind: Kind) -> Access:
        """A row of each thread on its way through shared memory."""
        thread_m, thread_n = self.number("thread_m"), self.number("thread_n")
        row = self.number("block_n") + STRIP_PAD
        if kind == "shared store":
            width, count = _fragment(thread_n), thread_n // _fragment(thread_n)
            words = [line * row + self.stride("n") * column for line, column in self.places()]
        else:
            width, count = self.number("vector_c"), thread_n // self.number("vector_c")
            pieces = self.number("block_n") // width
            words = [index // pieces * row + index % pieces * width for index in range(LANES)]
        cost = wavefronts(
            _bytes(words), FLOAT_BYTES * width, "store" if kind == "shared store" else "load"
        )
        requests = self.blocks * self.warps * thread_m * max(1, count)
        return Access(
            operand="c",
            kind=kind,
            width_bytes=FLOAT_BYTES * width,
            requests=requests,
            wavefronts=requests * cost.wavefronts,
            conflicts=requests * cost.conflicts,
        )

    def lines(self, kind: Kind) -> Access:
        """C in whole lines, by lanes side by side."""
        vector = self.number("vector_c")
        floats = self.blocks * self.number("block_m") * self.number("block_n")
        requests = floats // (LANES * vector)
        return Access(
            operand="c",
            kind=kind,
            width_bytes=FLOAT_BYTES * vector,
            requests=requests,
            sectors=requests * FLOAT_BYTES * vector,
        )

    def result(self, kind: Kind) -> Access:
        """C: each thread's rows, vector by vector."""
        vector, thread_n = self.number("vector_c"), self.number("thread_n")
        words = [
            self.stride("m") * row * self.problem.ldc + self.stride("n") * column
            for row, column in self.places()
        ]
        requests = self.blocks * self.warps * self.number("thread_m") * (thread_n // vector)
        return Access(
            operand="c",
            kind=kind,
            width_bytes=FLOAT_BYTES * vector,
            requests=requests,
            sectors=requests * sectors(_bytes(words), FLOAT_BYTES * vector),
        )

    def direct(self, operand: str) -> Access:
        """Each thread's own rows or columns from global memory, float by float."""
        axis = "m" if operand == "a" else "n"
        size = self.number(f"thread_{axis}")
        leading = self.problem.lda if operand == "a" else self.problem.ldb
        step = leading if self.tile(operand)[3] else 1
        words = [self.stride(axis) * place["mn".index(axis)] * step for place in self.places()]
        requests = self.blocks * self.problem.k * self.warps * size
        return Access(
            operand=operand,
            kind="global load",
            width_bytes=FLOAT_BYTES,
            requests=requests,
            sectors=requests * sectors(_bytes(words), FLOAT_BYTES),
        )

    def hand_over(self, kind: Kind) -> Access:
        """Sums of all slices but the first, from lane to lane of the first."""
        thread_m, thread_n = self.number("thread_m"), self.number("thread_n")
        width = _fragment(thread_n)
        cost = wavefronts(
            _bytes(range(0, LANES * width, width)),
            FLOAT_BYTES * width,
            "load" if kind == "shared load" else "store",
        )
        requests = self.blocks * self.warps * (self.slices - 1) * thread_m * thread_n // width
        return Access(
            operand="c",
            kind=kind,
            width_bytes=FLOAT_BYTES * width,
            requests=requests,
            wavefronts=requests * cost.wavefronts,
            conflicts=requests * cost.conflicts,
        )

    def stride(self, axis: str) -> int:
        """Rows or columns from one lane to the next."""
        size = self.number(f"thread_{axis}")
        if self.config["fragment_split"] == "contiguous":
            return size
        return 1 if axis == "m" and self.whole_lines else _fragment(size)

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


def _fragment(size: int) -> int:
    """Floats in one load of a fragment."""
    return 4 if size % 4 == 0 else 2 if size % 2 == 0 else 1


def _bytes(words: Iterable[int]) -> Sequence[int]:
    return [FLOAT_BYTES * word for word in words]
