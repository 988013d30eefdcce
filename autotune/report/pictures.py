"""Pictures in characters: who computes what of a block's tile."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, zip_longest

from autotune.explain.parts import Axis, Tile

_WIDTH = 100
_LINES = 16


def picture(tile: Tile) -> list[str]:
    """Block, warp and thread tile side by side, below one another where they are too wide."""
    block, warp, thread = _block(tile), _warp(tile), _thread(tile)
    if (whole := _beside(block, warp, thread)) is not None:
        return whole
    pair = _beside(block, thread) or [*block, "", *thread]
    return [*pair, "", *warp]


def _beside(*parts: Sequence[str]) -> list[str] | None:
    """The pictures in one line; None where that is too wide."""
    widths = [max(map(len, part)) for part in parts]
    if sum(widths) + 3 * (len(parts) - 1) > _WIDTH:
        return None
    return [
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in zip_longest(*parts, fillvalue="")
    ]


def _block(tile: Tile) -> list[str]:
    """Which warp computes which part of the block's tile."""
    rows, columns = _bands(tile.m), _bands(tile.n)
    cells = [[str(row * tile.n.warps + column) for _, column in columns] for _, row in rows]
    title = f"block {tile.m.block} x {tile.n.block}: warps"
    return [title, *_grid([start for start, _ in rows], [start for start, _ in columns], cells)]


def _warp(tile: Tile) -> list[str]:
    """Which lane starts at which row and column of the warp's tile."""
    rows = [row * tile.m.lane_stride for row in range(tile.m.lanes)]
    columns = [column * tile.n.lane_stride for column in range(tile.n.lanes)]
    cells = [[str(lane) for lane in row] for row in tile.lanes]
    return ["warp: lanes", *_grid(rows, columns, cells)]


def _thread(tile: Tile) -> list[str]:
    """The fragments of a thread, from its first row and column on."""
    rows = [part * tile.m.fragment_stride for part in range(tile.m.fragments)]
    columns = [part * tile.n.fragment_stride for part in range(tile.n.fragments)]
    cell = f"{tile.m.fragment}x{tile.n.fragment}"
    title = f"thread {tile.m.thread} x {tile.n.thread}: fragments"
    return [title, *_grid(rows, columns, [[cell for _ in columns] for _ in rows])]


def _bands(axis: Axis) -> list[tuple[int, int]]:
    """First row and warp of each run of rows that one warp owns."""
    runs = groupby(enumerate(axis.owners), key=lambda entry: entry[1])
    return [(next(run)[0], warp) for warp, run in runs]


def _grid(rows: Sequence[int], columns: Sequence[int], cells: Sequence[Sequence[str]]) -> list[str]:
    """Cells in a frame, with the offsets of rows at the left and of columns above."""
    width = max(len(each) for each in (*map(str, columns), *(c for row in cells for c in row))) + 1
    side = max(len(f"m {row}") for row in rows)
    head = "".join(str(column).rjust(width) for column in columns)
    edge = f"{' ' * side} +{'-' * (len(head) + 1)}+"
    lines = [f"{'n'.rjust(side)}  {head}", edge]
    for row, line in zip(rows[:_LINES], cells, strict=False):
        label = f"m {row}".rjust(side)
        lines.append(f"{label} |{''.join(cell.rjust(width) for cell in line)} |")
    if len(rows) > _LINES:
        lines.append(f"{' ' * side} : {len(rows) - _LINES} more")
    return [*lines, edge]
