"""The one door to the driver: a small protocol, and two ways through it.

`pycuda.py` where pycuda imports, `bindings.py` (cuda-bindings, wheels only) elsewhere. Neither is
imported, and CUDA is not started, before `choose` is called.

A context is the device's primary one, so that memory and modules are shared with every other CUDA
library of the process; opening makes it current, closing restores what was current before.
Everything runs on the legacy default stream: its order is the order of the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np

from autotune import settings
from autotune.errors import DeviceError, MissingExtraError, TemplateError, UsageError
from autotune.types import Device, Launch

DOORS = ("pycuda", "cuda-bindings")
"""Names of the doors, the preferred one first."""

Values = Mapping[str, int | float]
"""Device addresses of operands and workspaces, and values of scalars, by argument name."""


class Kernel(Protocol):
    """An entry point of a loaded module, with what the driver says of it.

    Attributes:
        registers: Per thread.
        local_bytes: Local memory per thread: spills and stack.
        static_shared_bytes: Shared memory per block without what the launch adds.
        threads_per_block: The most that its registers admit.
    """

    registers: int
    local_bytes: int
    static_shared_bytes: int
    threads_per_block: int

    def blocks_per_sm(self, threads: int, shared_bytes: int) -> int:
        """Blocks that fit on an SM at a time, with this much dynamic shared memory."""
        ...


class Module(Protocol):
    """A loaded cubin."""

    def kernel(self, entry: str) -> Kernel:
        """The entry point of that name.

        Raises:
            DriverError: the module has no such entry.
        """
        ...

    def prepare(self, launch: Launch, values: Values) -> Callable[[], None]:
        """Packs the arguments once; each call of the result enqueues the launch.

        Asks for more than the default shared memory where the launch needs it.

        Raises:
            TemplateError: the kernel takes an argument that `values` lacks.
            DriverError: no such entry, or more shared memory than the device has.
        """
        ...

    def unload(self) -> None:
        """Frees the device memory of the code; prepared launches must not be called again."""
        ...


class Event(Protocol):
    """A point in the stream."""

    def record(self) -> None:
        """Enqueues it."""
        ...

    def is_done(self) -> bool:
        """Whether the device has come to it; does not wait."""
        ...

    def elapsed_ns(self, start: Event) -> float:
        """Waits for this event; the time since `start` in ns."""
        ...


class Context(Protocol):
    """The primary context of one device."""

    device: Device

    def load(self, cubin: bytes) -> Module:
        """Loads a cubin.

        Raises:
            DriverError: the image is not for this device or this driver.
        """
        ...

    def allocate(self, size_bytes: int) -> int:
        """Address of new memory, a multiple of 256."""
        ...

    def free(self, address: int) -> None:
        """Frees what `allocate` gave."""
        ...

    def fill_bytes(self, address: int, value: int, count: int) -> None:
        """Enqueues a fill with one byte."""
        ...

    def fill_words(self, address: int, value: int, count: int) -> None:
        """Enqueues a fill with one 32-bit word; the address is a multiple of 4."""
        ...

    def copy(self, target: int, source: int, size_bytes: int) -> None:
        """Enqueues a copy inside the device."""
        ...

    def upload(self, address: int, array: np.ndarray) -> None:
        """Copies a contiguous array to the device."""
        ...

    def download(self, array: np.ndarray, address: int) -> None:
        """Waits for the stream, then fills a contiguous array from the device."""
        ...

    def event(self) -> Event:
        """A new event."""
        ...

    def synchronize(self) -> None:
        """Waits for everything that was enqueued.

        Raises:
            DriverError: a kernel faulted; every later call of this process fails too.
        """
        ...

    def memory(self) -> tuple[int, int]:
        """Free and total bytes of the device."""
        ...

    def close(self) -> None:
        """Releases the context and makes the caller's current again; may be called twice."""
        ...


class Door(Protocol):
    """One binding to the driver."""

    name: str

    def devices(self) -> list[Device]:
        """The devices that CUDA shows to this process, in CUDA's order."""
        ...

    def open(self, index: int) -> Context:
        """The primary context of a device, current in this thread until it is closed."""
        ...


def choose(name: str | None = None) -> Door:
    """The door of that name; `AUTOTUNE_DOOR` else; the first that works where neither says.

    Raises:
        UsageError: no door of that name.
        DeviceError: there is no driver, or no GPU.
        MissingExtraError: pycuda was asked for and is not installed.
    """
    name = name or settings.read("AUTOTUNE_DOOR")
    if name not in (None, *DOORS):
        raise UsageError(f"{name!r} is not a door to the driver; possible are {', '.join(DOORS)}")
    bindings = import_module("autotune.gpu.bindings")
    bindings.start()
    if name != "cuda-bindings":
        # Its extension links to the driver, so without one the import fails even where it is
        # installed; `start` has already said so.
        try:
            return cast(Door, import_module("autotune.gpu.pycuda").PyCuda())
        except ModuleNotFoundError as error:
            if name == "pycuda":
                raise MissingExtraError(
                    f"AUTOTUNE_DOOR asks for pycuda, which is not installed ({error}); "
                    "pip install 'autotune-cuda[gpu]', or use AUTOTUNE_DOOR=cuda-bindings"
                ) from error
        except ImportError as error:
            if name == "pycuda":
                raise DeviceError(
                    f"pycuda is installed but does not load: {error}; rebuild it against this "
                    "driver, or use AUTOTUNE_DOOR=cuda-bindings"
                ) from error
    return cast(Door, bindings.Bindings())


_TYPES: dict[str, Callable[[Any], np.number[Any]]] = {
    "operand": np.uint64,
    "workspace": np.uint64,
    "int32": np.int32,
    "int64": np.int64,
    "float32": np.float32,
}


def pack(launch: Launch, values: Values) -> list[np.number[Any] | bytes]:
    """The launch's arguments, each in the width that the kernel declares.

    Raises:
        TemplateError: an operand, workspace or scalar that `values` lacks.
        DriverError: the driver refuses a tensor map.
    """
    packed: list[np.number[Any] | bytes] = []
    for argument in launch.arguments:
        value: int | float = argument.value
        if argument.kind not in ("int32", "int64"):
            name = argument.tensor_map.operand if argument.tensor_map else argument.name
            if name not in values:
                raise TemplateError(
                    f"kernel {launch.entry} takes {argument.kind} {name!r}, which neither "
                    f"problem nor plan has; they have {', '.join(values)}"
                )
            value = values[name]
        if argument.tensor_map:
            bindings = import_module("autotune.gpu.bindings")
            packed.append(bindings.encoded(argument.tensor_map, int(value)))
        else:
            packed.append(_TYPES[argument.kind](value))
    return packed
