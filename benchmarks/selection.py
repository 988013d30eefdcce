"""Which problems of the suite a benchmark works through."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune import problems
from autotune.bench import Case
from autotune.cli import shapes
from autotune.types import Problem

SUITE = Path(__file__).with_name("shapes.toml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --shapes, --classes and --only."""
    parser.add_argument("--shapes", type=Path, default=SUITE, help="file of shapes")
    parser.add_argument("--classes", default="", help="only these classes, comma-separated")
    parser.add_argument(
        "--only", default="", help="only problems with one of these in their name: 4096x,batch"
    )


def cases(options: argparse.Namespace) -> list[Case]:
    """The chosen problems in the file's order, each once; ends the program where there is none."""

    def parse(shape: str, more: Mapping[str, Any] | None = None) -> Problem:
        return problems.parse(shape, options=more or {})

    found = Case.of(shapes.read(options.shapes, parse))
    known = {name for case in found for name in case.classes}
    if unknown := set(_words(options.classes)) - known:
        raise SystemExit(f"no class {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    if wanted := set(_words(options.classes)):
        found = [case for case in found if wanted & set(case.classes)]
    if parts := _words(options.only):
        found = [case for case in found if any(part in case.problem.key for part in parts)]
    if not found:
        raise SystemExit(f"--only {options.only} leaves no problem")
    return found


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
