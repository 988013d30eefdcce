"""Stored bests measured again, on the fake GPU."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fake_door import DEVICE, PROBE, FakeDoor
from fake_search import COMPILER, PROBLEM, FakePool, binary, rows, run

from autotune import api, drift
from autotune.cli import main
from autotune.drift import Drift, verify_best
from autotune.errors import DeviceError, NotFoundError
from autotune.measure import Worker
from autotune.problems.sgemm import Sgemm
from autotune.types import Conditions, Config, Measurement, Outcome, Stage


@pytest.fixture
def db(pool: FakePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with one best, of 30 us."""
    monkeypatch.setattr(drift.device, "select", lambda arch=None, name=None, door=None: DEVICE)
    monkeypatch.setattr(drift, "Pool", lambda compiler, jobs: pool)
    monkeypatch.setattr(
        drift, "Worker", lambda device, door=None: Worker(device, door=FakeDoor, probe_cubin=PROBE)
    )
    monkeypatch.setattr(drift.compile, "find", lambda kind=None: COMPILER)
    pool.make = lambda problem, source: binary(problem, 30_000)
    run(tmp_path / "r.db", 2)
    return tmp_path / "r.db"


def cli(db: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["verify", *words, "--db", str(db)])


def test_a_best_that_holds(db: Path) -> None:
    before = rows(db)
    (found,) = verify_best([PROBLEM], store=db)
    assert (found.percent, found.holds, found.changes) == (0.0, True, "")
    assert found.measurement.stage is Stage.confirm
    assert found.measurement.checks.startswith("exact, guards, inputs, fp64 of 1024, exact x8")
    assert rows(db) == before, "the store is only read"
    result = cli(db, PROBLEM.shape)
    assert (result.exit_code, result.stderr) == (0, "")
    line = " ".join(result.stdout.splitlines()[2].split())
    assert line == ("sgemm/32x32x16/nn 30 us (-0.0 +0.0 %) 30 us (-0.0 +0.0 %) +0.00 % yes -")


def test_another_clock_is_said(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Worker.confirm

    def confirm(worker: Worker, *args: Any, **options: Any) -> list[Measurement]:
        conditions = Conditions(sm_clock_mhz=1650, throttle_reasons="power_cap")
        found = real(worker, *args, **options)
        return [replace(each, conditions=conditions) for each in found]

    monkeypatch.setattr(Worker, "confirm", confirm)
    for then, changes in ((1890, "clock"), (1680, ""), (1410, "clock"), (None, "")):
        connection = sqlite3.connect(db)
        connection.execute("UPDATE measurement SET sm_clock_mhz = ?", (then,))
        connection.commit()
        connection.close()
        (found,) = verify_best([PROBLEM], store=db)
        assert (found.holds, found.changes) == (True, changes)


def test_another_gpu_of_the_model_is_said(db: Path) -> None:
    connection = sqlite3.connect(db)
    connection.execute("UPDATE run SET device_uuid = 'GPU-another'")
    connection.commit()
    connection.close()
    (found,) = verify_best([PROBLEM], store=db)
    assert (found.holds, found.changes) == (True, "gpu")
    assert cli(db, PROBLEM.shape).stdout.splitlines()[2].split()[-1] == "gpu"


@pytest.mark.parametrize(
    ("ns", "tolerance", "code", "percent"),
    [(30_240, "1", 0, 0.8), (30_900, "1", 1, 3.0), (30_900, "4", 0, 3.0), (29_400, "1", 1, -2.0)],
)
def test_drift_beyond_the_tolerance_is_exit_code_1(
    db: Path, pool: FakePool, ns: float, tolerance: str, code: int, percent: float
) -> None:
    pool.make = lambda problem, source: binary(problem, ns)
    result = cli(db, PROBLEM.shape, "--tolerance", tolerance, "--json")
    assert result.exit_code == code
    (row,) = json.loads(result.stdout)
    assert row["drift_percent"] == pytest.approx(percent)
    assert row["holds"] == (code == 0)
    assert ("beyond the tolerance of 1 %" in result.stderr) == (code == 1)


def test_a_kernel_that_went_wrong_does_not_hold(db: Path, pool: FakePool) -> None:
    pool.make = lambda problem, source: binary(problem, 30_000, "half rows")
    result = cli(db, "--all")
    assert result.exit_code == 1
    assert "wrong_result: exact check: " in result.stderr
    assert "search the shape again" in result.stderr


def test_what_was_never_tuned_is_said(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFoundError, match="autotune search --shape 64x64x64"):
        api.verify_best("64x64x64", store=db)
    result = cli(db, "64x64x64")
    assert (result.exit_code, result.stdout) == (3, "")
    assert cli(db).exit_code == cli(db, "8x8x8", "--all").exit_code == 2

    def none(arch: object = None, name: object = None, door: object = None) -> None:
        raise DeviceError("there is no NVIDIA driver: planted")

    monkeypatch.setattr(drift.device, "select", none)
    assert cli(db, "--all").exit_code == 4


def made(low: float, median: float, high: float, **changes: object) -> Drift:
    measurement = Measurement(
        outcome=Outcome.ok, stage=Stage.confirm, median_ns=median, low_ns=low, high_ns=high
    )
    values: dict[str, object] = {
        "problem": "p", "device": "d", "config": Config({}), "claimed_ns": 100.0,
        "claimed_interval_ns": (99.0, 102.0), "measurement": measurement, "changes": "",
        "tolerance": 0.01, "best_id": 1, **changes,
    }  # fmt: skip
    return Drift(**values)  # type: ignore[arg-type]


def test_intervals_count_before_the_tolerance() -> None:
    assert made(102.9, 104.0, 105.0).holds, "1 % beyond 102"
    assert not made(103.1, 104.0, 105.0).holds
    assert made(90.0, 95.0, 98.1).holds
    assert not made(90.0, 95.0, 97.9).holds
    assert made(103.1, 104.0, 105.0, tolerance=0.02).holds
    assert made(90.0, 104.0, 105.0).percent == pytest.approx(4.0)


def test_a_problem_comes_back_from_its_key() -> None:
    from autotune import problems
    from autotune.errors import ShapeError, UsageError

    for problem in (
        PROBLEM,
        Sgemm.parse("5x6x7", layout="tn", ldc=9, align_a=4, beta_zero=False),
        Sgemm.parse("8x8x0", batch=3, stride_a=100, lda=12),
    ):
        assert problems.from_key(problem.key) == problem
    with pytest.raises(ShapeError, match="'wide' is unknown"):
        problems.from_key("sgemm/8x8x8/nn/wide")
    with pytest.raises(UsageError, match="is not a kernel family"):
        problems.from_key("conv/8x8x8")
