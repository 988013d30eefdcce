"""One config explained on one screen, with pictures of who computes what."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from autotune.analysis.access import SHARED_KINDS, Access
from autotune.analysis.sass import Mix
from autotune.explain import Explanation
from autotune.explain.parts import LEAST_GAIN, Comparison, Tile, Traffic
from autotune.profile import TIME_NS, Profile
from autotune.report import text
from autotune.report.pictures import picture
from autotune.report.tables import table

_OPCODES = 6
_MANY_CONFLICTS = 0.05


# *** for programs ***


def as_object(found: Explanation) -> dict[str, Any]:
    """Everything, as one object; None for what is missing."""
    floor, grid, prediction = found.roofline, found.waves, found.prediction
    disassembled = found.sass
    return {
        "kernel": found.problem.kernel,
        "shape": found.problem.shape,
        "problem": found.problem.key,
        "arch": found.device.arch,
        "device": found.device.name,
        "config_json": found.choice.config.json,
        "origin": found.choice.origin,
        "match": found.choice.match,
        "evidence": found.choice.evidence,
        "known_ns": found.choice.time_ns,
        "tile": dataclasses.asdict(found.tile) if found.tile else None,
        "resources": dataclasses.asdict(found.resources),
        "occupancy": dataclasses.asdict(found.occupancy),
        "roofline": {
            **dataclasses.asdict(floor),
            "bound": floor.bound,
            "time_ns": floor.time_ns,
            "predicted_share": _share(floor.time_ns, prediction.time_ns if prediction else None),
            "measured_share": _share(floor.time_ns, _measured_ns(found.profile)),
        }
        if floor
        else None,
        "waves": {
            **dataclasses.asdict(grid),
            "count": grid.count,
            "full": grid.full,
            "tail_blocks": grid.tail_blocks,
            "efficiency": grid.efficiency,
            "recoveries": [dataclasses.asdict(each) for each in found.recoveries],
        }
        if grid
        else None,
        "accesses": {
            "source": found.traffic.source,
            "rows": [
                {**dataclasses.asdict(each), "conflict_share": each.conflict_share}
                for each in found.traffic.accesses
            ],
        }
        if found.traffic
        else None,
        "instructions": {
            "kernel": _mix(disassembled.kernel),
            "loop": _mix(disassembled.loop) if disassembled.loop else None,
            "spill_loads": disassembled.spill_loads,
            "spill_stores": disassembled.spill_stores,
        }
        if disassembled
        else None,
        "prediction": {
            "predicted_ns": prediction.time_ns,
            "tflops": text.tflops(found.problem.flops, prediction.time_ns),
            "terms_ns": dict(prediction.terms),
            "blocks_per_sm": prediction.blocks_per_sm,
            "limiter": found.limiter,
        }
        if prediction
        else None,
        "moves": [dataclasses.asdict(move) for move in found.moves],
        "profile": _profile(found.profile) if found.profile else None,
        "comparisons": [dataclasses.asdict(row) for row in found.comparisons],
        "missing": [dataclasses.asdict(each) for each in found.missing],
    }


def _mix(mix: Mix) -> dict[str, Any]:
    return {
        "instructions": mix.instructions,
        "ffma": mix.ffma,
        "ffma_share": mix.ffma_share,
        "reuse_share": mix.reuse_share,
        "opcodes": dict(mix.opcodes),
        "widths_bytes": {name: dict(widths) for name, widths in mix.widths.items() if widths},
    }


def _profile(profile: Profile) -> dict[str, Any]:
    return {
        "tool": profile.tool,
        "kernel": profile.kernel,
        "metrics": dict(profile.metrics),
        "gap": dataclasses.asdict(profile.gap) if profile.gap else None,
    }


def _share(least: float, ns: float | None) -> float | None:
    return least / ns if ns else None


def _measured_ns(profile: Profile | None) -> float | None:
    return profile.metrics.get(TIME_NS) if profile else None


# *** for people ***


def as_text(found: Explanation) -> Group:
    """The screen."""
    device = found.device
    here = "" if device.is_present else ", which is not here: typical clocks"
    blocks: list[Any] = [
        Text(f"{found.problem.key} on sm_{device.arch} ({device.name}{here})"),
        Text(),
    ]
    if found.tile:
        blocks += [Text(line) for line in picture(found.tile)]
        blocks.append(Text())
    facts = ["part", "value"]
    blocks.append(table(facts, _facts(found), left=facts, fold=["value"], header=False))
    if found.traffic:
        blocks += [Text(), _shared(found.traffic), Text(), _global(found.traffic)]
    if found.comparisons:
        blocks += [Text(), _comparisons(found.comparisons)]
    if found.missing:
        blocks.append(Text())
        blocks += [Text(f"missing: {each.part}: {each.reason}") for each in found.missing]
    return Group(*blocks)


def _facts(found: Explanation) -> Iterable[list[str]]:
    yield ["config", f"{text.config(found.choice.config, found.space)} ({found.choice.origin})"]
    if found.tile:
        yield ["in words", _words(found.tile)]
    yield ["resources", _resources(found)]
    yield ["occupancy", _occupancy(found)]
    if found.roofline:
        yield ["roofline", _roofline(found)]
    if found.waves:
        yield ["waves", _waves(found)]
    if found.sass:
        yield ["main loop" if found.sass.loop else "instructions", _instructions(found)]
    if found.prediction:
        yield ["predicted", _prediction(found)]
    if found.profile and found.profile.gap:
        yield ["lost to", _gap(found.profile)]
    yield ["next", next_step(found)]


def _words(tile: Tile) -> str:
    m, n = tile.m, tile.n
    return (
        f"a block computes {m.block} x {n.block} of C, {tile.depth} of k at a time, with "
        f"{tile.threads} threads as {m.warps} x {n.warps} warps of {m.lanes} x {n.lanes} lanes; "
        f"a thread {m.thread} x {n.thread}, loaded as {m.fragments} + {n.fragments} fragments of "
        f"{m.fragment} and {n.fragment}"
        + (f"; the last {tile.rest} by another launch" if tile.rest else "")
    )


def _resources(found: Explanation) -> str:
    took = found.resources
    words = f"{took.threads} threads, {took.registers} registers, {took.shared_bytes:,} B shared"
    if not took.compiler:
        return f"{words}; registers estimated, for want of a binary"
    spills = f"{took.spill_bytes} B spilled" if took.spill_bytes else "no spills"
    return f"{words}, {spills} ({took.compiler})"


def _occupancy(found: Explanation) -> str:
    resident = found.occupancy
    if resident.reason:
        return f"no block fits an SM: {resident.reason}"
    words = (
        f"{resident.blocks} block{'s' if resident.blocks > 1 else ''}, {resident.warps} warps an "
        f"SM: {resident.fraction:.0%}, limited by {' and '.join(resident.limited_by)}"
    )
    return f"{words}; {resident.next_step}" if resident.next_step else words


def _roofline(found: Explanation) -> str:
    floor = found.roofline
    assert floor is not None
    words = (
        f"{floor.bound} bound: {floor.intensity:.0f} FLOP/B against the device's "
        f"{floor.balance:.1f}; at least {text.time(floor.time_ns)}"
    )
    for name, ns in (
        ("measured", _measured_ns(found.profile)),
        ("predicted", found.prediction.time_ns if found.prediction else None),
    ):
        if ns:
            return f"{words}; {name} {text.time(ns)}, {floor.time_ns / ns:.0%} of it reached"
    return words


def _waves(found: Explanation) -> str:
    grid = found.waves
    assert grid is not None
    words = (
        f"{grid.blocks:,} blocks, {grid.blocks_per_wave} at a time: {grid.count} "
        f"wave{'s' if grid.count > 1 else ''}"
    )
    if not grid.tail_blocks:
        return f"{words}, all full"
    words += (
        f", the last {grid.tail_fraction:.0%} full; {1 - grid.efficiency:.1%} of the block slots "
        "stay empty"
    )
    if found.recoveries:
        best = found.recoveries[0]
        words += f"; {best.change} would fill {best.share:.1%} of the time"
    return words


def _instructions(found: Explanation) -> str:
    assert found.sass is not None
    mix = found.sass.loop or found.sass.kernel
    frequent = ", ".join(f"{name} {count}" for name, count in list(mix.opcodes.items())[:_OPCODES])
    widths = ", ".join(
        f"{name} {'+'.join(f'{count}x{8 * width} bit' for width, count in widths.items())}"
        for name, widths in mix.widths.items()
        if widths
    )
    return (
        f"{mix.instructions} instructions, FFMA {mix.ffma_share:.1%} (whole kernel: "
        f"{found.sass.kernel.ffma_share:.1%} of {found.sass.kernel.instructions}), "
        f"{mix.reuse_share:.2f} operands of an FFMA reused; {frequent}; {widths}"
    )


def _prediction(found: Explanation) -> str:
    prediction = found.prediction
    assert prediction is not None
    terms = ", ".join(
        f"{name} {text.time(ns)}"
        for name, ns in sorted(prediction.terms.items(), key=lambda term: -term[1])
        if ns > 0
    )
    rate = text.number(text.tflops(found.problem.flops, prediction.time_ns), 2)
    return f"{text.time(prediction.time_ns)}, {rate} TFLOP/s; its terms overlap: {terms}"


def _gap(profile: Profile) -> str:
    assert profile.gap is not None
    losses = ", ".join(f"{loss.cause} {loss.percent:.1f} %" for loss in profile.gap.losses)
    return f"{profile.gap.reached_percent:.1f} % of peak reached; {losses}"


def next_step(found: Explanation) -> str:
    """What is most worth changing, in words."""
    if not found.occupancy.blocks:
        return found.occupancy.next_step or "a smaller block: none fits an SM"
    if found.resources.spill_bytes:
        spilled = f"registers spill {found.resources.spill_bytes} B: a smaller thread tile, fewer "
        return f"{spilled}min_blocks or register_buffers"
    limit = f"{found.limiter} is the largest term" if found.limiter else "no model knows the kernel"
    if found.traffic:
        for kind in SHARED_KINDS:
            share = found.traffic.total(kind).conflict_share
            if share >= _MANY_CONFLICTS:
                accesses = text.plural(kind)
                limit += f"; {share:.0%} of the wavefronts of {accesses} are bank conflicts"
    if not found.moves:
        return f"{limit}; no single change gains {LEAST_GAIN:.1%} by the model: measure, or search"
    moves = ", or ".join(
        f"{move.parameter} {move.before} -> {move.after} ({move.gain:.1%} less time)"
        for move in found.moves
    )
    return f"{limit}; by the model {moves}"


def _shared(traffic: Traffic) -> Table:
    headings = ["access", "bits", "requests", "wavefronts", "each", "conflicts", "%"]
    source = "the source" if traffic.source == "emulator" else "the layout"
    rows = [access for access in traffic.accesses if access.kind.startswith("shared")]
    totals = [each for kind in SHARED_KINDS if (each := traffic.total(kind)).requests]
    cells = [
        [
            _name(access),
            str(8 * access.width_bytes) if access.width_bytes else text.DASH,
            f"{access.requests:,}",
            f"{access.wavefronts:,}",
            _each(access.wavefronts, access),
            f"{access.conflicts:,}",
            f"{100 * access.conflict_share:.2f}",
        ]
        for access in (*rows, *totals)
    ]
    title = f"Shared memory, whole launch, counted from {source}"
    return table(headings, cells, left=["access"], title=title)


def _global(traffic: Traffic) -> Table:
    headings = ["access", "bits", "requests", "sectors", "each"]
    cells = [
        [
            _name(access),
            str(8 * access.width_bytes) if access.width_bytes else text.DASH,
            f"{access.requests:,}",
            f"{access.sectors:,}",
            _each(access.sectors, access),
        ]
        for access in traffic.accesses
        if access.kind.startswith("global")
    ]
    return table(headings, cells, left=["access"], title="Global memory, whole launch")


def _name(access: Access) -> str:
    kind = access.kind.split()[1]
    return f"{access.operand.upper()} {kind}" if access.operand else f"all {text.plural(kind)}"


def _each(count: int, access: Access) -> str:
    return f"{count / access.requests:.2f}" if access.requests else text.DASH


def _comparisons(rows: Sequence[Comparison]) -> Table:
    cells = [
        [row.name, _figure(row.predicted, row.unit), _figure(row.measured, row.unit), _ratio(row)]
        for row in rows
    ]
    headings = ["figure", "predicted", "measured", "measured / predicted"]
    return table(headings, cells, left=["figure"], title="Beside the device's counters")


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return text.DASH
    if unit == "ns":
        return text.time(value)
    if unit == "share":
        return f"{value:.1%}"
    return f"{value:,.0f}" + (f" {unit}" if unit else "")


def _ratio(row: Comparison) -> str:
    if row.measured is None or not row.predicted:
        return text.DASH
    return f"{row.measured / row.predicted:.4f}"
