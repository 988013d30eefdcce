"""Whether the times of stored bests hold: each measured again in a fresh process.

    python benchmarks/holds.py --db results.db --out benchmarks/results/holds_h200.json

As `autotune verify` does it, problem by problem of the suite; the file is written after each.
"""

from __future__ import annotations

import statistics
from typing import Any

import selection
from provenance import arguments, write

from autotune import drift
from autotune.errors import NotFoundError


def again(found: drift.Drift) -> dict[str, Any]:
    """A line of the file."""
    return {
        "problem": found.problem,
        "claimed_ns": found.claimed_ns,
        "claimed_interval_ns": found.claimed_interval_ns,
        "median_ns": found.measurement.median_ns,
        "interval_ns": found.measurement.interval_ns,
        "percent": found.percent,
        "holds": found.holds,
        "changes": found.changes,
        "message": found.measurement.message,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many hold, and by how much the medians differ, in percent: of claims made on the GPU that
    is here, and of those of others of its model."""
    here = [row for row in rows if "gpu" not in row["changes"].split(",")]
    others = [row for row in rows if row not in here]
    return {"this_gpu": figures(here), "other_gpus": figures(others), "tolerance": drift.TOLERANCE}


def figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of some claims."""
    drifts = [abs(row["percent"]) for row in rows if row["percent"] is not None]
    return {
        "bests": len(rows),
        "hold": sum(row["holds"] for row in rows),
        "medians_within_1_percent": sum(each <= 1 for each in drifts),
        "median_drift_percent": statistics.median(drifts) if drifts else None,
        "largest_drift_percent": max(drifts, default=None),
    }


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--db", required=True, help="store whose bests are measured again")
    selection.add_arguments(parser)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for case in selection.cases(options):
        try:
            (found,) = drift.verify_best([case.problem], store=options.db, door=options.door)
        except NotFoundError as error:
            print(error)
            continue
        rows.append(again(found))
        percent = "-" if found.percent is None else f"{found.percent:+.2f} %"
        print(
            f"{found.problem:>36} {percent:>9}  {'' if found.holds else 'does not hold'}",
            flush=True,
        )
        write(options, {"summary": summary(rows), "rows": rows})
    if rows:
        print(summary(rows))


if __name__ == "__main__":
    main()
