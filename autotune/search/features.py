"""Points of a space as rows of numbers, in which near rows mean like kernels.

Kernels depend on sizes by ratios, so a number counts as its logarithm. Texts are equal or not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.space import Parameter
from autotune.types import Config

Floats = NDArray[np.float64]


class Features:
    """Turns configs of a space into rows.

    Attributes:
        owner: For each column the number of the parameter that it is of; parameters of one value
            have no column. Two different texts are at distance 1 in the columns of theirs.
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        varied = [p for p in parameters if len(p.values) > 1]
        self._numbers = [p for p in varied if isinstance(p.values[0], int)]
        self._texts = [p for p in varied if isinstance(p.values[0], str)]
        widths = [1] * len(self._numbers) + [len(p.values) for p in self._texts]
        self.owner = np.repeat(np.arange(len(widths)), widths)

    def rows(self, configs: Sequence[Config]) -> Floats:
        """A row for each config."""
        columns = [
            # Zero stands one step below one.
            np.log2(np.maximum([float(config[p.name]) for config in configs], 0.5))
            for p in self._numbers
        ]
        for parameter in self._texts:
            values = np.array([str(config[parameter.name]) for config in configs])
            columns += [(values == value) / np.sqrt(2) for value in parameter.values]
        return np.array(columns, dtype=np.float64).reshape(len(self.owner), len(configs)).T
