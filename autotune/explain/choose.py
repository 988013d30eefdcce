"""Which config is meant."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune import defaults, space, templates
from autotune.errors import NotFoundError, UsageError
from autotune.explain.parts import Choice
from autotune.lookup import answer
from autotune.space import Space
from autotune.types import Device, Problem


def choose(
    problem: Problem,
    device: Device,
    *,
    preset: str | None = None,
    values: Mapping[str, Any] | None = None,
    best: bool = False,
    store: str | Path | None = None,
    family_space: Space | None = None,
) -> Choice:
    """The config that is meant; without a word the default of the problem.

    Args:
        device: Live, or the typical one of an architecture; `best` asks for this model where it is
            live, for its architecture else.
        preset: A named config of the space.
        values: Parameter values; the rest are the preset's, else the parameters' defaults.
        best: What the store knows as best.
        store: Path or URL; None for the user's own.

    Raises:
        UsageError: `best` together with `preset` or `values`.
        InfeasibleError: an unknown preset, name or value, or no default serves the problem.
        NotFoundError: `best`, and there is not even a default.
    """
    chosen = family_space or space.load(problem.kernel)
    if best and (preset or values is not None):
        raise UsageError("the best config was asked for, and another one named; give only one")
    if best:
        found = answer(
            problem,
            arch=None if device.is_present else device.arch,
            device=device if device.is_present else None,
            store=store,
            template_sha256=templates.sha256(problem.kernel),
        )
        if found.config is None:
            raise NotFoundError(f"{problem.key}: {found.reason}")
        return Choice(
            config=found.config,
            origin=f"{found.match.replace('_', ' ')}: {found.reason}",
            match=found.match,
            time_ns=found.time_ns,
            evidence=found.evidence,
        )
    base = chosen.preset(preset) if preset else None
    if values is not None:
        whole = chosen.config({**(base or {}), **values})
        return Choice(config=whole, origin=f"given, on preset {preset}" if preset else "given")
    if base is not None:
        return Choice(config=base, origin=f"preset {preset}")
    return Choice(
        config=defaults.default(problem, device, chosen),
        origin=f"the default of sm_{device.arch} for this problem",
    )
