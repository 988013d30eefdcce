"""Where a search begins: what is known of this problem and of near ones, here and elsewhere."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from autotune.errors import InfeasibleError
from autotune.lookup import answer
from autotune.search import prior
from autotune.search.setting import Setting
from autotune.types import Config, Match, Problem

NEAR = 8
"""Configs of near shapes on this architecture, and of other problems of a batch."""
FOREIGN = 4
"""Configs that are best on other architectures."""
LEADERS = 3
"""Configs that each problem of a batch hands on to the others before it is confirmed."""
FARTHEST = 6.0
"""In octaves: what is farther away says nothing of a problem."""
OTHERWISE = 2.0
"""Octaves that another layout, alignment or batch counts for."""

Leaders = dict[Problem, list[Config]]
"""The fastest configs of each problem of a batch, not confirmed, best first."""


@dataclass(frozen=True, slots=True)
class Start:
    """A config to try first, and where it comes from: `preset`, `batch`, `foreign_arch`,
    or a tier of `autotune.lookup`."""

    config: Config
    source: str


def starts(problem: Problem, setting: Setting, leaders: Leaders) -> list[Start]:
    """The configs to try first, best founded first, each once and valid for the problem.

    With `setting.seeded` off only the presets remain, the default among them; else those that the
    model finds hopeless are left out.

    Args:
        leaders: What other problems of this batch have found so far.
    """
    found: dict[Config, Start] = {}

    def add(source: str, configs: Iterable[Config], most: int) -> None:
        for config in configs:
            if most == 0:
                return
            fitted = _fitted(config, problem, setting)
            if fitted is not None and fitted not in found:
                found[fitted] = Start(fitted, source)
                most -= 1

    if setting.seeded:
        # The look-up knows what ships with the package as well.
        known = answer(problem, device=setting.device, store=setting.store)
        if known.config is not None and known.match is not Match.arch_default:
            add(str(known.match), [known.config], 1)
        add("batch", near(problem, leaders), NEAR)
        rows = setting.store.bests(kernel=problem.kernel)
        here = [row for row in rows if row["arch"] == setting.arch]
        there = [row for row in rows if row["arch"] != setting.arch]
        add(str(Match.near_shape), _by_distance(problem, here), NEAR)
        add("foreign_arch", _by_distance(problem, there), FOREIGN)
    presets = setting.space.start_configs(problem, setting.arch)
    if setting.seeded:
        presets = prior.plausible(problem, setting.device, presets)
    add("preset", presets, len(presets))
    return list(found.values())


def near(problem: Problem, leaders: Leaders) -> Iterator[Config]:
    """The leaders of other problems, those of the nearest first."""
    others = [
        (away, other.key, other)
        for other in leaders
        if other != problem
        and (away := distance(problem.shape, problem.key, other.shape, other.key)) <= FARTHEST
    ]
    for _, _, other in sorted(others, key=lambda entry: entry[:2]):
        yield from leaders[other]


def first_points(
    known: Sequence[Start], problem: Problem, setting: Setting, leaders: Leaders
) -> list[Config]:
    """What the next slice asks first: the best founded start, what near problems of the batch have
    found meanwhile, then the other starts. Points that were tried may be among them.

    The leaders are few, and not the first: a large batch has more of them than a slice can try, and
    what is known of this very problem is mostly better.
    """
    configs = [start.config for start in known]
    if not setting.seeded:
        return configs
    fitted = (_fitted(config, problem, setting) for config in near(problem, leaders))
    hints = islice((config for config in fitted if config is not None), NEAR)
    return list(dict.fromkeys([*configs[:1], *hints, *configs[1:]]))


def leading(times_ns: Mapping[Config, float | None]) -> list[Config]:
    """The fastest few of a problem's trials; None stands for a failure."""
    timed = sorted((ns, config.json, config) for config, ns in times_ns.items() if ns is not None)
    return [config for *_, config in timed[:LEADERS]]


def counted(starts_: Sequence[Start], known: int) -> str:
    """In words for the run's row: `near_shape 3, preset 9; after 40 earlier trials`."""
    counts = Counter(start.source for start in starts_)
    text = ", ".join(f"{source} {count}" for source, count in counts.items())
    return f"{text}; after {known} earlier trials" if known else text


def distance(shape: str, key: str, other_shape: str, other_key: str) -> float:
    """Octaves between two problems of a family, given by shape and key: the length of the vector of
    log2 ratios of the sizes. All else that differs (layout, batch) counts `OTHERWISE`."""
    sizes = [max(1, int(size)) for size in shape.split("x")]
    others = [max(1, int(size)) for size in other_shape.split("x")]
    if len(sizes) != len(others):
        return math.inf
    octaves = [math.log2(one / other) for one, other in zip(sizes, others, strict=True)]
    is_alike = key.replace(shape, "") == other_key.replace(other_shape, "")
    return math.hypot(*octaves, 0.0 if is_alike else OTHERWISE)


def _by_distance(problem: Problem, rows: Sequence[Mapping[str, Any]]) -> Iterator[Config]:
    entries = [
        (distance(problem.shape, problem.key, row["shape"], row["problem"]), int(row["id"]), row)
        for row in rows
    ]
    for away, _, row in sorted(entries, key=lambda entry: entry[:2]):
        if away <= FARTHEST:
            yield Config.from_json(str(row["config_json"]))


def _fitted(config: Config, problem: Problem, setting: Setting) -> Config | None:
    """The config as this space and problem can have it; None where they cannot."""
    try:
        known = setting.space.config(config)
    except InfeasibleError:  # of an older space
        return None
    return setting.space.fitted(known, problem, setting.arch)
