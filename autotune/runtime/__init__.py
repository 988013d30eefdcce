"""The product of a caller's arrays, by the best known kernel, on the caller's stream.

dlpack.py      reads what `__dlpack__` gives
arrays.py      an array of any library: where it lies, how, and what makes another one
streams.py     which stream is meant
arrange.py     how three arrays lie, as a problem that a kernel knows
once.py        made once, whoever comes first
binary.py      the compiled kernel, from the cache or made by one of all who wait for it
workspaces.py  the memory that launches of a stream share
plan.py        a problem on a device: config, binary, and the contexts it is loaded in
bound.py       a plan together with how the arrays of its calls lie
gemm.py        `sgemm` and `Gemm`

A call that was made before does little: it reads addresses, sizes and strides of the arrays, finds
the plan that was made for such ones, writes the addresses, and launches. Everything else (checks,
look-up, rendering, compiling, loading) belongs to the first call of its kind.
"""

from autotune.runtime.gemm import Gemm, sgemm

__all__ = ["Gemm", "sgemm"]
