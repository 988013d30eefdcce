"""Reads a search-space file; every complaint names the file and the place."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune import archs
from autotune.errors import ArchitectureError, InfeasibleError, SpaceError
from autotune.expressions import Expression
from autotune.launches import (
    KINDS,
    ArgumentRule,
    LaunchRule,
    LaunchRules,
    MapRule,
    WorkspaceRule,
)
from autotune.space import METHOD, Constraint, Derived, Method, Parameter, Space, context
from autotune.types import Config, Problem, Scalar


class Reader:
    """Turns a TOML table into a `Space`; every complaint names the file and the place."""

    def __init__(self, file: Path, table: Mapping[str, Any]) -> None:
        self.file, self.table = file, table

    def fail(self, what: str) -> SpaceError:
        return SpaceError(f"{self.file}: {what}")

    def expression(self, text: object, place: str) -> Expression:
        if isinstance(text, int) and not isinstance(text, bool):
            text = str(text)
        if not isinstance(text, str):
            raise self.fail(f"{place} must be an expression, got {text!r}")
        try:
            return Expression(text)
        except SpaceError as error:
            raise self.fail(f"{place}: {error}") from None

    def optional(self, table: Mapping[str, Any], name: str, place: str) -> Expression | None:
        """The expression under a name that may be missing."""
        return self.expression(table[name], f"{place}: {name}") if name in table else None

    def table_of(
        self, table: Mapping[str, Any], place: str, required: Sequence[str], optional: str = ""
    ) -> Mapping[str, Any]:
        if not isinstance(table, Mapping):
            raise self.fail(f"{place} must be a table")
        for name in required:
            if name not in table:
                raise self.fail(f"{place} lacks {name!r}")
        if unknown := sorted(set(table) - set(required) - set(optional.split())):
            raise self.fail(f"{place} has an unknown entry {unknown[0]!r}")
        return table

    def starts_of(self, table: object) -> dict[int, tuple[str, ...]]:
        """The starts of architectures, by their numbers."""
        if not isinstance(table, Mapping):
            raise self.fail("starts_of must be a table of architectures")
        try:
            return {archs.get(int(arch)).number: tuple(names) for arch, names in table.items()}
        except (ValueError, ArchitectureError) as error:
            raise self.fail(f"starts_of: {error}") from None

    def space(self) -> Space:
        table = self.table_of(
            self.table, "the file", ["kernel", "parameters", "launches"],
            "derived constraints presets starts starts_of ladder adaptable workspaces "
            "nondeterministic tile",
        )  # fmt: skip
        parameters = tuple(self.parameter(n, e) for n, e in table["parameters"].items())
        if not parameters:
            raise self.fail("the space is empty: it has no parameters")
        methods = next((p.values for p in parameters if p.name == METHOD), ("",))
        for parameter in parameters:
            if parameter.only not in ("", *methods):
                raise self.fail(
                    f"parameters.{parameter.name}: {parameter.only!r} is not a method; possible "
                    f"are {', '.join(map(str, methods))}"
                )
        derived = tuple(self.derived(n, e, methods) for n, e in table.get("derived", {}).items())
        constraints = tuple(
            self.constraint(n, e) for n, e in enumerate(table.get("constraints", []))
        )
        rules = self.launch_rules(table)
        described = {
            str(method): self.method(
                str(method), str(table["kernel"]), parameters, derived, constraints, rules
            )
            for method in methods
        }
        for constraint in constraints:
            if not any(constraint.name in method.supports for method in described.values()):
                raise self.fail(
                    f"constraint {constraint.name!r} speaks of no method: it rests on parameters "
                    "of several"
                )
        space = Space(
            kernel=table["kernel"],
            path=self.file,
            parameters=parameters,
            derived=derived,
            constraints=constraints,
            presets={},
            whys=self.whys(table.get("presets", {})),
            starts=tuple(table.get("starts", [])),
            starts_of=self.starts_of(table.get("starts_of", {})),
            ladder=tuple(table.get("ladder", [])),
            adaptable=tuple(table.get("adaptable", [])),
            rules=rules,
            methods=described,
        )
        presets = self.presets(space, table.get("presets", {}))
        lists = {"starts": space.starts, "ladder": space.ladder}
        lists |= {f"starts_of.{arch}": names for arch, names in space.starts_of.items()}
        for list_name, names in lists.items():
            for name in names:
                if name not in presets:
                    raise self.fail(f"{list_name} names {name!r}, which is not a preset")
        for name in space.ladder:
            if name not in space.whys:
                raise self.fail(f"presets.{name} is a step of the ladder and lacks its why")
        for name in space.adaptable:
            if name not in {parameter.name for parameter in parameters}:
                raise self.fail(f"adaptable names {name!r}, which is not a parameter")
        for name, preset in presets.items():
            if preset != space.settled(preset):
                raise self.fail(f"presets.{name} has values of parameters of another method")
        object.__setattr__(space, "presets", presets)
        return space

    def parameter(self, name: str, entry: Any) -> Parameter:
        place = f"parameters.{name}"
        entry = self.table_of(entry, place, ["values", "meaning"], "default only opt_in")
        values = entry["values"]
        if not isinstance(values, list) or not values:
            raise self.fail(f"{place} has no values: the space is empty")
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int | str):
                raise self.fail(f"{place}: {value!r} is neither a whole number nor a text")
        if len(set(values)) < len(values) or len({type(value) for value in values}) > 1:
            raise self.fail(f"{place}: values must be different and of one type")
        default = entry.get("default", values[0])
        if default not in values:
            raise self.fail(f"{place}: the default {default!r} is not among the values")
        opt_in = tuple(entry.get("opt_in", []))
        if default in opt_in or not set(opt_in) < set(values):
            raise self.fail(f"{place}: opt_in must be some of the values, without the default")
        return Parameter(
            name=name,
            values=tuple(values),
            default=default,
            meaning=entry["meaning"],
            only=entry.get("only", ""),
            opt_in=opt_in,
        )

    def derived(self, name: str, entry: Any, methods: Sequence[Scalar]) -> Derived:
        place = f"derived.{name}"
        names = [str(method) for method in methods if method]
        entry = self.table_of(entry, place, ["meaning"], " ".join(["value", *names]))
        values = {
            "" if key == "value" else key: self.expression(text, place)
            for key, text in entry.items()
            if key != "meaning"
        }
        if not values:
            raise self.fail(f"{place} lacks 'value'")
        return Derived(name=name, values=values, meaning=entry["meaning"])

    def constraint(self, number: int, entry: Any) -> Constraint:
        entry = self.table_of(entry, f"constraint {number + 1}", ["name", "rule", "why"])
        rule = self.expression(entry["rule"], f"constraint {entry['name']}")
        return Constraint(name=entry["name"], rule=rule, why=entry["why"])

    def launch_rules(self, table: Mapping[str, Any]) -> LaunchRules:
        if not table["launches"]:
            raise self.fail("launches is empty: nothing would run")
        workspaces = tuple(self.workspace(entry) for entry in table.get("workspaces", []))
        names = frozenset(workspace.name for workspace in workspaces)
        return LaunchRules(
            launches=tuple(self.launch(entry, names) for entry in table["launches"]),
            workspaces=workspaces,
            nondeterministic=self.optional(table, "nondeterministic", "the file"),
            tile=self.tile(table["tile"]) if "tile" in table else None,
        )

    def tile(self, entry: Any) -> tuple[Expression, Expression]:
        if not isinstance(entry, list) or len(entry) != 2:
            raise self.fail("tile needs two expressions: rows and columns")
        return self.expression(entry[0], "tile"), self.expression(entry[1], "tile")

    def workspace(self, entry: Any) -> WorkspaceRule:
        entry = self.table_of(entry, "workspaces", ["name", "size_bytes", "zeroed"], "when")
        place = f"workspace {entry['name']}"
        if not isinstance(entry["zeroed"], bool):
            raise self.fail(f"{place}: zeroed must be true or false, got {entry['zeroed']!r}")
        return WorkspaceRule(
            name=entry["name"],
            size_bytes=self.expression(entry["size_bytes"], place),
            is_zeroed=entry["zeroed"],
            when=self.optional(entry, "when", place),
        )

    def launch(self, entry: Any, workspaces: frozenset[str]) -> LaunchRule:
        names = ["entry", "grid", "block", "shared_bytes", "arguments"]
        entry = self.table_of(entry, "launches", names, "when")
        place = f"launch {entry['entry']}"
        for name in ("grid", "block"):
            if len(entry[name]) != 3:
                raise self.fail(f"{place}: {name} needs three expressions: x, y, z")
        arguments = []
        for argument in entry["arguments"]:
            argument = self.table_of(
                argument, f"{place}: arguments", ["kind", "name"], "when operand box swizzle_bytes"
            )
            kind, name = argument["kind"], argument["name"]
            if kind not in KINDS:
                raise self.fail(f"{place}: {kind!r} is not a kind of argument")
            if kind == "workspace" and name not in workspaces:
                raise self.fail(f"{place}: there is no workspace {name!r}")
            when = self.optional(argument, "when", f"{place}: argument {name}")
            box = self.tensor_map(argument, place) if kind == "tensor_map" else None
            arguments.append(ArgumentRule(kind=kind, name=name, when=when, map=box))
        return LaunchRule(
            entry=entry["entry"],
            grid=tuple(self.expression(text, place) for text in entry["grid"]),
            block=tuple(self.expression(text, place) for text in entry["block"]),
            shared_bytes=self.expression(entry["shared_bytes"], place),
            arguments=tuple(arguments),
            when=self.optional(entry, "when", place),
        )

    def tensor_map(self, entry: Mapping[str, Any], place: str) -> MapRule:
        self.table_of(entry, place, ["kind", "name", "operand", "box", "swizzle_bytes"], "when")
        if len(entry["box"]) != 2:
            raise self.fail(f"{place}: box needs two expressions: columns, rows")
        columns, rows = (self.expression(text, place) for text in entry["box"])
        return MapRule(
            operand=entry["operand"],
            box=(columns, rows),
            swizzle_bytes=self.expression(entry["swizzle_bytes"], place),
        )

    def presets(self, space: Space, entries: Mapping[str, Any]) -> dict[str, Config]:
        presets: dict[str, Config] = {}
        for name, entry in entries.items():
            values = {key: value for key, value in entry.items() if key != "why"}
            base: Mapping[str, Scalar] = {}
            if (base_name := values.pop("base", None)) is not None:
                if base_name not in presets:
                    raise self.fail(f"presets.{name}: its base {base_name!r} must come before it")
                base = presets[base_name]
            try:
                presets[name] = space.config({**base, **values})
            except InfeasibleError as error:
                raise self.fail(f"presets.{name}: {error}") from None
        return presets

    def whys(self, entries: Mapping[str, Any]) -> dict[str, str]:
        whys: dict[str, str] = {}
        for name, entry in entries.items():
            if (why := entry.get("why")) is None:
                continue
            if not isinstance(why, str) or not why:
                raise self.fail(f"presets.{name}: its why must be a text, got {why!r}")
            whys[name] = why
        return whys

    def method(
        self,
        name: str,
        kernel: str,
        parameters: tuple[Parameter, ...],
        derived: tuple[Derived, ...],
        constraints: tuple[Constraint, ...],
        rules: LaunchRules,
    ) -> Method:
        """Check every name in every expression, and find what speaks of a method: what rests on no
        parameter of another one."""
        known: dict[str, frozenset[str]] = {p.name: frozenset([p.name]) for p in parameters}
        foreign = frozenset(p.name for p in parameters if p.only not in ("", name))
        for variable in _context_names(kernel):
            if variable in known:
                raise self.fail(
                    f"parameters.{variable}: the name already stands for something else"
                )
            known[variable] = frozenset()
        supports: dict[str, frozenset[str]] = {}
        formulas: dict[str, Expression] = {}

        def collect(expression: Expression, place: str) -> frozenset[str]:
            for read in expression.names:
                if read not in known:
                    raise self.fail(f"{place} uses the unknown name {read!r}")
            return frozenset().union(*(known[read] for read in expression.names))

        for entry in derived:
            if entry.name in known:
                raise self.fail(f"derived.{entry.name}: the name is taken")
            value = entry.values.get(name, entry.values.get(""))
            # What has formulas for other methods alone is theirs.
            known[entry.name] = collect(value, f"derived.{entry.name}") if value else foreign
            if value and not known[entry.name] & foreign:
                formulas[entry.name] = value
        for constraint in constraints:
            if constraint.name in supports:
                raise self.fail(f"two constraints are named {constraint.name!r}")
            place = f"constraint {constraint.name!r}"
            supports[constraint.name] = collect(constraint.rule, place)
            for read in re.findall(r"\{(\w+)\}", constraint.why):
                if read not in known:
                    raise self.fail(f"{place}: its reason uses the unknown name {read!r}")
                if known[read] & foreign and not supports[constraint.name] & foreign:
                    raise self.fail(f"{place}: its reason uses {read!r}, which {name} lacks")
        for expression in rules.expressions():
            collect(expression, "launching")
        if rules.nondeterministic is not None:
            named = {parameter.name for parameter in parameters}
            if others := sorted(rules.nondeterministic.names - named):
                raise self.fail(f"nondeterministic may read parameters alone, not {others[0]!r}")
        return Method(
            supports={rule: on for rule, on in supports.items() if not on & foreign},
            formulas=formulas,
            derived_supports={value: known[value] for value in formulas},
        )


def _context_names(kernel: str) -> frozenset[str]:
    from autotune.problems import family

    probe: Callable[..., Problem] = family(kernel).parse
    return frozenset(context(probe("1x1x1"), 75))
