"""What a config of the SGEMM kernel asks of the device.

Counted from the parameters of search_spaces/sgemm.toml; names and formulas are the ones there.
Guards are left out.
"""

from __future__ import annotations

from functools import lru_cache

from autotune.analysis.shared_memory import LANES, wavefronts
from autotune.analysis.waves import tiles
from autotune.analysis.work import Work
from autotune.problems.sgemm import FLOAT_BYTES, Sgemm
from autotune.types import Config

_LOOP_SLOTS = 12
"""Pointers, counter, branch and barrier of one turn of the main loop."""
_ADDRESS_SLOTS = 4
"""Address arithmetic of one piece that is copied; compilers need 1 to 7."""
_REGISTERS_PER_SM = 65536
_REGISTERS_PER_THREAD = 255


def work(problem: Sgemm, config: Config, registers: int | None = None) -> Work:
    """Counts the work of a config.

    Args:
        config: A point of the space that its constraints admit for `problem`.
        registers: Per thread, from the binary; estimated while there is none.
    """
    block_m, block_n, block_k = (_number(config, f"block_{axis}") for axis in "mnk")
    thread_m, thread_n = _number(config, "thread_m"), _number(config, "thread_n")
    lanes_m, stages = _number(config, "lanes_m"), _number(config, "stages")
    vector_a, vector_b = _number(config, "vector_a"), _number(config, "vector_b")
    row_a = block_m + _number(config, "pad_a")
    row_b = block_n + _number(config, "pad_b")
    threads = LANES * (block_m // (lanes_m * thread_m)) * (block_n // (LANES // lanes_m * thread_n))
    warps = threads // LANES

    slots: float = _LOOP_SLOTS
    passes: float = 0
    # Fragments: each thread, each k.
    is_contiguous = config["fragment_split"] == "contiguous"
    for axis, size in (("m", thread_m), ("n", thread_n)):
        width = _fragment(size)
        loads = block_k * size // width
        stride = size if is_contiguous else width
        slots += loads * _load_slots(width)
        passes += loads * _fragment_wavefronts(
            axis, str(config["lane_map"]), lanes_m, stride, width
        )
    # Copies: the block shares the pieces of each tile.
    staged = 0
    for operand, rows, row, vector, is_k_contiguous in (
        ("a", block_m, row_a, vector_a, problem.layout[0] == "n"),
        ("b", block_n, row_b, vector_b, problem.layout[1] == "t"),
    ):
        floats = rows * block_k
        per_thread = -(-floats // (threads * vector))
        staged += per_thread * vector
        stores = vector if is_k_contiguous else 1
        slots += per_thread * (1 + stores + _ADDRESS_SLOTS)
        if is_k_contiguous:
            is_swizzled = operand == "a" and config["swizzle_a"] == "xor"
            cost = stores * _transposing_wavefronts(row, vector, block_k // vector, is_swizzled)
        else:
            cost = _copying_wavefronts(row, vector, rows // vector)
        passes += floats / (LANES * vector) * cost / warps

    results = thread_m * thread_n
    accesses = results // _number(config, "vector_c")
    if registers is None:
        registers = _registers(config, results, thread_m + thread_n, staged, threads)
    return Work(
        blocks=tiles((problem.m, problem.n), (block_m, block_n)) * problem.batch,
        threads=threads,
        registers=registers,
        shared_bytes=FLOAT_BYTES * stages * block_k * (row_a + row_b),
        iterations=-(-problem.k // block_k),
        # Registers hold the next tile while this one is multiplied, with one stage too.
        prefetch=1,
        barriers=1 if stages > 1 else 2,
        fma=results * block_k,
        slots=slots,
        wavefronts=passes,
        load_bytes=FLOAT_BYTES * block_k * (block_m + block_n),
        # Scaling by alpha, and C written once or also read and scaled.
        edge_slots=(results + accesses) * (1 if problem.beta_zero else 2),
        edge_bytes=FLOAT_BYTES * block_m * block_n * (1 if problem.beta_zero else 2),
        dram_bytes=problem.bytes_min,
    )


def _number(config: Config, name: str) -> int:
    return int(config[name])


def _fragment(size: int) -> int:
    """Floats in one load of a fragment."""
    return 4 if size % 4 == 0 else 2 if size % 2 == 0 else 1


def _load_slots(width: int) -> float:
    # Measured on an H200: a 16-byte load takes about three slots from the FMAs around it, because
    # writing its registers competes with their operands.
    return 1 + width / 2


def _registers(config: Config, results: int, fragments: int, staged: int, threads: int) -> int:
    needed = results + _number(config, "register_buffers") * fragments + staged + 24
    # Launch bounds make the compiler stay below this, by spilling if need be.
    bound = _REGISTERS_PER_SM // (threads * _number(config, "min_blocks")) // 8 * 8
    return min(needed, bound, _REGISTERS_PER_THREAD)


def lane(lane_map: str, lanes_m: int, index: int) -> tuple[int, int]:
    """Row and column of a lane in its warp: `row`, `column`, `zorder` or `interleaved`."""
    lanes_n = LANES // lanes_m
    # A warp of a single row or column has one order only.
    if lanes_n == 1:
        return index, 0
    if lanes_m == 1:
        return 0, index
    if lane_map == "row":
        return index // lanes_n, index % lanes_n
    if lane_map == "column":
        return index % lanes_m, index // lanes_m
    if lane_map == "zorder":
        return index // 2 % lanes_m, index % 2 + 2 * (index // (2 * lanes_m))
    return 2 * (index // (2 * lanes_n)) + index % 2, index % (2 * lanes_n) // 2


# One pattern stands for all accesses of its kind: moving every lane by the same distance, or
# exchanging the banks by one XOR, changes no count.


@lru_cache(maxsize=4096)
def _fragment_wavefronts(axis: str, lane_map: str, lanes_m: int, stride: int, width: int) -> int:
    """Loading one fragment; lanes next to each other along the axis lie `stride` floats apart."""
    places = [lane(lane_map, lanes_m, index)["mn".index(axis)] for index in range(LANES)]
    return _cost([stride * place for place in places], width, is_load=True)


@lru_cache(maxsize=4096)
def _transposing_wavefronts(row: int, vector: int, pieces: int, is_swizzled: bool) -> int:
    """Storing one float of each lane's piece, where pieces lie along k and rows of the tile too."""
    # XOR with a different multiple of 32 / pieces for each piece puts them in different banks.
    step = LANES // pieces if is_swizzled else 0
    words = []
    for index in range(LANES):
        line, piece = divmod(index, pieces)
        words.append(vector * piece * row + (line ^ (step * piece)))
    return _cost(words, 1, is_load=False)


@lru_cache(maxsize=4096)
def _copying_wavefronts(row: int, vector: int, pieces: int) -> int:
    """Storing one piece a lane, where pieces lie along the tile's rows."""
    words = [index // pieces * row + index % pieces * vector for index in range(LANES)]
    return _cost(words, vector, is_load=False)


def _cost(words: list[int], width: int, *, is_load: bool) -> int:
    offsets = [FLOAT_BYTES * word for word in words]
    return wavefronts(offsets, FLOAT_BYTES * width, "load" if is_load else "store").wavefronts
