"""Plays Kernel Tuner's strategies against a recorded space, for comparison with ours.

    pip install kernel_tuner
    python benchmarks/replay_kernel_tuner.py --space FILE.csv.gz --strategy genetic_algorithm \
        --evaluations 200 --runs 100 --out FILE.json

Needs no GPU: it uses Kernel Tuner's own simulation mode, which takes times from a cache file, and
gives it the valid points as a restriction. Only unique points are counted, as by replay.py; the
rows are those of replay.py, with strategies named `kernel_tuner:NAME`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tempfile
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from recorded import Recorded, load
from replay import Played, keep, provenance, summary

KERNEL = "__global__ void replayed() {}"
SIZE = (4096, 4096)


@cache
def space(source: str) -> Recorded:
    (found,) = load(source).values()
    assert isinstance(found, Recorded)
    return found


def write_cache(source: str, path: Path) -> None:
    """A cache file of Kernel Tuner with every recorded point."""
    points = space(source)
    names = [parameter.name for parameter in points.parameters]
    table = {
        "device_name": "recorded",
        "kernel_name": "replayed",
        "problem_size": SIZE,
        "tune_params_keys": names,
        "tune_params": {parameter.name: parameter.values for parameter in points.parameters},
        "objective": "time",
        "cache": {
            ",".join(str(config[name]) for name in names): {
                **{name: config[name] for name in names},
                "time": (points.time_ns(config) or 0.0) / 1e6,
                "compile_time": 0,
                "verification_time": 0,
                "benchmark_time": 0,
                "strategy_time": 0,
                "framework_time": 0,
                "timestamp": "",
            }
            for config in points.configs
        },
    }
    path.write_text(json.dumps(table))


def play(source: str, cachefile: str, strategy: str, evaluations: int, seed: int) -> Played:
    """One run; the strategy's own randomness comes from NumPy and `random`."""
    import random

    import kernel_tuner

    points = space(source)
    names = [parameter.name for parameter in points.parameters]
    valid = {tuple(config[name] for name in names) for config in points.configs}

    # Kernel Tuner takes lambdas apart as text, so this has a name.
    def is_recorded(values: dict[str, Any]) -> bool:
        return tuple(values[name] for name in names) in valid

    random.seed(seed)
    np.random.seed(seed)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results, _ = kernel_tuner.tune_kernel(
            "replayed",
            KERNEL,
            SIZE,
            [],
            {parameter.name: list(parameter.values) for parameter in points.parameters},
            restrictions=is_recorded,
            block_size_names=["none_x", "none_y", "none_z"],
            lang="CUDA",
            quiet=True,
            strategy=strategy,
            strategy_options={"max_fevals": evaluations},
            cache=cachefile,
            simulation_mode=True,
            seed=seed,
        )
    # It lists a point again each time that it comes back to it.
    unique = {tuple(row[name] for name in names): 1e6 * float(row["time"]) for row in results}
    best = np.minimum.accumulate(list(unique.values())[:evaluations])
    # A strategy may stop before its evaluations are used.
    return Played([*best.tolist(), *[float(best[-1])] * (evaluations - len(best))], 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--space", action="append", required=True)
    parser.add_argument("--strategy", action="append", required=True)
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--commit", default=None, help="commit that runs, where git cannot tell")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(options.jobs) as pool:
        for source in options.space:
            (name,) = load(source)
            cachefile = Path(folder) / f"{name}.json"
            write_cache(source, cachefile)
            best_ns = space(source).best_ns
            assert best_ns is not None
            for strategy in options.strategy:
                jobs = [
                    pool.submit(play, source, str(cachefile), strategy, options.evaluations, seed)
                    for seed in range(options.runs)
                ]
                row: dict[str, Any] = {
                    "space": name,
                    "seeded": False,
                    "predicted": False,
                    "strategy": f"kernel_tuner:{strategy}",
                    "runs": options.runs,
                    **summary([job.result() for job in jobs], best_ns),
                    "provenance": {
                        **provenance(options.commit),
                        "kernel_tuner": version("kernel_tuner"),
                    },
                }
                # What of the time is Kernel Tuner's choice and what its framework is not known.
                row["ask_ms"] = None
                keep(options.out, [row])
                print(name, row["strategy"], json.dumps(row["within"]), flush=True)


if __name__ == "__main__":
    main()
