"""One kernel of every path: 1,000 launches without a differing bit, and NVIDIA's sanitizer.

    python benchmarks/paths.py --out benchmarks/results/paths_h200.json [--launches 1000]

Each path is launched on ragged problems; C is overwritten before each launch, and compared bit for
bit with that of the first. Then the same kernels run under `compute-sanitizer`, with memcheck and
with racecheck, where it is installed. Atomics are sanitized only: their sums come in any order.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import numpy as np
from provenance import arguments, write

from autotune import device, gpu, space, templates
from autotune.compile import Pool, compile_one
from autotune.problems.sgemm import Sgemm
from autotune.render import render
from autotune.types import Binary, Device, Scalar, Variant

KERNELS = space.load("sgemm")
TOOLS = ("memcheck", "racecheck")
LIMIT_S = 330
"""For one tool."""
RAGGED, FEW = ("515x770x1030", "131x130x70"), ("515x770x1030", "131x130x262")
EVEN, MANY = ("516x772x1028", "260x132x68"), ("1030x1540x515", "1030x1540x67")
LINES, SHORT = ("512x768x1024", "128x256x64"), ("7x1500x3001", "7x500x517")

Change = dict[str, Scalar]
PATHS: dict[str, tuple[tuple[str, str], str, Change]] = {
    "direct": (RAGGED, "naive", {}),
    "registers, one stage": (RAGGED, "register-tile", {"vector_a": 2, "vector_b": 2}),
    "registers, padded": (RAGGED, "seed-v3.2", {}),
    "registers, swizzled": (RAGGED, "medium", {}),
    "registers and async": (RAGGED, "async-64x64x32", {}),
    "async, 2 stages": (RAGGED, "async-128x256x8", {"stages": 2}),
    "async, 6 stages": (RAGGED, "async-64x128x16", {"stages": 6}),
    "async, whole lines": (LINES, "lines-64x64x32", {}),
    "bulk, k x m": (("512x768x1030 tn", "128x128x70 tn"), "small", {
        "copy_a": "bulk", "copy_b": "bulk", "stages": 3, "swizzle_a": "none"}),
    "bulk, whole lines": (EVEN, "tma-256x128x32", {"threads_producer": 0, "schedule": "grid"}),
    "bulk, producers": (EVEN, "tma-256x128x32", {"schedule": "grid"}),
    "bulk, producers, persistent": (("2052x4100x516", "1540x4100x36"), "tma-256x128x32", {}),
    "async and bulk": (LINES, "async-128x256x8", {"copy_b": "bulk", "stages": 3}),
    "slices of k": (RAGGED, "async-64x64x32", {
        "k_slices": 4, "k_unroll": 8, "register_buffers": 1, "swizzle_a": "none", "pad_a": 4}),
    "persistent": (MANY, "async-64x64x32", {"schedule": "persistent"}),
    "stream": (("1030x1540x515", "1030x1540x515"), "stream-128x256x8", {}),
    "split, second launch": (FEW, "split-64x64", {"split_k_mode": "workspace"}),
    "split, last block": (FEW, "split-64x64", {}),
    "split, cluster": (FEW, "cluster-64x64", {}),
    "split, several clusters": (("130x70x4100", "66x70x2052"), "cluster-64x64", {"split_k": 32}),
    "split, atomics": (FEW, "split-64x64", {"split_k_mode": "atomic"}),
    "epilogue through shared memory": (RAGGED, "seed-v3", {"epilogue": "shared", "vector_c": 1}),
    "rest of rows": (RAGGED, "async-64x64x32", {"rest": "rows"}),
    "rest of columns": (("515x770x1030 tt", "131x130x70 tt"), "split-64x64", {
        "rest": "columns", "split_k": 1, "split_k_mode": "workspace"}),
    "skinny, columns": (SHORT, "skinny-columns", {}),
    "skinny, columns, split": (SHORT, "skinny-columns-split", {}),
    "skinny, rows": (("1501x9x3001", "501x9x517"), "skinny-rows", {}),
    "skinny, rows, second launch": (("1501x9x3001", "501x9x517"), "skinny-rows-split", {
        "split_k_mode": "workspace"}),
}  # fmt: skip
"""Problems, a small one for the sanitizer; preset, and what is changed of it."""


def variant(name: str, target: Device, *, small: bool = False) -> Variant:
    """The kernel that stands for a path."""
    shapes, preset, changes = PATHS[name]
    text, _, layout = shapes[small].partition(" ")
    problem = Sgemm.parse(text, layout=layout or "nn", beta_zero=False)
    wanted = KERNELS.config({**KERNELS.preset(preset), **changes})
    config = KERNELS.fitted(wanted, problem, target.arch)
    if config is None:
        raise SystemExit(f"{name}: {KERNELS.explain(wanted, problem, target.arch)}")
    lost = {each: config[each] for each, value in changes.items() if config[each] != value}
    if lost.keys() - {"vector_a", "vector_b", "vector_c", "pad_a"}:
        raise SystemExit(f"{name}: {problem.key} takes another path: {lost}")
    return render(problem, config, target.arch, sm_count=target.sm_count)


def runs(variant: Variant, target: Device, launches: int) -> Iterator[np.ndarray]:
    """The bits of C after each of several runs on the same normal data.

    Raises:
        RuntimeError: counters of arrivals are not zero again in the end.
    """
    binary = compile_one(variant.body, variant.arch)
    if not isinstance(binary, Binary):
        raise SystemExit(binary.message)
    problem, rng = variant.problem, np.random.default_rng(0)
    with closing(gpu.choose("cuda-bindings").open(target.index)) as context:
        values: dict[str, int | float] = dict(problem.scalars)
        arrays = {}
        for operand in problem.operands:
            data = rng.standard_normal(operand.span_elements, dtype=np.float32)
            values[operand.name] = context.allocate(data.nbytes)
            arrays[operand.name] = data
            context.upload(int(values[operand.name]), data)
        for workspace in variant.plan.workspaces:
            values[workspace.name] = context.allocate(workspace.size_bytes)
            context.fill_bytes(int(values[workspace.name]), 0, workspace.size_bytes)
        module = context.load(binary.cubin)
        plan = [module.prepare(launch, values) for launch in variant.plan.launches]
        result = np.empty_like(arrays["c"])
        for _ in range(launches):
            context.upload(int(values["c"]), arrays["c"])
            for run in plan:
                run()
            context.download(result, int(values["c"]))
            yield result.view(np.uint32).copy()
        for workspace in variant.plan.workspaces:
            if workspace.is_zeroed:
                counters = np.empty(workspace.size_bytes // 4, np.uint32)
                context.download(counters, int(values[workspace.name]))
                if counters.any():
                    raise RuntimeError(f"{workspace.name} is not zero after {launches} runs")
        module.unload()


def repeated(name: str, target: Device, launches: int) -> dict[str, Any]:
    """How many launches gave other bits than the first."""
    chosen = variant(name, target)
    first, *others = runs(chosen, target, launches)
    differing = sum(not np.array_equal(first, other) for other in others)
    return {
        "path": name,
        "problem": chosen.problem.key,
        "launches": launches,
        "differing": differing,
        "is_deterministic": chosen.plan.is_deterministic,
    }


def compile_small(target: Device) -> None:
    """Puts what the sanitizer runs into the compile cache: its time is not for compilers."""
    with Pool() as pool:
        variants = [variant(name, target, small=True) for name in PATHS]
        for done in [pool.submit(each.body, each.arch) for each in variants]:
            done.result()


def sanitized(tool: str) -> dict[str, Any]:
    """What the sanitizer says of a launch of every path, run in a process of its own."""
    program = shutil.which("compute-sanitizer")
    if program is None:
        summary = "compute-sanitizer is not installed"
        return {"tool": tool, "summary": summary, "exit_code": None, "paths": 0}
    command = [program, "--tool", tool, "--error-exitcode", "9", sys.executable, __file__,
               "--launches", "1", "--plain", "--out", "unused"]  # fmt: skip
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired as error:
        done = str(error.stdout).count("ran ")
        summary = f"not done after {LIMIT_S} s"
        return {"tool": tool, "summary": summary, "exit_code": None, "paths": done}
    lines = [line for line in found.stdout.splitlines() if line.startswith("=====")]
    summary = next((line for line in lines if "SUMMARY" in line), "")
    return {
        "tool": tool,
        "paths": found.stdout.count("ran "),
        "summary": summary.strip("= "),
        "exit_code": found.returncode,
        "log": lines[:40] if found.returncode else [],
        "errors": found.stderr[-2000:] if found.returncode else "",
    }


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--launches", type=int, default=1000)
    parser.add_argument("--plain", action="store_true", help="only launch on small problems")
    options = parser.parse_args()
    target = device.select()
    if options.plain:
        for name in PATHS:
            for _ in runs(variant(name, target, small=True), target, options.launches):
                pass
            print("ran", name, flush=True)
        return
    started = time.monotonic()
    rows = [repeated(name, target, options.launches) for name in PATHS]
    for row in rows:
        print(f"{row['path']:>32} {row['problem']:>24} {row['differing']} differ", flush=True)
    tools: list[dict[str, Any]] = []
    results = {"template_sha256": templates.sha256("sgemm"), "paths": rows, "sanitizer": tools}
    compile_small(target)
    with ThreadPoolExecutor(len(TOOLS)) as threads:  # each mostly waits for its own process
        for name, tool in zip(TOOLS, threads.map(sanitized, TOOLS), strict=True):
            tools.append(tool)
            print(name, tool["summary"], tool["paths"], flush=True)
            write(options, {**results, "seconds": time.monotonic() - started})
    raced = [row["path"] for row in rows if row["differing"] and row["is_deterministic"]]
    is_clean = all(tool["exit_code"] == 0 and tool["paths"] == len(PATHS) for tool in tools)
    raise SystemExit(bool(raced) or not is_clean)


if __name__ == "__main__":
    main()
