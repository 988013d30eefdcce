"""A plan loaded into one context, which any thread enqueues on any stream.

What a launch costs is what Python does for it, so everything that does not change from one call to
the next is done once. The arguments of all launches of a plan lie in one frame:

    addresses of operands and workspaces, scalars   one word of 8 bytes each, written by every call
    sizes                                           one word each, written once
    tensor maps                                     128 bytes each, written when the address changes

and each launch has a list of pointers into it, which is what the driver reads. While a call fills a
frame and enqueues, no other thread may touch it: each takes one from a pile and puts it back.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from cuda.bindings import driver

from autotune.gpu import bindings
from autotune.gpu.bindings import BindingsKernel, call
from autotune.types import LaunchPlan, TensorMap

WORD_BYTES = 8
_MAP_WORDS = 16
_MAP_ALIGNMENT_BYTES = 64
_HINTS = {
    "CUDA_ERROR_INVALID_HANDLE": "is the stream one of the context that is current, and alive?",
    "CUDA_ERROR_INVALID_CONTEXT": "is the stream one of the context that is current, and alive?",
}

Launch = Callable[..., tuple[Any]]
"""A launch that lacks stream, parameters and options."""

KEPT_MAPS = 256
"""Addresses for which encoded tensor maps are kept."""


class _Frame:
    """The arguments of one call.

    Attributes:
        memory: The words.
        start_bytes: Of the first word in `memory`.
        launches: What launches, with the address of its list of pointers.
        mapped: For each tensor map, the address for which it is encoded now.
    """

    __slots__ = ("_lists", "launches", "mapped", "memory", "start_bytes")

    def __init__(
        self,
        words: int,
        constants: dict[int, int],
        launches: Sequence[tuple[Launch, Sequence[int]]],
    ) -> None:
        self.memory = (ctypes.c_uint64 * (words + _MAP_ALIGNMENT_BYTES // WORD_BYTES))()
        base = ctypes.addressof(self.memory)
        self.start_bytes = -base % _MAP_ALIGNMENT_BYTES
        first = base + self.start_bytes
        for word, value in constants.items():
            struct.pack_into("=q", self.memory, self.start_bytes + word * WORD_BYTES, value)
        self._lists = [
            (ctypes.c_void_p * max(1, len(each)))(*(first + word * WORD_BYTES for word in each))
            for _, each in launches
        ]
        self.launches = [
            (launch, ctypes.addressof(each))
            for (launch, _), each in zip(launches, self._lists, strict=True)
        ]
        self.mapped: dict[int, int] = {}


class Module:
    """A binary in the context that was current when it was loaded; there it stays, since plans of
    many sizes share it.

    Raises:
        DriverError: it is not for this device or driver.
    """

    def __init__(self, cubin: bytes) -> None:
        self._handle = call(driver.cuModuleLoadData, cubin)
        self._lock = threading.Lock()
        self._allowed_bytes: dict[str, int] = {}

    def function(self, entry: str, shared_bytes: int) -> Any:
        """The handle of an entry that may be launched with so much dynamic shared memory."""
        kernel = BindingsKernel.of(call(driver.cuModuleGetFunction, self._handle, entry.encode()))
        with self._lock:
            # What one plan was allowed must not be taken from it by another that needs less.
            if shared_bytes > self._allowed_bytes.get(entry, 0):
                kernel.allow_shared(shared_bytes)
                self._allowed_bytes[entry] = shared_bytes
        return kernel.handle


class Prepared:
    """The launches of a plan in the context in which its module was loaded."""

    def __init__(
        self, module: Module, plan: LaunchPlan, operands: Sequence[str], scalars: Sequence[str]
    ) -> None:
        """Packs what does not change.

        Args:
            operands: Names in the order in which `enqueue` gets their addresses.
            scalars: Names in the order in which it gets their values; a kernel need not take all.

        Raises:
            DriverError: the module lacks an entry, or a launch asks for more than the device has.
        """
        addresses = [*operands, *(each.name for each in plan.workspaces)]
        written = {name: word for word, name in enumerate((*addresses, *scalars))}
        self._pack = struct.Struct(f"{len(addresses)}Q" + "f4x" * len(scalars)).pack_into
        self._constants: dict[int, int] = {}
        self._maps: list[tuple[int, int, TensorMap]] = []
        self._launches: list[tuple[Launch, list[int]]] = []
        words = len(written)
        constants = [
            argument
            for launch in plan.launches
            for argument in launch.arguments
            if argument.kind in ("int32", "int64")
        ]
        first_map = -(-(words + len(constants)) // WORD_BYTES) * WORD_BYTES
        for launch in plan.launches:
            places = []
            for argument in launch.arguments:
                if argument.tensor_map is not None:
                    place = first_map + _MAP_WORDS * len(self._maps)
                    operand = operands.index(argument.tensor_map.operand)
                    self._maps.append((place * WORD_BYTES, operand, argument.tensor_map))
                elif argument.kind in ("int32", "int64"):
                    place = words + len(self._constants)
                    self._constants[place] = argument.value
                else:
                    place = written[argument.name]
                places.append(place)
            function = module.function(launch.entry, launch.shared_bytes)
            head = (function, *launch.grid, *launch.block, launch.shared_bytes)
            self._launches.append((partial(driver.cuLaunchKernel, *head), places))
        self._words = first_map + _MAP_WORDS * len(self._maps)
        self._encoded: dict[tuple[int, int], bytes] = {}
        self._pile: list[_Frame] = []

    def enqueue(self, stream: int, values: Sequence[float]) -> None:
        """Enqueues all launches.

        Args:
            values: Addresses of operands and of workspaces, then the scalars.

        Raises:
            DriverError: the driver refuses a launch.
        """
        pile = self._pile
        # `pop` and `append` are one step each, for threads and for signal handlers.
        try:
            frame = pile.pop()
        except IndexError:
            frame = _Frame(self._words, self._constants, self._launches)
        try:
            self._pack(frame.memory, frame.start_bytes, *values)
            if self._maps:
                for index, (_, operand, _) in enumerate(self._maps):
                    if frame.mapped.get(index) != values[operand]:
                        self._map(frame, index, int(values[operand]))
            for launch, parameters in frame.launches:
                status = launch(stream, parameters, 0)[0]
                if status:
                    raise bindings.failure("cuLaunchKernel", status, _HINTS.get(status.name, ""))
        finally:
            pile.append(frame)

    def _map(self, frame: _Frame, index: int, address: int) -> None:
        offset, _, tensor_map = self._maps[index]
        raw = self._encoded.get((index, address))
        if raw is None:
            raw = bindings.encoded(tensor_map, address)
            if len(self._encoded) >= KEPT_MAPS:
                self._encoded.clear()
            self._encoded[index, address] = raw
        ctypes.memmove(ctypes.addressof(frame.memory) + frame.start_bytes + offset, raw, len(raw))
        frame.mapped[index] = address
