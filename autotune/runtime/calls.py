"""What every call does: reads its arrays, finds the launches that were bound for such ones, runs
them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

from autotune.errors import UsageError
from autotune.gpu import caller
from autotune.runtime import streams
from autotune.runtime.arrange import Shape, result_shape
from autotune.runtime.arrays import Alike, Library, View, libraries, library
from autotune.runtime.bound import Bound

KEPT_CALLS = 4096
"""Ways in which arrays lay that are remembered; beyond them all are forgotten, none unloaded."""

Views = tuple[View, View, View]
Bind = Callable[[Views, bool, bool, bool, int], Bound]
"""Launches for A, B and output, whether A and B are transposed and beta is 0, and a stream."""

_FLOAT = struct.Struct("<f")
_EXACT = (1.0, 0.0)
"""The scalars of most calls, which need no rounding."""


@dataclass(frozen=True, slots=True)
class _Known:
    """Arrays that were bound.

    Attributes:
        key: How they lie, and the options of the call.
        options: Those alone: whether A and B are transposed and beta is 0.
        library: Of A.
        alike: Reads the arrays of a call like this; None where nothing is faster than to see each.
    """

    key: Hashable
    options: tuple[bool, bool, bool]
    library: Library
    bound: Bound
    alike: Alike | None


class Calls:
    """Calls that differ in nothing but addresses, scalars and stream share their launches."""

    def __init__(self, bind: Bind) -> None:
        self._bind = bind
        self._known: dict[Hashable, _Known] = {}
        self._last: _Known | None = None
        self._shapes: dict[Hashable, Shape] = {}

    def run(
        self,
        a: Any,
        b: Any,
        out: Any,
        alpha: float,
        beta: float,
        trans_a: bool,
        trans_b: bool,
        stream: Any,
    ) -> Any:
        """Enqueues a product; `sgemm` has the arguments."""
        if alpha.__class__ is not float or alpha not in _EXACT:
            alpha = rounded(alpha, "alpha")
        if beta.__class__ is not float or beta not in _EXACT:
            beta = rounded(beta, "beta")
        handle = None if stream is None else streams.handle(stream)
        context = caller.context_id()
        options = trans_a, trans_b, not beta
        # Most calls are like the one before.
        last = self._last
        if (
            out is not None
            and last is not None
            and last.alike is not None
            and last.options == options
        ):
            addresses = last.alike(a, b, out)
            if addresses is not None:
                if handle is None:
                    handle = last.library.stream(a, None)
                at_a, at_b, at_out = addresses
                last.bound.run(at_a, at_b, at_out, alpha, beta, handle, context)
                return out
        library_a = libraries.get(type(a)) or library(a, "a")
        library_b = libraries.get(type(b)) or library(b, "b")
        address_a, key_a, wait_a = library_a.see(a, "a", handle, context)
        if handle is None:
            handle = library_a.stream(a, wait_a)
        address_b, key_b, wait_b = library_b.see(b, "b", handle, context)
        is_made_here = out is None
        if is_made_here:
            if beta:
                raise UsageError(
                    f"beta is {beta}, but there is no out for it to be multiplied with; pass out, "
                    "or leave beta at 0"
                )
            inputs = key_a, key_b, trans_a, trans_b
            shape = self._shapes.get(inputs)
            if shape is None:
                # Before the library makes an array of this shape, and perhaps of another type.
                shape = checked_shape(a, b, trans_a, trans_b, handle)
                _remember(self._shapes, inputs, shape)
            out = library_a.empty(a, shape, stream)
        library_out = libraries.get(type(out)) or library(out, "out")
        address_out, key_out, wait_out = library_out.see(out, "out", handle, context)
        key = key_a, key_b, key_out, options
        # To compare takes less than to hash.
        known = last if last is not None and last.key == key else self._known.get(key)
        if known is None:
            views = (
                library_a.view(a, "a", handle),
                library_b.view(b, "b", handle),
                library_out.view(out, "out", handle),
            )
            bound = self._bind(views, *options, handle)
            known = _Known(key, options, library_a, bound, library_a.alike(a, b, out))
            _remember(self._known, key, known)
        elif known is last and known.alike is not None and not is_made_here:
            # They lie as before, but the library is in another mode now.
            known = replace(known, alike=library_a.alike(a, b, out) or known.alike)
            _remember(self._known, key, known)
        self._last = known
        if not (wait_a is wait_b is wait_out is None):
            for wait in (wait_a, wait_b, wait_out):
                if wait is not None and wait != handle:
                    caller.wait(handle, wait)
        known.bound.run(address_a, address_b, address_out, alpha, beta, handle, context)
        return out

    def forget(self) -> None:
        """The next call of every kind is bound anew."""
        self._known.clear()
        self._last = None


def checked_shape(a: Any, b: Any, trans_a: bool, trans_b: bool, stream: int) -> Shape:
    """The shape of a product whose inputs were checked alone.

    Raises:
        ArrayError: one of its classes.
    """
    views = library(a, "a").view(a, "a", stream), library(b, "b").view(b, "b", stream)
    for view in views:
        view.check()
    return result_shape(views[0].shape, views[1].shape, trans_a, trans_b)


def rounded(value: float, name: str) -> float:
    """A scalar as FP32 has it, so that what is 0 there is 0 for the rules of BLAS as well.

    Raises:
        UsageError: no real number, or one beyond FP32.
    """
    try:
        found: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    except (struct.error, TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"{name} is {value!r}, which is no number of FP32: {error}") from error
    return found


def _remember(kept: dict[Hashable, Any], key: Hashable, value: Any) -> None:
    if len(kept) >= KEPT_CALLS:
        kept.clear()
    kept[key] = value
