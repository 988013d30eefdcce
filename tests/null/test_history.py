"""Runs beside each other, and what has changed since a row was made."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from store_helpers import COMPILER, cube, failed, live, timed

from autotune import api, history, space, staleness, templates
from autotune.cli import main
from autotune.errors import NotFoundError, UsageError
from autotune.staleness import Today
from autotune.store import Store, VariantRow
from autotune.types import Config, Outcome, Stage

LARGE = space.load().presets["large"]
TODAY = Today(compiler=COMPILER, driver="580.65")
CONFIGS = [LARGE, *(LARGE.but(group_m=group) for group in (2, 4, 8))]


def row(config: Config, **changes: object) -> VariantRow:
    values: dict[str, object] = {
        "config": config, "arch": 75, "template_sha256": templates.sha256("sgemm"),
        "source_sha256": config.sha256, "compiler": COMPILER, "registers": 96, **changes,
    }  # fmt: skip
    return VariantRow(**values)  # type: ignore[arg-type]


def course(store: Store, size: int, *times_ns: float | None, **about: object) -> int:
    """A run with a trial a second: its times in turn, None for a failure."""
    run = store.begin_run(cube(size), live(), compiler=COMPILER, **about)  # type: ignore[arg-type]
    started = store.runs(id=run)[0]["started_at"]
    for number, ns in enumerate(times_ns):
        at = (datetime.fromisoformat(started) + timedelta(seconds=number + 1)).isoformat()
        config = LARGE.but(group_m=space.load().parameter("group_m").values[number])
        measurement = timed(ns or 1.0, Stage.search, measured_at=at)
        if ns is None:
            measurement = replace(failed(Outcome.crash), measured_at=at)
        store.record(run, row(config), measurement)
    store.end_run(run, "finished")
    return run


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "results.db"


def test_compare_shows_when_each_run_came_near_the_best(db: Path) -> None:
    with Store.open(db) as store:
        plain = course(store, 1024, 5e6, 3e6, None, 2.08e6, seed=1, starts="preset 22")
        seeded = course(store, 1024, 2.015e6, 2e6, seed=1, starts="near_shape 3, preset 22")
        other = course(store, 2048, 1e6)
        one, two = history.compare(store, [plain, seeded])
        assert (one["best_ns"], two["best_ns"]) == (2.08e6, 2e6)
        assert one["percent_of_best"] == pytest.approx(100 * 2 / 2.08)
        assert (one["trials_to_5"], one["trials_to_1"], one["seconds_to_1"]) == (4, None, None)
        assert (two["trials_to_5"], two["trials_to_1"]) == (1, 1)
        assert (one["trials"], one["starts"]) == (4, "preset 22")
        with pytest.raises(UsageError, match="runs of one problem can be compared"):
            history.compare(store, [plain, other])
        with pytest.raises(UsageError, match="name two runs or more"):
            history.compare(store, [plain, plain])
        with pytest.raises(NotFoundError, match="there is no run 77"):
            history.compare(store, [plain, 77])
    result = CliRunner().invoke(main, ["results", "compare", "1", "2", "--db", str(db)])
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[2] == "1 1 - 4 2.08 ms 96.2 trial 4, 4 s - preset 22"
    assert lines[3] == ("2 1 - 2 2 ms 100.0 trial 1, 1 s trial 1, 1 s near_shape 3, preset 22")


def test_truncated_and_confirmed_times_do_not_count_as_reached(db: Path) -> None:
    with Store.open(db) as store:
        first = course(store, 1024, 2e6)
        second = store.begin_run(cube(1024), live(), compiler=COMPILER)
        store.record(second, row(CONFIGS[0]), timed(2e6, Stage.search, truncated=True))
        store.record(second, row(CONFIGS[1]), timed(2e6, Stage.confirm))
        _, two = history.compare(store, [first, second])
    assert (two["trials"], two["best_ns"], two["trials_to_5"]) == (1, None, None)


def test_runs_are_listed_with_their_budget_and_starts(db: Path) -> None:
    with Store.open(db) as store:
        course(store, 1024, 5e6, None, budget="2 trials", seed=3, starts="preset 22")
    (found,) = api.results("runs", store=db)
    assert (found["trials"], found["ok"], found["best_ns"]) == (2, 1, 5e6)
    assert (found["budget"], found["starts"], found["seed"]) == ("2 trials", "preset 22", 3)
    result = CliRunner().invoke(main, ["results", "runs", "--db", str(db), "--json"])
    assert list(json.loads(result.stdout)[0]) == api.columns("runs")


def test_the_time_of_a_trial_is_that_of_recent_runs(db: Path) -> None:
    with Store.open(db) as store:
        assert history.trial_seconds(store, live(), "sgemm") is None
        course(store, 1024, 5e6, 4e6)
        assert history.trial_seconds(store, live(), "sgemm") == 1.0
        assert history.trial_seconds(store, live(sm_count=7), "sgemm") is None


def stored(db: Path, monkeypatch: pytest.MonkeyPatch, today: Today, **changes: object) -> str:
    with Store.open(db) as store:
        run = store.begin_run(cube(1024), live(), compiler=COMPILER)
        config = changes.pop("config", LARGE)
        assert isinstance(config, Config)
        store.record(run, row(config, **changes), timed(1e6, Stage.search))
    monkeypatch.setattr(Today, "here", classmethod(lambda cls: today))
    (found,) = api.results(store=db)
    return str(found["stale"])


@pytest.mark.parametrize(
    ("today", "changes", "stale"),
    [
        (TODAY, {}, ""),
        (TODAY, {"template_sha256": "t" * 64}, "template"),
        (TODAY, {"config": LARGE.but(block_k=7)}, "space"),
        (TODAY, {"config": Config({"gone": 1})}, "space"),
        (Today(compiler="nvrtc 14.0", driver="580.65"), {}, "compiler"),
        (Today(compiler="nvcc 13.5", driver="580.65"), {}, ""),
        (Today(compiler=COMPILER, driver="590.1"), {}, "driver"),
        (Today(compiler="", driver=""), {}, ""),
        (
            Today(compiler="nvrtc 14.0", driver="590.1"),
            {"template_sha256": "t" * 64},
            "template,compiler,driver",
        ),
    ],
)
def test_what_has_changed_since_is_visible(
    db: Path,
    monkeypatch: pytest.MonkeyPatch,
    today: Today,
    changes: dict[str, object],
    stale: str,
) -> None:
    assert stored(db, monkeypatch, today, **changes) == stale
    assert len(api.results(store=db, stale=True)) == bool(stale)
    assert len(api.results(store=db, stale=False)) == (not stale)
    with pytest.raises(UsageError, match="only rows of results, best are stale or fresh"):
        api.results("failures", store=db, stale=True)


def test_here_asks_this_machine() -> None:
    today = staleness.Today.here()
    assert today.compiler == "" or today.compiler.split()[0] in ("nvrtc", "nvcc")
