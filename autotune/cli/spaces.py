"""`autotune spaces`: how large a search space is, and why."""

from __future__ import annotations

import click

from autotune.cli import app, options


@click.command()
@options.arch_option(default="75", text="Architecture to count for, or native.")
@click.option(
    "--shape", default="2048x2048x2048", show_default=True, metavar="MxNxK",
    help="Shape to count for.",
)  # fmt: skip
@click.option("--space", metavar="FILE", help="Another search space of the same kernel family.")
@click.option(
    "--alone", is_flag=True,
    help="Also count what each constraint removes that no other one does. Takes a minute.",
)  # fmt: skip
@options.problem_options
@app.output_options("json")
@app.log_options
def spaces(
    arch: int | str,
    shape: str,
    space: str | None,
    alone: bool,
    parse: options.ParseProblem,
    output: str | None,
) -> None:
    """Show a search space: its size, parameters, constraints and presets.

    The sizes are exact: all combinations, those that are valid for the architecture and shape, and
    how many of all combinations each constraint removes.

    \b
    Example:
      autotune spaces
      autotune spaces --arch 90 --shape 1023x1025x1027 --json
    """
    from autotune import space as reader
    from autotune.report import spaces as report

    number = options.number(arch)
    problem = parse(shape)
    family_space = reader.load(problem.kernel, space)
    region = family_space.region(problem, number)
    survey = report.Survey(
        space=family_space,
        problem=problem,
        arch=number,
        valid=region.size,
        removed=region.removed(alone=alone),
    )
    app.emit(report.as_object(survey), output, lambda: report.as_text(survey))
