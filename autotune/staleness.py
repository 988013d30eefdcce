"""Whether a stored row was made by what is installed here, or by an older one.

A search takes up only rows of the template, compiler and driver that it runs with, and of configs
that its space still has; the others stay in the store, marked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from autotune import compile, device, space, templates
from autotune.errors import AutotuneError
from autotune.types import Config


@dataclass(frozen=True, slots=True)
class Today:
    """What is installed, asked once.

    Attributes:
        compiler: Label of the compiler that a search would take; empty where there is none.
        driver: Version of the driver; empty where there is none.
    """

    compiler: str
    driver: str

    @classmethod
    def here(cls) -> Today:
        """As this process finds it."""
        try:
            compiler = compile.find().label
        except AutotuneError:
            compiler = ""
        return cls(compiler=compiler, driver=device.driver_version())

    def changes(self, row: Mapping[str, Any]) -> str:
        """What has changed since a row of the views `results` or `best_config`: `template`,
        `space`, `compiler`, `driver`, with commas; empty when nothing has.

        A row of the other kind of compiler is not stale for that, nor one of another machine's
        driver where there is none here.
        """
        found = []
        family = _family(row["kernel"])
        if family is None:
            found.append("template")
        elif row.get("provider", "generated") == "generated":
            template, its_space = family
            if row["template_sha256"] != template:
                found.append("template")
            if not _has(its_space, str(row["config_json"])):
                found.append("space")
        kind, _, _ = row["compiler"].partition(" ")
        if self.compiler.startswith(f"{kind} ") and row["compiler"] != self.compiler:
            found.append("compiler")
        if self.driver and row["driver"] and row["driver"] != self.driver:
            found.append("driver")
        return ",".join(found)


@cache
def _family(kernel: str) -> tuple[str, space.Space] | None:
    """Digest of a family's template, and its space; None for a family that is not known here."""
    try:
        return templates.sha256(kernel), space.load(kernel)
    except AutotuneError:
        return None


def _has(its_space: space.Space, text: str) -> bool:
    """Whether a space still has a config; one that lacks younger parameters counts as having it."""
    try:
        its_space.config(Config.from_json(text))
    except (AutotuneError, ValueError, TypeError):
        return False
    return True
