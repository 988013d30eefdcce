"""Asks compiler, analysis, emulator and profiler, and takes down what could not be had."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from autotune import compile, render, space
from autotune import profile as profiler
from autotune.analysis import predict, sass, sgemm_accesses, sgemm_work
from autotune.analysis.access import KINDS, Access, Kind, total
from autotune.analysis.occupancy import occupancy
from autotune.analysis.roofline import roofline
from autotune.analysis.waves import waves
from autotune.emulate import Report, emulate
from autotune.errors import AutotuneError, CompilerError, InfeasibleError, UsageError
from autotune.explain.change import moves, recoveries
from autotune.explain.compare import comparisons
from autotune.explain.parts import Axis, Choice, Explanation, Missing, Resources, Tile, Traffic
from autotune.problems.sgemm import Sgemm
from autotune.space import Space
from autotune.types import Binary, Config, Device, Failure, Problem, Variant

_EMULATION_SECONDS = 120.0
_LANES = 32

Made = TypeVar("Made")


def explain(
    problem: Problem,
    device: Device,
    choice: Choice,
    *,
    family_space: Space | None = None,
    profile: bool = False,
    door: str | None = None,
) -> Explanation:
    """Gathers everything about a config. Compiles it, and emulates some of its blocks.

    Args:
        device: For example `archs.get(75).typical`; a live one for `profile`.
        profile: Also count a launch on the device.
        door: Binding to the driver, for `profile`.

    Raises:
        InfeasibleError: the config cannot serve the problem; the message gives the rule, and the
            values with which it could.
        TemplateError: the template fails.
    """
    chosen = family_space or space.load(problem.kernel)
    config = choice.config
    _check(chosen, config, problem, device.arch)
    variant = render.render(
        problem, config, device.arch, family_space=chosen, sm_count=device.sm_count
    )
    parts = _Parts()

    binary = parts.get("registers, spills and instruction mix", lambda: _compiled(variant))
    resources = _resources(variant, binary)
    resident = occupancy(resources.threads, resources.registers, resources.shared_bytes, device)
    grid = None
    if resident.blocks:
        cluster = int(chosen.values(config, problem, device.arch).get("cluster_blocks", 1))
        grid = waves(variant.plan.main.blocks, device.sm_count, resident.blocks, cluster)
    else:
        parts.note("waves and predicted time", f"no block fits an SM: {resident.reason}")
    disassembled = None
    if binary is not None:
        entry = variant.plan.main.entry
        disassembled = parts.get("instruction mix", lambda: sass.analyse(binary.cubin, entry))
    traffic = _traffic(variant, parts)
    # Both speak of time, which takes the device's clocks.
    floor = parts.get("roofline and predicted time", lambda: roofline(problem, device))
    prediction = None
    if grid is not None and floor is not None:
        prediction = parts.get(
            "predicted time",
            lambda: predict.candidate(problem, config, device, resources.registers),
        )
    counted = None
    if profile and binary is not None:
        counted = parts.get(
            "measured counters", lambda: profiler.profile(variant, binary, device, door=door)
        )
    elif profile:
        parts.note("measured counters", "there is no compiled kernel to launch")
    return Explanation(
        problem=problem,
        device=device,
        choice=choice,
        space=chosen,
        tile=_tile(chosen.values(config, problem, device.arch)),
        resources=resources,
        occupancy=resident,
        roofline=floor,
        waves=grid,
        recoveries=recoveries(chosen, variant, grid) if grid else (),
        traffic=traffic,
        sass=disassembled,
        prediction=prediction,
        limiter=prediction.limiter if prediction else "",
        moves=moves(chosen, config, problem, device) if floor else (),
        profile=counted,
        comparisons=comparisons(counted, problem, resident, traffic, disassembled, prediction)
        if counted
        else (),
        missing=tuple(parts.missing),
    )


class _Parts:
    """Takes down what could not be had."""

    def __init__(self) -> None:
        self.missing: list[Missing] = []

    def get(self, part: str, make: Callable[[], Made]) -> Made | None:
        """What `make` gives; None, with a note, for an expected fault."""
        try:
            return make()
        except AutotuneError as error:
            self.note(part, str(error))
            return None

    def note(self, part: str, reason: str) -> None:
        self.missing.append(Missing(part=part, reason=reason))


def _check(chosen: Space, config: Config, problem: Problem, arch: int) -> None:
    try:
        chosen.check(config, problem, arch)
    except InfeasibleError as error:
        fitted = chosen.fitted(config, problem, arch) if set(config) >= _names(chosen) else None
        if fitted is None:
            raise
        changes = ", ".join(
            f"{name} {value}" for name, value in fitted.items() if value != config[name]
        )
        raise InfeasibleError(f"{error}; with {changes} it can") from None


def _names(chosen: Space) -> set[str]:
    return {parameter.name for parameter in chosen.parameters}


def _compiled(variant: Variant) -> Binary:
    compiler = compile.find()
    compile.check(compiler, variant.arch)
    made = compile.compile_one(variant.body, variant.arch, compiler=compiler)
    if isinstance(made, Failure):
        raise CompilerError(made.message)
    return made


def _resources(variant: Variant, binary: Binary | None) -> Resources:
    launch = variant.plan.main
    if binary is not None:
        return Resources(
            threads=launch.threads,
            registers=binary.registers,
            shared_bytes=launch.shared_bytes + binary.static_shared_bytes,
            spill_bytes=binary.spill_bytes,
            stack_bytes=binary.stack_bytes,
            compiler=binary.compiler,
        )
    return Resources(
        threads=launch.threads,
        registers=_estimated_registers(variant),
        shared_bytes=launch.shared_bytes,
        spill_bytes=None,
        stack_bytes=None,
        compiler="",
    )


def _estimated_registers(variant: Variant) -> int:
    if isinstance(variant.problem, Sgemm):
        return sgemm_work.work(variant.problem, variant.config).registers
    raise UsageError(f"no model estimates the registers of {variant.problem.kernel}")


# *** who computes what ***


def _tile(values: Mapping[str, Any]) -> Tile | None:
    """From the names that every space of a matrix product uses; None for another kernel."""
    needed = ("block_k", "threads", "lane_map", "lanes_m")
    if any(name not in values for name in needed):
        return None
    return Tile(
        m=_axis(values, "m"),
        n=_axis(values, "n"),
        depth=values["block_k"],
        threads=values["threads"],
        lanes=_lanes(values["lane_map"], values["lanes_m"]),
        rest=_rest(values),
    )


def _rest(values: Mapping[str, Any]) -> str:
    lines = values.get("rest_lines", 0)
    if not lines:
        return ""
    kind = str(values["rest"])
    return f"{lines} {kind if lines > 1 else kind.removesuffix('s')}"


def _axis(values: Mapping[str, Any], axis: str) -> Axis:
    names = (
        "block", "thread", "warps", "lanes", "fragment", "warp_stride", "lane_stride",
        "fragment_stride",
    )  # fmt: skip
    return Axis(**{name: int(values[f"{name}_{axis}"]) for name in names})


def _lanes(lane_map: str, lanes_m: int) -> tuple[tuple[int, ...], ...]:
    grid = [[0] * (_LANES // lanes_m) for _ in range(lanes_m)]
    for index in range(_LANES):
        row, column = sgemm_work.lane(lane_map, lanes_m, index)
        grid[row][column] = index
    return tuple(map(tuple, grid))


# *** memory ***


def _traffic(variant: Variant, parts: _Parts) -> Traffic | None:
    """Counted by the emulator where it runs, else from the layout."""
    try:
        report = emulate(variant, blocks="sample", timeout_s=_EMULATION_SECONDS)
        if not report.faults:
            return Traffic(source="emulator", accesses=by_operand(report))
        reason = f"the emulator finds a fault: {report.faults[0].message}"
    except AutotuneError as error:
        reason = str(error)
    if isinstance(variant.problem, Sgemm):
        parts.note("accesses counted from the source (the layout's are shown)", reason)
        counted = sgemm_accesses.accesses(variant.problem, variant.config)
        return Traffic(source="layout", accesses=counted)
    parts.note("accesses", reason)
    return None


def by_operand(report: Report) -> tuple[Access, ...]:
    """Lines of the source added up by operand and kind of access."""
    groups: defaultdict[tuple[str, Kind], list[Access]] = defaultdict(list)
    for counted in report.accesses:
        # The template names what a line moves: staged_a, fragment_b; what is neither is C.
        operand = re.search(r"_([ab])\b", counted.text)
        name = operand[1] if operand else "c"
        groups[name, counted.kind].append(
            Access(
                operand=name,
                kind=counted.kind,
                width_bytes=counted.width_bytes,
                requests=counted.requests,
                wavefronts=counted.wavefronts,
                conflicts=counted.conflicts,
                sectors=counted.sectors,
            )
        )
    order = sorted(groups, key=lambda key: (KINDS.index(key[1]), key[0]))
    return tuple(total(name, kind, groups[name, kind]) for name, kind in order)
