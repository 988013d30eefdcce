"""Both doors against a recorded driver: which calls are made, in which order, with what."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver
from fake_door import DEVICE

from autotune.errors import DeviceError, DriverError
from autotune.gpu import bindings
from autotune.types import Argument, Launch

SUCCESS = driver.CUresult.CUDA_SUCCESS

LAUNCH = Launch(
    entry="kernel",
    grid=(3, 2, 1),
    block=(16, 8, 1),
    shared_bytes=40_000,
    arguments=(
        Argument(kind="operand", name="a"),
        Argument(kind="int32", name="m", value=-7),
        Argument(kind="float32", name="alpha"),
        Argument(kind="int64", name="stride", value=2**40),
    ),
)
VALUES = {"a": 2**47 + 256, "alpha": 0.5}


class Driver:
    """Answers cuda-bindings calls and keeps them."""

    ATTRIBUTES = {  # noqa: RUF012
        "NUM_REGS": 99, "LOCAL_SIZE_BYTES": 8, "SHARED_SIZE_BYTES": 16_000,
        "MAX_THREADS_PER_BLOCK": 512,
    }  # fmt: skip

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.answers: dict[str, tuple[Any, ...]] = {
            "cuInit": (),
            "cuDeviceGetCount": (1,),
            "cuDeviceGet": ("device",),
            "cuDevicePrimaryCtxRetain": ("context",),
            "cuDevicePrimaryCtxRelease": (),
            "cuCtxPushCurrent": (),
            "cuCtxPopCurrent": ("context",),
            "cuModuleLoadData": ("module",),
            "cuModuleGetFunction": ("function",),
            "cuModuleUnload": (),
            "cuFuncSetAttribute": (),
            "cuOccupancyMaxActiveBlocksPerMultiprocessor": (2,),
            "cuLaunchKernel": (),
            "cuEventCreate": ("event",),
            "cuEventDestroy": (),
            "cuEventRecord": (),
            "cuEventSynchronize": (),
            "cuEventElapsedTime": (1.5,),
            "cuEventQuery": (),
            "cuMemGetInfo": (10, 20),
        }
        for name in [*self.answers, "cuFuncGetAttribute"]:
            monkeypatch.setattr(driver, name, self._function(name))
        monkeypatch.setattr(bindings, "_started_in_process", None)
        monkeypatch.setattr(bindings, "devices", lambda: [DEVICE])

    def _function(self, name: str) -> Any:
        def function(*args: Any) -> tuple[Any, ...]:
            self.calls.append((name, *args))
            if name == "cuFuncGetAttribute":
                return SUCCESS, self.ATTRIBUTES[args[0].name.removeprefix("CU_FUNC_ATTRIBUTE_")]
            if name == "cuLaunchKernel":
                pointers = (ctypes.c_void_p * 4).from_address(args[9])
                raw = [ctypes.string_at(pointer, 8) for pointer in pointers]
                self.arguments = (
                    struct.unpack("<Q", raw[0])[0],
                    struct.unpack("<i", raw[1][:4])[0],
                    struct.unpack("<f", raw[2][:4])[0],
                    struct.unpack("<q", raw[3])[0],
                )
            return SUCCESS, *self.answers[name]

        function.__name__ = name
        return function

    @property
    def names(self) -> list[str]:
        return [call[0] for call in self.calls]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch)


def test_bindings_context_is_pushed_and_popped_once(recorded: Driver) -> None:
    context = bindings.Bindings().open(0)
    assert recorded.names == ["cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent"]
    assert context.memory() == (10, 20)
    recorded.calls.clear()
    context.close()
    context.close()
    assert recorded.names == ["cuCtxPopCurrent", "cuDevicePrimaryCtxRelease"]


def test_bindings_event_is_asked_whether_it_is_done(
    recorded: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = bindings.Bindings().open(0).event()
    assert event.is_done()
    monkeypatch.setattr(
        driver, "cuEventQuery", lambda event: (driver.CUresult.CUDA_ERROR_NOT_READY,)
    )
    assert not event.is_done()
    broken = driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    monkeypatch.setattr(driver, "cuEventQuery", lambda event: (broken,))
    with pytest.raises(DriverError, match="cuEventQuery"):
        event.is_done()


def test_bindings_launch(recorded: Driver) -> None:
    module = bindings.Bindings().open(0).load(b"cubin")
    enqueue = module.prepare(LAUNCH, VALUES)
    # 16,000 static and 40,000 dynamic bytes together pass the default of 49,152.
    (opt_in,) = [call for call in recorded.calls if call[0] == "cuFuncSetAttribute"]
    assert opt_in[2].name == "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
    assert opt_in[3] == 40_000
    recorded.calls.clear()
    for _ in range(2):
        enqueue()
        assert recorded.arguments == (2**47 + 256, -7, 0.5, 2**40)
    assert recorded.names == ["cuLaunchKernel"] * 2, "nothing else while timed"
    assert recorded.calls[0][1:9] == ("function", 3, 2, 1, 16, 8, 1, 40_000)
    module.unload()
    module.unload()
    assert recorded.names[2:] == ["cuModuleUnload"]


def test_bindings_kernel_and_events(recorded: Driver) -> None:
    kernel = bindings.Bindings().open(0).load(b"cubin").kernel("kernel")
    assert (kernel.registers, kernel.local_bytes) == (99, 8)
    assert (kernel.static_shared_bytes, kernel.threads_per_block) == (16_000, 512)
    assert kernel.blocks_per_sm(256, 1000) == 2
    assert "cuFuncSetAttribute" not in recorded.names, "17,000 bytes need no opt-in"
    start, end = bindings.BindingsEvent(), bindings.BindingsEvent()
    assert end.elapsed_ns(start) == 1_500_000


def test_bindings_errors_carry_the_call(recorded: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def cuLaunchKernel(*args: Any) -> tuple[Any, ...]:
        return (driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS,)

    monkeypatch.setattr(driver, "cuLaunchKernel", cuLaunchKernel)
    enqueue = bindings.Bindings().open(0).load(b"cubin").prepare(LAUNCH, VALUES)
    with pytest.raises(DriverError) as caught:
        enqueue()
    assert (caught.value.call, caught.value.code) == ("cuLaunchKernel", 700)
    assert caught.value.name == "CUDA_ERROR_ILLEGAL_ADDRESS"


def test_bindings_refuse_a_number_that_is_not_there(recorded: Driver) -> None:
    with pytest.raises(DeviceError, match=r"there is no device 3; present are 0 \(Tesla T4\)"):
        bindings.Bindings().open(3)


# --- pycuda -----------------------------------------------------------------------------------


class FakeError(Exception):
    pass


class FakeFunction:
    def __init__(self) -> None:
        self.attributes: list[tuple[str, int]] = []
        self.launches: list[tuple[Any, ...]] = []
        self.types: list[type] = []

    def get_attribute(self, name: str) -> int:
        return Driver.ATTRIBUTES[name]

    def set_attribute(self, name: str, value: int) -> None:
        self.attributes.append((name, value))

    def prepare(self, types: list[type]) -> None:
        self.types = types

    def prepared_call(self, grid: object, block: object, *args: Any, shared_size: int) -> None:
        self.launches.append((grid, block, args, shared_size))


class PyCudaDriver(ModuleType):
    """What the adapter uses of pycuda.driver."""

    Error = FakeError
    function_attribute = SimpleNamespace(
        **{name: name for name in Driver.ATTRIBUTES},
        MAX_DYNAMIC_SHARED_SIZE_BYTES="MAX_DYNAMIC_SHARED_SIZE_BYTES",
    )

    def __init__(self) -> None:
        super().__init__("pycuda.driver")
        self.log: list[str] = []
        self.function = FakeFunction()
        self.fault = ""
        log, outer = self.log, self
        primary = SimpleNamespace(
            push=lambda: log.append("push"), detach=lambda: log.append("detach")
        )

        class Context:
            @staticmethod
            def pop() -> None:
                log.append("pop")

            @staticmethod
            def synchronize() -> None:
                if outer.fault:
                    raise FakeError(outer.fault)

        class Event:
            def record(self) -> None:
                log.append("record")

            def synchronize(self) -> None:
                log.append("wait")

            def time_till(self, end: Event) -> float:
                return 2.5

        self.Context, self.Event = Context, Event
        self.Device = lambda index: SimpleNamespace(retain_primary_context=lambda: primary)

    def init(self) -> None:
        self.log.append("init")

    def module_from_buffer(self, cubin: bytes) -> object:
        return SimpleNamespace(get_function=lambda name: self.function)

    def mem_alloc(self, size_bytes: int) -> object:
        class Allocation(int):
            def free(allocation) -> None:
                self.log.append(f"free {int(allocation)}")

        return Allocation(size_bytes)

    def mem_get_info(self) -> tuple[int, int]:
        return 10, 20


@pytest.fixture
def pycuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[PyCudaDriver]:
    fake = PyCudaDriver()
    package = ModuleType("pycuda")
    package.driver = fake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pycuda", package)
    monkeypatch.setitem(sys.modules, "pycuda.driver", fake)
    monkeypatch.delitem(sys.modules, "autotune.gpu.pycuda", raising=False)
    monkeypatch.setattr(bindings, "devices", lambda: [DEVICE])
    yield fake
    sys.modules.pop("autotune.gpu.pycuda", None)


def test_pycuda_context(pycuda: PyCudaDriver) -> None:
    door = import_module("autotune.gpu.pycuda").PyCuda()
    assert door.name == "pycuda" and door.devices() == [DEVICE]
    context = door.open(0)
    assert pycuda.log == ["init", "push"]
    first, second = context.allocate(512), context.allocate(1024)
    context.free(first)
    assert (first, second, context.memory()) == (512, 1024, (10, 20))
    context.close()
    context.close()
    assert pycuda.log[2:] == ["free 512", "free 1024", "pop", "detach"]


def test_pycuda_launch(pycuda: PyCudaDriver) -> None:
    context = import_module("autotune.gpu.pycuda").PyCuda().open(0)
    enqueue = context.load(b"cubin").prepare(LAUNCH, VALUES)
    assert pycuda.function.attributes == [("MAX_DYNAMIC_SHARED_SIZE_BYTES", 40_000)]
    assert pycuda.function.types == [np.uint64, np.int32, np.float32, np.int64]
    enqueue()
    assert pycuda.function.launches == [
        ((3, 2, 1), (16, 8, 1), (2**47 + 256, -7, 0.5, 2**40), 40_000)
    ]
    start, end = context.event(), context.event()
    assert end.elapsed_ns(start) == 2_500_000


def test_pycuda_errors_get_their_codes_back(
    pycuda: PyCudaDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cuGetErrorString(code: Any) -> tuple[Any, ...]:
        if code == 700:
            return SUCCESS, b"an illegal memory access was encountered"
        return driver.CUresult.CUDA_ERROR_INVALID_VALUE, b""

    monkeypatch.setattr(driver, "cuGetErrorString", cuGetErrorString)
    context = import_module("autotune.gpu.pycuda").PyCuda().open(0)
    pycuda.fault = "cuCtxSynchronize failed: an illegal memory access was encountered"
    with pytest.raises(DriverError) as caught:
        context.synchronize()
    assert (caught.value.call, caught.value.code) == ("cuCtxSynchronize", 700)
    assert caught.value.name == "CUDA_ERROR_ILLEGAL_ADDRESS"
    pycuda.fault = "cuCtxSynchronize failed: something new - with a note"
    with pytest.raises(DriverError) as caught:
        context.synchronize()
    assert caught.value.name == "CUDA_ERROR_UNKNOWN"
    assert "something new - with a note" in str(caught.value)
