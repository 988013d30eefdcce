"""Measures random valid variants of some shapes, so that models and searches can be judged offline.

    python benchmarks/record_variants.py --count 320 --shape 1024x1024x1024 ... --out FILE.json
    python benchmarks/record_variants.py --count 3000 --shape 1024x1024x1024 --out FILE.json
        --around async-64x64x32 --vary block_m,block_n,thread_m,thread_n,stages

With --around all else is as in a preset: where the count reaches for every point, neighbours are
there too, as replays of local searches need them. Every variant is verified and timed as in a
search, but without the early stop: slow ones are kept with their real time. Times are cold-L2
medians.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
from provenance import arguments, write

from autotune import compile, device, render, space, templates
from autotune.analysis import predict
from autotune.measure import Job, Limits, Worker
from autotune.problems import family
from autotune.types import Binary, Config, Failure, Problem, Variant

LIMITS = Limits(max_samples=15, min_samples=5, budget_ms=60.0, recheck_launches=2)


def points(options: argparse.Namespace, problem: Problem, arch: int) -> list[Config]:
    """The starts and random points, or those around a preset."""
    kernels, rng = space.load(problem.kernel), np.random.default_rng(options.seed)
    if not options.around:
        starts = kernels.start_configs(problem, arch)
        region = kernels.region(problem, arch)
        return starts + region.sample(options.count, rng, exclude=set(starts))
    base = kernels.fitted(kernels.preset(options.around), problem, arch)
    if base is None:
        raise SystemExit(f"{options.around} does not fit {problem.key}")
    varied = {kernels.parameter(name).name for name in options.vary.split(",")}
    parameters = tuple(
        parameter
        if parameter.name in varied
        else replace(parameter, values=(base[parameter.name],), default=base[parameter.name])
        for parameter in kernels.without_opt_in().parameters
    )
    methods = {base["method"]: kernels.methods[str(base["method"])]}
    region = replace(kernels, parameters=parameters, methods=methods).region(problem, arch)
    print(f"{problem.key}: {region.size} valid points around {options.around}", flush=True)
    return region.sample(min(options.count, region.size), rng)


def record(
    options: argparse.Namespace, shape: str, pool: compile.Pool, worker: Worker
) -> dict[str, Any]:
    """Rows of one shape: config values, registers, spills, predicted and measured time in ns."""
    kernels, problem = space.load(), family("sgemm").parse(shape)
    arch = worker.device.arch
    configs = points(options, problem, arch)
    names = [parameter.name for parameter in kernels.parameters]
    running: list[tuple[Variant, Future[Binary | Failure]]] = []
    for config in configs:
        variant = render.render(problem, config, arch, sm_count=worker.device.sm_count)
        running.append((variant, pool.submit(variant.body, arch, timeout_s=60)))
    rows, failures = [], []
    started = time.monotonic()
    for variant, compiled in running:
        if time.monotonic() - started > options.seconds:
            break
        binary = compiled.result()
        if isinstance(binary, Failure):
            failures.append([variant.config.json, binary.outcome, binary.message])
            continue
        measured = worker.measure(
            Job(problem=problem, plan=variant.plan, cubin=binary.cubin, limits=LIMITS)
        )
        if not measured.is_ok:
            failures.append([variant.config.json, measured.outcome, measured.message])
            continue
        predicted = predict.candidate(problem, variant.config, worker.device, binary.registers)
        rows.append(
            [
                *(variant.config[name] for name in names),
                binary.registers,
                binary.spill_bytes,
                round(predicted.time_ns) if predicted else None,
                round(measured.median_ns or 0),
            ]
        )
    return {
        "points": len(configs),
        "columns": [*names, "registers", "spill_bytes", "predicted_ns", "median_ns"],
        "rows": rows,
        "failures": failures,
        "seconds": time.monotonic() - started,
    }


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--shape", action="append", required=True)
    parser.add_argument("--count", type=int, default=320)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="a shape's measuring ends then")
    parser.add_argument("--around", default="", help="a preset")
    parser.add_argument("--vary", default="", help="parameters that differ from it, a,b,c")
    options = parser.parse_args()
    if bool(options.around) != bool(options.vary):
        parser.error("--around and --vary belong together")
    results: dict[str, Any] = {
        "template_sha256": templates.sha256("sgemm"),
        "around": options.around,
        "vary": options.vary,
        "shapes": {},
    }
    chosen = device.select()
    with compile.Pool() as pool, Worker(chosen, door=options.door) as worker:
        for shape in options.shape:
            found = record(options, shape, pool, worker)
            results["shapes"][shape] = found
            write(options, results)
            times = [row[-1] for row in found["rows"]]
            predicted = [row[-2] for row in found["rows"]]
            ranks = [np.argsort(np.argsort(values)) for values in (times, predicted)]
            rho = float(np.corrcoef(*ranks)[0, 1])
            top = min(times[i] for i in np.argsort(predicted)[:16]) / min(times)
            print(
                f"{shape:>18} {len(times)} variants, {len(found['failures'])} failures, "
                f"{found['seconds']:.0f} s, best {min(times) / 1e3:.1f} us, "
                f"Spearman {rho:.3f}, best of the model's 16 at {top:.3f} of it",
                flush=True,
            )


if __name__ == "__main__":
    main()
