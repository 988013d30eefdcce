"""`autotune emulate`: whether a kernel is right, without a GPU."""

from __future__ import annotations

import click

from autotune.cli import app, configs, options


@click.command()
@configs.config_options
@options.arch_option(default="75", text="Architecture to render for, or native.")
@click.option(
    "--shape", default="512x512x512", show_default=True, metavar="MxNxK",
    help="Sizes to compute; ragged ones run the guards.",
)  # fmt: skip
@click.option(
    "--blocks", type=click.Choice(["all", "sample"]), default="sample", show_default=True,
    help="Run every block, or a few of each kind of tile and count for the rest.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of the data and the sample.")
@options.problem_options
@app.output_options("json")
@app.log_options
@click.pass_context
def emulate(
    ctx: click.Context,
    preset: str | None,
    config: str | None,
    arch: int | str,
    shape: str,
    blocks: str,
    seed: int,
    space: str | None,
    parse: options.ParseProblem,
    output: str | None,
) -> None:
    """Run a kernel's source on the CPU, watching every access and barrier; needs a C++ compiler.

    Finds races, wrong or missing results, accesses out of bounds, misaligned or unwritten, and
    barriers that not all threads reach, each with line, block, thread and address. Counts requests,
    wavefronts and bank conflicts by source line. Without --preset and --config: the default of the
    shape. The exit code is 1 where the kernel has a fault.

    \b
    Example:
      autotune emulate --preset seed-v3 --shape 2048x2048x2048
      autotune emulate --shape 129x127x65 --layout nt --blocks all
    """
    from autotune import archs
    from autotune import space as spaces
    from autotune.emulate import emulate as run
    from autotune.explain import choose
    from autotune.render import render
    from autotune.report import emulate as report

    number = options.number(arch)
    problem = parse(shape)
    family_space = spaces.load(problem.kernel, space)
    choice = choose(
        problem,
        archs.get(number).typical,
        preset=preset,
        values=None if config is None else configs.values(config),
        family_space=family_space,
    )
    variant = render(problem, choice.config, number, family_space=family_space)
    found = run(variant, blocks="all" if blocks == "all" else "sample", seed=seed)
    app.emit(report.as_object(variant, found), output, lambda: report.as_text(variant, found))
    if found.faults:
        ctx.exit(1)
