"""Generates, verifies, times and remembers the fastest FP32 matrix-multiply kernel for a GPU.

    import autotune

    autotune.search("2048x2048x2048")            # tune, and remember the best
    autotune.lookup(2048, 2048, 2048, arch=75)   # the best known config, and how it is known
    autotune.results("best", arch=75)            # what is in the store, as rows
    autotune.sgemm(a, b)                         # the product of arrays on a GPU, by that kernel

Importing the package loads none of its parts: each name is imported when it is first used, and
only searching, multiplying and asking for live devices touches the driver.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.api import compare_runs as compare_runs
    from autotune.api import plan as plan
    from autotune.api import results as results
    from autotune.api import search as search
    from autotune.api import verify_best as verify_best
    from autotune.drift import Drift as Drift
    from autotune.errors import AutotuneError as AutotuneError
    from autotune.lookup import Answer as Answer
    from autotune.lookup import lookup as lookup
    from autotune.runtime import Gemm as Gemm
    from autotune.runtime import sgemm as sgemm
    from autotune.search import Outlook as Outlook
    from autotune.search import Report as Report
    from autotune.store import Store as Store
    from autotune.types import Config as Config
    from autotune.types import Device as Device
    from autotune.types import Evidence as Evidence
    from autotune.types import Match as Match
    from autotune.types import Outcome as Outcome
    from autotune.types import Problem as Problem

_HOMES = {
    "Answer": "lookup",
    "AutotuneError": "errors",
    "Config": "types",
    "Device": "types",
    "Drift": "drift",
    "Evidence": "types",
    "Gemm": "runtime",
    "Match": "types",
    "Outcome": "types",
    "Outlook": "search",
    "Problem": "types",
    "Report": "search",
    "Store": "store",
    "compare_runs": "api",
    "lookup": "lookup",
    "plan": "api",
    "results": "api",
    "search": "api",
    "sgemm": "runtime",
    "verify_best": "api",
}
"""Public name to the module that defines it."""

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("autotune-cuda")
        except PackageNotFoundError:
            return "unknown (not installed)"
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value  # asked once: a launch takes no longer than this would every time
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps `search` and `lookup` the functions.

    Importing a submodule sets it as an attribute of its package. Two submodules share their name
    with a function, which is what a caller of `autotune.lookup(...)` means.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and name in _HOMES):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
