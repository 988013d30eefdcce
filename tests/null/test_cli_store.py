"""The commands that move a store's contents, examine it, and ask it in SQL."""

from __future__ import annotations

import builtins
import csv
import io
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from store_helpers import cube, tune

from autotune import space
from autotune.cli import main

BIG = space.load("sgemm").preset("large")


def run(*args: str | Path, code: int = 0) -> Result:
    result = CliRunner().invoke(main, [str(each) for each in args])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "results.db"
    tune(path, cube(1024), {1: 4e6, 2: 3.2e6}, config=BIG)
    tune(path, cube(2048), {3: 4e7})
    return path


# *** sql ***


def test_sql_as_table_json_and_csv(db: Path) -> None:
    question = "SELECT shape, tflops FROM best_config ORDER BY shape"
    lines = run("results", "sql", question, "--db", db).stdout.split()
    assert lines[:2] == ["shape", "tflops"] and "1024x1024x1024" in lines
    rows = json.loads(run("results", "sql", question, "--db", db, "--json").stdout)
    assert [row["shape"] for row in rows] == ["1024x1024x1024", "2048x2048x2048"]
    table = list(
        csv.DictReader(io.StringIO(run("results", "sql", question, "--db", db, "--csv").stdout))
    )
    assert float(table[0]["tflops"]) == rows[0]["tflops"]


def test_sql_cannot_change_anything_and_says_what_is_wrong(db: Path) -> None:
    refusal = run("results", "sql", "DELETE FROM best", "--db", db, code=2)
    assert "only a SELECT is possible" in refusal.stderr and refusal.stdout == ""
    wrong = run("results", "sql", "SELECT colour FROM best", "--db", db, code=2)
    assert "no such column: colour" in wrong.stderr
    nothing = run(
        "results", "sql", "SELECT id FROM best WHERE id < 0", "--db", db, "--json", code=3
    )
    assert json.loads(nothing.stdout) == []


# *** export, import, merge ***


def test_export_of_rows_as_csv(db: Path, tmp_path: Path) -> None:
    file = tmp_path / "bests.csv"
    assert (
        run("db", "export", file, "--format", "csv", "--view", "best", "--db", db).stdout
        == f"{file}\n"
    )
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["shape"] for row in rows] == ["1024x1024x1024", "2048x2048x2048"]
    asked = json.loads(run("results", "best", "--db", db, "--json", "--sort", "id").stdout)
    assert list(rows[0]) == list(asked[0])
    refusal = run("db", "export", file, "--format", "csv", "--db", db, code=1)
    assert "exists already" in refusal.stderr


def test_parquet_without_pyarrow_says_what_to_install(
    db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **rest: Any) -> Any:
        if name.split(".")[0] == "pyarrow":
            raise ModuleNotFoundError(name="pyarrow")
        return real(name, *args, **rest)

    monkeypatch.setattr(builtins, "__import__", without)
    refusal = run("db", "export", tmp_path / "t.parquet", "--format", "parquet", "--db", db, code=1)
    assert "pip install 'autotune-cuda[parquet]'" in refusal.stderr
    assert not (tmp_path / "t.parquet").exists()


def test_parquet_holds_the_same_rows(db: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "trials.parquet"
    run("db", "export", file, "--format", "parquet", "--db", db)
    rows = json.loads(run("results", "list", "--db", db, "--json", "--sort", "id").stdout)
    assert parquet.read_table(file).to_pylist() == rows


def test_lines_go_out_and_come_in(db: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "trials.jsonl", tmp_path / "other.db"
    assert run("db", "export", file, "--format", "jsonl", "--db", db).stdout == f"{file}\n"
    first = json.loads(run("db", "import", file, "--db", other, "--json").stdout)
    assert (first["added"], first["bests_added"]) == (3, 2)
    again = json.loads(run("db", "import", file, "--db", other, "--json").stdout)
    assert (again["added"], again["known"], again["bests_equal"]) == (0, 3, 2)
    asked = ("results", "best", "--json", "--db")
    keep = ("problem", "median_ns", "config_json", "ties")
    shown = [
        [{name: row[name] for name in keep} for row in json.loads(run(*asked, each).stdout)]
        for each in (db, other)
    ]
    assert shown[0] == shown[1]


def test_merge_of_two_stores(db: Path, tmp_path: Path) -> None:
    other = tmp_path / "colleague.db"
    tune(other, cube(1024), {5: 9e6})
    tune(other, cube(512), {6: 1e6})
    before = other.read_bytes()
    lines = run("db", "merge", other, "--db", db).stdout
    facts = {
        line.rsplit(None, 1)[0].strip(): line.split()[-1] for line in lines.splitlines() if line
    }
    assert (facts["added"], facts["bests added"], facts["bests worse"]) == ("2", "1", "1")
    assert other.read_bytes() == before
    assert "into itself" in run("db", "merge", db, "--db", db, code=1).stderr
    assert (
        "there is no results store"
        in run("db", "merge", tmp_path / "no.db", "--db", db, code=3).stderr
    )


def test_the_seed_is_exported_with_a_word_on_stale_lines(db: Path, tmp_path: Path) -> None:
    done = run("db", "export", tmp_path / "seed", "--format", "seed", "--db", db)
    assert done.stdout == f"{tmp_path / 'seed' / 'sgemm-sm_75.jsonl'}\n"
    assert "2 of 2 lines were made by another version of the templates" in done.stderr
    assert len((tmp_path / "seed" / "sgemm-sm_75.jsonl").read_text().splitlines()) == 2


# *** doctor ***


def test_doctor(db: Path) -> None:
    rows = json.loads(run("db", "doctor", "--db", db, "--json").stdout)
    assert {row["check"]: row["status"] for row in rows}["integrity"] == "ok"
    assert [row["check"] for row in rows if row["status"] == "note"] == ["stale bests"]
    connection = sqlite3.connect(db)
    connection.execute("DELETE FROM environment")
    connection.commit()
    connection.close()
    sick = run("db", "doctor", "--db", db, code=1)
    assert "orphans" in sick.stdout and "autotune db merge" in sick.stdout
    assert "needs attention" in sick.stderr


# *** lookup ***


def test_lookup_says_why(db: Path) -> None:
    done = run("lookup", "1000x1000x1000", "--arch", "75", "--db", db, "-v")
    said = done.stderr
    assert "near_shape: measured for sgemm/1024x1024x1024/nn on Tesla T4" in said
    assert "(m x0.977, n x0.977, k x0.977)" in said
    assert "driver 580.65, nvrtc 13.5" in said and "from the results store" in said
    assert "slower than a config tuned for this" in said
    row = json.loads(run("lookup", "1000x1000x1000", "--arch", "75", "--db", db, "--json").stdout)
    assert row["origin"] == "local" and 0 < row["expected_loss"] < 0.2
