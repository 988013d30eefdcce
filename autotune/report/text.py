"""Figures and configs as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from autotune.types import Scalar

if TYPE_CHECKING:
    from autotune.space import Space

DASH = "-"
"""What stands where there is no value."""


def time(ns: float | None) -> str:
    """A time in the unit that suits it, three or four digits: `84.21 us`."""
    if ns is None:
        return DASH
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.4g} {unit}"
    return f"{ns:.4g} ns"


def time_within(ns: float | None, interval_ns: tuple[float, float] | None) -> str:
    """A time and how far to either side it may be off: `3.2 ms (-0.1 +0.3 %)`."""
    if ns is None or interval_ns is None:
        return time(ns)
    below, above = (100 * abs(edge / ns - 1) for edge in interval_ns)
    return f"{time(ns)} (-{below:.1f} +{above:.1f} %)"


def duration(seconds: float) -> str:
    """How long something took: `8 s`, `2 min 5 s`, `1 h 3 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def size(count: float) -> str:
    """Bytes in binary units, exact where they divide: `48 KiB`, `139.8 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if count < 1024 or unit == "PiB":
            return f"{count:.4g} {unit}"
        count /= 1024
    raise AssertionError


def tflops(flops: float, ns: float | None) -> float | None:
    """The rate in TFLOP/s of so many operations in that time."""
    return flops / ns / 1e3 if ns else None


def number(value: float | None, digits: int = 1) -> str:
    """A figure with fixed digits after the point; a dash for None."""
    return DASH if value is None else f"{value:.{digits}f}"


def plural(noun: str) -> str:
    """Several of them: `shared loads`, `shared copies`."""
    return f"{noun.removesuffix('y')}ies" if noun.endswith("y") else f"{noun}s"


def first_line(message: str) -> str:
    """The first line that says something."""
    return next((line.strip() for line in message.splitlines() if line.strip()), "")


def config(values: Mapping[str, Scalar], space: Space) -> str:
    """A config as the preset that it is nearest to, and what it has otherwise.

    `large`, or `large, block_k 8, order columns`. A config of an older space may have other names.
    One that may give other bits in every run says so.
    """
    if not values:
        return DASH
    note = [] if space.is_deterministic(values) else ["not deterministic"]

    def changes(preset: Mapping[str, Scalar]) -> dict[str, Scalar]:
        return {name: value for name, value in values.items() if preset.get(name) != value}

    if not space.presets:
        return ", ".join([*(f"{name} {value}" for name, value in values.items()), *note])
    name, preset = min(space.presets.items(), key=lambda entry: len(changes(entry[1])))
    changed = (f"{name} {value}" for name, value in changes(preset).items())
    return ", ".join([name, *changed, *note])
