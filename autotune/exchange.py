"""Results on their way between stores: every trial as a record that stands alone.

A record holds the rows of all tables behind one measurement, without ids. Two stores that have the
same device, problem, variant, run or measurement keep it once, so that merging twice changes
nothing. Facts are added, whole; `best` is decided anew where both sides have one: by the faster
confirmed time, those of the current template first. That does not depend on which store is merged
into which.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, select

from autotune import rows, schema, storefile, templates, views
from autotune.errors import AutotuneError, StoreError
from autotune.rows import Table
from autotune.schema import Origin
from autotune.store import Store

Record = Mapping[str, Any]
"""Table name to the row's columns; `is_best` and `is_tie` say what the measurement is to the best
of its problem and device."""

# Every table behind a measurement, with the columns that tell its rows apart.
_TABLES: dict[str, tuple[Table, tuple[str, ...]]] = {
    "device": (schema.Device, ("arch", "sm_count", "memory_bytes")),
    "environment": (
        schema.Environment,
        ("driver", "compiler", "autotune_version", "git_sha", "python", "os"),
    ),
    "problem": (schema.Problem, ("key",)),
    "variant": (
        schema.Variant,
        (
            "problem_id",
            "provider",
            "arch",
            "config_sha256",
            "template_sha256",
            "source_sha256",
            "compiler",
        ),
    ),
    "run": (
        schema.Run,
        ("device_id", "environment_id", "problem_id", "started_at", "host", "pid", "seed"),
    ),
    "measurement": (
        schema.Measurement,
        (
            "run_id",
            "variant_id",
            "outcome",
            "stage",
            "median_ns",
            "predicted_ns",
            "measured_at",
        ),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What merging did.

    Attributes:
        added: Trials that are new here.
        known: Trials that were here already.
        bests_added: Bests of a problem and device that had none.
        bests_better: Bests that took the place of a slower or stale one.
        bests_equal: Bests that were here already.
        bests_worse: Bests that are slower or staler than the one here.
        bests_refused: Bests that may be none: see the view `confirmed`.
    """

    added: int = 0
    known: int = 0
    bests_added: int = 0
    bests_better: int = 0
    bests_equal: int = 0
    bests_worse: int = 0
    bests_refused: int = 0


def _plain(table: Table) -> list[Any]:
    """The columns that mean the same in every store."""
    return [c for c in table.__table__.columns if c.name != "id" and not c.foreign_keys]


def records(store: Store) -> Iterator[Record]:
    """Every trial of a store, in the order of recording.

    Raises:
        StoreError: the store cannot be read.
    """
    columns = [
        column.label(f"{name}__{column.name}")
        for name, (table, _) in _TABLES.items()
        for column in _plain(table)
    ]
    statement = (
        select(
            *columns,
            sa.exists().where(schema.Best.measurement_id == schema.Measurement.id).label("is_best"),
            sa.exists().where(schema.Tie.measurement_id == schema.Measurement.id).label("is_tie"),
        )
        .select_from(views.JOINED)
        .order_by(schema.Measurement.id)
    )
    with store.reading() as connection:
        for row in connection.execute(statement):
            record: dict[str, Any] = {name: {} for name in _TABLES}
            for label, value in row._mapping.items():
                name, separator, column = label.partition("__")
                if separator:
                    record[name][column] = value
                else:
                    record[name] = bool(value)
            yield record


def absorb(store: Store, found: Iterable[Record]) -> Merged:
    """Adds records to a store, in one transaction.

    Raises:
        StoreError: the store cannot be written, or a record lacks something; nothing is changed.
    """
    merged = Merged()
    bests: dict[tuple[int, int], int] = {}
    ties: dict[tuple[int, int], list[int]] = {}
    ids: dict[tuple[Any, ...], int] = {}
    told: set[int] = set()
    news: set[int] = set()
    with store.writing() as connection:
        for number, record in enumerate(found, 1):
            try:
                place, id_, is_new = _add(connection, record, ids)
                is_best, is_tie = bool(record["is_best"]), bool(record["is_tie"])
            except (KeyError, TypeError, AttributeError, sa.exc.IntegrityError) as error:
                what = error.orig if isinstance(error, sa.exc.IntegrityError) else repr(error)
                raise StoreError(
                    f"record {number} is not one of a results store ({what}); nothing was "
                    "changed: export it again with `autotune db export --format jsonl`"
                ) from None
            merged = replace(merged, added=merged.added + is_new, known=merged.known + (not is_new))
            told.add(id_)
            if is_new:
                news.add(id_)
            if is_best:
                bests[place] = id_
            if is_tie:
                ties.setdefault(place, []).append(id_)
        for place, id_ in bests.items():
            verdict = _decide(connection, place, id_, ties.get(place, []), told, news)
            merged = replace(merged, **{verdict: getattr(merged, verdict) + 1})
    return merged


def merge(into: Store, other: str | Path) -> Merged:
    """Adds what another store knows to one.

    Raises:
        NotFoundError: no store at `other`.
        SchemaError: one of the two has another schema.
        StoreError: they are the same store, or one cannot be read or written.
    """
    if storefile.resolve(other) == into.place:
        raise StoreError(f"{into.place} cannot be merged into itself; name another store")
    with Store.open(other, read_only=True) as source:
        return absorb(into, records(source))


def write_lines(store: Store, file: Path) -> int:
    """Writes every trial as a line of JSON; returns their number.

    Raises:
        StoreError: the file exists already or cannot be written.
    """
    number = 0
    try:
        with file.open("x", encoding="utf-8") as out:
            for record in records(store):
                text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
                out.write(text + "\n")
                number += 1
    except FileExistsError:
        raise StoreError(f"{file} exists already; name a new file") from None
    except OSError as error:
        raise StoreError(f"{file} cannot be written: {error.strerror}") from None
    return number


def read_lines(file: Path) -> Iterator[Record]:
    """The records of a file that `write_lines` wrote.

    Raises:
        StoreError: the file cannot be read, or a line is not JSON.
    """
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise StoreError(f"{file}, line {number} is not JSON: {error}") from None
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise StoreError(f"{file} is not text; `autotune db merge` takes stores") from None


# *** one record ***


def _add(
    connection: Connection, record: Record, ids: dict[tuple[Any, ...], int]
) -> tuple[tuple[int, int], int, bool]:
    """Problem and device, the measurement's id, and whether it is new.

    Args:
        ids: Of the rows that were found before, by table and key.
    """

    def known(name: str, **foreign: int) -> int:
        values = {**record[name], **foreign}
        key = (name, *(values[each] for each in _TABLES[name][1]))
        if key not in ids:
            find = _device_id if name == "device" else _id
            ids[key] = find(connection, name, values)[0]
        return ids[key]

    device, problem = known("device"), known("problem")
    variant = known("variant", problem_id=problem)
    environment = known("environment")
    run = known("run", device_id=device, environment_id=environment, problem_id=problem)
    values = {**record["measurement"], "run_id": run, "variant_id": variant}
    return (problem, device), *_id(connection, "measurement", values)


def _id(connection: Connection, name: str, values: Mapping[str, Any]) -> tuple[int, bool]:
    """The id of the row that is the same, added where there is none; and whether it was."""
    table, key = _TABLES[name]
    columns = table.__table__.c
    same = select(sa.func.min(columns.id)).where(
        *(columns[each].is_not_distinct_from(values[each]) for each in key)
    )
    found = connection.scalar(same)
    if found is not None:
        return int(found), False
    wanted = {c.name: values[c.name] for c in table.__table__.columns if c.name != "id"}
    return rows.add(connection, table, wanted), True


def _device_id(connection: Connection, name: str, values: Mapping[str, Any]) -> tuple[int, bool]:
    """As `_id`; memory may differ as it may between drivers, and a row that predictions assumed
    becomes that of the live device."""
    table = schema.Device
    model = (values["arch"], values["sm_count"], values["memory_bytes"])
    known = connection.execute(
        select(table.id, table.arch, table.sm_count, table.memory_bytes, table.present)
        .where(table.arch == model[0], table.sm_count == model[1])
        .order_by(table.id)
    ).all()
    for row in known:
        if storefile.same_model(model, (row.arch, row.sm_count, row.memory_bytes)):
            if values["present"] and not row.present:
                update = sa.update(table).where(table.id == row.id)
                connection.execute(update.values(dict(values)))
            return int(row.id), False
    return _id(connection, name, values)


# *** who is best ***


def _decide(
    connection: Connection,
    place: tuple[int, int],
    id_: int,
    ties: list[int],
    told: set[int],
    news: set[int],
) -> str:
    """Makes a measurement the best of its place where it deserves that; returns the field of
    `Merged` to count.

    Args:
        told: Measurements that the other store has.
        news: Those of them that this one did not have.
    """
    best = schema.Best
    here = dict(zip(("problem_id", "device_id"), place, strict=True))
    known = connection.execute(
        select(best.id, best.measurement_id).where(
            *(best.__table__.c[k] == v for k, v in here.items())
        )
    ).one_or_none()
    if known is not None and known.measurement_id == id_:
        return "bests_equal"
    challenger = _confirmed(connection, id_)
    if challenger is None:
        return "bests_refused"
    if known is not None:
        incumbent = _confirmed(connection, known.measurement_id)
        if incumbent is not None:
            # A store that has the other's best and another one has decided between the two: a
            # later confirm round beside it, most often, of the same config on a slower GPU.
            ours, theirs = id_ not in news, known.measurement_id in told
            by_decision = (theirs, ours) if ours != theirs else (False, False)
            if _order(incumbent, by_decision[0]) <= _order(challenger, by_decision[1]):
                return "bests_worse"
    values = {
        "variant_id": challenger.variant_id,
        "measurement_id": id_,
        "origin": Origin.imported,
        "updated_at": rows.now(),
    }
    if known is None:
        best_id = rows.add(connection, best, {**here, **values})
    else:
        best_id = int(known.id)
        connection.execute(sa.update(best).where(best.id == best_id).values(values))
        connection.execute(sa.delete(schema.Tie).where(schema.Tie.best_id == best_id))
    for tie in ties:
        rows.add(connection, schema.Tie, {"best_id": best_id, "measurement_id": tie})
    return "bests_added" if known is None else "bests_better"


def _confirmed(connection: Connection, measurement_id: int) -> Any:
    confirmed = views.confirmed
    return connection.execute(
        select(confirmed, schema.Problem.kernel, schema.Measurement.measured_at)
        .join(schema.Problem, confirmed.c.problem_id == schema.Problem.id)
        .join(schema.Measurement, confirmed.c.measurement_id == schema.Measurement.id)
        .where(confirmed.c.measurement_id == measurement_id)
    ).one_or_none()


def _order(row: Any, is_beaten: bool) -> tuple[Any, ...]:
    """Smaller is better, whichever store it comes from.

    Args:
        is_beaten: The store of the other row has this one, and had it beaten.
    """
    try:
        is_stale = row.template_sha256 != templates.sha256(row.kernel)
    except AutotuneError:
        is_stale = True
    return is_stale, is_beaten, row.median_ns, row.measured_at, row.config_sha256
