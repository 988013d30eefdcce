"""Plays search strategies against recorded spaces, where trying a point costs nothing.

    python benchmarks/replay.py --space FILE.csv.gz --strategy auto --runs 100 --json

A space is a CSV with one column a parameter, then times; `median_ms` or `median_ns` counts. Only
unique points are counted. `--seed-from` starts each run with the ten best points of another file.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from autotune.search.strategy import SAMPLERS, Strategy
from autotune.space import Parameter
from autotune.types import Config

MEASURES = ("median_ms", "median_ns", "p10_ms", "p90_ms", "first_ms", "registers", "spill_bytes",
            "predicted_ns")  # fmt: skip
MARKS = (50, 100, 200, 400)
GOOD = 0.95


class Recorded:
    """The points of a file, as a strategy sees them; and their times."""

    def __init__(self, file: str) -> None:
        opener = gzip.open if file.endswith(".gz") else open
        with opener(file, "rt") as lines:
            rows = list(csv.DictReader(lines))
        names = [name for name in rows[0] if name not in MEASURES]
        time_name = "median_ns" if "median_ns" in rows[0] else "median_ms"
        self.times = {
            Config({name: _value(row[name]) for name in names}): float(row[time_name])
            for row in rows
        }
        self.parameters: Sequence[Parameter] = [
            Parameter(name=name, values=values, default=values[0], meaning="")
            for name in names
            for values in [tuple(sorted({config[name] for config in self.times}))]
        ]

    @cached_property
    def configs(self) -> list[Config]:
        return list(self.times)

    @property
    def size(self) -> int:
        return len(self.times)

    @property
    def best(self) -> float:
        return min(self.times.values())

    def sample(
        self, count: int, rng: np.random.Generator, exclude: Collection[Config] = ()
    ) -> list[Config]:
        found: dict[Config, None] = {}
        if self.size <= 2 * (count + len(exclude)):
            numbers = rng.permutation(self.size)
            return [c for c in (self.configs[i] for i in numbers) if c not in exclude][:count]
        while len(found) < count:
            for number in rng.integers(0, self.size, count):
                config = self.configs[number]
                if len(found) < count and config not in exclude:
                    found[config] = None
        return list(found)

    def neighbours(self, config: Config, changes: int = 1) -> list[Config]:
        near = self._single(config)
        if changes == 1:
            return near
        # Through invalid points too, as in a space that is known by its rules.
        moves = [(p.name, v) for p in self.parameters for v in p.values if v != config[p.name]]
        both = (
            config.but(**{name: value, other: changed})
            for index, (name, value) in enumerate(moves)
            for other, changed in moves[index + 1 :]
            if other != name
        )
        return self.valid(list(both))

    def _single(self, config: Config) -> list[Config]:
        return self.valid(
            [config.but(**{p.name: v}) for p in self.parameters for v in p.values
             if v != config[p.name]]
        )  # fmt: skip

    def valid(self, configs: Sequence[Config]) -> list[Config]:
        return [config for config in configs if config in self.times]


def _value(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdigit() else text


@cache
def recorded(file: str) -> Recorded:
    return Recorded(file)


def play(file: str, strategy: str, evaluations: int, seed: int, seed_from: str) -> list[float]:
    """The share of the best speed that was reached after each evaluation."""
    points = recorded(file)
    initial: list[Config] = []
    if seed_from:
        other = recorded(seed_from)
        ranked = sorted(other.times, key=lambda config: (other.times[config], config.json))
        initial = points.valid(ranked[:10])
    player = Strategy(points, seed=seed, sampler=strategy, initial=initial)
    found, best = [], float("inf")
    for _ in range(min(evaluations, points.size)):
        config = player.ask()
        if config is None:
            break
        player.tell(config, points.times[config] * 1e6)
        best = min(best, points.times[config])
        found.append(points.best / best)
    return found


def summary(curves: list[list[float]]) -> dict[str, dict[str, float]]:
    """Share of runs at 95 % of the best, and the median, at each mark."""
    marks = {}
    for mark in MARKS:
        if mark <= len(curves[0]):
            reached = np.array([curve[mark - 1] for curve in curves])
            marks[str(mark)] = {
                "share_at_95": round(float((reached >= GOOD).mean()), 3),
                "median": round(float(np.median(reached)), 4),
                "p10": round(float(np.quantile(reached, 0.1)), 4),
            }
    return marks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--space", action="append", required=True, help="recorded space")
    parser.add_argument("--seed-from", default="", help="another one, whose ten best come first")
    parser.add_argument("--strategy", choices=list(SAMPLERS), action="append")
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for file in options.space:
            for strategy in options.strategy or ["auto"]:
                started = time.monotonic()
                jobs = [
                    pool.submit(play, file, strategy, options.evaluations, seed, options.seed_from)
                    for seed in range(options.runs)
                ]
                marks = summary([job.result() for job in jobs])
                results.append(
                    {
                        "space": Path(file).name,
                        "seeded": bool(options.seed_from),
                        "strategy": strategy,
                        "runs": options.runs,
                        "seconds": round(time.monotonic() - started, 1),
                        "within": marks,
                    }
                )
                if not options.json:
                    print(Path(file).name, strategy, json.dumps(marks), flush=True)
    if options.json:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
