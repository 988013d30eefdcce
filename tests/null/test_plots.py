"""Plots of recorded rows: what is drawn, the same text twice, and what is refused."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import AutotuneError, MissingExtraError, UsageError
from autotune.report import plots


def row(shape: str, group: str, ratio: float | None, tflops: float = 30.0) -> dict[str, Any]:
    return {
        "kernel": "sgemm", "problem": f"sgemm/{shape}/nn", "class": group, "ratio": ratio,
        "tflops": None if ratio is None else tflops, "gbs": 300.0,
    }  # fmt: skip


ROWS = [
    row("64x64x64", "square", 1.25),
    row("65x63x61", "ragged,layouts", 0.87),
    row("128x128x128", "square", 1.0),
    row("1x8192x8192", "", None),
]
STEPS = [
    {"step": "seed-v3", "tflops": 40.0, "gain": None},
    {"step": "seed-v3.1", "tflops": 47.0, "gain": 1.175},
    {"step": "broken", "tflops": None, "gain": None},
]


def texts(file: Path) -> list[str]:
    """Every text of an SVG, in order."""
    return [each.strip() for each in re.findall(r"<text[^>]*>([^<]*)</text>", file.read_text())]


def test_bars_of_ratios_stand_by_class(tmp_path: Path) -> None:
    file = tmp_path / "ratios.svg"
    plots.ratios(ROWS, file, "a title")
    found = texts(file)
    labels = ["square  64x64x64", "square  128x128x128", "ragged  65x63x61", "other  1x8192x8192"]
    shown = [text for text in found if any(label.split()[1] in text for label in labels)]
    assert [text.split() for text in shown] == [label.split() for label in labels]
    assert {"1.25", "1.00", "0.87", "not compared", "a title"} <= set(found)


def test_the_same_rows_give_the_same_text(tmp_path: Path) -> None:
    one, other = tmp_path / "one.svg", tmp_path / "other.svg"
    for file in (one, other):
        plots.ratios(ROWS, file)
    assert one.read_text() == other.read_text()
    assert "<dc:date>" not in one.read_text()


def test_the_ladder_has_gains_and_the_vendors_line(tmp_path: Path) -> None:
    file = tmp_path / "ladder.svg"
    plots.ladder(STEPS, 50.0, file)
    found = texts(file)
    assert {"seed-v3", "seed-v3.1", "broken", "no time", "vendor 50.0", "40.0"} <= set(found)
    assert "x 1.18" in found
    plots.ladder(STEPS, None, file)
    assert not any("vendor" in text for text in texts(file))


def test_the_roofline_has_a_mark_for_each_class(tmp_path: Path) -> None:
    file = tmp_path / "roofline.svg"
    plots.roofline(ROWS, 66.9, 4917.0, file)
    found = texts(file)
    assert {"square", "ragged"} <= set(found) and "other" not in found


def test_a_png_is_one(tmp_path: Path) -> None:
    plots.ladder(STEPS, 50.0, tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_to_draw_is_an_empty_plot(tmp_path: Path) -> None:
    for draw in (plots.ratios, lambda rows, file: plots.roofline(rows, 60.0, 4000.0, file)):
        file = tmp_path / "empty.svg"
        draw([], file)
        assert file.read_text().startswith("<?xml")
        file.unlink()


def test_what_cannot_be_drawn_is_refused_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plots.require(None, None)
    with pytest.raises(UsageError, match=r"x\.pdf has no suffix of a plot"):
        plots.require(tmp_path / "x.pdf")
    with pytest.raises(UsageError, match="there is no folder"):
        plots.require(None, tmp_path / "no" / "x.svg")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    plots.require(None)
    with pytest.raises(MissingExtraError, match=r"pip install 'autotune-cuda\[plot\]'"):
        plots.require(tmp_path / "x.svg")


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "taken.svg"
    folder.mkdir()
    with pytest.raises(AutotuneError, match=r"cannot write .*taken\.svg"):
        plots.ladder(STEPS, None, folder)


def test_importing_the_plots_loads_no_matplotlib() -> None:
    import subprocess

    program = "import sys, autotune.report.plots; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n"
