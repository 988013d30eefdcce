"""A problem on a device: the config that look-up gives, its binary, where that is loaded."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from autotune import archs, defaults, space, templates
from autotune.errors import (
    CaptureError,
    CompilerError,
    InfeasibleError,
    NotFoundError,
    TemplateError,
)
from autotune.gpu import caller
from autotune.gpu.prepared import Module, Prepared
from autotune.lookup import Answer
from autotune.lookup import answer as look_up
from autotune.render import render
from autotune.runtime import binary
from autotune.runtime.once import Once
from autotune.runtime.workspaces import Workspaces
from autotune.types import Binary, Config, Device, LaunchPlan, Match, Problem, Variant

_log = logging.getLogger("autotune")

SCALARS = ("alpha", "beta")
"""Names of the FP32 arguments, in the order in which `Plan.run` gets them."""

_workspaces: Once[int, Workspaces] = Once()
"""By the number of a context."""

_modules: Once[tuple[int, str], Module] = Once()
"""By the number of a context and the digest of the binary: sizes alone do not change the code, so a
program whose sizes change from call to call loads few."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """What computes a problem on a device, and how it is known to be good.

    Attributes:
        answer: What look-up said.
        config: What runs: the answer's, or the default where that does not compile.
    """

    problem: Problem
    device: Device
    answer: Answer
    config: Config
    launch_plan: LaunchPlan
    binary: Binary
    _prepared: Once[int, Prepared] = field(default_factory=Once)

    def run(self, context: int, stream: int, values: tuple[float, ...]) -> None:
        """Enqueues the launches; the first time in a context it loads the binary.

        Args:
            context: Number of the context that is current.
            stream: A handle of the context that is current, or of that in which the output lies.
            values: Addresses of the operands, in the problem's order, the output's last; then the
                scalars, in the order of `SCALARS`.

        Raises:
            CaptureError: the stream is captured, and the binary not loaded yet.
            DriverError: the driver refuses to load or to launch.
        """
        prepared = self._prepared.known(context)
        if prepared is not None:
            if self.launch_plan.workspaces:
                self._enqueue(prepared, context, stream, values)
            else:
                prepared.enqueue(stream, values)
            return
        # The context of another device is current, or none, or one that is new.
        out = int(values[-1 - len(SCALARS)])
        with caller.on_device(self.device.index, out):
            context = caller.context_id()
            prepared = self._prepared.known(context) or self._load(context, stream)
            self._enqueue(prepared, context, stream, values)

    def load(self, stream: int = caller.LEGACY_STREAM) -> None:
        """Loads the binary into the context that `run` would use.

        Raises:
            CaptureError: the stream is captured.
            DriverError: the driver refuses it.
        """
        with caller.on_device(self.device.index):
            self._load(caller.context_id(), stream)

    def _load(self, context: int, stream: int) -> Prepared:
        refuse_capture(stream, f"the kernel for {self.problem.key}")
        operands = [operand.name for operand in self.problem.operands]

        def make() -> Prepared:
            with caller.apart_from_captures():
                key = context, self.binary.sha256
                module = _modules.get(key, lambda: Module(self.binary.cubin))
                return Prepared(module, self.launch_plan, operands, SCALARS)

        return self._prepared.get(context, make)

    def _enqueue(
        self, prepared: Prepared, context: int, stream: int, values: tuple[float, ...]
    ) -> None:
        shared = _workspaces.get(context, Workspaces)
        addresses, scalars = values[: -len(SCALARS)], values[-len(SCALARS) :]
        with shared.of(self.launch_plan.workspaces, stream) as workspaces:
            prepared.enqueue(stream, (*addresses, *workspaces, *scalars))


def refuse_capture(stream: int, what: str) -> None:
    """Refuses to do in a capture what would end it.

    Raises:
        CaptureError: the stream is captured.
    """
    if caller.is_capturing(stream):
        raise CaptureError(
            f"{what} is not ready, and while a stream is captured nothing can be compiled or "
            "loaded; make the same call once before the capture, or an autotune.Gemm"
        )


def make(problem: Problem, device: Device) -> Plan:
    """A plan for a problem; nothing is loaded yet.

    Raises:
        NotFoundError: no config at all can serve the problem.
        CompilerError: there is no compiler, or not even the default compiles.
        InfeasibleError: the device has less than its architecture promises.
    """
    space.device_limits(device.arch, device)
    answer = look_up(problem, device=device, template_sha256=templates.sha256(problem.kernel))
    if answer.config is None:
        raise NotFoundError(f"there is no config for {problem.key}: {answer.reason}")
    try:
        variant, made = _built(problem, answer.config, device)
    except (CompilerError, InfeasibleError, TemplateError) as error:
        default = defaults.default(problem, archs.get(device.arch).typical)
        if answer.match is Match.arch_default or default == answer.config:
            raise
        _log.warning("%s; the default config runs instead of the stored one", error)
        variant, made = _built(problem, default, device)
    return Plan(
        problem=problem,
        device=device,
        answer=answer,
        config=variant.config,
        launch_plan=variant.plan,
        binary=made,
    )


def _built(problem: Problem, config: Config, device: Device) -> tuple[Variant, Binary]:
    variant = render(problem, config, device.arch, sm_count=device.sm_count)
    return variant, binary.binary(variant, device)
