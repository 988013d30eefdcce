"""Makes the predicted lines of the shipped seed: the model's choice for GPUs that nobody timed.

    python benchmarks/seed.py --arch 75 --arch 80 --db predicted.db --out db/seed [--only 2048x]

The suite is searched as `autotune search --arch` does it where no GPU of the architecture is: the
model ranks, its favourites are compiled, and their registers decide. What a file of the seed has
measured stays, and no prediction stands beside a measurement of the same problem. A run that was
ended goes on from the store.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import selection

from autotune import api, archs, seed
from autotune.search import Event, Finished
from autotune.types import Evidence

Line = dict[str, Any]


def say(event: Event) -> None:
    """A line for each problem that is done."""
    if isinstance(event, Finished):
        report = event.report
        print(f"{report.problem.key}: {report.status} {report.message}".rstrip(), flush=True)


def combined(old: list[Line], predicted: list[Line]) -> list[Line]:
    """The measured lines, and predictions for the problems that have none."""
    measured = [line for line in old if line["evidence"] == Evidence.measured]
    known = {(line["problem"], line["arch"]) for line in measured}
    return measured + [x for x in predicted if (x["problem"], x["arch"]) not in known]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", action="append", required=True, help="75, or sm_75; repeatable")
    parser.add_argument("--db", type=Path, required=True, help="store of the predictions")
    parser.add_argument("--out", type=Path, required=True, help="folder of the seed")
    parser.add_argument("--trials", type=int, default=8, help="kernels to compile for a problem")
    selection.add_arguments(parser)
    options = parser.parse_args()
    problems = [case.problem for case in selection.cases(options)]
    for arch in map(archs.parse, options.arch):
        begun = time.monotonic()
        api.search(problems, arch=arch, trials=options.trials, store=options.db, listener=say)
        print(f"sm_{arch}: {time.monotonic() - begun:.0f} s", flush=True)
    wanted = {archs.parse(arch) for arch in options.arch}
    lines = [
        line
        for line in seed.of_store(options.db)
        if line["evidence"] == Evidence.predicted and line["arch"] in wanted
    ]
    old = [
        json.loads(text)
        for kernel in {line["kernel"] for line in lines}
        for arch in wanted
        if (file := options.out / seed.file_name(kernel, arch)).exists()
        for text in file.read_text(encoding="utf-8").splitlines()
    ]
    for written in seed.write(options.out, combined(old, lines)):
        print(written)


if __name__ == "__main__":
    main()
