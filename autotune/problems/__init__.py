"""Kernel families: one module and one class each, found by name.

A second family needs a template folder, a search-space file of the same name, and a class here.
"""

from __future__ import annotations

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
