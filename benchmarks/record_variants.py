"""Measures random valid variants of some shapes, so that models and searches can be judged offline.

    python benchmarks/record_variants.py --count 320 --shape 1024x1024x1024 ... --out FILE.json

Every variant is verified and timed as in a search, but without the early stop: slow ones are kept
with their real time. Times are cold-L2 medians.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import numpy as np
from provenance import arguments, write

from autotune import compile, device, render, space, templates
from autotune.analysis import predict
from autotune.measure import Job, Limits, Worker
from autotune.problems import family
from autotune.types import Binary, Config, Failure, Variant

LIMITS = Limits(max_samples=15, min_samples=5, budget_ms=60.0, recheck_launches=2)


def record(shape: str, count: int, seed: int, pool: compile.Pool, worker: Worker) -> dict[str, Any]:
    """Rows of one shape: config values, registers, spills, predicted and measured time in ns."""
    kernels, problem = space.load(), family("sgemm").parse(shape)
    arch = worker.device.arch
    region = kernels.region(problem, arch)
    configs: list[Config] = list(kernels.start_configs(problem, arch))
    configs += region.sample(count, np.random.default_rng(seed), exclude=set(configs))
    names = [parameter.name for parameter in kernels.parameters]
    running: list[tuple[Variant, Future[Binary | Failure]]] = []
    for config in configs:
        variant = render.render(problem, config, arch, sm_count=worker.device.sm_count)
        running.append((variant, pool.submit(variant.body, arch, timeout_s=60)))
    rows, failures = [], []
    started = time.monotonic()
    for variant, compiled in running:
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
    options = parser.parse_args()
    results: dict[str, Any] = {"template_sha256": templates.sha256("sgemm"), "shapes": {}}
    chosen = device.select()
    with compile.Pool() as pool, Worker(chosen, door=options.door) as worker:
        for shape in options.shape:
            found = record(shape, options.count, options.seed, pool, worker)
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
