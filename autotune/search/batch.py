"""A batch: several problems on one device, with one pool of compilers and one worker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from threadpoolctl import threadpool_limits

from autotune import archs, assets, compile, device, gpu, settings, space, verify
from autotune.compile import Pool
from autotune.errors import AutotuneError, DeviceError, ShapeError, StoreError, UsageError
from autotune.measure import Worker
from autotune.search.budget import Budget, effort
from autotune.search.campaign import Campaign
from autotune.search.events import Finished, Listener, Planned, Report, Waiting, ignore
from autotune.search.patience import Patience
from autotune.search.samplers import SAMPLERS
from autotune.search.session import Session
from autotune.search.setting import Setting
from autotune.search.starts import Leaders
from autotune.space import Space
from autotune.store import Store
from autotune.types import Device, Evidence, Problem

DEFAULT_SHAPES = ("512x512x512", "1024x1024x1024", "2048x2048x2048", "4096x4096x4096")
"""What a search without a shape works through."""

_log = logging.getLogger("autotune")


def search(
    problems: Sequence[Problem],
    *,
    arch: int | None = None,
    device_name: str | None = None,
    budget: Budget | None = None,
    total_seconds: float | None = None,
    effort_name: str = "normal",
    seed: int = 0,
    sampler: str = "auto",
    store: Store | str | Path | None = None,
    compiler: str | None = None,
    door: str | None = None,
    cold: bool = True,
    family_space: Space | None = None,
    nondeterministic: bool = False,
    seeded: bool = True,
    jobs: int | None = None,
    argv: Sequence[str] = (),
    listener: Listener = ignore,
) -> list[Report]:
    """Finds the best config of each problem and stores it.

    Where a GPU of the architecture is present, candidates are compiled, verified, timed and
    confirmed on it. Where none is, they are compiled and ranked by the model, and stored as
    `predicted`. Every trial is stored as it ends; the same call goes on where an earlier one
    stopped.

    Args:
        problems: All of one kernel family.
        arch: Architecture, 75 for sm_75; None for that of the GPU that is present.
        device_name: CUDA index or UUID of the GPU.
        budget: Limits for each problem; those of the effort by default.
        total_seconds: Wall time for all problems together, in place of the effort's limits;
            `autotune.search.campaign` says who gets it.
        effort_name: `quick`, `normal` or `thorough`.
        seed: Of every random choice.
        sampler: How points are chosen: one of `autotune.search.SAMPLERS`.
        store: An open store, its location, or None for the user's own.
        compiler: `nvrtc` or `nvcc`; None for `AUTOTUNE_COMPILER`, else nvrtc.
        door: `pycuda` or `cuda-bindings`; None for the first that works.
        cold: Whether the L2 cache is emptied before each timed run.
        family_space: Another space for the same templates.
        nondeterministic: Whether values are tried that the space has only for those who ask for
            them, such as sums in any order, which give other roundings in every run.
        seeded: Whether to begin with what is known of near shapes and other devices, what ships
            with the package and what the model likes; else only with the presets.
        jobs: Compiler processes at a time; None for `AUTOTUNE_JOBS`, else all CPUs, in either case
            less one of the CPUs for the measuring process.
        listener: Told of everything that happens.

    Returns:
        A report for each problem, in their order. One that fails does not keep the others back.

    Raises:
        UsageError: no problem, problems of several families, an unknown effort or sampler, two
            limits of time.
        DeviceError: `arch` is None and there is no GPU, or the named GPU is not there.
        ArchitectureError: unknown, or no compiler here serves it.
        CompilerError: there is no compiler, or none that the driver can follow.
        ShapeError: the only problem does not fit into the device's memory.
        StoreError: the store cannot be opened or written.
        KeyboardInterrupt: as it came; all that was tried is stored.
    """
    if not problems:
        raise UsageError("there is nothing to search: no shape was given")
    kernels = {problem.kernel for problem in problems}
    if len(kernels) > 1:
        raise UsageError(f"one search serves one kernel family, not {', '.join(sorted(kernels))}")
    if sampler not in SAMPLERS:
        raise UsageError(f"{sampler!r} is not a sampler; possible are {', '.join(SAMPLERS)}")
    if total_seconds is not None:
        budget = replace(budget or Budget(), total_seconds=total_seconds)
    chosen_effort = effort(effort_name).limited(budget)
    chosen_space = family_space or space.load(problems[0].kernel)
    if not nondeterministic:
        chosen_space = chosen_space.without_opt_in()
    chosen_device, note = target(arch, device_name, door)
    chosen_compiler = compile.find(compiler)
    compile.check(chosen_compiler, chosen_device.arch, chosen_device.driver)
    if chosen_device.is_present:
        space.device_limits(chosen_device.arch, chosen_device)
    if len(problems) == 1:
        # Of several, one that does not fit is reported and the others go on.
        _check_memory(problems[0], chosen_device)
    with ExitStack() as stack:
        results = store if isinstance(store, Store) else stack.enter_context(Store.open(store))
        listener(
            Planned(
                device=chosen_device,
                compiler=chosen_compiler.label,
                door=gpu.choose(door).name if chosen_device.is_present else "",
                evidence=Evidence.measured if chosen_device.is_present else Evidence.predicted,
                problems=problems,
                seconds=total_seconds,
                store=str(results.place),
                note=note,
            )
        )
        processes = jobs or settings.jobs()
        if chosen_device.is_present and jobs is None:
            processes = min(processes, max(1, settings.cpus() - 1))
        pool = stack.enter_context(Pool(chosen_compiler, jobs=processes))
        worker = None
        if chosen_device.is_present:
            worker = stack.enter_context(
                Worker(
                    chosen_device,
                    door=door,
                    seed=seed,
                    on_wait=lambda owner: listener(Waiting(owner=owner)),
                )
            )
        setting = Setting(
            device=chosen_device,
            arch=chosen_device.arch,
            compiler=chosen_compiler,
            pool=pool,
            worker=worker,
            store=results,
            space=chosen_space,
            effort=chosen_effort,
            seed=seed,
            sampler=sampler,
            cold=cold,
            ahead=processes + max(4, processes // 2),
            seeded=seeded,
            patience=Patience(),
            argv=argv,
            git_sha=assets.revision(),
            listener=listener,
        )
        leaders: Leaders = {}
        sessions = [Session(problem, setting, leaders) for problem in problems]
        # What chooses points multiplies small matrices: threads of BLAS on every core take longer
        # over them than one, and take the cores from the compilers.
        stack.enter_context(threadpool_limits(1, user_api="blas"))
        return _run(sessions, total_seconds)


def _run(sessions: Sequence[Session], total_s: float | None) -> list[Report]:
    try:
        if total_s is not None:
            return Campaign(sessions, total_s, _guarded).run()
        return [_whole(session) for session in sessions]
    except BaseException:
        for session in sessions:
            # The store itself may be what failed.
            with suppress(StoreError):
                session.abandon()
        raise


def _whole(session: Session) -> Report:
    """A search in one go."""

    def search() -> Report:
        status = session.advance()
        assert status is not None
        return session.conclude(status)

    report = _guarded(session, search)
    assert report is not None
    return report


def _guarded(session: Session, step: Callable[[], Report | None]) -> Report | None:
    """What a step of a search reports; a failure of one problem must not cost the others."""
    try:
        _check_memory(session.problem, session.setting.device)
        report = step()
    except StoreError:
        raise
    except AutotuneError as error:
        _log.debug("search of %s failed", session.problem.key, exc_info=True)
        session.abandon()
        report = session.failed(str(error))
    if report is not None:
        session.setting.listener(Finished(report=report))
    return report


def target(
    arch: int | None, device_name: str | None, door: str | None = None
) -> tuple[Device, str]:
    """The GPU to use, or the typical one of an architecture that is not here, and why."""
    if arch is not None:
        archs.get(arch)
    chosen = gpu.choose(door) if arch is None or device_name is not None else None
    if chosen is not None:
        return device.select(arch, device_name, chosen), ""
    try:
        return device.select(arch, None, gpu.choose(door)), ""
    except DeviceError as error:
        assert arch is not None
        return archs.get(arch).typical, str(error)


def _check_memory(problem: Problem, target: Device) -> None:
    needed = verify.needed_bytes(problem)
    if needed > target.memory_bytes:
        raise ShapeError(
            f"{problem.shape} needs {needed / 1e9:,.1f} GB to be verified and timed; {target.name} "
            f"has {target.memory_bytes / 1e9:,.1f} GB"
        )
