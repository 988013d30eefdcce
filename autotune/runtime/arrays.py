"""An array of any library: where it lies, how, and what makes another one.

A library is asked in three ways. `view` is for the first call of its kind: how an array lies, in
plain terms, which the checks read. `see` is for later ones: the address, and a key that is equal
for all arrays that lie alike. `alike` is for calls like the one before: addresses alone. PyTorch
and CuPy have ways of their own, since their `__cuda_array_interface__` takes longer than a launch;
everything else is read through that interface, or through DLPack.

Where a product has no `out`, the library of A makes it: PyTorch, CuPy and PyCUDA. Others have to
pass one, since there is no common way to make an array that may be written.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Protocol

from autotune.errors import (
    AlignmentError,
    ArrayDeviceError,
    ArrayError,
    ContextError,
    DriverError,
    DtypeError,
    ReadOnlyError,
    StrideError,
    UsageError,
)
from autotune.gpu import caller
from autotune.runtime import dlpack, guards, streams

FLOAT32 = "<f4"
FLOAT_BYTES = 4
WIDEST_BYTES = 16
"""Of one access; addresses that are equal modulo this are aligned alike."""

Seen = tuple[int, Hashable, int | None]
"""Address; key; a stream whose work the array still waits for, None where none is named."""

Alike = Callable[[Any, Any, Any], tuple[int, int, int] | None]
"""Addresses of A, B and output where `see` would give the keys that it gave before; else None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """An array as it lies on a device.

    Attributes:
        name: Which operand it is.
        type: Of its elements, as the array interface writes it.
        shape: Elements along each axis.
        strides: Bytes from one element to the next, along each axis.
        device: CUDA's number; -1 where nothing is stored, so that it does not matter.
    """

    name: str
    address: int
    type: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: int
    is_read_only: bool = False

    def check(self) -> None:
        """Refuses what no kernel reads.

        Raises:
            DtypeError, AlignmentError, StrideError: not float32, or not on multiples of 4 bytes.
        """
        if self.type != FLOAT32:
            raise DtypeError(
                self.name, f"holds {self.type}, not float32 ({FLOAT32}); pass it converted"
            )
        if self.address % FLOAT_BYTES:
            raise AlignmentError(
                self.name,
                f"begins at {self.address:#x}, which is no multiple of {FLOAT_BYTES} bytes",
            )
        if any(stride % FLOAT_BYTES for stride in self.strides):
            raise StrideError(
                self.name,
                f"has strides of {self.strides} bytes, which are no multiples of {FLOAT_BYTES}",
            )


class Library(Protocol):
    """How the arrays of one library are read and made."""

    def see(self, array: Any, name: str, stream: int | None, context: int) -> Seen:
        """Address and key of an array for work on a stream; None for the one that `stream` gives.

        Args:
            context: Number of the context that is current.

        Raises:
            ArrayError: one of its classes, with the name.
        """
        ...

    def view(self, array: Any, name: str, stream: int) -> View:
        """The same in plain terms."""
        ...

    def alike(self, a: Any, b: Any, out: Any) -> Alike | None:
        """What reads the operands of another call, where that takes less than to see each.

        Args:
            a, b, out: Arrays that were seen; of this library `a` at least.
        """
        ...

    def stream(self, array: Any, wait: int | None) -> int:
        """The stream on which its library works now.

        Args:
            wait: What `see` said of the array.
        """
        ...

    def empty(self, array: Any, shape: tuple[int, ...], stream: Any) -> Any:
        """A new array in C order beside this one, ready for work on `stream`.

        Args:
            stream: As the caller wrote it; None for the library's current one.
        """
        ...


class Torch:
    """PyTorch's tensors."""

    def __init__(self) -> None:
        self._torch = import_module("torch")
        self._grad_enabled = self._torch.is_grad_enabled
        # Not public, but without it the stream alone takes as long as a launch.
        self._raw_stream = getattr(self._torch._C, "_cuda_getCurrentRawStream", None)
        self._guard = guards.maker(self._torch)

    def see(self, array: Any, name: str, stream: int | None, context: int) -> Seen:
        if array.requires_grad and self._grad_enabled():
            raise ArrayError(
                name,
                "requires a gradient, which sgemm does not compute; pass "
                f"{name}.detach(), or call it under torch.no_grad()",
            )
        try:
            address: int = array.data_ptr()
            key = (
                array.dtype,
                array.shape,
                array.stride(),
                array.get_device(),
                array.is_neg(),
                address % WIDEST_BYTES,
            )
        except RuntimeError as error:  # sparse tensors, tensors without memory
            raise ArrayError(name, f"is no tensor with strides: {error}") from error
        return address, key, None

    def view(self, array: Any, name: str, stream: int) -> View:
        if array.is_neg():
            raise ArrayError(name, f"is a negated view; pass {name}.resolve_neg()")
        if array.get_device() < 0 or array.device.type != "cuda":
            raise _elsewhere(name, str(array.device), f"{name}.cuda()")
        word = array.element_size()
        is_float32 = array.dtype is self._torch.float32
        return View(
            name=name,
            address=array.data_ptr(),
            type=FLOAT32 if is_float32 else str(array.dtype).removeprefix("torch."),
            shape=tuple(array.shape),
            strides=tuple(word * stride for stride in array.stride()),
            device=array.get_device() if array.numel() else -1,
        )

    def alike(self, a: Any, b: Any, out: Any) -> Alike | None:
        tensors = a, b, out
        # The guards take no tensor twice, and know nothing of other libraries.
        is_known = all(libraries.get(type(each)) is self for each in tensors)
        if self._guard is None or a is b or not is_known:
            return None
        check = self._guard(*tensors)
        at_a, at_b, at_out = (each.data_ptr() for each in tensors)
        is_refused = self._grad_enabled if any(each.requires_grad for each in tensors) else None

        def addresses(a: Any, b: Any, out: Any) -> tuple[int, int, int] | None:
            if not check(a, b, out) or (is_refused is not None and is_refused()):
                return None
            to_a, to_b, to_out = a.data_ptr(), b.data_ptr(), out.data_ptr()
            if (to_a - at_a | to_b - at_b | to_out - at_out) % WIDEST_BYTES:
                return None
            return to_a, to_b, to_out

        return addresses

    def stream(self, array: Any, wait: int | None) -> int:
        index: int = array.get_device()
        if index < 0:
            return caller.LEGACY_STREAM  # `view` refuses it
        if self._raw_stream is not None:
            found: int = self._raw_stream(index)
            return found
        return int(self._torch.cuda.current_stream(index).cuda_stream)

    def empty(self, array: Any, shape: tuple[int, ...], stream: Any) -> Any:
        # Memory of PyTorch's cache may still be in use on the stream that it was made on.
        with self._on(array, stream):
            return array.new_empty(shape, requires_grad=False)

    def _on(self, array: Any, stream: Any) -> Any:
        cuda = self._torch.cuda
        if stream is None or streams.handle(stream) == self.stream(array, None):
            return nullcontext()
        if not isinstance(stream, cuda.Stream):
            stream = cuda.ExternalStream(streams.handle(stream), device=array.device)
        return cuda.stream(stream)


class CuPy:
    """CuPy's arrays."""

    def __init__(self) -> None:
        self._cupy = import_module("cupy")
        self._current = self._cupy.cuda.get_current_stream
        self._float32 = import_module("numpy").dtype("float32")

    def see(self, array: Any, name: str, stream: int | None, context: int) -> Seen:
        data, dtype = array.data, array.dtype
        address: int = data.ptr
        # There is one object for the usual type, and its name takes long to write.
        type_ = FLOAT32 if dtype is self._float32 else dtype.str
        key = type_, array.shape, array.strides, data.device_id, address % WIDEST_BYTES
        return address, key, None

    def view(self, array: Any, name: str, stream: int) -> View:
        return View(
            name=name,
            address=array.data.ptr,
            type=array.dtype.str,
            shape=array.shape,
            strides=array.strides,
            device=array.data.device_id if array.size else -1,
        )

    def alike(self, a: Any, b: Any, out: Any) -> Alike | None:
        arrays = a, b, out
        if not all(libraries.get(type(each)) is self for each in arrays):
            return None
        float32, device = self._float32, a.data.device_id
        if not all(each.dtype is float32 and each.data.device_id == device for each in arrays):
            return None
        kind_a, kind_b, kind_out = (type(each) for each in arrays)
        shape_a, shape_b, shape_out = (each.shape for each in arrays)
        strides_a, strides_b, strides_out = (each.strides for each in arrays)
        at_a, at_b, at_out = (each.data.ptr for each in arrays)

        def addresses(a: Any, b: Any, out: Any) -> tuple[int, int, int] | None:
            if not (type(a) is kind_a and type(b) is kind_b and type(out) is kind_out):
                return None
            data_a, data_b, data_out = a.data, b.data, out.data
            to_a, to_b, to_out = data_a.ptr, data_b.ptr, data_out.ptr
            if (
                a.dtype is b.dtype is out.dtype is float32
                and data_a.device_id == data_b.device_id == data_out.device_id == device
                and a.shape == shape_a
                and b.shape == shape_b
                and out.shape == shape_out
                and a.strides == strides_a
                and b.strides == strides_b
                and out.strides == strides_out
                and not (to_a - at_a | to_b - at_b | to_out - at_out) % WIDEST_BYTES
            ):
                return to_a, to_b, to_out
            return None

        return addresses

    def stream(self, array: Any, wait: int | None) -> int:
        return streams.handle(self._current(array.data.device_id).ptr)

    def empty(self, array: Any, shape: tuple[int, ...], stream: Any) -> Any:
        with array.device, self._on(array, stream):
            return self._cupy.empty(shape, self._cupy.float32)

    def _on(self, array: Any, stream: Any) -> Any:
        if stream is None or streams.handle(stream) == self.stream(array, None):
            return nullcontext()
        handle, cuda = streams.handle(stream), self._cupy.cuda
        # Of CuPy 14 and later, where the other way is deprecated.
        if (make := getattr(cuda.Stream, "from_external", None)) is not None:
            return make(streams.External(handle))
        return cuda.ExternalStream(handle)


class Interface:
    """Everything that has `__cuda_array_interface__`; where it does not say on which device, the
    driver does.

    The driver takes longer for that than all else here. What an operand showed last is remembered,
    and not asked about again while it shows the same in the same context, of which its memory is.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[dict[str, Any], int, Seen]] = {}

    def see(self, array: Any, name: str, stream: int | None, context: int) -> Seen:
        fields = _interface(array, name)
        get = fields.get
        is_plain = get("mask") is None  # a mask may be an array, which has no truth
        last = self._last.get(name)
        if is_plain and last is not None and last[1] == context and last[0] == fields:
            return last[2]
        address, is_read_only = fields["data"]
        address = address or 0
        shape = fields["shape"]
        device, is_of_context = _located(address, shape, name)
        key = (
            fields["typestr"],
            shape,
            get("strides"),
            is_read_only,
            is_plain,
            device,
            address % WIDEST_BYTES,
        )
        pending = get("stream")
        seen = address, key, None if pending is None else streams.handle(pending)
        if is_plain and is_of_context:
            # A copy: its owner may write into what it showed.
            self._last[name] = dict(fields), context, seen
        return seen

    def view(self, array: Any, name: str, stream: int) -> View:
        fields = _interface(array, name)
        if fields.get("mask") is not None:
            raise ArrayError(name, "has a mask, which sgemm does not apply")
        address, is_read_only = fields["data"]
        shape, type_ = tuple(fields["shape"]), str(fields["typestr"])
        strides = fields.get("strides")
        if strides is None:
            word = int(type_[2:] or 0)
            strides = tuple(word * step for step in dlpack.tight(shape))
        return View(
            name=name,
            address=address or 0,  # libraries write None or 0 where there is nothing
            type=type_,
            shape=shape,
            strides=tuple(strides),
            device=_located(address or 0, shape, name)[0],
            is_read_only=bool(is_read_only),
        )

    def alike(self, a: Any, b: Any, out: Any) -> Alike | None:
        return None

    def stream(self, array: Any, wait: int | None) -> int:
        return caller.LEGACY_STREAM if wait is None else wait

    def empty(self, array: Any, shape: tuple[int, ...], stream: Any) -> Any:
        raise UsageError(_needs_out(array))


class PyCuda(Interface):
    """PyCUDA's arrays, which say on no stream that they are still written."""

    def empty(self, array: Any, shape: tuple[int, ...], stream: Any) -> Any:
        return type(array)(shape, array.dtype, allocator=array.allocator)


class DLPack:
    """Everything else that has `__dlpack__`."""

    def see(self, array: Any, name: str, stream: int | None, context: int) -> Seen:
        tensor = self._tensor(array, name, stream or caller.LEGACY_STREAM)
        where = tensor.device_kind, tensor.device_index, tensor.address % WIDEST_BYTES
        written = tensor.is_read_only or tensor.is_copy
        return tensor.address, (tensor.type, tensor.shape, tensor.strides, written, where), None

    def view(self, array: Any, name: str, stream: int) -> View:
        tensor = self._tensor(array, name, stream)
        if tensor.is_copy and name == "out":
            raise ReadOnlyError(name, "is shown as a copy, so that what is written would be lost")
        word = int(tensor.type[2:]) if tensor.type[:1] in "<>" else FLOAT_BYTES
        return View(
            name=name,
            address=tensor.address,
            type=tensor.type,
            shape=tensor.shape,
            strides=tuple(word * stride for stride in tensor.strides),
            device=tensor.device_index if all(tensor.shape) else -1,
            is_read_only=tensor.is_read_only,
        )

    def alike(self, a: Any, b: Any, out: Any) -> Alike | None:
        return None

    def stream(self, array: Any, wait: int | None) -> int:
        return caller.LEGACY_STREAM

    def empty(self, array: Any, shape: tuple[int, ...], stream: Any) -> Any:
        raise UsageError(_needs_out(array))

    @staticmethod
    def _tensor(array: Any, name: str, stream: int) -> dlpack.Tensor:
        kind, _ = array.__dlpack_device__()
        if kind not in dlpack.CUDA:
            where = "the host" if kind in dlpack.HOST else f"a device of DLPack's type {kind}"
            raise _elsewhere(name, where, "a copy on the GPU")
        try:
            return dlpack.read(array, streams.exported(stream))
        except (BufferError, TypeError, ValueError, RuntimeError) as error:
            raise _hidden(name, error) from error


_KNOWN: dict[str, tuple[type[Library], str]] = {
    "torch": (Torch, "data_ptr"),
    "cupy": (CuPy, "data"),
    "pycuda": (PyCuda, "gpudata"),
}
"""Libraries with ways of their own, by the package that defines the array's type or a base; with
what their arrays have and the rest of the package has not."""

libraries: dict[type, Library] = {}
"""By the type of an array that was seen before."""


def library(array: Any, name: str) -> Library:
    """How arrays of this type are read.

    Raises:
        ArrayError: they show no memory of a GPU.
    """
    kind = type(array)
    found = libraries.get(kind)
    if found is None:
        found = libraries[kind] = _library(array, name)
    return found


def _library(array: Any, name: str) -> Library:
    for base in type(array).__mro__:
        kind, mark = _KNOWN.get(base.__module__.partition(".")[0], (None, ""))
        if kind is not None and hasattr(array, mark):
            return _made(kind)
    if hasattr(array, "__cuda_array_interface__"):
        return _made(Interface)
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _made(DLPack)
    raise ArrayError(
        name,
        f"is a {type(array).__module__}.{type(array).__qualname__}, which shows no memory of a "
        "GPU; pass an array with __cuda_array_interface__ or __dlpack__, as of PyTorch, CuPy or "
        "PyCUDA",
    )


@cache
def _made(kind: type[Library]) -> Library:
    return kind()


def _located(address: int, shape: tuple[int, ...], name: str) -> tuple[int, bool]:
    """The device that the driver names, -1 where nothing is stored; and whether memory is of the
    current context."""
    if 0 in shape:
        return -1, False
    try:
        return caller.locate(address)
    except DriverError as error:
        if error.name != "CUDA_ERROR_INVALID_VALUE":
            raise
        raise ContextError(
            name,
            f"lies at {address:#x}, where no live context has memory: it was freed, its "
            "context was destroyed, or it is memory of the host",
        ) from error


def _interface(array: Any, name: str) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = array.__cuda_array_interface__
    except Exception as error:  # whatever a library raises for what it does not export
        raise _hidden(name, error) from error
    return fields


def _hidden(name: str, error: Exception) -> ArrayError:
    return ArrayError(name, f"does not show its memory: {error}")


def _elsewhere(name: str, where: str, remedy: str) -> ArrayDeviceError:
    return ArrayDeviceError(name, f"lies on {where}, not on a GPU of NVIDIA; pass {remedy}")


def _needs_out(array: Any) -> str:
    return (
        f"out is needed: {type(array).__module__}.{type(array).__qualname__} has no way that is "
        "known here to make an array; those of PyTorch, CuPy and PyCUDA have"
    )
