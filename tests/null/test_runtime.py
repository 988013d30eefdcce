"""`sgemm` and `Gemm` against a driver of host memory: what is launched, with which arguments."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from fake_driver import FakeDriver, Shown
from runtime_helpers import Maker, configured, problems, product

import autotune
from autotune import errors
from autotune.runtime import arrays

# *** what is computed ***


def test_the_second_call_looks_nothing_up_and_loads_nothing(make: Maker, fake: FakeDriver) -> None:
    a, b, out = make(33, 17), make(17, 40), make(33, 40)
    assert np.array_equal(product(a, b, out), a @ b)
    fake.calls.clear()
    others = make(33, 17), make(17, 40), make(33, 40)
    assert np.array_equal(product(*others), others[0] @ others[1])
    driven = [name for name, _ in fake.calls if name != "cuPointerGetAttribute"]
    assert driven == ["cuCtxGetId", "cuLaunchKernel"]


def lying(make: Maker, rows: int, columns: int, way: str) -> np.ndarray:
    """A matrix that lies in a certain way."""
    match way:
        case "rows":
            return make(rows, columns)
        case "columns":
            return make(columns, rows).T
        case "padded":
            return make(rows, columns + 5)[:, 1 : columns + 1]
        case "padded columns":
            return make(columns, rows + 3)[:, :rows].T
        case _:
            return make(rows, columns, offset=1)


WAYS = ("rows", "columns", "padded", "padded columns", "off by four bytes")


@pytest.mark.parametrize("way_out", WAYS)
def test_views_are_read_and_written_where_they_lie(
    make: Maker, way_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(monkeypatch, "smallest")
    for way_a, way_b in itertools.product(WAYS, WAYS):
        a, b = lying(make, 6, 9, way_a), lying(make, 9, 7, way_b)
        out = lying(make, 6, 7, way_out)
        assert np.array_equal(product(a, b, out), a @ b), (way_a, way_b)
    letters = {key.split("/")[2] for key in problems()}
    assert letters == {"nn", "nt", "tn", "tt"}


def test_layouts_become_problems_of_the_same_name(make: Maker) -> None:
    a, b, out = make(32, 48), make(48, 64), make(32, 64)
    product(a, b, out)
    a_columns, b_columns = make(48, 32), make(64, 48)
    product(a_columns.T, b, out)
    product(a_columns, b_columns, out, trans_a=True, trans_b=True)
    product(make(32, 52)[:, :48], b, out)
    product(a, make(48, 65)[:, 1:], out)
    product(a, b, make(64, 32).T)
    assert problems() == [
        "sgemm/32x64x48/nn",
        "sgemm/32x64x48/tn",
        "sgemm/32x64x48/tt",
        "sgemm/32x64x48/nn/lda=52",
        "sgemm/32x64x48/nn/ldb=65/align_b=4",
        # A result by columns is the transpose of the product of the transposes.
        "sgemm/64x32x48/tt",
    ]


@pytest.mark.parametrize(("trans_a", "trans_b"), list(itertools.product([False, True], repeat=2)))
def test_transposing_on_request(make: Maker, trans_a: bool, trans_b: bool) -> None:
    a = make(9, 6) if trans_a else make(6, 9)
    b = make(7, 9) if trans_b else make(9, 7)
    expected = (a.T if trans_a else a) @ (b.T if trans_b else b)
    assert np.array_equal(product(a, b, make(6, 7), trans_a=trans_a, trans_b=trans_b), expected)


@pytest.mark.parametrize(
    ("shape_a", "shape_b"),
    [((1, 9), (9, 7)), ((6, 9), (9, 1)), ((6, 1), (1, 7)), ((1, 1), (1, 1)), ((1, 9), (9, 1))],
)
@pytest.mark.parametrize("way", WAYS)
def test_vectors(make: Maker, shape_a: tuple[int, int], shape_b: tuple[int, int], way: str) -> None:
    a, b = lying(make, *shape_a, way), lying(make, *shape_b, way)
    for out in (lying(make, shape_a[0], shape_b[1], other) for other in WAYS):
        assert np.array_equal(product(a, b, out), a @ b)


def test_a_strided_vector_is_a_column(make: Maker) -> None:
    a, b, out = make(6, 9), make(9, 20)[:, 3:4], make(6, 8)[:, 2:3]
    assert np.array_equal(product(a, b, out), a @ b)
    row, b = make(20, 9).T[3:4, ::2], make(10, 5)
    assert np.array_equal(product(row, b, make(1, 5)), row @ b)


# *** alpha and beta ***


def test_scalars(make: Maker) -> None:
    a, b, out = make(6, 9), make(9, 7), make(6, 7)
    old = out.copy()
    assert np.array_equal(product(a, b, out, alpha=2, beta=-0.5), 2 * (a @ b) - 0.5 * old)
    for alpha in (3, 3.0, np.float32(3), np.float64(3), np.int64(3), True + 2):
        assert np.array_equal(product(a, b, out, alpha=alpha), 3 * (a @ b))


def test_what_is_multiplied_by_zero_is_not_read(make: Maker) -> None:
    a, b, out = make(6, 9), make(9, 7), make(6, 7)
    out[...] = np.nan
    assert np.array_equal(product(a, b, out, beta=0), a @ b)
    out[...] = np.inf
    # Zero in FP32 is zero.
    assert np.array_equal(product(a, b, out, beta=1e-60), a @ b)
    a[...], out[...] = np.nan, 4
    assert np.all(product(a, b, out, alpha=0, beta=0.5) == 2)


@pytest.mark.parametrize("value", [1e39, "2", None, 1j, [1.0]])
def test_scalars_that_are_none(make: Maker, fake: FakeDriver, value: Any) -> None:
    arrays_ = make(6, 9), make(9, 7), make(6, 7)
    for name in ("alpha", "beta"):
        with pytest.raises(errors.UsageError, match=f"{name} is .* no number of FP32"):
            product(*arrays_, **{name: value})
    assert not fake.launches


def test_beta_needs_an_output(make: Maker) -> None:
    with pytest.raises(errors.UsageError, match=r"beta is 1\.0, but there is no out"):
        autotune.sgemm(Shown(make(2, 2)), Shown(make(2, 2)), beta=1)


# *** batches ***


def test_a_batch_is_one_launch(make: Maker, fake: FakeDriver) -> None:
    a, b, out = make(5, 6, 9), make(5, 9, 7), make(5, 6, 7)
    assert np.array_equal(product(a, b, out), a @ b)
    a, b = make(5, 9, 6), make(7, 5, 9)  # by columns, and with the batch between rows
    assert np.array_equal(
        product(a.swapaxes(1, 2), b.transpose(1, 2, 0), out),
        a.swapaxes(1, 2) @ b.transpose(1, 2, 0),
    )
    assert np.array_equal(product(a, b.transpose(1, 0, 2), out, trans_a=True, trans_b=True), out)
    assert len(fake.launches) == 3
    assert problems()[0] == "sgemm/6x7x9/nn/batch=5"


def test_one_b_for_all_is_one_product_of_more_rows(make: Maker, fake: FakeDriver) -> None:
    a, out = make(5, 6, 9), make(5, 6, 7)
    for b in (make(9, 7), make(1, 9, 7), np.broadcast_to(make(9, 7), (5, 9, 7)), make(7, 9).T):
        assert np.array_equal(product(a, b, out), a @ b)
    assert set(problems()) == {"sgemm/30x7x9/nn", "sgemm/30x7x9/nt"}
    # A row for each: they may be parted.
    a, b, out = make(5, 3, 9)[:, :1], make(9, 7), make(5, 2, 7)[:, 1:]
    assert np.array_equal(product(a, b, out), a @ b)
    assert problems()[-1] == "sgemm/5x7x9/nn/lda=27/ldc=14/align_c=4"
    assert len(fake.launches) == 5


def test_one_a_for_all_takes_turns(make: Maker, fake: FakeDriver) -> None:
    a, b, out = make(6, 9), make(5, 9, 7), make(5, 6, 7)
    assert np.array_equal(product(a, b, out), a @ b)
    assert len(fake.launches) == 5
    # 9 x 7 floats from one to the next: no multiple of 16 bytes.
    assert problems() == ["sgemm/6x7x9/nn/align_b=4/align_c=8"]


def test_results_that_lie_interlaced(make: Maker, fake: FakeDriver) -> None:
    a, b, whole = make(5, 6, 9), make(5, 9, 7), make(6, 5, 7)
    assert np.array_equal(product(a, b, whole.transpose(1, 0, 2)), a @ b)
    assert len(fake.launches) == 5


def test_a_batch_of_one_serves_all(make: Maker) -> None:
    one, many = make(1, 6, 9), make(5, 9, 7)
    assert np.array_equal(product(one, many, make(5, 6, 7)), one @ many)
    assert np.array_equal(product(one, make(9, 7), out := make(1, 6, 7)), out)
    assert problems()[-1] == "sgemm/6x7x9/nn"


# *** nothing to do ***


def test_empty_results_need_no_launch(make: Maker, fake: FakeDriver) -> None:
    for m, n in ((0, 7), (6, 0), (0, 0)):
        product(make(m, 9), make(9, n), make(m, n))
    product(make(0, 6, 9), make(0, 9, 7), make(0, 6, 7))
    assert not fake.launches and not problems()


def test_no_products_leave_beta_times_the_output(make: Maker) -> None:
    a, b, out = make(6, 0), make(0, 7), make(6, 7)
    old = out.copy()
    assert np.array_equal(product(a, b, out, beta=2), 2 * old)
    assert np.array_equal(product(a, b, out), np.zeros((6, 7)))
    assert problems()[0] == "sgemm/6x7x0/nn/beta"


# *** arrays that cannot be taken ***


def refused(
    fake: FakeDriver, kind: type[errors.ArrayError], operand: str, message: str, *arguments: Any,
    **options: Any,
) -> None:  # fmt: skip
    """The call is refused before a launch, and the next one works."""
    fake.launches.clear()
    with pytest.raises(kind, match=message) as caught:
        autotune.sgemm(*arguments, **options)
    assert type(caught.value) is kind
    assert caught.value.operand == operand
    assert str(caught.value).startswith(f"{operand} ")
    assert not fake.launches
    make = Maker(fake)
    a, b, out = make(3, 4), make(4, 5), make(3, 5)
    assert np.array_equal(product(a, b, out), a @ b)


def test_other_types(make: Maker, fake: FakeDriver) -> None:
    good = make(6, 6)
    for type_ in ("f8", "f2", "i4", "c8", ">f4", "V2"):
        bad = Shown(np.zeros((6, 6), type_))
        fake.place(bad.array)
        for operand, arguments in (
            ("a", (bad, Shown(good), Shown(make(6, 6)))),
            ("b", (Shown(good), bad, Shown(make(6, 6)))),
            ("out", (Shown(good), Shown(make(6, 6)), bad)),
        ):
            refused(fake, errors.DtypeError, operand, "not float32", *arguments)


@pytest.mark.parametrize(
    ("operand", "shapes", "message"),
    [
        ("b", ((6, 9), (8, 7), (6, 7)), "8 rows, but a has the shape .* 9 columns"),
        ("out", ((6, 9), (9, 7), (7, 6)), r"the product has \(6, 7\)"),
        ("out", ((6, 9), (9, 7), (1, 6, 7)), r"the product has \(6, 7\)"),
        ("a", ((9,), (9, 7), (7,)), "it must be a matrix, or a batch"),
        ("b", ((6, 9), (2, 2, 9, 7), (6, 7)), "it must be a matrix, or a batch"),
        ("b", ((2, 6, 9), (3, 9, 7), (2, 6, 7)), "is a batch of 3, but a is one of 2"),
    ],
)
def test_other_shapes(
    make: Maker, fake: FakeDriver, operand: str, shapes: Any, message: str
) -> None:
    given = [Shown(make(*shape)) for shape in shapes]
    refused(fake, errors.ArrayShapeError, operand, message, *given)


def test_transposing_is_named_where_shapes_do_not_fit(make: Maker, fake: FakeDriver) -> None:
    given = [Shown(make(*shape)) for shape in ((6, 9), (9, 7), (9, 7))]
    message = r"but a has the shape \(6, 9\) transposed, so 6 columns"
    refused(fake, errors.ArrayShapeError, "b", message, *given, trans_a=True)


def test_other_devices(make: Maker, fake: FakeDriver) -> None:
    a, b, out = make(6, 9), make(9, 7), make(6, 7)
    message = "b lies on device 1, but a on device 0"
    there = Shown(make(9, 7, device=1))
    refused(fake, errors.ArrayDeviceError, "b", message, Shown(a), there, Shown(out))
    message = "out lies on device 1"
    there = Shown(make(6, 7, device=1))
    refused(fake, errors.ArrayDeviceError, "out", message, Shown(a), Shown(b), there)
    message = "lies on the host, not on a GPU"  # NumPy's own, through DLPack
    refused(fake, errors.ArrayDeviceError, "b", message, Shown(a), b, Shown(out))


@pytest.mark.parametrize(
    "view",
    [
        lambda make: make(12, 18)[::2, ::2],
        lambda make: make(6, 9)[::-1],
        lambda make: make(6, 9)[:, ::-1],
        lambda make: np.broadcast_to(make(1, 9), (6, 9)),
        lambda make: np.broadcast_to(make(6, 1), (6, 9)),
        lambda make: np.lib.stride_tricks.as_strided(make(6, 9), (6, 9), (8, 4)),
        lambda make: np.lib.stride_tricks.as_strided(make(6, 9), (6, 9), (38, 4)),
        lambda make: make(2, 6, 9)[::-1],
    ],
)
def test_elements_that_are_no_matrix(make: Maker, fake: FakeDriver, view: Any) -> None:
    given = Shown(view(make))
    b, out = Shown(make(9, 7)), Shown(make(*given.array.shape[:-2], 6, 7))
    refused(fake, errors.StrideError, "a", "strides of", given, b, out)
    # And as an output.
    a, b = make(*given.array.shape[:-2], 6, 4), make(*given.array.shape[:-2], 4, 9)
    given.fields["data"] = (given.array.__array_interface__["data"][0], False)
    refused(fake, errors.StrideError, "out", "strides of", Shown(a), Shown(b), given)


def test_an_output_whose_batch_is_one_place(make: Maker, fake: FakeDriver) -> None:
    out = np.broadcast_to(make(1, 6, 7), (5, 6, 7))
    given = Shown(out, data=(out.__array_interface__["data"][0], False))
    message = "several elements lie in one place"
    refused(
        fake, errors.StrideError, "out", message, Shown(make(5, 6, 9)), Shown(make(9, 7)), given
    )


def test_addresses_between_floats(make: Maker, fake: FakeDriver) -> None:
    a, b, out = make(6, 9), make(9, 7), make(6, 7)
    crooked = Shown(make(9, 7), data=(b.ctypes.data + 2, False))
    message = "no multiple of 4 bytes"
    refused(fake, errors.AlignmentError, "b", message, Shown(a), crooked, Shown(out))


def test_read_only_outputs(make: Maker, fake: FakeDriver) -> None:
    a, b, out = make(6, 9), make(9, 7), make(6, 7)
    out.flags.writeable = False
    refused(fake, errors.ReadOnlyError, "out", "is read-only", Shown(a), Shown(b), Shown(out))
    a.flags.writeable = False
    assert np.array_equal(product(a, b, (free := make(6, 7))), free)


def test_outputs_that_share_elements_with_an_input(make: Maker, fake: FakeDriver) -> None:
    whole, b = make(8, 16), make(8, 8)
    a = whole[:, :8]
    for out in (a, whole[:, 4:12], whole.reshape(16, 8)[:8]):
        refused(fake, errors.OverlapError, "out", "memory with a", Shown(a), Shown(b), Shown(out))
    # Columns of one array between one another share none.
    assert np.array_equal(product(a, b, whole[:, 8:]), a @ b)
    # Also where a call of this kind was right before.
    beside = make(8, 8)
    product(beside, b, make(8, 8))
    refused(fake, errors.OverlapError, "out", "memory with b", Shown(beside), Shown(b), Shown(b))


def test_memory_that_is_gone(make: Maker, fake: FakeDriver) -> None:
    a, b, out = make(6, 9), make(9, 7), make(6, 7)
    product(a, b, out)
    gone = Shown(np.zeros((9, 7), np.float32))
    message = "no live context has memory"
    refused(fake, errors.ContextError, "b", message, Shown(a), gone, Shown(out))
    nowhere = Shown(b, data=(0, False))
    refused(fake, errors.ContextError, "b", message, Shown(a), nowhere, Shown(out))


def test_things_that_are_no_arrays(make: Maker, fake: FakeDriver) -> None:
    a, b, out = Shown(make(6, 9)), Shown(make(9, 7)), Shown(make(6, 7))
    refused(
        fake, errors.ArrayError, "a", r"is a builtins.list, which shows no memory", [[1]], b, out
    )
    refused(fake, errors.ArrayError, "b", "is a builtins.NoneType", a, None, out)
    masked = Shown(make(9, 7), mask=out)
    refused(fake, errors.ArrayError, "b", "has a mask", a, masked, out)

    class Shy:
        @property
        def __cuda_array_interface__(self) -> Any:
            raise AttributeError("requires grad")

    arrays.libraries[Shy] = arrays.Interface()
    refused(fake, errors.ArrayError, "a", "does not show its memory: requires grad", Shy(), b, out)
    with pytest.raises(errors.ArrayError, match="a does not show its memory: requires grad"):
        autotune.Gemm.like(Shy(), b, out)


def test_libraries_that_make_no_arrays_need_an_output(make: Maker, fake: FakeDriver) -> None:
    with pytest.raises(errors.UsageError, match=r"out is needed: fake_driver.Shown has no way"):
        autotune.sgemm(Shown(make(6, 9)), Shown(make(9, 7)))
    # What is wrong with the inputs is said first.
    bad = Shown(np.zeros((9, 7)))
    fake.place(bad.array)
    with pytest.raises(errors.DtypeError):
        autotune.sgemm(Shown(make(6, 9)), bad)


def test_every_error_of_arrays_is_a_usage_error_with_an_operand() -> None:
    kinds = [each for each in vars(errors).values() if isinstance(each, type)]
    of_arrays = [each for each in kinds if issubclass(each, errors.ArrayError)]
    assert len(of_arrays) == 9
    for kind in of_arrays:
        error = kind("out", "is wrong")
        assert isinstance(error, ValueError) and error.exit_code == 2
        assert (str(error), error.operand) == ("out is wrong", "out")
