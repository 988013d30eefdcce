"""What all problems of a batch share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.compile import Compiler, Pool
from autotune.measure import Worker
from autotune.search.budget import Budget, Effort
from autotune.search.events import Listener
from autotune.search.patience import Patience
from autotune.space import Space
from autotune.store import Store
from autotune.types import Device, Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Device, tools and wishes of a batch.

    Attributes:
        worker: None where nothing can be timed.
        ahead: Candidates that may be on their way, from choosing to timing.
        seeded: Whether searches begin with what is known of other shapes and devices and what the
            model likes, beside the presets.
        patience: How long a compile may take.
        git_sha: Commit of the checkout that runs; empty for an installed package.
    """

    device: Device
    arch: int
    compiler: Compiler
    pool: Pool
    worker: Worker | None
    store: Store
    space: Space
    effort: Effort
    seed: int
    sampler: str
    cold: bool
    ahead: int
    seeded: bool
    patience: Patience
    argv: Sequence[str]
    git_sha: str
    listener: Listener

    @property
    def evidence(self) -> Evidence:
        """What the answers of this batch rest on."""
        return Evidence.predicted if self.worker is None else Evidence.measured

    @property
    def budget(self) -> Budget:
        """Of each problem: the effort's, with its predictions for trials where nothing is timed."""
        if self.worker is not None:
            return self.effort.budget
        return replace(self.effort.budget, trials=self.effort.predictions)
