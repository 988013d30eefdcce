import os
import stat

import pytest

from autotune import space
from autotune.analysis import sass
from autotune.compile import Cache, compile_one
from autotune.errors import CubinError, MissingExtraError
from autotune.problems.sgemm import Sgemm
from autotune.render import render

# One tile of C per block, 8 x 8 per thread, A transposed on its way to shared memory.
SGEMM = r"""
extern "C" __global__ void __launch_bounds__(256)
sgemm(int n, int k, const float* __restrict__ a, const float* __restrict__ b,
      float* __restrict__ c) {
  __shared__ __align__(16) float as[8][128];
  __shared__ __align__(16) float bs[8][128];
  int t = threadIdx.x, row = t / 16, column = t % 16;
  a += (blockIdx.y * 128 + t / 2) * k + t % 2 * 4;
  b += t / 32 * n + blockIdx.x * 128 + t % 32 * 4;
  float sum[8][8] = {};
  for (int k0 = 0; k0 < k; k0 += 8) {
    float4 from_a = *(const float4*)(a + k0);
    float4 from_b = *(const float4*)(b + (long long)k0 * n);
    __syncthreads();
    as[t % 2 * 4 + 0][t / 2] = from_a.x;
    as[t % 2 * 4 + 1][t / 2] = from_a.y;
    as[t % 2 * 4 + 2][t / 2] = from_a.z;
    as[t % 2 * 4 + 3][t / 2] = from_a.w;
    *(float4*)&bs[t / 32][t % 32 * 4] = from_b;
    __syncthreads();
#pragma unroll
    for (int s = 0; s < 8; ++s) {
      float x[8], y[8];
      *(float4*)x = *(float4*)&as[s][row * 4];
      *(float4*)(x + 4) = *(float4*)&as[s][64 + row * 4];
      *(float4*)y = *(float4*)&bs[s][column * 4];
      *(float4*)(y + 4) = *(float4*)&bs[s][64 + column * 4];
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) sum[i][j] += x[i] * y[j];
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int j = 0; j < 8; j += 4)
      *(float4*)&c[(blockIdx.y * 128 + i / 4 * 64 + row * 4 + i % 4) * n + blockIdx.x * 128 +
                   j / 4 * 64 + column * 4] = *(float4*)&sum[i][j];
}
"""

OTHERS = r"""
extern "C" __global__ void nested(float* c, const float* d, int n) {
  float whole = 0;
  for (int row = 0; row < n; ++row) {
    float part = 0;
#pragma unroll 16
    for (int i = 0; i < n; ++i) part += d[i] * d[i + row];
    whole = whole * part + d[row];
  }
  c[threadIdx.x] = whole;
}
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(const float4* c, float4* d) {
  float4 v[32];
#pragma unroll
  for (int i = 0; i < 32; ++i) v[i] = c[threadIdx.x + i * 1024];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    v[i].x += v[31 - i].y * v[i].z;
    v[i].w *= v[31 - i].x;
  }
#pragma unroll
  for (int i = 0; i < 32; ++i) d[threadIdx.x * i] = v[i];
}
extern "C" __global__ void narrow(const unsigned char* c, const double* d, double* e) {
  __shared__ double s[256];
  s[threadIdx.x] = d[threadIdx.x] * c[threadIdx.x];
  __syncthreads();
  e[threadIdx.x] = s[255 - threadIdx.x];
}
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    cache = Cache(tmp_path_factory.mktemp("cache"))
    return lambda source, arch: compile_one(source, arch, cache=cache).cubin


@pytest.fixture(scope="module")
def others(compiled):
    return compiled(OTHERS, 90)


@pytest.mark.parametrize("arch", [75, 80, 86, 89, 90, 120])
def test_the_main_loop_of_a_matrix_product(compiled, arch):
    found = sass.analyse(compiled(SGEMM, arch))
    assert found.entry == "sgemm"
    loop = found.loop
    # 8 k-steps of 8 x 8, four loads of 16 bytes each; a tile of A stored by float, of B by vector.
    assert loop.ffma == loop.opcodes["FFMA"] == 512
    assert loop.widths["LDS"] == {16: 32}
    assert loop.widths["STS"] == {4: 4, 16: 1}
    assert loop.widths["LDG"] == {16: 2}
    assert loop.widths["STG"] == {}
    assert loop.opcodes["BAR"] == 2
    assert 0.85 < loop.ffma_share == 512 / loop.instructions < 0.95
    assert 0.3 < loop.reuse_share < 2
    assert found.kernel.ffma == 512
    assert found.kernel.widths["STG"] == {16: 16}
    assert found.kernel.instructions > loop.instructions + 100
    assert found.kernel.ffma_share < loop.ffma_share
    assert "NOP" not in list(found.kernel.opcodes)[:3]
    assert (found.spill_loads, found.spill_stores) == (0, 0)


def test_loads_that_are_switched_off_are_no_accesses(compiled):
    """Beside cp.async ptxas puts `@!PT LDS RZ, [RZ]`, which takes its slot only."""
    problem = Sgemm(m=2048, n=2048, k=2048)
    kernels = space.load()
    config = kernels.fitted(kernels.preset("async-128x256x8"), problem, 90)
    variant = render(problem, config, 90)
    loop = sass.analyse(compiled(variant.body, 90), "sgemm").loop
    # 8 k-steps of 8 + 16 floats, by 16 bytes.
    assert loop.widths["LDS"] == {16: 8 * (8 + 16) // 4}
    assert loop.opcodes["LDS"] > sum(loop.widths["LDS"].values())


def test_the_inner_of_two_loops_counts(others):
    found = sass.analyse(others, "nested")
    assert found.loop.ffma == 16
    assert found.loop.widths["LDG"] == {4: 32}
    assert found.kernel.ffma > 16


def test_spills_and_no_loop(others):
    found = sass.analyse(others, "spilling")
    assert found.loop is None
    assert found.spill_stores == found.kernel.opcodes["STL"] > 0
    assert found.spill_loads == found.kernel.opcodes["LDL"] > 0


def test_widths_other_than_a_float(others):
    found = sass.analyse(others, "narrow").kernel
    assert found.widths["LDG"] == {1: 1, 8: 1}
    assert found.widths["STS"] == found.widths["LDS"] == found.widths["STG"] == {8: 1}
    assert found.ffma == 0
    assert (found.ffma_share, found.reuse_share) == (0.0, 0.0)


def test_which_kernel(others):
    with pytest.raises(CubinError, match=r"not said: the cubin .* has narrow, nested, spilling"):
        sass.analyse(others)
    with pytest.raises(CubinError, match=r"no kernel 'sgemm': .* has narrow, nested, spilling"):
        sass.analyse(others, "sgemm")


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda cubin: b"", id="empty"),
        pytest.param(lambda cubin: b"garbage" * 100, id="garbage"),
        pytest.param(lambda cubin: cubin[: len(cubin) // 2], id="cut off"),
    ],
)
def test_an_unreadable_cubin(others, damage):
    cubin = damage(others)
    with pytest.raises(
        CubinError,
        match=rf"cannot read the cubin of {len(cubin)} bytes: .*compile the kernel again",
    ):
        sass.analyse(cubin, "nested")


@pytest.fixture
def no_package(monkeypatch):
    """As if neither package nor toolkit were there."""
    monkeypatch.setattr(sass.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sass, "_TOOLKIT", sass.Path("/nowhere"))


def test_no_disassembler(no_package, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtraError, match=r"pip install 'autotune-cuda\[sass\]'"):
        sass.analyse(b"")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        pytest.param("echo unknown option >&2; exit 3", "unknown option", id="fails"),
        pytest.param("exit 9", "exit status 9", id="fails silently"),
        pytest.param("echo .text", "not the JSON that was asked for", id="old and chatty"),
        pytest.param("echo '[{}, 5]'", "not the JSON that was asked for", id="other JSON"),
    ],
)
def test_a_disassembler_of_another_age(no_package, monkeypatch, tmp_path, script, message):
    tool = tmp_path / "nvdisasm"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    assert sass.find_disassembler() == tool
    with pytest.raises(CubinError, match=message):
        sass.analyse(b"anything")
