"""Every exception that autotune raises on purpose, and the exit code of each.

    AutotuneError                 1   something failed
    ├── UsageError                2   what was asked for makes no sense
    │   ├── ShapeError                a shape, or a problem's other sizes
    │   ├── ArchitectureError         an architecture that is unknown or cannot be served
    │   ├── SpaceError                a search-space file
    │   ├── InfeasibleError           a config that the constraints refuse
    │   ├── ArrayError                an array that `sgemm` or `Gemm` cannot take; it is named
    │   │   ├── DtypeError                its elements are not float32
    │   │   ├── ArrayShapeError           its sizes do not fit the other arrays or the plan
    │   │   ├── ArrayDeviceError          it lies on another GPU, or on none
    │   │   ├── StrideError               how its elements lie is no matrix of BLAS
    │   │   ├── AlignmentError            its address is no multiple of what is needed
    │   │   ├── ReadOnlyError             the output may not be written
    │   │   ├── OverlapError              the output shares memory with an input
    │   │   └── ContextError              its memory is no longer there
    │   └── CaptureError              a stream is captured, and the kernel is not loaded yet
    ├── NotFoundError             3   the store has no such thing
    ├── DeviceError               4   no usable device or driver
    │   └── DriverError               a call to the driver failed
    ├── MissingExtraError         1   a package of an extra is not installed
    ├── CompilerError             1   no compiler, or one that does not fit device or driver
    ├── TemplateError             1   a template is wrong, or does not know a value
    ├── CubinError                1   a compiled kernel that cannot be disassembled
    ├── ProfilerError             1   no hardware counters: no profiler, no permission, no answer
    └── StoreError                1   the results store
        ├── StoreLockedError          another process held the lock for too long
        └── SchemaError               a store of an older or a newer version

A message says what failed, the values, the limit, and the next step.
"""

from __future__ import annotations


class AutotuneError(Exception):
    """Base of all: `except AutotuneError` catches what autotune means to raise."""

    exit_code = 1


class UsageError(AutotuneError, ValueError):
    """The request itself is wrong; nothing was compiled, measured or stored."""

    exit_code = 2


class ShapeError(UsageError):
    """A shape that is not `MxNxK`, has a size below 1, or needs more memory than there is."""


class ArchitectureError(UsageError):
    """An architecture that is not one, is unknown, or that this installation cannot serve."""


class SpaceError(UsageError):
    """A search-space file: its syntax, a name it does not know, a constraint that fails."""


class InfeasibleError(UsageError):
    """A config that the search space or a constraint refuses; the message gives the reason."""


class ArrayError(UsageError):
    """An array that a product cannot take; nothing was launched.

    Attributes:
        operand: `a`, `b` or `out`.
    """

    def __init__(self, operand: str, message: str) -> None:
        super().__init__(f"{operand} {message}")
        self.operand = operand


class DtypeError(ArrayError):
    """Elements of another type than float32 of this machine's byte order."""


class ArrayShapeError(ArrayError):
    """Sizes that do not fit those of the other arrays, or those that were planned for."""


class ArrayDeviceError(ArrayError):
    """Memory of the host, or of another GPU than that of the other arrays."""


class StrideError(ArrayError):
    """Elements that do not lie as BLAS has them: rows, or columns, of neighbours."""


class AlignmentError(ArrayError):
    """An address that is no multiple of 4 bytes, or of what a plan was made for."""


class ReadOnlyError(ArrayError):
    """An output that its library does not let anybody write."""


class OverlapError(ArrayError):
    """An output that shares elements with an input."""


class ContextError(ArrayError):
    """Memory that no live context has: it was freed, or its context was."""


class CaptureError(UsageError):
    """A stream is being captured, and the call would have to compile, load or time first."""


class NotFoundError(AutotuneError):
    """The store holds nothing that answers the question."""

    exit_code = 3


class DeviceError(AutotuneError):
    """No usable device: no driver, no GPU, or another GPU than the one that was asked for."""

    exit_code = 4


class DriverError(DeviceError):
    """A call to the CUDA driver failed.

    Attributes:
        call: Name of the driver function, for example `cuLaunchKernel`.
        code: Numeric CUresult.
        name: Symbolic CUresult, for example `CUDA_ERROR_ILLEGAL_ADDRESS`.
    """

    def __init__(self, call: str, code: int, name: str, hint: str = "") -> None:
        super().__init__(f"{call} failed: {name} ({code})" + (f"; {hint}" if hint else ""))
        self.call = call
        self.code = code
        self.name = name

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the device has too little free memory; the context goes on working."""
        return self.name == "CUDA_ERROR_OUT_OF_MEMORY"


class MissingExtraError(AutotuneError):
    """A package is missing; the message gives the `pip install` line that brings it."""


class CompilerError(AutotuneError):
    """No compiler, or one that cannot serve the architecture or the driver."""


class TemplateError(AutotuneError):
    """A template that fails to render: a name it does not know, or a fault of its own."""


class CubinError(AutotuneError):
    """A cubin that the disassembler cannot read, or that lacks the kernel in question."""


class ProfilerError(AutotuneError):
    """NVIDIA's profiler is missing, may not read the counters, or gave nothing that can be read."""


class StoreError(AutotuneError):
    """The results store cannot be opened, read or written."""


class StoreLockedError(StoreError):
    """Another process held the store's lock for longer than the stated limit."""


class SchemaError(StoreError):
    """The store was written by an older or a newer version; the message gives the way out."""
