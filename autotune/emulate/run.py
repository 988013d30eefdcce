"""Gives the runtime a job and reads its result."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotune.analysis.shared_memory import LANES
from autotune.emulate import host
from autotune.emulate.data import Data
from autotune.errors import AutotuneError
from autotune.types import LaunchPlan, Operand, Problem, TensorMap, Variant

READ, WRITTEN, WORKSPACE, ZEROED = 1, 2, 4, 8
_ROLES = {"in": READ, "out": WRITTEN, "inout": READ + WRITTEN}

_WRITTEN = np.dtype(
    [
        ("element", "i8"), ("block", "i8"), ("thread", "i4"), ("line", "i4"), ("operand", "i4"),
        ("value", "f4"),
    ]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pattern:
    """Requests that are alike: same line, same kind, lanes equally placed to one another.

    Attributes:
        access: Index into `analysis.access.KINDS`.
        words: Per lane.
        offsets_bytes: Of the 32 lanes; -1 for one that takes no part. Of a bulk load the number of
            sectors that a lane's copy reads.
        sources_bytes: Of a copy by cp.async, where each lane reads; else empty.
        inside: Of such a copy, a bit for each lane that reads its source; the others write zeros.
    """

    access: int
    words: int
    line: int
    offsets_bytes: tuple[int, ...]
    sources_bytes: tuple[int, ...] = ()
    inside: int = 0


@dataclass(frozen=True, slots=True)
class RawFault:
    """A fault as the runtime prints it; see `Fault` in machine.h."""

    kind: int
    line: int
    block: int
    thread: int
    space: int
    offset_bytes: int
    words: int
    other_block: int
    other_thread: int
    other_line: int
    detail: tuple[int, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, slots=True)
class Written:
    """Elements of the output, one array entry for each that was written.

    Attributes:
        element: Place in the operand, in elements from its first.
        block, thread, line: Who wrote it last, and where.
    """

    element: NDArray[np.int64]
    value: NDArray[np.float32]
    block: NDArray[np.int64]
    thread: NDArray[np.int64]
    line: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Result:
    """What a run gave.

    Attributes:
        counts: Requests by pattern, for each (launch, block) that ended.
        unclean: Workspaces that every run must leave zero and this one did not, each with how many
            of its words are not zero.
        is_dependent: Whether blocks met in atomics, so that their order matters.
        is_hung: Whether the time was over; the rest is empty then.
    """

    faults: tuple[RawFault, ...]
    patterns: tuple[Pattern, ...]
    counts: dict[tuple[int, int], dict[int, int]]
    written: Written
    unclean: Mapping[str, int] = field(default_factory=dict)
    is_dependent: bool = False
    is_hung: bool = False


def run(
    variant: Variant,
    data: Data,
    blocks: Sequence[Sequence[int]],
    unread: Collection[str],
    timeout_s: float,
) -> Result:
    """Runs some blocks of each launch.

    Args:
        blocks: Linear numbers, for each launch of the plan.
        unread: Operands that must not be read.

    Raises:
        CompilerError: no compiler, or one that does not take the source.
        AutotuneError: the runtime failed; no fault of the kernel.
    """
    program, library = host.runtime(), host.library(variant)
    job = _job(variant.problem, variant.plan, data, blocks, unread)
    with tempfile.TemporaryDirectory(prefix="autotune-emulate-") as folder:
        elements = Path(folder) / "written"
        try:
            done = subprocess.run(
                [str(program), str(library), str(elements)],
                input=job,
                capture_output=True,
                text=True,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired:
            return Result((), (), {}, _written(np.empty(0, _WRITTEN)), is_hung=True)
        rows = np.empty(0, _WRITTEN)
        with contextlib.suppress(OSError):
            rows = np.fromfile(elements, _WRITTEN)
    return _parsed(done, rows, variant)


def memory(problem: Problem, plan: LaunchPlan) -> tuple[Operand, ...]:
    """All that kernels may access, in the runtime's order: operands, and workspaces as one row."""
    return (
        *problem.operands,
        *(
            Operand(
                name=workspace.name,
                role="inout",
                rows=1,
                columns=workspace.size_bytes // 4,
                leading_dimension=workspace.size_bytes // 4,
                batch=1,
                batch_stride=0,
                alignment_bytes=16,
            )
            for workspace in plan.workspaces
        ),
    )


def offset_bytes(operand: Operand) -> int:
    """Where an operand starts, from a multiple of 256 bytes: as unaligned as its class allows."""
    return operand.alignment_bytes % 16


def _job(
    problem: Problem,
    plan: LaunchPlan,
    data: Data,
    blocks: Sequence[Sequence[int]],
    unread: Collection[str],
) -> str:
    everything = memory(problem, plan)
    names = [operand.name for operand in everything]
    zeroed = {workspace.name: workspace.is_zeroed for workspace in plan.workspaces}
    lines = [str(len(names))]
    for operand in everything:
        role = _ROLES[operand.role]
        if operand.name in zeroed:
            role += WORKSPACE + ZEROED * zeroed[operand.name]
        if operand.name in unread:
            role &= ~READ
        fields = (
            operand.rows,
            operand.columns,
            operand.leading_dimension,
            operand.batch,
            operand.batch_stride,
            offset_bytes(operand),
            role,
            data.operand_seed(operand),
            data.limit,
        )
        lines.append(" ".join(map(str, fields)))
    lines.append(str(len(plan.launches)))
    for launch, chosen in zip(plan.launches, blocks, strict=True):
        lines.append(" ".join(map(str, (*launch.grid, *launch.block, launch.shared_bytes))))
        lines.append(str(len(launch.arguments)))
        for argument in launch.arguments:
            if argument.kind in ("operand", "workspace"):
                lines.append(f"p {names.index(argument.name)}")
            elif argument.tensor_map:
                lines.append(_map(argument.tensor_map, names))
            elif argument.kind == "float32":
                lines.append(f"r {data.scalars[argument.name]!r}")
            else:
                lines.append(f"i {argument.value}")
        lines.append(" ".join(map(str, (len(chosen), *chosen))))
    return "\n".join(lines) + "\n"


def _map(of: TensorMap, names: Sequence[str]) -> str:
    """An argument's line.

    Raises:
        AutotuneError: a swizzle of lines that the box does not have.
    """
    if of.swizzle_bytes and of.swizzle_bytes != of.box_columns * 4:
        raise AutotuneError(
            f"the box of {of.operand} is {of.box_columns * 4} bytes wide and swizzled by lines of "
            f"{of.swizzle_bytes}; the emulator knows only boxes as wide as the lines"
        )
    fields = (
        names.index(of.operand),
        of.columns,
        of.rows,
        of.leading_dimension,
        of.box_columns,
        of.box_rows,
        of.swizzle_bytes,
    )
    return " ".join(("t", *map(str, fields)))


def _parsed(
    done: subprocess.CompletedProcess[str], rows: NDArray[np.void], variant: Variant
) -> Result:
    faults: list[RawFault] = []
    patterns: list[Pattern] = []
    counts: dict[tuple[int, int], dict[int, int]] = {}
    lines = done.stdout.splitlines()
    if not lines or lines[-1] != "end":
        what = lines[-1].removeprefix("error ") if lines else done.stderr.strip()
        raise AutotuneError(f"the emulator failed (exit {done.returncode}): {what}")
    for line in lines[:-1]:
        word, *rest = line.split()
        numbers = [int(text) for text in rest]
        if word == "fault":
            faults.append(RawFault(*numbers[:10], detail=tuple(numbers[10:])))
        elif word == "pattern":
            access, words, at, *places = numbers
            offsets, sources = tuple(places[:LANES]), tuple(places[LANES : 2 * LANES])
            patterns.append(Pattern(access, words, at, offsets, sources, *places[2 * LANES :]))
        elif word == "block":
            launch, block, *pairs = numbers
            counts[launch, block] = dict(zip(pairs[::2], pairs[1::2], strict=True))
    operands = len(variant.problem.operands)
    unclean = {}
    for index, workspace in enumerate(variant.plan.workspaces, operands):
        # Bits, since what lies there need not be floats.
        left = np.count_nonzero(rows["value"][rows["operand"] == index].view("u4"))
        if workspace.is_zeroed and left:
            unclean[workspace.name] = int(left)
    written = _written(rows[rows["operand"] < operands])
    is_dependent = "dependent" in lines
    return Result(tuple(faults), tuple(patterns), counts, written, unclean, is_dependent)


def _written(rows: NDArray[np.void]) -> Written:
    return Written(
        element=rows["element"],
        value=rows["value"],
        block=rows["block"],
        thread=rows["thread"].astype(np.int64),
        line=rows["line"].astype(np.int64),
    )
