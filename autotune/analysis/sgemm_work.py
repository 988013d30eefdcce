"""What a config of the SGEMM kernel asks of the device.

Counted from the parameters of search_spaces/sgemm.toml; names and formulas are the ones there.
Left out are the order of the outer product, of which no static count explains measured times, and
guards, whose cost does not show in them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from autotune.analysis import sgemm_rest, sgemm_skinny_work
from autotune.analysis.global_memory import SECTOR_BYTES
from autotune.analysis.shared_memory import LANES, wavefronts
from autotune.analysis.work import Work, register_bound
from autotune.problems.sgemm import FLOAT_BYTES, Sgemm
from autotune.types import Config

_LOOP_SLOTS = 12
"""Pointers, counter, branch and barrier of one turn of the main loop."""
_INNER_LOOP_SLOTS = 4
"""Counter, addresses and branch where not all of a tile's steps are unrolled."""
_ADDRESS_SLOTS = 4
"""Address arithmetic of one piece that is copied; compilers need 1 to 7."""
_UNROLLED_PREFETCH = 0.5
"""Where a whole tile is unrolled, compilers start the loads of the next one only in its middle, to
need fewer registers; a loop around the steps keeps them before it. Seen in the SASS of NVRTC 13.0,
and a quarter of the time where a scheduler has a single warp."""
_OTHER_REGISTERS = 44
"""Addresses, counters, and what the compiler loads early; the median of 2,800 binaries."""
_UNEVEN_REGISTERS = 3
"""Line and place of each piece of a pass that does not take whole lines."""
_SWIZZLE_REGISTERS = 8
"""An address for each of the up to eight permutations."""
_LINE_STORE_WAVEFRONTS = 4
"""Storing one chunk of 16 bytes a lane, whose lines are exchanged so that banks differ."""
_LOOP_REGISTERS = {"grid": 0, "persistent": 8, "stream": 20}
"""Counters and places that outlive a tile; NVRTC 13, for the presets."""
STRIP_PAD = 8
"""Floats after each row of C in shared memory."""
CLUSTER_BLOCKS = 8
"""Blocks of a cluster where k is split in more parts."""
_SQUEEZED = 128
_MOST_LAUNCHED, _MOST_COMPUTING, _ASKING_REGISTERS = 248, 240, 24
"""Registers per thread of a block with producers: when it starts, then of those that compute and of
those that ask for tiles; multiples of 8, as the instruction that moves them has it."""
_LINE_BYTES = 128


def work(problem: Sgemm, config: Config, registers: int | None = None) -> Work:
    """Counts the work of a config.

    Args:
        config: A point of the space that its constraints admit for `problem`.
        registers: Per thread, from the binary; estimated while there is none.
    """
    if config.get("method") == "skinny":
        return sgemm_skinny_work.work(problem, config, registers)
    if sgemm_rest.lines(problem, config):
        tiled = work(sgemm_rest.tiled(problem, config), config.but(rest="tiles"), registers)
        return replace(
            tiled,
            side_launches=tiled.side_launches + 1,
            side_bytes=tiled.side_bytes + sgemm_rest.side_bytes(problem, config),
        )
    block_m, block_n, block_k = (_number(config, f"block_{axis}") for axis in "mnk")
    thread_m, thread_n = _number(config, "thread_m"), _number(config, "thread_n")
    lanes_m, stages = _number(config, "lanes_m"), _number(config, "stages")
    vector_a, vector_b = _number(config, "vector_a"), _number(config, "vector_b")
    k_unroll, split_k = _number(config, "k_unroll"), _number(config, "split_k")
    row_a = block_m + _number(config, "pad_a")
    row_b = block_n + _number(config, "pad_b")
    lane_map, is_swizzled = str(config["lane_map"]), config["swizzle_a"] == "xor"
    whole_lines, is_direct = config["a_layout"] == "mxk", config["copy_a"] == "direct"
    slices, producers = _number(config, "k_slices"), _number(config, "threads_producer")
    tile_warps = (block_m // (lanes_m * thread_m)) * (block_n // (LANES // lanes_m * thread_n))
    warps = tile_warps * slices
    threads = LANES * warps
    # What a thread multiplies of a tile.
    steps = block_k // slices

    slots: float = _LOOP_SLOTS + _INNER_LOOP_SLOTS * (steps // k_unroll - 1)
    loading: float = 0
    # Fragments: each thread, each k.
    is_contiguous = config["fragment_split"] == "contiguous"
    for axis, size in (("m", thread_m), ("n", thread_n)):
        if whole_lines and axis == "m":
            # One load brings four k of a row.
            loads = steps // 4 * size
            cost = _line_wavefronts(lane_map, lanes_m, block_k)
        else:
            width = fragment(size)
            loads = steps * size // width
            stride = size if is_contiguous else width
            cost = _fragment_wavefronts(axis, lane_map, lanes_m, stride, width)
        slots += loads
        loading += loads * cost
    # Copies: the block shares the pieces of each tile.
    copying = storing = 0.0
    lines: float = 0
    staged = uneven = 0
    for operand, rows, row, vector, is_k_contiguous in (
        ("a", block_m, row_a, vector_a, problem.layout[0] == "n"),
        ("b", block_n, row_b, vector_b, problem.layout[1] == "t"),
    ):
        way = config[f"copy_{operand}"]
        if way == "bulk":
            # One thread asks for it; the copy engine's writes pass shared memory like any other.
            copying += rows * block_k / LANES / warps
            continue
        floats = rows * block_k
        along = block_k if is_k_contiguous else rows
        passes = -(-floats // (threads * vector))
        is_uneven = threads % (along // vector) != 0
        is_transposing = is_k_contiguous and not (whole_lines and operand == "a")
        staged += passes * vector * (way == "registers")
        uneven += passes * is_uneven
        stores = vector if is_transposing else 1
        slots += passes * (1 + stores * (way == "registers") + _ADDRESS_SLOTS * (1 + is_uneven))
        if not is_transposing and is_k_contiguous:
            cost = _LINE_STORE_WAVEFRONTS
        elif is_k_contiguous:
            cost = stores * _transposing_wavefronts(
                row, vector, block_k // vector, operand == "a" and is_swizzled
            )
        else:
            cost = _copying_wavefronts(row, vector, rows // vector)
        requests = floats / (LANES * vector)
        copying += requests * cost / warps
        storing += requests * cost / warps * (way == "registers")
        # A request takes so many lines of the tile, and each is at least one of memory.
        requested = LANES * vector
        lines += requests * max(1, requested / along, requested * FLOAT_BYTES / _LINE_BYTES)

    ways = (str(config["copy_a"]), str(config["copy_b"]))
    results = thread_m * thread_n
    stride = thread_n if is_contiguous else fragment(thread_n)
    places = _stored_places(lane_map, lanes_m, stride)
    tile_rows, tile_columns = _up(problem.m, block_m), _up(problem.n, block_n)
    split = _split(problem, config, tile_rows * tile_columns * problem.batch)
    edge = _edge(problem, config, results, tile_warps, places)
    needed = results + (4 if whole_lines else 1) * thread_m + thread_n + staged + _OTHER_REGISTERS
    needed += _LOOP_REGISTERS[str(config["schedule"])]
    needed += _UNEVEN_REGISTERS * uneven + _SWIZZLE_REGISTERS * is_swizzled
    min_blocks = _number(config, "min_blocks")
    bound = launched = register_bound(warps * min_blocks)
    if producers:
        # All threads start with as many; then those that ask for tiles give most of theirs away.
        launched = min(_MOST_LAUNCHED, register_bound((threads + producers) // LANES * min_blocks))
        spare = launched * (threads + producers) - _ASKING_REGISTERS * producers
        bound = min(_MOST_COMPUTING, spare // threads // 8 * 8)
    if registers is None:
        registers = launched if producers else min(_squeezed(needed), bound)
    return Work(
        blocks=tile_rows * tile_columns * problem.batch * split_k,
        threads=threads + producers,
        registers=registers,
        # A binary that leaves registers unused spills none.
        spilled=max(0, needed - bound) if registers >= min(bound, launched) else 0,
        shared_bytes=_shared_bytes(config),
        iterations=_up(_up(problem.k, block_k), split_k),
        prefetch=_prefetch(ways, stages, k_unroll == steps),
        barriers=0 if producers or is_direct else 1 if stages > 1 else 2,
        fma=results * steps,
        slots=slots,
        wavefronts=loading + copying,
        store_wavefronts=storing,
        load_bytes=FLOAT_BYTES * block_k * (block_m + block_n),
        load_lines=lines,
        edge_slots=edge.slots,
        edge_bytes=edge.bytes,
        edge_lines=edge.lines,
        edge_dram_bytes=edge.dram_bytes,
        dram_bytes=problem.bytes_min,
        tile_rows=tile_rows,
        tile_columns=tile_columns,
        group_rows=_number(config, "group_m"),
        row_bytes=FLOAT_BYTES * block_m * _up(problem.k, split_k),
        column_bytes=FLOAT_BYTES * block_n * _up(problem.k, split_k),
        resident=0 if config["schedule"] == "grid" else _number(config, "min_blocks"),
        is_dealt=config["schedule"] == "stream",
        cluster=cluster_blocks(config),
        asking=producers,
        parts=split_k,
        part_bytes=split.part_bytes,
        closing_parts=split.closing_parts,
        left_bytes=split.left_bytes,
        side_launches=split.side_launches,
        side_bytes=split.side_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """What it costs that several blocks multiply for a tile; see the fields of `Work`."""

    part_bytes: int = 0
    closing_parts: float = 0.0
    left_bytes: int = 0
    side_launches: int = 0
    side_bytes: float = 0.0


def _split(problem: Sgemm, config: Config, tiles: int) -> _Split:
    split_k, mode = _number(config, "split_k"), config["split_k_mode"]
    part_bytes = FLOAT_BYTES * _number(config, "block_m") * _number(config, "block_n")
    c_bytes = FLOAT_BYTES * problem.m * problem.n * problem.batch * _c_passes(problem)
    if config["schedule"] == "stream":
        return _Split(part_bytes=part_bytes)
    if split_k == 1:
        return _Split()
    left_bytes = split_k * tiles * part_bytes
    if mode == "workspace":
        return _Split(
            part_bytes=part_bytes,
            left_bytes=left_bytes,
            side_launches=1,
            side_bytes=left_bytes + c_bytes,
        )
    if mode == "atomic":
        return _Split(side_launches=1, side_bytes=c_bytes)
    if mode == "last":
        return _Split(part_bytes=part_bytes, closing_parts=split_k, left_bytes=left_bytes)
    # In a cluster each block reads its share of every part, and of what other clusters left.
    left = parts_left(config)
    if left == 1:
        return _Split(part_bytes=part_bytes, closing_parts=1)
    return _Split(
        part_bytes=part_bytes,
        closing_parts=1 + left * left / split_k,
        left_bytes=left * tiles * part_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edge:
    """What a block does with its sums; see the fields of `Work`."""

    slots: float
    bytes: float
    lines: float
    dram_bytes: int


def _edge(
    problem: Sgemm, config: Config, results: int, warps: int, places: tuple[int, int]
) -> _Edge:
    """Args: `results` of a thread, `warps` that hold a tile, `places` of a store of C."""
    split_k, mode = _number(config, "split_k"), config["split_k_mode"]
    vector_c, width = _number(config, "vector_c"), fragment(_number(config, "thread_n"))
    tile_bytes = FLOAT_BYTES * results * LANES * warps
    # Scaling by alpha, and C written once or also read and scaled.
    c_passes = _c_passes(problem)
    accesses = results // min(vector_c, results)
    sectors, lines = places
    slots: float = (results + accesses) * c_passes
    if config["epilogue"] == "shared":
        # By way of shared memory, from where lanes side by side write.
        sectors, lines = FLOAT_BYTES * vector_c, vector_c
        slots += results / width + accesses
    if split_k > 1 and mode in ("workspace", "last"):
        # A part, in whole lines, which stays in the L2 cache; the last block of a tile reads as
        # many as there are blocks. C is written once for all.
        passes = 2 if mode == "last" else 1
        return _Edge(
            slots=passes * results / width,
            bytes=passes * tile_bytes,
            lines=passes * tile_bytes / _LINE_BYTES,
            dram_bytes=0,
        )
    # A mode other than the first is of a k that is split.
    share = 1 / split_k if mode == "cluster" else 1.0
    if mode == "atomic":
        c_passes, slots = 1, results + accesses
    # In a cluster each block reads as much as a part, from the shared memory of all its blocks.
    read = tile_bytes if share < 1 else 0
    return _Edge(
        slots=slots * share + 2 * read / (FLOAT_BYTES * LANES * warps * width),
        bytes=warps * accesses * sectors * SECTOR_BYTES * c_passes * share + read,
        lines=warps * accesses * lines * c_passes * share,
        dram_bytes=int(tile_bytes * c_passes * share),
    )


def _c_passes(problem: Sgemm) -> int:
    """How often C goes through: written, or also read."""
    return 1 if problem.beta_zero else 2


def _prefetch(ways: tuple[str, str], stages: int, is_unrolled: bool) -> float:
    """Turns by which loads run ahead of their use."""
    if "direct" in ways:
        return 0
    if "registers" in ways:
        # They hold the next tile while this one is multiplied, with one stage too.
        return _UNROLLED_PREFETCH if is_unrolled else 1
    return stages - 1


def _shared_bytes(config: Config) -> int:
    """Per block."""
    block_m, block_n, block_k = (_number(config, f"block_{axis}") for axis in "mnk")
    ways = (config["copy_a"], config["copy_b"])
    if "direct" in ways:
        return 0
    whole_lines = config["a_layout"] == "mxk"
    stage_a = block_m * block_k if whole_lines else block_k * (block_m + _number(config, "pad_a"))
    stage_b = block_k * (block_n + _number(config, "pad_b"))
    barriers = 1 + (_number(config, "threads_producer") > 0) if "bulk" in ways else 0
    tile_bytes = FLOAT_BYTES * block_m * block_n
    rows = block_m // _number(config, "thread_m")
    return 8 * barriers * _number(config, "stages") + max(
        _number(config, "stages") * FLOAT_BYTES * (stage_a + stage_b),
        (_number(config, "k_slices") - 1) * tile_bytes,
        tile_bytes if config["split_k_mode"] == "cluster" else 0,
        FLOAT_BYTES * rows * (block_n + STRIP_PAD) if config["epilogue"] == "shared" else 0,
    )


def parts_left(config: Config) -> int:
    """Parts of a tile that blocks, or clusters of them, leave in memory; 1 where none is left."""
    return _number(config, "split_k") // cluster_blocks(config)


def cluster_blocks(config: Config) -> int:
    """Blocks of a cluster; 1 where there are none."""
    if config["split_k_mode"] != "cluster":
        return 1
    return min(_number(config, "split_k"), CLUSTER_BLOCKS)


def _up(size: int, step: int) -> int:
    return -(-size // step)


def _number(config: Config, name: str) -> int:
    return int(config[name])


def fragment(size: int) -> int:
    """Floats in one load of a fragment."""
    return 4 if size % 4 == 0 else 2 if size % 2 == 0 else 1


def _squeezed(registers: int) -> int:
    """What a compiler needs that tries hard to stay within what 16 warps of an SM can have."""
    return _SQUEEZED if _SQUEEZED < registers <= 1.08 * _SQUEEZED else registers


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


def line_place(row: int, chunk: int, block_k: int) -> int:
    """Where a chunk of four k of a row lies in a tile of whole lines, in floats."""
    return row * block_k + 4 * (chunk ^ row // max(1, 32 // block_k) % min(8, block_k // 4))


# One pattern stands for all accesses of its kind: moving every lane by the same distance, or
# exchanging the banks by one XOR, changes no count.


@lru_cache(maxsize=4096)
def _fragment_wavefronts(axis: str, lane_map: str, lanes_m: int, stride: int, width: int) -> int:
    """Loading one fragment; lanes next to each other along the axis lie `stride` floats apart."""
    places = [lane(lane_map, lanes_m, index)["mn".index(axis)] for index in range(LANES)]
    return _cost([stride * place for place in places], width, is_load=True)


@lru_cache(maxsize=4096)
def _line_wavefronts(lane_map: str, lanes_m: int, block_k: int) -> int:
    """Loading the next four k of each lane's row, whose chunks are exchanged by row."""
    rows = [lane(lane_map, lanes_m, index)[0] for index in range(LANES)]
    return _cost([line_place(row, 0, block_k) for row in rows], 4, is_load=True)


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


@lru_cache(maxsize=4096)
def _stored_places(lane_map: str, lanes_m: int, stride: int) -> tuple[int, int]:
    """Sectors and lines of one store of C, whose rows lie far apart."""
    places = [lane(lane_map, lanes_m, index) for index in range(LANES)]
    sectors, lines = (
        {(row, FLOAT_BYTES * stride * column // size) for row, column in places}
        for size in (SECTOR_BYTES, _LINE_BYTES)
    )
    return len(sectors), len(lines)


def _cost(words: list[int], width: int, *, is_load: bool) -> int:
    offsets = [FLOAT_BYTES * word for word in words]
    return wavefronts(offsets, FLOAT_BYTES * width, "load" if is_load else "store").wavefronts
