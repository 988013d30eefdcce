"""Plots of recorded figures, as SVG or PNG by the file's suffix, with matplotlib (extra `plot`).

They take the rows of `autotune.report.bench`, as the JSON files of results have them. An SVG of the
same rows and the same matplotlib is the same text: no date, no random names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.errors import AutotuneError, MissingExtraError, UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]

SUFFIXES = (".svg", ".png")

# Okabe and Ito's colours, which people with any colour vision tell apart.
_OURS, _THEIRS, _LINE = "#0072B2", "#D55E00", "#000000"
_COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000",
)  # fmt: skip
# One more than there are colours, so that no two of many classes look alike.
_MARKERS = "osD^vP*Xh"
_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "autotune",
    "svg.fonttype": "none",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
}
_NO_CLASS = "other"


def require(*files: Path | None) -> None:
    """Refuses what cannot be drawn, before anything is measured for it.

    Raises:
        UsageError: a suffix that is not one of `SUFFIXES`, or a folder that is not there.
        MissingExtraError: matplotlib is not installed.
    """
    wanted = [file for file in files if file is not None]
    for file in wanted:
        if file.suffix not in SUFFIXES:
            raise UsageError(f"{file} has no suffix of a plot; possible are {', '.join(SUFFIXES)}")
        if not file.absolute().parent.is_dir():
            raise UsageError(f"cannot write {file}: there is no folder {file.absolute().parent}")
    if wanted:
        try:
            import_module("matplotlib")
        except ImportError as error:
            raise MissingExtraError(
                f"plots need matplotlib, which is not installed ({error}); "
                "pip install 'autotune-cuda[plot]'"
            ) from error


def ratios(rows: Sequence[Row], file: Path, title: str = "") -> None:
    """Bars of vendor's time / ours, problem by problem, by class, with a line at 1.

    A problem of several classes stands with the first; one without a time of ours or the vendor's
    has its name and no bar.

    Raises:
        UsageError, MissingExtraError: as for `require`.
        AutotuneError: the file cannot be written.
    """
    classes: dict[str, list[Row]] = {}
    for row in rows:
        classes.setdefault(_class(row), []).append(row)
    ordered = [row for group in classes.values() for row in group]
    with _page(file, title, width=7.5, height=1.3 + 0.2 * len(ordered)) as axes:
        for place, row in enumerate(ordered):
            ratio = row["ratio"]
            if ratio is None:
                axes.text(1.0, place, " not compared", va="center", fontsize=7)
                continue
            is_ahead = ratio >= 1
            # From 1, so that length is what is won or lost; hatched, for a page without colours.
            axes.barh(
                place,
                ratio - 1,
                left=1.0,
                color=_OURS if is_ahead else _THEIRS,
                hatch="" if is_ahead else "///",
                edgecolor="white",
            )
            axes.text(
                ratio,
                place,
                f" {ratio:.2f} ",
                va="center",
                ha="left" if is_ahead else "right",
                fontsize=7,
            )
        axes.axvline(1.0, color=_LINE, linewidth=1)
        start = 0
        for group in list(classes.values())[:-1]:
            start += len(group)
            axes.axhline(start - 0.5, color="#bbbbbb", linewidth=0.6)
        axes.set_yticks(range(len(ordered)), [_label(row) for row in ordered])
        axes.set_ylim(max(len(ordered), 1) - 0.5, -0.5)
        axes.margins(x=0.12)
        axes.set_xlabel("vendor's time / ours: to the right of 1 we are ahead")
        axes.xaxis.grid(True, color="#dddddd", linewidth=0.6)


def ladder(steps: Sequence[Row], vendor_tflops: float | None, file: Path, title: str = "") -> None:
    """Rates of the ladder's steps in order, with the gain of each and a line for the vendor.

    Args:
        steps: Rows of `autotune.report.bench.step`.

    Raises:
        UsageError, MissingExtraError, AutotuneError: as for `ratios`.
    """
    highest = max((each["tflops"] or 0.0 for each in steps), default=0.0)
    with _page(file, title, width=max(5.0, 1.0 + 0.75 * len(steps)), height=4.0) as axes:
        for place, each in enumerate(steps):
            rate = each["tflops"]
            if rate is None:
                axes.text(place, 0.0, "no time", rotation=90, ha="center", va="bottom", fontsize=7)
                continue
            axes.bar(place, rate, color=_OURS, edgecolor="white")
            gain = "" if each["gain"] is None else f"\nx {each['gain']:.2f}"
            # In the middle, far from the vendor's line, if the bar is high enough.
            is_high = rate > 0.2 * highest
            axes.text(
                place,
                rate / 2 if is_high else rate,
                f"{rate:.1f}{gain}",
                ha="center",
                va="center" if is_high else "bottom",
                color="white" if is_high else _LINE,
                fontsize=7,
            )
        if vendor_tflops is not None:
            axes.axhline(vendor_tflops, color=_THEIRS, linewidth=1, linestyle="--")
            axes.text(
                -0.5, vendor_tflops, f"vendor {vendor_tflops:.1f}", va="bottom", color=_THEIRS,
                fontsize=7,
            )  # fmt: skip
        axes.set_xticks(
            range(len(steps)), [each["step"] for each in steps], rotation=35, ha="right"
        )
        axes.margins(y=0.15)
        axes.set_ylabel("TFLOP/s")
        axes.yaxis.grid(True, color="#dddddd", linewidth=0.6)


def roofline(
    rows: Sequence[Row], peak_tflops: float, bandwidth_gbs: float, file: Path, title: str = ""
) -> None:
    """Measured rates over the operations for each byte, below the device's two ceilings.

    Args:
        peak_tflops, bandwidth_gbs: The device's theoretical rates; both above 0.

    Raises:
        UsageError, MissingExtraError, AutotuneError: as for `ratios`.
    """
    points: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["tflops"] is not None and row["gbs"]:
            intensity = 1e3 * row["tflops"] / row["gbs"]
            points.setdefault(_class(row), []).append((intensity, row["tflops"]))
    every = [x for group in points.values() for x, _ in group]
    balance = 1e3 * peak_tflops / bandwidth_gbs
    least, most = min([balance / 4, *every]) / 1.5, max([balance * 4, *every]) * 1.5
    with _page(file, title, width=7.0, height=4.6) as axes:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.plot(
            [least, balance, most],
            [least * bandwidth_gbs / 1e3, peak_tflops, peak_tflops],
            color=_LINE,
            linewidth=1,
        )
        for place, (name, group) in enumerate(points.items()):
            axes.plot(
                [x for x, _ in group],
                [y for _, y in group],
                linestyle="none",
                marker=_MARKERS[place % len(_MARKERS)],
                color=_COLOURS[place % len(_COLOURS)],
                markersize=5,
                label=name,
            )
        axes.set_xlabel("FLOP for each byte of the operands")
        axes.set_ylabel("TFLOP/s")
        axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
        if points:
            axes.legend(loc="lower right", frameon=False)


@contextmanager
def _page(file: Path, title: str, *, width: float, height: float) -> Iterator[Axes]:
    """A figure with one pair of axes, written when the block ends without an error."""
    require(file)
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_SETTINGS):
        # A figure of its own, without pyplot: no window, no state that others see.
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(title, loc="left", fontsize=10)
        yield axes
        try:
            figure.savefig(file, dpi=150, metadata=_METADATA[file.suffix])
        except OSError as error:
            raise AutotuneError(f"cannot write {file}: {error.strerror}") from error


_METADATA: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
}


def _class(row: Row) -> str:
    return str(row["class"]).split(",")[0] or _NO_CLASS


def _label(row: Row) -> str:
    """A problem without the name of its family, which all of them share."""
    key = str(row["problem"]).removeprefix(f"{row['kernel']}/").replace("/nn", "")
    return f"{_class(row)}  {key}"
