"""Which blocks stand for a grid that is too large to run, and how far their counts reach.

Blocks do alike work when the parts of the output that they compute are equally large: whole tiles,
tiles cut at the last row, at the last column, or at both. Each of these classes is sampled. Which
part a block computed is read off what it wrote; where blocks with a wanted part lie in the grid is
a guess from the config, which only has to be right often enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product

import numpy as np

from autotune.emulate.data import output
from autotune.types import Config, Problem

Part = tuple[int, int]
"""Rows and columns of the output that a block computes."""

BLOCKS_PER_CLASS = 3
"""First and last of a class, and one at random."""


def parts(problem: Problem, tile: Part) -> Counter[Part]:
    """How many tiles of the output have each size."""
    written = output(problem)
    counted: Counter[Part] = Counter()
    sides = [
        _lengths(size, step)
        for size, step in zip((written.rows, written.columns), tile, strict=True)
    ]
    for (rows, along_m), (columns, along_n) in product(*sides):
        counted[rows, columns] += along_m * along_n * written.batch
    return counted


def blocks(problem: Problem, config: Config, tile: Part, seed: int) -> list[int]:
    """Linear numbers of blocks that should cover every class."""
    rng = np.random.default_rng(seed)
    written = output(problem)
    rows, columns = tile
    tiles_m, tiles_n = -(-written.rows // rows), -(-written.columns // columns)
    group = int(config.get("group_m", 1))
    chosen: dict[int, None] = {}
    for along_m in _spans(tiles_m, written.rows % rows != 0):
        for along_n in _spans(tiles_n, written.columns % columns != 0):
            first, last = (along_m[0], along_n[0]), (along_m[-1], along_n[-1])
            within = (int(rng.choice(along_m)), int(rng.choice(along_n)))
            matrices = (0, written.batch - 1, int(rng.integers(written.batch)))
            for (tile_m, tile_n), matrix in zip((first, last, within), matrices, strict=True):
                number = _number(tile_m, tile_n, tiles_m, tiles_n, group)
                chosen[matrix * tiles_m * tiles_n + number] = None
    return sorted(chosen)


def more_blocks(total: int, seed: int) -> Iterator[int]:
    """Further blocks at random, for classes that the first ones missed."""
    rng = np.random.default_rng([seed, 1])
    while True:
        yield int(rng.integers(total))


def _lengths(size: int, step: int) -> list[tuple[int, int]]:
    """Lengths of the steps that cover a size, each with how often it occurs."""
    whole, rest = divmod(size, step)
    return [(step, whole)] * (whole > 0) + [(rest, 1)] * (rest > 0)


def _spans(tiles: int, is_ragged: bool) -> list[range]:
    """Whole tiles of one direction, and the one that is cut short."""
    whole = tiles - is_ragged
    return [range(whole)] * (whole > 0) + [range(whole, tiles)] * is_ragged


def _number(tile_m: int, tile_n: int, tiles_m: int, tiles_n: int, group: int) -> int:
    """The block of a tile, where `group` rows of tiles are walked column by column."""
    start = tile_m // group * group
    rows = min(group, tiles_m - start)
    return start * tiles_n + tile_n * rows + tile_m - start
