"""The driver as the caller of a kernel has set it up: the current context, streams, addresses.

Through cuda-bindings alone: pycuda cannot launch on a stream that it did not create. Nothing here
leaves another context current than it found.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

from cuda.bindings import driver

from autotune.errors import DriverError
from autotune.gpu import bindings
from autotune.gpu.bindings import call
from autotune.types import Device

LEGACY_STREAM = 0
"""Handle of the default stream that waits for all others; interfaces of arrays write 1 for it."""

_CURRENT = driver.CUcontext(0)
_ORDINAL = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_CONTEXT = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_CONTEXT
_WITHOUT_CONTEXT = ("CUDA_ERROR_INVALID_CONTEXT", "CUDA_ERROR_CONTEXT_IS_DESTROYED")

_primaries: dict[int, driver.CUcontext] = {}
_lock = threading.Lock()


@cache
def device(index: int) -> Device:
    """The device of CUDA's number; asked once.

    Raises:
        DeviceError: there is none.
    """
    return bindings.pick(index)


# *** contexts ***


def context_id() -> int:
    """A number that only the context has which is current in this thread; 0 where none is.

    A handle would not do: a new context may get that of one which was destroyed.
    """
    status, number = driver.cuCtxGetId(_CURRENT)
    return 0 if status else int(number)


def current_device() -> int | None:
    """CUDA's number for the device of the current context; None without one."""
    status, handle = driver.cuCtxGetDevice()
    return None if status else int(handle)


@contextmanager
def on_device(index: int, address: int = 0) -> Iterator[None]:
    """Inside, a context of the device is current: the caller's own, or else that in which an
    address lies, or else the primary one.

    Args:
        address: On the device; 0 for none.

    Raises:
        DriverError: the primary context cannot be had.
    """
    if current_device() == index:
        yield
        return
    _push(index, address)
    try:
        yield
    finally:
        call(driver.cuCtxPopCurrent)


def _push(index: int, address: int) -> None:
    # Memory of a context is out of reach for others, also on its own device.
    status, owner = driver.cuPointerGetAttribute(_CONTEXT, address)
    if not status and int(owner):  # without one: memory of a pool, which all contexts reach
        call(driver.cuCtxPushCurrent, owner)
        return
    try:
        call(driver.cuCtxPushCurrent, _primary(index))
    except DriverError:
        # Somebody has reset it since; to hold it again makes a new one.
        with _lock:
            _primaries.pop(index, None)
        call(driver.cuCtxPushCurrent, _primary(index))


def _primary(index: int) -> driver.CUcontext:
    """The primary context, held from the first call to the end of the process."""
    with _lock:
        if index not in _primaries:
            bindings.start()
            handle = call(driver.cuDeviceGet, index)
            _primaries[index] = call(driver.cuDevicePrimaryCtxRetain, handle)
        return _primaries[index]


# *** streams ***


def stream_id(stream: int) -> int:
    """A number that no other stream has or will have; handles are used again."""
    status, number = driver.cuStreamGetId(stream)
    if status:
        raise bindings.failure("cuStreamGetId", status)
    return int(number)


def is_capturing(stream: int) -> bool:
    """Whether what is enqueued goes into a graph that is being captured."""
    status, state = driver.cuStreamIsCapturing(stream)
    if status:
        if status.name in _WITHOUT_CONTEXT:
            return False  # and so no capture was begun in it
        if status.name == "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT":
            return True  # the legacy stream, while one is captured that waits for it
        raise bindings.failure("cuStreamIsCapturing", status)
    return bool(state)  # 0 is CU_STREAM_CAPTURE_STATUS_NONE


def wait(stream: int, other: int) -> None:
    """What is enqueued on `stream` from now on waits for what is enqueued on `other` by now."""
    event = call(driver.cuEventCreate, driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)
    try:
        call(driver.cuEventRecord, event, other)
        call(driver.cuStreamWaitEvent, stream, event, 0)
    finally:
        call(driver.cuEventDestroy, event)  # the driver keeps it until it has passed


@contextmanager
def apart_from_captures() -> Iterator[None]:
    """Inside, loading and allocating do not break what other threads or streams capture."""
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = call(driver.cuThreadExchangeStreamCaptureMode, relaxed)
    try:
        yield
    finally:
        call(driver.cuThreadExchangeStreamCaptureMode, before)


# *** memory ***


def device_of(address: int) -> int:
    """CUDA's number for the device on which an address lies.

    Raises:
        DriverError: no live context has memory there.
    """
    status, ordinal = driver.cuPointerGetAttribute(_ORDINAL, address)
    if status and status.name in _WITHOUT_CONTEXT and current_device() is None:
        with on_device(0):
            status, ordinal = driver.cuPointerGetAttribute(_ORDINAL, address)
    if status:
        raise bindings.failure("cuPointerGetAttribute", status)
    return int(ordinal)


def locate(address: int) -> tuple[int, bool]:
    """CUDA's number for the device on which an address lies, and whether its memory is of the
    context that is current, so that it lives as long as that at most.

    Memory of the current context costs one query of the pointer, other memory two.

    Raises:
        DriverError: no live context has memory there.
    """
    status, owner = driver.cuPointerGetAttribute(_CONTEXT, address)
    if not status and int(owner):
        status, current = driver.cuCtxGetCurrent()
        if not status and int(current) == int(owner):
            index = current_device()
            if index is not None:
                return index, True
    return device_of(address), False


def allocate(size_bytes: int) -> int:
    """Address of new memory of the current context, a multiple of 256."""
    return int(call(driver.cuMemAlloc, size_bytes))


def free(address: int) -> None:
    """Waits for the current context's work, then frees what `allocate` gave."""
    with suppress(DriverError):  # a kernel faulted: the memory goes with the context
        call(driver.cuCtxSynchronize)
        call(driver.cuMemFree, address)


def allocate_on(stream: int, size_bytes: int) -> int:
    """Enqueues an allocation; in a capture it becomes a node of the graph."""
    return int(call(driver.cuMemAllocAsync, size_bytes, stream))


def free_on(stream: int, address: int) -> None:
    """Enqueues the end of what `allocate_on` gave."""
    call(driver.cuMemFreeAsync, address, stream)


def zero_on(stream: int, address: int, size_bytes: int) -> None:
    """Enqueues a fill with zeros."""
    call(driver.cuMemsetD8Async, address, 0, size_bytes, stream)
