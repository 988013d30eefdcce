"""The FP32 matrix product C = alpha * op(A) * op(B) + beta * C, row-major."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from autotune.errors import ShapeError
from autotune.types import Operand, Problem, Scalar

if TYPE_CHECKING:
    import numpy as np

Layout = Literal["nn", "nt", "tn", "tt"]
LAYOUTS: tuple[Layout, ...] = ("nn", "nt", "tn", "tt")
FLOAT_BYTES = 4
UNIT_ROUNDOFF = 2.0**-24
"""Of FP32."""

_SIZE = r"(\d{1,99}(?:e\d{1,2})?)"
_SHAPE = re.compile(f"{_SIZE}x{_SIZE}x{_SIZE}", re.ASCII | re.IGNORECASE)
_IN_KEYS = frozenset(
    {"batch", *(f"{field}{name}" for field in ("ld", "stride_", "align_") for name in "abc")}
)
LIMIT = 2**31 - 1024
"""Largest size: a kernel's 32-bit row and column numbers may pass it by one tile."""


@dataclass(frozen=True, kw_only=True)
class Sgemm(Problem):
    """One size of the product.

    Attributes:
        m, n, k: op(A) is m x k, op(B) is k x n, C is m x n; each from 1 to `LIMIT`, k from 0: then
            C = beta * C.
        layout: `n` as stored or `t` transposed, for A and for B: with `tn`, A is stored k x m.
        lda, ldb, ldc: Elements from one stored row to the next; 0 means tight.
        batch: Products of the same size.
        stride_a, stride_b, stride_c: Elements from one matrix of the batch to the next; 0 means
            one after the other.
        beta_zero: C is written and never read.
        align_a, align_b, align_c: Bytes that the base addresses are multiples of: 16, 8 or 4.

    Raises:
        ShapeError: a size out of range, a leading dimension below the row length, batches of C
            that overlap.
    """

    kernel: ClassVar[str] = "sgemm"
    size_names: ClassVar[tuple[str, ...]] = ("m", "n", "k")
    summed: ClassVar[frozenset[str]] = frozenset({"k"})

    m: int
    n: int
    k: int
    layout: Layout = "nn"
    lda: int = 0
    ldb: int = 0
    ldc: int = 0
    batch: int = 1
    stride_a: int = 0
    stride_b: int = 0
    stride_c: int = 0
    beta_zero: bool = True
    align_a: int = 16
    align_b: int = 16
    align_c: int = 16

    def __post_init__(self) -> None:
        for name in ("m", "n", "k", "batch"):
            size, least = getattr(self, name), int(name != "k")
            if not least <= size <= LIMIT:
                raise ShapeError(f"{name} = {size} is out of range; it must be {least} to {LIMIT}")
        if self.layout not in LAYOUTS:
            raise ShapeError(f"layout {self.layout!r} is not one of {', '.join(LAYOUTS)}")
        for name in ("a", "b", "c"):
            rows, columns = self._stored(name)
            leading = getattr(self, f"ld{name}") or max(1, columns)
            if not columns <= leading <= LIMIT:
                raise ShapeError(
                    f"ld{name} = {leading} must be {columns} (the length of a row of "
                    f"{name.upper()}) to {LIMIT}"
                )
            span = (rows - 1) * leading + columns
            stride = getattr(self, f"stride_{name}") if self.batch > 1 else 0
            if not stride and self.batch > 1:
                stride = rows * leading
            if name == "c" and self.batch > 1 and stride < span:
                raise ShapeError(
                    f"stride_c = {stride} lets the batch's matrices overlap; it must be at least "
                    f"{span}"
                )
            if getattr(self, f"align_{name}") not in (16, 8, 4):
                raise ShapeError(f"align_{name} must be 16, 8 or 4 bytes")
            object.__setattr__(self, f"ld{name}", leading)
            object.__setattr__(self, f"stride_{name}", stride)

    def _stored(self, name: str) -> tuple[int, int]:
        """Rows and columns of an operand as it lies in memory."""
        rows, columns = {"a": (self.m, self.k), "b": (self.k, self.n), "c": (self.m, self.n)}[name]
        transposed = (name == "a" and self.layout[0] == "t") or (
            name == "b" and self.layout[1] == "t"
        )
        return (columns, rows) if transposed else (rows, columns)

    @classmethod
    def parse(cls, shape: str, **options: object) -> Sgemm:
        """The product of sizes written `MxNxK`; `options` are further fields of the class.

        A size may have a power of ten: `1e3` is 1000.
        """
        match = _SHAPE.fullmatch(shape.strip())
        if match is None:
            raise ShapeError(f"{shape!r} is not a shape; write MxNxK, for example 2048x2048x2048")
        m, n, k = (_size(text) for text in match.groups())
        return cls(m=m, n=n, k=k, **cast(dict[str, Any], options))

    @classmethod
    def from_key(cls, key: str) -> Sgemm:
        kernel, _, rest = key.partition("/")
        shape, _, rest = rest.partition("/")
        layout, *others = rest.split("/")
        options: dict[str, Any] = {"layout": layout}
        for part in others:
            name, _, number = part.partition("=")
            if part == "beta":
                options["beta_zero"] = False
            elif name in _IN_KEYS and number.isdecimal():
                options[name] = int(number)
            else:
                raise ShapeError(f"{key!r} is not the key of a problem: {part!r} is unknown")
        if kernel != cls.kernel:
            raise ShapeError(f"{key!r} is not the key of a problem of {cls.kernel}")
        return cls.parse(shape, **options)

    @property
    def shape(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"

    @cached_property
    def key(self) -> str:
        parts = [self.kernel, self.shape, self.layout]
        for name in ("a", "b", "c"):
            rows, columns = self._stored(name)
            leading = getattr(self, f"ld{name}")
            if leading != max(1, columns):
                parts.append(f"ld{name}={leading}")
            stride = getattr(self, f"stride_{name}")
            if self.batch > 1 and stride != rows * leading:
                parts.append(f"stride_{name}={stride}")
            if (alignment := getattr(self, f"align_{name}")) != 16:
                parts.append(f"align_{name}={alignment}")
        if self.batch > 1:
            parts.append(f"batch={self.batch}")
        if not self.beta_zero:
            parts.append("beta")
        return "/".join(parts)

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k * self.batch

    @property
    def bytes_min(self) -> int:
        c_accesses = 1 if self.beta_zero else 2
        elements = self.m * self.k + self.k * self.n + c_accesses * self.m * self.n
        return FLOAT_BYTES * self.batch * elements

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        return tuple(self._operand(name) for name in ("a", "b", "c"))

    def _operand(self, name: str) -> Operand:
        rows, columns = self._stored(name)
        role: Literal["in", "out", "inout"] = "in"
        if name == "c":
            role = "out" if self.beta_zero else "inout"
        return Operand(
            name=name,
            role=role,
            rows=rows,
            columns=columns,
            leading_dimension=getattr(self, f"ld{name}"),
            batch=self.batch,
            batch_stride=getattr(self, f"stride_{name}"),
            alignment_bytes=getattr(self, f"align_{name}"),
        )

    @cached_property
    def variables(self) -> Mapping[str, Scalar]:
        """Sizes, and `vector_limit_x`: the widest vector, in elements, that operand x admits.

        A vector of v elements needs addresses, row starts, batch starts and the row length to be
        multiples of v: then no vector straddles the end of a row. Only the contiguous direction
        counts. `tensor_map_x` is 1 where the copy engine of sm_90 can read the operand: one matrix,
        whose address and rows are multiples of 16 bytes.
        """
        names: dict[str, Scalar] = {
            "m": self.m,
            "n": self.n,
            "k": self.k,
            "layout": self.layout,
            "a_k_contiguous": int(self.layout[0] == "n"),
            "b_k_contiguous": int(self.layout[1] == "t"),
            "batch": self.batch,
            "beta_zero": int(self.beta_zero),
            # Offsets inside one operand, and C's tile offsets, that pass 2^31 elements.
            "wide_index": int(any(o.span_elements > LIMIT for o in self.operands)),
        }
        for operand in self.operands:
            names[f"ld{operand.name}"] = operand.leading_dimension
            names[f"stride_{operand.name}"] = operand.batch_stride
            names[f"vector_limit_{operand.name}"] = _vector_limit(operand)
            names[f"tensor_map_{operand.name}"] = int(_has_tensor_map(operand))
        return names

    @property
    def scalars(self) -> Mapping[str, float]:
        # Powers of two and small: the exact-integer check stays exact when C is scaled by them.
        return {"alpha": 1.0} if self.beta_zero else {"alpha": 2.0, "beta": -1.0}

    @property
    def row_axes(self) -> Mapping[str, int]:
        return {"a": 1 if self.layout[0] == "n" else 2, "c": 1}

    @property
    def column_axes(self) -> Mapping[str, int]:
        return {"b": 2 if self.layout[1] == "n" else 1, "c": 2}

    def columns(self) -> Mapping[str, int | str]:
        return {
            "m": self.m,
            "n": self.n,
            "k": self.k,
            "layout": self.layout,
            "lda": self.lda,
            "ldb": self.ldb,
            "ldc": self.ldc,
            "batch": self.batch,
            "stride_a": self.stride_a,
            "stride_b": self.stride_b,
            "stride_c": self.stride_c,
            "beta_zero": int(self.beta_zero),
            "align_a": self.align_a,
            "align_b": self.align_b,
            "align_c": self.align_c,
        }

    def reference(
        self, inputs: Mapping[str, np.ndarray], scalars: Mapping[str, float]
    ) -> tuple[np.ndarray, np.ndarray]:
        """FP64 product and the bound of Higham, Accuracy and Stability, 2nd ed., section 3.5.

        |error| <= gamma_k |A||B| holds for every order of summation; scaling by alpha and adding
        beta * C cost three more roundings, which gamma_(k+3) of the sum of magnitudes covers.
        """
        import numpy as np

        def op(name: str, letter: str) -> np.ndarray:
            stored = inputs[name].astype(np.float64)
            return stored.swapaxes(-1, -2) if letter == "t" else stored

        alpha, beta = scalars["alpha"], scalars.get("beta", 0.0)
        # BLAS: what is multiplied by zero is not read.
        if alpha == 0.0:
            value = np.zeros((self.batch, self.m, self.n))
            magnitude = np.zeros_like(value)
        else:
            a, b = op("a", self.layout[0]), op("b", self.layout[1])
            value = alpha * (a @ b)
            magnitude = abs(alpha) * (np.abs(a) @ np.abs(b))
        if beta != 0.0:
            c = inputs["c"].astype(np.float64)
            value = value + beta * c
            magnitude = magnitude + abs(beta) * np.abs(c)
        steps = (self.k + 3) * UNIT_ROUNDOFF
        return value, steps / (1 - steps) * magnitude


def _size(text: str) -> int:
    digits, _, power = text.lower().partition("e")
    return int(digits + "0" * int(power or 0))


def _vector_limit(operand: Operand) -> int:
    for width in (4, 2):
        row = operand.columns % width == 0
        starts = (
            operand.rows == 1 or operand.leading_dimension % width == 0
        ) and operand.batch_stride % width == 0
        if row and starts and operand.alignment_bytes % (FLOAT_BYTES * width) == 0:
            return width
    return 1


def _has_tensor_map(operand: Operand) -> bool:
    row_bytes = FLOAT_BYTES * operand.leading_dimension
    is_empty = operand.rows == 0 or operand.columns == 0
    return (
        operand.batch == 1
        and not is_empty
        and operand.alignment_bytes % 16 == 0
        and row_bytes % 16 == 0
    )
