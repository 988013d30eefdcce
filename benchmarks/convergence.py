"""Plots what replay.py and replay_kernel_tuner.py recorded.

    python benchmarks/convergence.py [--results benchmarks/results/replay.json] \
        [--out docs/plots/convergence.svg]

One panel for each space that has seeded runs, cold above and seeded below: the share of runs that
have reached 95 % of the best, over the number of unique points tried. Needs the extra `plot`; the
same rows and the same matplotlib give the same text.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "replay.json"
PLOT = Path(__file__).parents[1] / "docs" / "plots" / "convergence.svg"
# Okabe and Ito's colours, which people with any colour vision tell apart.
COLOURS = {
    "auto": "#0072B2", "gp": "#56B4E9", "tpe": "#E69F00", "local": "#009E73", "grid": "#CC79A7",
    "random": "#000000",
}  # fmt: skip
THEIRS = "#D55E00"
LINES = ("--", ":", "-.")


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """A grid of panels: a column a space, a row for cold and one for seeded runs."""
    import matplotlib
    from matplotlib.figure import Figure

    spaces = sorted({row["space"] for row in rows})
    theirs = sorted({row["strategy"] for row in rows} - COLOURS.keys())
    kinds = sorted({row["seeded"] for row in rows})
    settings: dict[Any, Any] = {"svg.hashsalt": "autotune", "svg.fonttype": "none", "font.size": 9}
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(5 * len(spaces) + 2, 3.2 * len(kinds)), layout="constrained")
        panels = figure.subplots(len(kinds), len(spaces), squeeze=False, sharex=True, sharey=True)
        for line, seeded in enumerate(kinds):
            for column, space in enumerate(spaces):
                panel = panels[line][column]
                panel.set_title(f"{space}, {'seeded' if seeded else 'cold'}")
                for row in rows:
                    if (row["space"], row["seeded"]) != (space, seeded):
                        continue
                    curve, name = row["curve"], row["strategy"]
                    tried = [curve["every"] * (i + 1) for i in range(len(curve["share_at_95"]))]
                    style = {"color": COLOURS.get(name, THEIRS), "linestyle": "-"}
                    if name not in COLOURS:
                        style["linestyle"] = LINES[theirs.index(name) % len(LINES)]
                    label = f"{name} ({row['runs']} runs)"
                    panel.plot(tried, curve["share_at_95"], label=label, **style)
                panel.set_ylim(-0.02, 1.02)
                panel.grid(alpha=0.3)
        for panel in panels[-1]:
            panel.set_xlabel("unique points tried")
        for panel in panels[:, 0]:
            panel.set_ylabel("share of runs at 95 % of the best")
        labelled = {
            label: line
            for line, label in (
                pair
                for panel in panels.flat
                for pair in zip(*panel.get_legend_handles_labels(), strict=True)
            )
        }
        figure.legend(labelled.values(), labelled.keys(), loc="outside right upper", fontsize=8)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=PLOT, help="SVG or PNG")
    options = parser.parse_args()
    rows = json.loads(options.results.read_text())["rows"]
    # The others are for comparing strategies on our own kernel, and have fewer runs.
    spaces = {row["space"] for row in rows if row["seeded"]}
    draw([row for row in rows if row["space"] in spaces], options.out)


if __name__ == "__main__":
    main()
