"""Finds `templates/`, `search_spaces/` and `db/`: inside the wheel, or beside the package."""

from __future__ import annotations

from functools import cache
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


@cache
def revision() -> str:
    """Commit of the checkout that runs, with `+` where files differ; empty for a wheel."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return ""
    # Here, since look-ups import this module and never ask.
    import subprocess

    try:
        commit, changes = (
            subprocess.run(
                ["git", "-C", str(root), *arguments],
                capture_output=True,
                text=True,
                timeout=10,
                check=True,
            ).stdout.strip()
            for arguments in (["rev-parse", "HEAD"], ["status", "--porcelain"])
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return commit + ("+" if changes else "")
