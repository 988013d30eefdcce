"""What the hardware counts while the best kernels of a store run, with ncu.

    python benchmarks/counters.py --db results.db --out benchmarks/results/counters_h200.json

Of some problems of each class of the suite: the share of multiply-adds among the instructions, how
often a scheduler issues, how much of the bandwidth of device memory is used, and where the rest of
the peak went. One launch each, with an emptied L2 cache; of several launches the longest.
"""

from __future__ import annotations

from typing import Any

from provenance import arguments, write

from autotune import device, profile, space
from autotune.compile import Pool
from autotune.explain import choose
from autotune.problems.sgemm import Sgemm
from autotune.render import render
from autotune.report import text
from autotune.types import Binary, Device, Problem

PROBLEMS = (
    "512x512x512", "1000x1000x1000", "1024x1024x1024", "2048x2048x2048", "4096x4096x4096",
    "4096x4096x4096 nt", "2048x12288x4096", "4095x4097x4093", "256x256x65536", "4096x4096x64",
    "128x8192x8192", "1x8192x8192", "16x8192x8192", "8192x16x8192", "4x7680x2560",
)  # fmt: skip


def parsed(words: str) -> Problem:
    """A problem of the list."""
    shape, _, layout = words.partition(" ")
    return Sgemm.parse(shape, layout=layout or "nn")


def row(found: profile.Profile, target: Device) -> dict[str, Any]:
    """The figures of a launch; shares from 0 to 1."""
    ns, moved = found.metrics.get(profile.TIME_NS), found.metrics.get(profile.DRAM_BYTES)
    most = target.bandwidth_gbs
    return {
        "kernel": found.kernel,
        "tool": found.tool,
        "time_ns": ns,
        "sm_clock_mhz": found.sm_clock_mhz,
        "ffma_share": found.ffma_share,
        "issue_share": found.issue_share,
        "dram_bytes": moved,
        "bandwidth_share": moved / ns / most if ns and moved is not None and most else None,
        "reached_percent": found.gap.reached_percent if found.gap else None,
        "losses_percent": {each.cause: each.percent for each in found.gap.losses}
        if found.gap
        else None,
        "metrics": dict(found.metrics),
    }


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--db", default=None, help="store whose best configs are counted")
    parser.add_argument("--problem", action="append", help="MxNxK, or 'MxNxK nt'")
    options = parser.parse_args()
    target, kernels = device.select(), space.load("sgemm")
    chosen = [
        (problem, choose(problem, target, best=True, store=options.db))
        for problem in map(parsed, options.problem or PROBLEMS)
    ]
    variants = [
        render(problem, choice.config, target.arch, sm_count=target.sm_count)
        for problem, choice in chosen
    ]
    rows: list[dict[str, Any]] = []
    with Pool() as pool:
        compiled = [pool.submit(variant.body, variant.arch) for variant in variants]
        for (problem, choice), variant, future in zip(chosen, variants, compiled, strict=True):
            binary = future.result()
            if not isinstance(binary, Binary):
                raise SystemExit(binary.message)
            found = row(profile.profile(variant, binary, target, door=options.door), target)
            config = text.config(choice.config, kernels)
            rows.append({"problem": problem.key, "match": choice.match, "config": config, **found})
            write(options, {"rows": rows})
            print(
                f"{problem.key:>28} FFMA {found['ffma_share']:.1%}, issued in "
                f"{found['issue_share']:.1%} of cycles, memory {found['bandwidth_share']:.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
