"""The driver through pycuda. Importing this module needs pycuda and a driver.

Devices are listed through cuda-bindings: pycuda does not know their UUIDs, and the driver numbers
them alike for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pycuda.driver as cuda
from cuda.bindings import driver

from autotune import archs
from autotune.errors import DriverError
from autotune.gpu import Event, Kernel, Values, bindings, pack
from autotune.types import Device, Launch


@cache
def _codes() -> dict[str, driver.CUresult]:
    """Driver errors by their text: all that pycuda's exceptions keep of one."""
    codes = {}
    for code in driver.CUresult:
        status, text = driver.cuGetErrorString(code)
        if status == driver.CUresult.CUDA_SUCCESS and text:
            codes[text.decode()] = code
    return codes


@contextmanager
def _errors() -> Iterator[None]:
    """Turns pycuda's exceptions ("cuFoo failed: text - note") into ours."""
    try:
        yield
    except cuda.Error as error:
        function, _, rest = str(error).partition(" failed: ")
        text = rest.partition(" - ")[0].strip()
        code = _codes().get(text, driver.CUresult.CUDA_ERROR_UNKNOWN)
        hint = bindings.FORK_RULE if code.name == "CUDA_ERROR_NOT_INITIALIZED" else str(error)
        raise DriverError(function, int(code), code.name, hint) from error


class PyCudaKernel:
    """An entry point; see `gpu.Kernel`."""

    def __init__(self, function: Any, cubin: bytes, entry: str) -> None:
        names = cuda.function_attribute
        self.function = function
        self.registers = int(function.get_attribute(names.NUM_REGS))
        self.local_bytes = int(function.get_attribute(names.LOCAL_SIZE_BYTES))
        self.static_shared_bytes = int(function.get_attribute(names.SHARED_SIZE_BYTES))
        self.threads_per_block = int(function.get_attribute(names.MAX_THREADS_PER_BLOCK))
        self._cubin = cubin
        self._entry = entry

    def blocks_per_sm(self, threads: int, shared_bytes: int) -> int:
        # pycuda has no occupancy query of the driver and hides the handle: the other door asks,
        # in the same primary context.
        module = bindings.BindingsModule(self._cubin)
        try:
            return module.kernel(self._entry).blocks_per_sm(threads, shared_bytes)
        finally:
            module.unload()

    def allow_shared(self, dynamic_bytes: int) -> None:
        """Asks for the memory beyond the default, which counts static and dynamic together."""
        if self.static_shared_bytes + dynamic_bytes > 48 * archs.KIB:
            key = cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.function.set_attribute(key, dynamic_bytes)


class PyCudaModule:
    """A loaded cubin; see `gpu.Module`."""

    def __init__(self, cubin: bytes) -> None:
        self._cubin = cubin
        with _errors():
            self._module = cuda.module_from_buffer(cubin)
        self._other: bindings.BindingsModule | None = None

    def _kernel(self, entry: str) -> PyCudaKernel:
        with _errors():
            return PyCudaKernel(self._module.get_function(entry), self._cubin, entry)

    def kernel(self, entry: str) -> Kernel:
        return self._kernel(entry)

    def prepare(self, launch: Launch, values: Values) -> Callable[[], None]:
        if any(argument.kind == "tensor_map" for argument in launch.arguments):
            # pycuda hands all arguments over as one block, which the driver does not align to the
            # 64 bytes of a tensor map: seen with 580.159, the kernel reads every argument from a
            # wrong place. The other door hands over one by one, in the same context and stream.
            self._other = self._other or bindings.BindingsModule(self._cubin)
            return self._other.prepare(launch, values)
        kernel = self._kernel(launch.entry)
        arguments = pack(launch, values)
        with _errors():
            kernel.allow_shared(launch.shared_bytes)
            kernel.function.prepare([type(argument) for argument in arguments])

        def enqueue() -> None:
            with _errors():
                kernel.function.prepared_call(
                    launch.grid, launch.block, *arguments, shared_size=launch.shared_bytes
                )

        return enqueue

    def unload(self) -> None:
        # pycuda unloads with the last reference; functions hold one, so they must go as well.
        self._module = None
        if self._other is not None:
            self._other.unload()
            self._other = None


class PyCudaEvent:
    """An event with timing; see `gpu.Event`."""

    def __init__(self) -> None:
        with _errors():
            self.event = cuda.Event()

    def record(self) -> None:
        with _errors():
            self.event.record()

    def is_done(self) -> bool:
        with _errors():
            return bool(self.event.query())

    def elapsed_ns(self, start: Event) -> float:
        assert isinstance(start, PyCudaEvent)
        with _errors():
            self.event.synchronize()
            return float(start.event.time_till(self.event)) * 1e6


class PyCudaContext:
    """The primary context of one device; see `gpu.Context`."""

    def __init__(self, device: Device) -> None:
        self.device = device
        with _errors():
            cuda.init()
            self._context = cuda.Device(device.index).retain_primary_context()
            self._context.push()
        self._allocations: dict[int, Any] = {}

    def load(self, cubin: bytes) -> PyCudaModule:
        return PyCudaModule(cubin)

    def allocate(self, size_bytes: int) -> int:
        with _errors():
            allocation = cuda.mem_alloc(size_bytes)
        self._allocations[int(allocation)] = allocation
        return int(allocation)

    def free(self, address: int) -> None:
        with _errors():
            self._allocations.pop(address).free()

    def fill_bytes(self, address: int, value: int, count: int) -> None:
        with _errors():
            cuda.memset_d8(address, value, count)

    def fill_words(self, address: int, value: int, count: int) -> None:
        with _errors():
            cuda.memset_d32(address, value, count)

    def copy(self, target: int, source: int, size_bytes: int) -> None:
        with _errors():
            cuda.memcpy_dtod(target, source, size_bytes)

    def upload(self, address: int, array: np.ndarray) -> None:
        with _errors():
            cuda.memcpy_htod(address, array)

    def download(self, array: np.ndarray, address: int) -> None:
        with _errors():
            cuda.memcpy_dtoh(array, address)

    def event(self) -> PyCudaEvent:
        return PyCudaEvent()

    def synchronize(self) -> None:
        with _errors():
            cuda.Context.synchronize()

    def memory(self) -> tuple[int, int]:
        with _errors():
            free, total = cuda.mem_get_info()
        return int(free), int(total)

    def close(self) -> None:
        if self._context is not None:
            context, self._context = self._context, None
            with _errors():
                for allocation in self._allocations.values():
                    allocation.free()
                self._allocations.clear()
                cuda.Context.pop()
                context.detach()


class PyCuda:
    """The door through pycuda; see `gpu.Door`."""

    name = "pycuda"

    def devices(self) -> list[Device]:
        return bindings.devices()

    def open(self, index: int) -> PyCudaContext:
        return PyCudaContext(bindings.pick(index))
