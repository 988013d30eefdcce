"""Questions in SQL to the results store, which cannot change it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from autotune import database, storefile
from autotune.errors import UsageError

Rows = tuple[list[str], list[tuple[Any, ...]]]
"""Names of the columns, and the rows."""

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}


def ask(sql: str, location: str | Path | None = None) -> Rows:
    """The answer of one SELECT.

    SQLite's file is opened for reading only, and anything but reading tables and views is refused
    before it runs; PostgreSQL gets a read-only transaction.

    Raises:
        NotFoundError: no store there.
        StoreError: the store cannot be read.
        UsageError: not one statement, not SQL, an unknown table or column, or no SELECT.
    """
    place = storefile.resolve(location)
    return _sqlite(sql, place) if isinstance(place, Path) else _postgresql(sql, place)


def _sqlite(sql: str, path: Path) -> Rows:
    refused: list[int] = []

    def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        loads = action == sqlite3.SQLITE_FUNCTION and second == "load_extension"
        if (action in _ALLOWED or action == sqlite3.SQLITE_FUNCTION) and not loads:
            return sqlite3.SQLITE_OK
        refused.append(action)
        return sqlite3.SQLITE_DENY

    with closing(storefile.read(path)) as connection:
        connection.execute("PRAGMA query_only = ON")
        connection.set_authorizer(authorize)
        try:
            cursor = connection.execute(sql)
            rows = cursor.fetchall()
        except (sqlite3.ProgrammingError, sqlite3.Warning) as error:
            raise _wrong(str(error)) from None
        except sqlite3.DatabaseError as error:
            if refused:
                raise UsageError(
                    "only a SELECT is possible here: the results store is never changed by a "
                    'question; `sqlite3 "$(autotune db path)"` does what you ask it to'
                ) from None
            if (getattr(error, "sqlite_errorcode", 0) & 0xFF) == sqlite3.SQLITE_ERROR:
                raise _wrong(str(error)) from None
            raise storefile.fault(error, path) from error
    if cursor.description is None:
        raise _wrong("there is no statement in it")
    return _named([column[0] for column in cursor.description], rows)


def _postgresql(sql: str, url: str) -> Rows:
    engine, name = database.connect(url, read_only=True)
    import psycopg  # there, since the engine could be made

    try:
        with database.faults(name), engine.begin() as connection:
            driver: Any = connection.connection.driver_connection
            # A prepared statement is one statement: none can end the read-only transaction first.
            cursor = driver.execute(sql, prepare=True)
            if cursor.description is None:
                raise _wrong("it has no rows to show")
            return _named([column.name for column in cursor.description], cursor.fetchall())
    except psycopg.Error as error:
        raise _wrong(str(error)) from None
    finally:
        engine.dispose()


def _named(names: list[str], rows: list[tuple[Any, ...]]) -> Rows:
    if double := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two columns are called {double[0]!r}; name one of them with AS")
    return names, rows


def _wrong(why: str) -> UsageError:
    return UsageError(
        f"the question failed: {why}; it must be one SELECT over the tables and views that "
        "db/README.md describes, such as best_config, results, failures, speedup_vs_vendor"
    )
