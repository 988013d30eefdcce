"""`autotune devices`: the GPUs of this machine."""

from __future__ import annotations

import click

from autotune.cli import app


@click.command()
@app.output_options()
@app.log_options
def devices(output: str | None) -> None:
    """Show what each GPU has, and what keeps this machine from measuring well.

    \b
    Example:
      autotune devices
      autotune devices --json
    """
    from autotune import device
    from autotune.errors import DeviceError
    from autotune.report import devices as report

    missing = device.missing()
    try:
        present = device.devices()
    except DeviceError as error:
        # The first of what is missing is this very error.
        others = [f"\n{line}" for line in missing if line != str(error)]
        raise DeviceError(f"{error}{''.join(others)}") from None
    app.emit([report.row(each) for each in present], output, lambda: report.devices(present))
    for line in missing:
        app.note(line)
