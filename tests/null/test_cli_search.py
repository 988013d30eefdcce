"""What `autotune search` asks for, shows and returns; the search itself is a stand-in here."""

import csv
import io
import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from store_helpers import cube, live

from autotune import archs, space
from autotune.cli import main, options, progress
from autotune.cli.livetable import MOST_LINES, LiveTable
from autotune.report import search as report
from autotune.search import (
    EFFORTS,
    SAMPLERS,
    Budget,
    Confirming,
    Finished,
    Planned,
    Report,
    Started,
    Tried,
    Waiting,
    remaining,
)
from autotune.types import Evidence, Measurement, Outcome, Problem, Stage

BATCH = import_module("autotune.search")
COMMAND = import_module("autotune.cli.search")
SPACE = space.load()
LARGE = SPACE.presets["large"]
T4 = archs.get(75).typical


def finished(problem: Problem, **changes: Any) -> Report:
    """2048 cubed in 3.2 ms: 5.37 of a T4's 8.14 TFLOP/s."""
    values: dict[str, Any] = {
        "problem": problem,
        "device": live(),
        "evidence": Evidence.measured,
        "status": "finished",
        "best": LARGE.but(block_k=8),
        "best_ns": 3.2e6,
        "vendor_ns": 3.04e6,
        "ties": (LARGE,),
        "counts": {Outcome.ok: 20, Outcome.compile_error: 3, Outcome.wrong_result: 1},
        "messages": {
            Outcome.compile_error: "\nptxas fatal: out of registers\nmore",
            Outcome.wrong_result: "C[3, 5] is 7 and must be 8",
        },
        "seconds": 84.2,
        "interval_ns": (3.184e6, 3.232e6),
        "busy_share": 0.81,
        "trials_per_s": 11.5,
        "run_id": 17,
        "notes": ["the SM clock moved"],
        **changes,
    }
    return Report(**values)


class StandIn:
    """Takes the place of the search, and keeps what it was asked for."""

    def __init__(self) -> None:
        self.problems: Sequence[Problem] = ()
        self.settings: dict[str, Any] = {}
        self.changes: dict[str, dict[str, Any]] = {}
        self.events: list[Any] = []
        self.error: BaseException | None = None

    def __call__(self, problems: Sequence[Problem], **settings: Any) -> list[Report]:
        self.problems, self.settings = problems, settings
        for event in self.events:
            settings["listener"](event)
        if self.error is not None:
            raise self.error
        return [finished(each, **self.changes.get(each.shape, {})) for each in problems]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn()
    monkeypatch.setattr(BATCH, "search", made)
    return made


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["search", *args])


def test_choices_are_those_of_the_library() -> None:
    from autotune import gpu

    assert tuple(EFFORTS) == COMMAND.EFFORTS
    assert tuple(SAMPLERS) == COMMAND.SAMPLERS
    assert gpu.DOORS == options.DOORS


def test_the_default_is_a_batch_over_four_cubes(stand_in: StandIn) -> None:
    assert run("--arch", "75").exit_code == 0
    assert [problem.key for problem in stand_in.problems] == [
        f"sgemm/{size}x{size}x{size}/nn" for size in (512, 1024, 2048, 4096)
    ]
    assert stand_in.settings["arch"] == 75
    assert stand_in.settings["effort_name"] == "normal"
    assert stand_in.settings["budget"] == Budget()


def test_every_option_reaches_the_search(stand_in: StandIn, tmp_path: Path) -> None:
    arguments = (
        "--arch sm_80 --shape 64x32x16 --shape 64x32x16 --trials 7 --budget 1.5m --effort quick "
        "--seed 3 --sampler gp --device GPU-1 --warm --compiler nvcc --door cuda-bindings --jobs 2 "
        "--patience 9 --no-seed "
        f"--allow-nondeterministic --layout tn --beta --batch 4 --db {tmp_path}/r.db -q"
    )
    assert run(*arguments.split()).exit_code == 0
    assert [problem.key for problem in stand_in.problems] == ["sgemm/64x32x16/tn/batch=4/beta"]
    settings = stand_in.settings
    listener = settings.pop("listener")
    assert isinstance(listener, progress.Listener)
    assert settings == {
        "arch": 80,
        "device_name": "GPU-1",
        "budget": Budget(trials=7, seconds=90.0, patience=9),
        "total_seconds": None,
        "effort_name": "quick",
        "seeded": False,
        "seed": 3,
        "sampler": "gp",
        "store": f"{tmp_path}/r.db",
        "compiler": "nvcc",
        "door": "cuda-bindings",
        "nondeterministic": True,
        "cold": False,
        "family_space": None,
        "jobs": 2,
        "argv": ["autotune", "search", *arguments.split()],
    }


def test_time_for_all_shapes_reaches_the_search(stand_in: StandIn) -> None:
    assert run("--arch", "75", "--total-budget", "9m").exit_code == 0
    assert stand_in.settings["total_seconds"] == 540.0
    assert stand_in.settings["budget"] == Budget()


def test_native_is_the_default_architecture(stand_in: StandIn) -> None:
    assert run("--shape", "8x8x8").exit_code == 0
    assert (stand_in.settings["arch"], stand_in.settings["cold"]) == (None, True)
    assert stand_in.settings["seeded"] is True


def test_shapes_from_lines(stand_in: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "shapes.txt"
    file.write_text("# layers\n64x32x16\n\n 1e3x8x8  # wide\n")
    assert run("--arch", "75", "--shape", "8x8x8", "--shapes", str(file)).exit_code == 0
    assert [problem.shape for problem in stand_in.problems] == ["8x8x8", "64x32x16", "1000x8x8"]


def test_shapes_from_toml(stand_in: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "shapes.toml"
    file.write_text(
        '[[shape]]\nclass = "square"\nsizes = [16, 32]\ntflops = { 16 = 7.1 }\n'
        '[[shape]]\nlayouts = ["nn", "tt"]\nmnk = [[8, 16, 24]]\n'
        "[[shape]]\nbatch = 64\nmnk = [[4, 4, 4]]\n"
    )
    assert run("--arch", "75", "--shapes", str(file)).exit_code == 0
    assert [problem.key for problem in stand_in.problems] == [
        "sgemm/16x16x16/nn",
        "sgemm/32x32x32/nn",
        "sgemm/8x16x24/nn",
        "sgemm/8x16x24/tt",
        "sgemm/4x4x4/nn/batch=64",
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.txt", "# nothing\n", "lists no shape; write one a line"),
        ("s.txt", "8x8x8\n8x0x8\n", "line 2: n = 0 is out of range"),
        ("s.txt", "8x8\n", "line 1: '8x8' is not a shape"),
        ("s.toml", "[[shape]\n", "is not TOML"),
        ("s.toml", "[shape]\nsizes = [1]\n", "shapes are [[shape]] tables"),
        ("s.toml", "", "lists no shape"),
        ("s.toml", "[[shape]]\nsize = [4]\n", "shape 1: it needs a list named sizes or mnk"),
        ("s.toml", '[[shape]]\nmnk = [["8", 8, 8]]\n', "['8', 8, 8] is not a list of whole"),
        ("s.toml", "[[shape]]\nmnk = [[8, 8]]\n", "shape 1: '8x8' is not a shape"),
        ("s.toml", '[[shape]]\nlayouts = ["xx"]\nsizes = [8]\n', "layout 'xx' is not one of"),
    ],
)
def test_files_of_shapes_that_are_wrong(
    stand_in: StandIn, tmp_path: Path, name: str, text: str, message: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    result = run("--arch", "75", "--shapes", str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Error: {file}" in result.stderr
    assert message in result.stderr
    assert not stand_in.problems


def test_the_table_and_the_summary(stand_in: StandIn) -> None:
    result = run("--arch", "75", "--shape", "2048x2048x2048")
    assert result.exit_code == 0
    headings, rule, row = result.stdout.splitlines()
    assert headings.split("  ")[0] == "problem"
    assert set(rule) == {"─"}
    assert " ".join(row.split()) == (
        "sgemm/2048x2048x2048/nn 3.2 ms (-0.5 +1.0 %) 5.37 65.9 95.0 1 measured large, block_k 8"
    )
    lines = [" ".join(line.split()) for line in result.stderr.splitlines()]
    assert lines[-5] == "sgemm/2048x2048x2048/nn 24 20 3 1 1 min 24 s"
    assert "problem tried ok compile error wrong result took" in lines
    assert lines[-4:] == [
        "sgemm/2048x2048x2048/nn, compile error: ptxas fatal: out of registers",
        "sgemm/2048x2048x2048/nn, wrong result: C[3, 5] is 7 and must be 8",
        "sgemm/2048x2048x2048/nn: 11.5 verified variants/s, GPU process busy 81 % after the first "
        "5 s (run 17)",
        "sgemm/2048x2048x2048/nn: the SM clock moved",
    ]


def test_verbose_names_the_ties(stand_in: StandIn) -> None:
    result = run("--arch", "75", "--shape", "64x64x64", "-v")
    assert result.stderr.endswith("sgemm/64x64x64/nn, ties with the best: large\n")


def test_quiet_leaves_the_table_alone(stand_in: StandIn) -> None:
    result = run("--arch", "75", "--shape", "64x64x64", "-q")
    assert result.stderr == ""
    assert len(result.stdout.splitlines()) == 3


def test_json_is_one_value_with_the_names_of_the_store(stand_in: StandIn) -> None:
    result = run("--arch", "75", "--shape", "2048x2048x2048", "--json")
    (row,) = json.loads(result.stdout)
    assert tuple(row) == report.COLUMNS
    assert row["config_json"] == LARGE.but(block_k=8).json
    expected = {
        "shape": "2048x2048x2048", "arch": 75, "device": "Tesla T4", "evidence": "measured",
        "median_ns": 3.2e6, "predicted_ns": None, "vendor_ns": 3.04e6, "ties": 1, "tried": 24,
        "ok": 20, "compile_error": 3, "crash": 0, "status": "finished", "low_ns": 3.184e6,
        "high_ns": 3.232e6, "busy_share": 0.81, "trials_per_s": 11.5, "run_id": 17,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    assert row["tflops"] == pytest.approx(2 * 2048**3 / 3.2e6 / 1e3)
    assert row["percent_of_vendor"] == pytest.approx(95)


def test_csv_has_a_header_and_a_row_a_shape(stand_in: StandIn) -> None:
    result = run("--arch", "75", "--csv")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert tuple(rows[0]) == report.COLUMNS
    assert [row["shape"] for row in rows][:2] == ["512x512x512", "1024x1024x1024"]


def test_a_shape_that_fails_costs_the_exit_code_and_is_named_last(stand_in: StandIn) -> None:
    stand_in.changes["64x64x64"] = {
        "status": "failed", "best": None, "best_ns": None, "vendor_ns": None, "ties": (),
        "interval_ns": None, "trials_per_s": None, "notes": (),
        "counts": {}, "messages": {}, "message": "needs 120 GB for its matrices; Tesla T4 has 17",
    }  # fmt: skip
    result = run("--arch", "75", "--shape", "64x64x64", "--shape", "128x128x128")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == (
        "Error: sgemm/64x64x64/nn: needs 120 GB for its matrices; Tesla T4 has 17"
    )
    failed, worked = result.stdout.splitlines()[2:]
    assert failed.split() == ["sgemm/64x64x64/nn", "-", "-", "-", "-", "-", "-", "failed"]
    assert worked.startswith("sgemm/128x128x128/nn")


def test_a_plan_does_nothing_but_tell(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = tmp_path / "r.db"
    arguments = ("--arch", "75", "--shape", "256x256x256", "--plan", "--db", str(db))
    result = run(*arguments)
    assert (result.exit_code, stand_in.problems) == (0, ())
    assert not db.exists()
    line = " ".join(result.stdout.splitlines()[2].split())
    assert line.startswith("sgemm/256x256x256/nn missing - 0 48 ")
    assert line.endswith("nothing is stored")
    assert result.stderr.startswith("1 missing; about 1 min; nothing was done")
    (row,) = json.loads(run(*arguments, "--json", "--total-budget", "9m").stdout)
    assert (row["state"], row["trials"], row["wanted"]) == ("missing", 0, 48)
    assert "about 9 min for all" in run(*arguments, "--total-budget", "9m").stderr


def test_predictions_say_that_nothing_was_timed(stand_in: StandIn) -> None:
    stand_in.events = [planned(device=T4, door="", evidence=Evidence.predicted, note="no driver")]
    stand_in.changes["64x64x64"] = {
        "device": T4, "evidence": Evidence.predicted, "vendor_ns": None, "interval_ns": None,
    }  # fmt: skip
    result = run("--arch", "75", "--shape", "64x64x64")
    assert result.exit_code == 0
    assert "Nothing will be timed: no driver\n" in result.stderr
    assert result.stderr.endswith(
        "Nothing was timed: no GPU of sm_75 is here. The times above are predictions for a Tesla "
        "T4. On a machine that has the card, run:\n"
        "  autotune search --arch 75 --shape 64x64x64\n"
    )
    assert "predicted" in result.stdout
    (row,) = json.loads(run("--arch", "75", "--shape", "64x64x64", "--json").stdout)
    assert (row["median_ns"], row["predicted_ns"]) == (None, 3.2e6)


def test_an_interrupted_search_says_how_to_go_on(stand_in: StandIn) -> None:
    stand_in.error = KeyboardInterrupt()
    result = run("--arch", "75", "--shape", "64x64x64", "--db", "a b.db")
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == (
        "interrupted; every finished trial is stored. To go on:\n"
        "  autotune search --arch 75 --shape 64x64x64 --db 'a b.db'\n"
    )


# *** progress ***


def planned(**changes: Any) -> Planned:
    values: dict[str, Any] = {
        "device": live(bus_id="0000:3b:00.0"), "compiler": "nvrtc 13.5", "door": "pycuda",
        "evidence": Evidence.measured, "problems": (cube(2048),), "store": "/data/results.db",
        **changes,
    }  # fmt: skip
    return Planned(**values)


def tried(number: int, **changes: Any) -> Tried:
    values: dict[str, Any] = {
        "problem": cube(2048), "number": number, "total": 200, "config": LARGE,
        "measurement": Measurement(outcome=Outcome.ok, stage=Stage.search, median_ns=4e6),
        "predicted_ns": None, "best_ns": 3.2e6, "elapsed_s": 2.0 * number,
        **changes,
    }  # fmt: skip
    return Tried(**values)


def story() -> list[Any]:
    return [
        planned(),
        Waiting(owner="waiting for Tesla T4: process 7 is measuring on it"),
        Started(problem=cube(2048), valid=19425, budget=Budget(trials=200), resumed_trials=5),
        *(tried(number) for number in range(1, 41)),
        Confirming(problem=cube(2048), candidates=8),
        Finished(report=finished(cube(2048))),
    ]


def test_a_line_for_every_so_many_trials(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.Listener(verbosity=0, interactive=False) as listener:
        for event in story():
            listener(event)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "Tesla T4 (sm_75, device 0, bus 0000:3b:00.0, GPU-1), nvrtc 13.5, timed through pycuda",
        "store: /data/results.db",
        "waiting for Tesla T4: process 7 is measuring on it",
        "sgemm/2048x2048x2048/nn: 19,425 valid configs; budget: 200 trials; goes on after 5 trials "
        "of earlier runs",
        "2048x2048x2048: trial 20 of 200, best 5.37 TFLOP/s (66 % of peak), 40 s, 6 min 0 s left "
        "at most",
        "2048x2048x2048: trial 40 of 200, best 5.37 TFLOP/s (66 % of peak), 1 min 20 s, 5 min 20 s "
        "left at most",
        "2048x2048x2048: timing 8 finalists in turns",
        "sgemm/2048x2048x2048/nn: finished, best 5.37 TFLOP/s, 95.0 % of vendor, 1 min 24 s",
    ]


def test_quiet_progress_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.Listener(verbosity=-1, interactive=True) as listener:
        for event in story():
            listener(event)
    assert capsys.readouterr() == ("", "")


def test_verbose_progress_tells_every_failure(capsys: pytest.CaptureFixture[str]) -> None:
    failure = Measurement(outcome=Outcome.crash, stage=Stage.search, message="[x] illegal\naddress")
    with progress.Listener(verbosity=1, interactive=False) as listener:
        listener(tried(3, measurement=failure, best_ns=None, config=LARGE.but(block_k=8)))
    assert capsys.readouterr().err == "trial 3: crash: [x] illegal (large, block_k 8)\n"


def test_the_live_table_shows_each_problem_and_the_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rich.console import Console

    now = 0.0
    watched = LiveTable(clock=lambda: now)

    def lines() -> list[str]:
        screen = Console(file=io.StringIO(), width=80, color_system=None)
        screen.print(watched.render())
        assert isinstance(screen.file, io.StringIO)
        return [" ".join(line.split()) for line in screen.file.getvalue().splitlines()]

    told = story()
    told[0] = planned(problems=(cube(2048), cube(512)))
    for event in told[:-2]:
        watched.take(event)
    now = 90.0
    assert lines() == [
        "problem state trials TFLOP/s % peak % vendor left",
        lines()[1],
        "2048x2048x2048/nn search 40/200 5.37 65.9 - 5 min 20 s",
        "512x512x512/nn waits 0 - - - -",
        "0 of 2 problems done, 1 min 30 s",
    ]
    watched.take(told[-2])
    assert lines()[2].startswith("2048x2048x2048/nn finals 40/200")
    watched.take(told[-1])
    assert lines()[2] == "2048x2048x2048/nn finished 40/200 5.37 65.9 95.0 -"
    assert lines()[-1] == "1 of 2 problems done, 1 min 30 s, about 1 min 30 s left"
    watched.take(planned(seconds=600.0))
    now = 100.0
    assert lines()[-1] == "0 of 1 problems done, 10 s, about 9 min 50 s left"


def test_the_live_table_stays_short() -> None:
    watched = LiveTable(clock=lambda: 0.0)
    problems = tuple(cube(64 * size) for size in range(1, 41))
    watched.take(planned(problems=problems))
    for problem in problems:
        watched.take(tried(1, problem=problem))
    from rich.console import Console

    screen = Console(file=io.StringIO(), width=120)
    screen.print(watched.render())
    assert isinstance(screen.file, io.StringIO)
    assert len(screen.file.getvalue().splitlines()) == MOST_LINES + 3


def test_a_terminal_gets_the_table_and_leaves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    from autotune.cli import app

    written = io.StringIO()
    screen = Console(file=written, force_terminal=True, width=120, color_system=None)
    monkeypatch.setattr(app, "stderr", lambda: screen)
    with progress.Listener(verbosity=0, interactive=True) as listener:
        for event in story():
            listener(event)
    text = written.getvalue()
    assert "% vendor" in text and "1 of 1 problems done" in text
    assert "trial 20 of 200" not in text, "lines are for logs"
    assert "finished, best 5.37 TFLOP/s" in text


def test_predicted_rates_are_called_so(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.Listener(verbosity=0, interactive=False) as listener:
        listener(planned(device=T4, evidence=Evidence.predicted))
        listener(tried(20))
    assert "trial 20 of 200, best predicted 5.37 TFLOP/s (66 % of peak)" in capsys.readouterr().err


def test_time_left_is_that_of_the_budget_which_ends_first() -> None:
    event = tried(10, total=100, elapsed_s=20.0)
    assert remaining(event, None) == 180
    assert remaining(event, Budget(trials=100, seconds=60)) == 40
    assert remaining(event, Budget(seconds=10)) == 0
    assert remaining(tried(10, total=None), Budget()) is None
