"""New points from good ones: moves from one, mixtures of two. They need not be valid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.space import METHOD, Parameter, settled
from autotune.types import Config


class Variations:
    """Random variations of points of a space."""

    def __init__(self, parameters: Sequence[Parameter], rng: np.random.Generator) -> None:
        self._parameters = parameters
        self._varied = [p for p in parameters if len(p.values) > 1]
        self._rng = rng

    def moved(self, config: Config) -> Config:
        """With one parameter of its method changed, to whatever it can be."""
        method = config.get(METHOD, "")
        own = [p for p in self._varied if p.only in ("", method)]
        parameter = own[self._rng.integers(len(own))]
        value = parameter.values[self._rng.integers(len(parameter.values))]
        return settled(config.but(**{parameter.name: value}), self._parameters)

    def mixed(self, config: Config, other: Config) -> Config:
        """With each parameter from one of two points."""
        names = [name for name in config if config[name] != other[name]]
        taken = self._rng.random(len(names)) < 0.5
        changes = {name: other[name] for name, take in zip(names, taken, strict=True) if take}
        return settled(config.but(**changes), self._parameters)
