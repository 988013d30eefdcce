"""Reading Nsight Compute's counters: its CSV, its refusals, and the arithmetic of the gap."""

from __future__ import annotations

import json
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_door import DEVICE, FakeContext, FakeDoor, Spec, plan

from autotune import archs, gpu, profile
from autotune.errors import DeviceError, ProfilerError
from autotune.explain.compare import comparisons
from autotune.explain.parts import Traffic
from autotune.problems.sgemm import Sgemm
from autotune.profile import Gap, Profile, Task, gap, parse, stall_metric
from autotune.types import Binary, Config, Variant

CUBE = Sgemm(m=2048, n=2048, k=2048)
H200, T4 = archs.get(90).typical, archs.get(75).typical
HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)


def row(metric: str, value: str, unit: str = "", number: int = 0, kernel: str = "sgemm") -> str:
    return (
        f'"{number}","812","python3.11","127.0.0.1","{kernel}","1","7","(256, 1, 1)",'
        f'"(256, 1, 1)","0","9.0","Command line profiler metrics","{metric}","{unit}","{value}"'
    )


def answer(*rows: str) -> str:
    return "\n".join(
        [
            "==PROF== Connected to process 812 (/usr/bin/python3.11)",
            '==PROF== Profiling "sgemm" - 0: 0%....50%....100% - 21 passes',
            "==PROF== Disconnected from process 812",
            HEAD,
            *rows,
            "",
        ]
    )


# *** the table ***


def test_metrics_of_a_kernel() -> None:
    text = answer(
        row(profile.LOAD_WAVEFRONTS, "83,886,080"),
        row(profile.TIME_NS, "452384", "ns"),
        row(profile.WARPS_ACTIVE, "24.31", "%"),
        row(stall_metric("barrier"), "0.25", "inst"),
    )
    assert parse(text) == [
        (
            "sgemm",
            {
                profile.LOAD_WAVEFRONTS: 83_886_080.0,
                profile.TIME_NS: 452_384.0,
                profile.WARPS_ACTIVE: 24.31,
                stall_metric("barrier"): 0.25,
            },
        )
    ]


def test_what_is_no_number_is_left_out() -> None:
    text = answer(row(profile.DRAM_BYTES, "n/a"), row(profile.L2_BYTES, "", "byte"))
    assert parse(text) == [("sgemm", {})]


def test_several_kernels_keep_their_order_and_signatures_are_cut() -> None:
    text = answer(
        row(profile.TIME_NS, "10", kernel="sgemm(const float *, const float *, float *)"),
        row(profile.TIME_NS, "20", number=1, kernel="void reduce(float *)"),
    )
    assert parse(text) == [
        ("sgemm", {profile.TIME_NS: 10.0}),
        ("reduce", {profile.TIME_NS: 20.0}),
    ]


@pytest.mark.parametrize("text", ["", "==PROF== nothing", "==ERROR== ERR_NVGPUCTRPERM"])
def test_no_table(text: str) -> None:
    assert parse(text) == []


def test_a_table_of_another_form_costs_values_not_the_run() -> None:
    assert parse('"ID","Metric Name","Metric Value"\n"0","x.sum","3"\n"0","y.sum"\n') == [
        ("", {"x.sum": 3.0})
    ]


# *** the gap ***


def metrics(**changes: float | None) -> dict[str, float | None]:
    """1000 cycles elapsed, 900 of SMs at work, 800 with an issue, 600 of them FFMA."""
    given: dict[str, float | None] = {
        profile.CYCLES_ELAPSED: 1000.0,
        profile.CYCLES_ACTIVE: 900.0,
        profile.ISSUE_ACTIVE: 800.0,
        profile.FFMA_THREADS: 600.0 * 32,
        stall_metric("barrier"): 0.1,
        stall_metric("short_scoreboard"): 0.3,
    }
    given.update({getattr(profile, name): value for name, value in changes.items()})
    return given


def parts(found: Gap | None) -> dict[str, float]:
    assert found is not None
    split = {loss.cause: loss.percent for loss in found.losses}
    assert found.reached_percent + sum(split.values()) == pytest.approx(100)
    percents = [loss.percent for loss in found.losses]
    assert percents == sorted(percents, reverse=True)
    return {"reached": found.reached_percent, **split}


# 600 warp instructions of 32 products each.
ALL_USEFUL = Sgemm(m=1, n=32, k=600)


def test_the_gap_of_an_sm_that_issues_one_ffma_a_cycle() -> None:
    found = parts(gap(metrics(), ALL_USEFUL, H200))
    assert found == pytest.approx(
        {
            "reached": 60.0,
            "other instructions": 20.0,
            "tail": 10.0,
            "stall: barrier": 2.5,
            "stall: short scoreboard": 7.5,
        }
    )


def test_products_outside_c_are_not_reached() -> None:
    found = parts(gap(metrics(), Sgemm(m=1, n=32, k=450), H200))
    assert found["reached"] == pytest.approx(45)
    assert found["products outside C"] == pytest.approx(15)


def test_the_gap_of_an_sm_that_issues_one_ffma_every_second_cycle() -> None:
    # 400 FFMA keep their pipe for 800 cycles; 200 other instructions fit between them.
    values = metrics(FFMA_THREADS=400.0 * 32, ISSUE_ACTIVE=600.0)
    found = parts(gap(values, Sgemm(m=1, n=32, k=400), T4))
    assert found["reached"] == pytest.approx(80)
    assert "other instructions" not in found
    assert found["stall: barrier"] + found["stall: short scoreboard"] == pytest.approx(10)
    # 500 others do not: 850 issues against 350 FFMA, which take 700.
    values = metrics(FFMA_THREADS=350.0 * 32, ISSUE_ACTIVE=850.0)
    found = parts(gap(values, Sgemm(m=1, n=32, k=350), T4))
    assert found["reached"] == pytest.approx(70)
    assert found["other instructions"] == pytest.approx(15)


def test_counters_of_different_replays_still_add_up() -> None:
    found = parts(gap(metrics(CYCLES_ACTIVE=1010.0), ALL_USEFUL, H200))
    assert "tail" not in found
    assert found["reached"] == pytest.approx(100 * 600 / 1010)


def test_stalls_without_reasons_are_one() -> None:
    values = metrics()
    del values[stall_metric("barrier")], values[stall_metric("short_scoreboard")]
    assert parts(gap(values, ALL_USEFUL, H200))["stalls"] == pytest.approx(10)


def test_the_pipe_stands_in_for_the_ffma_counter() -> None:
    values = metrics(FFMA_THREADS=None, FMA_PIPE=600.0)
    assert parts(gap(values, ALL_USEFUL, H200))["reached"] == pytest.approx(60)


@pytest.mark.parametrize(
    "missing", [{"CYCLES_ELAPSED": None}, {"CYCLES_ACTIVE": None}, {"ISSUE_ACTIVE": None},
                {"FFMA_THREADS": None}, {"CYCLES_ELAPSED": 0.0}],
)  # fmt: skip
def test_no_gap_without_its_counters(missing: dict[str, float | None]) -> None:
    assert gap(metrics(**missing), ALL_USEFUL, H200) is None


def test_derived_figures() -> None:
    values = metrics(INSTRUCTIONS=750.0, SM_CYCLES=1980.0, TIME_NS=1000.0)
    found = Profile(tool="ncu", kernel="sgemm", metrics=values, gap=None)
    assert (found.ffma_share, found.sm_clock_mhz) == (0.8, 1980.0)
    assert found.issue_share == pytest.approx(800 / 900)
    empty = Profile(tool="ncu", kernel="sgemm", metrics={}, gap=None)
    assert (empty.ffma_share, empty.sm_clock_mhz, empty.issue_share) == (None, None, None)


@pytest.mark.parametrize(
    ("attributed", "stage", "apart", "expected"),
    [  # stores of seed-v3 and seed-v3.1 at 2048, as ncu counted them on an H200
        (6_291_456, 6_299_054, 2_104_750, 2_097_152),
        (4_194_304, 4_236_398, 42_094, 0),
        (None, 4_236_398, 42_094, None),
        (4_194_304, None, 42_094, None),
        (4_194_304, 4_236_398, None, None),
    ],
)
def test_conflicts_without_waiting_for_other_traffic(
    attributed: float | None, stage: float | None, apart: float | None, expected: float | None
) -> None:
    values = metrics(
        STORE_WAVEFRONTS=attributed, STAGE_STORE_WAVEFRONTS=stage, STAGE_STORE_CONFLICTS=apart
    )
    found = Profile(tool="ncu", kernel="sgemm", metrics=values, gap=None)
    assert found.store_conflicts == expected
    assert found.load_conflicts is None


def test_predicted_beside_measured() -> None:
    from autotune import space
    from autotune.analysis.occupancy import occupancy
    from autotune.analysis.sgemm_accesses import accesses

    counted = Profile(
        tool="ncu",
        kernel="sgemm",
        metrics={profile.LOAD_WAVEFRONTS: 83_886_000.0, profile.WARPS_ACTIVE: 24.0},
        gap=None,
    )
    traffic = Traffic(
        source="layout", accesses=accesses(CUBE, space.load().preset("seed-v3"))
    )  # fmt: skip
    resident = occupancy(256, 124, 16384, H200)
    rows = {
        row.name: row for row in comparisons(counted, CUBE, resident, traffic, None, None)
    }  # fmt: skip
    loads = rows["shared load wavefronts"]
    assert (loads.predicted, loads.measured) == (83_886_080, 83_886_000.0)
    assert (rows["occupancy"].predicted, rows["occupancy"].measured) == (0.25, 0.24)
    assert (rows["time"].predicted, rows["time"].measured) == (None, None)
    assert rows["DRAM traffic"].predicted == CUBE.bytes_min
    assert rows["L2 traffic"].predicted == 32 * (2 * 8_388_608 + 1_048_576)


def test_copies_are_counted_apart_from_stores() -> None:
    """The loads are those of a kernel at 2048 on an H200; what is counted of copies is made up."""
    from autotune import space
    from autotune.analysis.occupancy import occupancy
    from autotune.analysis.sgemm_accesses import accesses

    kernels = space.load()
    config = kernels.fitted(kernels.preset("async-128x128x8"), CUBE, 90)
    traffic = Traffic(source="layout", accesses=accesses(CUBE, config))
    executed, switched_on = profile.SHARED_LOADS[1], profile.SHARED_LOADS[0]
    values = {executed: 13_357_056.0, profile.SHARED_COPIES[0]: 7.0, profile.COPY_WAVEFRONTS: 8.0,
              profile.COPY_CONFLICTS: 1.0, profile.SHARED_STORES[0]: 0.0}  # fmt: skip

    def rows(**more: float) -> dict[str, tuple[float | None, float | None]]:
        counted = Profile(tool="ncu", kernel="sgemm", metrics={**values, **more}, gap=None)
        resident = occupancy(128, 168, 16384, H200)
        found = comparisons(counted, CUBE, resident, traffic, None, None)
        return {row.name: (row.predicted, row.measured) for row in found}

    found = rows()
    pieces = 2 * 2048 * 2048 * 16 // 32
    assert found["shared copy requests"] == (pieces // 2 + pieces // 8, 7.0)
    assert found["shared copy wavefronts"][1] == 8.0 and found["shared copy conflicts"][1] == 1.0
    assert found["shared store requests"] == (0, 0.0)
    # Loads that are switched off are none, where the device can tell.
    assert found["shared load requests"][1] == 13_357_056.0
    assert rows(**{switched_on: 12_582_912.0})["shared load requests"][1] == 12_582_912.0
    registers = Traffic(source="layout", accesses=accesses(CUBE, kernels.preset("seed-v3")))
    counted = Profile(tool="ncu", kernel="sgemm", metrics={}, gap=None)
    resident = occupancy(256, 124, 16384, H200)
    names = [row.name for row in comparisons(counted, CUBE, resident, registers, None, None)]
    assert not any(name.startswith("shared copy") for name in names)


# *** the tool ***

VARIANT = Variant(
    problem=CUBE, config=Config({}), arch=75, header="", body="", template_sha256="",
    plan=plan(CUBE),
)  # fmt: skip
BINARY = Binary(
    arch=75, compiler="nvrtc", cubin=b"cubin", registers=1, static_shared_bytes=0, spill_bytes=0,
    stack_bytes=0, log="", compile_seconds=0.0,
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty PATH, and no ncu in the usual places."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(profile, "_TOOLKIT", tmp_path / "toolkit")
    monkeypatch.setattr(profile, "_PACKAGES", tmp_path / "packages")
    return tmp_path


def fake_ncu(folder: Path, body: str) -> Path:
    """A program that keeps its arguments and does what `body` says with them."""
    folder.mkdir(parents=True, exist_ok=True)
    tool = folder / "ncu"
    tool.write_text(
        f"#!{sys.executable}\n"
        "import json, pathlib, sys\n"
        "if sys.argv[1] == '--version':\n"
        "    print('Nsight Compute Command Line Profiler\\nVersion 2025.3.1.0 (build 1)')\n"
        "    sys.exit()\n"
        "log = pathlib.Path(__file__).with_name('calls')\n"
        "log.open('a').write(json.dumps(sys.argv[1:]) + '\\n')\n"
        "metrics = sys.argv[sys.argv.index('--metrics') + 1].split(',')\n" + body
    )
    tool.chmod(0o755)
    return tool


def calls(folder: Path) -> list[list[str]]:
    return [json.loads(line) for line in (folder / "calls").read_text().splitlines()]


def test_a_launch_is_counted_as_it_should_be(folder: Path) -> None:
    fake_ncu(folder, f"print({answer(row(profile.TIME_NS, '452,384', 'ns', kernel='kernel'))!r})\n")
    found = profile.profile(VARIANT, BINARY, DEVICE, door="cuda-bindings")
    assert (found.tool, found.kernel, found.gap) == ("ncu 2025.3.1.0", "kernel", None)
    assert found.metrics[profile.TIME_NS] == 452_384
    assert found.metrics[profile.DRAM_BYTES] is None
    assert set(found.metrics) == {*profile.METRICS, *map(stall_metric, profile.STALLS)}
    (call,) = calls(folder)
    options = " ".join(call)
    assert "--csv --print-units base --clock-control none --kernel-name regex:^(kernel)$" in options
    assert "--launch-skip 3 --launch-count 1" in options
    assert call[-4:-1] == [sys.executable, "-m", "autotune.profile"]
    assert not Path(call[-1]).exists()  # the task went with its folder


def test_metrics_that_this_version_does_not_know_are_none(folder: Path) -> None:
    unknown = stall_metric("gmma")
    fake_ncu(
        folder,
        f"if {unknown!r} in metrics:\n"
        f"    print('==ERROR== Failed to find metric {unknown}')\n"
        "    sys.exit(1)\n"
        f"print({answer(row(profile.TIME_NS, '7', 'ns', kernel='kernel'))!r})\n",
    )
    found = profile.profile(VARIANT, BINARY, DEVICE)
    assert found.metrics[profile.TIME_NS] == 7
    assert found.metrics[unknown] is None
    first, second = calls(folder)
    assert unknown in first[first.index("--metrics") + 1]
    assert unknown not in second[second.index("--metrics") + 1]


@pytest.mark.parametrize("status", [0, 1])
def test_no_permission(folder: Path, status: int) -> None:
    fake_ncu(
        folder,
        "print('==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA "
        "GPU Performance Counters on the target device 0.')\n"
        f"sys.exit({status})\n",
    )
    with pytest.raises(ProfilerError) as caught:
        profile.profile(VARIANT, BINARY, DEVICE)
    assert "only administrators" in str(caught.value)
    assert "NVreg_RestrictProfilingToAdminUsers=0" in str(caught.value)


def test_another_failure_says_what_was_printed(folder: Path) -> None:
    tool = fake_ncu(folder, "print('one\\ntwo\\nthree\\nDeviceError: gone')\nsys.exit(9)\n")
    with pytest.raises(ProfilerError) as caught:
        profile.profile(VARIANT, BINARY, DEVICE)
    assert str(caught.value) == (
        f"{tool} counted nothing (exit status 9): two three DeviceError: gone"
    )


def test_a_profiler_that_hangs_is_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "_TIMEOUT_SECONDS", 0.5)
    fake_ncu(folder, "import time\ntime.sleep(60)\n")
    with pytest.raises(ProfilerError, match=r"did not end within 0\.5 s"):
        profile.profile(VARIANT, BINARY, DEVICE)


def test_no_profiler(folder: Path) -> None:
    with pytest.raises(ProfilerError, match="Nsight Compute, is neither on PATH nor in"):
        profile.find_ncu()


def test_places_in_order(folder: Path) -> None:
    old = fake_ncu(folder / "packages" / "2024.3.2", "")
    assert profile.find_ncu() == old
    new = fake_ncu(folder / "packages" / "2025.3.0", "")
    assert profile.find_ncu() == new
    toolkit = fake_ncu(folder / "toolkit", "")
    assert profile.find_ncu() == toolkit
    assert profile.find_ncu() != fake_ncu(folder, "")
    assert profile.find_ncu() == folder / "ncu"


def test_a_device_that_is_absent() -> None:
    with pytest.raises(DeviceError, match="Tesla T4 is not here"):
        profile.profile(VARIANT, BINARY, T4)


# *** the program that is profiled ***


def test_the_child_warms_up_and_launches_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Sgemm(m=24, n=20, k=16)
    variant = replace(VARIANT, problem=problem, plan=plan(problem))
    context = FakeContext(DEVICE)
    seen: list[np.ndarray] = []

    class Door(FakeDoor):
        def open(self, index: int) -> FakeContext:
            return context

    def close() -> None:
        # The operands, in the order in which they were allocated, before the memory goes.
        for address, operand in zip(context._bases, problem.operands, strict=True):
            words = context.words(address, operand.span_elements)
            seen.append(words.view(np.float32).copy())

    monkeypatch.setattr(context, "close", close)
    monkeypatch.setattr(gpu, "choose", lambda name: Door())
    task = Task(
        problem=problem, variant=variant, cubin=Spec(problem=problem, ns=1.0).cubin,
        device=DEVICE, door=None,
    )  # fmt: skip
    profile.launch(pickle.loads(pickle.dumps(task)))
    assert context.clock_ns == 4
    a, b, c = seen
    np.testing.assert_allclose(
        c.reshape(24, 20), a.reshape(24, 16) @ b.reshape(16, 20), rtol=1e-4, atol=1e-5
    )
    assert len(np.unique(a)) > 300


def test_the_child_refuses_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "choose", lambda name: FakeDoor(replace(DEVICE, uuid="GPU-other")))
    task = Task(problem=CUBE, variant=VARIANT, cubin=b"", device=DEVICE, door=None)
    with pytest.raises(DeviceError, match="device 0 is GPU-other now"):
        profile.launch(task)
