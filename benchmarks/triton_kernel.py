"""A matrix product in Triton in plain FP32, for comparison, with the tiles that are tried."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import triton
import triton.language as tl

TILES = (
    # block_m, block_n, block_k, warps, stages
    (16, 64, 64, 4, 3),
    (16, 128, 32, 4, 3),
    (32, 32, 64, 4, 3),
    (32, 64, 32, 4, 3),
    (32, 128, 32, 4, 3),
    (64, 16, 64, 4, 3),
    (64, 32, 32, 4, 3),
    (64, 64, 16, 4, 3),
    (64, 64, 32, 4, 3),
    (64, 64, 32, 8, 4),
    (64, 128, 16, 4, 3),
    (64, 128, 16, 8, 3),
    (128, 32, 32, 4, 3),
    (128, 64, 16, 4, 3),
    (128, 64, 16, 8, 3),
    (128, 64, 32, 8, 3),
    (128, 128, 8, 8, 3),
    (128, 128, 16, 8, 3),
    (128, 128, 16, 8, 4),
    (128, 128, 32, 8, 3),
    (128, 256, 16, 8, 3),
    (256, 128, 16, 8, 3),
)
GROUP = 8
"""Rows of tiles that are walked together."""


@triton.jit
def product(
    a, b, c, m, n, k,
    a_row, a_column, b_row, b_column, c_row, c_column, a_batch, b_batch, c_batch,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUPED: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """One tile of C a program; EVEN where every size is a multiple of its block."""
    tile = tl.program_id(0)
    batch = tl.program_id(1).to(tl.int64)
    tiles_n = tl.cdiv(n, BLOCK_N)
    in_group = GROUPED * tiles_n
    first_m = tile // in_group * GROUPED
    rows = min(tl.cdiv(m, BLOCK_M) - first_m, GROUPED)
    tile_m = first_m + tile % in_group % rows
    tile_n = tile % in_group // rows

    along_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    along_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    along_k = tl.arange(0, BLOCK_K)
    x_at = a + batch * a_batch + along_m[:, None] * a_row + along_k[None, :] * a_column
    y_at = b + batch * b_batch + along_k[:, None] * b_row + along_n[None, :] * b_column
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for done in range(0, k, BLOCK_K):
        if EVEN:
            x = tl.load(x_at)
            y = tl.load(y_at)
        else:
            inside = along_k < k - done
            x = tl.load(x_at, mask=(along_m[:, None] < m) & inside[None, :], other=0.0)
            y = tl.load(y_at, mask=inside[:, None] & (along_n[None, :] < n), other=0.0)
        total = tl.dot(x, y, total, input_precision="ieee")
        x_at += BLOCK_K * a_column
        y_at += BLOCK_K * b_row
    c_at = c + batch * c_batch + along_m[:, None] * c_row + along_n[None, :] * c_column
    if EVEN:
        tl.store(c_at, total)
    else:
        tl.store(c_at, total, mask=(along_m[:, None] < m) & (along_n[None, :] < n))


def launches(x: Any, y: Any, c: Any) -> dict[str, Callable[[], None]]:
    """For each tile a function that enqueues C = X Y, on tensors of (batch, rows, columns)."""
    return {"x".join(map(str, tile)): partial(_launch, x, y, c, *tile) for tile in TILES}


def _launch(
    x: Any, y: Any, c: Any, block_m: int, block_n: int, block_k: int, warps: int, stages: int
) -> None:
    batch, m, k = x.shape
    n = y.shape[2]
    grid = (triton.cdiv(m, block_m) * triton.cdiv(n, block_n), batch)
    product[grid](
        x, y, c, m, n, k,
        x.stride(1), x.stride(2), y.stride(1), y.stride(2), c.stride(1), c.stride(2),
        x.stride(0), y.stride(0), c.stride(0),
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUPED=GROUP,
        EVEN=m % block_m == 0 and n % block_n == 0 and k % block_k == 0,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
