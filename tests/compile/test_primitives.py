"""Primitives by themselves: each compiles for the architectures that it is for, in every width."""

from __future__ import annotations

import re

import pytest

from autotune import assets
from autotune.compile import compile_one
from autotune.types import Binary

ASYNC = """
extern "C" __global__ void use(const float* source, bool inside)
{
    extern __shared__ __align__(16) float shared[];
    copy_async<1>(shared, source);
    copy_async<2>(shared + 2, source);
    copy_async<4>(shared + 4, source);
    copy_async_if<1>(shared + 8, source, inside);
    copy_async_if<2>(shared + 10, source, inside);
    copy_async_if<4>(shared + 12, source, inside);
    commit_async();
    wait_async<2>();
}
"""
WORKSPACES = """
extern "C" __global__ void use(float* parts, unsigned* counter)
{
    store_workspace<1>(parts, load_workspace<1>(parts + 1));
    store_workspace<2>(parts + 2, load_workspace<2>(parts + 4));
    store_workspace<4>(parts + 8, load_workspace<4>(parts + 12));
    add_global<1>(parts, {1.0f * count_arrival(counter, 7)});
}
"""
WIDE_ADDS = """
extern "C" __global__ void use(float* c)
{
    add_global<2>(c, {});
    add_global<4>(c + 4, {});
}
"""
CLUSTERS = """
extern "C" __global__ void __cluster_dims__(2, 1, 1) use(float* c)
{
    extern __shared__ __align__(16) float shared[];
    cluster_barrier();
    store_global<1>(c, load_cluster<1>(shared, 1));
    store_global<2>(c + 2, load_cluster<2>(shared + 2, 1));
    store_global<4>(c + 4, load_cluster<4>(shared + 4, 1));
    cluster_barrier();
}
"""
COPY_ENGINE = """
extern "C" __global__ void __launch_bounds__(256)
use(const __grid_constant__ TensorMap map, int parity)
{
    extern __shared__ __align__(1024) float shared[];
    Mbarrier* const barrier = reinterpret_cast<Mbarrier*>(shared + 1024);
    barrier_init(barrier, 2);
    fence_barrier_init();
    if (threadIdx.x < 128)
        give_registers<24>();
    else
        take_registers<240>();
    barrier_expect(barrier, 4096);
    bulk_load_2d(shared, map, 0, 0, barrier);
    fence_async();
    warp_barrier();
    barrier_arrive(barrier);
    barrier_wait(barrier, parity);
}
"""
COPYING = ("mbarrier", "bulk", "registers", "warp")
USES = [
    *((("async", "async_if"), ASYNC, arch) for arch in (80, 86, 89, 90, 100, 120)),
    *((("workspace", "arrival", "atomic"), WORKSPACES, arch) for arch in (75, 80, 89, 90, 120)),
    *((("atomic",), WIDE_ADDS, arch) for arch in (90, 100, 120)),
    *((("global", "cluster"), CLUSTERS, arch) for arch in (90, 100, 120)),
    *((COPYING, COPY_ENGINE, arch) for arch in (90, 100, 120)),
]


@pytest.mark.parametrize(
    ("names", "use", "arch"), USES, ids=[f"{names[0]}-{arch}" for names, _, arch in USES]
)
def test_a_primitive_compiles(names: tuple[str, ...], use: str, arch: int) -> None:
    folder = assets.folder("templates") / "primitives"
    texts = [(folder / f"{name}.cuh").read_text(encoding="utf-8") for name in ("vector", *names)]
    result = compile_one("\n".join((*texts, use)), arch)
    assert isinstance(result, Binary), result.log
    assert not re.search("warning", result.log), result.log
