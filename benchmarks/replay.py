"""Plays search strategies against spaces in which trying a point costs nothing; needs no GPU.

    python benchmarks/replay.py --space benchmarks/replay/clblast_xgemm_4096_rtx_3090.csv.gz \
        --strategy auto --evaluations 200 --runs 100 [--seed-from FILE] [--json] [--out FILE]

A space is a CSV with one column a parameter, then times (`median_ms` or `median_ns` counts), a JSON
of record_variants.py, or `synthetic:MxNxK`: our own space for that shape with made-up times, to
compare strategies at that size. Only unique points are counted. `--seed-from` starts each run with
the ten best points of another file, `--predicted` gives surrogates the model's times. `--out` keeps
what is in the file already of other spaces, strategies and starts.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from recorded import Playable, Recorded, load

from autotune import assets, settings
from autotune.search.samplers import SAMPLERS
from autotune.search.strategy import Strategy
from autotune.types import Config

MARKS = (50, 100, 200, 400)
GOOD = 0.95
STARTS = 10
"""Best points of the other file that a seeded run begins with."""
PLACES = 5
"""Every so many evaluations a curve has a value."""


@dataclass(frozen=True, slots=True)
class Played:
    """A run.

    Attributes:
        best_ns: Least time after each evaluation.
        ask_s: CPU time of choosing and learning, each evaluation on average.
    """

    best_ns: list[float]
    ask_s: float


@cache
def spaces(source: str) -> dict[str, Playable]:
    return load(source)


def play(
    source: str,
    name: str,
    strategy: str,
    evaluations: int,
    seed: int,
    seed_from: str = "",
    predicted: bool = False,
) -> Played:
    """One run of a strategy.

    Once the best point of a recorded space is found nothing can change, and the run ends early.
    """
    points = spaces(source)[name]
    initial: list[Config] = []
    if seed_from:
        (other,) = spaces(seed_from).values()
        assert isinstance(other, Recorded)
        initial = points.valid(other.fastest(STARTS))
    started, found = time.process_time(), [float("inf")]
    player = Strategy(
        points,
        seed=seed,
        sampler=strategy,
        initial=initial,
        predicted=points.predicted_ns if predicted else None,
    )
    # What the space itself computes is not the strategy's.
    elsewhere_s = 0.0
    while len(found) <= evaluations and found[-1] != points.best_ns:
        config = player.ask()
        if config is None:
            break
        paused = time.process_time()
        time_ns = points.time_ns(config)
        elsewhere_s += time.process_time() - paused
        player.tell(config, time_ns)
        found.append(min(found[-1], time_ns or found[-1]))
    ask_s = (time.process_time() - started - elsewhere_s) / (len(found) - 1)
    found += [found[-1]] * (evaluations + 1 - len(found))
    return Played(found[1:], ask_s)


def summary(runs: list[Played], best_ns: float) -> dict[str, Any]:
    """Share of runs at 95 % of the best, and quantiles of what is reached, at marks; and curves."""
    reached = best_ns / np.array([run.best_ns for run in runs])
    good = (reached >= GOOD).mean(axis=0)
    medians = np.median(reached, axis=0)
    within = {
        str(mark): {
            "share_at_95": round(float(good[mark - 1]), 3),
            "median": round(float(medians[mark - 1]), 4),
            "p10": round(float(np.quantile(reached[:, mark - 1], 0.1)), 4),
        }
        for mark in MARKS
        if mark <= reached.shape[1]
    }
    every = slice(PLACES - 1, None, PLACES)
    return {
        "ask_ms": round(1e3 * float(np.mean([run.ask_s for run in runs])), 2),
        "within": within,
        "curve": {
            "every": PLACES,
            "share_at_95": np.round(good[every], 3).tolist(),
            "median": np.round(medians[every], 4).tolist(),
        },
    }


def provenance(commit: str | None) -> dict[str, Any]:
    return {
        "commit": commit or assets.revision() or "unknown",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": f"{settings.jobs()} CPUs, {platform.machine()}",
    }


def identity(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("space", "seeded", "predicted", "strategy"))


def keep(path: Path, rows: list[dict[str, Any]]) -> None:
    """Writes rows into a file, in place of those that it has of the same runs."""
    new = {identity(row) for row in rows}
    old = json.loads(path.read_text())["rows"] if path.exists() else []
    merged = [row for row in old if identity(row) not in new] + rows
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"rows": sorted(merged, key=identity)}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--space", action="append", required=True, help="file, or synthetic:MxNxK")
    parser.add_argument("--seed-from", default="", help="another one, whose ten best come first")
    parser.add_argument("--predicted", action="store_true", help="surrogates know the model")
    parser.add_argument("--strategy", choices=list(SAMPLERS), action="append")
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=None, help="processes; default: every CPU")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--commit", default=None, help="commit that runs, where git cannot tell")
    parser.add_argument("--out", type=Path, default=None, help="JSON file to write")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for source, name in [(each, name) for each in options.space for name in spaces(each)]:
            played = {
                strategy: [
                    pool.submit(play, source, name, strategy, options.evaluations, seed,
                                options.seed_from, options.predicted)
                    for seed in range(options.runs)
                ]
                for strategy in options.strategy or ["auto"]
            }  # fmt: skip
            runs = {strategy: [job.result() for job in jobs] for strategy, jobs in played.items()}
            # Where nobody knows the best, it is the best that any of these runs found.
            best_ns = spaces(source)[name].best_ns or min(
                run.best_ns[-1] for each in runs.values() for run in each
            )
            for strategy, each in runs.items():
                row = {
                    "space": name,
                    "seeded": bool(options.seed_from),
                    "predicted": options.predicted,
                    "strategy": strategy,
                    "runs": options.runs,
                    **summary(each, best_ns),
                    "provenance": provenance(options.commit),
                }
                rows.append(row)
                if not options.json:
                    print(name, strategy, f"{row['ask_ms']} ms", json.dumps(row["within"]))
            if options.out:
                keep(options.out, rows)
    if options.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
