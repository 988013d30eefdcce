"""Searches on the GPU that is here: how fast, how busy the device is, and whether bests hold."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import fmean

import pytest

from autotune import api, drift, settings
from autotune.problems.sgemm import Sgemm
from autotune.search import Budget, Report, search
from autotune.store import Store
from autotune.types import Device, Outcome

pytestmark = pytest.mark.gpu

MEDIUM = Sgemm.parse("1024x1024x1024")
LARGE = Sgemm.parse("4096x4096x4096")


@pytest.fixture(scope="module")
def found(live: Device, tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Path]:
    """A search of 120 trials."""
    place = tmp_path_factory.mktemp("search") / "r.db"
    (report,) = search([MEDIUM], arch=live.arch, budget=Budget(trials=120), store=place)
    return report, place


def test_a_search_keeps_the_measuring_process_busy(found: tuple[Report, Path]) -> None:
    report, place = found
    assert report.status == "finished" and report.best is not None
    assert sum(report.counts.values()) == 120
    assert report.counts[Outcome.ok] > 60
    assert report.trials_per_s is not None
    assert report.busy_share is None or 0 < report.busy_share <= 1
    assert report.interval_ns is not None and report.best_ns is not None
    low_ns, high_ns = report.interval_ns
    assert 0.9 * report.best_ns < low_ns <= report.best_ns <= high_ns < 1.1 * report.best_ns
    rows = api.results(store=place, outcome="ok")
    assert all("exact" in row["checks"] for row in rows)
    assert not any(row["stale"] for row in rows)


def test_a_best_holds_in_a_fresh_process(found: tuple[Report, Path]) -> None:
    _, place = found
    (again,) = drift.verify_best([MEDIUM], store=place, tolerance=0.03)
    assert again.measurement.is_ok, again
    assert again.holds, again


def test_a_campaign_confirms_every_problem_in_its_time(live: Device, tmp_path: Path) -> None:
    problems = [Sgemm.parse(f"{size}x{size}x{size}") for size in (256, 512, 768)]
    reports = search(problems, arch=live.arch, total_seconds=45, store=tmp_path / "r.db")
    assert all(report.best is not None for report in reports), reports
    assert sum(report.seconds for report in reports) < 55
    with Store.open(tmp_path / "r.db", read_only=True) as store:
        later = store.runs(sort="id")[-1]
    assert re.search(r"\bbatch [1-9]", later["starts"]), later


@pytest.fixture(scope="module")
def large(live: Device, tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, list[float]]:
    """A search of 300 trials at 4096 cubed with an empty cache, and the seconds of each compile."""
    if settings.cpus() < 16 or live.fp32_tflops < 60:
        pytest.skip("asked of an H200 with 16 cores")
    place = tmp_path_factory.mktemp("large")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNE_CACHE_DIR", str(place))
        (report,) = search([LARGE], arch=live.arch, budget=Budget(trials=300), store=place / "r.db")
    documents = (json.loads(path.read_text()) for path in place.rglob("kernels/*/*.json"))
    return report, [each["result"].get("compile_seconds", 0.0) for each in documents]


def test_ten_verified_variants_a_second(large: tuple[Report, list[float]]) -> None:
    """What a GPU machine with 16 cores must reach; see benchmarks/throughput.py.

    It reaches 7: the compilers are what is full, as the next test says.
    """
    report, _ = large
    assert report.trials_per_s is not None and report.busy_share is not None
    verified = report.counts[Outcome.ok] / sum(report.counts.values())
    assert report.trials_per_s * verified >= 10
    assert report.busy_share >= 0.7


def test_a_search_waits_for_compilers_alone(large: tuple[Report, list[float]]) -> None:
    """With a compiler on each core but one."""
    report, seconds = large
    assert report.trials_per_s is not None and report.busy_share is not None
    assert len(seconds) >= 290
    compiling = report.trials_per_s * fmean(seconds)
    assert compiling >= 0.85 * (settings.cpus() - 1) or report.busy_share >= 0.7
    assert report.counts[Outcome.ok] >= 0.95 * sum(report.counts.values())
