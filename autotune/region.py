"""The valid points of a space for one problem and architecture: counted, numbered, sampled.

A space has up to 10^14 combinations, far too many to list. Parameters are added one at a time to a
table of partial configs; a constraint is applied as soon as all that it rests on is there, and a
parameter that no later constraint reads is folded away, rows that have become equal being merged
and their counts added (variable elimination). What remains is the exact number of valid points.
Walking the same tables backwards turns a number below that into the point of that number, so a
uniform sample, a sample without repeats and a full listing are all a matter of choosing numbers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import SpaceError
from autotune.space import METHOD, Constraint, Parameter, Space, context
from autotune.types import Config, Problem

Ints = NDArray[np.int64]

ROW_LIMIT = 20_000_000
"""Partial configs that a table may hold before counting gives up."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One parameter's table, its rows sorted by the group that they were folded into.

    Attributes:
        value: Index into the parameter's values, a row.
        parent: Group of the step before, a row.
        cumulative: Running sum over rows of the number of partial configs that a row stands for.
        first: Row at which a group starts; one more entry than there are groups.
    """

    parameter: Parameter
    value: NDArray[np.int16]
    parent: Ints
    cumulative: Ints
    first: Ints

    def split(self, groups: Ints, numbers: Ints) -> tuple[Ints, Ints]:
        """The row that holds each group's number, and the number within that row."""
        padded = np.concatenate(([0], self.cumulative))
        wanted = padded[self.first[groups]] + numbers
        rows = np.searchsorted(self.cumulative, wanted, side="right")
        return rows, wanted - padded[rows]


class Region:
    """The valid part of a space: that of each of its methods, one after the other.

    Raises:
        SpaceError: a constraint divides by zero, or there are too many partial configs to count.
    """

    def __init__(self, space: Space, problem: Problem, arch: int) -> None:
        self.space = space
        self.problem = problem
        self.arch = arch
        self._parts = {method: _Part(space, method, problem, arch) for method in space.methods}

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The space's dimensions, without the values of methods that have no valid point."""
        methods = tuple(method for method, size in self.sizes.items() if size)
        found = []
        for parameter in self.space.parameters:
            if parameter.name == METHOD:
                parameter = replace(parameter, values=methods)
            elif parameter.only not in ("", *methods):
                parameter = replace(parameter, values=(parameter.default,))
            found.append(parameter)
        return tuple(found)

    @property
    def sizes(self) -> dict[str, int]:
        """Number of valid points of each method."""
        return {method: part.size for method, part in self._parts.items()}

    @property
    def size(self) -> int:
        """Number of valid points."""
        return sum(self.sizes.values())

    def removed(self, *, alone: bool = False) -> list[tuple[Constraint, int, int | None]]:
        """What each constraint costs.

        Args:
            alone: Also count the points that would be valid without it, which takes seconds for
                each constraint of a large space.

        Returns:
            Each constraint, how many raw points break it, and how many break nothing else.
        """
        rows: list[tuple[Constraint, int, int | None]] = []
        for constraint in self.space.constraints:
            parts = [part for part in self._parts.values() if constraint in part.constraints]
            broken = sum(part.raw_size - part.count([constraint]) for part in parts)
            spared = None
            if alone:
                spared = sum(
                    part.count([other for other in part.constraints if other is not constraint])
                    - part.size
                    for part in parts
                )
            rows.append((constraint, broken, spared))
        return rows

    def unrank(self, numbers: Iterable[int]) -> list[Config]:
        """The points of these numbers, each from 0 to `size` - 1."""
        wanted = np.fromiter(numbers, dtype=np.int64)
        if len(wanted) and not (wanted.min() >= 0 and wanted.max() < self.size):
            raise IndexError(f"points are numbered 0 to {self.size - 1}")
        found: dict[int, Config] = {}
        first = 0
        for part in self._parts.values():
            (rows,) = np.nonzero((wanted >= first) & (wanted < first + part.size))
            found.update(zip(rows.tolist(), part.unrank(wanted[rows] - first), strict=True))
            first += part.size
        return [found[row] for row in range(len(wanted))]

    def sample(
        self, count: int, rng: np.random.Generator, exclude: Collection[Config] = ()
    ) -> list[Config]:
        """Different valid points, as many of each method, of which each is equally likely.

        Methods differ in size by powers of ten, which says nothing about where good points lie.

        Args:
            count: How many; fewer come back when the region has no more.
            exclude: Points that must not be among them.
        """
        parts = [part for part in self._parts.values() if part.size]
        if len(parts) == 1:
            return parts[0].sample(count, rng, exclude)
        found: dict[Config, None] = {}
        # A method that runs out leaves its share to the others.
        while parts and len(found) < count:
            missing = count - len(found)
            shares = np.full(len(parts), missing // len(parts))
            shares[rng.permutation(len(parts))[: missing % len(parts)]] += 1
            taken = {*exclude, *found}
            drawn = [
                part.sample(int(share), rng, taken)
                for part, share in zip(parts, shares, strict=True)
            ]
            found.update(dict.fromkeys(config for configs in drawn for config in configs))
            parts = [
                part
                for part, share, configs in zip(parts, shares, drawn, strict=True)
                if len(configs) == share
            ]
        configs = list(found)
        return [configs[index] for index in rng.permutation(len(configs))]

    def neighbours(self, config: Config, changes: int = 1) -> list[Config]:
        """The valid points that differ from `config` in exactly 1 or 2 parameters."""
        method = self.space.method(config)
        moves = [
            (parameter, value)
            for parameter in self.space.parameters
            for value in parameter.values
            if value != config[parameter.name]
        ]
        own = [(p.name, value) for p, value in moves if p.only in ("", method)]
        if changes == 1:
            return self.valid([config.but(**{name: value}) for name, value in own])
        pairs = [
            ((name, value), (other, changed))
            for index, (name, value) in enumerate(own)
            for other, changed in own[index + 1 :]
            if other != name
        ]
        # Where the method moves, parameters of the other one may move with it.
        foreign = [(p.name, value) for p, value in moves if p.only not in ("", method)]
        pairs += [(move, other) for move in own if move[0] == METHOD for other in foreign]
        return self.valid([config.but(**dict(pair)) for pair in pairs])

    def valid(self, configs: Sequence[Config]) -> list[Config]:
        """Those of the configs that keep every constraint, in their order."""
        kept: set[int] = set()
        for method, part in self._parts.items():
            mine = [i for i, config in enumerate(configs) if self.space.method(config) == method]
            kept.update(part.valid(configs, mine))
        return [config for index, config in enumerate(configs) if index in kept]


class _Part:
    """The valid points of one method."""

    def __init__(self, space: Space, method: str, problem: Problem, arch: int) -> None:
        self.space = space
        self.method = method
        self.parameters = space.parameters_of(method)
        self.constraints = space.constraints_of(method)
        self.raw_size = space.raw_size_of(method)
        self._method = space.methods[method]
        own = {parameter.name for parameter in self.parameters}
        self._foreign = {p.name: p.default for p in space.parameters if p.name not in own}
        self._context = {**context(problem, arch), METHOD: method}
        self._values = {p.name: np.array(p.values) for p in self.parameters}

    @cached_property
    def size(self) -> int:
        """Number of valid points."""
        return _size(self._steps)

    @cached_property
    def _steps(self) -> list[_Step]:
        return self._eliminate(self.constraints, self.parameters)

    def count(self, constraints: Sequence[Constraint]) -> int:
        """Number of points that keep these constraints."""
        read = frozenset[str]().union(*(self._method.supports[c.name] for c in constraints))
        # The rest multiply what is left, past what 64 bits hold.
        free = [p for p in self.parameters[1:] if p.name not in read]
        kept = [p for p in self.parameters if p not in free]
        return _size(self._eliminate(constraints, kept)) * math.prod(len(p.values) for p in free)

    def unrank(self, wanted: Ints) -> list[Config]:
        """The points of these numbers, each from 0 to `size` - 1."""
        groups = np.zeros(len(wanted), dtype=np.int64)
        chosen: dict[str, list[Any]] = {}
        for step in reversed(self._steps):
            rows, wanted = step.split(groups, wanted)
            groups = step.parent[rows]
            values = step.parameter.values
            chosen[step.parameter.name] = [values[index] for index in step.value[rows]]
        names = list(chosen)
        return [
            Config({**self._foreign, **dict(zip(names, row, strict=True))})
            for row in zip(*chosen.values(), strict=True)
        ]

    def sample(
        self, count: int, rng: np.random.Generator, exclude: Collection[Config]
    ) -> list[Config]:
        """Different valid points, each equally likely."""
        found: dict[Config, None] = {}
        if self.size <= 2 * (count + len(exclude)):
            for config in self.unrank(rng.permutation(self.size)):
                if len(found) < count and config not in exclude:
                    found[config] = None
            return list(found)
        while len(found) < count:
            for config in self.unrank(rng.integers(0, self.size, size=count)):
                if len(found) < count and config not in exclude:
                    found[config] = None
        return list(found)

    def valid(self, configs: Sequence[Config], mine: Sequence[int]) -> list[int]:
        """Those numbers of configs of this method that keep every constraint."""
        rows = np.array(
            [i for i in mine if all(configs[i][n] == v for n, v in self._foreign.items())],
            dtype=np.int64,
        )
        columns = {
            name: np.array([configs[row][name] for row in rows.tolist()]) for name in self._values
        }
        places = np.arange(len(rows))
        for constraint in self.constraints:
            if not len(places):
                break
            # Only what earlier constraints let through: later ones may rest on them.
            some = {name: array[places] for name, array in columns.items()}
            names = {**self._context, **some}
            kept = self._holds(constraint, self.space.environment(names, self.method))
            places = places[np.broadcast_to(kept, places.shape)]
        return [int(row) for row in rows[places]]

    def _eliminate(
        self, constraints: Sequence[Constraint], parameters: Sequence[Parameter]
    ) -> list[_Step]:
        pending = list(constraints)
        known: set[str] = set()
        live: dict[str, _Column] = {}
        counts: Ints = np.ones(1, dtype=np.int64)
        steps: list[_Step] = []
        for parameter in parameters:
            known.add(parameter.name)
            width = len(parameter.values)
            if len(counts) * width > ROW_LIMIT:
                raise SpaceError(
                    f"{self.space.path}: more than {ROW_LIMIT} partial configs at "
                    f"{parameter.name!r}; move the parameters that constrain one another together"
                )
            parent = np.repeat(np.arange(len(counts)), width)
            value = np.tile(np.arange(width, dtype=np.int16), len(counts))
            live = {name: column.rows(parent) for name, column in live.items()}
            live[parameter.name] = _Column(self._values[parameter.name], value)
            ready = [c for c in pending if self._method.supports[c.name] <= known]
            pending = [c for c in pending if c not in ready]
            rows = np.arange(len(value))
            for constraint in ready:
                # Only what earlier constraints let through: later ones may rest on them.
                kept = self._holds(constraint, self._environment(live, rows))
                rows = rows[np.broadcast_to(kept, rows.shape)]
            parent, value = parent[rows], value[rows]
            live = self._needed(pending, known, live, rows)
            group, representative = _merge(live, len(value))
            order = np.argsort(group, kind="stable")
            row_counts = counts[parent]
            first = np.searchsorted(group[order], np.arange(len(representative) + 1))
            cumulative = np.cumsum(row_counts[order])
            steps.append(_Step(parameter, value[order], parent[order], cumulative, first))
            padded = np.concatenate(([0], cumulative))
            counts = padded[first[1:]] - padded[first[:-1]]
            live = {name: column.rows(representative) for name, column in live.items()}
        return steps

    def _needed(
        self, pending: Sequence[Constraint], known: set[str], live: dict[str, _Column], rows: Ints
    ) -> dict[str, _Column]:
        """What the constraints to come read of the parameters so far.

        A derived value that is settled by now stands for all parameters under it: far fewer of its
        values differ than of theirs.
        """
        names: dict[str, None] = {}

        def visit(name: str) -> None:
            if name in self._values:
                if name in known:
                    names[name] = None
            elif support := self._method.derived_supports.get(name):
                if support <= known:
                    names[name] = None
                elif not support.isdisjoint(known):
                    for part in sorted(self._method.formulas[name].names):
                        visit(part)

        # Sorted: points are numbered by this order, and the order of a set of texts is another one
        # in every process.
        for constraint in pending:
            for name in sorted(constraint.rule.names):
                visit(name)
        environment = self._environment(live, rows)
        found: dict[str, _Column] = {}
        for name in names:
            if name in live:
                found[name] = live[name].rows(rows)
            else:
                whole = np.broadcast_to(np.asarray(environment[name]), rows.shape)
                values, codes = np.unique(whole, return_inverse=True)
                found[name] = _Column(values, codes.astype(np.int32))
        return found

    def _environment(self, live: Mapping[str, _Column], rows: Ints) -> Mapping[str, Any]:
        """Names and derived values of some rows; only what is read is computed."""
        columns = {
            name: lambda column=column: column.rows(rows).all() for name, column in live.items()
        }
        return self.space.environment(self._context, self.method, columns)

    def _holds(self, constraint: Constraint, environment: Mapping[str, Any]) -> NDArray[np.bool_]:
        return np.asarray(self.space.holds(constraint, environment), dtype=bool)


@dataclass(frozen=True, slots=True)
class _Column:
    """One name's value in each partial config, as an index into its different values."""

    values: NDArray[Any]
    codes: NDArray[np.integer]

    def rows(self, rows: NDArray[np.integer]) -> _Column:
        return _Column(self.values, self.codes[rows])

    def all(self) -> NDArray[Any]:
        whole: NDArray[Any] = self.values[self.codes]
        return whole


def _merge(live: Mapping[str, _Column], rows: int) -> tuple[Ints, Ints]:
    """A group number for each row, equal where all live names are, and a row of each."""
    key = np.zeros(rows, dtype=np.int64)
    size = 1
    for column in live.values():
        if size > 2**62 // max(len(column.values), 1):
            _, key = np.unique(key, return_inverse=True)
            size = rows
        key = key * len(column.values) + column.codes
        size *= len(column.values)
    _, representative, group = np.unique(key, return_index=True, return_inverse=True)
    return group.astype(np.int64), representative.astype(np.int64)


def _size(steps: Sequence[_Step]) -> int:
    return int(steps[-1].cumulative[-1]) if len(steps[-1].value) else 0
