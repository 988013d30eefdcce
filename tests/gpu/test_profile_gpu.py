"""Counters of the device beside what was foreseen; needs Nsight Compute and leave to count."""

from __future__ import annotations

import pytest

from autotune import profile
from autotune.errors import ProfilerError
from autotune.explain import choose, explain
from autotune.problems.sgemm import Sgemm
from autotune.types import Device

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", autouse=True)
def ncu() -> None:
    try:
        profile.find_ncu()
    except ProfilerError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("preset", ["seed-v3", "seed-v3.1", "seed-v3.2"])
def test_counted_wavefronts_are_the_foreseen_ones(live: Device, preset: str) -> None:
    problem = Sgemm(m=2048, n=2048, k=2048)
    found = explain(problem, live, choose(problem, live, preset=preset), profile=True)
    if found.profile is None:
        reason = found.missing[-1].reason
        if "ERR_NVGPUCTRPERM" in reason:
            pytest.skip(reason)
        pytest.fail(reason)
    rows = {row.name: row for row in found.comparisons}
    for kind in ("shared load", "shared store"):
        wavefronts = rows[f"{kind} wavefronts"]
        assert wavefronts.predicted is not None
        assert wavefronts.measured == pytest.approx(wavefronts.predicted, rel=1e-3)
        conflicts = rows[f"{kind} conflicts"]
        assert conflicts.measured == pytest.approx(
            conflicts.predicted, rel=1e-3, abs=1e-3 * wavefronts.predicted
        )
    gap = found.profile.gap
    assert gap is not None
    assert 20 < gap.reached_percent < 100
    assert gap.reached_percent + sum(loss.percent for loss in gap.losses) == pytest.approx(100)
    assert any(loss.cause.startswith("stall: ") for loss in gap.losses)
