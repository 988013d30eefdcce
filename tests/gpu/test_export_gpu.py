"""Exported kernels run, and their own check finds them exact."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from autotune import export, space
from autotune.problems.sgemm import Sgemm
from autotune.types import Device, Scalar

pytestmark = pytest.mark.gpu

KERNELS = space.load("sgemm")
NVCC = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")

KINDS: dict[str, tuple[Sgemm, int, str, dict[str, Scalar]]] = {
    "plain": (Sgemm.parse("1024x1024x1024"), 75, "seed-v3.2", {}),
    "nothing to add": (Sgemm.parse("300x200x0", beta_zero=False), 75, "small", {}),
    "workspace": (
        Sgemm.parse("515x770x2051", layout="tt", batch=2, beta_zero=False),
        75, "small", {"split_k": 8},
    ),
    "last": (
        Sgemm.parse("1000x1100x1300", layout="tn", ldc=1104),
        75, "small", {"split_k": 4, "split_k_mode": "last"},
    ),
    "atomic": (
        Sgemm.parse("1024x1024x4096", beta_zero=False),
        75, "small", {"split_k": 4, "split_k_mode": "atomic"},
    ),
    "cluster": (Sgemm.parse("512x512x4096"), 90, "small",
                {"split_k": 4, "split_k_mode": "cluster"}),
    "stream": (Sgemm.parse("3000x5000x777"), 75, "medium", {"schedule": "stream"}),
    "tma": (Sgemm.parse("4096x4096x4096"), 90, "tma-256x128x32", {}),
    "skinny": (Sgemm.parse("4x7680x2560"), 75, "skinny-columns-split", {}),
}  # fmt: skip
"""Problem, lowest architecture, preset and changes."""


@pytest.mark.parametrize("kind", KINDS)
def test_the_exported_check_passes(kind: str, live: Device, tmp_path: Path) -> None:
    if NVCC is None:
        pytest.skip("no nvcc here")
    problem, lowest, preset, changes = KINDS[kind]
    if live.arch < lowest:
        pytest.skip(f"needs sm_{lowest}")
    wanted = KERNELS.config({**KERNELS.preset(preset), **changes})
    config = KERNELS.fitted(wanted, problem, live.arch)
    assert config is not None, KERNELS.explain(wanted, problem, live.arch)
    done = export.export(problem, config, live.arch, tmp_path, sm_count=live.sm_count)
    command = [NVCC, *done.compile_command[1:]]
    compiled = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert compiled.returncode == 0, compiled.stderr
    ran = subprocess.run([tmp_path / "check"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "all exact" in ran.stdout and done.stem in ran.stdout


def test_the_exported_cubin_loads_and_has_the_named_kernels(live: Device, tmp_path: Path) -> None:
    from contextlib import closing

    from autotune import gpu

    problem = Sgemm.parse("1024x1024x1024")
    config = KERNELS.fitted(KERNELS.preset("small"), problem, live.arch)
    assert config is not None
    done = export.export(problem, config, live.arch, tmp_path)
    facts = json.loads((tmp_path / f"{done.stem}.json").read_text())
    with closing(gpu.choose("cuda-bindings").open(live.index)) as context:
        module = context.load((tmp_path / f"{done.stem}.cubin").read_bytes())
        for launch in facts["launches"]:
            assert module.kernel(launch["entry"]).registers == facts["registers"]
        module.unload()
