"""What every result file says about where it comes from."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from autotune import compile, device, gpu
from autotune.bench import origin


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


def write(options: argparse.Namespace, results: dict[str, Any]) -> None:
    """The result file: provenance first, then what was measured."""
    options.out.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"provenance": provenance(options), **results}, indent=1)
    options.out.write_text(text + "\n")
