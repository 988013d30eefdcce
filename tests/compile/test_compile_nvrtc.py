"""NVRTC itself: what it makes of sources whose result is known."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

from autotune.compile import Cache, check, compile_one, find
from autotune.errors import ArchitectureError
from autotune.types import Binary, Failure, Outcome

REVERSE = """
extern "C" __global__ void reverse(float* x) {
  __shared__ float tile[1024];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = tile[1023 - threadIdx.x];
}
"""
# 64 values are alive at once: they fit in 255 registers and not in 32.
MANY_VALUES = """
extern "C" __global__ void many_values(float* x) {
  float v[64];
  #pragma unroll
  for (int i = 0; i < 64; ++i) v[i] = x[i * blockDim.x + threadIdx.x];
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 64; ++i) x[(i * 37 % 64) * blockDim.x + threadIdx.x] = v[i] * v[63 - i];
}
"""
ON_STACK = """
extern "C" __global__ void on_stack(float* x, const int* at) {
  float v[256];
  for (int i = 0; i < 256; ++i) v[at[i]] = x[i];
  x[threadIdx.x] = v[at[threadIdx.x]];
}
"""


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "kernels")


def binary(result: Binary | Failure) -> Binary:
    assert isinstance(result, Binary), result.message
    return result


def failure(result: Binary | Failure) -> Failure:
    assert isinstance(result, Failure)
    return result


def test_identity() -> None:
    compiler = find("nvrtc")
    major, minor = compiler.version
    assert re.fullmatch(rf"nvrtc {major}\.{minor}\.\d+", compiler.label)
    package = "nvidia-cuda-nvrtc" + ("-cu12" if major == 12 else "")
    assert compiler.build == metadata.version(package)
    assert {75, 80, 86, 89, 90, 100, 120} <= compiler.archs


def test_the_library_is_of_the_major_version_of_the_binding() -> None:
    """Also where NVRTC 12 and 13 are both installed, as with the extra `cu12`."""
    assert str(find("nvrtc").version[0]) == metadata.version("cuda-bindings").split(".")[0]


@pytest.mark.parametrize("arch", [75, 80, 86, 87, 89, 90, 100, 103, 120, 121])
def test_every_architecture(cache: Cache, arch: int) -> None:
    check(find(), arch)
    result = binary(compile_one(REVERSE, arch, cache=cache))
    assert result.cubin.startswith(b"\x7fELF")
    assert f"'sm_{arch}{'a' if arch >= 90 else ''}'" in result.log
    assert (result.arch, result.compiler) == (arch, find().label)
    assert result.static_shared_bytes == 4096
    assert 4 <= result.registers <= 24
    assert (result.spill_bytes, result.stack_bytes) == (0, 0)
    assert 0 < result.compile_seconds < 30


def test_pascal_names_the_extra() -> None:
    if 60 in find().archs:
        pytest.skip("this is CUDA 12, which still serves it")
    with pytest.raises(ArchitectureError, match=r"sm_60.*autotune-cuda\[cu12\]"):
        check(find(), 60)


def test_registers_and_spills(cache: Cache) -> None:
    free = binary(compile_one(MANY_VALUES, 75, cache=cache))
    assert 64 < free.registers <= 255
    assert free.spill_bytes == 0
    tight = binary(compile_one(MANY_VALUES, 75, cache=cache, options=("--maxrregcount=32",)))
    assert tight.registers == 32
    assert tight.spill_bytes >= 2 * 4 * 32
    assert tight.sha256 != free.sha256


def test_stack(cache: Cache) -> None:
    assert binary(compile_one(ON_STACK, 75, cache=cache)).stack_bytes == 1024


def test_target_with_a_suffix(cache: Cache) -> None:
    source = 'extern "C" __global__ void k() { asm volatile("wgmma.fence.sync.aligned;"); }'
    plain = failure(compile_one(source, 90, cache=cache, target="sm_90"))
    assert "sm_90" in plain.message
    special = binary(compile_one(source, 90, cache=cache))
    assert (special.arch, special.registers > 0) == (90, True)
    assert "'sm_90a'" in special.log


def test_error_in_the_source(cache: Cache) -> None:
    result = failure(compile_one(REVERSE.replace("tile[1024]", "tyle[1024]"), 75, cache=cache))
    assert result.outcome is Outcome.compile_error
    assert result.message == (
        f'{find().label} for sm_75: kernel.cu(4): error: identifier "tile" is undefined'
    )
    assert "detected in the compilation" in result.log


def test_too_much_static_shared_memory_gives_the_numbers(cache: Cache) -> None:
    result = failure(compile_one(REVERSE.replace("[1024]", "[12289]"), 75, cache=cache))
    assert result.outcome is Outcome.compile_error
    assert "too much shared data (0xc004 bytes, 0xc000 max)" in result.message
    limit = binary(compile_one(REVERSE.replace("[1024]", "[12288]"), 75, cache=cache))
    assert limit.static_shared_bytes == 49152


def test_an_option_it_does_not_know(cache: Cache) -> None:
    result = failure(compile_one(REVERSE, 75, cache=cache, options=("--no-such-option",)))
    assert "--no-such-option" in result.message


def test_source_beyond_ascii(cache: Cache) -> None:
    result = binary(compile_one("// µs, 日本\n" + REVERSE, 75, cache=cache))
    assert result.static_shared_bytes == 4096


def test_second_time_from_the_cache(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_one(REVERSE, 75, cache=cache)
    monkeypatch.setattr("autotune.compile.nvrtc.build", None)
    assert compile_one(REVERSE, 75, cache=cache) == first


def test_a_cache_that_cannot_be_written_does_not_cost_the_result(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file")
    assert binary(compile_one(REVERSE, 75, cache=cache)).static_shared_bytes == 4096
    assert binary(compile_one(REVERSE, 80, cache=cache)).static_shared_bytes == 4096
    assert len(caplog.records) == 1
