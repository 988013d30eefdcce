"""The ladder: presets that lead from a simple kernel to a fast one, timed against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune import space, templates
from autotune.analysis import predict
from autotune.bench.parts import BEST, VENDOR, Entry
from autotune.bench.stand import Stand
from autotune.errors import InfeasibleError, SpaceError
from autotune.lookup import answer
from autotune.types import Config, Match, Problem, Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A rung of the ladder.

    Attributes:
        changes: Parameters that differ from the step before, with the value before and after.
        gain: Time of the last step before that has one / its own; None without either.
        limiter: The largest term of the model's prediction; empty where no model knows it.
        why: What the search space says that the step gains.
    """

    name: str
    entry: Entry
    changes: dict[str, tuple[Scalar, Scalar]]
    gain: float | None
    limiter: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """All steps on one problem.

    Attributes:
        vendor: None where it was not timed; `no_vendor` says why, if it was wanted.
    """

    problem: Problem
    steps: Sequence[Step]
    vendor: Entry | None
    no_vendor: str = ""


def climb(problem: Problem, stand: Stand, *, store: str | Path | None = None) -> Ladder:
    """Times the space's ladder, then the best config that the store knows, all in turns.

    Args:
        store: Path or URL; None for the user's own. A config that is known only for another
            problem counts as best too; a default does not.

    Raises:
        SpaceError: the space names no ladder.
        ShapeError, DeviceError, CompilerError: as for `Stand.time`.
    """
    chosen = space.load(problem.kernel)
    if not chosen.ladder:
        raise SpaceError(f"{chosen.path} names no ladder; list presets under `ladder`")
    arch = stand.device.arch
    configs: dict[str, Config] = {}
    whys: dict[str, str] = {}
    for name in chosen.ladder:
        preset = chosen.preset(name)
        configs[name] = chosen.fitted(preset, problem, arch) or preset
        whys[name] = chosen.whys[name]
    found = answer(
        problem,
        device=stand.device,
        store=store,
        template_sha256=templates.sha256(problem.kernel),
    )
    if found.config is not None and found.match is not Match.arch_default:
        configs[BEST] = found.config
        whys[BEST] = f"found by search ({found.match.replace('_', ' ')})"
    named: dict[Config, tuple[str, ...]] = {}
    for name, config in configs.items():
        named[config] = (*named.get(config, ()), name)
    entries = stand.time(problem, stand.prepare(problem, named))
    by_name = {name: entry for entry in entries for name in entry.names}
    steps: list[Step] = []
    for name, config in configs.items():
        entry = by_name[name]
        before = steps[-1].entry.config if steps else None
        earlier = [step.entry.median_ns for step in steps if step.entry.median_ns]
        gain = earlier[-1] / entry.median_ns if earlier and entry.median_ns else None
        steps.append(
            Step(
                name=name,
                entry=entry,
                changes=_changes(before, config) if before is not None else {},
                gain=gain,
                limiter=_limiter(problem, config, stand, entry.registers),
                why=whys[name],
            )
        )
    return Ladder(
        problem=problem,
        steps=steps,
        vendor=by_name.get(VENDOR),
        no_vendor=stand.no_vendor(problem),
    )


def _changes(before: Config, after: Config) -> dict[str, tuple[Scalar, Scalar]]:
    return {
        name: (before[name], value)
        for name, value in after.items()
        if name in before and before[name] != value
    }


def _limiter(problem: Problem, config: Config, stand: Stand, registers: int | None) -> str:
    if registers is None:
        return ""
    try:
        prediction = predict.candidate(problem, config, stand.device, registers)
    except InfeasibleError:
        return ""
    return prediction.limiter if prediction else ""
