"""`autotune render`: the CUDA source of a config."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.cli import app, configs, options
from autotune.errors import UsageError


@click.command()
@configs.config_options
@options.arch_option(default="75", text="Architecture to render for, or native.")
@click.option(
    "--shape", default="2048x2048x2048", show_default=True, metavar="MxNxK",
    help="Guards are emitted for the sizes that do not divide.",
)  # fmt: skip
@click.option(
    "-o", "--output", "file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Write the source to this file.",
)  # fmt: skip
@options.problem_options
@app.log_options
def render(
    preset: str | None,
    config: str | None,
    arch: int | str,
    shape: str,
    space: str | None,
    file: Path | None,
    parse: options.ParseProblem,
) -> None:
    """Print the CUDA source of a config. Without --preset and --config: the default of the shape.

    \b
    Example:
      autotune render --preset seed-v3.2 --arch 75 --shape 2048x2048x2048
      autotune render --config '{"block_m": 64, "thread_m": 4}' -o kernel.cu
    """
    from autotune import archs, defaults
    from autotune import render as renderer
    from autotune import space as spaces

    number = options.number(arch)
    problem = parse(shape)
    family_space = spaces.load(problem.kernel, space)
    base = family_space.preset(preset) if preset else {}
    if config is not None:
        chosen = family_space.config({**base, **configs.values(config)})
    elif preset:
        chosen = family_space.preset(preset)
    else:
        chosen = defaults.default(problem, archs.get(number).typical, family_space)
    source = renderer.render(problem, chosen, number, family_space=family_space).source
    if file is None:
        click.echo(source, nl=False)
        return
    try:
        file.write_text(source, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from None
