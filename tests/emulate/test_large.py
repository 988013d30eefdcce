"""Matrices past 2^31 elements, on some of their blocks and in little memory."""

from __future__ import annotations

import resource

import pytest
from kernels import emulate, said, variant

from autotune.problems.sgemm import Sgemm


@pytest.mark.parametrize(
    "problem",
    [
        # 2.8e9 elements of C, 11 GB.
        Sgemm(m=70_000, n=40_000, k=40),
        # The same of A and of B, in both layouts.
        Sgemm(m=300, n=200, k=20, lda=20_000_000, ldb=400_000_000),
        Sgemm(m=300, n=200, k=20, layout="tt", lda=400_000_000, ldb=20_000_000),
        # Each matrix is small, the batch is not.
        Sgemm(m=100, n=100, k=8, batch=3, stride_a=2**31, stride_b=2**31 + 1, stride_c=2**31 + 2),
    ],
    ids=lambda problem: problem.key,
)
def test_a_sample_of_a_huge_problem_is_right(problem: Sgemm) -> None:
    assert max(operand.span_elements for operand in problem.operands) > 2**31
    report = emulate(variant(problem, "seed-v3.1"), blocks="sample")
    assert report.verdict == "ok", said(report)
    assert report.blocks_run <= 12
    peak_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    assert peak_bytes < 2**30


def test_every_class_of_block_is_sampled() -> None:
    report = emulate(variant(Sgemm(m=70_000, n=40_000, k=8)), blocks="sample")
    # 546 whole rows of tiles and one of 112 rows; 312 whole columns and one of 64.
    assert {(part.rows, part.columns): part.blocks for part in report.classes} == {
        (128, 128): 546 * 312,
        (128, 64): 546,
        (112, 128): 312,
        (112, 64): 1,
    }
    assert all(part.blocks_run >= 1 for part in report.classes)
    assert report.blocks_total == 547 * 313
