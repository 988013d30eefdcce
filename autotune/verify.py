"""Right or wrong: data whose result is known, how it lies in memory, and the comparison.

Two checks, both against `Problem.reference`, which no kernel of ours takes part in.

*Exact.* Inputs are small non-zero integers, so that every partial sum, in every order, is an
integer below 2^24 and exact in FP32: the result must equal the reference bit for bit, in every
element, and so must the padding and the guard zones around it. A race, a dropped term or a slip of
an index cannot hide behind a tolerance.

*FP64.* Normal random data against FP64 with the problem's own error bound for every element, and a
tighter one for all together: the bound holds for the worst order of the worst data and grows with
the length of the sums, so that long ones would let operands cut to TF32 pass; the norm of the error
does not. Large problems are compared on random rows, since the exact check has seen every element.

The exact reference of a large problem costs as much as the problem. Where output rows depend on
their own slice of an input (`Problem.row_axes`), only some hundred distinct slices are drawn and
dealt to the rows at random; their reference is computed once and dealt out alike. Elements within
a slice, and inputs that are needed whole, stay fully random, so slips along columns or the
reduction show as before; a slip from one row to another goes unseen only where both were dealt the
same slice (one pair in hundreds), which a slip that moves more than a few rows cannot meet
everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from autotune.types import Operand, Problem

POISON = 0x7FC0DEAD
"""A quiet NaN with a payload: spreads through arithmetic, and is told from a computed NaN."""

GUARD_BYTES = 64 * 1024
"""Poison before and after every buffer."""

WORD_BYTES = 4
ALLOCATION_BYTES = 256
"""Of which the driver makes every address a multiple."""
_EXACT_LIMIT = 2**24
_EXACT_REFERENCE_FLOPS = 2**35
_BOUNDED_REFERENCE_FLOPS = 2**31
_BLOCK_ELEMENTS = 2**22
_COMPARED_ELEMENTS = 2**20

EXACTLY = np.zeros((1, 1, 1))
"""The bound that allows no error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where an operand lies in an allocation that starts at a multiple of 256 bytes.

    Attributes:
        offset_bytes: From the allocation's start to the operand's first element.
        total_bytes: Of the allocation: guard, operand, guard.
    """

    operand: Operand
    offset_bytes: int
    total_bytes: int

    @property
    def words(self) -> int:
        """32-bit words of the allocation."""
        return self.total_bytes // WORD_BYTES


def place(operand: Operand, *, strict: bool) -> Placement:
    """An operand's place between its guards.

    Args:
        strict: The base address is a multiple of `alignment_bytes` and of no larger power of two,
            so that a kernel which assumes more faults. Otherwise an operand of the widest class
            (16 bytes) starts where an allocator would put it, which is what timing should see.
    """
    offset = GUARD_BYTES
    if strict or operand.alignment_bytes < 16:
        offset += operand.alignment_bytes
    total = 2 * GUARD_BYTES + 16 + operand.span_elements * WORD_BYTES
    return Placement(
        operand=operand,
        offset_bytes=offset,
        total_bytes=-(-total // ALLOCATION_BYTES) * ALLOCATION_BYTES,
    )


def needed_bytes(problem: Problem) -> int:
    """Device memory that verifying and timing a problem takes, without flush buffer and code.

    Inputs lie there twice (integers and random), the output once with its expected image, and an
    output that is also read has both its old values kept.
    """
    total = 0
    for operand in problem.operands:
        copies = {"in": 2, "out": 2, "inout": 4}[operand.role]
        total += copies * place(operand, strict=True).total_bytes
    return total


def image(placement: Placement, values: np.ndarray | None = None) -> np.ndarray:
    """An allocation's 32-bit words: poison wherever no element of `values` lies."""
    words = np.full(placement.words, POISON, np.uint32)
    if values is not None:
        elements(placement, words)[...] = values
    return words


def elements(placement: Placement, words: np.ndarray) -> np.ndarray:
    """The operand's (batch, rows, columns) FP32 elements inside an allocation's words: a view."""
    operand = placement.operand
    flat = words.view(np.float32)[placement.offset_bytes // WORD_BYTES :]
    return np.lib.stride_tricks.as_strided(
        flat,
        shape=(operand.batch, operand.rows, operand.columns),
        strides=(
            operand.batch_stride * WORD_BYTES,
            operand.leading_dimension * WORD_BYTES,
            WORD_BYTES,
        ),
    )


def output(problem: Problem) -> Operand:
    """The operand that the kernel writes."""
    (written,) = (operand for operand in problem.operands if operand.role != "in")
    return written


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Data of one check.

    Attributes:
        inputs: FP32 (batch, rows, columns) of every operand that is read.
        expected: (batch, rows, columns) of the output, or of its `rows`.
        bound: Largest allowed |error|, of the same shape; 0 where equality is asked for.
        rows: The output rows that `expected` holds; None for all.
        norm_share: Largest allowed |error| / |bound|, both as Euclidean norms over all elements.
    """

    inputs: Mapping[str, np.ndarray]
    expected: np.ndarray
    bound: np.ndarray
    rows: np.ndarray | None = None
    norm_share: float = math.inf


def norm_share(depth: int) -> float:
    """How far below the bound FP32 sums of normal products stay together, in any order.

    Rounding errors of a running sum add up like a random walk, to 0.28 * 2^-24 * depth for the
    plainest order and less for others; the bound is 2^-24 * depth * (0.64 * depth). Fourteen times
    what is typical still tells FP32 from TF32 up to a million products. Short sums are held by the
    bound of each element.
    """
    if depth == 0:
        return math.inf
    root = math.sqrt(depth)
    return (4 * root + 8) / (0.64 * root * (depth + 3))


def integer_range(depth: int, scale: float) -> tuple[int, float]:
    """Largest magnitude and share of non-zeros that keep every partial sum exact in FP32.

    Args:
        depth: Products in a sum.
        scale: What the sum is multiplied by, and what is added to it, together.

    Returns:
        The magnitude p, and the share of elements that are not zero: 1 unless the sum is so long
        that even ones would pass 2^24.
    """
    room = _EXACT_LIMIT / (max(1.0, scale) * (depth + 1))
    if room >= 1:
        return min(1023, math.isqrt(int(room))), 1.0
    # Half, since the non-zeros of a row are a random number around their mean.
    return 1, room / 2


def exact_case(problem: Problem, seed: int) -> Case:
    """Integer data and the exact result, for every element."""
    generator = np.random.default_rng([seed, 0])
    limit, share = integer_range(
        _depth(problem), sum(abs(value) for value in problem.scalars.values())
    )
    written = output(problem)
    distinct = _affordable_rows(problem, _EXACT_REFERENCE_FLOPS, least=64)
    dealt = None
    if distinct < written.rows and not any(_overlaps(operand) for operand in problem.operands):
        dealt = generator.integers(0, distinct, written.rows)

    def draw(shape: tuple[int, ...]) -> np.ndarray:
        values = generator.integers(1, limit, shape, np.int16, endpoint=True).astype(np.float32)
        values *= generator.integers(0, 2, shape, np.int8) * 2 - 1
        if share < 1.0:
            values *= generator.random(shape, np.float32) < share
        return values

    inputs, few = {}, {}
    for operand in _read(problem):
        axis = problem.row_axes.get(operand.name)
        shape = _shape(operand)
        if dealt is None or axis is None:
            inputs[operand.name] = few[operand.name] = _settle(operand, draw(shape))
        else:
            drawn = draw((*shape[:axis], distinct, *shape[axis + 1 :]))
            few[operand.name] = np.broadcast_to(drawn, (operand.batch, *drawn.shape[1:]))
            inputs[operand.name] = np.take(few[operand.name], dealt, axis)
    expected, _ = problem.reference(few, problem.scalars)
    if dealt is not None:
        expected = np.take(expected, dealt, axis=1)
    return Case(inputs=inputs, expected=expected, bound=EXACTLY)


def random_case(problem: Problem, seed: int) -> Case:
    """Normal data with the FP64 result of some random rows, or of all where that is cheap.

    It is what kernels are timed with as well: zeros or small integers draw less power.
    """
    generator = np.random.default_rng([seed, 1])
    inputs = {
        operand.name: _settle(operand, generator.standard_normal(_shape(operand), np.float32))
        for operand in _read(problem)
    }
    written = output(problem)
    share = norm_share(_depth(problem))
    count = _affordable_rows(problem, _BOUNDED_REFERENCE_FLOPS, least=16)
    if problem.row_axes:
        # Each candidate's rows come back to the host: a short k would make too many affordable.
        count = min(count, max(16, _COMPARED_ELEMENTS // (written.columns * written.batch)))
    if count == written.rows:
        expected, bound = problem.reference(inputs, problem.scalars)
        return Case(inputs=inputs, expected=expected, bound=bound, norm_share=share)
    rows = np.sort(generator.choice(written.rows, count, replace=False))
    few = {
        name: np.take(values, rows, problem.row_axes[name]) if name in problem.row_axes else values
        for name, values in inputs.items()
    }
    expected, bound = problem.reference(few, problem.scalars)
    return Case(inputs=inputs, expected=expected, bound=bound, rows=rows, norm_share=share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a comparison found.

    Attributes:
        compared: Elements looked at.
        wrong: Elements off by more than allowed, or not a number; all, when it is their norm.
        max_error: Largest |error| / allowed; infinite where a number is missing or, in an exact
            comparison, wrong.
        message: Empty when all are right; else how many and the first of them.
    """

    compared: int
    wrong: int
    max_error: float
    message: str = ""

    @property
    def is_right(self) -> bool:
        """Whether every element is."""
        return self.wrong == 0


def compare(result: np.ndarray, case: Case) -> Comparison:
    """Compares every element of the output, or of the case's rows, with what is expected.

    Args:
        result: FP32, of exactly the shape of `case.expected`: nothing is broadcast.
    """
    expected = case.expected
    if result.shape != expected.shape:
        return Comparison(
            compared=0,
            wrong=expected.size,
            max_error=math.inf,
            message=f"the result has shape {result.shape}, expected is {expected.shape}",
        )
    wrong, worst, message = 0, 0.0, ""
    error_squared = bound_squared = 0.0
    for batch, start, found, wanted, allowed in _blocks(result, case):
        error = np.abs(found.astype(np.float64) - wanted)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(error == 0.0, 0.0, error / allowed)
        ratio[np.isnan(ratio)] = math.inf
        error_squared += float(np.vdot(error, error))
        bound_squared += float(np.sum(np.square(allowed)))
        bad = ratio > 1.0
        worst = max(worst, float(ratio.max(initial=0.0)))
        if not wrong and bad.any():
            row, column = (int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
            place = start + row if case.rows is None else int(case.rows[start + row])
            message = (
                f"first batch {batch} row {place} column {column}: got {found[row, column]:.9g}, "
                f"expected {wanted[row, column]:.9g}"
            )
            if (most := float(np.broadcast_to(allowed, bad.shape)[row, column])) > 0:
                message += f", allowed error {most:.3g}"
        wrong += int(np.count_nonzero(bad))
    if wrong:
        message = f"{wrong} of {expected.size} elements are wrong, {message}"
    elif error_squared > case.norm_share**2 * bound_squared:
        wrong = expected.size
        message = (
            f"the errors together are {math.sqrt(error_squared / bound_squared):.2g} of their "
            f"bound, beyond {case.norm_share:.2g} for FP32: operands or sums lost digits (TF32?)"
        )
    return Comparison(compared=expected.size, wrong=wrong, max_error=worst, message=message)


def _blocks(
    result: np.ndarray, case: Case
) -> Iterator[tuple[int, int, np.ndarray, np.ndarray, np.ndarray]]:
    """Batch, first row, and pieces of result, expectation and bound, each of bounded size."""
    batches, rows, columns = result.shape
    step = max(1, _BLOCK_ELEMENTS // columns)
    bound = np.broadcast_to(case.bound, result.shape)
    for batch in range(batches):
        for start in range(0, rows, step):
            piece = slice(start, start + step)
            yield (
                batch,
                start,
                result[batch, piece],
                case.expected[batch, piece],
                bound[batch, piece],
            )


def compare_images(placement: Placement, found: np.ndarray, wanted: np.ndarray) -> Comparison:
    """Compares whole allocations word by word: elements, padding between rows, guard zones.

    Zeros of either sign are equal.
    """
    bad = (found != wanted) & (((found | wanted) << 1) != 0)
    wrong = int(np.count_nonzero(bad))
    if wrong == 0:
        return Comparison(compared=bad.size, wrong=0, max_error=0.0)
    values = compare(
        elements(placement, found),
        Case(inputs={}, expected=elements(placement, wanted), bound=EXACTLY),
    )
    message = values.message
    outside = wrong - values.wrong
    if outside:
        where = int(np.argmax(_outside(placement, bad)))
        offset = where * WORD_BYTES - placement.offset_bytes
        text = (
            f"{outside} words outside of {placement.operand.name} were written (padding between "
            f"rows, or the guard zones), first {offset} bytes from its first element"
        )
        message = f"{message}; {text}" if message else text
    return Comparison(compared=bad.size, wrong=wrong, max_error=math.inf, message=message)


def _outside(placement: Placement, bad: np.ndarray) -> np.ndarray:
    """The bad words that are no elements of the operand."""
    marks: np.ndarray = bad.astype(np.uint32)
    elements(placement, marks)[...] = 0.0
    outside: np.ndarray = marks != 0
    return outside


def _read(problem: Problem) -> list[Operand]:
    return [operand for operand in problem.operands if operand.role != "out"]


def _shape(operand: Operand) -> tuple[int, int, int]:
    """Of the values to draw: one matrix where the whole batch shares it."""
    batch = operand.batch if operand.batch_stride else 1
    return batch, operand.rows, operand.columns


def _overlaps(operand: Operand) -> bool:
    """Whether matrices of the batch lie partly inside each other."""
    one = (operand.rows - 1) * operand.leading_dimension + operand.columns
    return operand.batch > 1 and 0 < operand.batch_stride < one


def _settle(operand: Operand, values: np.ndarray) -> np.ndarray:
    """The values of every matrix of the batch once they lie in memory."""
    if _overlaps(operand):
        placement = place(operand, strict=True)
        return elements(placement, image(placement, values))
    return np.broadcast_to(values, (operand.batch, *values.shape[1:]))


def _depth(problem: Problem) -> int:
    """Products summed for one element of the output."""
    written = output(problem)
    return -(-problem.flops // (2 * written.batch * written.rows * written.columns))


def _affordable_rows(problem: Problem, flops: int, least: int) -> int:
    """Output rows whose reference costs about `flops`; all of them where rows cannot be cut."""
    rows = output(problem).rows
    if not problem.row_axes or not problem.flops:
        return rows
    return min(rows, max(least, rows * flops // problem.flops))
