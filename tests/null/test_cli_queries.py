"""What the commands print that ask and show: for people, as JSON, as CSV."""

import csv
import hashlib
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from store_helpers import COMPILER, cube, failed, live, timed

from autotune import archs, defaults, device, space, views
from autotune.cli import main
from autotune.staleness import Today
from autotune.store import Store, VariantRow
from autotune.types import Config, Device, Outcome

SPACE = space.load()
LARGE = SPACE.presets["large"]


def run(*args: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, args)
    assert result.exit_code == code, result.output
    return result


def squeezed(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler and driver of the rows are those of this machine."""
    here = Today(compiler=COMPILER, driver="580.65")
    monkeypatch.setattr(Today, "here", classmethod(lambda cls: here))


@pytest.fixture
def db(tmp_path: Path) -> str:
    """A store with two shapes on a T4: a best each, and two failures."""
    path = tmp_path / "results.db"
    configs = [LARGE, LARGE.but(group_m=4), LARGE.but(order="columns", group_m=1)]
    with Store.open(path) as store:
        for size in (1024, 2048):
            run_id = store.begin_run(cube(size), live(), compiler=COMPILER)
            rows = [
                VariantRow(config=config, arch=75, template_sha256="t" * 64, compiler=COMPILER,
                           source_sha256=f"{size}{number}", registers=96, shared_bytes=16640,
                           cubin_sha256=f"c{number}")
                for number, config in enumerate(configs)
            ]  # fmt: skip
            ids = [
                store.record(run_id, row, timed(time_ns))
                for row, time_ns in zip(rows[:2], (4e6, 3.2e6), strict=True)
            ]
            store.confirm(run_id, ids)
            if size == 2048:
                for outcome in (Outcome.compile_error, Outcome.crash):
                    message = f"{outcome} [bold]\nall of it"
                    store.record(run_id, rows[2], failed(outcome, message))
            store.end_run(run_id, "finished")
    return str(path)


# *** results ***


def test_best_as_a_table(db: str) -> None:
    lines = squeezed(run("results", "best", "--db", db).stdout)
    assert lines[0] == "problem device time TFLOP/s % of peak ties stale config"
    assert lines[2:] == [
        "sgemm/2048x2048x2048/nn Tesla T4 3.2 ms 5.37 65.9 0 template large, group_m 4",
        "sgemm/1024x1024x1024/nn Tesla T4 3.2 ms 0.67 8.2 0 template large, group_m 4",
    ]


def test_list_is_sorted_by_time_and_failures_come_last(db: str) -> None:
    rows = json.loads(run("results", "list", "--db", db, "--json").stdout)
    assert [row["median_ns"] for row in rows] == [3.2e6, 3.2e6, 4e6, 4e6, None, None]
    assert tuple(rows[0]) == (*views.results.c.keys(), "stale")
    slowest = json.loads(run("results", "list", "--db", db, "--json", "--sort=-median_ns").stdout)
    assert slowest[0]["median_ns"] == 4e6


def test_filters(db: str) -> None:
    def ids(*arguments: str) -> list[int]:
        rows = json.loads(run("results", "list", "--db", db, "--json", *arguments).stdout)
        return [row["id"] for row in rows]

    assert ids("--shape", "1024x1024X1024") == [2, 1]
    assert ids("--outcome", "crash") == [6]
    assert ids("--arch", "7.5", "--device", "t4", "--limit", "1") == [2]
    for arguments in (["--arch", "80"], ["--device", "H200"], ["--shape", "8x8x8"]):
        result = run("results", "list", "--db", db, *arguments, code=3)
        assert (result.stdout, result.stderr) == (
            "",
            "Error: nothing in the results store answers that\n",
        )


def test_nothing_found_is_still_one_json_value_or_a_header(db: str) -> None:
    arguments = ("results", "best", "--db", db, "--arch", "90")
    assert json.loads(run(*arguments, "--json", code=3).stdout) == []
    assert (
        run(*arguments, "--csv", code=3).stdout
        == ",".join([*views.best_config.c.keys(), "stale"]) + "\n"
    )


def test_failures_tell_class_and_message(db: str) -> None:
    lines = squeezed(run("results", "failures", "--db", db).stdout)
    assert lines[2:] == [
        "6 sgemm/2048x2048x2048/nn Tesla T4 crash crash [bold] large, group_m 1, order columns",
        "5 sgemm/2048x2048x2048/nn Tesla T4 compile_error compile_error [bold] "
        "large, group_m 1, order columns",
    ]
    text = run("results", "failures", "--db", db, "--csv", "--outcome", "crash").stdout
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["message"] == "crash [bold]\nall of it"
    assert Config.from_json(row["config_json"]) == LARGE.but(order="columns", group_m=1)


def test_a_table_says_what_it_leaves_out(db: str) -> None:
    result = run("results", "list", "--db", db, "--limit", "2")
    assert len(result.stdout.splitlines()) == 4
    assert result.stderr == "the first 2 rows; --limit 0 shows all\n"
    assert len(run("results", "list", "--db", db, "--limit", "0").stdout.splitlines()) == 8


def test_unknown_columns_are_a_usage_error(db: str) -> None:
    result = run("results", "best", "--db", db, "--sort", "speed", code=2)
    assert "best_config has no column 'speed'; possible are id, kernel, shape" in result.stderr


def test_a_predicted_time_says_so(tmp_path: Path) -> None:
    from autotune.types import Measurement, Stage

    path = tmp_path / "p.db"
    with Store.open(path) as store:
        run_id = store.begin_run(cube(64), archs.get(75).typical, compiler=COMPILER)
        prediction = Measurement(outcome=Outcome.ok, stage=Stage.predict)
        store.record(run_id, VariantRow(config=LARGE, arch=75), prediction, predicted_ns=48584.0)
    line = squeezed(run("results", "list", "--db", str(path)).stdout)[2]
    assert line == ("1 sgemm/64x64x64/nn Tesla T4 predict ok 48.58 us - - template large")


def test_the_vendor_is_named(db: str) -> None:
    with Store.open(db) as store:
        run_id = store.begin_run(cube(4096), live(), compiler=COMPILER)
        store.record(run_id, VariantRow.vendor("cublas", "13.1", 75), timed(5e7))
    lines = squeezed(run("results", "list", "--db", db, "--shape", "4096x4096x4096").stdout)
    assert lines[2] == "7 sgemm/4096x4096x4096/nn Tesla T4 confirm ok 50 ms 2.75 33.8 - cublas"


# *** lookup ***


def test_lookup_prints_config_and_how_it_is_known(db: str) -> None:
    lines = squeezed(run("lookup", "2048x2048x2048", "--arch", "75", "--db", db).stdout)
    facts = dict(line.split(" ", 1) for line in lines)
    assert facts["match"] == "exact"
    assert facts["reason"].startswith("measured for sgemm/2048x2048x2048/nn on Tesla T4 (40 SMs)")
    assert facts["time"] == "3.2 ms"
    assert facts["nearest"] == "preset large, group_m 4"
    assert Config.from_json(facts["config"]) == LARGE.but(group_m=4)


def test_lookup_as_json(db: str) -> None:
    result = run("lookup", "2000x2000x2000", "--arch", "75", "--db", db, "--json", "-q")
    answer = json.loads(result.stdout)
    assert (answer["match"], answer["evidence"]) == ("near_shape", "measured")
    assert answer["problem"] == "sgemm/2048x2048x2048/nn"
    assert answer["config_json"] == LARGE.but(group_m=4).json
    # The rows are of a template that is not the current one.
    assert answer["stale"] is True
    assert result.stderr == ""


def test_strict_lookup_finds_nothing_for_another_shape(db: str) -> None:
    result = run("lookup", "2000x2000x2000", "--arch", "75", "--db", db, "--strict", code=3)
    assert result.stdout == ""
    assert "Error: sgemm/2000x2000x2000/nn: measured for sgemm/2048x2048x2048/nn" in result.stderr


def test_verbose_lookup_tells_what_was_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    with Store.open(path) as store:
        run_id = store.begin_run(cube(512), live(), compiler=COMPILER)
        broken = VariantRow(config=LARGE.but(thread_m=1, thread_n=16), arch=75,
                            template_sha256="t" * 64)  # fmt: skip
        store.confirm(run_id, [store.record(run_id, broken, timed(9e6))])
    arguments = ("lookup", "512x512x512", "--arch", "75", "--db", str(path))
    assert "passed over: sgemm/512x512x512/nn on Tesla T4: " in run(*arguments, "-v").stderr
    assert "passed over" not in run(*arguments).stderr


def test_native_lookup_asks_for_the_model_that_is_here(
    db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "devices", lambda *_: [replace(live(), sm_count=20)])
    answer = json.loads(run("lookup", "2048x2048x2048", "--db", db, "--json").stdout)
    assert (answer["match"], answer["device"]) == ("sibling_device", "Tesla T4")


# *** db ***


def test_export_is_a_store_of_its_own(db: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    assert run("db", "export", str(copy), "--db", db).stdout == f"{copy}\n"
    asked = ("results", "list", "--json", "--db")
    assert run(*asked, str(copy)).stdout == run(*asked, db).stdout
    refusal = run("db", "export", str(copy), "--db", db, code=1)
    assert refusal.stderr == f"Error: {copy} exists already; name a new file\n"


def test_upgrade_of_a_current_store_changes_nothing(db: str) -> None:
    before = hashlib.sha256(Path(db).read_bytes()).hexdigest()
    assert run("db", "upgrade", "--db", db).stderr == f"{db} has the current schema\n"
    assert hashlib.sha256(Path(db).read_bytes()).hexdigest() == before


# *** devices ***


@pytest.fixture
def rtx_4090(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = replace(
        archs.get(89).typical, index=0, uuid="GPU-42", bus_id="0000:01:00.0", driver=13000,
        driver_version="580.95.05", memory_bytes=25_250_627_584,
    )  # fmt: skip
    monkeypatch.setattr(device, "devices", lambda *_: [made])
    monkeypatch.setattr(device, "missing", lambda: ["pycuda is not installed"])
    return made


def test_devices_shows_what_a_user_checks_first(rtx_4090: Device) -> None:
    result = run("devices")
    lines = squeezed(result.stdout)
    for line in (
        "device 0",
        "name NVIDIA GeForce RTX 4090",
        "architecture sm_89",
        "UUID GPU-42",
        "SMs 128",
        "cores per SM 128",
        "SM clock 2520 MHz",
        "theoretical FP32 82.575360 TFLOP/s",
        "memory 23.52 GiB",
        "memory bus 384 bit at 10501 MHz",
        "theoretical bandwidth 1008 GB/s",
        "L2 cache 72 MiB",
        "shared memory per block 48 KiB, up to 99 KiB on request",
        "shared memory per SM 100 KiB",
        "threads per block 1024",
        "threads per SM 1536",
        "warp size 32",
        "block dimensions 1024 x 1024 x 64",
        "driver 580.95.05, CUDA 13.0",
    ):
        assert line in lines
    assert result.stderr == "pycuda is not installed\n"


def test_devices_as_json_and_csv(rtx_4090: Device) -> None:
    (row,) = json.loads(run("devices", "--json").stdout)
    assert row["fp32_tflops"] == pytest.approx(82.575360)
    assert row["bandwidth_gbs"] == pytest.approx(1008.096)
    assert row["block_dimensions"] == [1024, 1024, 64]
    (line,) = csv.DictReader(io.StringIO(run("devices", "--csv").stdout))
    assert line["uuid"] == "GPU-42"


# *** spaces ***

SMALL = """
kernel = "sgemm"
starts = ["one"]
adaptable = []
parameters.block_m = { values = [16, 32, 64], default = 32, meaning = "rows" }
parameters.order = { values = ["rows", "columns"], meaning = "walk" }
launches = [{ entry = "f", grid = ["1", "1", "1"], block = ["32", "1", "1"], shared_bytes = 0, \
arguments = [] }]
presets.one = { block_m = 64 }
[[constraints]]
name = "rows"
rule = "block_m <= m"
why = "{block_m} rows are more than {m}"
[[constraints]]
name = "walk"
rule = "order == 'rows' or block_m > 16"
why = "small blocks have one walk"
"""


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return str(path)


def test_spaces_counts_exactly(small: str) -> None:
    arguments = ("spaces", "--space", small, "--shape", "40x8x8", "--arch", "80", "--json")
    answer = json.loads(run(*arguments).stdout)
    assert (answer["raw"], answer["valid"], answer["arch"]) == (6, 3, 80)
    assert answer["problem"] == "sgemm/40x8x8/nn"
    removes = [(entry["name"], entry["removes"]) for entry in answer["constraints"]]
    assert removes == [("rows", 2), ("walk", 1)]
    assert "removes_alone" not in answer["constraints"][0]
    assert answer["parameters"][0] == {
        "name": "block_m", "values": [16, 32, 64], "default": 32, "meaning": "rows",
    }  # fmt: skip
    assert answer["presets"] == {"one": {"block_m": 64, "order": "rows"}}
    alone = json.loads(run(*arguments, "--alone").stdout)
    assert [entry["removes_alone"] for entry in alone["constraints"]] == [2, 1]


def test_spaces_for_people(small: str) -> None:
    lines = squeezed(run("spaces", "--space", small, "--shape", "40x8x8").stdout)
    assert lines[0] == (
        "sgemm: 6 combinations of 2 parameters; 3 are valid for sgemm/40x8x8/nn on sm_75"
    )
    assert "block_m 16 32 64 32 rows" in lines
    assert "rows 2 33.3 {block_m} rows are more than {m}" in lines
    assert "one block_m 64" in lines


# *** render ***


def test_a_printed_config_gives_the_source_that_ran(db: str) -> None:
    row = json.loads(run("results", "best", "--db", db, "--json").stdout)[0]
    arguments = ("--arch", str(row["arch"]), "--shape", row["shape"])
    source = run("render", "--config", row["config_json"], *arguments).stdout
    assert f"config {row['config_sha256'][:16]}" in source
    from autotune import render

    variant = render.render(cube(2048), Config.from_json(row["config_json"]), 75)
    assert source == variant.source
    assert f"// source {variant.source_sha256[:16]}, template" in source


def test_render_takes_files_and_presets(tmp_path: Path) -> None:
    file, target = tmp_path / "config.json", tmp_path / "kernel.cu"
    file.write_text('{"group_m": 2}')
    printed = run("render", "--preset", "large", "--config", str(file)).stdout
    assert " group_m=2" in printed and " thread_n=16" in printed
    done = run("render", "--preset", "large", "--config", str(file), "-o", str(target))
    assert (done.stdout, target.read_text()) == ("", printed)
    default = defaults.default(cube(4096), archs.get(75).typical)
    assert f"config {default.sha256[:16]}" in run("render", "--shape", "4096x4096x4096").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "best"], "'best' is not a preset of sgemm; possible: naive"),
        (["--config", "{"], "--config is not JSON"),
        (["--config", "[1]"], "cannot read the config in [1]: No such file"),
        (["--config", '{"block_mm": 1}'], "'block_mm' is not a parameter of sgemm"),
        (["--config", '{"block_m": 17}'], "block_m = 17 is not in the space; it has 16, 32"),
        (["--config", '{"block_m": 256, "thread_m": 1}'], "this config cannot serve"),
        (["--preset", "large", "-o", "/missing/k.cu"], "cannot write /missing/k.cu: No such file"),
    ],
)
def test_render_refuses_with_a_reason(arguments: list[str], message: str) -> None:
    result = run("render", *arguments, code=2)
    assert result.stdout == ""
    assert message in result.stderr
