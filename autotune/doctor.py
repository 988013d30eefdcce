"""Whether a results store is sound: what is wrong, how much of it, and what to do."""

from __future__ import annotations

import hashlib
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autotune import problems, storefile, templates
from autotune.errors import SchemaError, StoreError

Status = Literal["ok", "note", "fault"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check.

    Attributes:
        status: `note`: worth knowing, nothing is broken. `fault`: something should be done.
        count: Rows concerned.
        advice: What to do; empty where nothing has to be done.
    """

    check: str
    status: Status
    count: int
    detail: str
    advice: str = ""


def examine(location: str | Path | None = None) -> list[Finding]:
    """Every check of a store, in an order in which what comes first explains what comes later.

    Raises:
        NotFoundError: no store there.
        StoreError: not a results store, or one in PostgreSQL, whose server keeps its own order.
    """
    place = storefile.resolve(location)
    if isinstance(place, str):
        raise StoreError("doctor examines files; a PostgreSQL server checks its own tables")
    storefile.require(place)
    found = list(_file(place))
    if all(finding.status != "fault" for finding in found):
        with closing(storefile.read(place)) as connection:
            found += _rows(connection)
    return found


def _file(place: Path) -> Iterator[Finding]:
    """The file itself: damage and schema."""
    try:
        with closing(storefile.connect(place, read_only=True)) as connection:
            faults = [text for (text,) in connection.execute("PRAGMA integrity_check(20)")]
            version = storefile.version(connection, place)
    except sqlite3.Error as error:
        yield Finding(
            check="integrity", status="fault", count=1, detail=str(error),
            advice=str(storefile.fault(error, place)),
        )  # fmt: skip
        return
    if faults != ["ok"]:
        yield Finding(
            check="integrity", status="fault", count=len(faults), detail=faults[0],
            advice=f"save what is left: sqlite3 {place} .recover | sqlite3 NEW.db",
        )  # fmt: skip
        return
    yield Finding(check="integrity", status="ok", count=0, detail="SQLite finds no damage")
    try:
        storefile.check_version(version or "none", place)
    except SchemaError as error:
        yield Finding(
            check="schema", status="fault", count=1, detail=f"schema {version}", advice=str(error)
        )
        return
    yield Finding(check="schema", status="ok", count=0, detail=f"schema {version}, the current one")


_QUESTIONS: tuple[tuple[str, Status, str, str, str], ...] = (
    (
        "orphans", "fault", "SELECT count(*) FROM pragma_foreign_key_check",
        "rows that refer to a row which is gone",
        "another program deleted rows; merge into a new store: autotune db merge THIS --db NEW.db",
    ),
    (
        "best", "fault",
        "SELECT count(*) FROM best WHERE NOT EXISTS (SELECT 1 FROM confirmed WHERE "
        "confirmed.measurement_id = best.measurement_id AND confirmed.problem_id = "
        "best.problem_id AND confirmed.device_id = best.device_id)",
        "bests that no confirm round could have named",
        "merge into a new store, which leaves them out: autotune db merge THIS --db NEW.db",
    ),
    (
        "impossible times", "note",
        "SELECT count(*) FROM measurement WHERE outcome = 'ok' AND median_ns < roofline_ns",
        "times below what the device can do; they are never best",
        "look at them: autotune results sql \"SELECT * FROM results WHERE median_ns < "
        "roofline_ns\"; a wrong clock or bandwidth of the device is the usual cause",
    ),
    (
        "predicted as measured", "fault",
        "SELECT count(*) FROM measurement JOIN run ON run.id = measurement.run_id JOIN device ON "
        "device.id = run.device_id WHERE evidence = 'measured' AND outcome = 'ok' AND present = 0",
        "times of a device that was never present",
        "another program wrote them; delete them, or start a new store",
    ),
    (
        "wrong results", "note",
        "SELECT count(*) FROM measurement WHERE outcome = 'wrong_result'",
        "trials with a wrong result; they are never best",
        "look at them: autotune results failures",
    ),
)  # fmt: skip


def _rows(connection: sqlite3.Connection) -> Iterator[Finding]:
    """What is in the tables."""
    for check, status, sql, detail, advice in _QUESTIONS:
        yield _counted(check, status, connection.execute(sql).fetchone()[0], detail, advice)
    edited = sum(
        hashlib.sha256(config.encode()).hexdigest() != digest
        for config, digest in connection.execute("SELECT config_json, config_sha256 FROM variant")
    )
    yield _counted(
        "edited configs", "fault", edited, "variants whose config is not the one that was stored",
        "look-ups pass them over; search these shapes again",
    )  # fmt: skip
    yield _counted(
        "stale bests", "note", _stale(connection),
        "bests that another version of the templates made",
        "look-ups use them last; search again to renew them",
    )  # fmt: skip
    running = connection.execute(
        "SELECT pid FROM run WHERE status = 'running' AND host = ?", (socket.gethostname(),)
    ).fetchall()
    yield _counted(
        "abandoned runs", "note", sum(not Path(f"/proc/{pid}").exists() for (pid,) in running),
        "runs whose process is gone", "the next search marks them as interrupted",
    )  # fmt: skip


def _counted(check: str, status: Status, count: int, detail: str, advice: str) -> Finding:
    return Finding(
        check=check,
        status=status if count else "ok",
        count=count,
        detail=detail if count else f"no {detail}",
        advice=advice if count else "",
    )


def _stale(connection: sqlite3.Connection) -> int:
    current = {kernel: templates.sha256(kernel) for kernel in problems.FAMILIES}
    rows = connection.execute(
        "SELECT problem.kernel, variant.template_sha256, count(*) FROM best JOIN variant ON "
        "variant.id = best.variant_id JOIN problem ON problem.id = best.problem_id GROUP BY 1, 2"
    )
    return sum(count for kernel, digest, count in rows if current.get(kernel) != digest)
