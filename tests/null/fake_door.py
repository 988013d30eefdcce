"""A door to a device that is host memory and a clock of its own; kernels have planted faults.

A fake cubin is a pickled `Spec`; the probe's kernels are done in NumPy. Every launch adds the
spec's time to the clock that events read, so results do not depend on the machine.
"""

from __future__ import annotations

import os
import pickle
import signal
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from autotune import archs, gpu, verify
from autotune.errors import DriverError
from autotune.types import Argument, Device, Launch, LaunchPlan, Problem, Workspace

PROBE = b"probe"
DEVICE = replace(
    archs.get(75).typical, index=0, uuid="GPU-00000000-fake", bus_id="0000:3b:00.0", driver=13000
)


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What a fake kernel computes, how long it takes, and what is wrong with it."""

    problem: Problem
    fault: str = ""
    ns: float = 1e6
    registers: int = 128
    threads_per_block: int = 512
    static_shared_bytes: int = 0

    @property
    def cubin(self) -> bytes:
        return pickle.dumps(self)


def plan(
    problem: Problem,
    *,
    threads: int = 256,
    shared_bytes: int = 0,
    workspaces: tuple[Workspace, ...] = (),
) -> LaunchPlan:
    """One launch that takes the problem's operands and scalars, and workspaces."""
    arguments = [Argument(kind="operand", name=operand.name) for operand in problem.operands]
    arguments += [Argument(kind="float32", name=name) for name in problem.scalars]
    arguments += [Argument(kind="workspace", name=each.name) for each in workspaces]
    return LaunchPlan(
        launches=(
            Launch(
                entry="kernel",
                grid=(4, 1, 1),
                block=(threads, 1, 1),
                shared_bytes=shared_bytes,
                arguments=tuple(arguments),
            ),
        ),
        workspaces=workspaces,
    )


class FakeKernel:
    def __init__(self, spec: Spec | None) -> None:
        self.registers = spec.registers if spec else 16
        self.local_bytes = 0
        self.static_shared_bytes = spec.static_shared_bytes if spec else 0
        self.threads_per_block = spec.threads_per_block if spec else 1024

    def blocks_per_sm(self, threads: int, shared_bytes: int) -> int:
        return 1024 // threads


class FakeModule:
    def __init__(self, context: FakeContext, cubin: bytes) -> None:
        self.context = context
        self.spec = None if cubin == PROBE else pickle.loads(cubin)
        self.launches = 0
        context.modules += 1
        if self.spec and self.spec.fault == "load":
            context.modules -= 1
            raise DriverError("cuModuleLoadData", 209, "CUDA_ERROR_NO_BINARY_FOR_GPU")

    def kernel(self, entry: str) -> FakeKernel:
        return FakeKernel(self.spec)

    def prepare(self, launch: Launch, values: gpu.Values) -> Callable[[], None]:
        packed = gpu.pack(launch, values)
        if self.spec is None:
            numbers = [int(number) for number in packed]
            return partial(self.context.probe, launch.entry, numbers)
        return partial(self.run, self.spec, values)

    def unload(self) -> None:
        self.context.modules -= 1

    def run(self, spec: Spec, values: gpu.Values) -> None:
        context, fault, problem = self.context, spec.fault, spec.problem
        self.launches += 1
        ns = spec.ns
        if fault == "lazy" and self.launches == 1:
            ns += 1e8
        context.clock_ns += ns
        if fault == "hang":
            time.sleep(1000)
        elif fault == "exit":
            os._exit(3)
        elif fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == "bug":
            raise ZeroDivisionError("planted")
        elif fault == "launch":
            raise DriverError("cuLaunchKernel", 701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
        elif fault == "illegal" or (fault == "illegal late" and self.launches > 6):
            context.broken = "CUDA_ERROR_ILLEGAL_ADDRESS"
        elif fault == "wide" and any(
            int(values[operand.name]) % 32 for operand in problem.operands
        ):
            context.broken = "CUDA_ERROR_MISALIGNED_ADDRESS"
        if context.broken or fault == "empty":
            return
        arrays = {operand.name: context.operand(operand, values) for operand in problem.operands}
        inputs = {o.name: arrays[o.name].copy() for o in problem.operands if o.role != "out"}
        out = arrays[verify.output(problem).name]
        if fault == "tf32":
            inputs = {name: _to_tf32(values) for name, values in inputs.items()}
        if fault == "half k":
            for name, axis in (("a", 2), ("b", 1)):
                np.moveaxis(inputs[name], axis, 0)[inputs[name].shape[axis] // 2 :] = 0
        result = problem.reference(inputs, problem.scalars)[0].astype(np.float32)
        if fault == "half rows":
            out[:, ::2] = result[:, ::2]
            return
        if fault == "reads c":
            result = result + 0 * out
        out[...] = result
        if fault == "racy" and self.launches % 5 == 0:
            out[0, -1, -1] += 1
        where = fault.partition("corrupt ")[2]
        if where:
            out.ravel()  # a view's copy: indices below are of the operand, not of memory
            out[np.unravel_index(int(where) % out.size, out.shape)] += 1
        output = verify.output(problem)
        address = int(values[output.name])
        if fault == "writes guard":
            context.words(address + 4 * output.span_elements + 64, 1)[0] = 1
        if fault == "writes padding":
            context.words(address + 4 * output.columns, 1)[0] = 1
        for name in ("parts", "counters"):
            if name in values:
                self.use(name, int(values[name]))
        if fault == "writes input":
            context.words(int(values["a"]), 1)[0] ^= 1

    def use(self, name: str, address: int) -> None:
        """What a kernel does to a workspace of 1 KiB."""
        context, fault = self.context, self.spec.fault if self.spec else ""
        words = context.words(address, 256)
        if name == "counters":
            assert fault or not words.any(), "the counters were not zero before the run"
            words[3] = fault == "counts on"
            if fault == "counts wrong at last" and self.launches > 5:
                words[7] = 1
        else:
            words[:] = 1
            if fault == "writes beyond":
                context.words(address + 1024, 2)[1] = 1


class FakeEvent:
    def __init__(self, context: FakeContext) -> None:
        self.context = context
        self.at_ns = 0.0

    def record(self) -> None:
        self.at_ns = self.context.clock_ns

    def is_done(self) -> bool:
        return self.context.is_ahead()

    def elapsed_ns(self, start: FakeEvent) -> float:
        return self.at_ns - start.at_ns


class FakeContext:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.clock_ns = 0.0
        self.broken = ""
        self.modules = 0
        # Whether the device has done what was enqueued before the host is through with the next.
        self.is_ahead: Callable[[], bool] = lambda: False
        self.filled: list[tuple[int, int]] = []
        self._bases: list[int] = []
        self._blocks: dict[int, np.ndarray] = {}
        self._next = 256

    def load(self, cubin: bytes) -> FakeModule:
        return FakeModule(self, cubin)

    def allocate(self, size_bytes: int) -> int:
        base = self._next
        self._next += -(-size_bytes // 256) * 256
        self._bases.append(base)
        self._blocks[base] = np.zeros(size_bytes, np.uint8)
        return base

    def free(self, address: int) -> None:
        self._bases.remove(address)
        del self._blocks[address]

    def bytes_at(self, address: int, count: int) -> np.ndarray:
        base = self._bases[bisect_right(self._bases, address) - 1]
        start = address - base
        block = self._blocks[base]
        assert start >= 0 and start + count <= block.size, "outside of every allocation"
        return block[start : start + count]

    def words(self, address: int, count: int) -> np.ndarray:
        return self.bytes_at(address, 4 * count).view(np.uint32)

    def operand(self, operand: verify.Operand, values: gpu.Values) -> np.ndarray:
        words = self.words(int(values[operand.name]), operand.span_elements)
        placement = verify.Placement(operand=operand, offset_bytes=0, total_bytes=words.nbytes)
        return verify.elements(placement, words)

    def fill_bytes(self, address: int, value: int, count: int) -> None:
        self.clock_ns += 1000
        self.filled.append((address, count))
        target = self.bytes_at(address, count)
        if count < 2**20:  # not the flush buffer, which nobody reads
            target[:] = value

    def fill_words(self, address: int, value: int, count: int) -> None:
        self.words(address, count)[:] = value

    def copy(self, target: int, source: int, size_bytes: int) -> None:
        self.bytes_at(target, size_bytes)[:] = self.bytes_at(source, size_bytes)

    def upload(self, address: int, array: np.ndarray) -> None:
        self.bytes_at(address, array.nbytes)[:] = array.reshape(-1).view(np.uint8)

    def download(self, array: np.ndarray, address: int) -> None:
        self.synchronize()
        assert array.flags.c_contiguous
        array.reshape(-1).view(np.uint8)[:] = self.bytes_at(address, array.nbytes)

    def event(self) -> FakeEvent:
        return FakeEvent(self)

    def synchronize(self) -> None:
        if self.broken:
            raise DriverError("cuCtxSynchronize", 700, self.broken)

    def memory(self) -> tuple[int, int]:
        used = sum(block.size for block in self._blocks.values()) + self.modules * 2**20
        return self.device.memory_bytes - used, self.device.memory_bytes

    def probe(self, entry: str, numbers: list[int]) -> None:
        if entry == "autotune_delay":
            self.clock_ns += numbers[0]
        elif entry == "autotune_read":
            x, vectors, _ = numbers
            assert not self.words(x, 4 * vectors).any()
        elif entry == "autotune_differences":
            x, y, words, found = numbers
            a, b = self.words(x, words), self.words(y, words)
            count = np.count_nonzero((a != b) & (((a | b) << 1) != 0))
            self.bytes_at(found, 8).view(np.uint64)[0] += np.uint64(count)
        else:
            x, words, found = numbers
            places = np.arange(1, words + 1, dtype=np.uint64)
            total = (self.words(x, words) * places).sum(dtype=np.uint64)
            self.bytes_at(found, 8).view(np.uint64)[0] = total

    def close(self) -> None:
        self._blocks.clear()


class FakeDoor:
    name = "fake"

    def __init__(self, device: Device = DEVICE) -> None:
        self._device = device

    def devices(self) -> list[Device]:
        return [self._device]

    def open(self, index: int) -> FakeContext:
        return FakeContext(self._device)


def no_device() -> gpu.Door:
    """A maker of doors that finds none."""
    raise gpu.DeviceError("there is no NVIDIA driver: planted")


def _to_tf32(values: np.ndarray) -> np.ndarray:
    return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
