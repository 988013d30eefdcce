"""How three arrays lie, as a problem that a kernel knows.

Nothing is copied. A matrix whose rows are contiguous is read as stored (`n`), one whose columns are
as transposed (`t`); what lies between one row and the next is a leading dimension. An output whose
columns are contiguous is computed as its transpose, from the transposes of B and A. A batch becomes

    one product     of more rows, where B is the same for all and A and C go on from one to the next
    a batch         where each has an A and a B of its own
    products in turn, else: A or B is the same for all, or the matrices of C lie interlaced
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autotune.errors import (
    ArrayDeviceError,
    ArrayShapeError,
    OverlapError,
    ReadOnlyError,
    StrideError,
)
from autotune.problems.sgemm import Layout, Sgemm
from autotune.runtime.arrays import FLOAT32, FLOAT_BYTES, View

Shape = tuple[int, ...]

EFFORT = 10**6
"""Steps of NumPy's search for an element that two arrays share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """What to launch for arrays that lie in a certain way.

    Attributes:
        problem: Of one launch; None where the output has no elements.
        device: CUDA's number.
        is_swapped: Whether B is the kernel's first operand and A its second.
        repeats: How often to launch.
        steps_bytes: What the addresses of the first operand, the second and the output grow by from
            one launch to the next.
    """

    problem: Sgemm | None
    device: int
    is_swapped: bool = False
    repeats: int = 1
    steps_bytes: tuple[int, int, int] = (0, 0, 0)


def result_shape(a: Shape, b: Shape, trans_a: bool, trans_b: bool) -> Shape:
    """The shape of the product.

    Raises:
        ArrayShapeError: an operand is no matrix or batch of them, or they do not fit together.
    """
    for name, shape in (("a", a), ("b", b)):
        if len(shape) not in (2, 3):
            raise ArrayShapeError(
                name,
                f"has the shape {shape}; it must be a matrix, or a batch of them (2 or 3 axes)",
            )
    m, k = (a[-1], a[-2]) if trans_a else (a[-2], a[-1])
    inner, n = (b[-1], b[-2]) if trans_b else (b[-2], b[-1])
    if inner != k:
        raise ArrayShapeError(
            "b",
            f"has the shape {b}{' transposed' * trans_b}, so {inner} rows, but a has the shape {a}"
            f"{' transposed' * trans_a}, so {k} columns; they must be equal",
        )
    batches = [shape[0] for shape in (a, b) if len(shape) == 3]
    if not batches:
        return m, n
    several = {size for size in batches if size != 1}
    if len(several) > 1:
        raise ArrayShapeError(
            "b",
            f"is a batch of {b[0]}, but a is one of {a[0]}; they must be equal, or one of them 1",
        )
    return (*(several or {1}), m, n)


def arrange(
    a: View, b: View, out: View, *, trans_a: bool = False, trans_b: bool = False, beta_zero: bool
) -> Arrangement:
    """How to compute out = op(A) op(B) where the three lie.

    Raises:
        ArrayError: one of its classes, for the operand that cannot be taken.
        ShapeError: a size beyond what kernels count.
    """
    for view in (a, b, out):
        view.check()
    expected = result_shape(a.shape, b.shape, trans_a, trans_b)
    if out.shape != expected:
        raise ArrayShapeError("out", f"has the shape {out.shape}; the product has {expected}")
    if out.is_read_only:
        raise ReadOnlyError("out", "is read-only; pass an array that may be written")
    device = _device(a, b, out)
    if not all(out.shape):
        return Arrangement(problem=None, device=device)
    batch = expected[0] if len(expected) == 3 else 1
    first, second, result = (_Matrix.of(view, batch) for view in (a, b, out))
    if trans_a:
        first = first.transposed
    if trans_b:
        second = second.transposed
    is_swapped = _stored(result)[0] == "t"
    _refuse_shared_elements(out)
    if is_swapped:
        first, second, result = second.transposed, first.transposed, result.transposed
    return _batched(first, second, result, device, is_swapped, beta_zero)


def _device(*views: View) -> int:
    placed = [view for view in views if view.device >= 0]
    for view in placed:
        if view.device != placed[0].device:
            raise ArrayDeviceError(
                view.name,
                f"lies on device {view.device}, but {placed[0].name} on device "
                f"{placed[0].device}; move one of them",
            )
    return placed[0].device if placed else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matrix:
    """An operand as the product sees it: all in elements.

    Attributes:
        view: Where it comes from.
        batch_step: From one matrix of the batch to the next; 0 where all are the same one.
    """

    view: View
    rows: int
    columns: int
    row_step: int
    column_step: int
    batch: int
    batch_step: int

    @classmethod
    def of(cls, view: View, batch: int) -> _Matrix:
        """The matrices of an array, which is one matrix or a batch."""
        steps = [stride // FLOAT_BYTES for stride in view.strides]
        is_shared = len(view.shape) == 2 or view.shape[0] == 1 or batch == 1
        if not is_shared and steps[0] < 0:
            raise _unusual(view)
        return cls(
            view=view,
            rows=view.shape[-2],
            columns=view.shape[-1],
            row_step=steps[-2],
            column_step=steps[-1],
            batch=batch,
            batch_step=0 if is_shared else steps[0],
        )

    @property
    def transposed(self) -> _Matrix:
        """The same elements with rows and columns exchanged."""
        return replace(
            self,
            rows=self.columns,
            columns=self.rows,
            row_step=self.column_step,
            column_step=self.row_step,
        )


def _stored(matrix: _Matrix) -> tuple[str, int]:
    """The letter of a matrix's layout, and its leading dimension.

    Raises:
        StrideError: neither rows nor columns are contiguous, or they overlap.
    """
    for letter, each in (("n", matrix), ("t", matrix.transposed)):
        # A step counts only where there is a second element to step to.
        is_contiguous = each.columns <= 1 or each.column_step == 1
        tight = max(1, each.columns)
        if is_contiguous and (each.rows <= 1 or each.row_step >= tight):
            return letter, each.row_step if each.rows > 1 else tight
    raise _unusual(matrix.view)


def _batched(
    first: _Matrix, second: _Matrix, result: _Matrix, device: int, is_swapped: bool, beta_zero: bool
) -> Arrangement:
    m, n, k, batch = result.rows, result.columns, first.columns, result.batch
    letter_a, lda = _stored(first) if k else ("n", 0)
    letter_b, ldb = _stored(second) if k else ("n", 0)
    ldc = _stored(result)[1]
    repeats, strides, steps = 1, (0, 0, 0), (0, 0, 0)
    if batch > 1:
        strides = first.batch_step, second.batch_step, result.batch_step
        row_a, row_c = (strides[0], strides[2]) if m == 1 else (lda, ldc)
        goes_on = letter_a == "n" and strides[0] == m * row_a and strides[2] == m * row_c
        if not strides[1] and goes_on and row_c >= n and row_a >= k:
            lda, ldc, m, batch, strides = row_a, row_c, m * batch, 1, (0, 0, 0)
        elif (k and not (strides[0] and strides[1])) or strides[2] < (m - 1) * ldc + n:
            steps = tuple(FLOAT_BYTES * stride for stride in strides)  # type: ignore[assignment]
            repeats, batch, strides = batch, 1, (0, 0, 0)
    problem = Sgemm(
        m=m,
        n=n,
        k=k,
        layout=_LAYOUTS[letter_a + letter_b],
        lda=lda,
        ldb=ldb,
        ldc=ldc,
        batch=batch,
        stride_a=strides[0] if k else 0,
        stride_b=strides[1] if k else 0,
        stride_c=strides[2],
        beta_zero=beta_zero,
        align_a=_alignment(first, steps[0]) if k else 16,
        align_b=_alignment(second, steps[1]) if k else 16,
        align_c=_alignment(result, steps[2]),
    )
    return Arrangement(
        problem=problem,
        device=device,
        is_swapped=is_swapped,
        repeats=repeats,
        steps_bytes=steps,
    )


_LAYOUTS: dict[str, Layout] = {"nn": "nn", "nt": "nt", "tn": "tn", "tt": "tt"}


def _alignment(matrix: _Matrix, step_bytes: int) -> int:
    return next(
        size for size in (16, 8, 4) if not (matrix.view.address % size or step_bytes % size)
    )


def _unusual(view: View) -> StrideError:
    steps = tuple(stride // FLOAT_BYTES for stride in view.strides)
    return StrideError(
        view.name,
        f"has the shape {view.shape} and strides of {steps} elements; in its last two axes one "
        "must step by 1 and the other by at least that one's length, and a batch forwards; pass a "
        "contiguous copy",
    )


# *** memory that is shared ***


def _refuse_shared_elements(out: View) -> None:
    """Refuses an output that has two indices for one place.

    Raises:
        StrideError: it has, or may have.
    """
    reach = 0
    for stride, size in sorted(
        (stride, size) for stride, size in zip(out.strides, out.shape, strict=True) if size > 1
    ):
        if stride <= reach:
            raise StrideError(
                "out",
                f"has the shape {out.shape} and strides of {out.strides} bytes, so that several "
                "elements lie in one place; pass an array of its own",
            )
        reach += stride * (size - 1)


def span_bytes(view: View) -> int:
    """Bytes from the first to the last that belongs to an array, both included; strides are not
    negative."""
    if not all(view.shape):
        return 0
    steps = (stride * (size - 1) for stride, size in zip(view.strides, view.shape, strict=True))
    return sum(steps) + FLOAT_BYTES


def refuse_overlap(out: View, inputs: tuple[View, ...]) -> None:
    """Looks closely at an output whose span meets that of an input: columns of one array may lie
    between one another.

    Raises:
        OverlapError: they share an element, or to find out takes too long.
    """
    for view in inputs:
        try:
            is_shared = np.shares_memory(_array(out), _array(view), max_work=EFFORT)  # type: ignore[arg-type]
        except np.exceptions.TooHardError:
            is_shared = True
        if is_shared:
            raise OverlapError(
                "out",
                f"shares memory with {view.name}, which is read while out is written; pass an "
                "array of its own",
            )


def _array(view: View) -> np.ndarray:
    """An array of NumPy at the same addresses, which nobody may read."""

    class Shown:
        __array_interface__ = {  # noqa: RUF012
            "version": 3,
            "typestr": FLOAT32,
            "shape": view.shape,
            "strides": view.strides,
            "data": (view.address, True),
        }

    return np.asarray(Shown())
