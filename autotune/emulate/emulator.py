"""The one function of this package."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal

import numpy as np

from autotune.emulate import check, counts, sample
from autotune.emulate.data import Data, output
from autotune.emulate.describe import described
from autotune.emulate.report import Fault, FaultKind, Report, TileClass
from autotune.emulate.run import Result, run
from autotune.errors import AutotuneError, UsageError
from autotune.types import Variant

Blocks = Literal["all", "sample"] | Sequence[int]

_MORE_BLOCKS = 16
_SAMPLE_LIMIT = 256


def emulate(
    variant: Variant,
    *,
    blocks: Blocks = "all",
    seed: int = 0,
    scalars: Mapping[str, float] | None = None,
    unread: Collection[str] = (),
    timeout_s: float = 600.0,
) -> Report:
    """Runs a variant on the CPU, checks all that it does, and counts what it asks of memory.

    Operands hold small integers, so the result must be exact. Inputs take no memory and outputs
    only where they are written: a shape of any size can be checked on some of its blocks. Blocks
    that meet in atomics run in three orders, so that others come first and last; counts are those
    of the first.

    Args:
        variant: As `render` gives it.
        blocks: `all` runs the grid. `sample` runs up to three blocks of every class (whole tiles,
            and tiles cut along m, along n or along both) and extends their counts to the grid
            (`Report.classes`); it runs the grid where blocks do not each compute a tile by
            themselves. Otherwise the linear numbers of the blocks to run, x fastest;
            counts are then of these alone.
        seed: Of the data, and of the choice of blocks.
        scalars: Arguments of the kernel; the problem's own by default. With a scalar of 0 say in
            `unread` which operands must not be read, and run all blocks.
        unread: Operands that must not be read, beside those that are only written.
        timeout_s: Seconds that the kernel may run before it counts as hung.

    Raises:
        CompilerError: no C++ compiler on PATH, or one that does not take the source.
        UsageError: blocks that the grid does not have, or some blocks of a plan whose blocks do
            not each compute a tile by themselves.
        AutotuneError: the runtime failed, for example for want of address space.
    """
    started = time.perf_counter()
    data = Data(variant.problem, dict(scalars or variant.problem.scalars), seed)
    tile = variant.plan.tile
    grid = [range(launch.blocks) for launch in variant.plan.launches]
    total_blocks = sum(map(len, grid))
    chosen = _chosen(variant, blocks, seed, grid)
    is_whole = all(len(some) == len(every) for some, every in zip(chosen, grid, strict=True))
    is_sample = blocks == "sample" and not is_whole

    result = run(variant, data, chosen, unread, timeout_s)
    wanted = sample.parts(variant.problem, tile) if is_sample else Counter[sample.Part]()
    more = sample.more_blocks(total_blocks, seed)
    while wanted and not result.faults and not result.is_hung and len(chosen[0]) < _SAMPLE_LIMIT:
        if not wanted.keys() - _parts(variant, result).values():
            break
        chosen = [sorted({*chosen[0], *islice(more, _MORE_BLOCKS)})]
        result = run(variant, data, chosen, unread, timeout_s)

    lines = variant.source.splitlines()
    faults = _faults(result, variant, lines, timeout_s)
    if not faults:
        faults = check.faults(data, tile, result.written, None if is_whole else list(chosen[0]))
    if result.is_dependent and is_whole:
        for order in _other_orders(grid, seed):
            if not faults:
                again = run(variant, data, order, unread, timeout_s)
                faults = _faults(again, variant, lines, timeout_s)
            if not faults:
                faults = check.faults(data, tile, again.written, None)
    counted: counts.Counts = {}
    classes: tuple[TileClass, ...] = ()
    if not faults:
        of_blocks = counts.of_blocks(result.patterns, list(result.counts.values()))
        if is_sample:
            parts = _parts(variant, result)
            seen = [
                (parts[block], one)
                for (_, block), one in zip(result.counts, of_blocks, strict=True)
            ]
            if missing := wanted.keys() - parts.values():
                raise AutotuneError(
                    f"none of {len(chosen[0])} blocks computes a part of {sorted(missing)} rows "
                    'and columns; run them all (blocks="all")'
                )
            counted, classes = counts.extended(seen, wanted)
        else:
            counted = counts.added(of_blocks)
    return Report(
        faults=tuple(faults),
        accesses=counts.by_line(counted, lines),
        classes=classes,
        shared_bytes=max(launch.shared_bytes for launch in variant.plan.launches),
        seconds=time.perf_counter() - started,
        blocks_run=sum(map(len, chosen)),
        blocks_total=total_blocks,
    )


def _chosen(
    variant: Variant, blocks: Blocks, seed: int, grid: Sequence[range]
) -> list[Sequence[int]]:
    if blocks == "all":
        return list(grid)
    tile = variant.plan.tile
    tiles = sum(sample.parts(variant.problem, tile).values())
    if len(grid) > 1 or len(grid[0]) != tiles:
        if blocks == "sample":
            return list(grid)
        raise UsageError(
            f"the plan's {len(grid)} launches have {sum(map(len, grid))} blocks for {tiles} tiles, "
            'which depend on one another; run all of them (blocks="all")'
        )
    if blocks == "sample":
        return [sample.blocks(variant.problem, variant.config, tile, seed)]
    numbers = sorted({int(block) for block in blocks})
    if not numbers or not (numbers[0] >= 0 and numbers[-1] < len(grid[0])):
        raise UsageError(
            f"blocks {numbers[:4]}: name at least one, each from 0 to {len(grid[0]) - 1}"
        )
    return [numbers]


def _other_orders(grid: Sequence[range], seed: int) -> Iterator[list[Sequence[int]]]:
    """Orders of blocks that meet in atomics: others come first and last, as on the device."""
    yield [every[::-1] for every in grid]
    rng = np.random.default_rng([seed, 2])
    yield [[int(block) for block in rng.permutation(len(every))] for every in grid]


def _parts(variant: Variant, result: Result) -> dict[int, sample.Part]:
    """What each block computed; a block that wrote nothing is not among them."""
    found = check.Output(output(variant.problem), result.written)
    tile = variant.plan.tile
    regions = (found.region(block, tile) for _, block in result.counts)
    return {region.block: region.part for region in regions if region is not None}


def _faults(
    result: Result, variant: Variant, lines: Sequence[str], timeout_s: float
) -> list[Fault]:
    if result.is_hung:
        return [
            Fault(
                kind=FaultKind.hang,
                line=0,
                block=-1,
                thread=-1,
                address="",
                message=f"the kernel did not end in {timeout_s:g} s",
            )
        ]
    faults = [
        described(raw, variant, lambda line: lines[line - 1].strip()) for raw in result.faults
    ]
    return faults or [
        Fault(
            kind=FaultKind.not_zeroed,
            line=0,
            block=-1,
            thread=-1,
            address=name,
            message=f"{count} words of workspace {name} are not zero after the run",
        )
        for name, count in result.unclean.items()
    ]
