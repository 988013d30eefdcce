"""Every exception that autotune raises on purpose, and the exit code of each.

    AutotuneError                 1   something failed
    ├── UsageError                2   what was asked for makes no sense
    │   ├── ShapeError                a shape, or a problem's other sizes
    │   ├── ArchitectureError         an architecture that is unknown or cannot be served
    │   ├── SpaceError                a search-space file
    │   └── InfeasibleError           a config that the constraints refuse
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
