"""How a config is given: `--preset NAME`, `--config FILE` or `--config JSON`, in a `--space`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from autotune.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])


def config_options(command: Command) -> Command:
    """Adds --preset, --config and --space."""
    for decorate in (
        click.option(
            "--space", metavar="FILE", help="Another search space of the same kernel family."
        ),
        click.option(
            "--config",
            metavar="FILE|JSON",
            help="Values as JSON, or a file of it; what it does not name is the preset's, else the "
            "parameter's default.",
        ),
        click.option("--preset", metavar="NAME", help="A named config of the search space."),
    ):
        command = decorate(command)
    return command


def values(text: str) -> dict[str, Any]:
    """Parameter values from JSON, or from a file that holds it.

    Raises:
        UsageError: a file that cannot be read, or something that is not one JSON object.
    """
    place = "--config"
    if not text.lstrip().startswith("{"):
        place = text
        try:
            text = Path(text).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise UsageError(
                f"cannot read the config in {place}: {why}; give a file, or JSON in braces"
            ) from None
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"{place} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{place} must be one JSON object of parameter values")
    return found
