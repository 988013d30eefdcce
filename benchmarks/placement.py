"""How much a kernel's time depends on where its data lies.

    python benchmarks/placement.py --db results.db --out benchmarks/results/placement_h200.json

Stored bests and the vendor's kernels, each timed in several fresh processes: where the process
happened to put the data, as a trial of a search is, and in a confirm round, which goes from place
to place. The file is written after each process.
"""

from __future__ import annotations

import argparse
import statistics
from concurrent.futures import Future
from typing import Any

import selection
from provenance import arguments, write

from autotune import device
from autotune.compile import Pool
from autotune.explain import choose
from autotune.measure import AnyJob, Job, Limits, VendorJob, Worker, vendor_missing
from autotune.render import render
from autotune.search import EFFORTS
from autotune.types import Binary, Device, Failure, LaunchPlan, Problem

ROUNDS = EFFORTS["normal"].rounds
CHOSEN = (
    "256x256x256/nn,384x384x384/nn,512x512x512,1024x1024x1024/nn,2048x2048x2048,64x64x4096,"
    "128x128x16384,4x7680x2560,128x8192x8192"
)
ENOUGH = Limits(min_samples=81, max_samples=81, recheck_launches=1)
"""For the data that stays: as many samples as a confirm round takes of a short kernel."""
OURS, VENDOR = "ours", "vendor"


def jobs(options: argparse.Namespace, target: Device) -> dict[Problem, Job]:
    """The best kernel of each problem."""
    plans: dict[Problem, tuple[LaunchPlan, Future[Binary | Failure]]] = {}
    found: dict[Problem, Job] = {}
    with Pool() as pool:
        for case in selection.cases(options):
            config = choose(case.problem, target, best=True, store=options.db).config
            variant = render(case.problem, config, target.arch, sm_count=target.sm_count)
            plans[case.problem] = variant.plan, pool.submit(variant.body, target.arch)
        for problem, (plan, compiling) in plans.items():
            binary = compiling.result()
            if not isinstance(binary, Binary):
                raise SystemExit(f"{problem.key}: {binary.message}")
            found[problem] = Job(problem=problem, plan=plan, cubin=binary.cubin, limits=ENOUGH)
    return found


def spread(times_ns: list[float]) -> dict[str, Any]:
    """Of the medians of several processes: the middle one, and how far the others are from it."""
    middle = statistics.median(times_ns)
    apart = [100 * abs(each / middle - 1) for each in times_ns]
    return {
        "median_ns": middle,
        "largest_difference_percent": max(apart),
        "within_1_percent": sum(each <= 1 for each in apart),
    }


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line for each problem and kernel: both ways, and how many intervals hold the middle one."""
    lines = []
    for problem, kernel in dict.fromkeys((row["problem"], row["kernel"]) for row in rows):
        mine = [row for row in rows if (row["problem"], row["kernel"]) == (problem, kernel)]
        moved = spread([row["moved_ns"] for row in mine])
        holding = [
            low <= moved["median_ns"] <= high
            for low, high in (row["moved_interval_ns"] for row in mine)
        ]
        lines.append(
            {
                "problem": problem,
                "kernel": kernel,
                "processes": len(mine),
                "stays": spread([row["stays_ns"] for row in mine]),
                "moved": moved,
                "intervals_with_the_median": sum(holding),
            }
        )
    return lines


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--db", required=True, help="store whose bests are timed")
    parser.add_argument("--processes", type=int, default=10)
    selection.add_arguments(parser)
    parser.set_defaults(only=CHOSEN)
    options = parser.parse_args()
    target = device.select()
    rows: list[dict[str, Any]] = []
    todo = jobs(options, target)
    for _ in range(options.processes):
        with Worker(target, door=options.door) as worker:
            for problem, job in todo.items():
                jobs_of: dict[str, AnyJob] = {OURS: job}
                if vendor_missing(problem) is None:
                    jobs_of[VENDOR] = VendorJob(problem=problem, limits=ENOUGH)
                stayed = [worker.measure(each) for each in jobs_of.values()]
                moved = worker.confirm(list(jobs_of.values()), rounds=ROUNDS)
                for kernel, one, many in zip(jobs_of, stayed, moved, strict=True):
                    if not (one.is_ok and many.is_ok):
                        raise SystemExit(f"{problem.key}, {kernel}: {one.message} {many.message}")
                    rows.append(
                        {
                            "problem": problem.key,
                            "kernel": kernel,
                            "stays_ns": one.median_ns,
                            "moved_ns": many.median_ns,
                            "moved_interval_ns": many.interval_ns,
                        }
                    )
        write(options, {"rounds": ROUNDS, "problems": summary(rows), "rows": rows})
    for line in summary(rows):
        print(
            f"{line['problem']:>30} {line['kernel']:>6}  "
            f"stays {line['stays']['median_ns'] / 1e3:7.2f} us "
            f"+-{line['stays']['largest_difference_percent']:5.2f} %  "
            f"moved {line['moved']['median_ns'] / 1e3:7.2f} us "
            f"+-{line['moved']['largest_difference_percent']:5.2f} %  "
            f"{line['intervals_with_the_median']} of {line['processes']} intervals"
        )


if __name__ == "__main__":
    main()
