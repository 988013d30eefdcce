"""Primitives that no preset uses at its own: each compiles for the architectures that it is for."""

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
USES = [(("async",), ASYNC, arch) for arch in (80, 86, 89, 90, 100, 120)]


@pytest.mark.parametrize(("names", "use", "arch"), USES)
def test_a_primitive_compiles(names: tuple[str, ...], use: str, arch: int) -> None:
    folder = assets.folder("templates") / "primitives"
    texts = [(folder / f"{name}.cuh").read_text(encoding="utf-8") for name in ("vector", *names)]
    result = compile_one("\n".join((*texts, use)), arch)
    assert isinstance(result, Binary), result.log
    assert not re.search("warning", result.log), result.log
