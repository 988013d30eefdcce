"""`autotune explain`: what limits a config, and what to change next."""

from __future__ import annotations

import click

from autotune.cli import app, configs, options


@click.command(cls=app.ShapeCommand)
@click.argument("shape", metavar="MxNxK")
@options.arch_option(text="Architecture to explain for: 75, 7.5, sm_75, or native.")
@configs.config_options
@click.option("--best", is_flag=True, help="The best config that the results store knows.")
@click.option(
    "--profile", is_flag=True,
    help="Also count a launch with Nsight Compute (ncu) on a GPU of that architecture.",
)  # fmt: skip
@options.problem_options
@app.db_option
@app.output_options("json")
@app.log_options
@click.pass_context
def explain(
    ctx: click.Context,
    shape: str,
    arch: int | str,
    preset: str | None,
    config: str | None,
    best: bool,
    space: str | None,
    profile: bool,
    parse: options.ParseProblem,
    db: str | None,
    output: str | None,
) -> None:
    """Explain one config: who computes what, what it takes, what limits it, what to change next.

    Needs no GPU: registers and instructions come from the compiled kernel, accesses to memory from
    running some blocks of its source on the CPU, times from a model. Without --preset, --config and
    --best: the default of the shape. What cannot be had is named at the end; the exit code is 1
    only where that is the profile that --profile asks for.

    \b
    Example:
      autotune explain 2048x2048x2048 --arch 75 --preset seed-v3
      autotune explain 2048x2048x2048 --arch 75 --best --json | jq .moves
    """
    from autotune import archs, device
    from autotune import explain as explaining
    from autotune import space as spaces
    from autotune.report import explain as report

    problem = parse(shape)
    family_space = spaces.load(problem.kernel, space)
    if isinstance(arch, int) and not profile:
        target = archs.get(arch).typical
    else:
        target = device.select(arch if isinstance(arch, int) else None)
    choice = explaining.choose(
        problem,
        target,
        preset=preset,
        values=None if config is None else configs.values(config),
        best=best,
        store=db,
        family_space=family_space,
    )
    found = explaining.explain(problem, target, choice, family_space=family_space, profile=profile)
    app.emit(report.as_object(found), output, lambda: report.as_text(found))
    if profile and found.profile is None:
        ctx.exit(1)
