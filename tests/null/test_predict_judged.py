"""The model against 3,275 variants measured on an H200; docs/model.md shows the same numbers."""

import runpy
from pathlib import Path

import pytest

from autotune import archs
from autotune.analysis.predict import FITTED_ON

ROOT = Path(__file__).parents[2]
JUDGE = runpy.run_path(str(ROOT / "benchmarks" / "judge_model.py"))


@pytest.fixture(scope="module")
def rows():
    provenance, shapes = JUDGE["load"](JUDGE["RECORDED"])
    return JUDGE["judge"](shapes, archs.get(provenance["arch"]).typical)


def test_every_shape_is_ranked_well(rows):
    assert len(rows) == 10 and all(row["variants"] >= 300 for row in rows)
    assert sum(row["fitted"] for row in rows) == len(FITTED_ON) == 4
    for row in rows:
        assert row["spearman_before"] >= 0.87, row
        assert row["spearman_after"] >= 0.89, row
        assert row["gap_before"] <= 1.05, row
        assert row["gap_after"] <= 1.05, row


def test_shapes_held_out_do_as_well_as_those_that_the_constants_fit(rows):
    def worst(fitted):
        return min(row["spearman_before"] for row in rows if row["fitted"] == fitted)

    assert worst(False) > worst(True) - 0.03
    for row in rows:
        assert row["median_ratio"] == pytest.approx(1, abs=0.05), row


def test_the_page_shows_these_numbers(rows):
    page = (ROOT / "docs" / "model.md").read_text()
    for row in rows:
        used = "fitted" if row["fitted"] else "held out"
        assert (
            f"| {row['shape']} | {used} | {row['spearman_before']:.3f} | "
            f"{row['spearman_after']:.3f} | {row['gap_before']:.3f} | {row['gap_after']:.3f} |"
        ) in page


def test_rank_correlation():
    spearman = JUDGE["spearman"]
    assert spearman([1.0, 2.0, 3.0], [10.0, 20.0, 900.0]) == pytest.approx(1)
    assert spearman([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == pytest.approx(-1)
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4.
    assert spearman([1.0, 5.0, 5.0, 9.0], [1.0, 2.0, 3.0, 4.0]) == pytest.approx(0.9**0.5)
