"""The vendor library as one more candidate: cuBLAS in plain FP32, through CuPy where it is.

Which call serves a problem is decided here alone, by the name of its kernel family.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

import numpy as np

from autotune.errors import MissingExtraError
from autotune.gpu import Values
from autotune.types import Device, Problem

_DEFAULT_MATH = 0


def forbid_shortcuts() -> None:
    """Rules out TF32 and emulated FP32 in this process; before CUDA starts."""
    # putenv: only the C library of this process has to see them.
    os.putenv("NVIDIA_TF32_OVERRIDE", "0")
    os.putenv("CUBLAS_EMULATE_SINGLE_PRECISION", "0")
    os.unsetenv("CUBLAS_EMULATION_STRATEGY")


def missing(problem: Problem) -> str | None:
    """Why the vendor library cannot be timed for a problem; None when it can."""
    if problem.kernel not in _CALLS:
        return f"no vendor library is known for {problem.kernel}"
    if find_spec("cupy") is None:
        return "cuBLAS is not timed: CuPy is not installed (pip install cupy-cuda13x)"
    return None


def library(problem: Problem) -> tuple[str, str]:
    """Name and version of the library that `prepare` calls; the version is empty where no package
    tells it."""
    name, packages = _LIBRARIES[problem.kernel]
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            return name, metadata.version(package)
    return name, ""


def prepare(problem: Problem, values: Values, device: Device) -> Callable[[], None]:
    """A call that enqueues the vendor's kernel on the default stream.

    Raises:
        MissingExtraError: see `missing`.
    """
    if (reason := missing(problem)) is not None:
        raise MissingExtraError(reason)
    return _CALLS[problem.kernel](problem, values, device)


@cache
def _cublas(index: int) -> tuple[Any, int]:
    """CuPy's cuBLAS and a handle in the primary context, which is the one that is current."""
    cupy = import_module("cupy")
    cublas = import_module("cupy_backends.cuda.libs.cublas")
    cupy.cuda.Device(index).use()
    handle = cublas.create()
    cublas.setMathMode(handle, _DEFAULT_MATH)
    return cublas, handle


def _sgemm(problem: Problem, values: Values, device: Device) -> Callable[[], None]:
    """Row-major C = A B is column-major C' = B' A': operands change places."""
    cublas, handle = _cublas(device.index)
    sizes: dict[str, Any] = dict(problem.columns())
    m, n, k, layout = sizes["m"], sizes["n"], sizes["k"], sizes["layout"]
    transpose = {"n": cublas.CUBLAS_OP_N, "t": cublas.CUBLAS_OP_T}
    a, b, c = (int(values[name]) for name in ("a", "b", "c"))
    lda, ldb, ldc = (sizes[f"ld{name}"] for name in ("a", "b", "c"))
    strides = [sizes[f"stride_{name}"] for name in ("a", "b", "c")]
    scalars = np.array([values["alpha"], values.get("beta", 0.0)], np.float32)
    alpha = scalars.ctypes.data
    beta = alpha + scalars.itemsize
    ops = transpose[layout[1]], transpose[layout[0]]

    def enqueue(keep: np.ndarray = scalars) -> None:
        if sizes["batch"] == 1:
            cublas.sgemm(handle, *ops, n, m, k, alpha, b, ldb, a, lda, beta, c, ldc)
        else:
            cublas.sgemmStridedBatched(
                handle, *ops, n, m, k, alpha, b, ldb, strides[1], a, lda, strides[0],
                beta, c, ldc, strides[2], sizes["batch"],
            )  # fmt: skip

    return enqueue


_CALLS: dict[str, Callable[[Problem, Values, Device], Callable[[], None]]] = {"sgemm": _sgemm}
_LIBRARIES = {"sgemm": ("cublas", ("nvidia-cublas", "nvidia-cublas-cu12"))}
