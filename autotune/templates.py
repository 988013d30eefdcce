"""Identity of a kernel family's templates. Needs no template engine: look-ups compare it too."""

from __future__ import annotations

import hashlib
import json
import tomllib
from functools import cache

from autotune import assets


@cache
def sha256(kernel: str) -> str:
    """Digest of all that turns a config of the family into code and a launch.

    That is the family's templates, the primitives, and the derived values and launch rule of its
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
    formulas = {name: entry["value"] for name, entry in table.get("derived", {}).items()}
    digest.update(json.dumps([formulas, table["launch"]], sort_keys=True).encode())
    return digest.hexdigest()
