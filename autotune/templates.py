"""Identity of a kernel family's templates. Needs no template engine: look-ups compare it too."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from autotune import assets

LAUNCH_SECTIONS = ("launches", "workspaces", "nondeterministic", "tile")
"""Sections of a space file that say how a config is launched."""


def space_file(kernel: str) -> Path:
    """The family's own search-space file."""
    return assets.folder("search_spaces") / f"{kernel}.toml"


@cache
def space_table(kernel: str) -> Mapping[str, Any]:
    """What that file holds: parsed once, since that takes a good part of a first look-up.

    Raises:
        OSError, ValueError: it cannot be read, or is not TOML.
    """
    return tomllib.loads(space_file(kernel).read_text(encoding="utf-8"))


@cache
def sha256(kernel: str) -> str:
    """Digest of all that turns a config of the family into code and a launch.

    That is the family's templates, the primitives, and the derived values and launch rules of its
    space file. Values, constraints and presets are not part of it: they say which configs are
    tried, not what a config is.

    Raises:
        AutotuneError: the installation lacks the templates.
    """
    digest = hashlib.sha256()
    folder = assets.folder("templates")
    for file in sorted([*(folder / kernel).iterdir(), *(folder / "primitives").glob("*.cuh")]):
        digest.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes() + b"\0")
    table = space_table(kernel)
    formulas = {
        name: {key: text for key, text in entry.items() if key != "meaning"}
        for name, entry in table.get("derived", {}).items()
    }
    rules = [formulas, *(table.get(name) for name in LAUNCH_SECTIONS)]
    digest.update(json.dumps(rules, sort_keys=True).encode())
    return digest.hexdigest()
