"""Judges the model of `autotune.analysis.predict` against recorded variants; needs no GPU.

    python benchmarks/judge_model.py [--json] [--fit] [FILE.json.gz ...]

Per shape: Spearman's rank correlation of predicted and measured times, and the best measured time
among the 16 that the model ranks first, divided by the best of all. Both with the registers of the
binary and without, as before compiling. `--fit` also searches for better constants on the shapes
that were used for fitting, so that their origin can be repeated.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from autotune import archs, space
from autotune.analysis import sgemm_work
from autotune.analysis.predict import FITTED, FITTED_ON, Constants, predict
from autotune.analysis.work import Work
from autotune.problems.sgemm import Sgemm
from autotune.types import Device

_RESULTS = Path(__file__).parent / "results"
RECORDED = (_RESULTS / "variants_h200.json.gz", _RESULTS / "variants_wide_h200.json.gz")
"""Of register-staged kernels of one launch, which the constants fit, and of the whole space."""
NOT_PARAMETERS = ("registers", "spill_bytes", "predicted_ns", "median_ns")
TOP = 16
LARGEST_ERROR = 0.5
"""In a fit, larger errors of a logarithm count as this: those few variants spill without end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variants:
    """The recorded variants of one shape, as the model sees them.

    Attributes:
        before: Their work as estimated before compiling.
        after: Their work with the registers of the binary.
        median_ns: Their measured times.
    """

    before: list[Work]
    after: list[Work]
    median_ns: list[float]


def load(path: Path) -> tuple[dict[str, Any], dict[str, Variants]]:
    """Provenance, and the variants of each shape."""
    with gzip.open(path, "rt") as file:
        recorded = json.load(file)
    found = {}
    for shape, part in recorded["shapes"].items():
        problem, before, after, times = Sgemm.parse(shape), [], [], []
        for row in part["rows"]:
            values = dict(zip(part["columns"], row, strict=True))
            known = {k: v for k, v in values.items() if k not in NOT_PARAMETERS}
            config = space.load().config(known)
            before.append(sgemm_work.work(problem, config))
            after.append(sgemm_work.work(problem, config, values["registers"]))
            times.append(float(values["median_ns"]))
        found[shape] = Variants(before=before, after=after, median_ns=times)
    return recorded["provenance"], found


def spearman(one: list[float], other: list[float]) -> float:
    """Rank correlation; equal values share their mean rank."""

    def ranks(values: list[float]) -> Any:
        _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[index]

    return float(np.corrcoef(ranks(one), ranks(other))[0, 1])


def gap(predicted: list[float], measured: list[float]) -> float:
    """Best measured time of the model's first `TOP`, over the best of all."""
    first = sorted(zip(predicted, measured, strict=True))[:TOP]
    return min(time for _, time in first) / min(measured)


def judge(shapes: Mapping[str, Variants], device: Device) -> list[dict[str, Any]]:
    """One row a shape."""
    rows = []
    for shape, variants in shapes.items():
        measured = variants.median_ns
        before, after = (
            [predict(work, device).time_ns for work in works]
            for works in (variants.before, variants.after)
        )
        rows.append(
            {
                "shape": shape,
                "fitted": shape in FITTED_ON,
                "variants": len(measured),
                "spearman_before": spearman(before, measured),
                "spearman_after": spearman(after, measured),
                "gap_before": gap(before, measured),
                "gap_after": gap(after, measured),
                # Typical, over all variants: how much longer they take than the model says.
                "median_ratio": median(m / p for m, p in zip(measured, after, strict=True)),
            }
        )
    return rows


def fit(shapes: Mapping[str, Variants], device: Device, rounds: int = 8) -> Constants:
    """Searches along one constant after the other for the least error on the fitted shapes.

    The error is the root mean square of the logarithm of measured over predicted, about its median,
    and a fifth of that median: ranking matters most.
    """

    def error(constants: Constants) -> float:
        errors = []
        for shape in FITTED_ON:
            variants = shapes[shape]
            logs = [
                math.log(measured / predict(work, device, constants).time_ns)
                for work, measured in zip(variants.after, variants.median_ns, strict=True)
            ]
            middle = median(logs)
            spread = fmean(min(abs(each - middle), LARGEST_ERROR) ** 2 for each in logs)
            errors.append(math.sqrt(spread) + abs(middle) / 5)
        return fmean(errors)

    best = FITTED
    least = error(best)
    steps = {field.name: 1.1 for field in fields(Constants)}
    for _ in range(rounds):
        for name, step in steps.items():
            for factor in (step, 1 / step):
                tried = replace(best, **{name: getattr(best, name) * factor})
                if (found := error(tried)) < least:
                    best, least = tried, found
                    break
            else:
                steps[name] = math.sqrt(step)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, default=RECORDED)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--fit", action="store_true", help="also search for better constants")
    options = parser.parse_args()
    results = []
    for file in options.files:
        provenance, shapes = load(file)
        device = archs.get(provenance["arch"]).typical
        result: dict[str, Any] = {"recorded": provenance, "shapes": judge(shapes, device)}
        if options.fit and set(FITTED_ON) <= shapes.keys():
            found = fit(shapes, device)
            result["constants"] = {f.name: getattr(found, f.name) for f in fields(Constants)}
        results.append(result)
        if not options.json:
            show(file, result)
    if options.json:
        print(json.dumps(results, indent=1))


def show(file: Path, result: Mapping[str, Any]) -> None:
    """Prints one file's rows as a table."""
    provenance = result["recorded"]
    print(f"{provenance['device']}, recorded {provenance['date'][:10]}, {file.name}")
    print(f"{'':18}           {'':>8}   Spearman       best of {TOP} / best   measured /")
    print(f"{'shape':>18}           variants before  after  before  after      predicted")
    for row in result["shapes"]:
        print(
            f"{row['shape']:>18}  {'fitted' if row['fitted'] else 'held out':8} "
            f"{row['variants']:>8}  {row['spearman_before']:.3f}  {row['spearman_after']:.3f}"
            f"   {row['gap_before']:.3f}  {row['gap_after']:.3f}          {row['median_ratio']:.2f}"
        )
    for name, value in result.get("constants", {}).items():
        print(f"{name:>18} {value:8.3f} (now {getattr(FITTED, name)})")


if __name__ == "__main__":
    main()
