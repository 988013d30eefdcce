"""What the emulator found, as one object or as tables."""

from __future__ import annotations

import dataclasses
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from autotune.analysis.access import KINDS, SHARED_KINDS
from autotune.emulate import AccessCount, Report
from autotune.report import text
from autotune.report.tables import table
from autotune.types import Variant


def as_object(variant: Variant, found: Report) -> dict[str, Any]:
    """Verdict, faults and counts."""
    return {
        "kernel": variant.problem.kernel,
        "shape": variant.problem.shape,
        "problem": variant.problem.key,
        "arch": variant.arch,
        "config_json": variant.config.json,
        "source_sha256": variant.source_sha256,
        "verdict": found.verdict,
        "faults": [dataclasses.asdict(fault) for fault in found.faults],
        "accesses": [dataclasses.asdict(access) for access in found.accesses],
        "totals": {
            kind.replace(" ", "_"): {
                name: getattr(found.total(kind), name)
                for name in ("requests", "wavefronts", "conflicts", "sectors")
            }
            for kind in KINDS
        },
        "classes": [dataclasses.asdict(each) for each in found.classes],
        "shared_bytes": found.shared_bytes,
        "blocks_run": found.blocks_run,
        "blocks_total": found.blocks_total,
        "seconds": found.seconds,
    }


def as_text(variant: Variant, found: Report) -> Group:
    """The verdict, then either the faults or the counts by source line."""
    ran = "every block" if found.blocks_run == found.blocks_total else f"{found.blocks_run} blocks"
    verdict = "right" if not found.faults else f"{len(found.faults)} faults"
    head = (
        f"{variant.problem.key}: {verdict}; {ran} of {found.blocks_total} run, "
        f"{found.shared_bytes:,} B of shared memory, {found.seconds:.1f} s"
    )
    if found.faults:
        return Group(Text(head), *(Text(f"{f.kind}: {f.message}") for f in found.faults))
    return Group(Text(head), Text(), _shared(found), Text(), _global(found), *_notes(found))


def _shared(found: Report) -> Table:
    rows = []
    for kind in SHARED_KINDS:
        accesses = [access for access in found.accesses if access.kind == kind]
        rows += [_shared_row(access) for access in accesses]
        total = found.total(kind)
        if total.requests:
            rows.append(_shared_row(dataclasses.replace(total, text=f"all {text.plural(kind)}")))
    return table(
        ["shared memory", "line", "bits", "requests", "wavefronts", "conflicts", "%"],
        rows,
        left=["shared memory"],
        fold=["shared memory"],
    )


def _shared_row(access: AccessCount) -> list[str]:
    share = access.conflicts / access.wavefronts if access.wavefronts else 0.0
    return [
        access.text.strip(),
        str(access.line or ""),
        str(access.width_bytes * 8 or ""),
        f"{access.requests:,}",
        f"{access.wavefronts:,}",
        f"{access.conflicts:,}",
        f"{share:.2%}".removesuffix("%"),
    ]


def _global(found: Report) -> Table:
    return table(
        ["global memory", "line", "bits", "requests", "sectors", "each"],
        [
            [
                access.text.strip(),
                str(access.line),
                str(access.width_bytes * 8),
                f"{access.requests:,}",
                f"{access.sectors:,}",
                f"{access.sectors / access.requests:.2f}",
            ]
            for access in found.accesses
            if access.kind.startswith("global")
        ],
        left=["global memory"],
        fold=["global memory"],
    )


def _notes(found: Report) -> list[Text]:
    """How a sample stands for the grid."""
    lines = [Text()] if found.classes else []
    for each in found.classes:
        alike = "alike" if each.is_uniform else "their mean counted"
        lines.append(
            Text(
                f"{each.blocks} blocks of {each.rows} x {each.columns}: {each.blocks_run} run, "
                f"{alike}"
            )
        )
    return lines
