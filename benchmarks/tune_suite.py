"""Searches the suite for so long in all, and goes on where the last run stopped.

    python benchmarks/tune_suite.py --db results.db --seconds 540 [--classes skinny] [--only 4096x]

The search gives the time to the problems that gain most from it, and each a first part of it, those
with the fewest trials before the others; those that time does not reach are the first of the next
run. It ends in time whatever happens; every finished trial is in the store.
"""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import selection
from rich.console import Console

from autotune import api
from autotune.bench import Case
from autotune.report import text
from autotune.report.tables import table
from autotune.search import Event, Finished, Report, Tried

ENDING_S = 12.0
"""Kept for closing down, and for confirm rounds that take longer than expected."""
LINE_S = 30.0


class Listener:
    """Keeps the reports, and says now and then how far it is."""

    def __init__(self, console: Console) -> None:
        self.reports: list[Report] = []
        self._console = console
        self._last_line_s = 0.0

    def __call__(self, event: Event) -> None:
        if isinstance(event, Finished):
            self.reports.append(event.report)
            self._console.print(f"{event.report.problem.key}: {describe(event.report)}")
        elif isinstance(event, Tried) and time.monotonic() - self._last_line_s > LINE_S:
            self._last_line_s = time.monotonic()
            rate = text.number(text.tflops(event.problem.flops, event.best_ns), 2)
            key = event.problem.key
            self._console.print(f"{key}: trial {event.number}, best {rate} TFLOP/s")


def describe(report: Report) -> str:
    """What a search came to, in a few words."""
    if report.best is None:
        return f"{report.status}: {text.first_line(report.message)}"
    words = f"{sum(report.counts.values())} trials, {text.number(report.tflops, 2)} TFLOP/s"
    share = report.vendor_share
    return words if share is None else f"{words}, {share:.3f} x vendor"


def interrupt(_: int, __: FrameType | None) -> None:
    """Ends the search as Ctrl-C would."""
    raise KeyboardInterrupt


def results(reports: Sequence[Report], cases: Sequence[Case]) -> object:
    """A line for each problem that was searched."""
    classes = {case.problem: ",".join(case.classes) for case in cases}
    headings = ["problem", "class", "trials", "took", "time", "TFLOP/s", "x vendor", "status"]
    rows = [
        [
            report.problem.key,
            classes[report.problem],
            str(sum(report.counts.values())),
            text.duration(report.seconds),
            text.time(report.best_ns),
            text.number(report.tflops, 2),
            text.number(report.vendor_share, 3),
            report.status,
        ]
        for report in reports
    ]
    return table(headings, rows, left=["problem", "class", "status"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--db", type=Path, required=True, help="store; made where there is none")
    parser.add_argument("--seconds", type=float, required=True, help="wall time in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sampler", default="auto")
    parser.add_argument("--door", default=None, help="pycuda or cuda-bindings")
    selection.add_arguments(parser)
    options = parser.parse_args()
    if options.seconds <= ENDING_S:
        parser.error(f"--seconds must be above {ENDING_S:g}, which the end takes")
    started = time.monotonic()
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, options.seconds)
    console = Console(width=160, highlight=False)
    listener = Listener(console)
    cases = selection.cases(options)
    try:
        api.search(
            [case.problem for case in cases],
            total_seconds=options.seconds - ENDING_S,
            store=options.db,
            seed=options.seed,
            sampler=options.sampler,
            door=options.door,
            listener=listener,
        )
    except KeyboardInterrupt:
        console.print("out of time, or interrupted: every finished trial is stored")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    console.print(results(listener.reports, cases))
    left = [case for case in cases if case.problem not in {r.problem for r in listener.reports}]
    unserved = [report for report in listener.reports if report.best is None]
    console.print(
        f"{len(listener.reports) - len(unserved)} of {len(cases)} problems have a best after "
        f"{text.duration(time.monotonic() - started)}; {len(left) + len(unserved)} are left to the "
        "next run, which begins with those that were tried least"
    )


if __name__ == "__main__":
    main()
