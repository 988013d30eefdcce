"""The tables of README and docs, made from recorded results; `--write` puts them where they belong.

    python benchmarks/tables.py --write

A table stands between `<!-- table NAME -->` and `<!-- end of table -->`; a test compares.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def _load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((RESULTS / name).read_text())
    return loaded


def _origin(script: str, runs: list[dict[str, Any]]) -> str:
    last = runs[-1]
    return (
        f"{last['device']}, driver {last['driver']}, {last['compiler']}, timed through "
        f"{last['door']}, commit {last['commit']}, {last['date'][:10]}; `benchmarks/{script}`."
    )


def end_to_end() -> str:
    """Confirmed rates of the best config, the seed's kernels and cuBLAS, in TFLOP/s."""
    results = _load("end_to_end_h200.json")
    names = ["best", "seed-v3", "seed-v3.1", "seed-v3.2", "cublas"]
    lines = [
        "| M x N x K | trials | best | " + " | ".join(names[1:]) + " | best / cuBLAS | % of peak |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    peak = results["provenance"]["peak_tflops"]
    for shape, entry in results["shapes"].items():
        rows = entry["confirmed_again"]
        rates = {name: rows[name]["tflops"] for name in names}
        lines.append(
            f"| {shape.replace('x', ' x ')} | {entry['search']['ok']:,} | "
            + " | ".join(f"{rates[name]:.1f}" for name in names)
            + f" | {rates['best'] / rates['cublas']:.3f} | {rates['best'] / peak:.0%} |"
        )
    lines += ["", _origin("end_to_end.py", results["runs"])]
    return "\n".join(lines)


def profile_counters() -> str:
    """Figures foreseen without a GPU beside the counters of Nsight Compute."""
    results = _load("profile_h200.json")
    profiles = results["profiles"]
    rows: dict[str, list[str]] = {}
    for number, entry in enumerate(profiles.values()):
        for each in entry["comparisons"]:
            cells = rows.setdefault(each["name"], ["-"] * (2 * len(profiles)))
            for place, kind in enumerate(("predicted", "measured")):
                cells[2 * number + place] = _figure(each[kind], each["unit"])
    head = [f"{name}, {kind}" for name in profiles for kind in ("foreseen", "counted")]
    lines = ["| figure | " + " | ".join(head) + " |", "|---" * (len(head) + 1) + "|"]
    lines += [f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items()]
    lines += ["", _origin("profile_presets.py", [results["provenance"]])]
    return "\n".join(lines)


def profile_gap() -> str:
    """Where the peak went, in percent of it; what loses less than 0.5 % of each is left out."""
    results = _load("profile_h200.json")
    profiles = results["profiles"]
    gaps = {name: entry["profile"]["gap"] for name, entry in profiles.items()}
    losses = {
        name: {each["cause"]: each["percent"] for each in gap["losses"]}
        for name, gap in gaps.items()
    }
    reasons = {reason for each in losses.values() for reason, share in each.items() if share >= 0.5}
    ordered = sorted(reasons, key=lambda r: -max(each.get(r, 0.0) for each in losses.values()))
    lines = ["| percent of peak | " + " | ".join(gaps) + " |", "|---" * (len(gaps) + 1) + "|"]
    reached = (f"{gap['reached_percent']:.1f}" for gap in gaps.values())
    lines.append("| reached | " + " | ".join(reached) + " |")
    for reason in ordered:
        cells = (f"{each.get(reason, 0.0):.1f}" for each in losses.values())
        lines.append(f"| {reason} | " + " | ".join(cells) + " |")
    lines += ["", _origin("profile_presets.py", [results["provenance"]])]
    return "\n".join(lines)


def occupancy() -> str:
    """Blocks per SM of random variants, calculated and as the driver counts them."""
    results = _load("occupancy_h200.json")
    counts = results["blocks_per_sm"]
    lines = [
        "| blocks an SM | " + " | ".join(counts) + " | calculated differently |",
        "|---" * (len(counts) + 2) + "|",
        "| variants | "
        + " | ".join(map(str, counts.values()))
        + f" | {len(results['different'])} |",
    ]
    return "\n".join([*lines, "", _origin("occupancy.py", [results["provenance"]])])


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "ns":
        return f"{value / 1e3:.1f} us"
    if unit == "share":
        return f"{value:.1%}"
    return f"{value:,.0f}"


TABLES = {
    "end_to_end": end_to_end,
    "profile_counters": profile_counters,
    "profile_gap": profile_gap,
    "occupancy": occupancy,
}
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
_PLACE = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def filled(text: str) -> str:
    """A page with its tables as the results say."""
    return _PLACE.sub(lambda place: f"{place[1]}{TABLES[place[2]]()}\n{place[3]}", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="change the pages")
    options = parser.parse_args()
    for page in PAGES:
        text = page.read_text()
        if options.write and filled(text) != text:
            page.write_text(filled(text))
    if not options.write:
        for name, make in TABLES.items():
            print(f"{name}\n\n{make()}\n")


if __name__ == "__main__":
    main()
