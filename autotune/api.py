"""The library's own front: `search` and `results`, in terms of shapes and names.

`lookup` needs none; it is `autotune.lookup.lookup`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from autotune import archs, problems
from autotune.errors import UsageError
from autotune.types import Problem

if TYPE_CHECKING:
    from autotune.search import Report

View = Literal["results", "best", "failures", "vendor"]
_QUESTIONS = {
    "results": "results",
    "best": "bests",
    "failures": "failures",
    "vendor": "speedups",
}
"""View to the store's method."""


def search(
    shapes: str | Problem | Sequence[str | Problem] | None = None,
    *,
    arch: int | str | None = None,
    device: str | None = None,
    effort: str = "normal",
    trials: int | None = None,
    seconds: float | None = None,
    patience: int | None = None,
    total_seconds: float | None = None,
    kernel: str = problems.DEFAULT,
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> list[Report]:
    """Finds the fastest config of each shape, verifies it, times it, and stores everything.

    Where no GPU of `arch` is present, configs are compiled and predicted; the reports say so in
    `evidence`.

    Args:
        shapes: `"2048x2048x2048"`, a problem, or several; 512, 1024, 2048 and 4096 cubed by
            default.
        arch: Architecture in any spelling; `native` or None for the GPU that is here.
        device: CUDA index or UUID of the GPU; the first that fits `arch` by default.
        effort: `quick`, `normal` or `thorough`: how long, where none of the next three says.
        trials: Configs to try for each shape, those of earlier runs included.
        seconds: Wall time for each shape.
        patience: Trials in a row that bring nothing better.
        total_seconds: Wall time for all shapes together, in place of `seconds`; it goes where it
            is expected to gain most (`autotune.search.campaign`).
        kernel: Kernel family of the shapes that are texts.
        options: Further fields of their problems, for example `{"layout": "tn"}`.
        **settings: `seed`, `sampler`, `store`, `compiler`, `door`, `cold`, `family_space`,
            `nondeterministic`, `seeded`, `jobs` and `listener`, as `autotune.search.batch.search`
            has them.

    Returns:
        A report for each shape, in their order. One that failed says so in `status`.

    Raises:
        UsageError: a shape, option or architecture that does not exist.
        DeviceError: no GPU, and no `arch` named.
        CompilerError: no compiler serves the architecture or the driver.
        StoreError: the store cannot be opened or written.
        KeyboardInterrupt: as it came; every finished trial is stored, and the same call goes on.
    """
    from autotune.search import DEFAULT_SHAPES, Budget
    from autotune.search import search as run

    if shapes is None:
        shapes = DEFAULT_SHAPES
    listed = [shapes] if isinstance(shapes, str | Problem) else shapes
    parsed = [
        problems.parse(shape, kernel, options or {}) if isinstance(shape, str) else shape
        for shape in listed
    ]
    return run(
        list(dict.fromkeys(parsed)),
        arch=None if arch in (None, "native") else archs.parse(arch),
        device_name=device,
        budget=Budget(trials=trials, seconds=seconds, patience=patience),
        total_seconds=total_seconds,
        effort_name=effort,
        **settings,
    )


def results(
    view: View = "results", *, store: str | Path | None = None, **filters: Any
) -> list[dict[str, Any]]:
    """Rows of the results store, each a dict of column names; db/README.md describes every column.

    Args:
        view: `results`, every trial; `best`, the confirmed best of each problem and device;
            `failures`; `vendor`, the best beside the vendor's library.
        store: Path or URL; None for the user's own.
        **filters: `arch` in any spelling; `device`, a part of its name; any other column with the
            value to have; `sort`, a column, from high to low with a `-` before it; `limit`, a
            number of rows.

    Raises:
        NotFoundError: no store there.
        StoreError: a file that is not a results store, or one of another schema.
        UsageError: a view or column that does not exist.
    """
    from autotune.store import Store

    if view not in _QUESTIONS:
        raise UsageError(f"{view!r} is not a view; possible are {', '.join(_QUESTIONS)}")
    with Store.open(store, read_only=True) as opened:
        rows: list[dict[str, Any]] = getattr(opened, _QUESTIONS[view])(**filters)
    return rows
