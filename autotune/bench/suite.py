"""A suite: for each problem the config that look-up gives, beside default, presets and vendor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autotune import defaults, space, templates
from autotune.analysis.roofline import Roofline, roofline
from autotune.bench.parts import BEST, DEFAULT, Case, Row
from autotune.bench.stand import Heat, Stand
from autotune.errors import AutotuneError, DeviceError, InfeasibleError
from autotune.lookup import Answer, answer
from autotune.types import Config, Device, Problem

AHEAD = 4
"""Problems whose configs are compiled while an earlier one is timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Started:
    """A problem whose configs compile; `heat` is None where `message` says why none does."""

    case: Case
    answer: Answer | None = None
    heat: Heat | None = None
    message: str = ""


def race(
    cases: Sequence[Case],
    stand: Stand,
    *,
    store: str | Path | None = None,
    presets: Sequence[str] = (),
) -> Iterator[Row]:
    """A row for each problem, as it is done; one that fails does not keep the others back.

    Args:
        store: Path or URL of the results store that look-up asks; None for the user's own.
        presets: Further configs to time, each fitted to the problem.

    Raises:
        InfeasibleError: no such preset.
    """
    for kernel in dict.fromkeys(case.problem.kernel for case in cases):
        for name in presets:
            space.load(kernel).preset(name)
    return _rows(cases, stand, store, presets)


def _rows(
    cases: Sequence[Case], stand: Stand, store: str | Path | None, presets: Sequence[str]
) -> Iterator[Row]:
    started: list[_Started] = []
    for place, case in enumerate(cases):
        while len(started) <= min(place + AHEAD, len(cases) - 1):
            started.append(_start(cases[len(started)], stand, store, presets))
        yield _finish(started[place], stand, case)


def _start(case: Case, stand: Stand, store: str | Path | None, presets: Sequence[str]) -> _Started:
    problem = case.problem
    try:
        found = answer(
            problem,
            device=stand.device,
            store=store,
            template_sha256=templates.sha256(problem.kernel),
        )
        if found.config is None:
            return _Started(case=case, answer=found, message=found.reason)
        configs = entrants(problem, stand.device, found.config, presets)
        heat = stand.prepare(problem, configs)
    except AutotuneError as error:
        return _Started(case=case, message=str(error))
    return _Started(case=case, answer=found, heat=heat)


def _finish(started: _Started, stand: Stand, case: Case) -> Row:
    problem = case.problem
    message = started.message
    if started.heat is not None:
        try:
            return Row(
                case=case,
                answer=started.answer,
                entries=stand.time(problem, started.heat),
                roofline=_roofline(problem, stand.device),
                no_vendor=stand.no_vendor(problem),
            )
        except AutotuneError as error:
            message = str(error)
    return Row(case=case, answer=started.answer, message=message)


def entrants(
    problem: Problem, device: Device, best: Config, presets: Sequence[str] = ()
) -> dict[Config, tuple[str, ...]]:
    """Configs with their names: the best, the default and some presets, each config once.

    A preset that cannot be fitted to the problem takes part as it is: its failure says why.
    """
    chosen = space.load(problem.kernel)
    named: dict[Config, tuple[str, ...]] = {best: (BEST,)}

    def add(name: str, config: Config) -> None:
        named[config] = (*named.get(config, ()), name)

    # The best config of the store may serve where no start does.
    with suppress(InfeasibleError):
        add(DEFAULT, defaults.default(problem, device))
    for name in presets:
        preset = chosen.preset(name)
        add(name, chosen.fitted(preset, problem, device.arch) or preset)
    return named


def _roofline(problem: Problem, device: Device) -> Roofline | None:
    try:
        return roofline(problem, device)
    except DeviceError:
        return None
