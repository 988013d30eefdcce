"""`autotune.sgemm` as a program uses it: what a call costs, how fast it is, whether it is right.

    python benchmarks/runtime.py --out benchmarks/results/runtime_h200.json [--classes square]

Three parts. *Overheads*: the bare launches by the driver, a warm `Gemm` and a warm `sgemm`, in us
of the host, on arrays of PyTorch, of CuPy, and of a class with nothing but the array interface.
*Suite*: `sgemm` from the store as it is, beside `torch.mm` and `cupy.matmul` with TF32 off, timed
in turns on the same arrays with a cold L2 cache. *Random*: calls of any size, layout, distance
between rows, alignment and batch against FP64, from several threads. The file is written after each
step; problems that it has already, of the same commit and device, are not timed again.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import peers
import selection
from peers import Library, Run
from provenance import arguments, earlier, write

import autotune
from autotune import device, settings, verify
from autotune.gpu import caller
from autotune.measure.vendor import forbid_shortcuts
from autotune.types import Problem

SIZE = 64
"""Of the product whose calls are timed on the host: shorter than the call itself."""

BATCH, BATCHES = 200, 50
"""Calls between two waits, fewer than the driver's queue takes; and how often."""

SAMPLES = 25
SIZES = (1, 2, 3, 7, 16, 33, 64, 100, 127, 128, 255, 256, 300, 513)
SCALARS = (0.0, 1.0, -0.5)
UNIT_ROUNDOFF = 2.0**-24


# *** what a call costs ***


class Shown:
    """An array with nothing but the interface, kept as libraries keep it."""

    def __init__(self, array: Any) -> None:
        self._array = array
        interface = array.__cuda_array_interface__
        self.__cuda_array_interface__ = {**interface, "stream": None}


def calls_us(runs: Mapping[str, Run], wait: Run) -> dict[str, list[float]]:
    """Time of the host for a call of each, in us: a mean of each batch, the batches in turns, so
    that what slows the machine for a while slows all of them."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    wait()
    for _ in range(BATCHES):
        for name, run in runs.items():
            started = time.perf_counter()
            for _ in range(BATCH):
                run()
            found[name].append((time.perf_counter() - started) / BATCH * 1e6)
            wait()
    return found


def bare_launch(planned: autotune.Gemm, a: Any, b: Any, out: Any) -> Run:
    """The same launches through cuda-bindings alone, with arguments that are packed already."""
    planned(a, b, out)
    prepared = planned._plan._prepared.known(caller.context_id())
    assert prepared is not None
    launches = prepared._pile[-1].launches

    def run() -> None:
        for launch, parameters in launches:
            launch(caller.LEGACY_STREAM, parameters, 0)

    return run


def overheads(library: Library, wait: Run) -> list[dict[str, Any]]:
    """Rows of one library's arrays, and of the same behind the bare interface."""
    host = np.ones((SIZE, SIZE), np.float32)
    arrays = [library.upload(host) for _ in range(3)]
    planned = autotune.Gemm.like(*arrays)
    bare = bare_launch(planned, *arrays)
    rows = []
    for name, three in ((library.name, arrays), ("interface", [Shown(each) for each in arrays])):
        runs = {
            "bare_launch": bare,
            "Gemm": lambda three=three: planned(*three),
            "sgemm": lambda three=three: autotune.sgemm(*three),
        }
        costs = calls_us(runs, wait)
        over = {
            call: [x - y for x, y in zip(costs[call], costs["bare_launch"], strict=True)]
            for call in ("Gemm", "sgemm")
        }
        rows.append(
            {
                "arrays": name,
                "launches": len(planned._plan.launch_plan.launches),
                **{f"{call}_us": statistics.median(each) for call, each in costs.items()},
                **{f"{call}_overhead_us": statistics.median(each) for call, each in over.items()},
            }
        )
    return rows


# *** how fast it is ***


def measure(library: Library, problem: Problem, case: verify.Case) -> dict[str, Any]:
    """`sgemm` and the library's own product, in turns on the same arrays."""
    sizes = dict(problem.columns())
    a, b = library.upload(case.inputs["a"]), library.upload(case.inputs["b"])
    c = library.upload(np.full((sizes["batch"], sizes["m"], sizes["n"]), np.nan, np.float32))
    theirs = next(iter(library.products(sizes, a, b, c).values()))
    x, y = peers.transposed(a, sizes["layout"][0]), peers.transposed(b, sizes["layout"][1])
    z = c
    if sizes["batch"] == 1:
        x, y, z = x[0], y[0], z[0]
    planned = autotune.Gemm.like(x, y, z)

    def ours() -> None:
        autotune.sgemm(x, y, z)

    ours()
    found = library.download(c)
    seen = found if case.rows is None else found[:, case.rows]
    comparison = verify.compare(np.ascontiguousarray(seen), case)
    row = {
        "match": str(planned.answer.match),
        "evidence": str(planned.answer.evidence or ""),
        "config": dict(planned.config),
        "max_error": comparison.max_error,
    }
    if not comparison.is_right:
        return {**row, "message": f"wrong result: {comparison.message}"}
    theirs()
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(SAMPLES):
        times["ours"] += peers.samples_ns(library, ours, 1)
        times["theirs"] += peers.samples_ns(library, theirs, 1)
        if sum(map(sum, times.values())) > 2 * peers.BUDGET_NS:
            break
    median_ns, theirs_ns = (statistics.median(times[name]) for name in ("ours", "theirs"))
    return {
        **row,
        "samples": len(times["ours"]),
        "median_ns": median_ns,
        "tflops": problem.flops / median_ns / 1e3,
        f"{library.name}_ns": theirs_ns,
        "ratio": theirs_ns / median_ns,
    }


def summary(problems: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Over all problems that were timed beside a library: geometric mean, worst, what failed."""
    ratios = {key: row[name]["ratio"] for key, row in problems.items() if "ratio" in row[name]}
    failed = [key for key, row in problems.items() if "ratio" not in row[name]]
    matches: dict[str, int] = {}
    for row in problems.values():
        match = row[name].get("match", "none")
        matches[match] = matches.get(match, 0) + 1
    found = {"library": name, "compared": len(ratios), "failed": failed, "matches": matches}
    if not ratios:
        return found
    worst = min(ratios, key=lambda key: ratios[key])
    return {
        **found,
        "mean_ratio": math.exp(statistics.fmean(map(math.log, ratios.values()))),
        "share_ahead": sum(ratio >= 1 for ratio in ratios.values()) / len(ratios),
        "worst": worst,
        "worst_ratio": ratios[worst],
    }


# *** whether it is right ***


def lying(
    generator: np.random.Generator, batch: Sequence[int], rows: int, columns: int
) -> tuple[np.ndarray, Callable[[Any], Any]]:
    """An array, and the view of it that is the matrix, or the batch."""
    pad, first = (int(each) for each in generator.integers(0, 6, 2))
    is_transposed = bool(generator.integers(0, 2))
    stored = (columns, rows) if is_transposed else (rows, columns)
    base = generator.standard_normal((*batch, stored[0], stored[1] + first + pad), np.float32)

    def view(array: Any) -> Any:
        part = array[..., first : first + stored[1]]
        return part.swapaxes(-1, -2) if is_transposed else part

    return base, view


def random_call(library: Library, seed: int) -> dict[str, Any]:
    """One call beside FP64: its sizes, its largest error as a share of the bound, and whether what
    lies between the rows of the output is as it was."""
    generator = np.random.default_rng([seed, 2])
    m, n, k = (int(generator.choice(SIZES)) for _ in range(3))
    batch = int(generator.choice([1, 1, 4]))
    batches: list[tuple[int, ...]] = [(), (), ()]
    if batch > 1:
        shared = int(generator.integers(0, 3))
        batches = [() if shared == 0 else (batch,), (1,) if shared == 1 else (batch,), (batch,)]
    shapes = ((m, k), (k, n), (m, n))
    placed = [lying(generator, b, *shape) for b, shape in zip(batches, shapes, strict=True)]
    alpha, beta = (float(generator.choice(SCALARS)) for _ in range(2))
    wide = [view(each).astype(np.float64) for each, view in placed]
    value = alpha * (wide[0] @ wide[1]) + beta * wide[2]
    magnitude = abs(alpha) * (abs(wide[0]) @ abs(wide[1])) + abs(beta) * abs(wide[2])
    there = [library.upload(each) for each, _ in placed]
    views = [view(each) for each, (_, view) in zip(there, placed, strict=True)]
    autotune.sgemm(*views, alpha, beta)
    found = np.array(library.download(there[2]))
    c, view_c = placed[2]
    steps = (k + 3) * UNIT_ROUNDOFF
    error = abs(view_c(found) - value)
    bound = steps / (1 - steps) * magnitude
    # 0 where nothing may be wrong and nothing is.
    share = float(np.max(np.where(error > 0, error / np.maximum(bound, 1e-300), 0.0)))
    view_c(found)[...] = 0
    view_c(c)[...] = 0
    return {
        "call": f"{m}x{n}x{k}, batch {batch}, seed {seed}",
        "error_share": share,
        "is_right": share <= 1 and bool(np.array_equal(found, c)),
    }


def random_calls(library: Library, count: int) -> dict[str, Any]:
    """What so many calls came to."""
    with ThreadPoolExecutor(min(16, settings.jobs())) as pool:  # most of the time is compiling
        found = list(pool.map(lambda seed: random_call(library, seed), range(count)))
    return {
        "library": library.name,
        "calls": count,
        "wrong": [each["call"] for each in found if not each["is_right"]],
        "max_error_share": max(each["error_share"] for each in found),
    }


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    selection.add_arguments(parser)
    parser.add_argument("--calls", type=int, default=500, help="random calls")
    options = parser.parse_args()
    forbid_shortcuts()
    chosen = device.select()
    present, versions, missing = peers.libraries(chosen.l2_bytes)
    present = [each for each in present if each.name in ("torch", "cupy")]
    for name, why in missing.items():
        print(f"{name} is left out: {why}")
    if not present:
        raise SystemExit("neither PyTorch nor CuPy is installed")
    results: dict[str, Any] = {"versions": versions, "overheads": []}
    for library in present:
        tiny = library.upload(np.zeros((1, 1), np.float32))
        results["overheads"] += overheads(library, lambda lib=library, x=tiny: lib.download(x))
    for row in results["overheads"]:
        print({name: round(x, 2) if isinstance(x, float) else x for name, x in row.items()})
    results["random"] = random_calls(present[0], options.calls)
    print(results["random"], flush=True)
    results["problems"] = problems = earlier(options)
    for case in selection.cases(options):
        problem = case.problem
        if problem.key not in problems:
            data = verify.random_case(problem, seed=0)
            problems[problem.key] = {
                "class": ",".join(case.classes),
                **{each.name: measure(each, problem, data) for each in present},
            }
        results["summary"] = [summary(problems, each.name) for each in present]
        write(options, results)
        row = problems[problem.key]
        words = [f"{each.name} {row[each.name].get('ratio', math.nan):.3f}" for each in present]
        print(
            f"{problem.key:>32}  {row[present[0].name]['match']:>14}  {'  '.join(words)}",
            flush=True,
        )
    for each in results["summary"]:
        print(each)


if __name__ == "__main__":
    main()
