"""How fast variants compile, with so many compilers at a time, and how fast from the cache.

    python benchmarks/compile_throughput.py --arch 75 --jobs 1 --jobs 2 --out FILE.json
    python benchmarks/compile_throughput.py --arch 90 --around stream-128x256x8 --out FILE.json

Random valid variants, or those that differ from a preset in one or two parameters, as a search asks
for them. Each number of compilers gets `--count` variants for each of them; the first so many are
the same for all, so that their mean says what compilers cost each other. Needs no GPU. The caches
are empty folders.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from autotune import assets, render, settings, space
from autotune.compile import Cache, Compiler, Pool, find
from autotune.problems import family
from autotune.types import Binary, Config


def chosen(problem_text: str, arch: int, around: str | None, count: int) -> list[str]:
    """Sources of so many variants."""
    problem, kernel = family("sgemm").parse(problem_text), space.load().without_opt_in()
    region, rng = kernel.region(problem, arch), np.random.default_rng(0)
    if around is None:
        configs: Sequence[Config] = region.sample(count, rng)
    else:
        preset = kernel.fitted(kernel.preset(around), problem, arch)
        if preset is None:
            raise SystemExit(f"{around} does not fit {problem_text} on sm_{arch}")
        near = [*region.neighbours(preset), *region.neighbours(preset, 2)]
        configs = [near[place] for place in rng.permutation(len(near))[:count]]
    bodies = [render.render(problem, config, arch).body for config in configs]
    return list(dict.fromkeys(bodies))


def measure(compiler: Compiler, sources: Sequence[str], arch: int, jobs: int) -> dict[str, Any]:
    """Two rounds with an empty cache before the first; the second calls no compiler."""
    seconds = []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            with Pool(compiler, jobs=jobs, cache=Cache(Path(folder))) as pool:
                started = time.monotonic()
                futures = [pool.submit(source, arch) for source in sources]
                results = [future.result() for future in futures]
                seconds.append(time.monotonic() - started)
                compiles = pool.compiles
        assert compiles == 0, "the second round calls no compiler"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    binaries = [result for result in results if isinstance(result, Binary)]
    if not binaries:
        raise SystemExit("nothing compiled")
    return {
        "jobs": jobs,
        "variants": len(sources),
        "failed": len(sources) - len(binaries),
        "spilled": sum(binary.spill_bytes > 0 for binary in binaries),
        "registers_median": statistics.median(binary.registers for binary in binaries),
        "seconds": round(seconds[0], 2),
        "variants_per_s": round(len(sources) / seconds[0], 2),
        # Of the compiler processes, their start included.
        "user_s": round(after.ru_utime - before.ru_utime, 2),
        "system_s": round(after.ru_stime - before.ru_stime, 2),
        "cached_seconds": round(seconds[1], 3),
        # In the order of the sources; none for a failure.
        "compile_s": [
            round(result.compile_seconds, 3) if isinstance(result, Binary) else None
            for result in results
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", type=int, default=75)
    parser.add_argument("--shape", default="2048x2048x2048")
    parser.add_argument("--around", default=None, help="preset; random variants without it")
    parser.add_argument("--count", type=int, default=8, help="variants for each compiler")
    parser.add_argument("--jobs", type=int, action="append", help="compilers; default: all CPUs")
    parser.add_argument("--compiler", default=None, help="nvrtc or nvcc")
    parser.add_argument("--commit", default=None, help="commit that runs, where git cannot tell")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    numbers = options.jobs or [settings.jobs()]
    compiler = find(options.compiler)
    sources = chosen(options.shape, options.arch, options.around, options.count * max(numbers))
    runs = []
    for jobs in numbers:
        run = measure(compiler, sources[: options.count * jobs], options.arch, jobs)
        first = [each for each in run["compile_s"][: options.count] if each is not None]
        if not first:
            raise SystemExit(f"none of the first {options.count} compiled")
        run["first_compile_s_mean"] = statistics.fmean(first)
        runs.append(run)
        print(
            f"{jobs} compilers: {run['variants_per_s']} variants a second, the first "
            f"{options.count} {run['first_compile_s_mean']:.2f} s each; CPU "
            f"{run['user_s'] / run['variants']:.2f} s of the compilers and "
            f"{run['system_s'] / run['variants']:.2f} s of the system for each variant",
            flush=True,
        )
    record = {
        "provenance": {
            "machine": f"{settings.cpus()} CPUs, {platform.machine()}",
            "compiler": compiler.label,
            "python": platform.python_version(),
            "commit": options.commit or assets.revision(),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        },
        "arch": options.arch,
        "shape": options.shape,
        "around": options.around,
        "count": options.count,
        "runs": runs,
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
