"""benchmarks/runtime.py on the fake driver: what it measures and what it counts as wrong."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from fake_driver import FakeDriver, Shown

from autotune import verify
from autotune.problems.sgemm import Sgemm

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield importlib.import_module("runtime")
    for name in set(sys.modules) - before:
        if str(ROOT / "benchmarks") in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


class Sliced(Shown):
    """Views of it lie where it lies, as those of other libraries."""

    def __getitem__(self, key: Any) -> Sliced:
        return Sliced(self.array[key])

    def swapaxes(self, first: int, second: int) -> Sliced:
        return Sliced(self.array.swapaxes(first, second))


class Library:
    """Host memory as the fake driver's."""

    name = "fake"

    def __init__(self, fake: FakeDriver) -> None:
        self.fake = fake

    def upload(self, array: np.ndarray) -> Sliced:
        copy = array.copy()
        self.fake.place(copy)
        return Sliced(copy)

    def download(self, array: Sliced) -> np.ndarray:
        return array.array

    def flush(self) -> None:
        return None

    def elapsed_ns(self, run: Any) -> float:
        run()
        return 1000.0

    def products(self, sizes: dict[str, Any], a: Any, b: Any, c: Any) -> dict[str, Any]:
        return {"mm": lambda: None}


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    fake = FakeDriver(monkeypatch)
    fake.stack.append(fake.primary(0))
    return Library(fake)


def test_random_calls_are_judged(
    script: Any, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [script.random_call(library, seed) for seed in range(12)]
    assert all(each["is_right"] and each["error_share"] <= 1 for each in found)
    assert len({each["call"].split(", seed")[0] for each in found}) > 8
    # What is off by one element, or written between the rows, is wrong.
    real = library.download

    places = [0, -1, 0, -1]

    def off(array: Sliced) -> np.ndarray:
        array.array.flat[places.pop()] += 1
        return real(array)

    monkeypatch.setattr(library, "download", off)
    for _ in range(2):
        assert not script.random_call(library, 3)["is_right"]
    monkeypatch.setattr(script.settings, "jobs", lambda: 1)
    found = script.random_calls(library, 2)
    assert found["calls"] == 2 and len(found["wrong"]) == 2


def test_a_problem_is_measured_beside_the_library(script: Any, library: Library) -> None:
    problem = Sgemm(m=48, n=40, k=24, layout="tn")
    row = script.measure(library, problem, verify.random_case(problem, seed=0))
    assert (row["match"], row["ratio"], row["samples"]) == ("arch_default", 1.0, script.SAMPLES)
    assert row["max_error"] <= 1 and row["config"]["method"]
    batch = Sgemm(m=16, n=16, k=8, batch=3)
    assert script.measure(library, batch, verify.random_case(batch, seed=0))["ratio"] == 1.0


def test_wrong_results_have_no_ratio(
    script: Any, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "download", lambda array: array.array * 1.01)
    problem = Sgemm(m=48, n=40, k=24)
    row = script.measure(library, problem, verify.random_case(problem, seed=0))
    assert "ratio" not in row and row["message"].startswith("wrong result: ")


def test_overheads_are_those_beyond_the_bare_launch(
    script: Any, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "BATCH", 3)
    monkeypatch.setattr(script, "BATCHES", 3)
    rows = script.overheads(library, lambda: None)
    assert [row["arrays"] for row in rows] == ["fake", "interface"]
    for row in rows:
        assert row["bare_launch_us"] > 0 and row["launches"] == 1
    # Each is called once before it is timed.
    timed = 1 + (1 + 3 * 3) * 3 * 2
    assert len(library.fake.launches) == timed


def test_an_overhead_is_taken_from_the_batch_beside_it(
    script: Any, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is slow for a while is slow for all of them."""
    costs = {
        "bare_launch": [4.0, 4.0, 40.0],
        "Gemm": [7.0, 7.5, 44.0],
        "sgemm": [8.0, 8.5, 41.0],
    }
    monkeypatch.setattr(script, "calls_us", lambda runs, wait: costs)
    row = script.overheads(library, lambda: None)[0]
    assert (row["bare_launch_us"], row["Gemm_us"], row["sgemm_us"]) == (4.0, 7.5, 8.5)
    assert (row["Gemm_overhead_us"], row["sgemm_overhead_us"]) == (3.5, 4.0)


def test_the_summary(script: Any) -> None:
    problems = {
        "one": {"torch": {"ratio": 2.0, "match": "exact"}},
        "two": {"torch": {"ratio": 0.5, "match": "near_shape"}},
        "three": {"torch": {"message": "wrong result", "match": "exact"}},
    }
    found = script.summary(problems, "torch")
    assert math.isclose(found["mean_ratio"], 1.0) and found["share_ahead"] == 0.5
    assert (found["worst"], found["worst_ratio"], found["failed"]) == ("two", 0.5, ["three"])
    assert found["matches"] == {"exact": 2, "near_shape": 1}
    assert "mean_ratio" not in script.summary({}, "torch")
