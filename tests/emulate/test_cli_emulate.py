"""The command that says whether a kernel is right without a GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from autotune import render
from autotune.cli import main
from autotune.types import Variant


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["emulate", *words])
    return result.exit_code, result.stdout, result.stderr


def test_the_seed_in_figures() -> None:
    code, out, _ = run("--preset", "seed-v3", "--shape", "2048x2048x2048", "--json")
    found = json.loads(out)
    assert code == 0 and found["verdict"] == "ok" and found["faults"] == []
    loads, stores = found["totals"]["shared_load"], found["totals"]["shared_store"]
    assert (loads["requests"], loads["wavefronts"], loads["conflicts"]) == (
        16_777_216, 83_886_080, 33_554_432,
    )  # fmt: skip
    assert (stores["requests"], stores["wavefronts"], stores["conflicts"]) == (
        2_621_440, 6_291_456, 2_097_152,
    )  # fmt: skip
    assert found["blocks_total"] == 256 and found["blocks_run"] < 10


def test_the_screen_of_a_right_kernel() -> None:
    code, out, _ = run("--shape", "129x127x65", "--layout", "nt", "--blocks", "all", "--beta")
    assert code == 0
    assert "129x127x65/nt/beta: right; every block of" in out
    assert "all shared loads" in out and "store_global<1>(target + column, value);" in out


def test_a_fault_is_named_and_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_a_barrier(*given: Any, **named: Any) -> Variant:
        variant = rendering.render(*given, **named)
        body = variant.body.replace("        barrier();\n", "\n", 1)
        assert body != variant.body
        return replace(variant, body=body)

    rendering = SimpleNamespace(render=render.render)
    monkeypatch.setattr(render, "render", without_a_barrier)
    code, out, _ = run("--preset", "seed-v3", "--shape", "128x128x16")
    assert code == 1
    assert "read_after_write: " in out and "block 0" in out and "thread " in out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--config", '{"block_m": 7}'], "block_m = 7 is not in the space"),
        (["--preset", "nothing"], "'nothing' is not a preset"),
        (["--preset", "seed-v3", "--shape", "1023x1025x1027"], "vectors of 4 floats need A's rows"),
        (["--shape", "0x5x5"], "m = 0 is out of range"),
        (["--config", "no/such/file"], "cannot read the config"),
    ],
)
def test_bad_input(words: list[str], complaint: str) -> None:
    code, out, err = run(*words)
    assert code == 2 and out == "" and complaint in err


def test_no_host_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    code, _, err = run("--preset", "seed-v3", "--shape", "256x256x8")
    assert code == 1 and "C++ compiler" in err and "work without it" in err
