"""How fast random valid variants compile, and how fast the same ones come from the cache.

    python benchmarks/compile_throughput.py --arch 75 --count 100 --out FILE.json

Needs no GPU. The cache is an empty folder of its own.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from autotune import assets, render, settings, space
from autotune.compile import Cache, Pool, find
from autotune.problems import family
from autotune.types import Binary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", type=int, default=75)
    parser.add_argument("--shape", default="2048x2048x2048")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--compiler", default=None, help="nvrtc or nvcc")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    problem = family("sgemm").parse(options.shape)
    region = space.load().region(problem, options.arch)
    configs = region.sample(options.count, np.random.default_rng(0))
    sources = [render.render(problem, config, options.arch).body for config in configs]
    compiler = find(options.compiler)
    seconds, spilled, failed = [], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            started = time.monotonic()
            with Pool(compiler, cache=Cache(Path(folder))) as pool:
                futures = [pool.submit(source, options.arch) for source in sources]
                results = [future.result() for future in futures]
                compiles = pool.compiles
            seconds.append(time.monotonic() - started)
        assert compiles == 0, "the second round calls no compiler"
    for result in results:
        failed += not isinstance(result, Binary)
        spilled += isinstance(result, Binary) and result.spill_bytes > 0
    record = {
        "provenance": {
            "machine": f"{settings.jobs()} CPUs, {platform.machine()}",
            "compiler": compiler.label,
            "python": platform.python_version(),
            "commit": assets.revision(),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        },
        "arch": options.arch,
        "shape": options.shape,
        "variants": len(sources),
        "failed": failed,
        "spilled": spilled,
        "seconds": round(seconds[0], 2),
        "cached_seconds": round(seconds[1], 3),
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
