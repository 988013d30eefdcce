"""A search space: parameters, derived values, constraints with reasons, presets.

A space comes from a TOML file of `search_spaces/`. It is usually far too large to list, so what is
asked of it (how many points are valid, which constraint removes how many, a fair sample, a
point's valid neighbours) is answered without listing it: see `Region`.
"""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune import archs, templates
from autotune.errors import InfeasibleError, SpaceError
from autotune.expressions import Expression
from autotune.launches import LaunchRules
from autotune.problems import DEFAULT
from autotune.types import Config, Device, LaunchPlan, Problem, Scalar

if TYPE_CHECKING:
    from autotune.region import Region

METHOD = "method"
"""The parameter that chooses among ways of computing, where a family has several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One dimension of the space.

    Attributes:
        values: In the order in which neighbours follow one another.
        default: What a preset means that does not name the parameter.
        only: The method that has it; empty where all have. With another method it must hold its
            default.
        opt_in: Values that no search tries unless it is asked to.
    """

    name: str
    values: tuple[Scalar, ...]
    default: Scalar
    meaning: str
    only: str = ""
    opt_in: tuple[Scalar, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """A value computed from parameters and problem, under a name of its own.

    Attributes:
        values: By method; one under the empty name serves every method.
    """

    name: str
    values: Mapping[str, Expression]
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A rule that every valid config keeps, of the methods that it speaks of.

    It speaks of every method but those that lack a parameter on which it rests.

    Attributes:
        why: The reason, printed when the rule refuses; `{name}` stands for a value.
    """

    name: str
    rule: Expression
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """What the file says of one way of computing.

    Attributes:
        supports: For each constraint that speaks of it, the parameters on which that rests.
        formulas: The derived values that it knows.
        derived_supports: For each of these, the parameters on which it rests.
    """

    supports: Mapping[str, frozenset[str]]
    formulas: Mapping[str, Expression]
    derived_supports: Mapping[str, frozenset[str]]


@dataclass(frozen=True, kw_only=True)
class Space:
    """A kernel family's space, as its file describes it.

    Where there is a parameter `method`, its values are ways of computing, each with parameters and
    rules of its own beside those of all; a config leaves the other methods' at their defaults.
    """

    kernel: str
    path: Path
    parameters: tuple[Parameter, ...]
    derived: tuple[Derived, ...]
    constraints: tuple[Constraint, ...]
    presets: Mapping[str, Config]
    whys: Mapping[str, str]
    """what is learned from a preset, for those that say so"""
    starts: tuple[str, ...]
    """presets that a search begins with"""
    starts_of: Mapping[int, tuple[str, ...]]
    """those that it tries first on an architecture"""
    ladder: tuple[str, ...]
    """presets that lead from a simple kernel to a fast one, each with a why"""
    adaptable: tuple[str, ...]
    """parameters that may take an earlier value to make a preset fit a problem; the last named
    gives way first"""
    rules: LaunchRules
    methods: Mapping[str, Method] = field(repr=False, compare=False)
    """by name; one without a name where the space has no parameter `method`"""

    @property
    def raw_size(self) -> int:
        """Number of combinations before any constraint, of each method's own parameters."""
        return sum(self.raw_size_of(method) for method in self.methods)

    def raw_size_of(self, method: str) -> int:
        """The combinations of one method."""
        return math.prod(len(parameter.values) for parameter in self.parameters_of(method))

    def parameters_of(self, method: str) -> tuple[Parameter, ...]:
        """The parameters that a method has; `method` itself holds its name alone."""
        return tuple(
            replace(parameter, values=(method,), default=method)
            if parameter.name == METHOD
            else parameter
            for parameter in self.parameters
            if parameter.only in ("", method)
        )

    def constraints_of(self, method: str) -> tuple[Constraint, ...]:
        """The rules that speak of a method."""
        supports = self.methods[method].supports
        return tuple(constraint for constraint in self.constraints if constraint.name in supports)

    def method(self, config: Config) -> str:
        """The method of a config; empty where the space has no parameter `method`."""
        return str(config.get(METHOD, ""))

    def settled(self, config: Config) -> Config:
        """`config` with the parameters of other methods at their defaults."""
        return settled(config, self.parameters)

    def parameter(self, name: str) -> Parameter:
        """The parameter of that name.

        Raises:
            SpaceError: no such parameter.
        """
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        names = ", ".join(parameter.name for parameter in self.parameters)
        raise SpaceError(f"{name!r} is not a parameter of {self.kernel}; possible are {names}")

    def config(self, values: Mapping[str, Any]) -> Config:
        """A whole config from some of its values; the rest are the defaults.

        So a config that was stored before a parameter existed means what it meant.

        Raises:
            InfeasibleError: an unknown name, or a value that the parameter does not have.
        """
        whole: dict[str, Scalar] = {p.name: p.default for p in self.parameters}
        for name, value in values.items():
            try:
                parameter = self.parameter(name)
            except SpaceError as error:
                raise InfeasibleError(str(error)) from None
            if value not in parameter.values or isinstance(value, bool):
                allowed = ", ".join(str(allowed) for allowed in parameter.values)
                raise InfeasibleError(f"{name} = {value!r} is not in the space; it has {allowed}")
            whole[name] = value
        return Config(whole)

    def without_opt_in(self) -> Space:
        """The space without the values that searches try only when asked to."""
        parameters = tuple(
            replace(
                p, values=tuple(value for value in p.values if value not in p.opt_in), opt_in=()
            )
            for p in self.parameters
        )
        return replace(self, parameters=parameters)

    def is_deterministic(self, values: Mapping[str, Scalar]) -> bool:
        """Whether a config gives equal bits in every run; one of an older space may lack names."""
        rule = self.rules.nondeterministic
        return rule is None or not (rule.names <= values.keys() and rule(values))

    def preset(self, name: str) -> Config:
        """A named point, exactly as the file states it.

        Raises:
            InfeasibleError: no such preset.
        """
        if name not in self.presets:
            known = ", ".join(self.presets)
            raise InfeasibleError(f"{name!r} is not a preset of {self.kernel}; possible: {known}")
        return self.presets[name]

    def values(self, config: Config, problem: Problem, arch: int) -> dict[str, Any]:
        """The problem's variables, the architecture's limits, and what the config's method knows:
        its parameters and derived values."""
        foreign = {p.name for p in self.parameters if p.only not in ("", self.method(config))}
        known = self._environment(config, problem, arch)
        return {name: known[name] for name in known if name not in foreign}

    def environment(
        self,
        names: Mapping[str, Any],
        method: str,
        late: Mapping[str, Callable[[], Any]] | None = None,
    ) -> Mapping[str, Any]:
        """`names` and a method's derived values, each computed when it is first read; so are the
        `late` names."""
        return _Environment(names, late or {}, self.methods[method].formulas)

    def _environment(self, config: Config, problem: Problem, arch: int) -> Mapping[str, Any]:
        return self.environment({**context(problem, arch), **config}, self.method(config))

    def explain(self, config: Config, problem: Problem, arch: int) -> str | None:
        """Why a config is not valid: the broken rule with its reason and values; None if it is."""
        for parameter in self.parameters:
            if parameter.name not in config:
                return f"the config does not name {parameter.name}"
        for name, value in config.items():
            try:
                if value not in self.parameter(name).values:
                    return f"{name} = {value!r} is not in the space"
            except SpaceError as error:
                return str(error)
        method = self.method(config)
        for parameter in self.parameters:
            if parameter.only not in ("", method) and config[parameter.name] != parameter.default:
                return (
                    f"{parameter.name} = {config[parameter.name]} is of the method "
                    f"{parameter.only}; with {METHOD} {method} it must be {parameter.default}"
                )
        environment = self._environment(config, problem, arch)
        broken = self._broken(self.constraints_of(method), environment)
        return reason(broken, environment) if broken else None

    def _broken(
        self, constraints: Sequence[Constraint], environment: Mapping[str, Any]
    ) -> Constraint | None:
        """The first constraint that one config does not keep."""
        for constraint in constraints:
            if not self.holds(constraint, environment):
                return constraint
        return None

    def holds(self, constraint: Constraint, environment: Mapping[str, Any]) -> Any:
        """Whether a constraint is kept: for one config, or for each of an array of them.

        Raises:
            SpaceError: it fails, for example by a division by zero; file and constraint are named.
        """
        try:
            return constraint.rule(environment)
        except SpaceError as error:
            raise SpaceError(f"{self.path}: constraint {constraint.name!r}: {error}") from None

    def is_valid(self, config: Config, problem: Problem, arch: int) -> bool:
        """Whether every constraint holds."""
        return self.explain(config, problem, arch) is None

    def check(self, config: Config, problem: Problem, arch: int) -> None:
        """Refuse an invalid config.

        Raises:
            InfeasibleError: with the rule that it breaks.
        """
        if (why := self.explain(config, problem, arch)) is not None:
            raise InfeasibleError(f"this config cannot serve {problem.key} on sm_{arch}: {why}")

    def fitted(self, config: Config, problem: Problem, arch: int) -> Config | None:
        """`config` with adaptable parameters lowered until it is valid; None if that does not help.

        Vector widths depend on how a problem lies in memory: a good tile stays a good tile with
        narrower loads.
        """
        if self.settled(config) != config:
            return None
        method = self.method(config)
        own = [p for p in map(self.parameter, self.adaptable) if p.only in ("", method)]
        names = [parameter.name for parameter in own]
        lower = [p.values[p.values.index(config[p.name]) :: -1] for p in own]
        known = context(problem, arch)
        # What no lower value mends is asked once, before anything is lowered.
        supports_of = self.methods[method].supports
        rules = self.constraints_of(method)
        fixed = [rule for rule in rules if supports_of[rule.name].isdisjoint(names)]
        if self._broken(fixed, self.environment({**known, **config}, method)):
            return None
        changing = [rule for rule in rules if not supports_of[rule.name].isdisjoint(names)]
        # A rule that was broken is broken wherever the values on which it rests are the same.
        broken_by: set[tuple[tuple[str, Scalar], ...]] = set()
        supports: dict[str, list[str]] = {}
        # The first is the config itself; the last name is lowered first.
        for choice in itertools.product(*lower):
            chosen = dict(zip(names, choice, strict=True))
            if any(
                tuple((name, chosen[name]) for name in support) in broken_by
                for support in supports.values()
            ):
                continue
            candidate = config.but(**chosen)
            broken = self._broken(changing, self.environment({**known, **candidate}, method))
            if broken is None:
                return candidate
            support = [name for name in names if name in supports_of[broken.name]]
            supports[broken.name] = support
            broken_by.add(tuple((name, chosen[name]) for name in support))
        return None

    def start_configs(self, problem: Problem, arch: int) -> list[Config]:
        """The presets that a search begins with, those of the architecture first, fitted to the
        problem, without those that fail."""
        names = dict.fromkeys((*self.starts_of.get(arch, ()), *self.starts))
        fitted = [self.fitted(self.presets[name], problem, arch) for name in names]
        return list(dict.fromkeys(config for config in fitted if config is not None))

    def plan(
        self, config: Config, problem: Problem, arch: int, sm_count: int | None = None
    ) -> LaunchPlan:
        """The launches of a config.

        Args:
            sm_count: Of the device that it is for; that of the architecture's typical one by
                default. Grids may depend on it, never the source or whether the config is valid.
        """
        names = {**context(problem, arch), **config}
        if sm_count is not None:
            names["sm_count"] = sm_count
        environment = self.environment(names, self.method(config))
        return self.rules.plan(environment, problem.operands)

    def region(self, problem: Problem, arch: int) -> Region:
        """The valid points for a problem and an architecture."""
        from autotune.region import Region

        return Region(self, problem, arch)


class _Environment(Mapping[str, Any]):
    """Names, and values computed on first use."""

    def __init__(
        self,
        names: Mapping[str, Any],
        late: Mapping[str, Callable[[], Any]],
        derived: Mapping[str, Expression],
    ) -> None:
        self._names = dict(names)
        self._late = late
        self._derived = derived

    def __getitem__(self, name: str) -> Any:
        try:
            return self._names[name]
        except KeyError:
            pass
        value = self._late[name]() if name in self._late else self._derived[name](self)
        self._names[name] = value
        return value

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*self._names, *self._late, *self._derived])

    def __len__(self) -> int:
        return len(dict.fromkeys([*self._names, *self._late, *self._derived]))


def settled(config: Config, parameters: Sequence[Parameter]) -> Config:
    """`config` with the parameters of methods other than its own at their defaults."""
    foreign = (p for p in parameters if p.only not in ("", config.get(METHOD, "")))
    changes = {p.name: p.default for p in foreign if config[p.name] != p.default}
    return config.but(**changes) if changes else config


def context(problem: Problem, arch: int) -> dict[str, Scalar]:
    """What expressions know besides parameters: the problem's variables, the limits of the arch."""
    limits = archs.get(arch)
    return {
        **problem.variables,
        "arch": arch,
        "shared_bytes_limit": limits.shared_bytes_per_block_optin,
        "shared_bytes_per_sm": limits.shared_bytes_per_sm,
        "shared_bytes_reserved": limits.shared_reserved_bytes_per_block,
        "threads_limit": limits.threads_per_block,
        "threads_per_sm": limits.threads_per_sm,
        "registers_limit": limits.registers_per_thread,
        "registers_per_sm": limits.registers_per_sm,
        "sm_count": limits.typical.sm_count,
    }


def device_limits(arch: int, device: Device) -> None:
    """Check that a live device has what its architecture promises.

    Raises:
        InfeasibleError: it allows less shared memory to a block than the table of `archs` says.
    """
    limits = archs.get(arch)
    if device.shared_bytes_per_block_optin < limits.shared_bytes_per_block_optin:
        raise InfeasibleError(
            f"{device.name} allows {device.shared_bytes_per_block_optin} bytes of shared memory to "
            f"a block, sm_{arch} should allow {limits.shared_bytes_per_block_optin}"
        )


def reason(constraint: Constraint, environment: Mapping[str, Any]) -> str:
    """A constraint's `why` with the values filled in."""
    return re.sub(r"\{(\w+)\}", lambda match: str(environment[match[1]]), constraint.why)


@cache
def load(kernel: str = DEFAULT, path: str | None = None) -> Space:
    """The space of a kernel family.

    Args:
        kernel: Family name; its file is `search_spaces/<kernel>.toml`.
        path: Another file for the same family.

    Raises:
        SpaceError: the file is missing, is not TOML, names something unknown, or is empty.
    """
    file = Path(path).expanduser() if path else templates.space_file(kernel)
    try:
        if path:
            table: Mapping[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
        else:
            table = templates.space_table(kernel)
    except OSError as error:
        raise SpaceError(f"cannot read the search space {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpaceError(f"{file} is not TOML: {error}") from None
    from autotune.spacefile import Reader

    return Reader(file, table).space()
