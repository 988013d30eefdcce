"""What every result file says about where it comes from."""

from __future__ import annotations

import argparse
import json
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotune import assets, compile, device, gpu


def arguments(description: str) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument(
        "--commit", default=assets.revision(), help="commit that runs, where git is not at hand"
    )
    parser.add_argument("--door", default=None, help="pycuda or cuda-bindings")
    return parser


def provenance(options: argparse.Namespace) -> dict[str, Any]:
    """Device, driver, compiler, door, commit and date."""
    door = gpu.choose(options.door)
    chosen = device.select(door=door)
    return {
        "device": chosen.name,
        "arch": chosen.arch,
        "sm_count": chosen.sm_count,
        "driver": chosen.driver_version,
        "cuda": chosen.driver,
        "peak_tflops": round(chosen.fp32_tflops, 2),
        "compiler": compile.find().label,
        "door": door.name,
        "python": platform.python_version(),
        "commit": options.commit,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def write(options: argparse.Namespace, results: dict[str, Any]) -> None:
    """The result file: provenance first, then what was measured."""
    options.out.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"provenance": provenance(options), **results}, indent=1)
    options.out.write_text(text + "\n")
