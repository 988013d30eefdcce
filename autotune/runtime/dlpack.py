"""Reads what an array's `__dlpack__` gives (DLPack 0.x and 1.x, dmlc.github.io/dlpack).

The capsule is looked into and given back unused, so that its own destructor releases it; the array
that the caller holds keeps the memory.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any

CUDA = (2, 13)
"""Device types on a GPU of NVIDIA: its own memory, and memory that the driver moves."""

HOST = (1, 3)
"""Plain memory of the host, and memory that the driver has pinned."""

_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_READ_ONLY, _COPIED = 1, 2
_ORDER = "<" if sys.byteorder == "little" else ">"


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("index", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("dimensions", ctypes.c_int32),
        ("type", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset_bytes", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    """Of `dltensor`; manager and deleter follow."""

    _fields_ = (("tensor", _Tensor),)


class _Versioned(ctypes.Structure):
    """Of `dltensor_versioned`."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes, _is_valid.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """What a capsule says of an array.

    Attributes:
        strides: In elements.
        type: As the array interface writes it, `<f4` for float32.
        is_copy: The memory is not the array's own.
    """

    address: int
    device_kind: int
    device_index: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    type: str
    is_read_only: bool
    is_copy: bool


def read(array: Any, stream: int) -> Tensor:
    """What `array.__dlpack__` exports for work on a stream.

    Args:
        stream: As DLPack counts: 1 for the legacy default stream, 2 for the thread's own, else the
            handle.

    Raises:
        ValueError: no capsule that this module knows.
        BufferError, TypeError: the library does not export this array.
    """
    try:
        capsule = array.__dlpack__(stream=stream, max_version=(1, 0))
    except TypeError:  # a library from before version 1
        capsule = array.__dlpack__(stream=stream)
    flags = 0
    if _is_valid(capsule, b"dltensor_versioned"):
        address = _pointer(capsule, b"dltensor_versioned")
        versioned = _Versioned.from_address(address)
        if versioned.major != 1:
            raise ValueError(f"DLPack {versioned.major}.{versioned.minor} is not known here")
        tensor, flags = versioned.tensor, versioned.flags
    elif _is_valid(capsule, b"dltensor"):
        tensor = _Managed.from_address(_pointer(capsule, b"dltensor")).tensor
    else:
        raise ValueError("what __dlpack__ gave is no DLPack capsule")
    shape = tuple(tensor.shape[axis] for axis in range(tensor.dimensions))
    return Tensor(
        address=(tensor.data or 0) + tensor.offset_bytes,
        device_kind=tensor.device.kind,
        device_index=tensor.device.index,
        shape=shape,
        strides=tuple(tensor.strides[axis] for axis in range(tensor.dimensions))
        if tensor.strides
        else tight(shape),
        type=_type(tensor.type),
        is_read_only=bool(flags & _READ_ONLY),
        is_copy=bool(flags & _COPIED),
    )


def tight(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of an array in C order."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _type(type_: _Type) -> str:
    if type_.code in _KINDS and type_.lanes == 1:
        return f"{_ORDER}{_KINDS[type_.code]}{type_.bits // 8}"
    return f"DLPack type {type_.code} of {type_.bits} bits x {type_.lanes}"
