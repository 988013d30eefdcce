"""Stores merged, exported as lines and imported: whole, once, and in any order."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from store_helpers import COMPILER, T4, config, cube, failed, live, timed, tune, variant

from autotune import exchange, templates
from autotune.errors import NotFoundError, StoreError
from autotune.exchange import Merged
from autotune.rows import VariantRow
from autotune.store import Store
from autotune.types import Measurement, Outcome, Stage

TABLES = ("device", "environment", "problem", "variant", "run", "measurement", "best", "tie")


def one(folder: Path) -> Path:
    """Two bests, a tie, a failure."""
    path = folder / "one.db"
    tune(path, cube(512), {1: 1.0e7, 2: 1.005e7})
    tune(path, cube(1024), {3: 5e7})
    with Store.open(path) as store:
        run = store.begin_run(cube(64), live(), compiler=COMPILER, seed=3)
        store.record(run, variant(9), failed(Outcome.compile_error, "no; ünïcode"))
    return path


def two(folder: Path) -> Path:
    """A slower best of a problem that the other knows, a faster one, one of a problem that it does
    not know on another device, and predictions."""
    path = folder / "two.db"
    tune(path, cube(512), {4: 1.2e7, 5: 1.205e7}, live(memory_bytes=int(T4.memory_bytes * 0.98)))
    tune(path, cube(1024), {6: 4e7, 7: 4.01e7})
    tune(path, cube(2048), {8: 9e8}, live(sm_count=20, name="Small T4"))
    with Store.open(path) as store:
        run = store.begin_run(cube(4096), T4, compiler=COMPILER)
        predicted = Measurement(outcome=Outcome.ok, stage=Stage.predict)
        store.record(run, variant(10), predicted, predicted_ns=1e9)
    return path


def merged(into: Path, *others: Path) -> list[Merged]:
    with Store.open(into) as store:
        return [exchange.merge(store, other) for other in others]


def counts(path: Path) -> dict[str, int]:
    connection = sqlite3.connect(path)
    found = {
        table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES
    }
    connection.close()
    return found


def bests(path: Path) -> dict[tuple[str, int], tuple[str, float, int]]:
    with Store.open(path, read_only=True) as store:
        return {
            (row["problem"], row["sm_count"]): (row["config_json"], row["median_ns"], row["ties"])
            for row in store.bests()
        }


def test_the_order_does_not_matter_and_twice_is_once(tmp_path: Path) -> None:
    ab, ba = tmp_path / "ab.db", tmp_path / "ba.db"
    a, b = one(tmp_path), two(tmp_path)
    first, second, again, more = merged(ab, a, b, b, a)
    merged(ba, b, a)
    assert first == Merged(added=4, bests_added=2)
    assert second == Merged(added=6, bests_added=1, bests_better=1, bests_worse=1)
    assert again == Merged(known=6, bests_equal=2, bests_worse=1)
    assert more == Merged(known=4, bests_equal=1, bests_worse=1)
    assert bests(ab) == bests(ba)
    assert bests(ab) == {
        (cube(512).key, 40): (config(1).json, 1.0e7, 1),
        (cube(1024).key, 40): (config(6).json, 4e7, 1),
        (cube(2048).key, 20): (config(8).json, 9e8, 0),
    }
    # The two T4 differ only in what the driver holds back.
    assert counts(ab) == counts(ba)
    assert counts(ab)["device"] == 2 and counts(ab)["measurement"] == 10


def test_nothing_is_lost_on_the_way(tmp_path: Path) -> None:
    a, copy = one(tmp_path), tmp_path / "copy.db"
    lines = tmp_path / "trials.jsonl"
    with Store.open(a) as store:
        assert exchange.write_lines(store, lines) == 4
        with pytest.raises(StoreError, match="exists already"):
            exchange.write_lines(store, lines)
    with Store.open(copy) as store:
        assert exchange.absorb(store, exchange.read_lines(lines)) == Merged(added=4, bests_added=2)
    for view in ("results", "failures", "bests"):
        with Store.open(a) as source, Store.open(copy) as target:
            rows, copies = getattr(source, view)(), getattr(target, view)()
        for row in (*rows, *copies):
            # Ids are each store's own; so is when and whence a best came to be.
            for name in [n for n in row if n == "id" or n.endswith("_id")]:
                del row[name]
            for name in ("origin", "updated_at"):
                row.pop(name, None)
        assert rows == copies
    record = json.loads(lines.read_text().splitlines()[0])
    assert record["is_best"] and record["device"]["arch"] == 75


def test_predicted_and_measured_stay_apart(tmp_path: Path) -> None:
    measured, predicted = tmp_path / "m.db", tmp_path / "p.db"
    tune(measured, cube(4096), {10: 2e9})
    with Store.open(predicted) as store:
        run = store.begin_run(cube(4096), T4, compiler=COMPILER)
        trial = Measurement(outcome=Outcome.ok, stage=Stage.predict)
        store.record(run, variant(10), trial, predicted_ns=1.0)
    merged(predicted, measured)
    assert bests(predicted)[cube(4096).key, 40][1] == 2e9
    with Store.open(predicted) as store:
        assert sorted(row["evidence"] for row in store.results()) == ["measured", "predicted"]
    # The row that the predictions assumed is now that of the live device.
    connection = sqlite3.connect(predicted)
    assert connection.execute("SELECT present FROM device").fetchall() == [(1,)]
    connection.close()


def test_a_best_of_the_current_templates_goes_first(tmp_path: Path) -> None:
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    tune(old, cube(512), {1: 1e7}, template_sha256="old")
    tune(new, cube(512), {2: 2e7}, template_sha256=templates.sha256("sgemm"))
    assert merged(new, old) == [Merged(added=1, bests_worse=1)]
    # `new` holds the old trial too by now.
    assert merged(old, new) == [Merged(added=1, known=1, bests_better=1)]
    assert bests(old) == bests(new)


def test_a_store_that_has_the_others_best_has_decided(tmp_path: Path) -> None:
    before, after = tmp_path / "before.db", tmp_path / "after.db"
    tune(before, cube(512), {1: 1e7})
    merged(after, before)
    # The same config once more, on a slower GPU of the same model: no faster time is to be had.
    tune(after, cube(512), {1: 1.2e7})
    assert bests(after)[cube(512).key, 40][1] == 1.2e7
    assert merged(after, before) == [Merged(known=1, bests_worse=1)]
    assert bests(after)[cube(512).key, 40][1] == 1.2e7
    assert merged(before, after) == [Merged(added=1, known=1, bests_better=1)]
    assert bests(before) == bests(after)


def test_a_vendors_time_comes_along(tmp_path: Path) -> None:
    path, other = tmp_path / "a.db", tmp_path / "b.db"
    with Store.open(path) as store:
        run = store.begin_run(cube(512), live(), compiler=COMPILER)
        library = store.record(run, VariantRow.vendor("cublas", "13.0", 75), timed(3e7))
        store.confirm(run, [store.record(run, variant(1), timed(2e7)), library][:1])
    merged(other, path)
    with Store.open(other) as store:
        (row,) = store.speedups()
    assert (row["vendor"], row["speedup"]) == ("cublas", pytest.approx(1.5))


def test_an_impossible_best_is_refused(tmp_path: Path) -> None:
    path, other = tmp_path / "a.db", tmp_path / "b.db"
    tune(path, cube(512), {1: 1e7})
    lines = tmp_path / "t.jsonl"
    with Store.open(path) as store:
        exchange.write_lines(store, lines)
    record = json.loads(lines.read_text())
    record["measurement"]["median_ns"] = 1.0
    lines.write_text(json.dumps(record) + "\n")
    with Store.open(other) as store:
        found = exchange.absorb(store, exchange.read_lines(lines))
    assert found == Merged(added=1, bests_refused=1)
    assert bests(other) == {}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "line 2 is not JSON"),
        ("[]", "record 2 is not one"),
        ("{}", "record 2 is not one"),
    ],
)
def test_a_damaged_file_changes_nothing(tmp_path: Path, line: str, why: str) -> None:
    path, other, lines = tmp_path / "a.db", tmp_path / "b.db", tmp_path / "t.jsonl"
    tune(path, cube(512), {1: 1e7})
    with Store.open(path) as store:
        exchange.write_lines(store, lines)
    lines.write_text(lines.read_text() + line + "\n")
    with Store.open(other) as store, pytest.raises(StoreError, match=why):
        exchange.absorb(store, exchange.read_lines(lines))
    assert counts(other)["measurement"] == 0


def test_what_cannot_be_merged(tmp_path: Path) -> None:
    path = one(tmp_path)
    with Store.open(path) as store:
        with pytest.raises(StoreError, match="into itself"):
            exchange.merge(store, path)
        with pytest.raises(NotFoundError):
            exchange.merge(store, tmp_path / "none.db")
        with pytest.raises(StoreError, match="cannot be read"):
            exchange.absorb(store, exchange.read_lines(tmp_path / "none.jsonl"))
        with pytest.raises(StoreError, match="is not text"):
            exchange.absorb(store, exchange.read_lines(path))
