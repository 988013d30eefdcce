"""`explain` where nothing is installed: no compiler of either kind, no disassembler, no GPU."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console
from store_helpers import COMPILER, live, timed

from autotune import archs, compile, space, templates
from autotune.analysis import predict, sgemm_accesses, sgemm_work
from autotune.cli import main
from autotune.errors import CompilerError, InfeasibleError, NotFoundError, UsageError
from autotune.explain import Explanation, choose, explain
from autotune.explain.parts import Move
from autotune.problems.sgemm import Sgemm
from autotune.report import explain as report
from autotune.report.pictures import picture
from autotune.store import Store, VariantRow
from autotune.types import Config, Device, Evidence, Match

SPACE = space.load()
T4, H200 = archs.get(75).typical, archs.get(90).typical
CUBE = Sgemm(m=2048, n=2048, k=2048)


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(kind: str | None = None) -> compile.Compiler:
        raise CompilerError("NVRTC is not installed")

    monkeypatch.setattr(compile, "find", find)
    monkeypatch.setenv("PATH", "/nowhere")  # no C++ compiler


def explained(preset: str, device: Device = T4, problem: Sgemm = CUBE) -> Explanation:
    return explain(problem, device, choose(problem, device, preset=preset))


def run(*args: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["explain", *args])
    assert result.exit_code == code, result.output
    return result


def screen(found: Explanation) -> list[str]:
    console = Console(width=400, highlight=False)
    with console.capture() as captured:
        console.print(report.as_text(found))
    return [line.rstrip() for line in captured.get().splitlines()]


# *** figures ***


@pytest.mark.parametrize(
    ("preset", "loads", "stores", "shared_bytes"),
    [
        # Published figures of Nsight Compute on a T4.
        ("seed-v3", (16_777_216, 83_886_080, 33_554_432), (2_621_440, 6_291_456, 2_097_152), 16384),
        ("seed-v3.1", (16_777_216, 50_331_648, 0), (2_621_440, 6_291_456, 2_097_152), 16384),
        ("seed-v3.2", (16_777_216, 50_331_648, 0), (2_621_440, 4_194_304, 0), 16640),
    ],
)
def test_the_layout_counts_what_a_t4_counted(
    preset: str, loads: tuple[int, ...], stores: tuple[int, ...], shared_bytes: int
) -> None:
    found = explained(preset)
    assert found.traffic is not None
    assert found.traffic.source == "layout"
    for kind, expected in (("shared load", loads), ("shared store", stores)):
        total = found.traffic.total(kind)
        assert (total.requests, total.wavefronts, total.conflicts) == expected
    assert found.resources.shared_bytes == shared_bytes


def test_each_access_of_the_seed() -> None:
    assert explained("seed-v3").traffic is not None
    rows = {
        (access.operand, access.kind): access for access in sgemm_accesses.accesses(
            CUBE, SPACE.preset("seed-v3")
        )
    }  # fmt: skip
    assert len(rows) == 7
    load = rows["b", "shared load"]
    assert (load.width_bytes, load.requests, load.wavefronts) == (16, 8_388_608, 67_108_864)
    assert load.conflict_share == 0.5
    assert rows["a", "shared load"].conflicts == 0
    assert rows["a", "shared store"].width_bytes == 4
    # Each operand is read once per row or column of tiles, 16 bytes a lane, in whole sectors.
    assert rows["a", "global load"].sectors == 2048 * 2048 * 16 * 4 // 32
    # A lane's 16 bytes lie 32 apart: each in a sector of its own.
    assert rows["c", "global store"].sectors == 32 * rows["c", "global store"].requests


def test_reading_c_is_an_access_too() -> None:
    problem = replace(CUBE, beta_zero=False)
    kinds = [
        access.kind
        for access in sgemm_accesses.accesses(problem, SPACE.preset("seed-v3"))
        if access.operand == "c"
    ]
    assert kinds == ["global load", "global store"]


def test_the_device_s_side() -> None:
    found = explained("seed-v3")
    assert found.waves is not None and found.roofline is not None and found.prediction is not None
    assert (found.occupancy.blocks, found.occupancy.limited_by) == (2, ("registers",))
    assert (found.waves.count, found.waves.tail_blocks, found.waves.efficiency) == (4, 16, 0.8)
    assert found.roofline.bound == "compute"
    assert found.limiter == max(found.prediction.terms, key=lambda n: found.prediction.terms[n])
    # 256 blocks are 3.2 waves; 1024 are 12.8, of which a sixteenth is lost.
    best = found.recoveries[0]
    assert (best.change, best.blocks) == ("split-K 4", 1024)
    assert best.share == pytest.approx(1 - 0.8 / (1024 / 1040))
    assert {each.change for each in found.recoveries} >= {"split-K 2", "tiles of 64 x 128"}


def test_a_full_last_wave_leaves_nothing_to_recover() -> None:
    found = explained("seed-v3", problem=Sgemm(m=1280, n=1024, k=512))
    assert found.waves is not None
    assert (found.waves.tail_blocks, found.recoveries) == (0, ())


def test_moves_are_what_the_model_says_of_the_neighbours() -> None:
    config = SPACE.preset("seed-v3")
    found = explained("seed-v3", H200)
    assert found.moves
    now = predict.candidate(CUBE, config, H200)
    region = SPACE.region(CUBE, 90)
    for move in found.moves:
        changed = config.but(**{move.parameter: move.after})
        assert region.valid([changed]) == [changed]
        then = predict.candidate(CUBE, changed, H200)
        assert now is not None and then is not None
        assert move.before == config[move.parameter]
        assert move.gain == pytest.approx(1 - then.time_ns / now.time_ns)
    gains = [move.gain for move in found.moves]
    assert gains == sorted(gains, reverse=True)
    assert len({move.parameter for move in found.moves}) == len(found.moves)


# *** what is missing ***


def test_each_missing_tool_is_named_and_the_rest_stands() -> None:
    found = explained("seed-v3")
    assert found.sass is None
    assert found.resources.compiler == ""
    assert found.resources.spill_bytes is None
    assert found.resources.registers == sgemm_work.work(CUBE, found.choice.config).registers
    reasons = {each.part: each.reason for each in found.missing}
    assert reasons.pop("registers, spills and instruction mix") == "NVRTC is not installed"
    ((part, reason),) = reasons.items()
    assert part == "accesses counted from the source (the layout's are shown)"
    assert "the emulator needs a C++ compiler, and none of g++, clang++, c++" in reason
    lines = screen(found)
    assert any("registers estimated, for want of a binary" in line for line in lines)
    assert any("counted from the layout" in line for line in lines)
    assert "missing: registers, spills and instruction mix: NVRTC is not installed" in lines


def test_a_device_without_clocks_has_no_times() -> None:
    found = explained("seed-v3", replace(T4, memory_clock_khz=0))
    assert (found.roofline, found.prediction, found.moves, found.limiter) == (None, None, (), "")
    assert found.waves is not None
    (reason,) = (m.reason for m in found.missing if m.part == "roofline and predicted time")
    assert "a memory clock of 0 kHz" in reason
    assert report.as_object(found)["prediction"] is None
    assert any(line.startswith("next") for line in screen(found))


def test_a_profile_without_a_kernel_is_named() -> None:
    choice = choose(CUBE, T4, preset="seed-v3")
    found = explain(CUBE, live(), choice, profile=True)
    assert found.profile is None and found.comparisons == ()
    assert found.missing[-1].part == "measured counters"
    assert found.missing[-1].reason == "there is no compiled kernel to launch"


# *** which config ***


def test_presets_values_and_the_default() -> None:
    default = choose(CUBE, T4)
    assert default.config in SPACE.start_configs(CUBE, 75)
    assert default.origin == "the default of sm_75 for this problem"
    given = choose(CUBE, T4, values={"pad_a": 4})
    assert given.config == SPACE.config({"pad_a": 4})
    both = choose(CUBE, T4, preset="seed-v3", values={"pad_a": 4})
    assert both.config == SPACE.preset("seed-v3").but(pad_a=4)
    assert both.origin == "given, on preset seed-v3"


def test_best_and_another_config_contradict() -> None:
    for other in ({"preset": "seed-v3"}, {"values": {}}):
        with pytest.raises(UsageError, match="give only one"):
            choose(CUBE, T4, best=True, **other)  # type: ignore[arg-type]


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "results.db"
    with Store.open(path) as store:
        run_id = store.begin_run(CUBE, live(), compiler=COMPILER)
        row = VariantRow(
            config=SPACE.preset("seed-v3.1"), arch=75, template_sha256=templates.sha256("sgemm"),
            compiler=COMPILER, source_sha256="1", registers=96, shared_bytes=16640,
            cubin_sha256="c",
        )  # fmt: skip
        store.confirm(run_id, [store.record(run_id, row, timed(3.2e6))])
        store.end_run(run_id, "finished")
    return path


def test_best_is_the_store_s(db: Path) -> None:
    choice = choose(CUBE, live(), best=True, store=db)
    assert choice.config == SPACE.preset("seed-v3.1")
    assert (choice.match, choice.time_ns, choice.evidence) == (
        Match.exact, 3.2e6, Evidence.measured,
    )  # fmt: skip
    assert choice.origin.startswith("exact: measured for sgemm/2048x2048x2048/nn on Tesla T4")
    text = run("2048x2048x2048", "--arch", "75", "--best", "--db", str(db)).stdout
    assert "seed-v3.1 (exact: measured for sgemm/2048x2048x2048/nn" in text


def test_best_of_a_shape_without_any_config(monkeypatch: pytest.MonkeyPatch, db: Path) -> None:
    def default(*_: object) -> Config:
        raise InfeasibleError("planted")

    monkeypatch.setattr("autotune.defaults.default", default)
    with pytest.raises(NotFoundError, match="planted"):
        choose(Sgemm(m=1, n=1, k=1), H200, best=True, store=db)


def test_a_config_that_cannot_serve_says_with_what_it_could() -> None:
    problem = Sgemm(m=1023, n=1025, k=1027)
    with pytest.raises(InfeasibleError) as caught:
        explained("seed-v3", problem=problem)
    assert "vectors of 4 floats need A's rows" in str(caught.value)
    assert str(caught.value).endswith("; with vector_a 1, vector_b 1, vector_c 1 it can")
    choice = choose(CUBE, T4, preset="seed-v3")
    tiny = Sgemm(m=8, n=8, k=8)
    with pytest.raises(InfeasibleError) as caught:
        explain(tiny, T4, choice)
    assert str(caught.value).endswith("lies outside C")


# *** pictures ***


@pytest.mark.parametrize("preset", ["seed-v3", "seed-v3.1", "large", "small", "tiny", "smallest"])
def test_every_row_and_column_has_one_warp(preset: str) -> None:
    found = explained(preset, H200)
    assert found.tile is not None
    for axis in (found.tile.m, found.tile.n):
        counts = Counter(axis.owners)
        assert counts == {warp: axis.block // axis.warps for warp in range(axis.warps)}
    assert sorted(lane for row in found.tile.lanes for lane in row) == list(range(32))


def test_the_picture_of_the_large_preset() -> None:
    found = explained("large", H200)
    assert found.tile is not None
    assert picture(found.tile) == [
        "block 128 x 256: warps   warp: lanes                        thread 8 x 16: fragments",
        "   n     0 128              n    0  4  8 12 16 20 24 28        n     0  32  64  96",
        "     +---------+              +-------------------------+        +-----------------+",
        " m 0 |   0   1 |          m 0 |  0  1  8  9 16 17 24 25 |    m 0 | 4x4 4x4 4x4 4x4 |",
        "m 32 |   2   3 |          m 4 |  2  3 10 11 18 19 26 27 |   m 16 | 4x4 4x4 4x4 4x4 |",
        "m 64 |   4   5 |          m 8 |  4  5 12 13 20 21 28 29 |        +-----------------+",
        "m 96 |   6   7 |         m 12 |  6  7 14 15 22 23 30 31 |",
        "     +---------+              +-------------------------+",
    ]


def test_fragments_of_a_block_split_repeat_the_warps() -> None:
    found = explained("seed-v3.2")
    assert found.tile is not None
    lines = picture(found.tile)
    warps = [line.split("|")[1].strip() for line in lines if line.strip().startswith("m ")][:16]
    assert warps == [str(warp) for warp in range(8)] * 2
    assert any("m 64 | 4x4 4x4 |" in line for line in lines)


def test_a_picture_is_cut_where_it_is_too_tall() -> None:
    found = explain(CUBE, H200, choose(CUBE, H200, preset="seed-v3.2", values={"block_m": 256}))
    assert found.tile is not None
    # 16 warps of 4 rows a fragment, twice.
    assert found.tile.m.warps == 16
    assert any(": 16 more" in line for line in picture(found.tile))


# *** the command ***


def test_json_is_one_object_with_every_part() -> None:
    found = json.loads(
        run("2048x2048x2048", "--arch", "75", "--preset", "seed-v3", "--json").stdout
    )
    assert json.loads(found["config_json"])["block_m"] == 128
    assert (found["problem"], found["arch"], found["device"]) == (CUBE.key, 75, "Tesla T4")
    assert found["tile"]["m"]["warps"] == 8
    assert found["accesses"]["source"] == "layout"
    rows = {(row["operand"], row["kind"]): row for row in found["accesses"]["rows"]}
    assert rows["b", "shared load"]["conflict_share"] == 0.5
    prediction = found["prediction"]
    assert prediction["limiter"] in prediction["terms_ns"]
    share = found["roofline"]["time_ns"] / prediction["predicted_ns"]
    assert found["roofline"]["predicted_share"] == pytest.approx(share)
    assert found["waves"]["recoveries"][0]["change"] == "split-K 4"
    assert (found["instructions"], found["profile"], found["comparisons"]) == (None, None, [])
    assert len(found["missing"]) == 2


def test_one_screen() -> None:
    text = run("2048x2048x2048", "--arch", "90", "--preset", "large").stdout
    lines = text.splitlines()
    assert len(lines) <= 50
    assert lines[0] == (
        "sgemm/2048x2048x2048/nn on sm_90 (NVIDIA H200, which is not here: typical clocks)"
    )
    labels = [line.split("  ")[0] for line in lines]
    for label in ("config", "in words", "resources", "occupancy", "roofline", "waves", "predicted",
                  "next"):  # fmt: skip
        assert label in labels


def test_a_launch_for_the_rest_is_named() -> None:
    changes = {"rest": "rows", "group_m": 2, "pad_b": 0, "vector_b": 2, "vector_c": 2}
    options = ["130x130x300", "--arch", "90", "--preset", "async-64x64x32", "--config"]
    found = run(*options, json.dumps(changes), "--json")
    assert json.loads(found.stdout)["tile"]["rest"] == "2 rows"
    words = " ".join(run(*options, json.dumps(changes)).stdout.split())
    assert "the last 2 rows by another launch" in words
    words = " ".join(run(*options, json.dumps({**changes, "rest": "tiles"})).stdout.split())
    assert "in words" in words and "another launch" not in words


def test_the_next_thing_is_named() -> None:
    found = explained("seed-v3", H200)
    step = report.next_step(found)
    assert step.startswith(f"{found.limiter} is the largest term; 40% of the wavefronts of shared")
    move = found.moves[0]
    assert f"{move.parameter} {move.before} -> {move.after} ({move.gain:.1%} less time)" in step
    assert "no single change gains 0.5%" in report.next_step(replace(found, moves=()))
    spilling = replace(found, resources=replace(found.resources, spill_bytes=24))
    assert report.next_step(spilling).startswith("registers spill 24 B: a smaller thread tile")
    one = Move(parameter="stages", before=1, after=2, gain=0.25)
    assert report.next_step(replace(found, moves=(one,))).endswith(
        "by the model stages 1 -> 2 (25.0% less time)"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "none"], "'none' is not a preset of sgemm; possible: naive"),
        (["--config", '{"block_m": 5}'], "block_m = 5 is not in the space; it has 16, 32"),
        (["--config", '{"bm": 5}'], "'bm' is not a parameter of sgemm"),
        (["--config", "{"], "--config is not JSON"),
        (["--config", "missing.json"], "cannot read the config in missing.json: No such file"),
        (["--config", "[]"], "cannot read the config in []"),
        (["--preset", "seed-v3", "--best"], "give only one"),
        (["--arch", "74"], "sm_74 is not known"),
        (["--space", "missing.toml"], "cannot read the search space missing.toml"),
    ],
)
def test_bad_input(arguments: list[str], message: str) -> None:
    arch = () if "--arch" in arguments else ("--arch", "75")
    result = run("2048x2048x2048", *arch, *arguments, code=2)
    assert result.stdout == ""
    assert message in result.stderr


def test_a_shape_that_is_none() -> None:
    assert "'12x' is not a shape" in run("12x", "--arch", "75", code=2).stderr


def test_a_profile_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from autotune import device
    from autotune.errors import DeviceError

    def select(arch: int | None = None) -> Device:
        raise DeviceError(f"no device has sm_{arch}")

    monkeypatch.setattr(device, "select", select)
    result = run("512x512x512", "--arch", "75", "--profile", code=4)
    assert result.stdout == ""
    assert "no device has sm_75" in result.stderr


def test_a_profile_that_cannot_be_had_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.device.select", lambda arch=None: live())
    result = run("512x512x512", "--arch", "75", "--profile", code=1)
    assert "missing: measured counters: there is no compiled kernel to launch" in result.stdout
