"""The test stand: one device, its compilers and its worker, and kernels that are timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

from autotune import compile, device, gpu, render, settings, space
from autotune.bench.parts import VENDOR, Entry
from autotune.compile import Pool
from autotune.errors import InfeasibleError, TemplateError, UsageError
from autotune.measure import AnyJob, Job, Power, VendorJob, Worker, vendor_missing
from autotune.types import (
    Binary,
    Config,
    Failure,
    LaunchPlan,
    Measurement,
    Outcome,
    Problem,
    Stage,
)

COMPILE_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """How to measure.

    Attributes:
        rounds: Of turns; each gives a kernel three samples, or one where a run takes over 20 ms.
        seed: Of the data and of the order in each round.
        cold: Whether the L2 cache is emptied before each sample.
        with_vendor: Time the vendor library too, where it is installed.
        power_s: How long each kernel runs back to back for its power; 0 for not at all.
    """

    rounds: int = 9
    seed: int = 0
    cold: bool = True
    with_vendor: bool = True
    power_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiling:
    """A config on its way; `plan` is None where it has no source, and `result` says why."""

    names: tuple[str, ...]
    config: Config
    plan: LaunchPlan | None
    result: Future[Binary | Failure]


class _Runner(NamedTuple):
    """A kernel that takes part."""

    names: tuple[str, ...]
    config: Config | None
    registers: int | None
    job: AnyJob


Heat = Sequence[_Compiling]
"""The configs of one problem, on their way through the compilers."""


class Stand:
    """Compiles, verifies and times configs on one device; a context manager.

    The device is held from the start to the end, so that a search on it waits.
    """

    def __init__(
        self,
        wishes: Wishes,
        *,
        arch: int | None = None,
        device_name: str | None = None,
        door: str | None = None,
        jobs: int | None = None,
        on_wait: Callable[[str], None],
    ) -> None:
        """Finds device and compiler.

        Args:
            arch: Architecture that the device must have; None for any.
            device_name: CUDA index or UUID; None for the first that fits.
            door: Binding to the driver; None for the first that works.
            jobs: Compiler processes at a time; None for one a CPU, less one.
            on_wait: Told who holds the device while it is waited for.

        Raises:
            DeviceError: no such device.
            CompilerError: no compiler serves it.
            UsageError: less than one round, or a negative time.
        """
        if wishes.rounds < 1 or wishes.power_s < 0:
            raise UsageError(
                f"{wishes.rounds} rounds and {wishes.power_s:g} s of power; it takes 1 round or "
                "more, and 0 s or more"
            )
        self.wishes = wishes
        chosen = gpu.choose(door)
        self.device = device.select(arch, device_name, chosen)
        self.door = chosen.name
        self.compiler = compile.find()
        compile.check(self.compiler, self.device.arch, self.device.driver)
        space.device_limits(self.device.arch, self.device)
        self._door = door
        self._jobs = jobs or max(1, settings.jobs() - 1)
        self._on_wait = on_wait
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._pool = stack.enter_context(Pool(self.compiler, jobs=self._jobs))
            self._worker = stack.enter_context(
                Worker(
                    self.device,
                    door=self._door,
                    seed=self.wishes.seed,
                    on_wait=self._on_wait,
                )
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def prepare(self, problem: Problem, configs: Mapping[Config, tuple[str, ...]]) -> Heat:
        """Starts to compile configs, each with its names; they are timed by `time`."""
        return [self._start(problem, config, names) for config, names in configs.items()]

    def _start(self, problem: Problem, config: Config, names: tuple[str, ...]) -> _Compiling:
        arch = self.device.arch
        try:
            variant = render.render(problem, config, arch, sm_count=self.device.sm_count)
        except (InfeasibleError, TemplateError) as error:
            is_refused = isinstance(error, InfeasibleError)
            outcome = Outcome.infeasible if is_refused else Outcome.compile_error
            failed: Future[Binary | Failure] = Future()
            failed.set_result(Failure(outcome=outcome, message=str(error)))
            return _Compiling(names=names, config=config, plan=None, result=failed)
        result = self._pool.submit(variant.body, arch, timeout_s=COMPILE_TIMEOUT_S)
        return _Compiling(names=names, config=config, plan=variant.plan, result=result)

    def time(self, problem: Problem, heat: Heat) -> list[Entry]:
        """Verifies the configs of a problem and times them in turns, with the vendor library.

        Raises:
            ShapeError, DeviceError: the problem does not fit into memory, or the device is lost.
            CompilerError: nothing can compile here.
        """
        entries: list[Entry] = []
        runners: list[_Runner] = []
        for each in heat:
            result = each.result.result()
            if isinstance(result, Failure):
                entries.append(self._failed(each, result))
                continue
            assert each.plan is not None
            job = Job(
                problem=problem,
                plan=each.plan,
                cubin=result.cubin,
                stage=Stage.confirm,
                cold=self.wishes.cold,
            )
            runners.append(_Runner(each.names, each.config, result.registers, job))
        if self.wishes.with_vendor and not self.no_vendor(problem):
            vendor = VendorJob(problem=problem, cold=self.wishes.cold)
            runners.append(_Runner((VENDOR,), None, None, vendor))
        measurements = self._worker.confirm(
            [runner.job for runner in runners], rounds=self.wishes.rounds, seed=self.wishes.seed
        )
        for runner, measurement in zip(runners, measurements, strict=True):
            entries.append(
                Entry(
                    names=runner.names,
                    config=runner.config,
                    registers=runner.registers,
                    measurement=measurement,
                    power=self._power(runner.job) if measurement.is_ok else None,
                )
            )
        return entries

    def no_vendor(self, problem: Problem) -> str:
        """Why the vendor library is not timed; empty where it is, or is not wanted."""
        return (vendor_missing(problem) or "") if self.wishes.with_vendor else ""

    def _power(self, job: AnyJob) -> Power | None:
        seconds = self.wishes.power_s
        return self._worker.power(job, seconds) if seconds else None

    def _failed(self, each: _Compiling, failure: Failure) -> Entry:
        measurement = Measurement(
            outcome=failure.outcome,
            stage=Stage.confirm,
            message=failure.message,
            cold_l2=self.wishes.cold,
        )
        return Entry(names=each.names, config=each.config, measurement=measurement)
