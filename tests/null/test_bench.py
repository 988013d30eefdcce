"""`autotune bench` on a fake GPU: real look-up, templates, worker process, report and plots."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fake_door import DEVICE, PROBE, FakeDoor, Spec, plan
from store_helpers import timed

from autotune import problems, render, space, templates
from autotune.bench import Case, Row, Stand, Wishes, race, summaries
from autotune.bench import stand as stands
from autotune.bench.parts import BEST, VENDOR, Entry
from autotune.cli import main
from autotune.compile import Compiler
from autotune.errors import DeviceError
from autotune.lookup import Answer
from autotune.measure import Job, Power, Worker
from autotune.problems.sgemm import Sgemm
from autotune.report import bench as report
from autotune.store import Store, VariantRow
from autotune.types import (
    Binary,
    Config,
    Failure,
    Match,
    Measurement,
    Outcome,
    Problem,
    Stage,
    Variant,
)

SPACE = space.load()
COMPILER = Compiler("nvrtc", (13, 5), "13.5.37", frozenset([75]))
SMALL, OTHER = Sgemm.parse("32x32x16"), Sgemm.parse("48x32x2048", layout="tn")
FOUND = SPACE.presets["smallest"].but(block_k=16)
NS = {"best": 2e6, "default": 3e6, "vendor": 2.5e6}

Make = Callable[[Problem, Config], Binary | Failure]


def binary(problem: Problem, ns: float, fault: str = "") -> Binary:
    spec = Spec(problem=problem, ns=ns, fault=fault, threads_per_block=1024)
    return Binary(
        arch=75, compiler=COMPILER.label, cubin=spec.cubin, registers=32, static_shared_bytes=0,
        spill_bytes=0, stack_bytes=0, log="", compile_seconds=0.0,
    )  # fmt: skip


def by_config(problem: Problem, config: Config) -> Binary | Failure:
    return binary(problem, NS["best"] if config == FOUND else NS["default"])


class Fakes:
    """Render, compiler, driver and vendor library of a bench, and what they were asked for."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.make: Make = by_config
        self.vendor_fault = ""
        self.rendered: dict[str, tuple[Problem, Config]] = {}
        self.workers: list[Worker] = []
        patch.setattr(stands.render, "render", self.render)
        patch.setattr(stands.gpu, "choose", lambda door=None: FakeDoor())
        patch.setattr(stands.compile, "find", lambda kind=None: COMPILER)
        patch.setattr(stands, "Pool", lambda compiler, jobs: self)
        patch.setattr(stands, "Worker", self.worker)
        patch.setattr(stands, "vendor_missing", lambda problem: None)
        patch.setattr(stands, "VendorJob", self.vendor)
        self._render = _RENDER

    def render(self, problem: Problem, config: Config, arch: int, *, sm_count: int) -> Variant:
        # Grids are made for the device at hand.
        assert sm_count == FakeDoor().devices()[0].sm_count
        variant = self._render(problem, config, arch, sm_count=sm_count)
        body = f"{variant.body}// {problem.key} {config.json}\n"
        self.rendered[body] = (problem, config)
        return replace(variant, body=body, plan=plan(problem))

    def submit(self, source: str, arch: int, *, timeout_s: float) -> Future[Binary | Failure]:
        future: Future[Binary | Failure] = Future()
        future.set_result(self.make(*self.rendered[source]))
        return future

    def worker(self, device: Any, door: object, seed: int, on_wait: Any) -> Worker:
        made = Worker(device, door=FakeDoor, probe_cubin=PROBE, seed=seed, on_wait=on_wait)
        self.workers.append(made)
        return made

    def vendor(self, problem: Problem, cold: bool) -> Job:
        cubin = binary(problem, NS["vendor"], self.vendor_fault).cubin
        return Job(problem=problem, plan=plan(problem), cubin=cubin, stage=Stage.confirm)

    def __enter__(self) -> Fakes:
        return self

    def __exit__(self, *_: object) -> None:
        pass


_RENDER = render.render


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fakes:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return Fakes(monkeypatch)


@pytest.fixture
def db(tmp_path: Path) -> str:
    """A store that knows the best config of `SMALL`."""
    place = tmp_path / "r.db"
    with Store.open(place) as store:
        run_id = store.begin_run(SMALL, DEVICE, compiler=COMPILER.label)
        row = VariantRow(
            config=FOUND, arch=75, template_sha256=templates.sha256("sgemm"), source_sha256="s",
            compiler=COMPILER.label, registers=32, shared_bytes=1024, cubin_sha256="c",
        )  # fmt: skip
        store.confirm(run_id, [store.record(run_id, row, timed(2e6))])
        store.end_run(run_id, "finished")
    return str(place)


def run(*args: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["bench", *args])
    assert result.exit_code == code, result.output
    return result


def squeezed(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


# *** a suite ***


@pytest.fixture
def suite_file(tmp_path: Path) -> str:
    file = tmp_path / "suite.toml"
    file.write_text(
        '[[shape]]\nclass = "square"\nmnk = [[32, 32, 16]]\n'
        '[[shape]]\nclass = "layouts"\nlayouts = ["nn"]\nmnk = [[32, 32, 16]]\n'
        '[[shape]]\nclass = "layouts"\nlayouts = ["tn"]\nmnk = [[48, 32, 2048]]\n'
    )
    return str(file)


def test_a_suite_from_look_up_to_summary(fakes: Fakes, db: str, suite_file: str) -> None:
    result = run("--shapes", suite_file, "--db", db, "--rounds", "2", "--presets", "seed-v3.2")
    headings, _, first, second = squeezed(result.stdout)
    assert headings == (
        "problem class time TFLOP/s % of peak GB/s % of bandwidth vendor x vendor x default "
        "known by"
    )
    # The config of the store; the default and the preset that cannot serve 32 rows.
    assert first == (
        "sgemm/32x32x16/nn square,layouts 2 ms 0.00 0.0 0 0.0 2.5 ms 1.250 1.500 exact"
    )
    assert second.startswith("sgemm/48x32x2048/tn layouts 3 ms")
    assert second.endswith("0.833 1.000 arch default")
    lines = squeezed(result.stderr)
    assert "sgemm/32x32x16/nn: 2 ms, 0.00 TFLOP/s, 1.250 x vendor" in lines
    at = lines.index("class problems failed x vendor ahead least of")
    assert lines[at + 2 : at + 5] == [
        "square 1 0 1.250 100% 1.250 sgemm/32x32x16/nn",
        "layouts 2 0 1.021 50% 0.833 sgemm/48x32x2048/tn",
        "all 2 0 1.021 50% 0.833 sgemm/48x32x2048/tn",
    ]
    refused = [line for line in lines if line.startswith("sgemm/32x32x16/nn: seed-v3.2: infeas")]
    assert len(refused) == 1 and "at least half of a tile of 128 rows lies outside C" in refused[0]


def test_each_problem_is_timed_in_one_request(fakes: Fakes, db: str, suite_file: str) -> None:
    asked: list[list[str]] = []

    class Watched(Worker):
        def confirm(self, jobs: Sequence[Any], **options: Any) -> list[Measurement]:
            asked.append([job.problem.key for job in jobs])
            assert options == {"rounds": 3, "seed": 5}
            return super().confirm(jobs, **options)

    fakes.worker = lambda device, door, seed, on_wait: Watched(  # type: ignore[method-assign]
        device, door=FakeDoor, probe_cubin=PROBE, seed=seed
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stands, "Worker", fakes.worker)
        run("--shapes", suite_file, "--db", db, "--rounds", "3", "--seed", "5", "-q")
    # Of the other problem nothing near is known: its best is the default.
    assert asked == [["sgemm/32x32x16/nn"] * 3, ["sgemm/48x32x2048/tn"] * 2]


def test_json_has_everything_with_its_origin(
    fakes: Fakes, db: str, suite_file: str, tmp_path: Path
) -> None:
    out = tmp_path / "suite.json"
    result = run(
        "--shapes", suite_file, "--db", db, "--rounds", "2", "--json", "--out", str(out),
        "--commit", "abc123", "--warm",
    )  # fmt: skip
    found = json.loads(result.stdout)
    assert json.loads(out.read_text()) == found
    origin = found["provenance"]
    assert (origin["device"], origin["arch"], origin["commit"]) == ("Tesla T4", 75, "abc123")
    assert (origin["compiler"], origin["door"]) == (COMPILER.label, "fake")
    assert found["settings"]["rounds"] == 2 and found["settings"]["cold"] is False
    row = found["rows"][0]
    assert set(report.COLUMNS) | {"entries"} == set(row)
    assert row["config_json"] == FOUND.json and row["match"] == "exact"
    assert row["median_ns"] == 2e6 and row["ratio"] == pytest.approx(1.25)
    assert row["checks"].startswith("exact, guards, inputs, fp64 of ")
    assert "after timing" in row["checks"]
    assert row["gbs"] == pytest.approx(SMALL.bytes_min / 2e6)
    assert row["bound"] == "memory"
    assert row["percent_of_bandwidth"] == pytest.approx(100 * row["gbs"] / DEVICE.bandwidth_gbs)
    names = [name for entry in row["entries"] for name in entry["names"]]
    assert sorted(names) == ["best", "default", "vendor"]
    assert [each["name"] for each in found["summary"]] == ["square", "layouts", "all"]


def test_csv_has_a_row_a_problem(fakes: Fakes, db: str, suite_file: str) -> None:
    result = run("--shapes", suite_file, "--db", db, "--rounds", "2", "--csv")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert tuple(rows[0]) == report.COLUMNS
    assert [row["class"] for row in rows] == ["square,layouts", "layouts"]


def test_without_the_vendor_nothing_is_compared(fakes: Fakes, db: str) -> None:
    result = run("--shape", "32x32x16", "--db", db, "--vendor", "none", "--rounds", "1")
    assert "vendor" not in result.stdout
    assert squeezed(result.stderr)[-1] == "all 1 0 - - - -"


def test_a_vendor_that_is_missing_is_said_once(
    fakes: Fakes, db: str, suite_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stands, "vendor_missing", lambda problem: "cuBLAS is not timed: planted")
    result = run("--shapes", suite_file, "--db", db, "--rounds", "1")
    assert result.stderr.count("cuBLAS is not timed: planted") == 1


@pytest.mark.parametrize(
    ("fault", "outcome"), [("half k", "wrong_result"), ("illegal", "crash"), ("load", "launch")]
)
def test_a_kernel_that_fails_is_a_line_with_its_reason(
    fakes: Fakes, db: str, suite_file: str, fault: str, outcome: str
) -> None:
    def make(problem: Problem, config: Config) -> Binary | Failure:
        return binary(problem, 1e6, fault if problem == SMALL and config == FOUND else "")

    fakes.make = make
    result = run("--shapes", suite_file, "--db", db, "--rounds", "1", code=1)
    first = squeezed(result.stdout)[2]
    assert first == "sgemm/32x32x16/nn square,layouts - - - - - 2.5 ms - - exact"
    (error,) = [line for line in result.stderr.splitlines() if line.startswith("Error: sgemm")]
    assert error.startswith(f"Error: sgemm/32x32x16/nn: best: {outcome}")
    assert "all 2 1 " in squeezed(result.stderr)[-2]


def test_a_vendor_that_fails_is_said_and_costs_no_time_of_ours(fakes: Fakes, db: str) -> None:
    fakes.vendor_fault = "half rows"
    result = run("--shape", "32x32x16", "--db", db, "--rounds", "1")
    assert "Error: sgemm/32x32x16/nn: vendor: wrong_result: exact check" in result.stderr
    assert " 2 ms " in squeezed(result.stdout)[2]


def test_what_does_not_compile_is_a_line(fakes: Fakes, db: str) -> None:
    fakes.make = lambda problem, config: Failure(
        outcome=Outcome.compile_error, message="error: planted"
    )
    result = run("--shape", "32x32x16", "--db", db, "--rounds", "1", code=1)
    assert "sgemm/32x32x16/nn: best: compile_error: error: planted" in result.stderr


def test_a_problem_that_does_not_fit_keeps_no_other_back(fakes: Fakes, db: str) -> None:
    shapes = ("--shape", "100000x100000x100000", "--shape", "32x32x16")
    result = run(*shapes, "--db", db, "--rounds", "1", code=1)
    assert "Error: sgemm/100000x100000x100000/nn: 100000x100000x100000 needs 24" in result.stderr
    huge, small = squeezed(result.stdout)[2:]
    assert huge.split()[1:4] == ["-", "-", "-"]
    assert " 2 ms " in small


def test_power_is_a_column_when_it_is_asked_for(
    fakes: Fakes, db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def power(self: Worker, job: Job, seconds: float) -> Power:
        asked.append(seconds)
        return Power(power_w=400.0, run_ns=20_000.0, busy=1.0, source="energy")

    monkeypatch.setattr(Worker, "power", power)
    arguments = ("--shape", "32x32x16", "--db", db, "--rounds", "1")
    result = run(*arguments, "--power", "2s")
    assert asked == [2.0] * 3
    assert "W vendor W" in squeezed(result.stdout)[0]
    (row,) = json.loads(run(*arguments, "--power", "2s", "--json").stdout)["rows"]
    assert row["gflops_per_watt"] == pytest.approx(SMALL.flops / 20_000 / 400)
    assert row["vendor_power_w"] == 400.0
    asked.clear()
    assert "GFLOP/s/W" not in run(*arguments).stdout
    assert asked == []


def test_an_interrupt_keeps_what_was_measured(
    fakes: Fakes, db: str, suite_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = Stand.time

    def interrupted(self: Stand, problem: Problem, heat: Any) -> list[Entry]:
        if problem == OTHER:
            raise KeyboardInterrupt
        return time(self, problem, heat)

    monkeypatch.setattr(Stand, "time", interrupted)
    out = tmp_path / "suite.json"
    plot = tmp_path / "suite.svg"
    result = run(
        "--shapes", suite_file, "--db", db, "--rounds", "1", "--out", str(out),
        "--plot", str(plot), code=130,
    )  # fmt: skip
    assert result.stderr.endswith("interrupted after 1 of 2 shapes\n")
    assert len(squeezed(result.stdout)) == 3
    found = json.loads(out.read_text())
    assert [row["problem"] for row in found["rows"]] == ["sgemm/32x32x16/nn"]
    assert plot.read_text().startswith("<?xml")


# *** summaries ***


def row(size: int, classes: tuple[str, ...], ours: float | None, vendor: float | None) -> Row:
    def entry(name: str, ns: float | None) -> Entry:
        outcome = Outcome.ok if ns else Outcome.crash
        return Entry(
            names=(name,),
            config=None,
            measurement=Measurement(outcome=outcome, stage=Stage.confirm, median_ns=ns),
        )

    case = Case(problem=Sgemm.parse(f"{size}x8x8"), classes=classes)
    return Row(case=case, entries=[entry(BEST, ours), entry(VENDOR, vendor)])


def test_summaries_count_a_problem_in_each_class_and_once_over_all() -> None:
    rows = [
        row(1, ("a", "b"), 1.0, 2.0),
        row(2, ("a",), 2.0, 1.0),
        row(3, ("b",), None, 1.0),
        row(4, (), 1.0, None),
    ]
    a, b, every = summaries(rows)
    assert (a.name, a.problems, a.failed, a.compared) == ("a", 2, 0, 2)
    assert (a.mean_ratio, a.share_ahead, a.worst_ratio) == (pytest.approx(1.0), 0.5, 0.5)
    assert a.worst == "sgemm/2x8x8/nn"
    assert (b.problems, b.failed, b.compared, b.mean_ratio) == (2, 1, 1, pytest.approx(2.0))
    assert (every.name, every.problems, every.failed, every.compared) == ("all", 4, 1, 2)


def test_cases_of_a_list_are_its_problems_each_once() -> None:
    listed = [(SMALL, "square"), (OTHER, ""), (SMALL, "layouts"), (SMALL, "square")]
    assert Case.of(listed) == [
        Case(problem=SMALL, classes=("square", "layouts")),
        Case(problem=OTHER),
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"match": Match.exact, "problem": "sgemm/8x8x8/nn"}, "exact"),
        ({"match": Match.near_shape, "problem": "sgemm/8x8x9/nn"}, "near shape, sgemm/8x8x9/nn"),
        ({"match": Match.exact, "stale": True}, "exact, stale"),
        ({"match": Match.arch_default}, "arch default"),
    ],
)
def test_the_table_says_how_a_config_is_known(changes: dict[str, Any], words: str) -> None:
    known = replace(row(8, (), 2e6, None), answer=Answer(reason="", **changes))
    assert report.suite([known], DEVICE).columns[-1].header == "known by"
    (cell,) = report.suite([known], DEVICE).columns[-1].cells
    assert str(cell) == words


# *** the ladder ***


def test_the_ladder_is_climbed_in_one_request(fakes: Fakes, db: str, tmp_path: Path) -> None:
    times = {name: 1e8 / (2 + place) for place, name in enumerate(SPACE.ladder)}

    def make(problem: Problem, config: Config) -> Binary | Failure:
        # Fitted to few tiles, so in smaller groups.
        names = (
            name for name in times if SPACE.presets[name].but(group_m=1) == config.but(group_m=1)
        )
        return binary(problem, times[next(names)])

    fakes.make = make
    out, plot = tmp_path / "ladder.json", tmp_path / "ladder.png"
    arguments = ("--ladder", "--shape", "256x256x16", "--rounds", "1", "--db", f"{db}.none")
    result = run(*arguments, "--out", str(out), "--plot", str(plot))
    lines = squeezed(result.stdout)
    assert lines[0] == "step changes TFLOP/s gain % of vendor limited by why"
    assert [line.split()[0] for line in lines[2:]] == [*SPACE.ladder, "vendor"]
    second = lines[3]
    assert second.startswith("shared-tile block_k 8 to 32, block_m 16 to 32, copy_a direct to ")
    assert " 1.500 " in second and second.endswith(SPACE.whys["shared-tile"])
    found = json.loads(out.read_text())
    assert [step["gain"] for step in found["steps"]][1] == pytest.approx(1.5)
    assert all(step["limiter"] for step in found["steps"] if step["outcome"] == "ok")
    assert found["vendor"]["median_ns"] == NS["vendor"], found["vendor"]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_the_best_config_of_the_store_is_the_last_step(fakes: Fakes, db: str) -> None:
    arguments = ("--ladder", "--shape", "32x32x16", "--rounds", "1", "--db", db, "--csv")
    result = run(*arguments)
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert tuple(rows[0]) == report.STEP_COLUMNS
    assert rows[-1]["step"] == "best" and rows[-1]["why"] == "found by search (exact)"
    # Tiles of 128 rows cannot serve 32: a line that says so, and no gain to speak of.
    seeds = [row for row in rows if row["step"].startswith("seed-")]
    assert len(seeds) == 3 and {row["outcome"] for row in seeds} == {"infeasible"}
    assert "at least half of a tile" in seeds[0]["message"] and seeds[0]["gain"] == ""
    assert "\nsgemm/32x32x16/nn: seed-v3: infeasible: " in f"\n{result.stderr}"


@pytest.mark.parametrize("fault", ["half rows", "illegal"])
def test_a_wrong_step_is_an_error_and_the_others_stand(fakes: Fakes, fault: str) -> None:
    def make(problem: Problem, config: Config) -> Binary | Failure:
        is_seed = config["pad_a"] and config["copy_a"] == "registers"
        return binary(problem, 1e7, fault if is_seed else "")

    fakes.make = make
    arguments = ("--ladder", "--shape", "256x256x16", "--rounds", "1", "--vendor", "none")
    result = run(*arguments, "--db", "none.db", "--out", "ladder.json", code=1)
    steps = json.loads(Path("ladder.json").read_text())["steps"]
    gains = {step["step"]: step["gain"] for step in steps}
    assert gains["seed-v3.2"] is None
    assert gains["seed-v3.1"] == gains["medium"] == pytest.approx(1.0)
    assert "Error: sgemm/256x256x16/nn: seed-v3.2: " in result.stderr


# *** what is refused ***


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shapes", "missing.toml"], "cannot read the shapes in missing.toml: No such file"),
        (["--shape", "0x1x1"], "m = 0 is out of range"),
        (["--shape", "8x8x8", "--presets", "nope"], "'nope' is not a preset of sgemm; possible"),
        (["--ladder", "--shape", "8x8x8", "--shape", "9x9x9"], "--ladder takes one shape, not 2"),
        (["--ladder", "--presets", "seed-v3"], "--ladder takes one shape"),
        (["--rounds", "0"], "0 is not in the range x>=1"),
        (["--power", "soon"], "'soon' is not a duration"),
        (["--vendor", "mkl"], "'mkl' is not one of 'cublas', 'none'"),
        (["--plot", "x.pdf"], "x.pdf has no suffix of a plot; possible are .svg, .png"),
        (["--plot", "no/x.svg"], "cannot write no/x.svg: there is no folder"),
        (["--out", "no/x.json"], "cannot write no/x.json: there is no folder"),
    ],
)
def test_requests_that_make_no_sense(fakes: Fakes, arguments: list[str], message: str) -> None:
    result = run(*arguments, code=2)
    assert result.stdout == ""
    assert message in result.stderr
    assert not any(worker.starts for worker in fakes.workers), "nothing was measured"


def test_a_class_must_be_a_text(fakes: Fakes, tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("[[shape]]\nclass = 3\nsizes = [8]\n")
    assert "its class must be a text, got 3" in run("--shapes", str(file), code=2).stderr


def test_without_a_gpu_it_says_what_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str | None = None) -> object:
        raise DeviceError("there is no NVIDIA driver")

    monkeypatch.setattr(stands.gpu, "choose", none)
    result = run("--shape", "64x64x64", code=4)
    assert result.stdout == ""
    assert "there is no NVIDIA driver; nothing is timed without a GPU" in result.stderr
    assert "autotune explain" in result.stderr


def test_another_architecture_than_the_one_here_is_refused(fakes: Fakes) -> None:
    result = run("--arch", "90", "--shape", "64x64x64", code=4)
    assert "no device has sm_90; present: 0: Tesla T4" in result.stderr


def test_the_stand_gives_the_device_back(fakes: Fakes, db: str) -> None:
    wishes = Wishes(rounds=1)

    def names() -> Iterator[str]:
        with Stand(wishes, on_wait=lambda owner: None) as stand:
            for found in race([Case(problem=problems.parse("32x32x16"))], stand, store=db):
                yield found.case.problem.shape

    assert list(names()) == ["32x32x16"]
    assert list(names()) == ["32x32x16"], "the lock was released"
