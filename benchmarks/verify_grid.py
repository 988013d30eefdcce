"""Verifies every path of the space on a grid of problems, exactly and again after timing.

    python benchmarks/verify_grid.py --pairs 3200 --out benchmarks/results/verified_h200.json

Problems are ragged in each dimension and in none, in all layouts, with padded rows, every alignment
of the operands, alpha and beta, and batches. For each, variants are drawn from the whole valid set
so that every path (method, ways to copy, layout of A, schedule, mode of splitting, slices,
producers, epilogue, rest of C) comes up alike; what differs from run to run by design, atomics, is
drawn too.
A pair counts as verified when the exact check, the check of normal data against FP64 and the exact
checks after timing have passed.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from provenance import arguments, write

from autotune import compile, device, render, space, templates
from autotune.measure import Job, Limits, Worker
from autotune.problems.sgemm import LAYOUTS, Sgemm
from autotune.types import Binary, Config, Failure, Measurement, Outcome, Problem, Variant

LIMITS = Limits(max_samples=3, min_samples=1, warm_up_ms=0.2, budget_ms=5.0, recheck_launches=8)
DRAWN = 1500
"""Points of a problem among which its paths are chosen."""
AHEAD = 64
SHAPES = (
    "1023x1025x1027", "512x768x640", "130x257x2049", "999x64x515", "257x1100x96", "65x65x4100",
    "384x384x384", "700x36x1000", "31x2000x1500", "2100x17x1300", "1x1500x3000", "5x7x20000",
)  # fmt: skip
MORE: tuple[dict[str, Any], ...] = (
    {},
    {"beta_zero": False},
    {"batch": 3},
    {"batch": 2, "beta_zero": False},
    {"align_a": 4, "align_b": 8, "align_c": 4, "beta_zero": False},
    {"padded": 4},
    {"padded": 3, "beta_zero": False},
)


def problems() -> list[Problem]:
    """Every shape in every layout; what else may vary takes turns."""
    found: list[Problem] = []
    more = itertools.cycle(MORE)
    for shape, layout in itertools.product(SHAPES, LAYOUTS):
        options = dict(next(more))
        padding = options.pop("padded", 0)
        problem = Sgemm.parse(shape, layout=layout, **options)
        if padding:
            leading = {f"ld{x}": getattr(problem, f"ld{x}") + padding for x in "abc"}
            problem = Sgemm.parse(shape, layout=layout, **options, **leading)
        found.append(problem)
    return found


def path(config: Config) -> str:
    """The path that a config takes, in words."""
    words = [str(config["method"])]
    if config["method"] == "tiled":
        words += [f"{config['copy_a']}+{config['copy_b']}", str(config["a_layout"])]
        words += [f"{config['stages']} stages"] if config["stages"] in (1, 6) else []
        words += ["slices"] if config["k_slices"] > 1 else []
        words += ["producers"] if config["threads_producer"] else []
        words += [str(config["schedule"])] if config["schedule"] != "grid" else []
        words += ["shared epilogue"] if config["epilogue"] == "shared" else []
        words += [f"rest of {config['rest']}"] if config["rest"] != "tiles" else []
    if config["split_k"] > 1:
        many = config["split_k_mode"] == "cluster" and config["split_k"] > 8
        words.append(f"{'several ' if many else ''}split by {config['split_k_mode']}")
    return ", ".join(words)


def chosen(problem: Problem, *, arch: int, count: int, seed: int) -> list[Config]:
    """`count` points of a problem, from each path in turn."""
    region = space.load(problem.kernel).region(problem, arch)
    rng = np.random.default_rng([seed, *map(ord, problem.key)])
    paths: defaultdict[str, list[Config]] = defaultdict(list)
    for config in region.sample(min(DRAWN, region.size), rng):
        paths[path(config)].append(config)
    turns = itertools.zip_longest(*(paths[name] for name in rng.permutation(sorted(paths))))
    points = (config for turn in turns for config in turn if config is not None)
    return list(itertools.islice(points, count))


def compiled(
    pairs: Sequence[tuple[Problem, Config]], arch: int, sm_count: int, pool: compile.Pool
) -> Iterator[tuple[Variant, Binary | Failure]]:
    """Variants and binaries in the order of the pairs, some compiled ahead."""
    running: deque[tuple[Variant, Future[Binary | Failure]]] = deque()
    for problem, config in pairs:
        variant = render.render(problem, config, arch, sm_count=sm_count)
        running.append((variant, pool.submit(variant.body, arch, timeout_s=60)))
        if len(running) > AHEAD:
            first, result = running.popleft()
            yield first, result.result()
    for variant, result in running:
        yield variant, result.result()


def verify(variant: Variant, binary: Binary, worker: Worker) -> Measurement:
    """All checks of one pair."""
    job = Job(problem=variant.problem, plan=variant.plan, cubin=binary.cubin, limits=LIMITS)
    return worker.measure(job)


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="ends after so long")
    options = parser.parse_args()
    started = time.monotonic()
    target = device.select()
    grid = problems()
    pick = partial(
        chosen, arch=target.arch, count=-(-options.pairs // len(grid)), seed=options.seed
    )
    with ProcessPoolExecutor() as processes:
        points = list(processes.map(pick, grid))
    pairs = [(problem, config) for problem, own in zip(grid, points, strict=True) for config in own]
    print(f"{len(pairs)} pairs after {time.monotonic() - started:.0f} s", flush=True)
    verified: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    served: Counter[str] = Counter()
    failures: list[dict[str, Any]] = []
    with compile.Pool() as pool, Worker(target, door=options.door, seed=options.seed) as worker:
        for variant, result in compiled(pairs, target.arch, target.sm_count, pool):
            if time.monotonic() - started > options.seconds:
                break
            found = verify(variant, result, worker) if isinstance(result, Binary) else result
            outcomes[found.outcome] += 1
            if found.outcome is Outcome.ok:
                verified[path(variant.config)] += 1
                served[variant.problem.key] += 1
            else:
                failures.append(
                    {
                        "problem": variant.problem.key,
                        "config": json.loads(variant.config.json),
                        "outcome": str(found.outcome),
                        "message": found.message,
                    }
                )
                print(variant.problem.key, found.outcome, found.message[:200], flush=True)
    write(
        options,
        {
            "template_sha256": templates.sha256("sgemm"),
            "verified": sum(verified.values()),
            "outcomes": outcomes,
            "seconds": time.monotonic() - started,
            "checks_after_timing": LIMITS.recheck_launches,
            "by_path": dict(sorted(verified.items())),
            "by_problem": served,
            "failures": failures,
        },
    )
    print(
        f"{sum(verified.values())} verified on {len(served)} problems by {len(verified)} paths, "
        f"{dict(outcomes)}, {time.monotonic() - started:.0f} s"
    )
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
