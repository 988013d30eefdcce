"""Short ways to a rendered variant and to what the emulator says of it."""

from __future__ import annotations

from dataclasses import replace

from autotune import space
from autotune.emulate import Report, emulate
from autotune.problems.sgemm import Sgemm
from autotune.render import render
from autotune.types import Scalar, Variant

ARCH = 90
SPACE = space.load("sgemm")


def variant(problem: Sgemm, preset: str = "seed-v3.2", **changes: Scalar) -> Variant:
    """A preset with some values changed, its vectors narrowed to what the problem allows."""
    wanted = SPACE.config({**SPACE.preset(preset), **changes})
    config = SPACE.fitted(wanted, problem, ARCH)
    assert config is not None, SPACE.explain(wanted, problem, ARCH)
    return render(problem, config, ARCH)


def changed(original: Variant, old: str, new: str, count: int = 1) -> Variant:
    """The variant with a piece of its source replaced, which must occur `count` times."""
    assert original.body.count(old) == count, f"{old!r} is not {count} times in the source"
    return replace(original, body=original.body.replace(old, new))


def line_of(of: Variant, text: str, number: int = 0) -> int:
    """The line of the source that is `text`, or the one of several with that index."""
    lines = [n for n, line in enumerate(of.source.splitlines(), 1) if line.strip() == text]
    assert len(lines) > number, f"{text!r} is not a line of the source"
    return lines[number]


def said(report: Report) -> str:
    """The faults, for an assertion's message."""
    return "\n".join(fault.message for fault in report.faults)


__all__ = ["ARCH", "SPACE", "changed", "emulate", "line_of", "said", "variant"]
