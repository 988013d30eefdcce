"""Opens and maintains the database behind a store: engines, migrations, backup, export.

SQLite files are opened by `autotune.storefile`; Alembic runs only when a store is created or
upgraded, and is imported only then.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, event, func, select

from autotune import assets, schema, storefile, views
from autotune.errors import MissingExtraError, NotFoundError, StoreError

_CREATION_LOCK = 0x6175746F
"""PostgreSQL's advisory lock while the tables are created; any fixed number would do."""


def connect(location: str | Path | None, *, read_only: bool) -> tuple[Engine, Path | str]:
    """An engine for a store of the current schema, and the place to name in messages.

    A store that is to be written is created where there is none. Under the execution option
    `immediate` a transaction of SQLite takes the write lock when it begins.

    Raises: as `autotune.store.Store.open`.
    """
    place = storefile.resolve(location)
    if isinstance(place, str):
        return _connect_postgresql(place, read_only=read_only)
    if read_only:
        storefile.read(place).close()
        return _sqlite_engine(place, read_only=True), place
    storefile.prepare(place)
    with faults(place):
        if place.exists() and place.stat().st_size:
            # Before anything is written, so that a store of another schema stays untouched.
            with closing(storefile.connect(place, read_only=True)) as connection:
                found = storefile.version(connection, place)
            if found is not None:
                storefile.check_version(found, place)
        storefile.set_journal(place)
        engine = _sqlite_engine(place, read_only=False)
        with engine.execution_options(immediate=True).begin() as writing:
            # Of many processes that open a new path at once, the first one creates the tables.
            if storefile.version(_driver(writing), place) is None:
                _migrate(writing)
    return engine, place


@contextmanager
def faults(place: Path | str) -> Iterator[None]:
    """Turns the errors of databases into a `StoreError` that names the store."""
    try:
        yield
    except (sa.exc.DBAPIError, sqlite3.Error) as error:
        cause = getattr(error, "orig", None) or error
        raise storefile.fault(cause, place) from error


def upgrade(location: str | Path | None = None) -> Path | None:
    """Brings a store to the current schema, after a backup beside it.

    Returns:
        The backup; None when the schema was current already, or for PostgreSQL, where backups are
        the server's business.

    Raises:
        NotFoundError: no store there.
        SchemaError: a store of a newer schema.
        StoreError: not a results store, damaged, not writable, no space for the backup.
    """
    place = storefile.resolve(location)
    if isinstance(place, str):
        engine, name = _postgresql_engine(place)
        with faults(name), engine.begin() as connection:
            found = _postgresql_version(connection)
            if found is None:
                raise NotFoundError(f"there is no results store in {name}")
            if _is_older(found, name):
                _migrate(connection)
        engine.dispose()
        return None
    storefile.require(place)
    storefile.prepare(place)
    # SQLite changes a table by copying it, which foreign keys to the old one would forbid.
    engine = _sqlite_engine(place, read_only=False, foreign_keys=False)
    try:
        with faults(place):
            with engine.begin() as connection:
                found = storefile.version(_driver(connection), place)
            if found is None:
                raise NotFoundError(f"the results store {place} is empty")
            if not _is_older(found, place):
                return None
            stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
            backup = place.with_name(f"{place.name}.schema-{found}.{stamp}.backup")
            export(place, backup)
            with engine.execution_options(immediate=True).begin() as connection:
                _migrate(connection)
                broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
                if broken:
                    raise StoreError(
                        f"results store {place}: {len(broken)} rows would lose what they refer to; "
                        f"nothing was changed, and {backup} is a copy"
                    )
            return backup
    finally:
        engine.dispose()


def export(location: str | Path | None, file: str | Path) -> Path:
    """Copies a store into one file of its own, without a write-ahead log beside it.

    Args:
        file: Must not exist.

    Raises:
        NotFoundError: no store there.
        StoreError: `file` exists or cannot be written, or the store is a PostgreSQL database.
    """
    place = storefile.resolve(location)
    target = storefile.resolve(str(file))
    if isinstance(place, str) or isinstance(target, str):
        raise StoreError("export copies one SQLite file to another; for PostgreSQL use pg_dump")
    if target.exists():
        raise StoreError(f"{target} exists already; name a new file")
    storefile.require(place)
    storefile.prepare(target)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with faults(place), closing(storefile.connect(place, read_only=True)) as connection:
            connection.execute("VACUUM INTO ?", (str(unfinished),))
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return target


def describe(location: str | Path | None = None) -> dict[str, Any]:
    """What there is to know about a store without asking for its contents.

    Returns:
        `location`, `schema_version`, `package_schema_version`, `size_bytes`, `journal`,
        `integrity` (`ok`, or what SQLite found), and `rows`: table to number of rows. The last
        three are None or empty where they cannot be read.

    Raises:
        NotFoundError: no store there.
        StoreError: not a results store.
    """
    place = storefile.resolve(location)
    if isinstance(place, str):
        engine, name = _connect_postgresql(place, read_only=True)
        with faults(name), engine.begin() as connection:
            rows = {
                table.name: connection.scalar(select(func.count()).select_from(table))
                for table in _tables()
            }
        engine.dispose()
        return {
            "location": str(name),
            "schema_version": storefile.VERSION,
            "package_schema_version": storefile.VERSION,
            "size_bytes": None,
            "journal": None,
            "integrity": None,
            "rows": rows,
        }
    storefile.require(place)
    answer: dict[str, Any] = {
        "location": str(place),
        "schema_version": None,
        "package_schema_version": storefile.VERSION,
        "size_bytes": place.stat().st_size,
        "journal": None,
        "integrity": None,
        "rows": {},
    }
    try:
        with closing(storefile.connect(place, read_only=True)) as raw:
            answer["schema_version"] = storefile.version(raw, place)
            answer["journal"] = raw.execute("PRAGMA journal_mode").fetchone()[0]
            answer["integrity"] = raw.execute("PRAGMA quick_check(1)").fetchone()[0]
            answer["rows"] = {
                table.name: raw.execute(f'SELECT count(*) FROM "{table.name}"').fetchone()[0]
                for table in _tables()
            }
    except sqlite3.Error as error:
        answer["integrity"] = str(error)
    return answer


def _tables() -> list[sa.Table]:
    return [t for t in schema.Base.metadata.sorted_tables if t not in views.VIEWS]


def _is_older(found: str, place: Path | str) -> bool:
    """Whether an upgrade is due; refuses a newer schema."""
    if found.isdecimal() and int(found) < int(storefile.VERSION):
        return True
    storefile.check_version(found, place)
    return False


def _migrate(connection: Connection) -> None:
    """Runs every migration that is due, in the caller's transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    folder = assets.folder("db") / "migrations"
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _driver(connection: Connection) -> sqlite3.Connection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


def _sqlite_engine(path: Path, *, read_only: bool, foreign_keys: bool = True) -> Engine:
    def create() -> sqlite3.Connection:
        connection = storefile.connect(path, read_only=read_only)
        if not foreign_keys:
            connection.execute("PRAGMA foreign_keys = OFF")
        return connection

    # A creator, because in a URL `?` and `#` of a path would mean something else.
    engine = sa.create_engine("sqlite://", creator=create, poolclass=sa.QueuePool)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A reader that turns writer halfway can deadlock with another; so say it at once.
        immediate = connection.get_execution_options().get("immediate", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")

    return engine


def _connect_postgresql(url: str, *, read_only: bool) -> tuple[Engine, str]:
    engine, name = _postgresql_engine(url)
    with faults(name), engine.begin() as connection:
        found = _postgresql_version(connection)
        if found is None and not read_only:
            connection.execute(select(func.pg_advisory_xact_lock(_CREATION_LOCK)))
            if _postgresql_version(connection) is None:
                _migrate(connection)
        elif found is None:
            raise NotFoundError(
                f"there is no results store in {name}; `autotune search` creates one"
            )
        else:
            storefile.check_version(found, name)
    if read_only:
        engine = engine.execution_options(postgresql_readonly=True)
    return engine, name


def _postgresql_engine(url: str) -> tuple[Engine, str]:
    try:
        parsed = sa.make_url(url)
        return sa.create_engine(parsed), parsed.render_as_string(hide_password=True)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"a store in PostgreSQL needs {error.name}; pip install 'autotune-cuda[postgres]'"
        ) from None
    except sa.exc.ArgumentError as error:
        raise StoreError(f"results store: {error}") from None


def _postgresql_version(connection: Connection) -> str | None:
    if not sa.inspect(connection).has_table(storefile.VERSION_TABLE):
        return None
    found = connection.exec_driver_sql(f"SELECT version_num FROM {storefile.VERSION_TABLE}")
    return found.scalar()
