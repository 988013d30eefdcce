"""What a strategy needs to know of a space."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

import numpy as np

from autotune.space import Parameter
from autotune.types import Config


class Points(Protocol):
    """The valid points of a space, however they are known; `autotune.region.Region` is one."""

    @property
    def parameters(self) -> Sequence[Parameter]:
        """The dimensions."""

    @property
    def size(self) -> int:
        """Number of valid points."""

    def unrank(self, numbers: Iterable[int]) -> list[Config]:
        """The points of these numbers, each from 0 to `size` - 1."""

    def sample(
        self, count: int, rng: np.random.Generator, exclude: Collection[Config] = ()
    ) -> list[Config]:
        """Different valid points, each equally likely; fewer where there are no more."""

    def neighbours(self, config: Config, changes: int = 1) -> list[Config]:
        """The valid points that differ in exactly so many parameters, 1 or 2."""

    def valid(self, configs: Sequence[Config]) -> list[Config]:
        """Those that are valid."""
