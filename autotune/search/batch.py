"""A batch: several problems on one device, with one pool of compilers and one worker."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from autotune import archs, assets, compile, device, gpu, settings, space, verify
from autotune.compile import Pool
from autotune.errors import AutotuneError, DeviceError, ShapeError, StoreError, UsageError
from autotune.measure import Worker
from autotune.search.budget import Budget, effort
from autotune.search.events import Finished, Listener, Planned, Report, Waiting, ignore
from autotune.search.session import Session
from autotune.search.setting import Setting
from autotune.search.strategy import SAMPLERS
from autotune.space import Space
from autotune.store import Store
from autotune.types import Device, Evidence, Problem

DEFAULT_SHAPES = ("512x512x512", "1024x1024x1024", "2048x2048x2048", "4096x4096x4096")
"""What a search without a shape works through."""

LEAST_SHARE_S = 8.0
"""Of a time for all problems: what one needs to try some configs and to confirm the best."""

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
        total_seconds: Wall time for all problems together. Each gets an equal share of what is
            left, so that what one leaves over goes to the later ones; those for which less than
            `LEAST_SHARE_S` is left fail.
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
        jobs: Compiler processes at a time; None for `AUTOTUNE_JOBS`, else all CPUs, less one for
            the measuring process.
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
    ends_at = None
    if total_seconds is not None:
        budget = budget or Budget()
        if budget.seconds is not None:
            raise UsageError(
                "time is limited for each problem and for all; give only one of the two"
            )
        ends_at = time.monotonic() + total_seconds
        # In place of the effort's own limits; each problem gets its share of it.
        budget = replace(budget, seconds=total_seconds)
    chosen_effort = effort(effort_name).limited(budget)
    chosen_space = family_space or space.load(problems[0].kernel)
    if not nondeterministic:
        chosen_space = chosen_space.without_opt_in()
    target, note = _target(arch, device_name, door)
    chosen_compiler = compile.find(compiler)
    compile.check(chosen_compiler, target.arch, target.driver)
    if target.is_present:
        space.device_limits(target.arch, target)
    if len(problems) == 1:
        # Of several, one that does not fit is reported and the others go on.
        _check_memory(problems[0], target)
    with ExitStack() as stack:
        results = store if isinstance(store, Store) else stack.enter_context(Store.open(store))
        listener(
            Planned(
                device=target,
                compiler=chosen_compiler.label,
                door=gpu.choose(door).name if target.is_present else "",
                evidence=Evidence.measured if target.is_present else Evidence.predicted,
                problems=problems,
                store=str(results.place),
                note=note,
            )
        )
        processes = jobs or settings.jobs()
        if target.is_present and jobs is None:
            processes = max(1, processes - 1)
        pool = stack.enter_context(Pool(chosen_compiler, jobs=processes))
        worker = None
        if target.is_present:
            worker = stack.enter_context(
                Worker(
                    target,
                    door=door,
                    seed=seed,
                    on_wait=lambda owner: listener(Waiting(owner=owner)),
                )
            )
        setting = Setting(
            device=target,
            arch=target.arch,
            compiler=chosen_compiler,
            pool=pool,
            worker=worker,
            store=results,
            space=chosen_space,
            effort=chosen_effort,
            seed=seed,
            sampler=sampler,
            cold=cold,
            ahead=2 * processes,
            argv=argv,
            git_sha=assets.revision(),
            listener=listener,
        )
        return [
            _one(problem, setting, _share_s(ends_at, len(problems) - place))
            for place, problem in enumerate(problems)
        ]


def _target(arch: int | None, device_name: str | None, door: str | None) -> tuple[Device, str]:
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


def _share_s(ends_at: float | None, problems: int) -> float | None:
    """Seconds for the next of so many problems: an equal share, or enough to be of use while that
    lasts; 0 when it does not. None without a limit."""
    if ends_at is None:
        return None
    left_s = ends_at - time.monotonic()
    return max(left_s / problems, LEAST_SHARE_S) if left_s >= LEAST_SHARE_S else 0.0


def _one(problem: Problem, setting: Setting, seconds: float | None) -> Report:
    if seconds:
        effort = setting.effort
        limited = replace(effort, budget=replace(effort.budget, seconds=seconds))
        setting = replace(setting, effort=limited)
    session = Session(problem, setting)
    try:
        if seconds == 0.0:
            raise UsageError(f"less than {LEAST_SHARE_S:g} s of the time for all were left for it")
        _check_memory(problem, setting.device)
        report = session.run()
    except (StoreError, KeyboardInterrupt):
        raise
    except AutotuneError as error:
        # One shape of a batch that cannot work must not cost the others.
        _log.debug("search of %s failed", problem.key, exc_info=True)
        report = session.failed(str(error))
    setting.listener(Finished(report=report))
    return report


def _check_memory(problem: Problem, target: Device) -> None:
    needed = verify.needed_bytes(problem)
    if needed > target.memory_bytes:
        raise ShapeError(
            f"{problem.shape} needs {needed / 1e9:,.1f} GB to be verified and timed; {target.name} "
            f"has {target.memory_bytes / 1e9:,.1f} GB"
        )
