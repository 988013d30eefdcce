"""Data, bounds and comparison, on host arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autotune import verify
from autotune.problems.sgemm import Sgemm


def sgemm(m: int = 24, n: int = 20, k: int = 32, **options: object) -> Sgemm:
    return Sgemm.parse(f"{m}x{n}x{k}", **options)


def fp32_product(problem: Sgemm, case: verify.Case) -> np.ndarray:
    """What an honest FP32 kernel gives, summed term by term."""
    a, b = case.inputs["a"], case.inputs["b"]
    a = a.swapaxes(1, 2) if problem.layout[0] == "t" else a
    b = b.swapaxes(1, 2) if problem.layout[1] == "t" else b
    total = np.zeros((problem.batch, problem.m, problem.n), np.float32)
    for k in range(problem.k):
        total += a[:, :, k : k + 1] * b[:, k : k + 1, :]
    total *= np.float32(problem.scalars["alpha"])
    if not problem.beta_zero:
        total += np.float32(problem.scalars["beta"]) * case.inputs["c"]
    return total


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("options", [{}, {"beta_zero": False}, {"batch": 3}])
def test_an_honest_kernel_passes_both_checks(layout: str, options: dict[str, object]) -> None:
    problem = sgemm(layout=layout, **options)
    exact = verify.exact_case(problem, 1)
    found = verify.compare(fp32_product(problem, exact), exact)
    assert (found.wrong, found.max_error) == (0, 0.0)
    assert found.compared == problem.batch * problem.m * problem.n
    rounded = verify.random_case(problem, 1)
    assert verify.compare(fp32_product(problem, rounded), rounded).is_right


@pytest.mark.parametrize("depth", [1, 8, 64, 4096, 65536, 2**20, 2**23, 2**24, 2**26])
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_partial_sums_of_the_integers_stay_exact(depth: int, scale: float) -> None:
    limit, share = verify.integer_range(depth, scale)
    assert limit >= 1
    assert scale * (depth * share + 1) * limit**2 <= 2**24
    if depth <= 2**22:
        assert share == 1.0, "every element counts"


def test_integer_data_is_random_nonzero_and_not_symmetric() -> None:
    problem = sgemm(32, 32, 32)
    case = verify.exact_case(problem, 3)
    for name in ("a", "b"):
        values = case.inputs[name][0]
        assert np.array_equal(values, np.rint(values))
        assert np.all(values != 0)
        assert (values < 0).any() and (values > 0).any()
        assert not np.array_equal(values, values.T)
    again, other = verify.exact_case(problem, 3), verify.exact_case(problem, 4)
    assert np.array_equal(case.inputs["a"], again.inputs["a"])
    assert not np.array_equal(case.inputs["a"], other.inputs["a"])
    assert not np.array_equal(case.inputs["a"], case.inputs["b"])


def test_dealing_rows_gives_the_whole_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    for options in ({}, {"layout": "tt"}, {"beta_zero": False}, {"batch": 2, "stride_b": 0}):
        problem = sgemm(500, 6, 40, **options)
        monkeypatch.setattr(verify, "_EXACT_REFERENCE_FLOPS", problem.flops // 5)
        case = verify.exact_case(problem, 0)
        whole, _ = problem.reference(case.inputs, problem.scalars)
        assert np.array_equal(case.expected, whole)
        distinct = len(np.unique(case.expected[0], axis=0))
        assert 90 <= distinct <= 100, "some hundred rows were dealt to 500"
        # No shift by a block, and no exchange of halves, maps rows onto equal ones.
        for step in (1, 32, 64, 128, 250):
            moved = np.roll(case.expected, step, axis=1)
            assert verify.compare(moved, case).wrong > 0.9 * case.expected.size


def test_random_rows_of_a_large_problem_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = sgemm(300, 8, 16, layout="tn", beta_zero=False)
    monkeypatch.setattr(verify, "_BOUNDED_REFERENCE_FLOPS", problem.flops // 10)
    case = verify.random_case(problem, 0)
    assert case.rows is not None and len(case.rows) == 30
    whole, bound = problem.reference(case.inputs, problem.scalars)
    assert np.allclose(case.expected, whole[:, case.rows], rtol=1e-15)
    assert np.allclose(case.bound, bound[:, case.rows], rtol=1e-12)
    result = fp32_product(problem, case)[:, case.rows]
    assert verify.compare(result, case).is_right
    result[0, 7, 3] += 1
    assert f"row {case.rows[7]} column 3" in verify.compare(result, case).message


@pytest.mark.parametrize("where", [(0, 0), (23, 19), (23, 0), (0, 19), (12, 10)])
def test_every_single_corrupted_element_is_caught(where: tuple[int, int]) -> None:
    problem = sgemm()
    case = verify.exact_case(problem, 0)
    result = case.expected.astype(np.float32)
    result[0, *where] += 1
    found = verify.compare(result, case)
    assert (found.wrong, found.compared) == (1, 480)
    assert found.max_error == math.inf
    assert f"row {where[0]} column {where[1]}: got {result[0, *where]:.9g}" in found.message


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_a_number_is_wrong_in_either_check(value: float) -> None:
    problem = sgemm()
    for case in (verify.exact_case(problem, 0), verify.random_case(problem, 0)):
        result = case.expected.astype(np.float32)
        result[0, 5, 5] = value
        found = verify.compare(result, case)
        assert (found.wrong, found.max_error) == (1, math.inf)


def test_zeros_and_untouched_poison_fail() -> None:
    problem = sgemm()
    case = verify.exact_case(problem, 0)
    zeros = verify.compare(np.zeros(case.expected.shape, np.float32), case)
    assert zeros.wrong > 0.9 * zeros.compared
    placement = verify.place(verify.output(problem), strict=True)
    poison = verify.elements(placement, verify.image(placement))
    assert verify.compare(poison, case).wrong == 480


def test_shapes_are_not_broadcast() -> None:
    case = verify.exact_case(sgemm(m=1, n=4, k=8), 0)
    turned = case.expected.astype(np.float32).swapaxes(1, 2)
    found = verify.compare(turned, case)
    assert not found.is_right
    assert found.message == "the result has shape (1, 4, 1), expected is (1, 1, 4)"


def test_pieces_of_a_large_result_are_all_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_BLOCK_ELEMENTS", 64)
    case = verify.exact_case(sgemm(batch=2), 0)
    result = case.expected.astype(np.float32)
    for batch, row, column in ((0, 23, 19), (1, 3, 0), (1, 23, 19)):
        result[batch, row, column] += 1
    found = verify.compare(result, case)
    assert (found.wrong, found.compared) == (3, 960)
    assert "first batch 0 row 23 column 19" in found.message


@pytest.mark.parametrize("k", [64, 1024, 16384, 262144])
@pytest.mark.parametrize("low", [0.0, -0.5])
def test_the_bound_grows_with_k_and_with_the_operands(k: int, low: float) -> None:
    problem = sgemm(2, 3, k)
    generator = np.random.default_rng(k)
    inputs = {
        "a": (generator.random((1, 2, k), np.float32) + np.float32(low)),
        "b": (generator.random((1, k, 3), np.float32) + np.float32(low)),
    }
    expected, bound = problem.reference(inputs, problem.scalars)
    case = verify.Case(inputs=inputs, expected=expected, bound=bound)
    terms = inputs["a"][0][:, :, None] * inputs["b"][0][None]
    summed = np.cumsum(terms, axis=1, dtype=np.float32)[:, -1][None]
    assert verify.compare(summed, case).max_error < 1
    if k == 64:
        dropped = expected.astype(np.float32) - terms[None, :, 9]
        assert verify.compare(dropped, case).wrong > 0


@pytest.mark.parametrize("k", [1, 16, 1024, 65536, 2**20])
def test_operands_cut_to_tf32_fail_the_fp64_check(k: int) -> None:
    problem = sgemm(4, 4, k)
    case = verify.random_case(problem, 0)
    cut = {
        name: (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
        for name, values in case.inputs.items()
    }
    result = problem.reference(cut, problem.scalars)[0].astype(np.float32)
    found = verify.compare(result, case)
    assert not found.is_right
    if k >= 65536:
        assert found.max_error < 1, "the bound of each element alone lets it pass"
        assert "of their bound, beyond" in found.message


def test_a_result_that_cancels_is_no_reason_to_fail() -> None:
    # One element in twenty is this close to zero, where the error is large beside the result.
    problem = sgemm(1, 1, 16384)
    failed = 0
    for seed in range(60):
        case = verify.random_case(problem, seed)
        products = case.inputs["a"].ravel() * case.inputs["b"].ravel()
        one_by_one = np.cumsum(products, dtype=np.float32)[-1:].reshape(1, 1, 1)
        failed += not verify.compare(one_by_one, case).is_right
    assert failed == 0


@pytest.mark.parametrize("k", [1, 16, 1024, 65536])
@pytest.mark.parametrize("options", [{}, {"beta_zero": False}])
def test_plain_fp32_sums_stay_far_below_the_norm_bound(k: int, options: dict[str, object]) -> None:
    problem = sgemm(6, 6, k, **options)
    case = verify.random_case(problem, 0)
    result = fp32_product(problem, case)
    assert verify.compare(result, case).is_right
    error = np.linalg.norm(result - case.expected) / np.linalg.norm(case.bound)
    assert error < case.norm_share / 4


@pytest.mark.parametrize("alignment", [16, 8, 4])
def test_strict_placement_is_aligned_exactly(alignment: int) -> None:
    operand = verify.output(sgemm(align_c=alignment))
    offset = verify.place(operand, strict=True).offset_bytes
    assert offset % alignment == 0 and offset % (2 * alignment) != 0
    relaxed = verify.place(operand, strict=False).offset_bytes
    assert relaxed % 256 == 0 if alignment == 16 else relaxed == offset


def test_images_are_poison_outside_of_the_elements() -> None:
    problem = sgemm(3, 5, 4, ldc=7, batch=2, stride_c=40)
    placement = verify.place(verify.output(problem), strict=True)
    values = np.arange(30, dtype=np.float32).reshape(2, 3, 5)
    words = verify.image(placement, values)
    assert np.array_equal(verify.elements(placement, words), values)
    assert np.count_nonzero(words != verify.POISON) == 30
    start = placement.offset_bytes // 4
    assert start * 4 >= verify.GUARD_BYTES
    assert words.size - start - placement.operand.span_elements >= verify.GUARD_BYTES // 4
    assert words.view(np.float32)[start + 7] == 5.0, "the second row starts at ldc"
    assert words.view(np.float32)[start + 40] == 15.0, "the second matrix at its stride"
    assert np.isnan(np.uint32(verify.POISON).view(np.float32))


def test_writes_outside_are_told_from_wrong_elements() -> None:
    problem = sgemm(3, 5, 4, ldc=7)
    case = verify.exact_case(problem, 0)
    placement = verify.place(verify.output(problem), strict=True)
    wanted = verify.image(placement, case.expected)
    assert verify.compare_images(placement, wanted.copy(), wanted).is_right
    start = placement.offset_bytes // 4
    for offset in (5, -1, placement.operand.span_elements):
        found = wanted.copy()
        found[start + offset] = 0
        message = verify.compare_images(placement, found, wanted).message
        assert message == (
            "1 words outside of c were written (padding between rows, or the guard zones), "
            f"first {4 * offset} bytes from its first element"
        )
    found = wanted.copy()
    found[start] += 1
    assert "1 of 15 elements are wrong" in verify.compare_images(placement, found, wanted).message


def test_zero_of_either_sign_is_right() -> None:
    placement = verify.place(verify.output(sgemm(1, 2, 1)), strict=True)
    plus = verify.image(placement, np.array([[[0.0, 1.0]]], np.float32))
    minus = verify.image(placement, np.array([[[-0.0, 1.0]]], np.float32))
    assert verify.compare_images(placement, minus, plus).is_right


def test_matrices_that_share_memory_get_the_values_that_lie_there() -> None:
    shared = sgemm(4, 5, 6, batch=3)
    object.__setattr__(shared, "stride_b", 0)
    case = verify.exact_case(shared, 0)
    assert np.array_equal(case.inputs["b"][0], case.inputs["b"][2])
    overlapping = sgemm(4, 5, 6, batch=3, stride_a=6)
    case = verify.exact_case(overlapping, 0)
    assert np.array_equal(case.inputs["a"][0, 1], case.inputs["a"][1, 0])
    whole, _ = overlapping.reference(case.inputs, overlapping.scalars)
    assert np.array_equal(case.expected, whole)


def test_needed_bytes_count_every_copy() -> None:
    megabyte = 2**20
    plain = verify.needed_bytes(sgemm(512, 512, 512))
    assert 6 * megabyte < plain < 7 * megabyte
    assert verify.needed_bytes(sgemm(512, 512, 512, beta_zero=False)) - plain > 2 * megabyte
    huge = verify.needed_bytes(sgemm(100_000, 100_000, 100_000))
    assert huge == pytest.approx(6 * 4e10, rel=1e-4), "and does not wrap"
