"""The config to use when nothing is known of a problem."""

from __future__ import annotations

from autotune import space
from autotune.analysis import predict
from autotune.errors import InfeasibleError
from autotune.space import Space
from autotune.types import Config, Device, Problem


def default(problem: Problem, device: Device, family_space: Space | None = None) -> Config:
    """The start preset that the model likes best for a problem; the first where it knows none.

    Args:
        device: A live one, or the typical one of an architecture.

    Raises:
        InfeasibleError: no start preset can serve the problem.
    """
    chosen = family_space or space.load(problem.kernel)
    configs = chosen.start_configs(problem, device.arch)
    if not configs:
        raise InfeasibleError(f"no start preset of {chosen.path} can serve {problem.key}")
    return min(configs, key=lambda config: predict.ranking_ns(problem, config, device) or 0.0)
