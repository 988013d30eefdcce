"""What writer and reader of the results store agree on, without a database toolkit.

Where a store is, how its file is opened, which schema it has, what is the same device and what a
similar problem. Standard library only, because importing SQLAlchemy costs more than a whole
look-up may. `autotune.store` builds its engine on `connect`; `autotune.lookup` reads through it.
"""

from __future__ import annotations

import logging
import math
import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path

from autotune import settings
from autotune.errors import NotFoundError, SchemaError, StoreError, StoreLockedError
from autotune.types import Problem

VERSION = "0002"
"""Newest migration of db/migrations: the schema that this package reads and writes."""

VERSION_TABLE = "autotune_schema"
FLOAT_BYTES = 4
BUSY_TIMEOUT_S = 30.0
"""How long a reader or writer waits for another process's lock."""

# fmt: off
NETWORK_FILE_SYSTEMS = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "gpfs", "lustre",
        "ncpfs", "nfs", "nfs4", "smb2", "smb3", "smbfs",
    }
)
# fmt: on

SAME_MEMORY = 0.03
"""Devices of one architecture and SM count are the same model when their memory differs by no
more than this fraction: what a driver holds back changes with its version."""

_HEADER = b"SQLite format 3\0"
_log = logging.getLogger("autotune")


def resolve(location: str | Path | None) -> Path | str:
    """Where a store is: the absolute path of an SQLite file, or a PostgreSQL URL.

    Args:
        location: A path (a leading `~` is the home folder), a URL (`sqlite:///file`,
            `postgresql://...`), or None for `settings.store_location()`.

    Raises:
        StoreError: another kind of database, or a home folder that is not known.
    """
    if location is None:
        location = settings.store_location()
    text = str(location)
    if isinstance(location, str) and "://" in location:
        scheme, rest = location.split("://", 1)
        if scheme in ("postgres", "postgresql"):
            return f"postgresql+psycopg://{rest}"
        if scheme.startswith("postgresql+"):
            return location
        text = rest.removeprefix("/")
        if scheme != "sqlite":
            raise StoreError(
                f"a results store cannot be a {scheme} database; give the path of a file, or a "
                "postgresql:// URL"
            )
    if text in ("", ":memory:"):
        raise StoreError(
            f"{str(location)!r} is a database in memory, which would lose every result; give the "
            "path of a file"
        )
    try:
        # normpath, not resolve: a symbolic link stays the name that the user knows.
        return Path(os.path.normpath(Path(text).expanduser().absolute()))
    except RuntimeError as error:
        raise StoreError(
            f"results store {text}: {error}; give an absolute path with --db or AUTOTUNE_DB"
        ) from None


def connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """A connection in autocommit mode, with foreign keys on and the busy timeout set.

    A store in a folder that cannot be written is read as it stands: SQLite would otherwise want
    to create its shared-memory file there.

    Raises:
        sqlite3.Error: see `fault`.
    """
    if not read_only:
        connection = _open(path, "mode=rwc")
        # With a write-ahead log NORMAL cannot damage the file; it only lets a power failure
        # undo the last transactions.
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection
    try:
        connection = _open(path, "mode=ro")
        connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.OperationalError as error:
        if _code(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise
        if os.access(path.parent, os.W_OK):
            # A writer died in the middle of a transaction: opening for writing rolls it back.
            connection = _open(path, "mode=rw")
            connection.execute("PRAGMA query_only = ON")
            return connection
        log = path.with_name(path.name + "-wal")
        if log.exists() and log.stat().st_size:
            _log.warning(
                "%s: the folder is read-only and %s holds results that were not merged yet; they "
                "are left out",
                path,
                log.name,
            )
        connection = _open(path, "mode=ro&immutable=1")
    return connection


def _open(path: Path, options: str) -> sqlite3.Connection:
    # as_uri escapes `?`, `#`, `%` and spaces.
    connection = sqlite3.connect(
        f"{path.as_uri()}?{options}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def require(path: Path) -> None:
    """Checks, without opening it as a database, that a store can be read at `path`.

    Raises:
        NotFoundError: no file, or an empty one.
        StoreError: a folder, a file that may not be read, or not an SQLite file.
    """
    if path.is_dir():
        raise StoreError(
            f"results store {path} is a folder; give the path of a file, for example "
            f"{path / 'results.db'}"
        )
    try:
        with path.open("rb") as file:
            header = file.read(len(_HEADER))
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(
            f"there is no results store at {path}; `autotune search` creates one, --db or "
            "AUTOTUNE_DB names another"
        ) from None
    except OSError as error:
        raise StoreError(
            f"results store {path} cannot be read: {error.strerror}; name another with --db or "
            "AUTOTUNE_DB"
        ) from None
    if not header:
        raise NotFoundError(f"the results store {path} is empty; `autotune search` fills it")
    if header != _HEADER:
        raise StoreError(
            f"{path} is not a results store: it is not an SQLite file; name another with --db or "
            "AUTOTUNE_DB, or move the file away"
        )


def prepare(path: Path) -> None:
    """Creates the folders above a store that is to be written, and checks what is there.

    Raises:
        StoreError: a folder or file stands in the way, or may not be written.
    """
    hint = "name another place with --db or AUTOTUNE_DB"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"results store {path}: the folder {path.parent} cannot be created: "
            f"{error.strerror}; {hint}"
        ) from None
    if not path.exists():
        if not os.access(path.parent, os.W_OK):
            raise StoreError(
                f"results store {path}: the folder {path.parent} is not writable; {hint}"
            )
        return
    with suppress(NotFoundError):  # an empty file is a new store
        require(path)
    if not os.access(path, os.W_OK):
        raise StoreError(f"results store {path} is not writable; {hint}")


def version(connection: sqlite3.Connection, path: Path) -> str | None:
    """The schema's version; None for a database without tables.

    Raises:
        StoreError: the tables are those of another program.
        sqlite3.Error: see `fault`.
    """
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if VERSION_TABLE in names:
        row = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
        if row is not None:
            return str(row[0])
    if names:
        raise StoreError(
            f"{path} is not a results store: it holds another program's tables "
            f"({', '.join(sorted(names)[:3])}, ...); name another with --db or AUTOTUNE_DB"
        )
    return None


def check_version(found: str, place: Path | str) -> None:
    """Refuses a store of another schema; the store is left as it is.

    Raises:
        SchemaError: older or newer than `VERSION`.
    """
    if found == VERSION:
        return
    if found.isdecimal() and int(found) < int(VERSION):
        raise SchemaError(
            f"results store {place} has schema {found}, older than {VERSION} of this version of "
            "autotune; run `autotune db upgrade`, which keeps a backup"
        )
    raise SchemaError(
        f"results store {place} has schema {found}, newer than {VERSION} of this version of "
        "autotune; upgrade the package (pip install --upgrade autotune-cuda), or name another "
        "store with --db or AUTOTUNE_DB"
    )


def read(path: Path) -> sqlite3.Connection:
    """Opens a store of the current schema for reading.

    Raises:
        NotFoundError: no store, or an empty one.
        SchemaError: a store of another schema.
        StoreError: anything else that is wrong with the file.
    """
    require(path)
    try:
        connection = connect(path, read_only=True)
        found = version(connection, path)
    except sqlite3.Error as error:
        raise fault(error, path) from error
    if found is None:
        connection.close()
        raise NotFoundError(f"the results store {path} is empty; `autotune search` fills it")
    try:
        check_version(found, path)
    except SchemaError:
        connection.close()
        raise
    return connection


def set_journal(path: Path) -> None:
    """Turns the write-ahead log on where the file system can have one, with a warning where not.

    With the log readers and the writer do not block one another. It needs memory that all
    processes share, which network file systems and some others lack.
    """
    connection = connect(path, read_only=False)
    try:
        if _journal(connection) == "wal":
            return
        if (kind := file_system(path)) in NETWORK_FILE_SYSTEMS:
            _log.warning(
                "results store %s is on a network file system (%s): use it from one machine at a "
                "time, or move it to a local disk with --db or AUTOTUNE_DB",
                path,
                kind,
            )
            return
        # SQLite does not wait for other processes while it changes the mode.
        deadline = time.monotonic() + BUSY_TIMEOUT_S
        while True:
            try:
                mode = str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                break
            except sqlite3.OperationalError as error:
                busy = _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
                if busy and time.monotonic() < deadline:
                    time.sleep(0.02)
                    continue
                if busy:
                    raise
                mode = str(error)
                connection.execute("PRAGMA journal_mode = DELETE")
                break
        if mode != "wal":
            _log.warning(
                "results store %s: the file system refuses a write-ahead log (%s); readers and "
                "writers will wait for one another",
                path,
                mode,
            )
    finally:
        connection.close()


def _journal(connection: sqlite3.Connection) -> str:
    return str(connection.execute("PRAGMA journal_mode").fetchone()[0])


def file_system(path: Path, mounts: str | None = None) -> str:
    """Type of the file system that `path` is on, as Linux names it; empty where not known.

    Args:
        mounts: Text in the form of /proc/self/mounts, in place of that file.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mounts").read_text()
        except OSError:
            return ""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        # Of equal mount points the last one hides the others.
        if len(point) >= len(best) and path.is_relative_to(point):
            best, kind = point, fields[2]
    return kind


def _code(error: BaseException) -> int:
    """SQLite's primary result code; 0 for an error that is not SQLite's."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def fault(error: BaseException, place: Path | str) -> StoreError:
    """What a database error means for the user."""
    code = _code(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreLockedError(
            f"results store {place}: another process held the lock for more than "
            f"{BUSY_TIMEOUT_S:g} s; end it, or try again"
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreError(
            f"results store {place} is damaged ({error}); save what is left with `sqlite3 "
            f"{place} .recover | sqlite3 NEW.db`, or move the file away to start afresh"
        )
    reasons = {
        sqlite3.SQLITE_FULL: "the disk is full; what was stored before is safe: free some space, "
        "or name another place with --db or AUTOTUNE_DB",
        sqlite3.SQLITE_READONLY: "it cannot be written; name another place with --db or "
        "AUTOTUNE_DB",
        sqlite3.SQLITE_CANTOPEN: "it cannot be opened; name another place with --db or AUTOTUNE_DB",
        sqlite3.SQLITE_IOERR: "reading or writing the file failed; check the disk, or move the "
        "store to a local one",
    }
    hint = reasons.get(code)
    return StoreError(f"results store {place}: {error}" + (f": {hint}" if hint else ""))


def same_model(one: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    """Whether two devices (architecture, SMs, bytes of memory) are the same model.

    The name does not count: one chip is sold and reported under several.
    """
    return one[:2] == other[:2] and abs(one[2] - other[2]) <= SAME_MEMORY * max(one[2], other[2])


def regime(problem: Problem) -> str:
    """What problems must share, besides a similar size, for one's best config to suit the other.

    That is every column which is text (the layout), and for each operand the number of bytes (16,
    8 or 4) that all its rows are aligned to, which decides the width of its loads.
    """
    parts = [value for value in problem.columns().values() if isinstance(value, str)]
    for operand in problem.operands:
        lengths = [operand.columns, operand.batch_stride]
        if operand.rows > 1:
            lengths.append(operand.leading_dimension)
        bytes_ = math.gcd(operand.alignment_bytes, *(FLOAT_BYTES * length for length in lengths))
        parts.append(f"{operand.name}{bytes_}")
    return " ".join(parts)
