"""Compares what was written with the exact result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.emulate import sample
from autotune.emulate.data import Data, output
from autotune.emulate.describe import element_address
from autotune.emulate.report import Fault, FaultKind
from autotune.emulate.run import Written
from autotune.types import Operand


@dataclass(frozen=True, slots=True)
class Region:
    """A part of the output that must be written in full, and by whom.

    Attributes:
        batch, rows, columns: First and one past the last.
        block: -1 for the whole output.
    """

    batch: tuple[int, int]
    rows: tuple[int, int]
    columns: tuple[int, int]
    block: int

    @property
    def part(self) -> sample.Part:
        """Rows and columns."""
        return self.rows[1] - self.rows[0], self.columns[1] - self.columns[0]


class Output:
    """The written elements by matrix, row and column."""

    def __init__(self, operand: Operand, written: Written) -> None:
        self.operand = operand
        self.written = written
        stride = operand.batch_stride or operand.span_elements
        self.batch, rest = np.divmod(written.element, stride)
        self.row, self.column = np.divmod(rest, operand.leading_dimension)

    def region(self, block: int, tile: sample.Part) -> Region | None:
        """The tile that a block wrote to, cut where the output ends; None if it wrote nothing."""
        mine = self.written.block == block
        if not mine.any():
            return None
        batch = int(self.batch[mine].min())
        row, column = (
            int(places[mine].min()) // step * step
            for places, step in zip((self.row, self.column), tile, strict=True)
        )
        return Region(
            (batch, batch + 1),
            (row, min(row + tile[0], self.operand.rows)),
            (column, min(column + tile[1], self.operand.columns)),
            block,
        )

    @property
    def whole(self) -> Region:
        """All of the output."""
        operand = self.operand
        return Region((0, operand.batch), (0, operand.rows), (0, operand.columns), -1)


def faults(
    data: Data, tile: sample.Part, written: Written, blocks: list[int] | None
) -> list[Fault]:
    """Elements that are missing or wrong: of each kind the first one of each region.

    Args:
        tile: Rows and columns of the output that a block computes.
        blocks: The blocks that were run, each of which owes its tile; None for the whole grid.
    """
    found = Output(output(data.problem), written)
    result: list[Fault] = []
    if blocks is None:
        result.extend(_faults_of(data, found, found.whole, tile))
    for block in blocks or ():
        region = found.region(block, tile)
        if region is None:
            result.append(
                Fault(
                    kind=FaultKind.not_written,
                    line=0,
                    block=block,
                    thread=-1,
                    address="",
                    message=f"block {block} wrote nothing",
                )
            )
        else:
            result.extend(_faults_of(data, found, region, tile))
    return result


def _faults_of(data: Data, found: Output, region: Region, tile: sample.Part) -> Iterator[Fault]:
    spans = (region.batch, region.rows, region.columns)
    within = (
        np.ones(len(found.row), dtype=bool)
        if region.block < 0
        else found.written.block == region.block
    )
    indices = []
    for places, (start, end) in zip((found.batch, found.row, found.column), spans, strict=True):
        within &= (places >= start) & (places < end)
        indices.append(places - start)
    (entries,) = np.nonzero(within)
    # Which entry of `written` holds an element, or -1.
    entry = np.full([end - start for start, end in spans], -1, dtype=np.int64)
    entry[tuple(index[entries] for index in indices)] = entries
    missing = entry < 0
    if missing.any():
        place = _first(missing)
        block = region.block if region.block >= 0 else _owner(found, entry, place, tile)
        address = _address(found, region, place)
        whose = f"block {block}" if block >= 0 else "no block"
        yield Fault(
            kind=FaultKind.not_written,
            line=0,
            block=block,
            thread=-1,
            address=address,
            message=f"{int(missing.sum())} elements were not written, the first is {address}; its "
            f"tile is that of {whose}",
        )
    if missing.all():
        return
    expected = data.expected(*(np.arange(start, end) for start, end in spans))
    got = np.where(missing, expected, found.written.value[entry].astype(np.float64))
    # Not equal rather than a difference: a NaN is wrong too.
    wrong = ~(got == expected)
    if wrong.any():
        place = _first(wrong)
        address = _address(found, region, place)
        index = int(entry[place])
        line, block, thread = (
            int(column[index])
            for column in (found.written.line, found.written.block, found.written.thread)
        )
        yield Fault(
            kind=FaultKind.wrong_result,
            line=line,
            block=block,
            thread=thread,
            address=address,
            message=f"{int(wrong.sum())} elements are wrong, the first is {address}: line {line}, "
            f"block {block}, thread {thread} stored {got[place]:g}, right is {expected[place]:g}",
        )


def _first(mask: NDArray[np.bool_]) -> tuple[int, int, int]:
    batch, row, column = np.unravel_index(int(mask.argmax()), mask.shape)
    return int(batch), int(row), int(column)


def _owner(
    found: Output, entry: NDArray[np.int64], place: tuple[int, int, int], tile: sample.Part
) -> int:
    """The block that wrote other elements of the same tile; -1 if none did."""
    batch, row, column = place
    row, column = row // tile[0] * tile[0], column // tile[1] * tile[1]
    others = entry[batch, row : row + tile[0], column : column + tile[1]]
    others = others[others >= 0]
    return int(found.written.block[others[0]]) if len(others) else -1


def _address(found: Output, region: Region, place: tuple[int, int, int]) -> str:
    operand = found.operand
    batch, row, column = (
        start + offset
        for (start, _), offset in zip(
            (region.batch, region.rows, region.columns), place, strict=True
        )
    )
    element = batch * operand.batch_stride + row * operand.leading_dimension + column
    return element_address(operand, element)
