"""The main job on a GPU: search five shapes, look them up, and time the seed's kernels beside them.

    python benchmarks/end_to_end.py --budget 120 --out benchmarks/results/end_to_end_h200.json

Each shape is searched by the command line, as a user would, into a store of its own. Then the best
config, the three seed presets and cuBLAS are confirmed once more against each other, in a fresh
process, in interleaved rounds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from provenance import arguments, write

from autotune import compile, device, render, space
from autotune.measure import Job, VendorJob, Worker
from autotune.problems import family
from autotune.types import Binary, Config, Stage

SHAPES = (
    "512x512x512",
    "1024x1024x1024",
    "2048x2048x2048",
    "4096x4096x4096",
    "1023x1025x1027",
)
SEEDS = ("seed-v3", "seed-v3.1", "seed-v3.2")


def autotune(*words: str) -> Any:
    """What a command prints as JSON."""
    command = [sys.executable, "-m", "autotune", *words, "--json"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if ran.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {ran.returncode}")
    return json.loads(ran.stdout)


def compare(shape: str, best: Config, door: str | None) -> dict[str, Any]:
    """Median times in ns of the best config, the seed presets and cuBLAS, interleaved."""
    chosen = device.select()
    kernels = space.load()
    problem = family("sgemm").parse(shape)
    configs = {"best": best}
    for name in SEEDS:
        fitted = kernels.fitted(kernels.preset(name), problem, chosen.arch)
        if fitted is not None:
            configs[name] = fitted
    jobs: list[Job | VendorJob] = []
    for config in configs.values():
        variant = render.render(problem, config, chosen.arch, sm_count=chosen.sm_count)
        binary = compile.compile_one(variant.body, chosen.arch)
        assert isinstance(binary, Binary), binary
        jobs.append(
            Job(problem=problem, plan=variant.plan, cubin=binary.cubin, stage=Stage.confirm)
        )
    jobs.append(VendorJob(problem=problem))
    with Worker(chosen, door=door) as worker:
        measurements = worker.confirm(jobs, rounds=15)
    rows = {}
    for name, measurement in zip([*configs, "cublas"], measurements, strict=True):
        assert measurement.is_ok, (name, measurement)
        rows[name] = {
            "median_ns": measurement.median_ns,
            "p20_ns": measurement.p20_ns,
            "p80_ns": measurement.p80_ns,
            "samples": measurement.samples,
            "tflops": problem.flops / measurement.median_ns / 1e3,
            "checks": measurement.checks,
            "sm_clock_mhz": measurement.conditions.sm_clock_mhz,
            "power_w": measurement.conditions.power_w,
        }
    return rows


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=120.0, help="seconds for each shape")
    parser.add_argument("--shape", action="append", help="in place of the five")
    parser.add_argument("--db", type=Path, default=Path("end_to_end.db"))
    options = parser.parse_args()
    shapes = options.shape or list(SHAPES)
    db = ("--db", str(options.db))
    results: dict[str, Any] = {"budget_s": options.budget, "shapes": {}}
    for shape in shapes:
        started = time.monotonic()
        (report,) = autotune(
            "search", "--arch", "native", "--shape", shape, "--budget", f"{options.budget:g}s", *db
        )
        seconds = time.monotonic() - started
        answer = autotune("lookup", shape, "--arch", "native", *db)
        best = Config.from_json(answer["config_json"])
        rows = compare(shape, best, options.door)
        results["shapes"][shape] = {
            "search": report,
            "search_seconds": seconds,
            "lookup": answer,
            "confirmed_again": rows,
        }
        write(options, results)  # what is measured is kept if the next shape fails
        print(f"{shape:>16}", *(f"{name} {row['tflops']:.1f}" for name, row in rows.items()))
    results["best"] = autotune("results", "best", *db)
    rows = autotune("results", "list", *db)
    unverified = [row for row in rows if row["outcome"] == "ok" and not row["checks"]]
    results["trials"] = len(rows)
    results["ok_rows_without_checks"] = len(unverified)
    write(options, results)
    print(f"{len(rows)} rows, {len(unverified)} of the ok ones without checks")


if __name__ == "__main__":
    main()
