"""How configs are launched: the rules of a search-space file, and the plan of one config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from autotune.expressions import Expression
from autotune.types import Argument, Launch, LaunchPlan, Operand, TensorMap, Workspace

Kind = Literal["operand", "workspace", "tensor_map", "int32", "int64", "float32"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class MapRule:
    """A tensor map: of which operand, and expressions for the columns and rows of a box and for
    the bytes of a swizzled line."""

    operand: str
    box: tuple[Expression, Expression]
    swizzle_bytes: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentRule:
    """One argument, in the kernel's order; `when` is None where every config passes it, `map` where
    it is no tensor map."""

    kind: Kind
    name: str
    when: Expression | None
    map: MapRule | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRule:
    """One launch: expressions for grid, block and shared memory; `when` as above."""

    entry: str
    grid: tuple[Expression, ...]
    block: tuple[Expression, ...]
    shared_bytes: Expression
    arguments: tuple[ArgumentRule, ...]
    when: Expression | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceRule:
    """Memory that launches share beside the operands; `when` as above."""

    name: str
    size_bytes: Expression
    is_zeroed: bool
    when: Expression | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRules:
    """All that a family's file says of launching.

    Attributes:
        launches: In stream order.
        nondeterministic: When a config may give other bits in every run; None: never.
        tile: Rows and columns of the output that a block computes; None: one element.
    """

    launches: tuple[LaunchRule, ...]
    workspaces: tuple[WorkspaceRule, ...]
    nondeterministic: Expression | None
    tile: tuple[Expression, Expression] | None

    def expressions(self) -> Iterator[Expression]:
        """Every expression of the rules."""
        for launch in self.launches:
            yield from (*launch.grid, *launch.block, launch.shared_bytes)
            yield from _given(launch.when, *(argument.when for argument in launch.arguments))
            for argument in launch.arguments:
                if argument.map:
                    yield from (*argument.map.box, argument.map.swizzle_bytes)
        for workspace in self.workspaces:
            yield from _given(workspace.size_bytes, workspace.when)
        yield from _given(self.nondeterministic, *(self.tile or ()))

    def plan(self, environment: Mapping[str, Any], operands: Sequence[Operand]) -> LaunchPlan:
        """The plan of the config, problem and architecture that `environment` names."""
        return LaunchPlan(
            launches=tuple(
                _launch(rule, environment, operands)
                for rule in self.launches
                if _holds(rule, environment)
            ),
            workspaces=tuple(
                Workspace(
                    name=rule.name,
                    size_bytes=int(rule.size_bytes(environment)),
                    is_zeroed=rule.is_zeroed,
                )
                for rule in self.workspaces
                if _holds(rule, environment)
            ),
            is_deterministic=self.nondeterministic is None
            or not self.nondeterministic(environment),
            tile=(int(self.tile[0](environment)), int(self.tile[1](environment)))
            if self.tile
            else (1, 1),
        )


def _given(*expressions: Expression | None) -> Iterator[Expression]:
    return (expression for expression in expressions if expression is not None)


def _holds(rule: ArgumentRule | LaunchRule | WorkspaceRule, environment: Mapping[str, Any]) -> bool:
    return rule.when is None or bool(rule.when(environment))


def _map(
    rule: MapRule | None, environment: Mapping[str, Any], operands: Sequence[Operand]
) -> TensorMap | None:
    if rule is None:
        return None
    operand = next(each for each in operands if each.name == rule.operand)
    columns, rows, swizzle = (
        int(expression(environment)) for expression in (*rule.box, rule.swizzle_bytes)
    )
    return TensorMap(
        operand=operand.name,
        columns=operand.columns,
        rows=operand.rows,
        leading_dimension=operand.leading_dimension,
        box_columns=columns,
        box_rows=rows,
        swizzle_bytes=swizzle,  # type: ignore[arg-type]
    )


def _launch(
    rule: LaunchRule, environment: Mapping[str, Any], operands: Sequence[Operand]
) -> Launch:
    grid, block = (
        tuple(int(expression(environment)) for expression in expressions)
        for expressions in (rule.grid, rule.block)
    )
    return Launch(
        entry=rule.entry,
        grid=(grid[0], grid[1], grid[2]),
        block=(block[0], block[1], block[2]),
        shared_bytes=int(rule.shared_bytes(environment)),
        arguments=tuple(
            Argument(
                kind=argument.kind,
                name=argument.name,
                value=int(environment[argument.name]) if argument.kind in ("int32", "int64") else 0,
                tensor_map=_map(argument.map, environment, operands),
            )
            for argument in rule.arguments
            if _holds(argument, environment)
        ),
    )
