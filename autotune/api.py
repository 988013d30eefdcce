"""The library's own front: `search`, `plan`, `results` and `verify_best`, in terms of shapes and
names.

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
    from autotune.drift import Drift
    from autotune.search import Outlook, Report

View = Literal["results", "best", "failures", "vendor", "runs"]
_QUESTIONS = {
    "results": "results",
    "best": "bests",
    "failures": "failures",
    "vendor": "speedups",
    "runs": "runs",
}
"""View to the store's method."""
_MARKED = ("results", "best")
"""Views whose rows say what has changed since they were made."""


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
    from autotune.search import Budget
    from autotune.search import search as run

    return run(
        _problems(shapes, kernel, options),
        arch=_arch(arch),
        device_name=device,
        budget=Budget(trials=trials, seconds=seconds, patience=patience),
        total_seconds=total_seconds,
        effort_name=effort,
        **settings,
    )


def plan(
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
    store: str | Path | None = None,
    compiler: str | None = None,
    cold: bool = True,
) -> list[Outlook]:
    """What `search` with the same arguments would find known, and how long it would take.

    Reads the store and changes nothing.

    Raises:
        UsageError, DeviceError, CompilerError, StoreError: as `search`.
    """
    from autotune.search import Budget, batch, budget
    from autotune.search import plan as run

    limits = Budget(trials=trials, seconds=seconds, patience=patience, total_seconds=total_seconds)
    target, _ = batch.target(_arch(arch), device)
    return run(
        _problems(shapes, kernel, options),
        device=target,
        effort=budget.effort(effort).limited(limits),
        store=store,
        compiler=compiler,
        cold=cold,
    )


def verify_best(
    shapes: str | Problem | Sequence[str | Problem] | None = None,
    *,
    arch: int | str | None = None,
    device: str | None = None,
    kernel: str = problems.DEFAULT,
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> list[Drift]:
    """Verifies and times stored bests again, each in a fresh process; the store is only read.

    Args:
        shapes: As for `search`, but None for every stored best of the GPU.
        arch: Architecture of the GPU in any spelling; `native` or None for the first.
        device: CUDA index or UUID of the GPU.
        options: As for `search`.
        **settings: `store`, `tolerance`, `rounds`, `door` and `compiler`, as
            `autotune.drift.verify_best` has them.

    Raises:
        UsageError: a shape, option or architecture that does not exist.
        DeviceError: no such GPU.
        NotFoundError: no store, or no best of a shape on this model of device.
        StoreError: the store cannot be read.
        CompilerError: nothing here compiles for the device.
    """
    from autotune import drift

    wanted = None if shapes is None else _problems(shapes, kernel, options)
    return drift.verify_best(wanted, arch=_arch(arch), device_name=device, **settings)


def _problems(
    shapes: str | Problem | Sequence[str | Problem] | None,
    kernel: str,
    options: Mapping[str, Any] | None,
) -> list[Problem]:
    from autotune.search import DEFAULT_SHAPES

    listed = [shapes] if isinstance(shapes, str | Problem) else shapes or DEFAULT_SHAPES
    parsed = [
        problems.parse(shape, kernel, options or {}) if isinstance(shape, str) else shape
        for shape in listed
    ]
    return list(dict.fromkeys(parsed))


def _arch(arch: int | str | None) -> int | None:
    return None if arch in (None, "native") else archs.parse(arch)


def results(
    view: View = "results",
    *,
    store: str | Path | None = None,
    stale: bool | None = None,
    limit: int | None = None,
    **filters: Any,
) -> list[dict[str, Any]]:
    """Rows of the results store, each a dict of column names; db/README.md describes every column.

    Args:
        view: `results`, every trial; `best`, the confirmed best of each problem and device;
            `failures`; `vendor`, the best beside the vendor's library; `runs`, every search.
        stale: Only rows that something has changed since, or only the others. Rows of `results`
            and `best` have a column `stale` that says what: `template`, `space`, `compiler`,
            `driver`, with commas. A search takes up none of those.
        limit: Rows at most.
        **filters: `arch` in any spelling; `device`, a part of its name; any other column with the
            value to have; `sort`, a column, from high to low with a `-` before it.

    Raises:
        NotFoundError: no store there.
        StoreError: a file that is not a results store, or one of another schema.
        UsageError: a view or column that does not exist.
    """
    from autotune.staleness import Today
    from autotune.store import Store

    if view not in _QUESTIONS:
        raise UsageError(f"{view!r} is not a view; possible are {', '.join(_QUESTIONS)}")
    if stale is not None and view not in _MARKED:
        raise UsageError(f"only rows of {', '.join(_MARKED)} are stale or fresh, not of {view}")
    # What is stale is decided here, after the store has answered.
    asked = limit if stale is None else None
    with Store.open(store, read_only=True) as opened:
        ask = getattr(opened, _QUESTIONS[view])
        rows: list[dict[str, Any]] = ask(limit=asked, **filters)
    if view in _MARKED:
        today = Today.here()
        rows = [{**row, "stale": today.changes(row)} for row in rows]
        rows = [row for row in rows if stale in (None, bool(row["stale"]))][:limit]
    return rows


def columns(view: View) -> list[str]:
    """Names of a view's columns as `results` gives them."""
    from sqlalchemy import FromClause

    from autotune import views

    asked: dict[View, FromClause] = {
        "results": views.results,
        "best": views.best_config,
        "failures": views.failures,
        "vendor": views.speedup_vs_vendor,
        "runs": views.runs,
    }
    return [*asked[view].c.keys(), *(["stale"] if view in _MARKED else [])]


def compare_runs(
    run_ids: Sequence[int], *, store: str | Path | None = None
) -> list[dict[str, Any]]:
    """Runs of one problem beside each other: see `autotune.history.compare`.

    Raises:
        NotFoundError: no store there, or no such run.
        UsageError: fewer than two runs, or runs of several problems or devices.
    """
    from autotune import history
    from autotune.store import Store

    with Store.open(store, read_only=True) as opened:
        return history.compare(opened, run_ids)
