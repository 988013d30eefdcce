"""The driver through cuda-bindings: plain wheels, 12.8 or later."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from cuda.bindings import driver

from autotune import archs
from autotune.errors import DeviceError, DriverError
from autotune.gpu import Event, Kernel, Values, pack
from autotune.types import Device, Launch, TensorMap

FORK_RULE = (
    "CUDA was started before this process was forked, and a forked child cannot use it; start "
    "child processes with multiprocessing.get_context('spawn')"
)
_NOT_INITIALIZED = 3
_DEFAULT_STREAM = 0

_started_in_process: int | None = None


def start() -> None:
    """Starts CUDA in this process; cheap when it has been started before.

    Raises:
        DeviceError: there is no driver, or no GPU.
        DriverError: the process was forked from one that had started CUDA.
    """
    global _started_in_process
    try:
        call(driver.cuInit, 0)
        count = call(driver.cuDeviceGetCount)
    except DriverError as error:
        if error.name == "CUDA_ERROR_NO_DEVICE":
            raise DeviceError(_no_gpu()) from error
        raise
    except RuntimeError as error:  # cuda-bindings found no libcuda
        raise DeviceError(
            f"there is no NVIDIA driver: libcuda.so.1 does not load ({error}); install the driver, "
            "or search without a GPU by naming an architecture, for example --arch 75"
        ) from error
    if count == 0:
        raise DeviceError(_no_gpu())
    _started_in_process = os.getpid()


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Calls a driver function; its result without the status.

    Raises:
        DriverError: the status is not success.
    """
    if _started_in_process not in (None, os.getpid()):
        raise DriverError(
            function.__name__, _NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", FORK_RULE
        )
    status, *values = function(*args)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise failure(function.__name__, status)
    return values[0] if len(values) == 1 else tuple(values)


def failure(name: str, status: driver.CUresult, hint: str = "") -> DriverError:
    """The error of a call that did not succeed."""
    if status == _NOT_INITIALIZED:
        hint = FORK_RULE
    return DriverError(name, int(status), status.name, hint)


def devices() -> list[Device]:
    """The devices that CUDA shows to this process; both doors number them alike.

    Raises:
        DeviceError: there is no driver, or no GPU.
    """
    start()
    version = call(driver.cuDriverGetVersion)
    return [_device(index, version) for index in range(call(driver.cuDeviceGetCount))]


def _device(index: int, version: int) -> Device:
    handle = call(driver.cuDeviceGet, index)

    def attribute(name: str) -> int:
        key = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(call(driver.cuDeviceGetAttribute, key, handle))

    def text(raw: bytes) -> str:
        return raw.split(b"\0", 1)[0].decode(errors="replace")

    # The second version tells the instances of a partitioned GPU apart; later releases know it
    # under the plain name alone.
    uuid = call(getattr(driver, "cuDeviceGetUuid_v2", driver.cuDeviceGetUuid), handle)
    arch = attribute("COMPUTE_CAPABILITY_MAJOR") * 10 + attribute("COMPUTE_CAPABILITY_MINOR")
    return Device(
        name=text(call(driver.cuDeviceGetName, 256, handle)),
        arch=arch,
        sm_count=attribute("MULTIPROCESSOR_COUNT"),
        cores_per_sm=archs.cores_per_sm(arch),
        memory_bytes=int(call(driver.cuDeviceTotalMem, handle)),
        l2_bytes=attribute("L2_CACHE_SIZE"),
        sm_clock_khz=attribute("CLOCK_RATE"),
        memory_clock_khz=attribute("MEMORY_CLOCK_RATE"),
        memory_bus_bits=attribute("GLOBAL_MEMORY_BUS_WIDTH"),
        shared_bytes_per_block=attribute("MAX_SHARED_MEMORY_PER_BLOCK"),
        shared_bytes_per_block_optin=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        shared_bytes_per_sm=attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        registers_per_sm=attribute("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        threads_per_block=attribute("MAX_THREADS_PER_BLOCK"),
        threads_per_sm=attribute("MAX_THREADS_PER_MULTIPROCESSOR"),
        blocks_per_sm=attribute("MAX_BLOCKS_PER_MULTIPROCESSOR"),
        warp_size=attribute("WARP_SIZE"),
        block_dimensions=(
            attribute("MAX_BLOCK_DIM_X"),
            attribute("MAX_BLOCK_DIM_Y"),
            attribute("MAX_BLOCK_DIM_Z"),
        ),
        grid_dimensions=(
            attribute("MAX_GRID_DIM_X"),
            attribute("MAX_GRID_DIM_Y"),
            attribute("MAX_GRID_DIM_Z"),
        ),
        index=index,
        uuid=_uuid_text(bytes(uuid.bytes)),
        bus_id=text(call(driver.cuDeviceGetPCIBusId, 32, handle)),
        driver=int(version),
    )


def _uuid_text(raw: bytes) -> str:
    digits = raw[:16].hex()
    ends = (0, 8, 12, 16, 20, 32)
    return "GPU-" + "-".join(digits[a:b] for a, b in pairwise(ends))


def _no_gpu() -> str:
    return (
        "the NVIDIA driver shows no GPU to this process; check CUDA_VISIBLE_DEVICES and, in a "
        "container, that it was started with GPU access (--gpus all)"
    )


@dataclasses.dataclass(slots=True)
class BindingsKernel:
    """An entry point; see `gpu.Kernel`."""

    handle: Any
    registers: int
    local_bytes: int
    static_shared_bytes: int
    threads_per_block: int

    @classmethod
    def of(cls, handle: Any) -> BindingsKernel:
        """The kernel with its attributes read."""

        def attribute(name: str) -> int:
            key = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
            return int(call(driver.cuFuncGetAttribute, key, handle))

        return cls(
            handle=handle,
            registers=attribute("NUM_REGS"),
            local_bytes=attribute("LOCAL_SIZE_BYTES"),
            static_shared_bytes=attribute("SHARED_SIZE_BYTES"),
            threads_per_block=attribute("MAX_THREADS_PER_BLOCK"),
        )

    def blocks_per_sm(self, threads: int, shared_bytes: int) -> int:
        self.allow_shared(shared_bytes)
        return int(
            call(
                driver.cuOccupancyMaxActiveBlocksPerMultiprocessor,
                self.handle,
                threads,
                shared_bytes,
            )
        )

    def allow_shared(self, dynamic_bytes: int) -> None:
        """Asks for the memory beyond the default, which counts static and dynamic together."""
        if self.static_shared_bytes + dynamic_bytes > 48 * archs.KIB:
            key = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call(driver.cuFuncSetAttribute, self.handle, key, dynamic_bytes)


class BindingsModule:
    """A loaded cubin; see `gpu.Module`."""

    def __init__(self, cubin: bytes) -> None:
        self._handle = call(driver.cuModuleLoadData, cubin)

    def _kernel(self, entry: str) -> BindingsKernel:
        return BindingsKernel.of(call(driver.cuModuleGetFunction, self._handle, entry.encode()))

    def kernel(self, entry: str) -> Kernel:
        return self._kernel(entry)

    def prepare(self, launch: Launch, values: Values) -> Callable[[], None]:
        kernel = self._kernel(launch.entry)
        kernel.allow_shared(launch.shared_bytes)
        arguments = pack(launch, values)
        # One slot an argument, and their addresses: what cuLaunchKernel reads at each call.
        raw = [each if isinstance(each, bytes) else each.tobytes() for each in arguments]
        width = max(map(len, raw), default=0) + 7 & ~7
        slots = np.zeros((max(1, len(raw)), max(8, width)), np.uint8)
        for slot, argument in zip(slots, raw, strict=False):
            slot[: len(argument)] = np.frombuffer(argument, np.uint8)
        addresses = slots.ctypes.data + slots.shape[1] * np.arange(len(slots), dtype=np.uint64)

        def enqueue(
            handle: Any = kernel.handle, keep: tuple[np.ndarray, ...] = (slots, addresses)
        ) -> None:
            call(
                driver.cuLaunchKernel,
                handle,
                *launch.grid,
                *launch.block,
                launch.shared_bytes,
                _DEFAULT_STREAM,
                keep[1].ctypes.data,
                0,
            )

        return enqueue

    def unload(self) -> None:
        if self._handle is not None:
            handle, self._handle = self._handle, None
            call(driver.cuModuleUnload, handle)


class BindingsEvent:
    """An event with timing; see `gpu.Event`."""

    def __init__(self) -> None:
        self.handle = call(driver.cuEventCreate, 0)

    def record(self) -> None:
        call(driver.cuEventRecord, self.handle, _DEFAULT_STREAM)

    def is_done(self) -> bool:
        (status,) = driver.cuEventQuery(self.handle)
        if status == driver.CUresult.CUDA_ERROR_NOT_READY:
            return False
        if status != driver.CUresult.CUDA_SUCCESS:
            raise failure("cuEventQuery", status)
        return True

    def elapsed_ns(self, start: Event) -> float:
        assert isinstance(start, BindingsEvent)
        call(driver.cuEventSynchronize, self.handle)
        return float(call(driver.cuEventElapsedTime, start.handle, self.handle)) * 1e6

    def __del__(self) -> None:
        driver.cuEventDestroy(self.handle)


class BindingsContext:
    """The primary context of one device; see `gpu.Context`."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._handle = call(driver.cuDeviceGet, device.index)
        context = call(driver.cuDevicePrimaryCtxRetain, self._handle)
        try:
            call(driver.cuCtxPushCurrent, context)
        except DriverError:
            call(driver.cuDevicePrimaryCtxRelease, self._handle)
            raise
        self._is_open = True

    def load(self, cubin: bytes) -> BindingsModule:
        return BindingsModule(cubin)

    def allocate(self, size_bytes: int) -> int:
        return int(call(driver.cuMemAlloc, size_bytes))

    def free(self, address: int) -> None:
        call(driver.cuMemFree, address)

    def fill_bytes(self, address: int, value: int, count: int) -> None:
        call(driver.cuMemsetD8, address, value, count)

    def fill_words(self, address: int, value: int, count: int) -> None:
        call(driver.cuMemsetD32, address, value, count)

    def copy(self, target: int, source: int, size_bytes: int) -> None:
        call(driver.cuMemcpyDtoD, target, source, size_bytes)

    def upload(self, address: int, array: np.ndarray) -> None:
        call(driver.cuMemcpyHtoD, address, array.ctypes.data, array.nbytes)

    def download(self, array: np.ndarray, address: int) -> None:
        call(driver.cuMemcpyDtoH, array.ctypes.data, address, array.nbytes)

    def event(self) -> BindingsEvent:
        return BindingsEvent()

    def synchronize(self) -> None:
        call(driver.cuCtxSynchronize)

    def memory(self) -> tuple[int, int]:
        free, total = call(driver.cuMemGetInfo)
        return int(free), int(total)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            call(driver.cuCtxPopCurrent)
            call(driver.cuDevicePrimaryCtxRelease, self._handle)


class Bindings:
    """The door through cuda-bindings; see `gpu.Door`."""

    name = "cuda-bindings"

    def devices(self) -> list[Device]:
        return devices()

    def open(self, index: int) -> BindingsContext:
        return BindingsContext(pick(index))


def encoded(tensor_map: TensorMap, address: int) -> bytes:
    """The 128 bytes that the copy engine reads, for an operand at this address.

    Raises:
        DriverError: the driver refuses it: an address or rows that are not multiples of 16 bytes.
    """
    swizzles = driver.CUtensorMapSwizzle
    swizzle = {
        0: swizzles.CU_TENSOR_MAP_SWIZZLE_NONE,
        32: swizzles.CU_TENSOR_MAP_SWIZZLE_32B,
        64: swizzles.CU_TENSOR_MAP_SWIZZLE_64B,
        128: swizzles.CU_TENSOR_MAP_SWIZZLE_128B,
    }[tensor_map.swizzle_bytes]
    sizes = (tensor_map.columns, tensor_map.rows)
    box = (tensor_map.box_columns, tensor_map.box_rows)
    found = call(
        driver.cuTensorMapEncodeTiled,
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        len(sizes),
        address,
        [driver.cuuint64_t(size) for size in sizes],
        [driver.cuuint64_t(4 * tensor_map.leading_dimension)],
        [driver.cuuint32_t(size) for size in box],
        [driver.cuuint32_t(1)] * len(sizes),
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        swizzle,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    return np.array([int(word) for word in found.opaque], np.uint64).tobytes()


def pick(index: int) -> Device:
    """The device of that number.

    Raises:
        DeviceError: there is none.
    """
    present = devices()
    if not 0 <= index < len(present):
        names = ", ".join(f"{device.index} ({device.name})" for device in present)
        raise DeviceError(f"there is no device {index}; present are {names}")
    return present[index]
