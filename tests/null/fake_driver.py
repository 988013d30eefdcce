"""cuda-bindings' driver whose devices are host memory and whose kernels are NumPy.

A fake cubin is the digest of its source. A launch reads its arguments out of the frame as the
driver would, finds by them which of the problems with that source it computes, and multiplies what
lies at its addresses. What real drivers forbid is forbidden here: a function in another context,
more shared memory than was asked for, memory that is allocated while a stream is captured.
"""

from __future__ import annotations

import ctypes
import itertools
import pickle
import struct
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

from autotune import archs
from autotune.gpu import bindings, caller
from autotune.runtime import arrays, binary, gemm, plan
from autotune.runtime.calls import Calls
from autotune.runtime.once import Once
from autotune.types import Binary, Device, Launch, LaunchPlan, Operand, Problem, Variant

RESULTS = driver.CUresult
NONE, ACTIVE = (
    driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE,
    driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE,
)
MODES = driver.CUstreamCaptureMode
FORMATS = {"operand": "<Q", "workspace": "<Q", "int32": "<i", "int64": "<q", "float32": "<f"}


class Refused(Exception):
    """A call that fails, with the status' name."""


def at(address: int, operand: Operand) -> np.ndarray:
    """The operand's (batch, rows, columns) elements at an address of this process."""
    if not operand.span_elements:
        return np.zeros((operand.batch, operand.rows, operand.columns), np.float32)
    flat = np.frombuffer((ctypes.c_float * operand.span_elements).from_address(address), np.float32)
    strides = (4 * operand.batch_stride, 4 * operand.leading_dimension, 4)
    shape = (operand.batch, operand.rows, operand.columns)
    return np.lib.stride_tricks.as_strided(flat, shape, strides)


class Context:
    """A context of a device: what is loaded and allocated in it."""

    numbers = itertools.count(1)

    def __init__(self, device: int) -> None:
        self.device = device
        self.number = next(self.numbers)
        self.memory: dict[int, np.ndarray] = {}
        self.is_alive = True

    def __int__(self) -> int:
        return self.number


class FakeDriver:
    """Answers the calls of `autotune.gpu` and keeps their names.

    Attributes:
        devices: Count and kind.
        capturing: Handles of streams that are captured.
        captured: What was enqueued on them.
        fail: Names of functions that fail, with the status.
        launches: Entry, stream and values by name of each launch.
        before_launch: Called each once, before a launch reads its arguments.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, arch: int = 75, count: int = 2) -> None:
        typical = archs.get(arch).typical
        self.devices = [
            replace(typical, index=index, uuid=f"GPU-{index:08}-fake", driver=13000)
            for index in range(count)
        ]
        self.calls: list[tuple[str, threading.Thread]] = []
        self.launches: list[tuple[str, int, dict[str, Any]]] = []
        self.before_launch: list[Callable[[], object]] = []
        self.allowed_bytes: dict[int, int] = {}
        self.capturing: set[int] = set()
        self.captured: list[str] = []
        self.fail: dict[str, str] = {}
        self.streams: dict[int, int] = {}
        self.placed: list[tuple[int, int, int, Context | None]] = []
        self._primaries: dict[int, Context] = {}
        self._threads = threading.local()
        self._handles: dict[int, Any] = {}
        self._numbers = itertools.count(1000)
        self._lock = threading.RLock()
        for name in dir(self):
            if name.startswith("cu") and name[2].isupper():
                monkeypatch.setattr(driver, name, self._function(name, getattr(self, name)))
        monkeypatch.setattr(bindings, "devices", lambda: self.devices)
        monkeypatch.setattr(bindings, "start", lambda: None)
        monkeypatch.setattr(bindings, "_started_in_process", None)
        monkeypatch.setattr(bindings, "encoded", self._encoded)
        monkeypatch.setattr(caller, "_primaries", {})
        caller.device.cache_clear()
        SOURCES.clear()
        monkeypatch.setattr(plan, "_workspaces", Once())
        monkeypatch.setattr(plan, "_modules", Once())
        monkeypatch.setattr(gemm, "_plans", Once())
        monkeypatch.setattr(gemm, "_searched", set())
        monkeypatch.setattr(gemm, "_calls", Calls(gemm._bind))
        monkeypatch.setattr(gemm, "_tuning_calls", Calls(gemm._bind_tuned))
        monkeypatch.setattr(binary, "binary", compiled)
        arrays.libraries.clear()
        monkeypatch.setattr(arrays, "_made", cache(arrays._made.__wrapped__))

    def _function(self, name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
        def function(*args: Any) -> tuple[Any, ...]:
            with self._lock:
                self.calls.append((name, threading.current_thread()))
                try:
                    if name in self.fail:
                        raise Refused(self.fail[name])
                    values = answer(*args)
                except Refused as error:
                    status = getattr(RESULTS, f"CUDA_ERROR_{error}")
                    return status, None
            if values is None:
                return (RESULTS.CUDA_SUCCESS,)
            return (RESULTS.CUDA_SUCCESS, values)

        function.__name__ = name
        return function

    # *** contexts ***

    @property
    def stack(self) -> list[Context]:
        """The contexts of this thread, the current one last."""
        if not hasattr(self._threads, "stack"):
            self._threads.stack = []
        found: list[Context] = self._threads.stack
        return found

    def primary(self, device: int) -> Context:
        """The primary context of a device."""
        if device not in self._primaries or not self._primaries[device].is_alive:
            self._primaries[device] = Context(device)
        return self._primaries[device]

    def destroy(self, context: Context) -> None:
        """With all that was loaded and allocated in it."""
        context.is_alive = False
        context.memory.clear()

    def current(self) -> Context:
        if not self.stack:
            raise Refused("INVALID_CONTEXT")
        if not self.stack[-1].is_alive:
            raise Refused("CONTEXT_IS_DESTROYED")
        return self.stack[-1]

    def cuCtxGetId(self, context: Any) -> int:
        return self.current().number

    def cuCtxGetCurrent(self) -> Any:
        return self.stack[-1] if self.stack else 0

    def cuCtxGetDevice(self) -> int:
        return self.current().device

    def cuDeviceGet(self, index: int) -> int:
        return index

    def cuDevicePrimaryCtxRetain(self, device: int) -> Context:
        return self.primary(device)

    def cuCtxPushCurrent(self, context: Context) -> None:
        if not context.is_alive:
            raise Refused("CONTEXT_IS_DESTROYED")
        self.stack.append(context)

    def cuCtxPopCurrent(self) -> Context:
        return self.stack.pop()

    def cuCtxSynchronize(self) -> None:
        self._not_in_capture()

    # *** streams ***

    def cuStreamGetId(self, stream: int) -> int:
        return self.streams.setdefault(int(stream), next(self._numbers))

    def cuStreamIsCapturing(self, stream: int) -> Any:
        self.current()
        return ACTIVE if int(stream) in self.capturing else NONE

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> Any:
        before = getattr(self._threads, "mode", MODES.CU_STREAM_CAPTURE_MODE_GLOBAL)
        self._threads.mode = mode
        return before

    def _not_in_capture(self) -> None:
        mode = getattr(self._threads, "mode", MODES.CU_STREAM_CAPTURE_MODE_GLOBAL)
        if self.capturing and mode != MODES.CU_STREAM_CAPTURE_MODE_RELAXED:
            raise Refused("STREAM_CAPTURE_UNSUPPORTED")

    def cuEventCreate(self, flags: Any) -> str:
        return "event"

    def cuEventRecord(self, event: Any, stream: int) -> None:
        self.launches.append(("record", int(stream), {}))

    def cuStreamWaitEvent(self, stream: int, event: Any, flags: int) -> None:
        self.launches.append(("wait", int(stream), {}))

    def cuEventDestroy(self, event: Any) -> None:
        return None

    # *** memory ***

    def place(self, array: np.ndarray, device: int = 0, context: Context | None = None) -> None:
        """The memory of a host array counts as that of a device, and of a context of it, from now
        on."""
        low, high = np.lib.array_utils.byte_bounds(array)
        self.placed.append((low, high, device, context))

    def cuPointerGetAttribute(self, attribute: Any, address: int) -> Any:
        for low, high, device, context in reversed(self.placed):
            if low <= address < high:
                is_context = attribute.name.endswith("_CONTEXT")
                return (context or 0) if is_context else device
        raise Refused("INVALID_VALUE")

    def cuMemAlloc(self, size_bytes: int) -> int:
        self._not_in_capture()
        memory = np.full(size_bytes + 256, 0xAB, np.uint8)
        address = -(-memory.ctypes.data // 256) * 256
        self.current().memory[address] = memory
        return address

    def cuMemFree(self, address: int) -> None:
        self._not_in_capture()
        del self.current().memory[address]

    def cuMemAllocAsync(self, size_bytes: int, stream: int) -> int:
        assert int(stream) in self.capturing, "only graphs allocate in the order of a stream"
        self.captured.append(f"allocate {size_bytes}")
        memory = np.full(size_bytes + 256, 0xAB, np.uint8)
        address = -(-memory.ctypes.data // 256) * 256
        self.current().memory[address] = memory
        return address

    def cuMemFreeAsync(self, address: int, stream: int) -> None:
        self.captured.append("free")
        del self.current().memory[address]

    def cuMemsetD8Async(self, address: int, value: int, count: int, stream: int) -> None:
        if int(stream) in self.capturing:
            self.captured.append(f"zero {count}")
        ctypes.memset(address, value, count)

    # *** kernels ***

    def cuModuleLoadData(self, cubin: bytes) -> int:
        self._not_in_capture()
        handle = next(self._numbers)
        self._handles[handle] = self.current(), cubin.decode(), {}
        return handle

    def cuModuleGetFunction(self, module: int, entry: bytes) -> int:
        context, body, functions = self._handles[module]
        if entry not in functions:
            functions[entry] = next(self._numbers)
            self._handles[functions[entry]] = context, body, entry.decode()
        return int(functions[entry])

    def cuFuncGetAttribute(self, attribute: Any, function: int) -> int:
        return 64

    def cuFuncSetAttribute(self, function: int, attribute: Any, value: int) -> None:
        self.allowed_bytes[function] = value

    @staticmethod
    def _encoded(tensor_map: Any, address: int) -> bytes:
        return pickle.dumps((tensor_map.operand, address)).ljust(128, b"\0")

    def cuLaunchKernel(self, function: int, *rest: Any) -> None:
        context, body, entry = self._handles[function]
        if context is not self.current():
            raise Refused("INVALID_HANDLE")
        if self.before_launch:
            self.before_launch.pop()()
        *shape, shared_bytes, stream, pointers, _ = rest
        assert 64 + shared_bytes <= max(48 * 1024, self.allowed_bytes.get(function, 0) + 64)
        problem, launch_plan, launch, values = described(body, entry, shape, shared_bytes, pointers)
        self.launches.append((launch.entry, int(stream), values))
        if int(stream) in self.capturing:
            self.captured.append(launch.entry)
        run(problem, launch_plan, launch, values)


SOURCES: dict[str, list[tuple[Problem, LaunchPlan]]] = {}
"""What was compiled, by the digest of the source."""


def described(
    source: str, entry: str, shape: list[int], shared_bytes: int, pointers: int
) -> tuple[Problem, LaunchPlan, Launch, dict[str, Any]]:
    """The problem whose launch this is, and the values of the arguments."""
    near = []
    for problem, launch_plan in SOURCES[source]:
        for launch in launch_plan.launches:
            there = (launch.entry, *launch.grid, *launch.block, launch.shared_bytes)
            if there != (entry, *shape, shared_bytes):
                continue
            values = arguments(launch, pointers)
            if values is None:
                continue
            near.append(problem.key)
            if all(values[o.name] % o.alignment_bytes == 0 for o in used(problem, values)):
                return problem, launch_plan, launch, values
    raise AssertionError(f"no plan has such a launch of {entry}, or none is aligned so: {near}")


def used(problem: Problem, values: dict[str, Any]) -> list[Operand]:
    """The operands that a launch is given and may touch."""
    return [each for each in problem.operands if each.span_elements and each.name in values]


def arguments(launch: Launch, pointers: int) -> dict[str, Any] | None:
    """The values of a launch's arguments, by name, as the driver reads them; None where a size is
    another one's."""
    found: dict[str, Any] = {}
    listed = (ctypes.c_void_p * len(launch.arguments)).from_address(pointers)
    for argument, pointer in zip(launch.arguments, listed, strict=True):
        if argument.kind == "tensor_map":
            assert pointer % 64 == 0
            operand, address = pickle.loads(ctypes.string_at(pointer, 128))
            found[operand] = address
            continue
        format_ = FORMATS[argument.kind]
        raw = ctypes.string_at(pointer, struct.calcsize(format_))
        (found[argument.name],) = struct.unpack(format_, raw)
        if argument.kind in ("int32", "int64") and found[argument.name] != argument.value:
            return None
    return found


def run(problem: Problem, launch_plan: LaunchPlan, launch: Launch, values: dict[str, Any]) -> None:
    """What a launch does. One that adds up parts finds in them whose they are."""
    for workspace in launch_plan.workspaces:
        if workspace.name not in values:
            continue
        words = (ctypes.c_uint32 * (workspace.size_bytes // 4)).from_address(values[workspace.name])
        if workspace.is_zeroed:
            assert not any(words), f"{workspace.name} was not zero before the launch"
        elif launch is launch_plan.launches[-1] and len(launch_plan.launches) > 1:
            assert words[0] == values["c"] & 0xFFFFFFFF, "another launch wrote into the parts"
        else:
            words[0] = values["c"] & 0xFFFFFFFF
    if launch.entry == "sgemm":
        a, b, c = problem.operands
        # What BLAS does not read may hold anything.
        inputs = {"a": at(values["a"], a), "b": at(values["b"], b), "c": at(values["c"], c)}
        scalars = {"alpha": values["alpha"], "beta": values.get("beta", 0.0)}
        at(values["c"], c)[...] = problem.reference(inputs, scalars)[0]


def compiled(variant: Variant, device: Device) -> Binary:
    """A binary that names its source, by which the driver finds what it computes."""
    same = SOURCES.setdefault(variant.source_sha256, [])
    same.append((variant.problem, variant.plan))
    return Binary(
        arch=variant.arch, compiler="fake", cubin=variant.source_sha256.encode(),
        registers=32, static_shared_bytes=0, spill_bytes=0, stack_bytes=0, log="",
        compile_seconds=0.0,
    )  # fmt: skip


class Shown:
    """A host array that says it lies on a GPU, by the array interface."""

    def __init__(self, array: np.ndarray, **fields: Any) -> None:
        self.array = array
        self.fields = fields

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        address, is_read_only = self.array.__array_interface__["data"]
        return {
            "shape": self.array.shape,
            "strides": None if self.array.flags.c_contiguous else self.array.strides,
            "typestr": self.array.dtype.str,
            "data": (address, is_read_only),
            "version": 3,
            **self.fields,
        }
