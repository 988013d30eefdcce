"""Stored bests, measured again in a fresh process: whether the claimed times hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune import compile, device, gpu, problems, render, space, staleness
from autotune.compile import Pool
from autotune.errors import DeviceError, InfeasibleError, NotFoundError
from autotune.measure import Job, Worker
from autotune.search import EFFORTS
from autotune.store import Store
from autotune.types import Config, Device, Failure, Measurement, Outcome, Problem, Stage

TOLERANCE = 0.01
"""Share of the claimed time by which the new one may differ, beyond what both intervals allow."""
CLOCK = 0.03
"""Share by which the clock of the SMs may differ before it is named: what is bound by arithmetic
differs as much."""
ROUNDS = EFFORTS["normal"].rounds

Row = dict[str, Any]
Door = str | Callable[[], gpu.Door] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A stored best beside its new measurement.

    Attributes:
        problem: Key.
        claimed_ns, claimed_interval_ns: Median of the confirm round that made it the best, and
            what that lies in; rows of the first schema have no interval.
        measurement: The new one; not ok where the kernel no longer compiles, runs or gives the
            right result.
        changes: What is another now than it was then: `template`, `space`, `compiler`, `driver`,
            `gpu` where the claim is of another device of this model, `clock` where the SMs ran at
            another, as they do when the device is near its limit of power.
        tolerance: See `TOLERANCE`.
        best_id: Row of the best.
    """

    problem: str
    device: str
    config: Config
    claimed_ns: float
    claimed_interval_ns: tuple[float, float]
    measurement: Measurement
    changes: str
    tolerance: float
    best_id: int

    @property
    def percent(self) -> float | None:
        """How much slower than claimed, in percent; below 0 when faster, None without a time."""
        time_ns = self.measurement.median_ns
        return None if time_ns is None else 100 * (time_ns / self.claimed_ns - 1)

    @property
    def holds(self) -> bool:
        """Whether the result is right, and the two intervals are no farther apart than the
        tolerance, to either side."""
        interval = self.measurement.interval_ns
        if not self.measurement.is_ok or interval is None:
            return False
        room_ns = self.tolerance * self.claimed_ns
        low_ns, high_ns = self.claimed_interval_ns
        return interval[0] <= high_ns + room_ns and interval[1] >= low_ns - room_ns


def verify_best(
    wanted: Sequence[Problem] | None = None,
    *,
    arch: int | None = None,
    device_name: str | None = None,
    store: Store | str | Path | None = None,
    tolerance: float = TOLERANCE,
    rounds: int = ROUNDS,
    door: Door = None,
    compiler: str | None = None,
) -> list[Drift]:
    """Verifies and times stored bests of a GPU that is here again, each in a fresh process.

    The store is only read: whatever comes out, its best stays the best until a search finds
    another.

    Args:
        wanted: None for all that have a best on this model of device.
        arch: Architecture of the GPU to take; None for the first.
        device_name: CUDA index or UUID.
        tolerance: Share of the claimed time, 0.01 for 1 %.
        rounds: Of three samples each, as in a confirm round.

    Raises:
        DeviceError: no such GPU.
        NotFoundError: no store, or no best of a problem on this model of device.
        StoreError: the store cannot be read.
        CompilerError: nothing here compiles for the device.
    """
    try:
        target = device.select(arch, device_name)
    except DeviceError as error:
        raise DeviceError(f"a stored time is verified on the GPU that it is for: {error}") from None
    chosen = compile.find(compiler)
    compile.check(chosen, target.arch, target.driver)
    space.device_limits(target.arch, target)
    today = staleness.Today(compiler=chosen.label, driver=target.driver_version)
    opened = store if isinstance(store, Store) else Store.open(store, read_only=True)
    try:
        rows = list(_rows(opened, target, wanted))
    finally:
        if opened is not store:
            opened.close()
    with Pool(chosen, jobs=1) as pool:
        measured = [_again(problem, row, target, pool, door, rounds) for problem, row in rows]
    return [
        Drift(
            problem=problem.key,
            device=target.name,
            config=Config.from_json(str(row["config_json"])),
            claimed_ns=row["median_ns"],
            claimed_interval_ns=(
                row["low_ns"] or row["median_ns"],
                row["high_ns"] or row["median_ns"],
            ),
            measurement=measurement,
            changes=",".join(_changes(row, today, measurement)),
            tolerance=tolerance,
            best_id=row["id"],
        )
        for (problem, row), measurement in zip(rows, measured, strict=True)
    ]


def _changes(row: Row, today: staleness.Today, measurement: Measurement) -> Iterator[str]:
    """What is another now than when a row was measured."""
    if since := today.changes(row):
        yield since
    if row["is_of_another_gpu"]:
        yield "gpu"
    then, now = row["sm_clock_mhz"], measurement.conditions.sm_clock_mhz
    if then and now and abs(now / then - 1) > CLOCK:
        yield "clock"


def _rows(
    store: Store, target: Device, wanted: Sequence[Problem] | None
) -> Iterator[tuple[Problem, Row]]:
    """Problems with the rows of their bests on this model of device.

    Raises:
        NotFoundError: one has none, or none has one.
    """
    if wanted is None:
        keys = [str(row["problem"]) for row in store.bests(arch=target.arch, sort="problem")]
        known = [problems.from_key(key) for key in dict.fromkeys(keys)]
        found = [(problem, store.best(problem, target)) for problem in known]
        wanted = [problem for problem, row in found if row is not None]
        if not wanted:
            raise NotFoundError(f"{store.place} has no best config of a {target.name}")
    for problem in dict.fromkeys(wanted):
        row = store.best(problem, target)
        if row is None:
            raise NotFoundError(
                f"{store.place} has no best config of {problem.key} on a {target.name}; "
                f"find one with: autotune search --shape {problem.shape}"
            )
        (measured,) = store.results(id=row["measurement_id"])
        uuid = store.device_uuid(row["measurement_id"])
        yield (
            problem,
            {
                **row,
                "cold_l2": measured["cold_l2"],
                "sm_clock_mhz": measured["sm_clock_mhz"],
                "is_of_another_gpu": bool(uuid) and uuid != target.uuid,
            },
        )


def _again(
    problem: Problem, row: Row, target: Device, pool: Pool, door: Door, rounds: int
) -> Measurement:
    """The config of a row rendered, compiled, verified and timed as in a confirm round."""
    try:
        config = space.load(problem.kernel).config(Config.from_json(str(row["config_json"])))
        variant = render.render(problem, config, target.arch, sm_count=target.sm_count)
    except InfeasibleError as error:
        return _failed(Outcome.infeasible, str(error))
    result = pool.submit(variant.body, target.arch).result()
    if isinstance(result, Failure):
        return _failed(result.outcome, result.message)
    job = Job(
        problem=problem,
        plan=variant.plan,
        cubin=result.cubin,
        stage=Stage.confirm,
        cold=bool(row["cold_l2"]),
    )
    with Worker(target, door=door) as worker:
        return worker.confirm([job], rounds=rounds)[0]


def _failed(outcome: Outcome, message: str) -> Measurement:
    return Measurement(outcome=outcome, stage=Stage.confirm, message=message)
