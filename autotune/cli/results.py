"""`autotune results`: questions to the results store."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from autotune import api, problems
from autotune.cli import app, options
from autotune.errors import NotFoundError, ShapeError
from autotune.types import Outcome

TABLE_ROWS = 40
"""Rows that people are shown unless they say otherwise; programs get all."""


@click.group()
def results() -> None:
    """Query the results store.

    \b
    Example:
      autotune results best --arch 75
      autotune results list --shape 2048x2048x2048 --limit 10
      autotune results failures --csv
      autotune results compare 11 12
    """


def _question_options(default_sort: str) -> Callable[[Any], Any]:
    """Adds what all questions share: `filters`, `limit`, `db` and `output`."""

    def decorate(command: Any) -> Any:
        @functools.wraps(command)
        def wrapper(
            *, arch: int | str | None, device: str | None, shape: str | None, sort: str, **rest: Any
        ) -> Any:
            filters = {
                "arch": None if arch is None else options.number(arch),
                "device": device,
                "shape": shape and _normal(shape),
                "sort": sort,
            }
            return command(filters=filters, **rest)

        made: Any = wrapper
        for option in (
            app.log_options,
            app.output_options(),
            app.db_option,
            click.option("--limit", type=click.IntRange(min=0), metavar="N",
                         help=f"Rows at most, 0 for all.  [default: {TABLE_ROWS} in a table, "
                         "else all]"),
            click.option("--sort", metavar="COLUMN", default=default_sort, show_default=True,
                         help="Column to sort by; from high to low with a - before it."),
            click.option("--shape", metavar="MxNxK", help="Only this shape."),
            click.option("--device", metavar="NAME", help="Only devices with this in their name."),
            options.arch_option(default=None, text="Only this architecture."),
        ):  # fmt: skip
            made = option(made)
        return made

    return decorate


def _outcome_option(outcomes: list[str]) -> Callable[[Any], Any]:
    return click.option(
        "--outcome", type=click.Choice(outcomes), help="Only trials that ended like this."
    )


@results.command("list")
@_outcome_option(list(Outcome))
@click.option("--stale/--fresh", "stale", default=None,
              help="Only rows made by another template, space, compiler or driver than those here, "
              "or only the others.")  # fmt: skip
@_question_options("median_ns")
def list_(outcome: str | None, stale: bool | None, filters: dict[str, Any], **rest: Any) -> None:
    """Every trial: config, outcome, times, clocks, versions; `stale` says what has changed since.

    \b
    Example:
      autotune results list --arch 75 --shape 2048x2048x2048 --outcome ok --limit 10
      autotune results list --sort=-measured_at --json
    """
    _answer("results", {**filters, "outcome": outcome, "stale": stale}, "trials", **rest)


@results.command()
@_question_options("-id")
def runs(filters: dict[str, Any], **rest: Any) -> None:
    """Every search of a shape: when, with what budget, seed and starts, and what came of it.

    \b
    Example:
      autotune results runs --shape 2048x2048x2048
    """
    _answer("runs", filters, "runs", **rest)


@results.command()
@click.argument("run_ids", metavar="RUN...", type=int, nargs=-1, required=True)
@app.db_option
@app.output_options()
@app.log_options
def compare(run_ids: tuple[int, ...], db: str | None, output: str | None) -> None:
    """Two or more runs of one shape: trials and seconds until each came near the best.

    Near is within 5 % and within 1 % of the best time of all these runs. So a run with --no-seed
    beside one without shows what beginning with known configs saved.

    \b
    Example:
      autotune results runs --shape 2048x2048x2048
      autotune results compare 11 12
    """
    from autotune.report import results as report

    rows = api.compare_runs(run_ids, store=db)
    app.emit(rows, output, lambda: report.compared(rows))


@results.command()
@_question_options("-tflops")
def best(filters: dict[str, Any], **rest: Any) -> None:
    """The confirmed best config of each problem and device.

    \b
    Example:
      autotune results best --arch 75
      autotune results best --device h200 --csv
    """
    _answer("best", filters, "bests", **rest)


@results.command()
@_outcome_option([outcome for outcome in Outcome if outcome is not Outcome.ok])
@_question_options("-id")
def failures(outcome: str | None, filters: dict[str, Any], **rest: Any) -> None:
    """Trials that failed, with class and message; the newest first.

    --json and --csv give the whole message and the config, which `autotune render --config` takes.

    \b
    Example:
      autotune results failures --outcome compile_error --json
    """
    _answer("failures", {**filters, "outcome": outcome}, "failures", **rest)


@results.command()
@click.argument("question", metavar="SELECT")
@app.db_option
@app.output_options()
@app.log_options
def sql(question: str, db: str | None, output: str | None) -> None:
    """Answer one SELECT over the store's tables and views. It cannot change anything.

    db/README.md describes every column; the views are results, best_config, failures,
    speedup_vs_vendor and confirmed.

    \b
    Example:
      autotune results sql "SELECT shape, device, tflops FROM best_config ORDER BY tflops DESC"
      autotune results sql "SELECT outcome, count(*) AS trials FROM results GROUP BY 1" --csv
    """
    from autotune import query
    from autotune.report.tables import table

    names, found = query.ask(question, db)
    rows = [dict(zip(names, row, strict=True)) for row in found]
    cells = [["" if value is None else str(value) for value in row] for row in found]
    app.emit(rows, output, lambda: table(names, cells, left=names), columns=names)
    if not rows:
        raise NotFoundError("nothing in the results store answers that")


def _answer(
    view: api.View,
    filters: dict[str, Any],
    table: str,
    *,
    limit: int | None,
    db: str | None,
    output: str | None,
) -> None:
    from autotune.report import results as report

    if limit is None and output is None:
        limit = TABLE_ROWS
    # One row more than is shown tells whether something is left out.
    wanted = limit + 1 if limit else None
    rows = api.results(view, store=db, limit=wanted, **filters)
    more = limit and len(rows) > limit
    shown = rows[:limit] if more else rows
    if shown or output is not None:
        make = getattr(report, table)
        app.emit(shown, output, lambda: make(shown), columns=api.columns(view))
    if not shown:
        raise NotFoundError("nothing in the results store answers that")
    if more and output is None:
        app.note(f"the first {limit} rows; --limit 0 shows all")


def _normal(shape: str) -> str:
    """The shape as the store spells it."""
    error = ShapeError(f"{shape!r} is not a shape")
    for family in problems.FAMILIES.values():
        try:
            return family.parse(shape).shape
        except ShapeError as refusal:
            error = refusal
    raise error
