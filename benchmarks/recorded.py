"""Spaces in which trying a point costs nothing: recorded ones, and a synthetic one of full size."""

from __future__ import annotations

import csv
import gzip
import json
import math
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from autotune import archs, space
from autotune.analysis import predict
from autotune.problems import family
from autotune.search.points import Points
from autotune.space import Parameter
from autotune.types import Config

MEASURES = ("median_ms", "median_ns", "p10_ms", "p90_ms", "first_ms", "registers", "spill_bytes",
            "predicted_ns")  # fmt: skip
SYNTHETIC = "synthetic:"
"""Begins the name of a synthetic space; a shape follows."""


class Playable(Points, Protocol):
    """Points whose times are known.

    Attributes:
        best_ns: The least time; None where nobody knows it.
    """

    best_ns: float | None

    def time_ns(self, config: Config) -> float | None:
        """What trying a valid point gives; None for a failure."""

    def predicted_ns(self, config: Config) -> float | None:
        """What a model says of it; None where there is none."""


class Recorded:
    """The points of a table: parameters by name, then measures.

    The time is `median_ns` or `median_ms`; `predicted_ns` may be there as well.
    """

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        names = [name for name in rows[0] if name not in MEASURES]
        scale, column = (1.0, "median_ns") if "median_ns" in rows[0] else (1e6, "median_ms")
        self._times: dict[Config, float] = {}
        self._predicted: dict[Config, float] = {}
        for row in rows:
            config = Config({name: row[name] for name in names})
            self._times[config] = scale * float(row[column])
            if row.get("predicted_ns"):
                self._predicted[config] = float(row["predicted_ns"])
        self.best_ns: float | None = min(self._times.values())
        self.parameters: Sequence[Parameter] = [
            Parameter(name=name, values=values, default=values[0], meaning="")
            for name in names
            for values in [tuple(sorted({config[name] for config in self._times}))]
        ]

    @cached_property
    def configs(self) -> list[Config]:
        return list(self._times)

    @property
    def size(self) -> int:
        return len(self._times)

    def time_ns(self, config: Config) -> float | None:
        return self._times[config]

    def predicted_ns(self, config: Config) -> float | None:
        return self._predicted.get(config)

    def fastest(self, count: int) -> list[Config]:
        return sorted(self._times, key=lambda config: self._times[config])[:count]

    def unrank(self, numbers: Iterable[int]) -> list[Config]:
        return [self.configs[number] for number in numbers]

    def sample(
        self, count: int, rng: np.random.Generator, exclude: Collection[Config] = ()
    ) -> list[Config]:
        found: dict[Config, None] = {}
        if self.size <= 2 * (count + len(exclude)):
            numbers = rng.permutation(self.size)
            return [c for c in self.unrank(numbers) if c not in exclude][:count]
        while len(found) < count:
            for config in self.unrank(rng.integers(0, self.size, count)):
                if len(found) < count and config not in exclude:
                    found[config] = None
        return list(found)

    def neighbours(self, config: Config, changes: int = 1) -> list[Config]:
        moves = [(p.name, v) for p in self.parameters for v in p.values if v != config[p.name]]
        if changes == 1:
            return self.valid([config.but(**{name: value}) for name, value in moves])
        # Through invalid points too, as in a space that is known by its rules.
        both = (
            config.but(**{name: value, other: changed})
            for index, (name, value) in enumerate(moves)
            for other, changed in moves[index + 1 :]
            if other != name
        )
        return self.valid(list(both))

    def valid(self, configs: Sequence[Config]) -> list[Config]:
        return [config for config in configs if config in self._times]


class Synthetic:
    """Our own space with made-up times: the model's, times smooth factors of pairs of parameters.

    It is as large and as ragged as what a search meets, so that strategies can be compared at that
    size. Its times are nobody's.

    Args:
        seed: Of the factors.
    """

    PAIRS, SPREAD = 40, 0.15

    def __init__(self, shape: str, arch: int = 90, seed: int = 0) -> None:
        self._problem = family("sgemm").parse(shape)
        self._device = archs.get(arch).typical
        region = space.load().region(self._problem, arch)
        self.parameters, self.size = region.parameters, region.size
        self.unrank, self.sample = region.unrank, region.sample
        self.neighbours, self.valid = region.neighbours, region.valid
        self.best_ns: float | None = None
        rng = np.random.default_rng(seed)
        varied = [p for p in self.parameters if len(p.values) > 1]
        self._waves = [
            (
                [varied[i] for i in rng.permutation(len(varied))[:2]],
                rng.uniform(-np.pi, np.pi, 3),
            )
            for _ in range(self.PAIRS)
        ]

    def time_ns(self, config: Config) -> float | None:
        predicted = self.predicted_ns(config)
        if predicted is None or not math.isfinite(predicted):
            return None
        factor = 0.0
        for pair, (first, second, phase) in self._waves:
            one, other = (p.values.index(config[p.name]) / (len(p.values) - 1) for p in pair)
            factor += math.cos(first * one + second * other + phase)
        return predicted * math.exp(self.SPREAD * math.sqrt(2 / self.PAIRS) * factor)

    def predicted_ns(self, config: Config) -> float | None:
        return predict.ranking_ns(self._problem, config, self._device)


def load(source: str) -> dict[str, Playable]:
    """The spaces of a source by name: a CSV, a JSON of record_variants.py with a space a shape, or
    `synthetic:MxNxK`."""
    if source.startswith(SYNTHETIC):
        return {source: Synthetic(source.removeprefix(SYNTHETIC))}
    path = Path(source)
    name = path.name.split(".")[0]
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        if ".csv" in path.suffixes:
            rows = [
                {key: int(text) if text.isdigit() else text for key, text in row.items()}
                for row in csv.DictReader(file)
            ]
            return {name: Recorded(rows)}
        shapes = json.load(file)["shapes"]
    return {
        f"{name}:{shape}": Recorded(
            [dict(zip(part["columns"], row, strict=True)) for row in part["rows"]]
        )
        for shape, part in shapes.items()
    }
