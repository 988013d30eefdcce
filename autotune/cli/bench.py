"""`autotune bench`: the best known kernels beside the vendor's, and the ladder."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from autotune.cli import app, options, shapes
from autotune.errors import DeviceError, UsageError
from autotune.types import Outcome, Problem

if TYPE_CHECKING:
    from autotune.bench import Case, Entry, Row, Stand

VENDORS = ("cublas", "none")
DEFAULT_LADDER = "4096x4096x4096"

_WITHOUT_GPU = (
    "nothing is timed without a GPU. `autotune explain` and `autotune search --arch 90` predict "
    "times without one, `autotune results best` shows what is stored"
)


@click.command()
@options.arch_option(text="Architecture of the GPU to use: 75, 7.5, sm_75, or native for any.")
@options.shape_options("time", toml="[[shape]] tables, each with a class")
@click.option(
    "--ladder",
    "is_ladder",
    is_flag=True,
    help=f"Time the search space's ladder on one shape.  [default shape: {DEFAULT_LADDER}]",
)
@click.option(
    "--vendor",
    type=click.Choice(VENDORS),
    default=VENDORS[0],
    show_default=True,
    help="Vendor library to time beside: cuBLAS in plain FP32, where CuPy is installed.",
)
@click.option(
    "--presets", metavar="NAME,...", help="Presets to time as well, fitted to each shape."
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=9,
    show_default=True,
    metavar="N",
    help="Rounds in which the kernels of a shape take turns; 3 samples each, and three times the "
    "rounds where the fastest takes less than 50 us.",
)
@click.option(
    "--power",
    type=options.Duration(),
    metavar="TIME",
    help="Also run each kernel back to back for so long, and take its power: 0.5s, for example.",
)
@options.seed_option("Of the data and of the order in each round.")
@options.device_option
@options.warm_option
@click.option(
    "--door",
    metavar="NAME",
    help="Binding to the driver.  [default: AUTOTUNE_DOOR, else pycuda where it imports]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.json",
    help="Write everything to this file, after each shape anew.",
)
@click.option(
    "--commit",
    metavar="NAME",
    help="Commit that runs, for --out.  [default: what git says, else unknown]",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.svg",
    help="Draw vendor's time / ours shape by shape, or the ladder; SVG or PNG.",
)
@click.option(
    "--roofline",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.svg",
    help="Draw the rates below the device's two ceilings; SVG or PNG.",
)
@options.problem_options
@app.db_option
@app.output_options()
@app.log_options
@click.pass_context
def bench(
    ctx: click.Context,
    *,
    arch: int | str,
    given: tuple[str, ...],
    file: Path | None,
    is_ladder: bool,
    vendor: str,
    presets: str | None,
    rounds: int,
    power: float | None,
    seed: int,
    device: str | None,
    warm: bool,
    door: str | None,
    out: Path | None,
    commit: str | None,
    plot: Path | None,
    roofline: Path | None,
    parse: options.ParseProblem,
    db: str | None,
    output: str | None,
) -> None:
    """Time the best known config of each shape beside the vendor library and the default.

    The config is what `autotune lookup` gives. All kernels of a shape are verified exactly and
    timed in turns. At the end: the geometric mean of vendor's time / ours by class, the share of
    shapes that are ahead, the worst. --ladder times the presets that lead to the best config, and
    says what each changes and gains. Writes nothing to the results store. Ctrl-C keeps what was
    measured.

    \b
    Example:
      autotune bench --shapes benchmarks/shapes.toml --power 0.5s --out suite.json
      autotune bench --ladder --shape 4096x4096x4096 --plot ladder.svg
    """
    from autotune.bench import Case, Stand, Wishes
    from autotune.report import plots
    from autotune.search import DEFAULT_SHAPES

    listed = [shapes.Listed(parse(shape), "") for shape in given]
    if file is not None:
        listed += shapes.read(file, parse)
    if not listed:
        defaults = (DEFAULT_LADDER,) if is_ladder else DEFAULT_SHAPES
        listed = [shapes.Listed(parse(shape), "") for shape in defaults]
    cases = Case.of(listed)
    if is_ladder and (len(cases) > 1 or presets or roofline):
        raise UsageError(
            f"--ladder takes one shape, not {len(cases)}, and neither --presets nor --roofline"
        )
    plots.require(plot, roofline)
    outlet = _Outlet(out, output, plot, roofline)
    outlet.check()
    wishes = Wishes(
        rounds=rounds,
        seed=seed,
        cold=not warm,
        with_vendor=vendor != "none",
        power_s=power or 0.0,
    )
    try:
        stand = Stand(
            wishes,
            arch=arch if isinstance(arch, int) else None,
            device_name=device,
            door=door,
            on_wait=app.note,
        )
    except DeviceError as error:
        raise DeviceError(f"{error}; {_WITHOUT_GPU}") from None
    with stand:
        if is_ladder:
            code = _ladder(cases[0].problem, stand, commit, db, outlet)
        else:
            names = [name.strip() for name in presets.split(",")] if presets else []
            code = _suite(cases, stand, commit, db, names, outlet)
    ctx.exit(code)


class _Outlet(NamedTuple):
    """Where the results go."""

    out: Path | None
    output: str | None
    plot: Path | None
    roofline: Path | None

    def check(self) -> None:
        """Refuses a file that cannot be written, before anything is measured for it."""
        if self.out is not None and not (folder := self.out.absolute().parent).is_dir():
            raise UsageError(f"cannot write {self.out}: there is no folder {folder}")

    def write(self, found: dict[str, Any]) -> None:
        """The file of results, whole."""
        if self.out is None:
            return
        try:
            self.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise app.Failure(f"cannot write {self.out}: {error.strerror}", 1) from None


def _head(stand: Stand, commit: str | None, problem: Problem) -> dict[str, Any]:
    from autotune.bench import origin
    from autotune.measure import vendor_library

    name, version = vendor_library(problem) if stand.wishes.with_vendor else ("", "")
    return {
        "provenance": origin(stand.device, stand.compiler.label, stand.door, commit),
        "settings": {
            **dataclasses.asdict(stand.wishes),
            "vendor": " ".join([name, version]).strip(),
        },
    }


def _suite(
    cases: Sequence[Case],
    stand: Stand,
    commit: str | None,
    db: str | None,
    presets: Sequence[str],
    outlet: _Outlet,
) -> int:
    from autotune.bench import race, summaries
    from autotune.bench.parts import BEST
    from autotune.report import bench as report
    from autotune.report import plots

    head = _head(stand, commit, cases[0].problem)
    device = stand.device
    rows: list[Row] = []
    is_interrupted = False
    racing = race(cases, stand, store=db, presets=presets)
    try:
        with _Live() as live:
            for number, case in enumerate(cases, start=1):
                live.begin(f"{case.problem.key} ({number} of {len(cases)})")
                rows.append(next(racing))
                live.end(report.line(rows[-1]))
                outlet.write(report.as_object(rows, summaries(rows), device, head))
    except KeyboardInterrupt:
        is_interrupted = True
    found = report.as_object(rows, summaries(rows), device, head)
    outlet.write(found)
    if outlet.output == "json":
        app.emit(found, "json", dict)
    else:
        lines = [report.row(row, device) for row in rows]
        app.emit(lines, outlet.output, lambda: report.suite(rows, device), columns=report.COLUMNS)
    if app.verbosity() >= 0 and outlet.output is None:
        app.note("")
        app.show(report.summary(summaries(rows)), err=True)
    title = f"{device.name}, {head['provenance']['date'][:10]}"
    if outlet.plot:
        plots.ratios(found["rows"], outlet.plot, title)
    if outlet.roofline:
        rates = device.fp32_tflops, device.bandwidth_gbs
        plots.roofline(found["rows"], *rates, outlet.roofline, title)
    _complain(rows)
    if is_interrupted:
        app.note(f"interrupted after {len(rows)} of {len(cases)} shapes")
        return app.INTERRUPTED
    return 1 if any(row.time_ns(BEST) is None for row in rows) else 0


def _complain(rows: Sequence[Row]) -> None:
    """Says all that went wrong, and once why there is no vendor."""
    for reason in dict.fromkeys(row.no_vendor for row in rows if row.no_vendor):
        app.note(reason)
    for row in rows:
        key = row.case.problem.key
        if row.message:
            click.echo(f"Error: {key}: {row.message}", err=True)
        for entry in row.entries:
            _say_failure(key, entry)
            if entry.power is not None and entry.power.message:
                app.note(f"{key}: {', '.join(entry.names)}: {entry.power.message}")


def _say_failure(key: str, entry: Entry) -> None:
    """Why there is no time; that a preset cannot serve a problem or device is no error."""
    if entry.measurement.outcome is Outcome.infeasible:
        app.note(f"{key}: {entry.failure}")
    elif entry.failure:
        click.echo(f"Error: {key}: {entry.failure}", err=True)


def _ladder(
    problem: Problem, stand: Stand, commit: str | None, db: str | None, outlet: _Outlet
) -> int:
    from autotune.bench import climb
    from autotune.report import bench as report
    from autotune.report import plots

    device = stand.device
    with _Live() as live:
        live.begin(f"the ladder on {problem.key}")
        ladder = climb(problem, stand, store=db)
    found = report.ladder_object(ladder, device, _head(stand, commit, problem))
    outlet.write(found)
    if outlet.output == "json":
        app.emit(found, "json", dict)
    else:
        app.emit(
            found["steps"], outlet.output, lambda: report.ladder(ladder),
            columns=report.STEP_COLUMNS,
        )  # fmt: skip
    if outlet.plot:
        vendor = found["vendor"]
        title = f"{problem.shape} on {device.name}"
        plots.ladder(found["steps"], vendor["tflops"] if vendor else None, outlet.plot, title)
    if ladder.no_vendor:
        app.note(ladder.no_vendor)
    entries = list(dict.fromkeys(step.entry for step in ladder.steps))
    for entry in (*entries, *([ladder.vendor] if ladder.vendor else [])):
        _say_failure(problem.key, entry)
    outcomes = {entry.measurement.outcome for entry in entries}
    return 0 if Outcome.ok in outcomes <= {Outcome.ok, Outcome.infeasible} else 1


class _Live:
    """What is timed right now: a line that changes for people, a line a shape for logs."""

    def __init__(self) -> None:
        is_quiet = app.verbosity() < 0
        self._status = None if is_quiet or not app.is_interactive() else app.stderr().status("")
        self._lines = not is_quiet and self._status is None

    def __enter__(self) -> _Live:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def begin(self, what: str) -> None:
        """Something is about to be timed."""
        if self._status is not None:
            self._status.update(f"timing {what}")

    def end(self, what: str) -> None:
        """It has been."""
        if self._lines:
            app.note(what)
