"""NVRTC in worker processes: realistic kernels, stuck ones, and workers that die."""

from __future__ import annotations

import os
import shutil
import signal
import time
import warnings
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.compile import Cache, Pool, compile_one, find
from autotune.errors import CompilerError
from autotune.types import Binary, Failure, Outcome


def sgemm(block_k: int, thread_n: int, unroll: int) -> str:
    """A plain register-staged, double-buffered kernel: 256 threads, tile 128 x (16 thread_n)."""
    block_n = 16 * thread_n
    return f"""
constexpr int BM = 128, BN = {block_n}, BK = {block_k}, TM = 8, TN = {thread_n};
constexpr int LA = BM * BK / 4 / 256, LB = BK * BN / 256;
extern "C" __global__ __launch_bounds__(256) void sgemm(
    const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
    int m, int n, int k) {{
  __shared__ __align__(16) float as[2][BK][BM], bs[2][BK][BN];
  const int t = threadIdx.x, row = t / 16 * TM, column = t % 16 * TN;
  a += size_t(blockIdx.y) * BM * k;
  b += blockIdx.x * BN;
  float4 next_a[LA];
  float next_b[LB], acc[TM][TN] = {{}};
  auto fetch = [&](int at) {{
    #pragma unroll
    for (int i = 0; i < LA; ++i) {{
      const int e = (t + i * 256) * 4;
      next_a[i] = *reinterpret_cast<const float4*>(&a[size_t(e / BK) * k + at + e % BK]);
    }}
    #pragma unroll
    for (int i = 0; i < LB; ++i) {{
      const int e = t + i * 256;
      next_b[i] = b[size_t(at + e / BN) * n + e % BN];
    }}
  }};
  auto put = [&](int buffer) {{
    #pragma unroll
    for (int i = 0; i < LA; ++i) {{
      const int e = (t + i * 256) * 4;
      as[buffer][e % BK][e / BK] = next_a[i].x;
      as[buffer][e % BK + 1][e / BK] = next_a[i].y;
      as[buffer][e % BK + 2][e / BK] = next_a[i].z;
      as[buffer][e % BK + 3][e / BK] = next_a[i].w;
    }}
    #pragma unroll
    for (int i = 0; i < LB; ++i) bs[buffer][(t + i * 256) / BN][(t + i * 256) % BN] = next_b[i];
  }};
  fetch(0);
  put(0);
  __syncthreads();
  for (int at = 0, buffer = 0; at < k; at += BK, buffer ^= 1) {{
    if (at + BK < k) fetch(at + BK);
    #pragma unroll {unroll}
    for (int q = 0; q < BK; ++q) {{
      float x[TM], y[TN];
      #pragma unroll
      for (int i = 0; i < TM; ++i) x[i] = as[buffer][q][row + i];
      #pragma unroll
      for (int j = 0; j < TN; ++j) y[j] = bs[buffer][q][column + j];
      #pragma unroll
      for (int i = 0; i < TM; ++i)
        #pragma unroll
        for (int j = 0; j < TN; ++j) acc[i][j] += x[i] * y[j];
    }}
    if (at + BK < k) put(buffer ^ 1);
    __syncthreads();
  }}
  #pragma unroll
  for (int i = 0; i < TM; ++i)
    #pragma unroll
    for (int j = 0; j < TN; ++j)
      c[size_t(blockIdx.y * BM + row + i) * n + blockIdx.x * BN + column + j] = acc[i][j];
}}
"""


def slow(terms: int) -> str:
    """ptxas needs more than half a minute for 2000 terms."""
    return f"""
extern "C" __global__ void slow(float* x) {{
  float a = x[0];
  #pragma unroll {terms}
  for (int i = 0; i < {terms}; ++i) a = fmaf(a, x[i], x[i ^ a > 0]);
  x[0] = a;
}}
"""


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "kernels")


def binary(result: Binary | Failure) -> Binary:
    assert isinstance(result, Binary), result.message
    return result


def worker_pids() -> set[int]:
    """Live compiler processes of this one."""
    children = Path("/proc/self/task").glob("*/children")
    pids = {int(pid) for file in children for pid in _read(file).split()}
    return {pid for pid in pids if "autotune.compile.worker" in _read(f"/proc/{pid}/cmdline")}


def _read(path: str | Path) -> str:
    """A file of /proc; empty where its process or thread has ended meanwhile."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _await_busy_worker() -> int:
    """The one worker, once it has used some CPU time on its job."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for pid in worker_pids():
            fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
            if fields and (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") > 0.8:
                return pid
        time.sleep(0.02)
    raise AssertionError("no worker became busy")


def test_realistic_kernels(cache: Cache) -> None:
    points = [(block_k, thread_n) for block_k in (8, 16) for thread_n in (4, 8)]
    with warnings.catch_warnings(), Pool(cache=cache) as pool:
        warnings.simplefilter("error")
        futures = [pool.submit(sgemm(*point, unroll=8), 75) for point in points]
        results = [binary(future.result()) for future in futures]
        assert (pool.compiles, pool.cache_hits) == (4, 0)
    for (block_k, thread_n), result in zip(points, results, strict=True):
        assert result.static_shared_bytes == 2 * 4 * block_k * (128 + 16 * thread_n)
        assert 8 * thread_n < result.registers <= 255
        assert result.spill_bytes == 0
    assert len({result.sha256 for result in results}) == 4
    assert worker_pids() == set()

    with Pool(cache=cache) as pool:
        again = [pool.submit(sgemm(*point, unroll=8), 75).result() for point in points]
        assert (pool.compiles, pool.cache_hits) == (0, 4)
        assert worker_pids() == set(), "the cache needs no process"
    assert again == results


def test_same_binary_in_and_out_of_the_pool(cache: Cache, tmp_path: Path) -> None:
    source = sgemm(8, 4, 8)
    with Pool(cache=cache, jobs=1) as pool:
        pooled = binary(pool.submit(source, 75).result())
    alone = binary(compile_one(source, 75, cache=Cache(tmp_path / "other")))
    assert pooled.sha256 == alone.sha256


def test_a_damaged_entry_is_compiled_again(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    first = binary(compile_one(sgemm(8, 4, 1), 75, cache=cache))
    (cubin,) = cache.folder.rglob("*.cubin")
    cubin.write_bytes(first.cubin[:1000])
    with Pool(cache=cache, jobs=1) as pool:
        second = binary(pool.submit(sgemm(8, 4, 1), 75).result())
        assert pool.compiles == 1
    assert second.sha256 == first.sha256
    assert cubin.read_bytes() == first.cubin
    assert len(caplog.records) == 1


def test_a_stuck_compile_is_killed_in_time(cache: Cache) -> None:
    with Pool(cache=cache, jobs=2) as pool:
        binary(pool.submit(sgemm(8, 4, 1), 75).result())
        started = time.monotonic()
        stuck = pool.submit(slow(2000), 75, timeout_s=0.5)
        good = pool.submit(sgemm(8, 4, 2), 75)
        result = stuck.result()
        assert 0.5 <= time.monotonic() - started < 1.5
        assert isinstance(result, Failure)
        assert result.outcome is Outcome.compile_timeout
        assert result.message == f"{find().label} for sm_75: not done within the limit of 0.5 s"
        assert binary(good.result()).static_shared_bytes == 12288
        assert len(worker_pids()) == 1, "the stuck process is gone, the other one lives"
        # A replacement starts when it is needed.
        both = [pool.submit(sgemm(8, 4, unroll), 75) for unroll in (4, 8)]
        assert all(isinstance(future.result(), Binary) for future in both)
    assert worker_pids() == set()


def test_time_limit_of_a_single_compile(cache: Cache) -> None:
    result = compile_one(slow(2000), 75, cache=cache, timeout_s=0.3)
    assert isinstance(result, Failure)
    assert result.outcome is Outcome.compile_timeout
    assert worker_pids() == set()


def test_a_killed_worker_costs_one_more_attempt(cache: Cache) -> None:
    with Pool(cache=cache, jobs=1) as pool:
        future: Future[Binary | Failure] = pool.submit(slow(450), 75)
        os.kill(_await_busy_worker(), signal.SIGKILL)
        assert binary(future.result()).spill_bytes == 0
        assert pool.compiles == 2


def test_killed_twice_names_the_signal(cache: Cache) -> None:
    with Pool(cache=cache, jobs=1) as pool:
        future = pool.submit(slow(2000), 75)
        killed = _await_busy_worker()
        os.kill(killed, signal.SIGKILL)
        while (second := _await_busy_worker()) == killed:
            pass
        os.kill(second, signal.SIGSEGV)
        result = future.result()
        assert isinstance(result, Failure)
        assert result.outcome is Outcome.crash
        assert "twice killed by SIGSEGV" in result.message
        assert binary(pool.submit(sgemm(8, 4, 1), 75).result()).arch == 75
        assert pool.compiles == 3


def test_an_idle_worker_that_died_is_replaced(cache: Cache) -> None:
    with Pool(cache=cache, jobs=1) as pool:
        pool.submit(sgemm(8, 4, 1), 75).result()
        (pid,) = worker_pids()
        os.kill(pid, signal.SIGKILL)
        assert isinstance(pool.submit(sgemm(8, 4, 2), 75).result(), Binary)
        assert worker_pids().isdisjoint({pid})


def test_closing_ends_stuck_workers_within_a_second(cache: Cache) -> None:
    with Pool(cache=cache, jobs=2) as pool:
        for terms in (2000, 2001, 2002):
            pool.submit(slow(terms), 75, timeout_s=None)
        _await_busy_worker()
        started = time.monotonic()
    assert time.monotonic() - started < 1.0
    assert worker_pids() == set()


def test_a_worker_with_another_library_is_refused(cache: Cache) -> None:
    """Another package may have loaded an NVRTC of its own into this process."""
    other = replace(find("nvrtc"), build="12.4.127")
    with (
        Pool(other, cache=cache, jobs=1) as pool,
        pytest.raises(CompilerError, match=r"find nvrtc .*this process has nvrtc 12\.4\.127"),
    ):
        pool.submit(sgemm(8, 4, 1), 75).result()
    assert worker_pids() == set()


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no CUDA toolkit here")
def test_nvcc_gives_the_same_kind_of_answer(cache: Cache) -> None:
    nvcc = find("nvcc")
    result = binary(compile_one(sgemm(8, 8, 8), 75, compiler=nvcc, cache=cache))
    assert result.compiler == nvcc.label
    assert result.cubin.startswith(b"\x7fELF")
    assert result.static_shared_bytes == 16384
    assert 64 < result.registers <= 255
    bad = compile_one("nonsense", 75, compiler=nvcc, cache=cache)
    assert isinstance(bad, Failure)
    assert "kernel.cu(1): error" in bad.message
