"""The constraint language: what it computes, and what it refuses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import SpaceError
from autotune.expressions import Expression


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3 - 4", 3),
        ("-7 // 2", -4),
        ("7 % 3", 1),
        ("ceil_div(7, 2)", 4),
        ("min(3, 2) + max(3, 2)", 5),
        ("1 < 2 <= 2 != 3", True),
        ("2 in (1, 2)", True),
        ("2 not in (1, 2)", False),
        ("'xor' in ('none', 'xor')", True),
        ("4 if 1 > 2 else 5", 5),
        ("not 0 and 1", True),
        ("0 or 0", False),
        ("a == 'row'", True),
    ],
)
def test_values(text, value):
    assert Expression(text)({"a": "row"}) == value


def test_names_leave_out_functions():
    assert Expression("min(a, b) if c else ceil_div(d, 2)").names == {"a", "b", "c", "d"}


@pytest.mark.parametrize(
    "text",
    [
        "a.__class__",
        "().__class__.__bases__",
        "__import__('os')",
        "open('x')",
        "[x for x in (1, 2)]",
        "lambda: 1",
        "a[0]",
        "f'{a}'",
        "2 ** 100",
        "1 if",
        "",
        "True",
        "1.5",
        "min(1, 2, 3)",
        "a is b",
        "b'x'",
        "(a := 1)",
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(SpaceError, match="expression"):
        Expression(text)


def test_true_division_names_the_alternative():
    with pytest.raises(SpaceError, match=r"write //"):
        Expression("a / 2")


def test_very_deep_nesting_is_an_error_and_not_a_crash():
    with pytest.raises(SpaceError):
        Expression("(" * 5000 + "1" + ")" * 5000)


@pytest.mark.parametrize("divisor", [0, np.array([1, 0])])
@pytest.mark.parametrize("text", ["4 // d", "4 % d", "ceil_div(4, d)"])
def test_division_by_zero(text, divisor):
    with pytest.raises(SpaceError, match="divides by zero"):
        Expression(text)({"d": divisor})


def test_arithmetic_on_text_is_refused():
    with pytest.raises(SpaceError, match="not a number"):
        Expression("a * 2")({"a": "x"})
    with pytest.raises(SpaceError, match="not a number"):
        Expression("a + 'y'")({"a": np.array(["x", "z"])})


def test_and_or_if_look_only_at_what_reaches_them():
    d = np.array([0, 2, 3])
    assert Expression("d > 0 and 6 % d == 0")({"d": d}).tolist() == [False, True, True]
    assert Expression("d == 0 or 6 // d > 2")({"d": d}).tolist() == [True, True, False]
    assert Expression("6 // d if d else 9")({"d": d}).tolist() == [9, 3, 2]
    assert Expression("d > 0 and 6 % d == 0")({"d": 0}) is False


_TEXTS = [
    "x + y * 3 - z",
    "x // max(y, 1) + z % max(x, 1)",
    "x > y and (z < 3 or x == y)",
    "not (x in (1, 2, y)) or z >= x",
    "x if y > z else min(x, z)",
    "(x < y < z) == (z != 1)",
    "ceil_div(x, max(z, 1)) * -y",
    "x and y % x == 0 or z",
]


@given(
    text=st.sampled_from(_TEXTS),
    rows=st.lists(st.tuples(*[st.integers(0, 5)] * 3), min_size=1, max_size=20),
)
def test_arrays_agree_with_single_values(text, rows):
    expression = Expression(text)
    columns = {name: np.array([row[i] for row in rows]) for i, name in enumerate("xyz")}
    together = expression(columns)
    alone = [expression(dict(zip("xyz", row, strict=True))) for row in rows]
    if text.endswith("or z"):  # Python's `or` gives the value, arrays give its truth
        alone = [bool(value) for value in alone]
    assert np.broadcast_to(np.asarray(together), len(rows)).tolist() == alone


@pytest.mark.parametrize("text", _TEXTS)
def test_no_candidates_are_no_values(text):
    none = np.array([], dtype=np.int64)
    assert len(np.atleast_1d(Expression(text)({"x": none, "y": none, "z": none}))) == 0
