"""`sgemm`, the product of a caller's arrays, and `Gemm`, the same planned once for many calls."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, Literal

from autotune import api, templates
from autotune import device as devices
from autotune.errors import (
    AlignmentError,
    ArrayDeviceError,
    ArrayShapeError,
    AutotuneError,
    StrideError,
    UsageError,
)
from autotune.gpu import bindings, caller
from autotune.lookup import Answer
from autotune.lookup import answer as look_up
from autotune.problems.sgemm import Sgemm
from autotune.runtime import plan as plans
from autotune.runtime.arrange import Arrangement, arrange
from autotune.runtime.arrays import library
from autotune.runtime.bound import Bound
from autotune.runtime.calls import Calls, Views, checked_shape
from autotune.runtime.once import Once
from autotune.runtime.plan import Plan
from autotune.types import Config, Evidence, Match

TUNING_EFFORT = "quick"
"""Of the search that `tune="now"` asks for."""

_log = logging.getLogger("autotune")

_plans: Once[tuple[Sgemm, int], Plan] = Once()
"""By problem and CUDA's number of the device."""

_searched: set[tuple[Sgemm, int]] = set()
"""What `tune="now"` has searched for in this process."""


def sgemm(
    a: Any,
    b: Any,
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    trans_a: bool = False,
    trans_b: bool = False,
    stream: Any = None,
    *,
    tune: Literal["now"] | None = None,
) -> Any:
    """out = alpha * op(A) * op(B) + beta * out, in FP32, by the best known kernel.

    Arrays are those of PyTorch, CuPy and PyCUDA, and of everything else that has
    `__cuda_array_interface__` or `__dlpack__`: matrices, or batches of them along a first axis,
    where a batch of one serves all. Nothing is copied: transposed views and rows that are parted
    are read where they lie. Rules of BLAS: with `beta` 0 `out` is not read, with `alpha` 0 neither
    are A and B.

    The first call for arrays that lie in a new way looks a config up, and compiles it where the
    cache does not have it; nothing is timed. Later ones launch the same kernel until the process
    ends. The call returns when the kernel is enqueued.

    Args:
        a, b: float32.
        out: Where the result goes, by rows or by columns. None makes an array by the library of
            `a`: PyTorch, CuPy or PyCUDA.
        alpha, beta: Real numbers, rounded to FP32 once.
        trans_a, trans_b: Multiply with the transpose of what is passed.
        stream: A handle, or a stream of PyTorch, CuPy, PyCUDA or with `__cuda_stream__`; the
            caller sees to the order with other streams. None: the current stream of the library of
            `a`, or what its interface names, or else the legacy default stream.
        tune: "now" searches first (some 50 configs) where this problem was never tuned for this
            GPU, and stores what it found; None never does.

    Returns:
        `out`.

    Raises:
        ArrayError: one of its classes, for an array that cannot be taken; nothing was launched.
        UsageError: `beta` without `out`, or a scalar, stream or `tune` that is none.
        CaptureError: the stream is captured, and this is the first call of its kind.
        NotFoundError, CompilerError: no kernel can serve the problem.
        DriverError: the driver refused to load or to launch.
    """
    if tune is None:
        return _calls.run(a, b, out, alpha, beta, trans_a, trans_b, stream)
    if tune != "now":
        raise UsageError(f"tune is {tune!r}; it must be 'now', or None for no search")
    return _tuning_calls.run(a, b, out, alpha, beta, trans_a, trans_b, stream)


class Gemm:
    """A product planned once: looked up, compiled and loaded, for any number of calls.

    `Gemm.like(a, b)` takes the problem from arrays; `Gemm(m, n, k)` from sizes. Calls take arrays
    that lie as planned: with these sizes, layout and distances, at least as well aligned. They may
    come from several threads, on several streams, and while a stream is captured.

    Attributes:
        problem: What a launch computes.
        device: CUDA's number of the GPU.
    """

    problem: Sgemm
    device: int

    def __init__(
        self, m: int, n: int, k: int, *, device: int | str | None = None, **options: Any
    ) -> None:
        """Plans a product.

        Args:
            device: CUDA index or UUID; None for the device of the current context, or else
                `AUTOTUNE_DEVICE`, or else the first.
            **options: Further fields of the problem, as `autotune.lookup` has them: `layout="tn"`
                for an A that is a transposed view, `batch=8`, `beta_zero=False` for calls with
                `beta`.

        Raises:
            UsageError: a size or option that does not exist.
            DeviceError: no driver, or no such GPU.
            NotFoundError, CompilerError, CaptureError, DriverError: as `sgemm`.
        """
        try:
            problem = Sgemm(m=m, n=n, k=k, **options)
        except TypeError as error:
            raise UsageError(f"sgemm has no such option: {error}") from error
        bindings.start()
        index = caller.current_device() if device is None else None
        if index is None:
            index = devices.select(device=device, door=bindings.Bindings()).index
        self._plan_for(Arrangement(problem=problem, device=index), (False, False))

    @classmethod
    def like(
        cls,
        a: Any,
        b: Any,
        out: Any = None,
        *,
        trans_a: bool = False,
        trans_b: bool = False,
        beta_zero: bool = True,
    ) -> Gemm:
        """Plans the product of arrays; their elements are not looked at.

        Args:
            out: None for one in C order, which may begin anywhere that its library lets it.
            beta_zero: Whether calls leave `beta` at 0. Others are served too, but make a second
                plan when the first comes.

        Raises:
            ArrayError, NotFoundError, CompilerError, CaptureError, DriverError: as `sgemm`.
        """
        reader = library(a, "a")
        stream = reader.stream(a, reader.see(a, "a", None, caller.context_id())[2])
        if out is None:
            out = reader.empty(a, checked_shape(a, b, trans_a, trans_b, stream), None)
        views = (
            reader.view(a, "a", stream),
            library(b, "b").view(b, "b", stream),
            library(out, "out").view(out, "out", stream),
        )
        arrangement = arrange(*views, trans_a=trans_a, trans_b=trans_b, beta_zero=beta_zero)
        if arrangement.problem is None:
            raise ArrayShapeError("out", f"would be empty: its shape is {views[2].shape}")
        gemm = cls.__new__(cls)
        gemm._plan_for(arrangement, (trans_a, trans_b))
        return gemm

    def _plan_for(self, arrangement: Arrangement, transposed: tuple[bool, bool]) -> None:
        assert arrangement.problem is not None
        self.problem = arrangement.problem
        self.device = arrangement.device
        self._arrangement = arrangement
        self._transposed = transposed
        self._plan = _plan(self.problem, self.device, caller.LEGACY_STREAM)
        self._plan.load()
        self._calls = Calls(self._bind)

    @property
    def answer(self) -> Answer:
        """How the config is known: `answer.match`, and `answer.reason` in words."""
        return self._plan.answer

    @property
    def config(self) -> Config:
        """The config that runs."""
        return self._plan.config

    def __call__(
        self,
        a: Any,
        b: Any,
        out: Any = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        stream: Any = None,
    ) -> Any:
        """out = alpha * op(A) * op(B) + beta * out; arguments, result and errors as of `sgemm`.

        Raises:
            ArrayShapeError, StrideError, AlignmentError, ArrayDeviceError: the arrays lie otherwise
                than planned.
        """
        trans_a, trans_b = self._transposed
        return self._calls.run(a, b, out, alpha, beta, trans_a, trans_b, stream)

    def _bind(
        self, views: Views, trans_a: bool, trans_b: bool, beta_zero: bool, stream: int
    ) -> Bound:
        arrangement = arrange(*views, trans_a=trans_a, trans_b=trans_b, beta_zero=beta_zero)
        self._refuse_others(arrangement, views)
        plan = self._plan
        if self.problem.beta_zero and not beta_zero:
            plan = _plan(replace(self.problem, beta_zero=False), self.device, stream)
        return Bound(plan, arrangement, views)

    def _refuse_others(self, arrangement: Arrangement, views: Views) -> None:
        """Refuses arrays that lie otherwise than planned.

        Raises:
            ArrayShapeError, StrideError, AlignmentError, ArrayDeviceError: the first difference.
        """
        asked, planned = arrangement.problem, self.problem
        out = views[2]
        if asked is None:
            raise ArrayShapeError(
                "out", f"is empty with the shape {out.shape}; the plan is for {planned.key}"
            )
        if arrangement.device != self.device:
            raise ArrayDeviceError(
                "a", f"lies on device {arrangement.device}; the plan is for device {self.device}"
            )
        same_turns = (arrangement.is_swapped, arrangement.repeats, arrangement.steps_bytes) == (
            self._arrangement.is_swapped,
            self._arrangement.repeats,
            self._arrangement.steps_bytes,
        )
        if not same_turns:
            raise StrideError(
                "out",
                f"has strides of {out.strides} bytes, which with those of a and b make the problem "
                f"{asked.key}, {arrangement.repeats} times; the plan is for {planned.key}, "
                f"{self._arrangement.repeats} times, by "
                f"{'columns' if self._arrangement.is_swapped else 'rows'}",
            )
        names = ("b", "a", "out") if arrangement.is_swapped else ("a", "b", "out")
        sizes = (("m", "k", "batch"), ("n",), ())
        ways = (("lda", "stride_a"), ("ldb", "stride_b"), ("ldc", "stride_c"))
        for name, fields in zip(names, sizes, strict=True):
            if any(getattr(asked, field) != getattr(planned, field) for field in fields):
                raise ArrayShapeError(
                    name, f"makes the problem {asked.key}; the plan is for {planned.key}"
                )
        for index, (name, fields) in enumerate(zip(names, ways, strict=True)):
            differs = any(getattr(asked, field) != getattr(planned, field) for field in fields)
            if differs or asked.layout[index : index + 1] != planned.layout[index : index + 1]:
                raise StrideError(
                    name, f"makes the problem {asked.key}; the plan is for {planned.key}"
                )
        for name, letter in zip(names, "abc", strict=True):
            have, need = (getattr(each, f"align_{letter}") for each in (asked, planned))
            if have < need:
                raise AlignmentError(
                    name,
                    f"is aligned to {have} bytes, the plan is for {need}; plan with "
                    f"align_{letter}={have}, or with Gemm.like and this array",
                )


def _plan(problem: Sgemm, device: int, stream: int) -> Plan:
    """The one plan of a problem on a device.

    Raises:
        CaptureError: it has to be made, and the stream is captured.
    """

    def make() -> Plan:
        plans.refuse_capture(stream, f"a plan for {problem.key}")
        return plans.make(problem, caller.device(device))

    return _plans.get((problem, device), make)


def _bind(views: Views, trans_a: bool, trans_b: bool, beta_zero: bool, stream: int) -> Bound:
    arrangement = arrange(*views, trans_a=trans_a, trans_b=trans_b, beta_zero=beta_zero)
    plan = None
    if arrangement.problem is not None:
        plan = _plan(arrangement.problem, arrangement.device, stream)
    return Bound(plan, arrangement, views)


def _bind_tuned(views: Views, trans_a: bool, trans_b: bool, beta_zero: bool, stream: int) -> Bound:
    arrangement = arrange(*views, trans_a=trans_a, trans_b=trans_b, beta_zero=beta_zero)
    if arrangement.problem is not None:
        _tune(arrangement.problem, arrangement.device, stream)
    return _bind(views, trans_a, trans_b, beta_zero, stream)


_calls = Calls(_bind)
_tuning_calls = Calls(_bind_tuned)


def _tune(problem: Sgemm, index: int, stream: int) -> None:
    """Searches for a problem that was never tuned for this model of GPU, once a process."""
    device = caller.device(index)
    answer = look_up(problem, device=device, template_sha256=templates.sha256(problem.kernel))
    is_tuned = answer.match is Match.exact and answer.evidence is Evidence.measured
    if (is_tuned and not answer.stale) or (problem, index) in _searched:
        return
    plans.refuse_capture(stream, f"a search for {problem.key}")
    _log.info("searching for %s on %s: tune='now' asks for it", problem.key, device.name)
    (report,) = api.search(problem, device=device.uuid, effort=TUNING_EFFORT)
    _searched.add((problem, index))
    if report.status == "failed":
        raise AutotuneError(f"{problem.key} could not be tuned: {report.message}")
    _plans.drop((problem, index))
    _calls.forget()
