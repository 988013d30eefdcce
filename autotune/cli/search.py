"""`autotune search`: find the fastest config, and remember it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotune.cli import app, options, shapes
from autotune.types import Evidence

if TYPE_CHECKING:
    from autotune.search import Outlook, Report
    from autotune.space import Space

EFFORTS = ("quick", "normal", "thorough")
SAMPLERS = ("auto", "gp", "tpe", "local", "random", "grid")


@click.command()
@options.arch_option(text="Architecture to search for: 75, 7.5, sm_75, or native, the GPU here.")
@options.shape_options("search for")
@click.option(
    "--effort",
    type=click.Choice(EFFORTS),
    default="normal",
    show_default=True,
    help="How long to search where neither --trials nor --budget says.",
)
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    metavar="N",
    help="Trials for each shape, those of earlier runs included.",
)
@click.option(
    "--budget", type=options.Duration(), metavar="TIME", help="Time for each shape: 90s, 10m, 2h."
)
@click.option(
    "--total-budget",
    type=options.Duration(),
    metavar="TIME",
    help="Time for all shapes together; it goes where it is expected to gain most.",
)
@click.option(
    "--patience",
    type=click.IntRange(min=1),
    metavar="N",
    help="End a shape's search after so many trials in a row that bring nothing better.",
)
@click.option(
    "--no-seed",
    "seeded",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Begin with the presets alone: without the bests of near shapes and other devices, what "
    "ships with the package, and what the model likes.",
)
@click.option(
    "--plan",
    "plan_only",
    is_flag=True,
    help="Print what is tuned, near or missing and how long a search would take; do nothing else.",
)
@options.seed_option("Of the random choices.")
@click.option(
    "--sampler",
    type=click.Choice(SAMPLERS),
    default="auto",
    show_default=True,
    help="How points are chosen: by a Gaussian process, with turns around the best (auto) or "
    "without (gp), Optuna's TPE, moves around the best, chance, or all in order.",
)
@options.device_option
@options.warm_option
@options.compiler_option
@options.door_option
@click.option("--space", metavar="FILE", help="Another search space of the same kernel family.")
@click.option(
    "--allow-nondeterministic",
    is_flag=True,
    help="Also try kernels that add in any order, so that roundings differ from run to run.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Compiler processes at a time.  [default: AUTOTUNE_JOBS, else one a CPU]",
)
@options.problem_options
@app.db_option
@app.output_options()
@app.log_options
@click.pass_context
def search(
    ctx: click.Context,
    *,
    arch: int | str,
    given: tuple[str, ...],
    file: Path | None,
    effort: str,
    trials: int | None,
    budget: float | None,
    total_budget: float | None,
    patience: int | None,
    seeded: bool,
    plan_only: bool,
    seed: int,
    sampler: str,
    device: str | None,
    warm: bool,
    compiler: str | None,
    door: str | None,
    space: str | None,
    allow_nondeterministic: bool,
    jobs: int | None,
    parse: options.ParseProblem,
    db: str | None,
    output: str | None,
) -> None:
    """Search for the fastest config of each shape, verify it, time it, and store everything.

    Without --shape and --shapes: 512, 1024, 2048 and 4096 cubed. The same command goes on where an
    interrupted one stopped, and with a larger budget where a finished one did. Where no GPU of the
    architecture is here, configs are compiled and predicted, and the results say so.

    \b
    Example:
      autotune search --shape 2048x2048x2048 --budget 2m
      autotune search --arch 75 --shapes shapes.txt --json
      autotune search --shapes shapes.txt --total-budget 2h --plan
    """
    from autotune import api
    from autotune import space as spaces
    from autotune.cli.progress import Listener
    from autotune.search import DEFAULT_SHAPES

    wanted = [parse(shape) for shape in given]
    if file is not None:
        wanted += [listed.problem for listed in shapes.read(file, parse)]
    problems = wanted or [parse(shape) for shape in DEFAULT_SHAPES]
    # What a plan and a search are asked alike.
    asked: dict[str, Any] = {
        "arch": arch,
        "device": device,
        "effort": effort,
        "trials": trials,
        "seconds": budget,
        "patience": patience,
        "total_seconds": total_budget,
        "store": db,
        "compiler": compiler,
        "cold": not warm,
    }
    if plan_only:
        _print_plan(api.plan(problems, **asked), total_budget, output)
        return
    family_space = spaces.load(problems[0].kernel, space) if space else None
    listener = Listener(verbosity=app.verbosity(), interactive=app.is_interactive())
    try:
        with listener:
            reports = api.search(
                problems,
                **asked,
                seeded=seeded,
                seed=seed,
                sampler=sampler,
                door=door,
                family_space=family_space,
                nondeterministic=allow_nondeterministic,
                jobs=jobs,
                argv=app.command_line(),
                listener=listener,
            )
    except KeyboardInterrupt:
        app.note(f"interrupted; every finished trial is stored. To go on:\n  {_same_command()}")
        ctx.exit(app.INTERRUPTED)
    _print(reports, output, family_space or spaces.load(problems[0].kernel))
    ctx.exit(_exit_code(reports))


def _print_plan(outlooks: Sequence[Outlook], total_s: float | None, output: str | None) -> None:
    from autotune.report import plan as report

    rows = [report.row(each) for each in outlooks]
    app.emit(rows, output, lambda: report.table_of(outlooks), columns=report.COLUMNS)
    if app.verbosity() >= 0:
        app.note(report.summary(outlooks, total_s))


def _print(reports: Sequence[Report], output: str | None, family_space: Space) -> None:
    from autotune.report import search as report

    rows = [report.row(each) for each in reports]
    app.emit(rows, output, lambda: report.bests(reports, family_space), columns=report.COLUMNS)
    failed = [each for each in reports if each.best is None]
    if app.verbosity() >= 0:
        app.note("")
        app.show(report.outcomes(reports), err=True)
        for line in (*report.reasons(reports), *report.paces(reports), *report.notes(reports)):
            app.note(line)
        if app.verbosity() > 0:
            for line in report.ties(reports, family_space):
                app.note(line)
        if any(each.evidence is Evidence.predicted for each in reports):
            app.note(_not_timed(reports))
    for each in failed:
        click.echo(f"Error: {each.problem.key}: {each.message or 'no config works'}", err=True)


def _not_timed(reports: Sequence[Report]) -> str:
    device = reports[0].device
    return (
        f"Nothing was timed: no GPU of sm_{device.arch} is here. The times above are predictions "
        f"for a {device.name}. On a machine that has the card, run:\n  {_same_command()}"
    )


def _exit_code(reports: Sequence[Report]) -> int:
    return 1 if any(each.status == "failed" or each.best is None for each in reports) else 0


def _same_command() -> str:
    return shlex.join(app.command_line())
