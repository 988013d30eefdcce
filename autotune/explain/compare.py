"""What was foreseen, beside what the device counted."""

from __future__ import annotations

from collections.abc import Mapping

from autotune import profile as profiler
from autotune.analysis.access import Kind
from autotune.analysis.occupancy import Occupancy
from autotune.analysis.predict import Prediction
from autotune.analysis.sass import Sass
from autotune.explain.parts import Comparison, Traffic
from autotune.profile import Profile
from autotune.types import Problem


def comparisons(
    counted: Profile,
    problem: Problem,
    resident: Occupancy,
    traffic: Traffic | None,
    disassembled: Sass | None,
    prediction: Prediction | None,
) -> tuple[Comparison, ...]:
    metrics = counted.metrics
    rows = [
        Comparison(
            name="time",
            unit="ns",
            predicted=prediction.time_ns if prediction else None,
            measured=metrics.get(profiler.TIME_NS),
        )
    ]
    conflicts = {
        "shared load": counted.load_conflicts,
        "shared store": counted.store_conflicts,
        "shared copy": metrics.get(profiler.COPY_CONFLICTS),
    }
    for kind, names in _COUNTERS.items():
        total = traffic.total(kind) if traffic else None
        # Not before sm_80, and of no interest where nothing is copied so.
        if kind == "shared copy" and not (total and total.requests):
            continue
        for field, alike in names.items():
            values = (metrics.get(name) for name in alike)
            rows.append(
                Comparison(
                    name=f"{kind} {field}",
                    unit="",
                    predicted=getattr(total, field) if total else None,
                    measured=next((value for value in values if value is not None), None),
                )
            )
        if kind in conflicts:
            rows.append(
                Comparison(
                    name=f"{kind} conflicts",
                    unit="",
                    predicted=total.conflicts if total else None,
                    measured=conflicts[kind],
                )
            )
    sectors = None
    if traffic:
        sectors = sum(traffic.total(kind).sectors for kind in ("global load", "global store"))
    share = disassembled.loop.ffma_share if disassembled and disassembled.loop else None
    warps_active = metrics.get(profiler.WARPS_ACTIVE)
    rows += [
        Comparison(
            name="L2 traffic",
            unit="bytes",
            predicted=None if sectors is None else 32 * sectors,
            measured=metrics.get(profiler.L2_BYTES),
        ),
        Comparison(
            name="DRAM traffic",
            unit="bytes",
            predicted=problem.bytes_min,
            measured=metrics.get(profiler.DRAM_BYTES),
        ),
        Comparison(
            name="FFMA of all instructions",
            unit="share",
            predicted=share,
            measured=counted.ffma_share,
        ),
        Comparison(
            name="occupancy",
            unit="share",
            predicted=resident.fraction,
            measured=None if warps_active is None else warps_active / 100,
        ),
        Comparison(
            name="issue slots used", unit="share", predicted=None, measured=counted.issue_share
        ),
        Comparison(name="SM clock", unit="MHz", predicted=None, measured=counted.sm_clock_mhz),
    ]
    return tuple(rows)


_COUNTERS: Mapping[Kind, Mapping[str, tuple[str, ...]]] = {
    "shared load": {
        "requests": profiler.SHARED_LOADS,
        "wavefronts": (profiler.LOAD_WAVEFRONTS,),
    },
    "shared store": {
        "requests": profiler.SHARED_STORES,
        "wavefronts": (profiler.STORE_WAVEFRONTS,),
    },
    "shared copy": {
        "requests": profiler.SHARED_COPIES,
        "wavefronts": (profiler.COPY_WAVEFRONTS,),
    },
    "global load": {"requests": (profiler.GLOBAL_LOADS,), "sectors": (profiler.LOAD_SECTORS,)},
    "global store": {"requests": (profiler.GLOBAL_STORES,), "sectors": (profiler.STORE_SECTORS,)},
}
"""Kind of access, its figures, and the counters that they are: the first that was counted."""
