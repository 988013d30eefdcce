"""A bench as objects, rows and tables: problems beside the vendor library, and the ladder."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from autotune.bench.parts import BEST, DEFAULT, VENDOR
from autotune.report import text
from autotune.report.tables import table
from autotune.types import Device, Match, Problem

if TYPE_CHECKING:
    from autotune.bench import Entry, Ladder, Row, Step, Summary
    from autotune.lookup import Answer

COLUMNS = (
    "kernel", "shape", "problem", "class", "arch", "device", "outcome", "message", "match",
    "reason", "config_json", "bound", "median_ns", "p20_ns", "p80_ns", "samples", "tflops",
    "percent_of_peak", "gbs", "percent_of_bandwidth", "vendor_ns", "vendor_tflops", "ratio",
    "default_ns", "ratio_to_default", "power_w", "gflops_per_watt", "vendor_power_w",
    "vendor_gflops_per_watt", "sm_clock_mhz", "checks",
)  # fmt: skip
"""Of `row`, in order."""

STEP_COLUMNS = (
    "step", "changes", "outcome", "message", "median_ns", "tflops", "gain", "percent_of_vendor",
    "limiter", "why", "config_json", "registers", "power_w", "gflops_per_watt",
)  # fmt: skip
"""Of `step`, in order."""


# *** the suite ***


def row(found: Row, device: Device) -> dict[str, Any]:
    """One problem as a row for programs: the best config beside the vendor and the default.

    `message` says why there is no time, or why none of the vendor's; `ratio` is the vendor's time
    over ours.
    """
    problem = found.case.problem
    best, vendor = found.entry(BEST), found.entry(VENDOR)
    ours = _figures(best, problem)
    theirs = _figures(vendor, problem)
    median_ns = ours["median_ns"]
    gbs = problem.bytes_min / median_ns if median_ns else None
    is_memory_bound = found.roofline is not None and found.roofline.bound == "memory"
    answer = found.answer
    return {
        "kernel": problem.kernel,
        "shape": problem.shape,
        "problem": problem.key,
        "class": ",".join(found.case.classes),
        "arch": device.arch,
        "device": device.name,
        "outcome": str(best.measurement.outcome) if best else "failed",
        "message": "; ".join([*found.failures, *([found.no_vendor] if found.no_vendor else [])]),
        "match": str(answer.match) if answer else None,
        "reason": answer.reason if answer else None,
        "config_json": best.config.json if best and best.config else None,
        "bound": found.roofline.bound if found.roofline else None,
        "median_ns": median_ns,
        "p20_ns": best.measurement.p20_ns if best else None,
        "p80_ns": best.measurement.p80_ns if best else None,
        "samples": best.measurement.samples if best else 0,
        "tflops": ours["tflops"],
        "percent_of_peak": _percent(ours["tflops"], device.fp32_tflops),
        "gbs": gbs,
        "percent_of_bandwidth": _percent(gbs, device.bandwidth_gbs) if is_memory_bound else None,
        "vendor_ns": theirs["median_ns"],
        "vendor_tflops": theirs["tflops"],
        "ratio": found.ratio(VENDOR),
        "default_ns": found.time_ns(DEFAULT),
        "ratio_to_default": found.ratio(DEFAULT),
        "power_w": ours["power_w"],
        "gflops_per_watt": ours["gflops_per_watt"],
        "vendor_power_w": theirs["power_w"],
        "vendor_gflops_per_watt": theirs["gflops_per_watt"],
        "sm_clock_mhz": best.measurement.conditions.sm_clock_mhz if best else None,
        "checks": best.measurement.checks if best else "",
    }


def as_object(
    rows: Sequence[Row],
    summaries: Sequence[Summary],
    device: Device,
    head: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything: `head`, then the rows with all that was timed for each, then what they come to.

    Args:
        head: Provenance and settings.
    """
    return {
        **head,
        "rows": [
            {
                **row(found, device),
                "entries": [_entry(entry, found.case.problem) for entry in found.entries],
            }
            for found in rows
        ],
        "summary": [dataclasses.asdict(summary) for summary in summaries],
    }


def suite(rows: Sequence[Row], device: Device) -> Table:
    """A line for each problem; columns that no problem fills are left out."""
    others = dict.fromkeys(
        name
        for found in rows
        for entry in found.entries
        for name in entry.names
        if name not in (BEST, DEFAULT, VENDOR)
    )
    headings = [
        "problem", "class", "time", "TFLOP/s", "% of peak", "GB/s", "% of bandwidth", "vendor",
        "x vendor", "x default", *(f"x {name}" for name in others), "W", "vendor W", "GFLOP/s/W",
        "vendor GFLOP/s/W", "known by",
    ]  # fmt: skip
    cells = []
    for found in rows:
        figures = row(found, device)
        percent_of_bandwidth = figures["percent_of_bandwidth"]
        cells.append(
            [
                figures["problem"],
                figures["class"] or text.DASH,
                text.time(figures["median_ns"]),
                text.number(figures["tflops"], 2),
                text.number(figures["percent_of_peak"]),
                text.number(figures["gbs"] if percent_of_bandwidth else None, 0),
                text.number(percent_of_bandwidth),
                text.time(figures["vendor_ns"]),
                text.number(figures["ratio"], 3),
                text.number(figures["ratio_to_default"], 3),
                *(text.number(found.ratio(name), 3) for name in others),
                text.number(figures["power_w"], 0),
                text.number(figures["vendor_power_w"], 0),
                text.number(figures["gflops_per_watt"]),
                text.number(figures["vendor_gflops_per_watt"]),
                _known_by(found.answer),
            ]
        )
    shown = [
        place
        for place, _ in enumerate(headings)
        if any(line[place] != text.DASH for line in cells) or headings[place] in ("time", "TFLOP/s")
    ]
    return table(
        [headings[place] for place in shown],
        [[line[place] for place in shown] for line in cells],
        left=["problem", "class", "known by"],
        fold=["known by"],
    )


def summary(found: Sequence[Summary]) -> Table:
    """A line for each class, and one over all."""
    headings = ["class", "problems", "failed", "x vendor", "ahead", "least", "of"]
    cells = [
        [
            each.name,
            str(each.problems),
            str(each.failed),
            text.number(each.mean_ratio, 3),
            text.DASH if each.share_ahead is None else f"{each.share_ahead:.0%}",
            text.number(each.worst_ratio, 3),
            each.worst or text.DASH,
        ]
        for each in found
    ]
    return table(headings, cells, left=["class", "of"], title="Vendor's time / ours")


def line(found: Row) -> str:
    """A row in a few words."""
    problem = found.case.problem
    if (median_ns := found.time_ns(BEST)) is None:
        return f"{problem.key}: {text.first_line('; '.join(found.failures))}"
    rate = text.number(text.tflops(problem.flops, median_ns), 2)
    words = f"{problem.key}: {text.time(median_ns)}, {rate} TFLOP/s"
    ratio = found.ratio(VENDOR)
    return words if ratio is None else f"{words}, {ratio:.3f} x vendor"


def _known_by(answer: Answer | None) -> str:
    if answer is None:
        return text.DASH
    words = answer.match.replace("_", " ")
    if answer.match not in (Match.exact, Match.arch_default) and answer.problem:
        words += f", {answer.problem}"
    return f"{words}, stale" if answer.stale else words


# *** the ladder ***


def step(found: Step, ladder: Ladder) -> dict[str, Any]:
    """One step as a row for programs."""
    figures = _figures(found.entry, ladder.problem)
    vendor_ns = ladder.vendor.median_ns if ladder.vendor else None
    median_ns = figures["median_ns"]
    share = vendor_ns / median_ns if vendor_ns and median_ns else None
    return {
        "step": found.name,
        "changes": changes(found),
        "outcome": str(found.entry.measurement.outcome),
        "message": found.entry.measurement.message,
        "median_ns": median_ns,
        "tflops": figures["tflops"],
        "gain": found.gain,
        "percent_of_vendor": _percent(share, 1.0),
        "limiter": found.limiter,
        "why": found.why,
        "config_json": found.entry.config.json if found.entry.config else None,
        "registers": found.entry.registers,
        "power_w": figures["power_w"],
        "gflops_per_watt": figures["gflops_per_watt"],
    }


def ladder_object(ladder: Ladder, device: Device, head: Mapping[str, Any]) -> dict[str, Any]:
    """Everything: `head`, the problem, the steps in order, and the vendor library."""
    return {
        **head,
        "problem": ladder.problem.key,
        "shape": ladder.problem.shape,
        "peak_tflops": device.fp32_tflops,
        "steps": [step(each, ladder) for each in ladder.steps],
        "vendor": _entry(ladder.vendor, ladder.problem) if ladder.vendor else None,
        "message": ladder.no_vendor,
    }


def ladder(found: Ladder) -> Table:
    """A line for each step, and one for the vendor library."""
    headings = ["step", "changes", "TFLOP/s", "gain", "% of vendor", "limited by", "why"]
    cells = []
    for each in found.steps:
        figures = step(each, found)
        cells.append(
            [
                each.name,
                figures["changes"] or text.DASH,
                text.number(figures["tflops"], 2),
                text.number(figures["gain"], 3),
                text.number(figures["percent_of_vendor"]),
                each.limiter or text.DASH,
                each.why,
            ]
        )
    if found.vendor is not None:
        rate = text.number(_figures(found.vendor, found.problem)["tflops"], 2)
        cells.append(["vendor", text.DASH, rate, text.DASH, "100.0", text.DASH, text.DASH])
    left = ["step", "changes", "limited by", "why"]
    return table(headings, cells, left=left, fold=["changes", "why"])


def changes(found: Step) -> str:
    """What a step changes, in words: `block_k 8 to 16, min_blocks 2 to 1`."""
    return ", ".join(f"{name} {old} to {new}" for name, (old, new) in found.changes.items())


# *** entries ***


def _figures(entry: Entry | None, problem: Problem) -> dict[str, float | None]:
    median_ns = entry.median_ns if entry else None
    power = entry.power if entry else None
    return {
        "median_ns": median_ns,
        "tflops": text.tflops(problem.flops, median_ns),
        "power_w": power.power_w if power else None,
        "gflops_per_watt": power.gflops_per_watt(problem.flops) if power else None,
    }


def _entry(entry: Entry, problem: Problem) -> dict[str, Any]:
    """One kernel with all that was measured."""
    measurement = entry.measurement
    return {
        "names": list(entry.names),
        "config_json": entry.config.json if entry.config else None,
        "registers": entry.registers,
        "outcome": str(measurement.outcome),
        "message": measurement.message,
        "samples": measurement.samples,
        **_figures(entry, problem),
        "p20_ns": measurement.p20_ns,
        "p80_ns": measurement.p80_ns,
        "max_error": measurement.max_error,
        "checks": measurement.checks,
        "conditions": dataclasses.asdict(measurement.conditions),
        "power": dataclasses.asdict(entry.power) if entry.power else None,
    }


def _percent(value: float | None, of: float) -> float | None:
    return 100 * value / of if value is not None and of else None
