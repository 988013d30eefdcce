"""How many verified variants a second a search makes, from an empty compile cache.

    python benchmarks/throughput.py --out benchmarks/results/throughput_h200.json

Two rates are told: of the whole search of so many variants of 4096 cubed, and how much of the time
after the first five seconds the measuring process was busy; besides, how long compiling a variant
takes while all compilers work. `auto` asks for kernels like the fastest, which are large and take
long to compile; `random` takes any that are valid. Nothing is kept but the result.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from provenance import arguments, write

from autotune import api, settings
from autotune.report import search as report
from autotune.search import SAMPLERS


def seconds_of_compiling(cache: Path) -> list[float]:
    """Of every binary in a cache."""
    documents = (json.loads(path.read_text()) for path in cache.rglob("kernels/*/*.json"))
    results = (document["result"] for document in documents)
    # A failure has no such time, and counting it as none would flatter the mean.
    return sorted(each["compile_seconds"] for each in results if "compile_seconds" in each)


def measure(shape: str, trials: int, seed: int, door: str | None, sampler: str) -> dict[str, Any]:
    """One search into a store and a cache of its own."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["AUTOTUNE_CACHE_DIR"] = folder
        store = Path(folder) / "results.db"
        (found,) = api.search(
            shape, trials=trials, seed=seed, sampler=sampler, store=store, door=door
        )
        rows = api.results(store=store, stage="search")
        compile_s = seconds_of_compiling(Path(folder))
    ok = [row for row in rows if row["outcome"] == "ok"]
    whole = [row["median_ns"] for row in ok if not row["truncated"]]
    row = report.row(found)
    busy, rate = row["busy_share"], row["trials_per_s"]
    return {
        "shape": shape,
        "sampler": sampler,
        "search": row,
        "verified": sum(bool(row["checks"]) for row in ok),
        "verified_per_s": rate * len(ok) / len(rows),
        "cut_short": sum(row["truncated"] for row in ok),
        # What a variant costs the measuring process: device and host.
        "worker_ms_per_variant": None if busy is None else 1e3 * busy / rate,
        "compiled": len(compile_s),
        "compile_s_mean": statistics.fmean(compile_s) if compile_s else None,
        "compile_s_median": statistics.median(compile_s) if compile_s else None,
        "best_ms": found.best_ns and found.best_ns / 1e6,
        "median_ms_of_whole": statistics.median(whole) / 1e6 if whole else None,
        "samples": dict(Counter(row["samples"] for row in ok)),
    }


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--shape", default="4096x4096x4096")
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=1, help="searches with different seeds")
    parser.add_argument("--sampler", choices=list(SAMPLERS), action="append", help="default: auto")
    options = parser.parse_args()
    searches = []
    samplers = options.sampler or ["auto"]
    for sampler, seed in [(each, seed) for each in samplers for seed in range(options.repeats)]:
        searches.append(measure(options.shape, options.trials, seed, options.door, sampler))
        write(options, {"cpus": settings.cpus(), "searches": searches})
        latest = searches[-1]
        row = latest["search"]
        busy, compile_s = row["busy_share"], latest["compile_s_mean"]
        print(
            f"{latest['shape']}, {sampler}: {row['tried']} variants, "
            f"{latest['verified_per_s']:.1f} verified a second, "
            f"busy {'-' if busy is None else f'{busy:.0%}'}, "
            f"compilers {'-' if compile_s is None else f'{compile_s:.2f} s'} each",
            flush=True,
        )


if __name__ == "__main__":
    main()
