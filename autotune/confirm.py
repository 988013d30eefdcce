"""Who wins a confirm round: the only writer of `best`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, func, select

from autotune import rows, views
from autotune.errors import NotFoundError
from autotune.schema import Best, Measurement, Origin, Run, Tie, Variant
from autotune.types import Config, Stage

TIE = 0.01
"""Confirmed times that are no more than this fraction above the fastest tie with it."""

_log = logging.getLogger("autotune")


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """What a confirm round decided.

    Attributes:
        kept: The incumbent stays.
        ties: The other configs whose time cannot be told from the fastest.
        refused: Measurements that may not be best: not of the confirm round, not ok, cut short,
            or faster than the device can be.
    """

    best_id: int
    measurement_id: int
    config: Config
    median_ns: float
    kept: bool
    ties: tuple[Config, ...]
    refused: tuple[int, ...]


def confirm(
    connection: Connection, run_id: int, measurement_ids: Sequence[int]
) -> Confirmation | None:
    """See `autotune.store.Store.confirm`; `connection` is in a write transaction."""
    run = connection.execute(
        select(Run.problem_id, Run.device_id).where(Run.id == run_id)
    ).one_or_none()
    if run is None:
        raise NotFoundError(f"the results store has no run {run_id}")
    confirmed = views.confirmed
    found = connection.execute(
        select(confirmed, Variant.config_json)
        .join(Variant, confirmed.c.variant_id == Variant.id)
        .where(confirmed.c.run_id == run_id, confirmed.c.measurement_id.in_(measurement_ids))
        .order_by(confirmed.c.measurement_id)
    ).all()
    known = {row.measurement_id for row in found}
    refused = tuple(id_ for id_ in measurement_ids if id_ not in known)
    if refused:
        _log.warning("measurements %s of run %d cannot be best", list(refused), run_id)
    candidates: dict[str, sa.Row[Any]] = {row.config_sha256: row for row in found}
    if not candidates:
        return None

    fastest = min(candidates.values(), key=lambda row: (row.median_ns, row.measurement_id))
    incumbent = _incumbent(connection, run.problem_id, run.device_id)
    if incumbent is not None:
        if incumbent.config_sha256 in candidates:
            incumbent = candidates[incumbent.config_sha256]
        elif incumbent.template_sha256 != fastest.template_sha256 or _was_tried(
            connection, run_id, incumbent.config_sha256
        ):
            incumbent = None
    kept = incumbent is not None and incumbent.median_ns <= fastest.median_ns * (1 + TIE)
    winner = incumbent if incumbent is not None and kept else fastest

    bound = min(fastest.median_ns, winner.median_ns) * (1 + TIE)
    tied = [
        row
        for row in candidates.values()
        if row.median_ns <= bound and row.config_sha256 != winner.config_sha256
    ]
    best_id = _set_best(connection, run.problem_id, run.device_id, winner)
    connection.execute(sa.delete(Tie).where(Tie.best_id == best_id))
    for row in tied:
        rows.add(connection, Tie, {"best_id": best_id, "measurement_id": row.measurement_id})
    return Confirmation(
        best_id=best_id,
        measurement_id=winner.measurement_id,
        config=Config.from_json(winner.config_json),
        median_ns=winner.median_ns,
        kept=kept,
        ties=tuple(Config.from_json(row.config_json) for row in tied),
        refused=refused,
    )


def _incumbent(connection: Connection, problem_id: int, device_id: int) -> Any:
    statement = (
        select(
            Best.measurement_id,
            Best.variant_id,
            Measurement.median_ns,
            Variant.config_json,
            Variant.config_sha256,
            Variant.template_sha256,
        )
        .join(Measurement, Best.measurement_id == Measurement.id)
        .join(Variant, Best.variant_id == Variant.id)
        .where(Best.problem_id == problem_id, Best.device_id == device_id)
    )
    found: Any = connection.execute(statement).one_or_none()
    return found


def _was_tried(connection: Connection, run_id: int, config_sha256: str) -> bool:
    """Whether the confirm round of a run tried a config, whatever came of it."""
    statement = (
        select(func.count())
        .select_from(Measurement)
        .join(Variant, Measurement.variant_id == Variant.id)
        .where(
            Measurement.run_id == run_id,
            Measurement.stage == Stage.confirm,
            Variant.config_sha256 == config_sha256,
        )
    )
    return bool(connection.scalar(statement))


def _set_best(connection: Connection, problem_id: int, device_id: int, winner: sa.Row[Any]) -> int:
    key = {"problem_id": problem_id, "device_id": device_id}
    values = {
        "variant_id": winner.variant_id,
        "measurement_id": winner.measurement_id,
        "origin": Origin.local,
        "updated_at": rows.now(),
    }
    upsert = rows.insert(connection, Best, {**key, **values})
    connection.execute(upsert.on_conflict_do_update(index_elements=list(key), set_=values))
    return rows.get_or_add(connection, Best, key)
