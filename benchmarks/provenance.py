"""What every result file says about where it comes from."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from autotune import compile, device, gpu
from autotune.bench import origin

SAME = ("device", "driver", "compiler", "door", "commit")
"""What has to be as before where a run goes on with a file."""


def arguments(description: str) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--commit", default=None, help="commit that runs, where git cannot tell")
    parser.add_argument("--door", default=None, help="pycuda or cuda-bindings")
    return parser


def provenance(options: argparse.Namespace) -> dict[str, Any]:
    """Device, driver, compiler, door, commit and date."""
    door = gpu.choose(options.door)
    return origin(device.select(door=door), compile.find().label, door.name, options.commit)


def earlier(options: argparse.Namespace) -> dict[str, Any]:
    """The `problems` that the result file holds already; none where it tells of another commit,
    device, driver or compiler, since a file says once where its figures come from."""
    if not options.out.exists():
        return {}
    found: dict[str, Any] = json.loads(options.out.read_text())
    then, now = found["provenance"], provenance(options)
    changed = [name for name in SAME if then.get(name) != now[name]]
    if changed:
        print(f"{options.out} is begun anew: {', '.join(changed)} differ")
        return {}
    problems: dict[str, Any] = found["problems"]
    return problems


def write(options: argparse.Namespace, results: dict[str, Any]) -> None:
    """The result file: provenance first, then what was measured."""
    options.out.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"provenance": provenance(options), **results}, indent=1)
    options.out.write_text(text + "\n")
