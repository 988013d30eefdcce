"""Files that list shapes: one a line, or TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from autotune.cli.options import ParseProblem
from autotune.errors import UsageError
from autotune.types import Problem


class Listed(NamedTuple):
    """A problem of a file, and the class that the file puts it into; empty for none."""

    problem: Problem
    group: str


def read(file: Path, parse: ParseProblem) -> list[Listed]:
    """The problems that a file lists, in its order.

    A `.toml` file has `[[shape]]` tables with `sizes` (cubes) or `mnk` (lists of sizes), and where
    wanted `class`, `layouts` and `batch`; other entries are notes. Any other file has a shape a
    line; what follows a `#` is a note.

    Raises:
        UsageError: the file cannot be read, is not of that form, or lists nothing.
        ShapeError: with the place in the file.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"cannot read the shapes in {file}: {why}") from None
    found = _from_toml(text, file) if file.suffix == ".toml" else _from_lines(text)
    listed = []
    for place, group, shape, options in found:
        try:
            listed.append(Listed(problem=parse(shape, options), group=group))
        except UsageError as error:
            raise type(error)(f"{file}, {place}: {error}") from None
    if not listed:
        raise UsageError(f"{file} lists no shape; write one a line, for example 2048x2048x2048")
    return listed


Entry = tuple[str, str, str, dict[str, Any]]
"""Place in the file, class, shape, options of the problem."""


def _from_lines(text: str) -> Iterator[Entry]:
    for number, line in enumerate(text.splitlines(), start=1):
        if shape := line.partition("#")[0].strip():
            yield f"line {number}", "", shape, {}


def _from_toml(text: str, file: Path) -> Iterator[Entry]:
    try:
        tables = tomllib.loads(text).get("shape", [])
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file} is not TOML: {error}") from None
    if not isinstance(tables, list):
        raise UsageError(f"{file}: shapes are [[shape]] tables, with two brackets")
    for number, table in enumerate(tables, start=1):
        place = f"shape {number}"
        cubes, others = table.get("sizes", []), table.get("mnk", [])
        if not isinstance(cubes, list) or not isinstance(others, list) or not cubes + others:
            raise UsageError(f"{file}, {place}: it needs a list named sizes or mnk")
        if not isinstance(group := table.get("class", ""), str):
            raise UsageError(f"{file}, {place}: its class must be a text, got {group!r}")
        options = {"batch": table["batch"]} if "batch" in table else {}
        for sizes in [[size] * 3 for size in cubes] + others:
            if not isinstance(sizes, list) or not all(type(size) is int for size in sizes):
                raise UsageError(f"{file}, {place}: {sizes!r} is not a list of whole numbers")
            shape = "x".join(map(str, sizes))
            for layout in table.get("layouts", [None]):
                yield place, group, shape, options | ({"layout": layout} if layout else {})
