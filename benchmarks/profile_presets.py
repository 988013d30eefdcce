"""Explains and profiles seed-v3, seed-v3.2 and the best known config on a GPU, with ncu.

    python benchmarks/profile_presets.py --db results.db --out benchmarks/results/profile_h200.json

The best config is the store's, or what --config gives. Each is explained as by `autotune explain
--profile`; the screens go to stdout, everything behind them to the file, with how far the counted
wavefronts and conflicts are from the foreseen ones.
"""

from __future__ import annotations

from typing import Any

from provenance import arguments, write
from rich.console import Console

from autotune import device
from autotune.analysis.access import SHARED_KINDS
from autotune.cli import configs
from autotune.explain import Choice, Explanation, choose, explain
from autotune.problems import family
from autotune.report import explain as report

PRESETS = ("seed-v3", "seed-v3.2")
EXACT = tuple(
    f"{kind} {figure}"
    for kind in SHARED_KINDS
    for figure in ("requests", "wavefronts", "conflicts")
)
"""Figures that do not depend on timing: counted and foreseen ones must agree."""


def differences(found: Explanation) -> dict[str, float | None]:
    """Relative difference of each exact figure, of the wavefronts where none is foreseen; None
    where it was not counted."""
    rows = {row.name: row for row in found.comparisons}
    result: dict[str, float | None] = {}
    for name in EXACT:
        row = rows.get(name)
        if row is None:
            continue  # nothing is copied by cp.async
        if row.measured is None or row.predicted is None:
            result[name] = None
            continue
        scale = row.predicted or rows[name.replace("conflicts", "wavefronts")].predicted or 1.0
        result[name] = abs(row.measured - row.predicted) / scale
    return result


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--shape", default="2048x2048x2048")
    parser.add_argument("--db", default=None, help="store whose best config is profiled")
    parser.add_argument("--config", default=None, help="JSON, or a file of it, in its place")
    options = parser.parse_args()
    problem, target = family("sgemm").parse(options.shape), device.select()
    choices: dict[str, Choice] = {name: choose(problem, target, preset=name) for name in PRESETS}
    if options.config is not None:
        choices["best"] = choose(problem, target, values=configs.values(options.config))
    else:
        choices["best"] = choose(problem, target, best=True, store=options.db)
    console = Console(width=160, highlight=False)
    results: dict[str, Any] = {"shape": options.shape, "profiles": {}}
    for name, choice in choices.items():
        found = explain(problem, target, choice, profile=True, door=options.door)
        if found.profile is None:
            raise SystemExit("; ".join(f"{each.part}: {each.reason}" for each in found.missing))
        apart = differences(found)
        results["profiles"][name] = {**report.as_object(found), "relative_difference": apart}
        write(options, results)
        console.print(f"*** {name} ***")
        console.print(report.as_text(found))
        worst = max((value for value in apart.values() if value is not None), default=None)
        console.print(f"largest difference of counted from foreseen: {worst}\n")


if __name__ == "__main__":
    main()
