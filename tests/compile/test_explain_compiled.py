"""`explain` with the compiler, the disassembler and, where there is one, the emulator."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from autotune import archs, device, profile, render, space
from autotune.analysis import sass, sgemm_accesses
from autotune.cli import main
from autotune.errors import MissingExtraError
from autotune.explain import Explanation, choose, explain, gather
from autotune.problems.sgemm import Sgemm
from autotune.report import explain as report
from autotune.types import Binary, Variant

SPACE = space.load()
T4 = archs.get(75).typical
CUBE = Sgemm(m=2048, n=2048, k=2048)
needs_host = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="no C++ compiler to emulate with"
)


def explained(preset: str, arch: int = 75, problem: Sgemm = CUBE) -> Explanation:
    device = archs.get(arch).typical
    return explain(problem, device, choose(problem, device, preset=preset))


@needs_host
@pytest.mark.parametrize(
    ("preset", "loads", "stores", "shares", "shared_bytes"),
    [
        # Published figures of Nsight Compute on a T4.
        ("seed-v3", (16_777_216, 83_886_080, 33_554_432), (2_621_440, 6_291_456, 2_097_152),
         (40.00, 33.33), 16384),
        ("seed-v3.1", (16_777_216, 50_331_648, 0), (2_621_440, 6_291_456, 2_097_152),
         (0, 33.33), 16384),
        ("seed-v3.2", (16_777_216, 50_331_648, 0), (2_621_440, 4_194_304, 0), (0, 0), 16640),
    ],
)  # fmt: skip
def test_the_source_s_accesses_are_what_a_t4_counted(
    preset: str,
    loads: tuple[int, ...],
    stores: tuple[int, ...],
    shares: tuple[float, float],
    shared_bytes: int,
) -> None:
    found = explained(preset)
    assert found.traffic is not None
    assert found.traffic.source == "emulator"
    for kind, expected, share in zip(
        ("shared load", "shared store"), (loads, stores), shares, strict=True
    ):
        total = found.traffic.total(kind)
        assert (total.requests, total.wavefronts, total.conflicts) == expected
        assert round(100 * total.conflict_share, 2) == share
    assert found.resources.shared_bytes == shared_bytes
    assert found.missing == ()


@needs_host
@pytest.mark.parametrize(
    ("preset", "problem"),
    [
        ("seed-v3", CUBE),
        ("large", CUBE),
        ("wide", CUBE),
        ("small", replace(CUBE, beta_zero=False)),
        ("tiny", CUBE),
        ("smallest", Sgemm(m=512, n=512, k=64, layout="nt")),
        ("seed-v3.1", Sgemm(m=512, n=512, k=64, layout="tn", batch=2)),
    ],
)
def test_layout_and_source_agree_access_by_access(preset: str, problem: Sgemm) -> None:
    found = explained(preset, 90, problem)
    assert found.traffic is not None and found.traffic.source == "emulator"
    assert found.traffic.accesses == sgemm_accesses.accesses(problem, found.choice.config)


def test_registers_and_instructions_of_the_compiled_kernel() -> None:
    found = explained("seed-v3.2", 90)
    assert found.resources.compiler.startswith("nvrtc ")
    assert 96 <= found.resources.registers <= 160
    assert found.resources.spill_bytes == 0
    assert found.occupancy.blocks == 65536 // 256 // (-(-found.resources.registers // 8) * 8)
    assert found.sass is not None and found.sass.loop is not None
    # 8 steps of k of 8 x 8, four loads of 16 bytes each.
    assert found.sass.loop.ffma == 512
    assert found.sass.loop.widths["LDS"] == {16: 32}
    object_ = report.as_object(found)
    assert object_["instructions"]["loop"]["widths_bytes"]["STS"] == {4: 4, 16: 1}
    assert 0.85 < object_["instructions"]["loop"]["ffma_share"] < 0.95
    assert json.loads(json.dumps(object_))["resources"]["registers"] == found.resources.registers


def test_the_screen_says_all_of_it() -> None:
    args = ["explain", "2048x2048x2048", "--arch", "90", "--preset", "seed-v3.2"]
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 0, result.output
    for piece in (
        "no spills (nvrtc ", "main loop", "FFMA 512", "LDS 32x128 bit",
        "STS 4x32 bit+1x128 bit", "compute bound: 341 FLOP/B",
    ):  # fmt: skip
        assert piece in result.stdout, piece


# *** what is missing ***


def test_no_disassembler(monkeypatch: pytest.MonkeyPatch) -> None:
    def find() -> Path:
        raise MissingExtraError("nvdisasm is not installed")

    monkeypatch.setattr(sass, "find_disassembler", find)
    found = explained("seed-v3")
    assert found.sass is None
    assert found.resources.spill_bytes == 0
    (missing,) = (each for each in found.missing if each.part == "instruction mix")
    assert missing.reason == "nvdisasm is not installed"


def test_an_unreadable_cubin(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = gather._compiled

    def damaged(variant: Variant) -> Binary:
        return replace(compiled(variant), cubin=b"\x7fELF, and nothing else")

    monkeypatch.setattr(gather, "_compiled", damaged)
    found = explained("seed-v3")
    assert found.sass is None
    assert found.prediction is not None
    (missing,) = (each for each in found.missing if each.part == "instruction mix")
    assert "cannot read the cubin of 22 bytes" in missing.reason


def test_an_architecture_that_the_compiler_does_not_know() -> None:
    found = explained("seed-v3", 70)
    (missing,) = (each for each in found.missing if each.part.startswith("registers"))
    assert "cannot compile for sm_70" in missing.reason
    assert found.prediction is not None
    assert found.resources.compiler == ""


def test_a_source_that_does_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = render.render

    def broken(*args: object, **options: object) -> Variant:
        variant = rendered(*args, **options)  # type: ignore[arg-type]
        return replace(variant, body=variant.body + "this is no CUDA\n")

    monkeypatch.setattr(render, "render", broken)
    found = explained("seed-v3")
    reasons = {each.part: each.reason for each in found.missing}
    assert "error" in reasons["registers, spills and instruction mix"]
    assert found.traffic is not None and found.traffic.source == "layout"


@needs_host
def test_a_fault_that_the_emulator_finds_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = render.render

    def racing(*args: object, **options: object) -> Variant:
        variant = rendered(*args, **options)  # type: ignore[arg-type]
        call = "        barrier();\n"
        assert call in variant.body
        return replace(variant, body=variant.body.replace(call, ""))

    monkeypatch.setattr(render, "render", racing)
    found = explained("seed-v3.2", problem=Sgemm(m=128, n=128, k=32))
    assert found.traffic is not None and found.traffic.source == "layout"
    (missing,) = (each for each in found.missing if each.part.startswith("accesses"))
    assert missing.reason.startswith("the emulator finds a fault: line ")


# *** beside the device's counters ***

NCU = """#!{python}
import sys
if sys.argv[1] == "--version":
    print("Version 2025.3.1.0 (build 1)")
    sys.exit()
head = ["ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"]
print(",".join(f'"{{name}}"' for name in head))
for name, value in {metrics!r}.items():
    print(f'"0","sgemm","{{name}}","","{{value}}"')
"""


@pytest.mark.parametrize("form", ["--json", None])
def test_a_profile_stands_beside_what_was_foreseen(
    form: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = replace(T4, index=0, uuid="GPU-1")
    metrics = {
        profile.TIME_NS: "2,800,000",
        profile.LOAD_WAVEFRONTS: "50,331,648",
        profile.STAGE_LOAD_WAVEFRONTS: "50,337,686",
        profile.STAGE_LOAD_CONFLICTS: "6,038",
        profile.CYCLES_ELAPSED: 1e9,
        profile.CYCLES_ACTIVE: 0.9e9,
        profile.ISSUE_ACTIVE: 0.5e9,
        profile.FFMA_THREADS: 2048**3,
        profile.stall_metric("long_scoreboard"): 2.0,
    }
    tool = tmp_path / "ncu"
    tool.write_text(NCU.format(python=sys.executable, metrics=metrics))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(device, "select", lambda arch=None: live)
    args = ["explain", "2048x2048x2048", "--preset", "seed-v3.2", "--profile"]
    result = CliRunner().invoke(main, [*args, form] if form else args)
    assert result.exit_code == 0, result.output
    # Half the rate of an SM with 64 cores: 2048^3 / 32 FFMA keep their pipe for twice as long.
    reached = 100 * 2 * 2048**3 / 32 / 1e9
    if form is None:
        text = " ".join(result.stdout.split())
        assert f"lost to {reached:.1f} % of peak reached; " in text
        assert "stall: long scoreboard" in text
        assert "shared load wavefronts 50,331,648 50,331,648 1.0000" in text
        assert "measured 2.8 ms, 75% of it reached" in text
        return
    found = json.loads(result.stdout)
    assert found["profile"]["tool"] == "ncu 2025.3.1.0"
    gap = found["profile"]["gap"]
    assert gap["reached_percent"] == pytest.approx(reached)
    causes = {loss["cause"]: loss["percent"] for loss in gap["losses"]}
    assert causes == pytest.approx({"stall: long scoreboard": 90 - reached, "tail": 10})
    rows = {row["name"]: row for row in found["comparisons"]}
    assert rows["shared load wavefronts"]["measured"] == 50_331_648
    assert rows["shared load wavefronts"]["predicted"] == 50_331_648
    assert rows["shared load conflicts"]["measured"] == 0
    assert rows["shared store conflicts"]["measured"] is None
    assert rows["occupancy"]["measured"] is None
