"""Models, migrations, dialects and the descriptions of columns."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa
import yaml
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable, CreateView

from autotune import assets, schema, storefile, views
from autotune.store import Store

TABLES = schema.Base.metadata.sorted_tables
META = yaml.safe_load((assets.folder("db") / "metadata.yaml").read_text())["databases"]["results"]


def objects(path: Path) -> dict[str, list[str]]:
    """Every object of a file by name: the parts of its SQL, whatever their order and spacing."""
    connection = sqlite3.connect(path)
    found = {
        name: sorted(part.strip() for part in re.split(r",\s+|\n", " ".join(sql.split())))
        for name, sql in connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"
        )
        if name != storefile.VERSION_TABLE
    }
    connection.close()
    return found


def test_models_equal_migrations(tmp_path: Path) -> None:
    migrated, modelled = tmp_path / "migrated.db", tmp_path / "modelled.db"
    Store.open(migrated).close()
    engine = sa.create_engine(f"sqlite:///{modelled}")
    schema.Base.metadata.create_all(engine)
    engine.dispose()
    assert {table.name for table in TABLES} <= set(objects(migrated))
    tables = {name: _unordered(parts) for name, parts in objects(migrated).items()}
    assert tables == {name: _unordered(parts) for name, parts in objects(modelled).items()}


def _unordered(parts: list[str]) -> list[str]:
    # The last part of a table ends in `)`, whichever it is.
    return sorted(re.sub(r"\s*\)\s*STRICT$", "", part) for part in parts)


def test_the_packages_version_is_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(assets.folder("db") / "migrations"))
    assert ScriptDirectory.from_config(config).get_current_head() == storefile.VERSION


def test_tables_are_strict_and_have_an_integer_key(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    Store.open(path).close()
    connection = sqlite3.connect(path)
    strict = {name: flag for _, name, _, _, _, flag in connection.execute("PRAGMA table_list")}
    for table in TABLES:
        if table in views.VIEWS:
            continue
        assert strict[table.name] == 1
        key = [row[1:3] for row in connection.execute(f"PRAGMA table_info({table.name})") if row[5]]
        assert key == [("id", "INTEGER")]
    links = [row[2] for row in connection.execute("PRAGMA foreign_key_list(measurement)")]
    assert sorted(links) == ["run", "variant"]
    connection.execute("PRAGMA foreign_keys = ON")
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        connection.execute("INSERT INTO tie (best_id, measurement_id) VALUES (1, 1)")
    connection.close()


def test_tables_compile_for_postgresql() -> None:
    dialect = postgresql.dialect()
    for table in TABLES:
        if table in views.VIEWS:
            continue
        text = str(CreateTable(table).compile(dialect=dialect))
        assert "id BIGSERIAL NOT NULL" in text
        assert "STRICT" not in text and "json_valid" not in text
        # REAL and INTEGER hold 32 bits there.
        assert not re.search(r"\b(REAL|INTEGER)\b", text)
        for index in table.indexes:
            assert "CREATE INDEX" in str(CreateIndex(index).compile(dialect=dialect))


def test_views_compile_alike_for_both_dialects() -> None:
    created: list[CreateView] = []

    def collect(statement: object, *_: object) -> None:
        if isinstance(statement, CreateView):
            created.append(statement)

    engine = sa.create_mock_engine("sqlite://", collect)
    schema.Base.metadata.create_all(engine, checkfirst=False)
    assert len(created) == len(views.VIEWS) == 5
    for view in created:
        texts = {
            " ".join(str(view.compile(dialect=dialect)).replace('"key"', "key").split())
            for dialect in (engine.dialect, postgresql.dialect())
        }
        assert len(texts) == 1


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_column_is_described(table: sa.Table) -> None:
    described = META["tables"][table.name]["columns"]
    assert list(described) == list(table.columns.keys())
    readme = (assets.folder("db") / "README.md").read_text()
    section = readme.split(f"\n### {table.name}\n")[1].split("\n### ")[0]
    assert META["tables"][table.name]["description"] in section
    for column, meaning in described.items():
        assert f"| `{column}` | {meaning} |" in section


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_units_are_named(table: sa.Table) -> None:
    units = {
        "_ns": "ns;",
        "_khz": "kHz;",
        "_mhz": "MHz;",
        "_bytes": "bytes of",
        "_w": "W;",
        "_c": "degrees",
        "_bits": "bits;",
        "_gbs": "GB/s;",
        "tflops": "TFLOP/s",
        "_sha256": "SHA-256",
        "_at": "ISO 8601, UTC",
    }
    exceptions = {"stride_c", "align_c"}
    for column, meaning in META["tables"][table.name]["columns"].items():
        for ending, unit in units.items():
            if column.endswith(ending) and column not in exceptions:
                assert meaning.startswith(unit), f"{table.name}.{column}: {meaning}"


def test_canned_queries_run(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    Store.open(path).close()
    connection = sqlite3.connect(path)
    assert len(META["queries"]) == 4
    for query in META["queries"].values():
        assert connection.execute(query["sql"]).fetchall() == []
    connection.close()


def test_label_columns_exist() -> None:
    for name, entry in META["tables"].items():
        if "label_column" in entry:
            assert entry["label_column"] in schema.Base.metadata.tables[name].columns
