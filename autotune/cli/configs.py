"""How a config is given: `--config FILE` or `--config JSON`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from autotune.errors import UsageError


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
