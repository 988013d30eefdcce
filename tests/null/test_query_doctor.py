"""Questions in SQL that cannot change the store, and what the doctor finds."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from store_helpers import COMPILER, cube, failed, live, timed, tune, variant

from autotune import doctor, query, storefile, templates
from autotune.errors import NotFoundError, StoreError, UsageError
from autotune.store import Store
from autotune.types import Outcome, Stage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "results.db"
    digest = templates.sha256("sgemm")
    tune(place, cube(512), {1: 1e7, 2: 2e7}, template_sha256=digest)
    return place


# *** SQL ***


def test_an_answer(path: Path) -> None:
    names, rows = query.ask("SELECT shape, median_ns / 1e3 AS us FROM best_config", path)
    assert (names, rows) == (["shape", "us"], [("512x512x512", 1e4)])
    recursive = "WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < 3) "
    assert query.ask(recursive + "SELECT n FROM i", path)[1] == [(1,), (2,), (3,)]
    assert query.ask("SELECT json_extract(config_json, '$.number') AS n FROM variant", path)[1]


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM best",
        "UPDATE device SET name = 'x'",
        "INSERT INTO tie VALUES (1, 1, 1)",
        "DROP TABLE best",
        "CREATE TEMP TABLE t (a)",
        "ATTACH 'other.db' AS other",
        "PRAGMA user_version = 3",
        "PRAGMA query_only = OFF",
        "VACUUM",
        "BEGIN IMMEDIATE",
        "SELECT load_extension('x')",
        "WITH gone AS (SELECT 1) DELETE FROM best",
    ],
)
def test_nothing_can_be_changed(path: Path, sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    before = path.read_bytes()
    with pytest.raises(UsageError, match="only a SELECT"):
        query.ask(sql, path)
    assert path.read_bytes() == before
    assert not (path.parent / "other.db").exists()


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT nonsense FROM best", "no such column"),
        ("SELECT 1; DELETE FROM best", "one statement at a time"),
        ("SELEKT 1", "syntax error"),
        ("", "no statement"),
        ("SELECT id, id FROM best", "two columns are called 'id'"),
    ],
)
def test_a_wrong_question(path: Path, sql: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        query.ask(sql, path)


def test_no_store(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        query.ask("SELECT 1", tmp_path / "none.db")
    with pytest.raises(NotFoundError):
        doctor.examine(tmp_path / "none.db")
    (tmp_path / "text.db").write_text("no database at all")
    with pytest.raises(StoreError, match="not an SQLite file"):
        doctor.examine(tmp_path / "text.db")
    assert not (tmp_path / "none.db").exists()


# *** doctor ***


def found(path: Path) -> dict[str, tuple[str, int]]:
    return {each.check: (each.status, each.count) for each in doctor.examine(path)}


def edit(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def test_a_sound_store(path: Path) -> None:
    findings = doctor.examine(path)
    assert {each.status for each in findings} == {"ok"}
    assert not any(each.advice for each in findings)
    assert len(findings) == 10


UNGUARDED = "DROP TRIGGER best_is_confirmed_update"


@pytest.mark.parametrize(
    ("statements", "check", "expected"),
    [
        (["DELETE FROM environment"], "orphans", ("fault", 1)),
        (
            [UNGUARDED, "UPDATE measurement SET outcome = 'wrong_result' WHERE median_ns = 1e7"],
            "best",
            ("fault", 1),
        ),
        (["UPDATE measurement SET outcome = 'wrong_result'"], "wrong results", ("note", 2)),
        (["UPDATE device SET present = 0"], "predicted as measured", ("fault", 2)),
        (["UPDATE variant SET config_json = '{}' WHERE id = 2"], "edited configs", ("fault", 1)),
        (["UPDATE variant SET template_sha256 = 'old'"], "stale bests", ("note", 1)),
        (["UPDATE run SET status = 'running', pid = 4194305"], "abandoned runs", ("note", 1)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_found(
    path: Path, statements: list[str], check: str, expected: tuple[str, int]
) -> None:
    edit(path, *statements)
    assert found(path)[check] == expected
    (finding,) = [each for each in doctor.examine(path) if each.check == check]
    assert finding.advice and finding.detail and not finding.detail.startswith("no ")


def test_impossible_times_are_noted(path: Path) -> None:
    with Store.open(path) as store:
        run = store.begin_run(cube(512), live(), compiler=COMPILER)
        store.record(run, variant(3), timed(1.0, Stage.search))
        store.record(run, variant(4), failed(Outcome.crash))
        store.end_run(run, "finished")
    assert found(path)["impossible times"] == ("note", 1)


def test_damage_ends_the_examination(path: Path) -> None:
    for number in range(3, 60):
        tune(path, cube(512 + 4 * number), {number: 1e9})
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    (damage,) = doctor.examine(path)
    assert (damage.check, damage.status) == ("integrity", "fault")
    path.write_bytes(whole)
    edit(path, f"UPDATE {storefile.VERSION_TABLE} SET version_num = '0009'")
    assert list(found(path)) == ["integrity", "schema"]
    assert found(path)["schema"] == ("fault", 1)
