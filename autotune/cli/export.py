"""`autotune export`: a kernel as files that need nothing of this package."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import click

from autotune.cli import app, configs, options
from autotune.errors import NotFoundError


@click.command(cls=app.ShapeCommand)
@click.argument("shape", metavar="MxNxK")
@options.arch_option(text="Architecture to export for: 90, sm_90, or native.")
@click.option(
    "-o", "--output", "folder", type=click.Path(path_type=Path, file_okay=False), required=True,
    metavar="DIR", help="Folder to write to; files of the same names are replaced.",
)  # fmt: skip
@configs.config_options
@options.problem_options
@app.db_option
@app.log_options
def export(
    shape: str,
    arch: int | str,
    folder: Path,
    preset: str | None,
    config: str | None,
    space: str | None,
    parse: options.ParseProblem,
    db: str | None,
) -> None:
    """Write the kernel for a shape as source, cubin, launch code and a program that checks it.

    What is written compiles with nvcc alone. Without --preset and --config it is the best known
    config, as `autotune lookup` finds it; the README beside it says how it is known.

    \b
    Example:
      autotune export 4096x4096x4096 --arch 90 -o sgemm-4096
      autotune export 1024x1024x1024 --arch 75 --preset seed-v3.2 -o sgemm-1024
    """
    from autotune import archs, device, templates
    from autotune import export as exporter
    from autotune import space as spaces
    from autotune.lookup import answer

    problem = parse(shape)
    here = None if isinstance(arch, int) else device.select()
    target = here or archs.get(options.number(arch)).typical
    family_space = spaces.load(problem.kernel, space)
    reason, known = "its config was given.", {}
    if preset or config is not None:
        base = family_space.preset(preset) if preset else {}
        chosen = family_space.config({**base, **(configs.values(config) if config else {})})
    else:
        found = answer(
            problem,
            arch=target.arch,
            device=here,
            store=db,
            template_sha256=templates.sha256(problem.kernel),
        )
        if found.config is None:
            raise NotFoundError(f"{problem.key}: {found.reason}")
        chosen, reason = found.config, f"{found.reason}."
        known = dataclasses.asdict(dataclasses.replace(found, config=None))
    written = exporter.export(
        problem,
        chosen,
        target.arch,
        folder,
        sm_count=target.sm_count,
        reason=reason,
        knowledge=known,
        family_space=family_space,
    )
    for file in written.files:
        click.echo(file)
    command = shlex.join(written.compile_command)
    app.note(f"to check it: cd {shlex.quote(str(folder))} && {command} && ./check")
