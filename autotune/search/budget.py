"""How long a search may take, and how sure its answer must be."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autotune.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Where a search of one problem stops; whatever is reached first.

    Attributes:
        trials: Different configs tried in all, those that the store already holds included: the
            same command twice does the work once, and a larger number goes on from there.
        seconds: Wall time of this run for the problem, confirm round included.
        patience: Trials in a row that bring nothing better.
        total_seconds: Wall time of this run for all its problems together, confirm rounds included.

    Raises:
        UsageError: a limit that is not positive, or two limits of time.
    """

    trials: int | None = None
    seconds: float | None = None
    patience: int | None = None
    total_seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("trials", "seconds", "patience", "total_seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                words = name.replace("_", " ")
                raise UsageError(f"a budget of {value} {words} does nothing; it must be above 0")
        if self.seconds is not None and self.total_seconds is not None:
            raise UsageError(
                "time is limited for each problem and for all; give only one of the two"
            )

    def __str__(self) -> str:
        parts = []
        if self.trials is not None:
            parts.append(f"{self.trials} trials")
        if self.seconds is not None:
            parts.append(f"{self.seconds:g} s")
        if self.patience is not None:
            parts.append(f"{self.patience} trials without a better one")
        if self.total_seconds is not None:
            parts.append(f"{self.total_seconds:g} s for all problems")
        return ", ".join(parts) or "no limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """A named set of limits.

    Attributes:
        budget: Where a GPU times the candidates.
        predictions: Candidates compiled where none does.
        finalists: Configs that enter the confirm round besides incumbent, default and vendor.
        rounds: Of the confirm round.
    """

    budget: Budget
    predictions: int
    finalists: int
    rounds: int

    def limited(self, budget: Budget | None) -> Effort:
        """With the limits that the user named in place of its own."""
        if budget is None or budget == Budget():
            return self
        return replace(
            self,
            budget=budget,
            predictions=self.predictions if budget.trials is None else budget.trials,
        )


EFFORTS: dict[str, Effort] = {
    "quick": Effort(budget=Budget(trials=50), predictions=16, finalists=4, rounds=5),
    "normal": Effort(budget=Budget(trials=250), predictions=48, finalists=8, rounds=9),
    "thorough": Effort(budget=Budget(trials=1500), predictions=200, finalists=12, rounds=15),
}
"""What `--effort` names."""


def effort(name: str) -> Effort:
    """One of `EFFORTS`.

    Raises:
        UsageError: no such name.
    """
    if name not in EFFORTS:
        raise UsageError(f"{name!r} is not an effort; possible are {', '.join(EFFORTS)}")
    return EFFORTS[name]
