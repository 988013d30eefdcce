"""Identity of a kernel family's templates. Needs no template engine: look-ups compare it too."""

from __future__ import annotations

import hashlib
import json
import tomllib
from functools import cache

from autotune import assets

LAUNCH_SECTIONS = ("launches", "workspaces", "nondeterministic", "tile")
"""Sections of a space file that say how a config is launched."""


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
    text = (assets.folder("search_spaces") / f"{kernel}.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    formulas = {
        name: {key: text for key, text in entry.items() if key != "meaning"}
        for name, entry in table.get("derived", {}).items()
    }
    rules = [formulas, *(table.get(name) for name in LAUNCH_SECTIONS)]
    digest.update(json.dumps(rules, sort_keys=True).encode())
    return digest.hexdigest()
