"""How unlike two problems are, as far as that decides which config is fast.

A distance of 1 is an octave of one size of the output. What counts beside the sizes: how many tiles
a multiprocessor gets (the device's size is part of that), how far the sums must be split to give
every one of them work, how wide loads may be, and which tiles divide the sizes; and texts, such as
the layout of a matrix product.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from autotune import assets, problems
from autotune.errors import AutotuneError

# Weights of an octave's difference in each trait. The last two are no sizes, and small: a config
# that is fitted to narrower loads or ragged edges stays a good one.
OUTPUT = 1.0
SUMMED = 0.5
BATCH = 1.0
FILL = 0.5
SPLIT = 0.5
ALIGNMENT = 0.4
DIVISOR = 0.05
TEXT = 1.0
"""What a text that differs adds to the distance; chosen like `lookup.START_LOSS`, from 1 and 2."""

MAX_DISTANCE = 3.0
"""Farthest problem whose config is still tried: every size some four times larger or smaller."""

_TILE = 12
"""Octaves of a tile of 64 x 64: the output that keeps a multiprocessor busy is some of them."""
_FILL_RANGE = (-6.0, 4.0)
"""Octaves of tiles a multiprocessor between which their number matters."""
_LEAST_PART = 6
"""Octaves of the shortest sum that is worth a block of its own."""
_LARGEST_DIVISOR = 7
_ALIGNED = re.compile(r"\D+(16|8|4)")
"""An operand and the bytes that its rows are aligned to, as `storefile.regime` writes them."""

LOSS_FILE = "near_loss.json"
"""In db/: what `benchmarks/leave_one_out.py` fitted. Without it a rule of thumb stands in."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a problem is like on a device.

    Attributes:
        texts: What is not a number, such as the layout.
        place: Octaves times their weights: of each size of the output, of each size that is summed
            over, of the batch, of tiles for each multiprocessor, of parts that sums must be cut
            into to fill the device, of the alignment of each operand's rows, and of the largest
            power of two that divides each size.
        reach: Octaves of FLOPs, for a distance of 1, beyond which nothing is nearer.
    """

    texts: tuple[str, ...]
    place: tuple[float, ...]
    reach: float

    def distance(self, other: Traits) -> float:
        """That of the places, and `TEXT` for each text that differs; infinite between families."""
        if len(self.texts) != len(other.texts) or len(self.place) != len(other.place):
            return math.inf
        differing = sum(map(operator.ne, self.texts, other.texts))
        return float(math.dist(self.place, other.place) + TEXT * differing)


@lru_cache(maxsize=65536)
def traits(kernel: str, shape: str, flops: float, regime: str, sm_count: int) -> Traits:
    """The traits of a problem that is known by the columns of the store."""
    family = problems.family(kernel)
    counts = [int(size) for size in shape.split("x")]
    of_size = dict(zip(family.size_names, map(octaves, counts), strict=True))
    sizes = [value for name, value in of_size.items() if name not in family.summed]
    summed = [value for name, value in of_size.items() if name in family.summed]
    batch = octaves(flops) - sum(of_size.values()) - 1
    fill = min(max(sum(sizes) + batch - _TILE - octaves(sm_count), _FILL_RANGE[0]), _FILL_RANGE[1])
    split = min(max(-fill, 0.0), max(0.0, sum(summed) - _LEAST_PART))
    aligned = [match for word in regime.split() if (match := _ALIGNED.fullmatch(word))]
    # FLOPs are the product of all sizes and the batch: Cauchy and Schwarz.
    factors = [*(OUTPUT for _ in sizes), *(SUMMED for _ in summed), BATCH]
    return Traits(
        texts=texts(regime),
        place=(
            *(OUTPUT * size for size in sizes),
            *(SUMMED * size for size in summed),
            BATCH * batch,
            FILL * fill,
            SPLIT * split,
            *(ALIGNMENT * octaves(int(match[1])) for match in aligned),
            *(DIVISOR * _divisor(count) for count in counts),
        ),
        reach=math.hypot(*(1 / factor for factor in factors)),
    )


def _divisor(count: int) -> int:
    """Octaves of the largest power of two that divides a size, as far as tiles care."""
    return min(_LARGEST_DIVISOR, (count & -count).bit_length() - 1) if count else _LARGEST_DIVISOR


def texts(regime: str) -> tuple[str, ...]:
    """The words of a regime but the alignments."""
    return tuple(word for word in regime.split() if not _ALIGNED.fullmatch(word))


def ratios(kernel: str, asked: str, known: str) -> str:
    """What differs between two shapes in words: `m x0.98, k x2`; empty where nothing does."""
    names = problems.family(kernel).size_names
    pairs = zip(names, asked.split("x"), known.split("x"), strict=True)
    return ", ".join(
        f"{name} x{int(one) / max(1, int(other)):.3g}" for name, one, other in pairs if one != other
    )


def octaves(count: float) -> float:
    """Octaves above one; of nothing (k = 0) as of one."""
    return math.log2(max(1, count))


# *** what it costs ***


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Speed that is probably lost at a distance: `least + per_distance * distance`.

    Attributes:
        source: Where the two numbers come from, in words.
    """

    least: float = 0.02
    per_distance: float = 0.1
    source: str = "by a rule of thumb"

    def at(self, distance: float) -> float:
        """A fraction of the speed, at most 0.9."""
        return min(0.9, self.least + self.per_distance * distance)


@cache
def loss() -> Loss:
    """What is stated of answers that were not tuned for the question."""
    try:
        text = (assets.folder("db") / LOSS_FILE).read_text(encoding="utf-8")
    except (OSError, AutotuneError):
        return Loss()
    return parse_loss(json.loads(text))


def parse_loss(table: Mapping[str, Any]) -> Loss:
    """A loss as `LOSS_FILE` has it."""
    share = round(100 * table["quantile"])
    return Loss(
        least=float(table["least"]),
        per_distance=float(table["per_distance"]),
        source=f"in {share} of 100 cases ({table['pairs']} pairs on {table['device']})",
    )
