"""Finds `templates/`, `search_spaces/` and `db/`: inside the wheel, or beside the package."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from autotune.errors import AutotuneError

Name = Literal["templates", "search_spaces", "db"]


def folder(name: Name) -> Path:
    """The folder of that name.

    Raises:
        AutotuneError: neither the wheel nor the checkout has it, so the installation is broken.
    """
    package = Path(__file__).resolve().parent
    for candidate in (package / name, package.parent / name):
        if candidate.is_dir():
            return candidate
    raise AutotuneError(
        f"the folder {name}/ is missing beside {package}: the installation is incomplete; "
        "reinstall autotune-cuda"
    )
