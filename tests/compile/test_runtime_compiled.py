"""The runtime's binaries, made by the real compiler and found again in its cache."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from autotune import archs, defaults
from autotune.problems.sgemm import Sgemm
from autotune.render import render
from autotune.runtime import binary
from autotune.runtime.once import Once


@pytest.mark.parametrize("arch", [75, 90])
def test_a_kernel_is_compiled_once_and_then_found(
    arch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    caplog.set_level(logging.INFO, "autotune")
    device = archs.get(arch).typical
    problem = Sgemm(m=100, n=70, k=30)
    variant = render(problem, defaults.default(problem, device), arch, sm_count=device.sm_count)
    made = []
    for _ in range(2):
        monkeypatch.setattr(binary, "_binaries", Once())  # as in a new process
        made.append(binary.binary(variant, device))
    assert made[0] == made[1] and made[0].arch == arch
    assert b"sgemm" in made[0].cubin
    (line,) = [record.message for record in caplog.records]
    assert line == f"compiling a kernel for sgemm/100x70x30/nn on sm_{arch}"
