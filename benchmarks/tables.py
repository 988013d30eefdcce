"""The tables and plots of README and docs, made from recorded results.

    python benchmarks/tables.py --write

A table stands between `<!-- table NAME -->` and `<!-- end of table -->`; a test compares. `--write`
also draws the plots of docs/plots/. What has not been recorded yet is left out.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotune.report import plots

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PLOTS = ROOT / "docs" / "plots"
SUITE, LADDER, PEERS = "suite_h200.json", "ladder_h200.json", "peers_h200.json"
RUNTIME = "runtime_h200.json"


def _load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((RESULTS / name).read_text())
    return loaded


def _origin(script: str, runs: list[dict[str, Any]]) -> str:
    last = runs[-1]
    return (
        f"{last['device']}, driver {last['driver']}, {last['compiler']}, timed through "
        f"{last['door']}, commit {last['commit']}, {last['date'][:10]}; `benchmarks/{script}`."
    )


def _grid(headings: Sequence[str], rows: Sequence[Sequence[str]], *notes: str) -> str:
    """A table, and what stands below it."""
    head, *lines = (f"| {' | '.join(line)} |" for line in (headings, *rows))
    return "\n".join([head, "|" + "---|" * len(headings), *lines, "", *notes])


def profile_counters() -> str:
    """Figures foreseen without a GPU beside the counters of Nsight Compute."""
    results = _load("profile_h200.json")
    profiles = results["profiles"]
    # Not every kernel has each figure; that with most of them has them in order.
    longest = max((entry["comparisons"] for entry in profiles.values()), key=len)
    rows = {each["name"]: ["-"] * (2 * len(profiles)) for each in longest}
    for number, entry in enumerate(profiles.values()):
        for each in entry["comparisons"]:
            cells = rows.setdefault(each["name"], ["-"] * (2 * len(profiles)))
            for place, kind in enumerate(("predicted", "measured")):
                cells[2 * number + place] = _figure(each[kind], each["unit"])
    head = [f"{name}, {kind}" for name in profiles for kind in ("foreseen", "counted")]
    return _grid(
        ["figure", *head],
        [[name, *cells] for name, cells in rows.items()],
        _origin("profile_presets.py", [results["provenance"]]),
    )


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
    reached = ["reached", *(f"{gap['reached_percent']:.1f}" for gap in gaps.values())]
    rows = [
        [reason, *(f"{each.get(reason, 0.0):.1f}" for each in losses.values())]
        for reason in ordered
    ]
    return _grid(
        ["percent of peak", *gaps],
        [reached, *rows],
        _origin("profile_presets.py", [results["provenance"]]),
    )


def verified() -> str:
    """Pairs of variants and problems that passed every check."""
    results = _load("verified_h200.json")
    cells = [
        f"{results['verified']:,}",
        str(len(results["by_problem"])),
        str(len(results["by_path"])),
        str(len(results["failures"])),
        str(results["checks_after_timing"]),
    ]
    headings = [
        "verified",
        "problems",
        "paths",
        "not verified",
        "exact checks after timing, each",
    ]
    return _grid(headings, [cells], _origin("verify_grid.py", [results["provenance"]]))


def paths() -> str:
    """One kernel of each path, launched again and again, and under NVIDIA's sanitizer."""
    results = _load("paths_h200.json")
    fixed = [row for row in results["paths"] if row["is_deterministic"]]
    rows = [
        [
            f"{max(row['launches'] for row in fixed):,} launches of each",
            str(len(fixed)),
            f"{sum(row['differing'] > 0 for row in fixed)} with a bit that differs",
        ],
        *(
            [f"compute-sanitizer, {tool['tool']}", str(tool["paths"]), tool["summary"]]
            for tool in results["sanitizer"]
        ),
    ]
    headings = ["check", "paths", "found"]
    return _grid(headings, rows, _origin("paths.py", [results["provenance"]]))


def counters() -> str:
    """What limits the best kernels, as counted by Nsight Compute."""
    results = _load("counters_h200.json")
    rows = []
    for each in results["rows"]:
        losses = sorted(each["losses_percent"].items(), key=lambda loss: -loss[1])
        rows.append(
            [
                _problem(each),
                each["config"].split(",")[0],
                f"{each['ffma_share']:.1%}",
                f"{each['issue_share']:.1%}",
                f"{each['bandwidth_share']:.0%}",
                f"{each['reached_percent']:.1f}",
                ", ".join(f"{cause} {percent:.1f}" for cause, percent in losses[:3]),
            ]
        )
    headings = [
        "problem", "nearest preset", "FFMA share", "issued", "memory", "% of FMA rate", "lost to",
    ]  # fmt: skip
    return _grid(headings, rows, _origin("counters.py", [results["provenance"]]))


def reading() -> str:
    """Problems that are bound by memory, beside a kernel that only reads as much."""
    results = _load("reading_h200.json")
    ours = {row["problem"]: row for row in _load(SUITE)["rows"]}
    rows = [
        [
            _problem(ours[key]),
            _number(each["bytes"], 1, 1e-6),
            f"{_number(each['ns'], 1, 1e-3)} us, {each['percent_of_bandwidth']:.0f}%",
            f"{_number(ours[key]['median_ns'], 1, 1e-3)} us, "
            f"{ours[key]['percent_of_bandwidth']:.0f}%",
            _share(each["ns"] / ours[key]["median_ns"]),
        ]
        for each in results["rows"]
        for key in each["problems"]
    ]
    headings = ["problem", "MB", "reading alone, of bandwidth", "ours", "reading / ours"]
    return _grid(headings, rows, _origin("reading.py", [results["provenance"]]))


def occupancy() -> str:
    """Blocks per SM of random variants, calculated and as the driver counts them."""
    results = _load("occupancy_h200.json")
    counts = results["blocks_per_sm"]
    return _grid(
        ["blocks an SM", *counts, "calculated differently"],
        [["variants", *map(str, counts.values()), str(len(results["different"]))]],
        _origin("occupancy.py", [results["provenance"]]),
    )


def suite() -> str:
    """Every problem of the suite beside cuBLAS: times in us, rates in TFLOP/s, GFLOP/s per watt."""
    results = _load(SUITE)
    rows = [
        [
            row["class"].replace(",", ", "),
            _problem(row),
            _number(row["median_ns"], 1, 1e-3),
            _number(row["tflops"], 1),
            _number(row["percent_of_peak"], 0),
            _number(row["percent_of_bandwidth"], 0),
            _number(row["vendor_ns"], 1, 1e-3),
            _number(row["ratio"], 3),
            _number(row["gflops_per_watt"], 0),
            _number(row["vendor_gflops_per_watt"], 0),
        ]
        for row in results["rows"]
    ]
    headings = [
        "class", "problem", "us", "TFLOP/s", "% of peak", "% of bandwidth", "cuBLAS, us",
        "cuBLAS / ours", "GFLOP/s/W", "cuBLAS'",
    ]  # fmt: skip
    return _grid(headings, rows, _origin("suite.py", [results["provenance"]]))


def suite_classes() -> str:
    """What the suite comes to: geometric means of cuBLAS' time over ours."""
    results = _load(SUITE)
    rows = [
        [
            each["name"],
            str(each["problems"]),
            str(each["failed"]),
            _number(each["mean_ratio"], 3),
            _share(each["share_ahead"]),
            _number(each["worst_ratio"], 3),
            each["worst"].partition("/")[2] or "-",
        ]
        for each in results["summary"]
    ]
    headings = ["class", "problems", "without a time", "cuBLAS / ours", "ahead", "least", "of"]
    return _grid(headings, rows, _origin("suite.py", [results["provenance"]]))


def ladder() -> str:
    """The ladder: what each step changes, and what that gains."""
    results = _load(LADDER)
    rows = [
        [
            f"`{each['step']}`",
            each["changes"] or "-",
            _number(each["tflops"], 1),
            _number(each["gain"], 3),
            _number(each["percent_of_vendor"], 1),
            each["limiter"] or "-",
            each["why"],
        ]
        for each in results["steps"]
    ]
    headings = ["step", "changes", "TFLOP/s", "gain", "% of cuBLAS", "limited by", "why"]
    return _grid(headings, rows, _origin("ladder.py", [results["provenance"]]))


def peers() -> str:
    """The suite's rates in TFLOP/s beside other libraries in plain FP32."""
    ours = {row["problem"]: row for row in _load(SUITE)["rows"]}
    results = _load(PEERS)
    names = list(results["versions"])
    rows = []
    for key, entry in results["problems"].items():
        row = ours.get(key, {})
        rates = [
            row.get("tflops"),
            row.get("vendor_tflops"),
            *(entry.get(name, {}).get("tflops") for name in names),
        ]
        rows.append([key.partition("/")[2], *(_number(rate, 1) for rate in rates)])
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    note = f"{versions}. {_origin('peers.py', [results['provenance']])}"
    return _grid(["problem", "ours", "cuBLAS", *names], rows, note)


def throughput() -> str:
    """Verified variants a second of searches from nothing."""
    results = _load("throughput_h200.json")
    rows = [
        [
            each["shape"],
            each.get("sampler", "auto"),
            str(each["search"]["tried"]),
            _number(each["verified_per_s"], 1),
            _share(each["search"]["busy_share"]),
            _number(each["worker_ms_per_variant"], 0),
            _number(each["compile_s_mean"], 2),
            _number(each["search"]["tflops"], 1),
        ]
        for each in results["searches"]
    ]
    headings = [
        "problem", "sampler", "variants", "verified a second", "measuring process busy",
        "ms each there", "s of a compiler each", "best, TFLOP/s",
    ]  # fmt: skip
    note = f"{results['cpus']} CPU cores. "
    return _grid(headings, rows, note + _origin("throughput.py", [results["provenance"]]))


def holds() -> str:
    """Stored bests, measured again in fresh processes."""
    results = _load("holds_h200.json")
    rows = []
    for name, words in (
        ("this_gpu", "the GPU that is here"),
        ("other_gpus", "others of its model"),
    ):
        found = results["summary"][name]
        rows.append([
            words,
            str(found["bests"]),
            str(found["hold"]),
            str(found["medians_within_1_percent"]),
            _number(found["median_drift_percent"], 2),
            _number(found["largest_drift_percent"], 2),
        ])  # fmt: skip
    headings = [
        "claims of", "bests", "hold within 1 % and both intervals", "medians within 1 %",
        "median difference, %", "largest, %",
    ]  # fmt: skip
    return _grid(headings, rows, _origin("holds.py", [results["provenance"]]))


def placement() -> str:
    """Kernels in fresh processes, with data that stays in a place and that moves."""
    results = _load("placement_h200.json")
    rows = []
    for line in results["problems"]:
        cells = [line["problem"].partition("/")[2], line["kernel"], str(line["processes"])]
        for name in ("stays", "moved"):
            spread = line[name]
            cells += [
                f"{spread['median_ns'] / 1e3:.2f}",
                f"{spread['largest_difference_percent']:.1f}",
                str(spread["within_1_percent"]),
            ]
        rows.append([*cells, str(line["intervals_with_the_median"])])
    one = ["us", "farthest from it, %", "within 1 %"]
    headings = [
        "problem", "kernel", "processes", *(f"one place: {each}" for each in one),
        *(f"many: {each}" for each in one), "intervals with the median",
    ]  # fmt: skip
    return _grid(headings, rows, _origin("placement.py", [results["provenance"]]))


def calls() -> str:
    """What a call costs the host, beyond the launch itself, in us."""
    results = _load(RUNTIME)
    rows = [
        [
            row["arrays"],
            str(row["launches"]),
            *(_number(row[f"{name}_us"], 2) for name in ("bare_launch", "Gemm", "sgemm")),
            *(_number(row[f"{name}_overhead_us"], 2) for name in ("Gemm", "sgemm")),
        ]
        for row in results["overheads"]
    ]
    headings = [
        "arrays", "launches", "bare launch", "`Gemm`", "`sgemm`", "`Gemm` beyond the launch",
        "`sgemm` beyond the launch",
    ]  # fmt: skip
    return _grid(headings, rows, _origin("runtime.py", [results["provenance"]]))


def runtime() -> str:
    """`sgemm` from the shipped seed beside other libraries on the suite, and random calls."""
    results = _load(RUNTIME)
    rows = [
        [
            f"{each['library']} {results['versions'][each['library']]}",
            str(each["compared"]),
            str(len(each["failed"])),
            _number(each["mean_ratio"], 3),
            _share(each["share_ahead"]),
            _number(each["worst_ratio"], 3),
            each["worst"].partition("/")[2],
        ]
        for each in results["summary"]
    ]
    headings = ["beside", "problems", "failed", "theirs / ours", "ahead", "least", "of"]
    random = results["random"]
    note = f"{random['calls']} random calls beside FP64: {len(random['wrong'])} wrong. " + _origin(
        "runtime.py", [results["provenance"]]
    )
    return _grid(headings, rows, note)


def near() -> str:
    """What look-ups lose for problems that were never tuned."""
    results = _load("leave_one_out_h200.json")
    found = results["summary"]
    cells = [
        str(found["problems"]),
        str(found["near_with_loss"]),
        f"{found['median_loss']:.1%}",
        f"{found['p90_loss']:.1%}",
        _share(found["covered_by_stated"]),
    ]
    headings = [
        "problems left out", "with a near answer", "median loss", "90th percentile",
        "within the stated loss",
    ]  # fmt: skip
    where = results["provenance"]
    note = (
        f"{', '.join(where['device'])}, driver {', '.join(where['driver'])}, timed "
        f"{where['timed']}, commit {where['commit']}, {where['date'][:10]}; "
        "`benchmarks/leave_one_out.py`."
    )
    return _grid(headings, [cells], note)


def draw() -> list[Path]:
    """The plots of what was recorded, and the files that they are in."""
    drawn: list[Path] = []
    if (RESULTS / SUITE).exists() or (RESULTS / LADDER).exists():
        PLOTS.mkdir(exist_ok=True)
    if (RESULTS / SUITE).exists():
        results = _load(SUITE)
        rates = (results["provenance"][name] for name in ("peak_tflops", "bandwidth_gbs"))
        drawn += [PLOTS / "suite.svg", PLOTS / "roofline.svg"]
        plots.ratios(results["rows"], drawn[0], _title(results))
        plots.roofline(results["rows"], *rates, drawn[1], _title(results))
    if (RESULTS / LADDER).exists():
        results = _load(LADDER)
        vendor = results["vendor"]
        drawn.append(PLOTS / "ladder.svg")
        rate = vendor["tflops"] if vendor else None
        plots.ladder(results["steps"], rate, drawn[-1], f"{results['shape']}, {_title(results)}")
    return drawn


def _title(results: dict[str, Any]) -> str:
    return f"{results['provenance']['device']}, {results['provenance']['date'][:10]}"


def _problem(row: dict[str, Any]) -> str:
    """Without the name of the family, and without the usual layout."""
    return str(row["problem"]).partition("/")[2].replace("/nn", "")


def _number(value: float | None, digits: int, factor: float = 1.0) -> str:
    return "-" if value is None else f"{value * factor:,.{digits}f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "ns":
        return f"{value / 1e3:.1f} us"
    if unit == "share":
        return f"{value:.1%}"
    return f"{value:,.0f}"


TABLES = {
    "profile_counters": profile_counters,
    "profile_gap": profile_gap,
    "occupancy": occupancy,
    "verified": verified,
    "paths": paths,
    "counters": counters,
    "reading": reading,
    "suite": suite,
    "suite_classes": suite_classes,
    "ladder": ladder,
    "peers": peers,
    "throughput": throughput,
    "holds": holds,
    "placement": placement,
    "calls": calls,
    "runtime": runtime,
    "near": near,
}
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
_PLACE = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def filled(text: str) -> str:
    """A page with its tables as the results say."""
    return _PLACE.sub(lambda place: f"{place[1]}{TABLES[place[2]]()}\n{place[3]}", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="change the pages, draw the plots")
    options = parser.parse_args()
    for page in PAGES:
        text = page.read_text()
        if options.write and filled(text) != text:
            page.write_text(filled(text))
    if options.write:
        for file in draw():
            print(file.relative_to(ROOT))
        return
    for name, make in TABLES.items():
        try:
            print(f"{name}\n\n{make()}\n")
        except FileNotFoundError as error:
            print(f"{name}: not recorded yet ({error.filename})\n")


if __name__ == "__main__":
    main()
