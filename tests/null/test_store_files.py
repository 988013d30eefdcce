"""Opening a store: places, permissions, damage, versions, many processes."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_helpers import COMPILER, cube, live, timed, tune, variant

from autotune import assets, database, storefile
from autotune.errors import (
    MissingExtraError,
    NotFoundError,
    SchemaError,
    StoreError,
    StoreLockedError,
)
from autotune.store import Store, describe, export, upgrade


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.db"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user can reach; pytest's own cannot be."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def count(path: Path | str) -> int:
    with Store.open(path, read_only=True) as store:
        return len(store.results())


def python(code: str, *arguments: object, user: int | None = None) -> subprocess.CompletedProcess:
    """Runs code in a new process; as another user, to whom permissions mean something."""
    drop = f"os.setgid({user}); os.setuid({user})" if user and os.getuid() == 0 else ""
    header = f"""
    import logging, os, sys, warnings
    warnings.simplefilter("error")
    sys.path.insert(0, {str(Path(__file__).parent)!r})
    import sqlalchemy.dialects.sqlite, autotune.space, autotune.store, autotune.lookup
    from store_helpers import *
    from autotune.errors import *
    path = sys.argv[1]
    {drop}
    """
    text = textwrap.dedent(header) + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", text, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )


# *** places ***


@pytest.mark.parametrize("name", ["a b.db", "a?mode=ro.db", "a#b.db", "50%25.db", "\u00e9 &.db"])
def test_any_name_and_missing_folders(tmp_path: Path, name: str) -> None:
    path = tmp_path / "not" / "there yet?" / name
    tune(path, cube(64), {1: 1e6})
    assert path.is_file()
    assert count(path) == 1
    assert {p.name.removesuffix("-wal").removesuffix("-shm") for p in path.parent.iterdir()} == {
        name
    }


def test_tilde_and_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    with Store.open("~/x/t.db") as store:
        assert store.place == tmp_path / "home" / "x" / "t.db"
    with Store.open("x/../rel.db") as store:
        assert store.place == tmp_path / "rel.db"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["home", "rel.db"]


def test_the_users_own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "mine.db"))
    with Store.open() as store:
        assert store.place == tmp_path / "mine.db"


def test_sqlite_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert storefile.resolve(f"sqlite:///{tmp_path}/a.db") == tmp_path / "a.db"
    assert storefile.resolve("sqlite:///b.db") == tmp_path / "b.db"


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("mysql://host/db", "cannot be a mysql database"),
        ("sqlite://", "in memory"),
        (":memory:", "in memory"),
        ("~no_such_user_at_all/t.db", "absolute path with --db"),
    ],
)
def test_places_that_cannot_be(location: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        Store.open(location)


def test_postgresql_url_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'autotune-cuda\[postgres\]'"):
        Store.open("postgresql://user:secret@localhost/db")
    assert storefile.resolve("postgres://h/d") == "postgresql+psycopg://h/d"


def test_reading_creates_nothing(tmp_path: Path) -> None:
    for path in (tmp_path / "no.db", tmp_path / "missing" / "no.db"):
        with pytest.raises(NotFoundError, match=f"no results store at {path}"):
            Store.open(path, read_only=True)
        with pytest.raises(NotFoundError):
            describe(path)
        with pytest.raises(NotFoundError):
            upgrade(path)
        with pytest.raises(NotFoundError):
            export(path, tmp_path / "copy.db")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_is_a_new_store(path: Path) -> None:
    path.touch()
    with pytest.raises(NotFoundError, match="is empty"):
        Store.open(path, read_only=True)
    assert path.stat().st_size == 0
    tune(path, cube(64), {1: 1e6})
    assert count(path) == 1


@pytest.mark.parametrize("read_only", [True, False])
def test_a_folder_is_refused(tmp_path: Path, read_only: bool) -> None:
    with pytest.raises(StoreError, match=f"{tmp_path} is a folder"):
        Store.open(tmp_path, read_only=read_only)


@pytest.mark.parametrize("read_only", [True, False])
def test_a_text_file_is_refused_and_kept(path: Path, read_only: bool) -> None:
    path.write_text("shape,time\n" * 1000)
    before = digest(path)
    with pytest.raises(StoreError, match=f"{path} is not a results store: it is not an SQLite"):
        Store.open(path, read_only=read_only)
    assert digest(path) == before


@pytest.mark.parametrize("read_only", [True, False])
def test_another_programs_database_is_refused_and_kept(path: Path, read_only: bool) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE recipe (id INTEGER)")
    connection.close()
    before = digest(path)
    with pytest.raises(StoreError, match=r"another program's tables \(recipe"):
        Store.open(path, read_only=read_only)
    assert digest(path) == before


def test_a_parent_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=f"folder {tmp_path}/file cannot be created"):
        Store.open(tmp_path / "file" / "results.db")
    with pytest.raises(NotFoundError):
        Store.open(tmp_path / "file" / "results.db", read_only=True)


# *** permissions ***


def test_a_folder_that_cannot_be_written(open_folder: Path) -> None:
    ran = (
        python(
            """
        for name in ("x.db", "sub/x.db"):
            try:
                Store.open(path + "/" + name)
            except StoreError as error:
                print(error)
        """,
            open_folder,
            user=65534,
        )
        if os.getuid() == 0
        else None
    )
    if ran is None:
        open_folder.chmod(0o555)
        with pytest.raises(StoreError, match="not writable; name another place with --db"):
            Store.open(open_folder / "x.db")
        return
    assert ran.stderr == ""
    first, second = ran.stdout.splitlines()
    assert "is not writable; name another place with --db or AUTOTUNE_DB" in first
    assert "cannot be created: Permission denied" in second


def test_a_store_in_a_read_only_folder_is_readable(open_folder: Path) -> None:
    path = open_folder / "results.db"
    tune(path, cube(64), {1: 1e6})
    path.chmod(0o444)
    open_folder.chmod(0o555)
    ran = python(
        """
        from autotune.lookup import answer
        with Store.open(path, read_only=True) as store:
            print(len(store.results()))
        print(answer(cube(64), arch=75, store=path, check=lambda c, p: None).match)
        try:
            Store.open(path)
        except StoreError as error:
            print(error)
        """,
        path,
        user=65534,
    )
    open_folder.chmod(0o755)
    assert ran.stderr == ""
    found, match, refusal = ran.stdout.splitlines()
    assert (found, match) == ("1", "exact")
    assert f"{path} is not writable" in refusal
    assert [p.name for p in open_folder.iterdir()] == ["results.db"]


def test_what_a_read_only_folder_hides_is_said(open_folder: Path) -> None:
    path = open_folder / "results.db"
    store = Store.open(path)
    run = store.begin_run(cube(64), live(), compiler=COMPILER)
    store.record(run, variant(), timed(1e6))
    copy = open_folder / "copy" / "results.db"
    copy.parent.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    store.close()
    # The tables themselves are still in the log, so put them into the file first.
    shutil.copy(path, copy)
    copy.parent.chmod(0o555)
    ran = python(
        """
        logging.basicConfig(format="%(message)s")
        with Store.open(path, read_only=True) as store:
            print(len(store.results()))
        """,
        copy,
        user=65534,
    )
    copy.parent.chmod(0o755)
    assert ran.stdout == "1\n"
    assert "results.db-wal holds results that were not merged yet" in ran.stderr


def test_a_file_that_may_not_be_read(open_folder: Path) -> None:
    path = open_folder / "results.db"
    tune(path, cube(64), {1: 1e6})
    path.chmod(0)
    ran = python(
        """
        try:
            Store.open(path, read_only=True)
        except StoreError as error:
            print(error)
        """,
        path,
        user=65534,
    )
    assert "cannot be read: Permission denied; name another" in ran.stdout, ran.stderr


# *** damage, and a full disk ***


def filled(path: Path) -> None:
    with Store.open(path) as store:
        run = store.begin_run(cube(64), live(), compiler=COMPILER)
        for number in range(300):
            store.record(run, variant(number), timed(1e6))


def test_a_truncated_file_names_the_repair(path: Path) -> None:
    filled(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    before = digest(path)
    with (
        pytest.raises(StoreError, match=r"damaged .*\.recover .* or move the file away"),
        Store.open(path, read_only=True) as store,
    ):
        store.results()
    assert describe(path)["integrity"] != "ok"
    assert digest(path) == before


def test_overwritten_pages_name_the_repair(path: Path) -> None:
    filled(path)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8 * 4096)
    with pytest.raises(StoreError, match=f"{path} is damaged"):
        count(path)


def test_a_full_disk_loses_only_the_trial(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tune(path, cube(64), {1: 1e6})
    pages = path.stat().st_size // 4096
    connect = storefile.connect

    def small(path: Path, *, read_only: bool) -> sqlite3.Connection:
        connection = connect(path, read_only=read_only)
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    monkeypatch.setattr(storefile, "connect", small)
    with (
        Store.open(path) as store,
        pytest.raises(StoreError, match=f"{path}.*disk is full; what was stored before is safe"),
    ):
        run = store.begin_run(cube(64), live(), compiler=COMPILER)
        for number in range(1000):
            store.record(run, variant(number), timed(1e6))
    monkeypatch.undo()
    assert describe(path)["integrity"] == "ok"
    assert count(path) > 1
    tune(path, cube(128), {1: 1e6})


# *** journals and locks ***


def journal(path: Path) -> str:
    return str(describe(path)["journal"])


def test_write_ahead_log_by_default(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tune(path, cube(64), {1: 1e6})
    assert journal(path) == "wal"
    assert caplog.records == []


def test_falls_back_where_a_log_is_impossible(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # SQLite's own driver for file systems without shared memory.
    open_ = storefile._open
    monkeypatch.setattr(storefile, "_open", lambda p, o: open_(p, f"{o}&vfs=unix-dotfile"))
    tune(path, cube(64), {1: 1e6})
    assert journal(path) == "delete"
    assert count(path) == 1
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"{path}: the file system refuses a write-ahead log (delete)" in record.getMessage()


def test_falls_back_when_the_mode_change_fails(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Refusing(sqlite3.Connection):
        def execute(self, sql: str, *values: object) -> sqlite3.Cursor:
            if sql == "PRAGMA journal_mode = WAL":
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR  # type: ignore[misc]
                raise error
            return super().execute(sql, *values)

    connect = sqlite3.connect
    monkeypatch.setattr(
        storefile.sqlite3, "connect", lambda *a, **k: connect(*a, **k, factory=Refusing)
    )
    tune(path, cube(64), {1: 1e6})
    assert journal(path) == "delete"
    assert [r.getMessage() for r in caplog.records if "disk I/O error" in r.getMessage()]
    assert len(caplog.records) == 1


def test_network_file_systems_keep_the_rollback_journal(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(storefile, "file_system", lambda path: "nfs4")
    tune(path, cube(64), {1: 1e6})
    assert journal(path) == "delete"
    (record,) = caplog.records
    assert "network file system (nfs4)" in record.getMessage()


def test_file_system_is_that_of_the_innermost_mount() -> None:
    mounts = "/dev/a / ext4 rw 0 0\nhost:/x /home nfs4 rw 0 0\nt /home/my\\040dir tmpfs rw 0 0\n"
    assert storefile.file_system(Path("/home/u/x.db"), mounts) == "nfs4"
    assert storefile.file_system(Path("/homes/x.db"), mounts) == "ext4"
    assert storefile.file_system(Path("/home/my dir/x.db"), mounts) == "tmpfs"
    assert storefile.file_system(Path("/x.db"), "") == ""


def test_a_writer_waits_for_a_lock_and_then_says_who_to_blame(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(path, cube(64), {1: 1e6})
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    with Store.open(path) as store:
        run = store.begin_run(cube(64), live(), compiler=COMPILER)
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.5, other.execute, ["COMMIT"])
        timer.start()
        begun = time.monotonic()
        store.record(run, variant(1), timed(1e6))
        assert time.monotonic() - begun > 0.3
        timer.join()
    monkeypatch.setattr(storefile, "BUSY_TIMEOUT_S", 0.2)
    with Store.open(path) as store:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreLockedError, match=rf"{path}.*lock for more than 0\.2 s"):
            store.record(run, variant(2), timed(1e6))
        # Readers are not held up by a writer.
        assert len(store.results()) == 2
        other.execute("ROLLBACK")
        store.record(run, variant(3), timed(1e6))
    other.close()
    assert count(path) == 3


def test_an_open_reader_does_not_disturb_the_writer(path: Path) -> None:
    tune(path, cube(64), {1: 1e6})
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    seen = reader.execute("SELECT count(*) FROM measurement").fetchone()
    tune(path, cube(128), {n: 1e6 for n in range(20)})
    assert reader.execute("SELECT count(*) FROM measurement").fetchone() == seen == (1,)
    reader.close()
    assert count(path) == 21


def test_a_transaction_that_was_killed_halfway_is_rolled_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storefile, "file_system", lambda path: "nfs")
    tune(path, cube(64), {1: 1e6})
    ran = python(
        """
        import sqlite3
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE variant SET name = hex(randomblob(20000))")
        connection.execute("UPDATE measurement SET checks = hex(randomblob(20000))")
        os.kill(os.getpid(), 9)
        """,
        path,
    )
    assert ran.returncode == -9
    assert path.with_name("results.db-journal").stat().st_size > 0
    with Store.open(path, read_only=True) as store:
        assert store.results()[0]["checks"] == "exact, fp64"


WRITER = """
import time
time.sleep(max(0, float(sys.argv[2]) - time.time()))
with Store.open(path) as store:
    run = store.begin_run(cube(64), live(), compiler=COMPILER)
    ids = [store.record(run, variant(n), timed(1e6 + n * 1e5)) for n in range(20)]
    assert store.confirm(run, ids) is not None
    store.end_run(run, "finished")
"""


def test_many_processes_open_and_fill_one_new_path(path: Path) -> None:
    # All start at the same moment, on a path that does not exist.
    start = time.time() + 2.5
    ran: list[subprocess.CompletedProcess] = []
    threads = [
        threading.Thread(target=lambda: ran.append(python(WRITER, path, start))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(r.returncode, r.stderr) for r in ran] == [(0, "")] * 6
    assert count(path) == 6 * 20
    found = describe(path)
    assert (found["integrity"], found["journal"]) == ("ok", "wal")
    assert {t: found["rows"][t] for t in ("device", "problem", "environment", "best", "run")} == {
        "device": 1,
        "problem": 1,
        "environment": 1,
        "best": 1,
        "run": 6,
    }


# *** versions ***


def set_version(path: Path, version: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"UPDATE {storefile.VERSION_TABLE} SET version_num = '{version}'")
    connection.commit()
    connection.close()


@pytest.mark.parametrize("read_only", [True, False])
def test_a_newer_schema_is_refused_and_left_alone(path: Path, read_only: bool) -> None:
    tune(path, cube(64), {1: 1e6})
    set_version(path, "0042")
    before = digest(path)
    with pytest.raises(SchemaError, match=r"schema 0042, newer than 0002.*pip install --upgrade"):
        Store.open(path, read_only=read_only)
    with pytest.raises(SchemaError, match="newer"):
        upgrade(path)
    assert digest(path) == before
    assert [p.name for p in path.parent.iterdir()] == ["results.db"]


SECOND = '''
"""A later schema."""
import sqlalchemy as sa
from alembic import op
revision, down_revision = "0003", "0002"
def upgrade():
    with op.batch_alter_table("variant", recreate="always") as batch:
        batch.add_column(sa.Column("note", sa.Text(), nullable=True))
'''


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package as it is one migration later."""
    folder = tmp_path / "later"
    shutil.copytree(assets.folder("db") / "migrations", folder / "migrations")
    # Views stand in the way of SQLite's copying; a real migration drops and makes them likewise.
    (folder / "migrations" / "versions" / "0003_note.py").write_text(
        SECOND.replace(
            "def upgrade():\n",
            "def upgrade():\n    op.execute('PRAGMA legacy_alter_table = ON')\n",
        )
    )
    monkeypatch.setattr(database.assets, "folder", lambda name: folder)
    monkeypatch.setattr(storefile, "VERSION", "0003")


def test_upgrade_keeps_a_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "store" / "results.db"
    tune(path, cube(64), {1: 1e6, 2: 1.005e6})
    request.getfixturevalue("later")
    before = digest(path)
    for read_only in (True, False):
        with pytest.raises(
            SchemaError, match=r"schema 0002, older than 0003.*`autotune db upgrade`"
        ):
            Store.open(path, read_only=read_only)
    assert digest(path) == before
    backup = upgrade(path)
    assert backup is not None and backup.parent == path.parent
    assert backup.name.startswith("results.db.schema-0002.")
    assert upgrade(path) is None
    assert count(path) == 2
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT note FROM variant").fetchall() == [(None,), (None,)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()
    monkeypatch.undo()
    with Store.open(backup, read_only=True) as store:
        assert len(store.results()) == 2


def test_an_upgrade_that_fails_changes_nothing(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "store" / "results.db"
    tune(path, cube(64), {1: 1e6})
    request.getfixturevalue("later")
    script = tmp_path / "later" / "migrations" / "versions" / "0003_note.py"
    script.write_text(script.read_text() + "    op.execute('SELECT no_such_thing')\n")
    with pytest.raises(StoreError, match="no_such_thing"):
        upgrade(path)
    connection = sqlite3.connect(path)
    columns = [row[1] for row in connection.execute("PRAGMA table_info(variant)")]
    connection.close()
    assert "note" not in columns
    assert describe(path)["schema_version"] == "0002"


# *** export and description ***


def test_export_is_one_whole_file(path: Path, tmp_path: Path) -> None:
    with Store.open(path) as store:
        run = store.begin_run(cube(64), live(), compiler=COMPILER)
        id_ = store.record(run, variant(), timed(1e6))
        store.confirm(run, [id_])
        # The log is not merged while a writer is open.
        copy = export(path, tmp_path / "out" / "copy.db")
    assert [p.name for p in copy.parent.iterdir()] == ["copy.db"]
    # As Datasette opens it with -i.
    connection = sqlite3.connect(f"{copy.as_uri()}?mode=ro&immutable=1", uri=True)
    assert connection.execute("SELECT shape, ties FROM best_config").fetchall() == [("64x64x64", 0)]
    connection.close()
    with pytest.raises(StoreError, match=f"{copy} exists already"):
        export(path, copy)


def test_describe(path: Path) -> None:
    tune(path, cube(64), {1: 1e6, 2: 2e6})
    found = describe(path)
    assert found["location"] == str(path)
    assert found["schema_version"] == found["package_schema_version"] == "0002"
    assert found["size_bytes"] == path.stat().st_size
    assert found["integrity"] == "ok"
    assert found["rows"] == {
        "best": 1,
        "device": 1,
        "environment": 1,
        "measurement": 2,
        "problem": 1,
        "run": 1,
        "tie": 0,
        "variant": 2,
    }
