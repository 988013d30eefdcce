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


TABLES = {"end_to_end": end_to_end}
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
