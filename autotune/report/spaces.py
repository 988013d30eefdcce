"""A search space for people and for programs: how large, what it varies, what each rule removes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.text import Text

from autotune.report import text
from autotune.report.tables import table
from autotune.space import Constraint, Parameter, Space
from autotune.types import Problem, Scalar

Removed = Sequence[tuple[Constraint, int, int | None]]
"""For each constraint: raw points that break it, and points that break nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """A space counted for one problem and architecture."""

    space: Space
    problem: Problem
    arch: int
    valid: int
    removed: Removed


def as_object(survey: Survey) -> dict[str, Any]:
    """Everything, as one object."""
    space = survey.space
    return {
        "kernel": space.kernel,
        "path": str(space.path),
        "problem": survey.problem.key,
        "arch": survey.arch,
        "raw": space.raw_size,
        "valid": survey.valid,
        "constraints": [
            {
                "name": constraint.name,
                "rule": constraint.rule.text,
                "why": constraint.why,
                "removes": removes,
                **({} if alone is None else {"removes_alone": alone}),
            }
            for constraint, removes, alone in survey.removed
        ],
        "parameters": [
            {
                "name": parameter.name,
                "values": list(parameter.values),
                **({"opt_in": list(parameter.opt_in)} if parameter.opt_in else {}),
                "default": parameter.default,
                "meaning": parameter.meaning,
                **({"only": parameter.only} if parameter.only else {}),
            }
            for parameter in space.parameters
        ],
        "presets": {name: dict(config) for name, config in space.presets.items()},
    }


def as_text(survey: Survey) -> Group:
    """The same as tables."""
    space = survey.space
    sizes = Text(
        f"{space.kernel}: {space.raw_size:,} combinations of {len(space.parameters)} parameters; "
        f"{survey.valid:,} are valid for {survey.problem.key} on sm_{survey.arch}\n{space.path}\n"
    )
    # A space of one method has nothing to say of methods.
    only = ["method"] if len(space.methods) > 1 else []
    parameters = table(
        ["parameter", *only, "values", "default", "meaning"],
        [
            [
                p.name,
                *([p.only or "all"] if only else []),
                " ".join(_value(p, value) for value in p.values),
                str(p.default),
                p.meaning,
            ]
            for p in space.parameters
        ],
        left=["parameter", *only, "values", "meaning"],
        fold=["values", "meaning"],
        title="Parameters (values in brackets are tried only when asked for)",
    )
    return Group(sizes, parameters, Text(), _constraints(survey), Text(), _presets(space))


def _value(parameter: Parameter, value: Scalar) -> str:
    return f"({value})" if value in parameter.opt_in else str(value)


def _constraints(survey: Survey) -> Any:
    with_alone = any(alone is not None for _, _, alone in survey.removed)
    headings = ["constraint", "removes", "%", *(["alone"] if with_alone else []), "because"]
    rows = []
    for constraint, removes, alone in survey.removed:
        share = 100 * removes / survey.space.raw_size
        only = [f"{alone:,}"] if with_alone else []
        rows.append([constraint.name, f"{removes:,}", f"{share:.1f}", *only, constraint.why])
    return table(
        headings, rows, left=["constraint", "because"], fold=["because"], title="Constraints"
    )


def _presets(space: Space) -> Any:
    defaults = {parameter.name: parameter.default for parameter in space.parameters}
    rows = [[name, _changes(config, defaults)] for name, config in space.presets.items()]
    headings = ["preset", "differs from the defaults in"]
    return table(headings, rows, left=headings, fold=headings[1:], title="Presets")


def _changes(config: Mapping[str, Scalar], defaults: Mapping[str, Scalar]) -> str:
    changes = [f"{name} {value}" for name, value in config.items() if value != defaults[name]]
    return ", ".join(changes) or text.DASH
