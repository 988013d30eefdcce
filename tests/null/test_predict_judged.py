"""The model against 5,341 variants measured on an H200; docs/model.md shows the same numbers."""

import runpy
from pathlib import Path

import pytest

from autotune import archs
from autotune.analysis.predict import FITTED_ON

ROOT = Path(__file__).parents[2]
JUDGE = runpy.run_path(str(ROOT / "benchmarks" / "judge_model.py"))


@pytest.fixture(scope="module")
def judged():
    """Of the variants that the constants fit, and of those of the whole space."""
    loaded = [JUDGE["load"](file) for file in JUDGE["RECORDED"]]
    return [JUDGE["judge"](shapes, archs.get(known["arch"]).typical) for known, shapes in loaded]


def test_every_shape_is_ranked_well(judged):
    narrow, wide = judged
    assert (len(narrow), len(wide)) == (10, 6)
    assert sum(row["fitted"] for row in narrow) == len(FITTED_ON) == 4
    for rows, before, after in ((narrow, 0.87, 0.89), (wide, 0.80, 0.80)):
        for row in rows:
            assert row["variants"] >= 300
            assert row["spearman_before"] >= before, row
            assert row["spearman_after"] >= after, row
            assert row["gap_before"] <= 1.05, row
            assert row["gap_after"] <= 1.05, row


def test_shapes_held_out_do_as_well_as_those_that_the_constants_fit(judged):
    narrow, wide = judged

    def worst(fitted):
        return min(row["spearman_before"] for row in narrow if row["fitted"] == fitted)

    assert worst(False) > worst(True) - 0.03
    for row in narrow:
        assert row["median_ratio"] == pytest.approx(1, abs=0.05), row
    for row in wide:
        assert row["median_ratio"] == pytest.approx(1.08, abs=0.05), row


def test_the_page_shows_these_numbers(judged):
    page = (ROOT / "docs" / "model.md").read_text()
    narrow, wide = judged
    for rows in judged:
        for row in rows:
            used = f"{'fitted' if row['fitted'] else 'held out'} | " if rows is narrow else ""
            assert (
                f"| {row['shape']} | {used}{row['spearman_before']:.3f} | "
                f"{row['spearman_after']:.3f} | {row['gap_before']:.3f} | {row['gap_after']:.3f} |"
            ) in page
    assert f"{sum(row['variants'] for row in narrow):,} random valid variants" in page
    assert f"{sum(row['variants'] for row in wide):,} of six shapes" in page


def test_rank_correlation():
    spearman = JUDGE["spearman"]
    assert spearman([1.0, 2.0, 3.0], [10.0, 20.0, 900.0]) == pytest.approx(1)
    assert spearman([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == pytest.approx(-1)
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4.
    assert spearman([1.0, 5.0, 5.0, 9.0], [1.0, 2.0, 3.0, 4.0]) == pytest.approx(0.9**0.5)
