"""The scripts of benchmarks/: tables and plots of results, choice of problems, search in a time."""

from __future__ import annotations

import importlib
import json
import math
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from fake_door import FakeDoor
from fake_search import PROBLEM, FakePool
from store_helpers import live

from autotune import verify
from autotune.compile import Compiler
from autotune.problems.sgemm import Sgemm
from autotune.search import Finished, Report
from autotune.types import Evidence, Outcome

ROOT = Path(__file__).parents[2]
COMPILER = Compiler("nvrtc", (13, 5), "13.5.37", frozenset([75]))


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """benchmarks/ as Python finds it when one of its scripts runs."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield
    for name in set(sys.modules) - before:
        if str(ROOT / "benchmarks") in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def script(name: str) -> ModuleType:
    return importlib.import_module(name)


# *** problems ***


def chosen(**options: Any) -> list[str]:
    selection = script("selection")
    parser = ArgumentParser()
    selection.add_arguments(parser)
    found = parser.parse_args([])
    for name, value in options.items():
        setattr(found, name, value)
    return [case.problem.key for case in selection.cases(found)]


def test_the_suite_is_chosen_by_class_and_by_name() -> None:
    everything = chosen()
    assert len(everything) == len(set(everything)) == 48
    assert chosen(classes="short-k") == ["sgemm/4096x4096x64/nn", "sgemm/8192x8192x16/nn"]
    assert len(chosen(classes="short-k, batched")) == 5
    assert chosen(only="1023x", classes="ragged") == ["sgemm/1023x1025x1027/nn"]
    assert len(chosen(only="batch,500000")) == 4
    with pytest.raises(SystemExit, match="no class cubes; there are batched, deep-k"):
        chosen(classes="cubes")
    with pytest.raises(SystemExit, match="leaves no problem"):
        chosen(only="7x7x7")


# *** tables and plots ***

PROVENANCE = {
    "device": "NVIDIA H200", "driver": "580.1", "compiler": "nvrtc 13.0", "door": "pycuda",
    "commit": "abc123", "date": "2026-12-01T00:00:00+00:00", "peak_tflops": 66.9,
    "bandwidth_gbs": 4917.0,
}  # fmt: skip
ROW = {
    "kernel": "sgemm", "problem": "sgemm/1024x1024x1024/nn", "class": "square,layouts",
    "median_ns": 53_500.0, "tflops": 40.1, "percent_of_peak": 60.0, "percent_of_bandwidth": None,
    "vendor_ns": 63_300.0, "vendor_tflops": 33.9, "ratio": 1.183, "gflops_per_watt": 81.0,
    "vendor_gflops_per_watt": 77.4, "gbs": 235.0,
}  # fmt: skip
FAILED = {
    **{name: None for name in ROW}, "kernel": "sgemm", "problem": "sgemm/8x8x8/tn", "class": "",
}  # fmt: skip
SUITE = {
    "provenance": PROVENANCE,
    "rows": [ROW, FAILED],
    "summary": [
        {
            "name": "all", "problems": 2, "failed": 1, "compared": 1, "mean_ratio": 1.183,
            "share_ahead": 1.0, "worst": "sgemm/1024x1024x1024/nn", "worst_ratio": 1.183,
        }
    ],
}  # fmt: skip
LADDER = {
    "provenance": PROVENANCE,
    "shape": "4096x4096x4096",
    "vendor": {"tflops": 51.0},
    "steps": [
        {
            "step": "seed-v3", "changes": "", "tflops": 40.7, "gain": None,
            "percent_of_vendor": 79.8, "limiter": "shared", "why": "tiles",
        },
        {
            "step": "best", "changes": "pad_a 0 to 4", "tflops": 52.0, "gain": 1.278,
            "percent_of_vendor": 102.0, "limiter": "issue", "why": "found by search (exact)",
        },
    ],
}  # fmt: skip
PEERS = {
    "provenance": PROVENANCE,
    "versions": {"torch": "2.9", "triton": "3.9"},
    "problems": {
        "sgemm/1024x1024x1024/nn": {
            "class": "square", "torch": {"tflops": 33.1}, "triton": {"message": "no tile works"}
        }
    },
}  # fmt: skip


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """tables.py, with results of our own."""
    module = script("tables")
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setattr(module, "PLOTS", tmp_path / "plots")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    for name, results in ((module.SUITE, SUITE), (module.LADDER, LADDER), (module.PEERS, PEERS)):
        (tmp_path / name).write_text(json.dumps(results))
    return module


def test_tables_of_suite_ladder_and_peers(tables: ModuleType) -> None:
    origin = (
        "NVIDIA H200, driver 580.1, nvrtc 13.0, timed through pycuda, commit abc123, 2026-12-01"
    )
    suite = tables.suite().splitlines()
    assert suite[2] == (
        "| square, layouts | 1024x1024x1024 | 53.5 | 40.1 | 60 | - | 63.3 | 1.183 | 81 | 77 |"
    )
    assert suite[3] == "|  | 8x8x8/tn | - | - | - | - | - | - | - | - |"
    assert suite[-1] == f"{origin}; `benchmarks/suite.py`."
    classes = tables.suite_classes().splitlines()
    assert classes[2] == "| all | 2 | 1 | 1.183 | 100% | 1.183 | 1024x1024x1024/nn |"
    ladder = tables.ladder().splitlines()
    assert ladder[2] == "| `seed-v3` | - | 40.7 | - | 79.8 | shared | tiles |"
    assert ladder[3].startswith("| `best` | pad_a 0 to 4 | 52.0 | 1.278 | 102.0 | issue |")
    peers = tables.peers().splitlines()
    assert peers[0] == "| problem | ours | cuBLAS | torch | triton |"
    assert peers[2] == "| 1024x1024x1024/nn | 40.1 | 33.9 | 33.1 | - |"
    assert peers[-1].startswith("torch 2.9, triton 3.9. NVIDIA H200")
    for table in (suite, classes, ladder, peers):
        widths = {line.count("|") for line in table if line.startswith("|")}
        assert len(widths) == 1, table


SEARCH = {"tried": 300, "busy_share": 0.712, "tflops": 54.8}
OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "throughput": (
        {
            "cpus": 16,
            "searches": [
                {
                    "shape": "4096x4096x4096", "sampler": "random", "search": SEARCH,
                    "verified_per_s": 10.24, "worker_ms_per_variant": 69.6, "compile_s_mean": 1.234,
                }
            ],
        },
        "| 4096x4096x4096 | random | 300 | 10.2 | 71% | 70 | 1.23 | 54.8 |",
    ),
    "holds": (
        {
            "summary": {
                "this_gpu": {
                    "bests": 48, "hold": 47, "medians_within_1_percent": 46,
                    "median_drift_percent": 0.214, "largest_drift_percent": 1.3,
                },
                "other_gpus": {
                    "bests": 0, "hold": 0, "medians_within_1_percent": 0,
                    "median_drift_percent": None, "largest_drift_percent": None,
                },
            }
        },
        "| the GPU that is here | 48 | 47 | 46 | 0.21 | 1.30 |",
    ),
    "placement": (
        {
            "problems": [
                {
                    "problem": "sgemm/8x8x8/nn", "kernel": "ours", "processes": 10,
                    "intervals_with_the_median": 9,
                    "stays": {
                        "median_ns": 5728.0, "largest_difference_percent": 6.04,
                        "within_1_percent": 5,
                    },
                    "moved": {
                        "median_ns": 5696.0, "largest_difference_percent": 1.12,
                        "within_1_percent": 8,
                    },
                }
            ]
        },
        "| 8x8x8/nn | ours | 10 | 5.73 | 6.0 | 5 | 5.70 | 1.1 | 8 | 9 |",
    ),
    "paths": (
        {
            "paths": [
                {"launches": 1000, "differing": 0, "is_deterministic": True},
                {"launches": 1000, "differing": 999, "is_deterministic": False},
            ],
            "sanitizer": [{"tool": "memcheck", "paths": 2, "summary": "ERROR SUMMARY: 0 errors"}],
        },
        "| 1,000 launches of each | 1 | 0 with a bit that differs |",
    ),
    "leave_one_out": (
        {
            "summary": {
                "problems": 48, "near_with_loss": 40, "median_loss": 0.031, "p90_loss": 0.12,
                "covered_by_stated": 0.825,
            },
            "provenance": {
                "device": ["NVIDIA H200"], "driver": ["580.1"], "timed": "in turns, on this device",
                "commit": "abc123", "date": "2026-12-01T00:00:00+00:00",
            },
        },
        "| 48 | 40 | 3.1% | 12.0% | 82% |",
    ),
    "runtime": (
        {
            "versions": {"torch": "2.9"},
            "overheads": [],
            "random": {"calls": 500, "wrong": []},
            "summary": [
                {
                    "library": "torch", "compared": 48, "failed": [], "mean_ratio": 1.2,
                    "share_ahead": 0.96, "worst_ratio": 0.99, "worst": "sgemm/8x8x8/nn",
                }
            ],
        },
        "| torch 2.9 | 48 | 0 | 1.200 | 96% | 0.990 | 8x8x8/nn |",
    ),
    "calls": (
        {
            "overheads": [
                {
                    "arrays": "torch", "launches": 1, "bare_launch_us": 2.0, "Gemm_us": 5.5,
                    "sgemm_us": 9.25, "Gemm_overhead_us": 3.5, "sgemm_overhead_us": 7.25,
                }
            ]
        },
        "| torch | 1 | 2.00 | 5.50 | 9.25 | 3.50 | 7.25 |",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_tables_of_other_records(name: str, tables: ModuleType, tmp_path: Path) -> None:
    results, line = OTHERS[name]
    file = {"calls": "runtime"}.get(name, name)
    record = tmp_path / f"{file}_h200.json"
    record.write_text(json.dumps({"provenance": PROVENANCE, **results}))
    made = tables.TABLES[{"leave_one_out": "near"}.get(name, name)]().splitlines()
    assert line in made
    assert len({each.count("|") for each in made if each.startswith("|")}) == 1
    assert made[-1].endswith(f"`benchmarks/{file}.py`.")


def test_placement_compares_processes() -> None:
    rows = [
        {
            "problem": "sgemm/8x8x8/nn",
            "kernel": kernel,
            "stays_ns": stays,
            "moved_ns": moved,
            "moved_interval_ns": [moved - 1, moved + 1],
        }
        for kernel, stays, moved in (
            ("ours", 100.0, 100.0), ("vendor", 50.0, 60.0), ("ours", 110.0, 101.0),
            ("ours", 100.5, 102.0),
        )
    ]  # fmt: skip
    line, vendor = script("placement").summary(rows)
    assert (line["kernel"], line["processes"]) == ("ours", 3)
    assert (line["stays"]["median_ns"], line["moved"]["median_ns"]) == (100.5, 101.0)
    assert line["stays"]["largest_difference_percent"] == pytest.approx(100 * 9.5 / 100.5)
    assert (line["stays"]["within_1_percent"], line["moved"]["within_1_percent"]) == (2, 3)
    assert line["intervals_with_the_median"] == 3
    assert (vendor["kernel"], vendor["processes"]) == ("vendor", 1)
    assert (vendor["stays"]["median_ns"], vendor["moved"]["median_ns"]) == (50.0, 60.0)


def test_writing_fills_the_pages_and_draws(
    tables: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table ladder -->\nold\n<!-- end of table -->\nafter\n")
    monkeypatch.setattr(tables, "PAGES", (page,))
    monkeypatch.setattr(sys, "argv", ["tables.py", "--write"])
    tables.main()
    assert page.read_text() == (
        f"before\n<!-- table ladder -->\n{tables.ladder()}\n<!-- end of table -->\nafter\n"
    )
    drawn = sorted(file.name for file in (tmp_path / "plots").iterdir())
    assert drawn == ["ladder.svg", "roofline.svg", "suite.svg"]


def test_what_is_not_recorded_is_left_out(
    tables: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in (tables.SUITE, tables.LADDER):
        (tmp_path / name).unlink()
    assert tables.draw() == [] and not (tmp_path / "plots").exists()
    monkeypatch.setattr(sys, "argv", ["tables.py"])
    tables.main()
    shown = capsys.readouterr().out
    assert "ladder: not recorded yet" in shown and "suite: not recorded yet" in shown


# *** searching within a time ***


class Search:
    """Stands in for the search: reports the first problems, then the time is over."""

    def __init__(self, reached: int) -> None:
        self.reached = reached
        self.problems: list[Sgemm] = []
        self.options: dict[str, Any] = {}

    def __call__(self, problems: list[Sgemm], **options: Any) -> None:
        self.problems, self.options = problems, options
        for problem in problems[: self.reached]:
            report = Report(
                problem=problem, device=live(), evidence=Evidence.measured, status="truncated",
                best_ns=1e5, vendor_ns=1.1e5, counts={Outcome.ok: 30}, seconds=20.0,
            )  # fmt: skip
            options["listener"](Finished(report=report))
        signal.pause()  # the alarm ends it


def test_a_batch_search_ends_in_time_and_shows_what_it_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tune = script("tune_suite")
    search = Search(reached=2)
    monkeypatch.setattr(tune.api, "search", search)
    monkeypatch.setattr(tune, "ENDING_S", 0.2)
    arguments = ["--db", str(tmp_path / "r.db"), "--seconds", "1", "--classes", "short-k,batched"]
    monkeypatch.setattr(sys, "argv", ["tune_suite.py", *arguments])
    tune.main()
    assert search.options["total_seconds"] == pytest.approx(0.8)
    assert len(search.problems) == 5
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "out of time, or interrupted: every finished trial is stored" in shown
    assert any(line.startswith("sgemm/4096x4096x64/nn short-k 30 20 s 100 us") for line in shown)
    assert "0 of 5 problems have a best" in " ".join(shown), "a report without a config has none"


def test_throughput_counts_what_a_search_made(
    pool: FakePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    throughput = script("throughput")
    search = throughput.api.search
    asked = []

    def searched(shape: str, *, door: Any, sampler: str, **more: Any) -> Any:
        asked.append(sampler)
        return search(shape, arch=75, door=FakeDoor, sampler=sampler, **more)

    monkeypatch.setattr(throughput.api, "search", searched)
    compiled = tmp_path / "kernels" / "ab"
    compiled.mkdir(parents=True)
    for number, seconds in enumerate((1.5, 0.5, 1.0)):
        document = {"sha256": "", "result": {"compile_seconds": seconds}}
        (compiled / f"{number}.json").write_text(json.dumps(document))
    failed = {"sha256": "", "result": {"outcome": "compile_error", "message": ""}}
    (compiled / "failed.json").write_text(json.dumps(failed))
    assert throughput.seconds_of_compiling(tmp_path) == [0.5, 1.0, 1.5]
    found = throughput.measure(PROBLEM.shape, 12, 0, None, "random")
    assert found["sampler"] == "random" and asked == ["random"]
    assert found["compiled"] == 0 and found["compile_s_mean"] is None
    assert (found["search"]["tried"], found["verified"]) == (12, 12)
    assert found["verified_per_s"] == pytest.approx(found["search"]["trials_per_s"], rel=1e-12)
    assert sum(found["samples"].values()) == 12
    assert not Path(throughput.os.environ["AUTOTUNE_CACHE_DIR"]).exists()


# *** other libraries ***


class Numpy:
    """A library that computes on the host, with an event clock of its own."""

    name = "numpy"

    def __init__(self, ways: dict[str, Any]) -> None:
        self.ways = ways
        self.flushed = 0

    def upload(self, array: np.ndarray) -> np.ndarray:
        return array.copy()

    def download(self, array: np.ndarray) -> np.ndarray:
        return array

    def flush(self) -> None:
        self.flushed += 1

    def elapsed_ns(self, run: Any) -> float | None:
        run()
        return float(run.ns)

    def products(self, sizes: dict[str, Any], a: Any, b: Any, c: Any) -> dict[str, Any]:
        transposed = script("peers").transposed

        def way(change: Any, ns: float) -> Any:
            def run() -> None:
                change(c, transposed(a, sizes["layout"][0]) @ transposed(b, sizes["layout"][1]))

            run.ns = ns  # type: ignore[attr-defined]
            return run

        return {name: way(change, ns) for name, (change, ns) in self.ways.items()}


def put(c: Any, product: Any) -> None:
    c[...] = product


def put_rounded(c: Any, product: Any) -> None:
    c[...] = product.astype(np.float16)


def refuse(c: Any, product: Any) -> None:
    raise ValueError("out of shared memory\nmore")


@pytest.mark.parametrize("options", [{}, {"layout": "tn"}, {"layout": "nt", "batch": 3}])
def test_the_fastest_right_way_of_a_library_counts(options: dict[str, Any]) -> None:
    peers = script("peers")
    problem = Sgemm.parse("24x20x16", **options)
    library = Numpy(
        {
            "slow": (put, 2e5),
            "fast": (put, 1e5),
            "wrong": (put_rounded, 1e3),
            "idle": (lambda c, product: None, 1e3),
            "broken": (refuse, 1e3),
        }
    )
    found = peers.measure(library, problem, verify.random_case(problem, seed=0))
    assert (found["way"], found["median_ns"], found["ways"]) == ("fast", 1e5, 5)
    assert found["samples"] == peers.SAMPLES
    assert found["tflops"] == pytest.approx(problem.flops / 1e5 / 1e3)
    assert 0 <= found["max_error"] <= 1
    assert set(found["failed"]) == {"wrong", "idle", "broken"}
    assert found["failed"]["broken"] == "ValueError: out of shared memory"
    assert "nan" in found["failed"]["idle"], "what an earlier way left does not pass"
    assert library.flushed == peers.FLUSHES * (2 * peers.QUICK_SAMPLES + peers.SAMPLES)


def test_a_library_without_a_right_way_has_a_reason() -> None:
    peers = script("peers")
    problem = Sgemm.parse("24x20x16")
    found = peers.measure(
        Numpy({"broken": (refuse, 1.0)}), problem, verify.random_case(problem, seed=0)
    )
    assert found == {"message": "broken: ValueError: out of shared memory"}


def test_samples_for_which_the_host_was_late_are_taken_again() -> None:
    peers = script("peers")

    class Late(Numpy):
        late = 3

        def elapsed_ns(self, run: Any) -> float | None:
            self.late -= 1
            return None if self.late >= 0 else 5.0

    library = Late({})
    assert peers.samples_ns(library, None, 4) == [5.0] * 4
    waits = [0, 1, 2, 3, 3, 3, 3]
    assert library.flushed == sum(peers.FLUSHES + wait for wait in waits), "behind longer waits"
    problem = Sgemm.parse("8x8x8")
    library = Late({"way": (put, 1.0)})
    library.late = 10**6
    found = peers.measure(library, problem, verify.random_case(problem, seed=0))
    assert "the host was late" in found["message"]


def test_long_runs_are_sampled_less_often() -> None:
    peers = script("peers")
    assert math.isclose(peers.BUDGET_NS, 3e8)

    def run() -> None:
        pass

    run.ns = 2e8  # type: ignore[attr-defined]
    assert len(peers.samples_ns(Numpy({}), run, 25)) == 2


def test_libraries_that_are_missing_are_named() -> None:
    peers = script("peers")
    present, versions, missing = peers.libraries(50 * 2**20)
    assert {library.name for library in present} == set(versions)
    assert set(versions) | set(missing) == {"torch", "cupy", "triton"}
    assert all("Error: " in why for why in missing.values())


def test_a_run_goes_on_with_a_file_of_its_own_kind_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    provenance = script("provenance")
    here = {
        "device": "H", "driver": "580", "compiler": "nvrtc 13", "door": "pycuda", "commit": "abc",
        "date": "today",
    }  # fmt: skip
    monkeypatch.setattr(provenance, "provenance", lambda options: here)
    options = Namespace(out=tmp_path / "peers.json")
    assert provenance.earlier(options) == {}
    file = {"provenance": {**here, "date": "yesterday"}, "problems": {"one": {}}}
    options.out.write_text(json.dumps(file))
    assert provenance.earlier(options) == {"one": {}}
    for name in ("device", "driver", "compiler", "door", "commit"):
        options.out.write_text(json.dumps({**file, "provenance": {**here, name: "another"}}))
        assert provenance.earlier(options) == {}
        assert f"is begun anew: {name} differ" in capsys.readouterr().out
