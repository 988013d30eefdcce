"""Exported kernels run, and their own check finds them exact."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from export_kinds import KERNELS, KINDS, NVCC, Kind

from autotune import export
from autotune.problems.sgemm import Sgemm
from autotune.types import Device

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_exported_check_passes(kind: Kind, live: Device, tmp_path: Path) -> None:
    if NVCC is None:
        pytest.skip("no nvcc here")
    if live.arch < kind.lowest:
        pytest.skip(f"needs sm_{kind.lowest}")
    config = kind.config(live.arch)
    done = export.export(kind.problem, config, live.arch, tmp_path, sm_count=live.sm_count)
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
