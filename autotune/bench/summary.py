"""What the rows of a suite come to: by class, and over all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from autotune.bench.parts import BEST, VENDOR, Row

ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The problems of one class beside the vendor library.

    Attributes:
        name: The class, or `ALL`.
        problems: How many there are.
        failed: Those whose best config gave no time.
        compared: Those with a time of ours and of the vendor's; the rest of the figures is theirs.
        mean_ratio: Geometric mean of vendor's time / ours.
        share_ahead: Share of problems with a ratio of 1 or more.
        worst, worst_ratio: Key of the problem with the least ratio.
    """

    name: str
    problems: int
    failed: int
    compared: int
    mean_ratio: float | None
    share_ahead: float | None
    worst: str
    worst_ratio: float | None


def summaries(rows: Sequence[Row]) -> list[Summary]:
    """One for each class in the order in which it appears, and one over all problems.

    A problem of several classes counts in each, and once over all.
    """
    names = dict.fromkeys(name for row in rows for name in row.case.classes)
    classes = [_summary(name, [row for row in rows if name in row.case.classes]) for name in names]
    return [*classes, _summary(ALL, rows)]


def _summary(name: str, rows: Sequence[Row]) -> Summary:
    ratios = {row.case.problem.key: ratio for row in rows if (ratio := row.ratio(VENDOR))}
    worst = min(ratios, key=lambda key: ratios[key], default="")
    ahead = sum(ratio >= 1 for ratio in ratios.values())
    return Summary(
        name=name,
        problems=len(rows),
        failed=sum(row.time_ns(BEST) is None for row in rows),
        compared=len(ratios),
        mean_ratio=geometric_mean(ratios.values()) if ratios else None,
        share_ahead=ahead / len(ratios) if ratios else None,
        worst=worst,
        worst_ratio=ratios.get(worst),
    )
