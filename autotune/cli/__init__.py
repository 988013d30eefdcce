"""The command line: each command parses, calls one public function, prints, and sets the exit code.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 nothing found, 4 no usable device, 130 interrupted.
Data goes to stdout, everything else to stderr.
"""

from __future__ import annotations

import click

from autotune.cli import app
from autotune.cli.bench import bench
from autotune.cli.db import db
from autotune.cli.devices import devices
from autotune.cli.emulate import emulate
from autotune.cli.explain import explain
from autotune.cli.export import export
from autotune.cli.lookup import lookup
from autotune.cli.render import render
from autotune.cli.results import results
from autotune.cli.search import search
from autotune.cli.spaces import spaces
from autotune.cli.verify import verify


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        import autotune

        click.echo(f"autotune {autotune.__version__}")
        ctx.exit()


@click.group(
    cls=app.Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 nothing found, 4 no usable device, "
    "130 interrupted.",
)
@click.option("--version", is_flag=True, expose_value=False, is_eager=True,
              callback=_print_version, help="Print the version.")  # fmt: skip
@app.log_options
@click.pass_context
def main(ctx: click.Context) -> None:
    """Finds, verifies and remembers the fastest matrix-multiply kernel for an NVIDIA GPU.

    \b
    Example:
      autotune search --shape 2048x2048x2048
      autotune lookup 2048x2048x2048
      autotune results best
    """
    app.set_up(ctx)


for _command in (
    search,
    lookup,
    results,
    verify,
    devices,
    spaces,
    render,
    explain,
    emulate,
    bench,
    export,
    db,
):
    main.add_command(_command)
