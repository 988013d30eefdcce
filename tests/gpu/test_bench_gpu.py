"""`autotune bench` on a GPU: one shape beside the vendor library, with power, and the ladder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from autotune import device, space
from autotune.cli import main
from autotune.lookup import lookup
from autotune.measure import vendor_missing
from autotune.problems import parse
from autotune.types import Device, Match

pytestmark = pytest.mark.gpu

SHAPE = "1024x1024x1024"


def bench(*args: str) -> dict:  # type: ignore[type-arg]
    result = CliRunner().invoke(main, ["bench", *args, "--json", "--rounds", "5"])
    assert result.exit_code == 0, result.output
    found: dict = json.loads(result.stdout)  # type: ignore[type-arg]
    return found


def test_one_shape_with_its_power(live: Device, tmp_path: Path) -> None:
    plot = tmp_path / "plot.svg"
    found = bench(
        "--shape", SHAPE, "--db", str(tmp_path / "no.db"), "--power", "0.5s", "--plot", str(plot)
    )  # fmt: skip
    (row,) = found["rows"]
    # What ships with the package may know the shape; an empty store does not.
    known = lookup(1024, 1024, 1024, device=live, store=tmp_path / "no.db")
    assert (row["device"], row["match"], row["outcome"]) == (live.name, known.match, "ok")
    assert 0 < row["percent_of_peak"] <= 100
    assert row["samples"] == 15 and "exact x" in row["checks"]
    vendor = vendor_missing(parse(SHAPE))
    assert (row["ratio"] is None) == (vendor is not None), row["message"]
    if row["ratio"] is not None:
        assert 0.3 < row["ratio"] < 5
    if device._nvml_or_reason()[0] is not None:
        (best,) = [each for each in row["entries"] if "best" in each["names"]]
        power = best["power"]
        assert power["power_w"] is not None, power
        # A busy device draws more than an idle one, and no more than its limit allows.
        assert 50 < power["power_w"] < 1500
        assert 0.3 < power["busy"] <= 1
        assert row["gflops_per_watt"] == pytest.approx(
            2 * 1024**3 / power["run_ns"] / power["power_w"]
        )
    assert plot.read_text().startswith("<?xml")


def test_the_ladder(live: Device, tmp_path: Path) -> None:
    found = bench("--ladder", "--shape", SHAPE, "--db", str(tmp_path / "no.db"))
    steps = found["steps"]
    # Behind its steps comes the best that is known, where one is: the seed's, if anything.
    known = lookup(1024, 1024, 1024, device=live, store=tmp_path / "no.db")
    best = [] if known.match is Match.arch_default else ["best"]
    assert [step["step"] for step in steps] == [*space.load().ladder, *best]
    # A step of a newer architecture cannot serve an older one; all others must.
    timed = [step for step in steps if step["outcome"] != "infeasible"]
    assert len(timed) >= 3
    assert all(step["outcome"] == "ok" and step["limiter"] for step in timed), steps
    assert all(step["gain"] > 0 for step in timed[1:])
