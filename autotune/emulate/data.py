"""Operands without memory: an element's value follows from its place, here and in memory.cpp."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.types import Operand, Problem

_EXACT_LIMIT = 2**24
_VALUE_LIMIT = 1023


@dataclass(frozen=True, slots=True)
class Data:
    """Non-zero integers of either sign, so small that every partial sum is exact in FP32.

    With more than 2^24 products in a sum that holds no more for every data, but for these, whose
    signs are random.
    """

    problem: Problem
    scalars: Mapping[str, float]
    seed: int

    @property
    def limit(self) -> int:
        """Largest magnitude of an element."""
        scale = max(1.0, sum(abs(value) for value in self.scalars.values()))
        products = self.problem.flops / 2 / _output_elements(self.problem)
        room = int(_EXACT_LIMIT / (scale * (products + 1)))
        return max(1, min(_VALUE_LIMIT, math.isqrt(room)))

    def operand_seed(self, operand: Operand) -> int:
        """What tells the values of one operand from those of another; below 2^62."""
        digest = hashlib.sha256(f"{self.seed} {operand.name}".encode()).digest()
        return int.from_bytes(digest[:8], "little") >> 2

    def values(
        self, operand: Operand, batch: NDArray[np.int64], rows: NDArray[np.int64],
        columns: NDArray[np.int64],
    ) -> NDArray[np.float32]:  # fmt: skip
        """The elements at these matrices, rows and columns, as an array over all three."""
        element = (
            batch[:, None, None] * operand.batch_stride
            + rows[:, None] * operand.leading_dimension
            + columns
        )
        x = element.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x += np.uint64(self.operand_seed(operand))
        x ^= x >> np.uint64(32)
        x *= np.uint64(0xD6E8FEB86659FD93)
        x ^= x >> np.uint64(32)
        magnitude = 1 + ((x >> np.uint64(32)) * np.uint64(self.limit) >> np.uint64(32))
        return np.where(x & np.uint64(1), -1, 1).astype(np.float32) * magnitude.astype(np.float32)

    def expected(
        self, batch: NDArray[np.int64], rows: NDArray[np.int64], columns: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """The right result for a part of the output, over matrices, rows and columns."""
        inputs = {}
        for operand in self.problem.operands:
            axes = [batch, np.arange(operand.rows), np.arange(operand.columns)]
            if (axis := self.problem.row_axes.get(operand.name)) is not None:
                axes[axis] = rows
            if (axis := self.problem.column_axes.get(operand.name)) is not None:
                axes[axis] = columns
            # What the kernel only writes may be needed for its shape alone, or not at all.
            if operand.role != "out":
                inputs[operand.name] = self.values(operand, *axes)
        return self.problem.reference(inputs, self.scalars)[0]


def _output_elements(problem: Problem) -> int:
    written = output(problem)
    return written.batch * written.rows * written.columns


def output(problem: Problem) -> Operand:
    """The operand that the kernel writes."""
    (written,) = (operand for operand in problem.operands if operand.role != "in")
    return written
