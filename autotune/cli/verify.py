"""`autotune verify`: whether stored bests are still as fast as they claim, and right."""

from __future__ import annotations

import click

from autotune.cli import app, options
from autotune.errors import UsageError

TOLERANCE_PERCENT = 1.0


@click.command(cls=app.ShapeCommand)
@click.argument("shape", metavar="[MxNxK]", required=False)
@click.option("--all", "every", is_flag=True, help="Every stored best of this model of device.")
@options.arch_option(text="Architecture of the GPU to take: 75, 7.5, sm_75, or native.")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0.0),
    metavar="PERCENT",
    default=TOLERANCE_PERCENT,
    show_default=True,
    help="How far the new time may be from the claimed one, beyond what both intervals allow.",
)
@options.device_option
@options.door_option
@options.compiler_option
@options.problem_options
@app.db_option
@app.output_options()
@app.log_options
@click.pass_context
def verify(
    ctx: click.Context,
    *,
    shape: str | None,
    every: bool,
    arch: int | str,
    tolerance: float,
    device: str | None,
    door: str | None,
    compiler: str | None,
    parse: options.ParseProblem,
    db: str | None,
    output: str | None,
) -> None:
    """Verify and time a stored best config again, in a fresh process.

    Prints the claimed and the new time with what each median lies in, and the drift: above 0 % the
    kernel is slower than claimed. Exit code 1 where the two intervals are farther apart than the
    tolerance, or the result is wrong. The store is only read.

    \b
    Example:
      autotune verify 2048x2048x2048
      autotune verify --all --tolerance 2 --json
    """
    from autotune import drift
    from autotune.report import drift as report

    if every == (shape is not None):
        raise UsageError("name a shape, or --all for every stored best of this model of device")
    drifts = drift.verify_best(
        None if shape is None else [parse(shape)],
        arch=arch if isinstance(arch, int) else None,
        device_name=device,
        store=db,
        tolerance=tolerance / 100,
        door=door,
        compiler=compiler,
    )
    rows = [report.row(each) for each in drifts]
    app.emit(rows, output, lambda: report.table_of(drifts), columns=report.COLUMNS)
    for each in drifts:
        if not each.holds:
            click.echo(f"Error: {report.complaint(each)}", err=True)
    ctx.exit(0 if all(each.holds for each in drifts) else 1)
