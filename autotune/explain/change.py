"""What the models would change next."""

from __future__ import annotations

import math

from autotune.analysis import predict
from autotune.analysis.waves import Waves
from autotune.explain.parts import LEAST_GAIN, Move, Recovery
from autotune.space import Space
from autotune.types import Config, Device, Problem, Variant

SPLITS = (2, 3, 4)
"""Parts of k whose effect on the last wave is asked about."""

_MOVES = 3


def recoveries(chosen: Space, variant: Variant, grid: Waves) -> tuple[Recovery, ...]:
    """Best first; those that win nothing are left out."""
    config = variant.config
    if config.get("schedule", "grid") != "grid":
        # Such a grid fits the device as it is.
        return ()
    now = int(config.get("split_k", 1))
    options = {f"split-K {parts}": grid.blocks // now * parts for parts in SPLITS if parts > now}
    for name in ("block_m", "block_n"):
        side = config.get(name)
        if isinstance(side, int) and side > 1:
            half = config.but(**{name: side // 2})
            plan = chosen.plan(half, variant.problem, variant.arch)
            tile = f"tiles of {half['block_m']} x {half['block_n']}"
            options[tile] = plan.main.blocks
    found = [
        Recovery(change=change, blocks=blocks, share=grid.recovered(blocks))
        for change, blocks in options.items()
    ]
    return tuple(
        sorted((each for each in found if each.share >= LEAST_GAIN), key=lambda each: -each.share)
    )


def moves(chosen: Space, config: Config, problem: Problem, device: Device) -> tuple[Move, ...]:
    """Ranked by the model, with estimated registers on both sides: a neighbour is not compiled."""
    now = predict.ranking_ns(problem, config, device)
    if now is None or math.isinf(now):
        return ()
    moves = []
    for neighbour in chosen.without_opt_in().region(problem, device.arch).neighbours(config):
        (name,) = (name for name in config if config[name] != neighbour[name])
        then = predict.ranking_ns(problem, neighbour, device)
        if then is not None and 1 - then / now >= LEAST_GAIN:
            moves.append(
                Move(
                    parameter=name,
                    before=config[name],
                    after=neighbour[name],
                    gain=1 - then / now,
                )
            )
    best: dict[str, Move] = {}
    for move in sorted(moves, key=lambda move: -move.gain):
        best.setdefault(move.parameter, move)
    return tuple(best.values())[:_MOVES]
