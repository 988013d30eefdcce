"""The kernels that verify results compile for every architecture, without spills."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.compile import compile_one
from autotune.errors import CompilerError
from autotune.measure import probe
from autotune.types import Binary


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("arch", [75, 80, 86, 89, 90, 100, 120])
def test_compiles(arch: int) -> None:
    binary = compile_one(probe.SOURCE, arch)
    assert isinstance(binary, Binary)
    assert binary.spill_bytes == 0
    assert binary.registers <= 64, "eight blocks of 256 threads fit on an SM"
    for entry in ("differences", "checksum", "read", "delay"):
        assert f"autotune_{entry}".encode() in binary.cubin
    assert probe.build(arch) == binary.cubin


def test_a_source_that_does_not_compile_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "SOURCE", "this is no CUDA")
    with pytest.raises(CompilerError, match="do not compile for sm_75"):
        probe.build(75)
