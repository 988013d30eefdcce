"""Plots what replay.py and replay_kernel_tuner.py recorded.

    python benchmarks/convergence.py [--results benchmarks/results/replay.json] \
        [--out docs/plots/convergence.svg]

One panel for each space that was played by chance, too, in a hundred runs, cold and seeded apart:
the share of runs that have reached 95 % of the best, over the number of unique points tried. Needs
the extra `plot`; the same rows and the same matplotlib give the same text.
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
COLUMNS = 2
MANY_RUNS = 100


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """A panel for each space, cold and seeded apart, two in a line."""
    import matplotlib
    from matplotlib.figure import Figure

    theirs = sorted({row["strategy"] for row in rows} - COLOURS.keys())
    kinds = sorted({(row["space"], row["seeded"]) for row in rows})
    lines = -(-len(kinds) // COLUMNS)
    settings: dict[Any, Any] = {"svg.hashsalt": "autotune", "svg.fonttype": "none", "font.size": 9}
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(5 * COLUMNS + 2, 3.2 * lines), layout="constrained")
        panels = figure.subplots(lines, COLUMNS, squeeze=False, sharex=True, sharey=True)
        for panel in panels.flat[len(kinds) :]:
            panel.set_visible(False)
        for panel, (space, seeded) in zip(panels.flat, kinds, strict=False):
            panel.set_title(f"{space.partition(':')[0]}, {'seeded' if seeded else 'cold'}")
            for row in rows:
                if (row["space"], row["seeded"]) != (space, seeded):
                    continue
                curve, name = row["curve"], row["strategy"]
                tried = [curve["every"] * (i + 1) for i in range(len(curve["share_at_95"]))]
                style = {"color": COLOURS.get(name, THEIRS), "linestyle": "-"}
                if name not in COLOURS:
                    style["linestyle"] = LINES[theirs.index(name) % len(LINES)]
                label = f"{name} ({row['runs']} runs)"
                if row["predicted"]:
                    style["linestyle"], label = LINES[0], f"{label}, model as prior"
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
    # The others were played to compare a few strategies, with fewer runs.
    whole = {
        row["space"] for row in rows if row["strategy"] == "random" and row["runs"] >= MANY_RUNS
    }
    draw([row for row in rows if row["space"] in whole], options.out)


if __name__ == "__main__":
    main()
