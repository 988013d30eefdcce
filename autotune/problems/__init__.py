"""Kernel families: one module and one class each, found by name.

A second family needs a template folder, a search-space file of the same name, and a class here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.errors import UsageError
from autotune.problems.sgemm import Sgemm
from autotune.types import Problem

FAMILIES: dict[str, type[Problem]] = {Sgemm.kernel: Sgemm}
"""Every kernel family by name."""

DEFAULT = Sgemm.kernel
"""The family when none is named."""


def family(kernel: str) -> type[Problem]:
    """The problem class of a kernel family.

    Raises:
        UsageError: no such family.
    """
    if kernel not in FAMILIES:
        raise UsageError(f"{kernel!r} is not a kernel family; possible are {', '.join(FAMILIES)}")
    return FAMILIES[kernel]


def parse(shape: str, kernel: str = DEFAULT, options: Mapping[str, Any] = {}) -> Problem:
    """The problem that a shape stands for.

    Args:
        options: Further fields of the problem.

    Raises:
        UsageError: no such kernel family, or it has no such option.
        ShapeError: the text is not a shape, or a size is out of range.
    """
    try:
        return family(kernel).parse(shape, **options)
    except TypeError as error:
        raise UsageError(f"{kernel} has no such option: {error}") from None


def from_key(key: str) -> Problem:
    """The problem whose key is that text.

    Raises:
        UsageError: no such kernel family.
        ShapeError: no problem of the family has it.
    """
    return family(key.partition("/")[0]).from_key(key)
