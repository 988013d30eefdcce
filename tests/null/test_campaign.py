"""One time for many problems: who gets the slices, and what they tell one another."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from fake_door import DEVICE, FakeDoor
from fake_search import LABEL, PROBLEM, FakePool, binary
from store_helpers import cube, timed

from autotune import api, space, templates
from autotune.errors import UsageError
from autotune.problems.sgemm import Sgemm
from autotune.search import (
    EFFORTS,
    Budget,
    Finished,
    Outlook,
    Report,
    Started,
    Tried,
    campaign,
    search,
)
from autotune.search.campaign import Campaign, least_ns
from autotune.search.setting import Setting
from autotune.search.starts import Start, distance, first_points, near
from autotune.store import Store, VariantRow
from autotune.types import Config, Evidence, Problem


@dataclass
class Clock:
    now: float = 0.0

    def monotonic(self) -> float:
        return self.now


@dataclass
class StandIn:
    """A session whose every slice makes its kernel so much faster."""

    problem: Problem
    clock: Clock
    gains: list[float]
    stored: int = 0
    best_ns: float | None = None
    slices: list[float] = field(default_factory=list)
    ended: str = ""
    is_prepared: bool = False

    setting = SimpleNamespace(device=DEVICE)

    def prepare(self) -> None:
        self.is_prepared = True

    def stored_trials(self) -> int:
        return self.stored

    def finals_s(self, time_ns: float) -> float:
        assert time_ns > 0
        return 2.0

    def advance(self, seconds: float, *, grace_s: float) -> str | None:
        assert 0 < seconds <= grace_s
        self.clock.now += seconds
        self.slices.append(seconds)
        if self.best_ns is None:
            self.best_ns = 4 * least_ns(self.problem, DEVICE)
        gain = self.gains.pop(0) if self.gains else 0.0
        self.best_ns *= 1 - gain
        return "finished" if self.ended == "early" else None

    def conclude(self, status: str) -> Report:
        self.clock.now += 2.0
        self.ended = status
        return self.report("finished")

    def failed(self, message: str) -> Report:
        return replace(self.report("failed"), message=message)

    def not_reached(self, message: str) -> Report:
        return replace(self.report("not reached"), message=message)

    def report(self, status: str) -> Report:
        return Report(
            problem=self.problem, device=DEVICE, evidence=Evidence.measured,
            status=status, best_ns=self.best_ns,  # type: ignore[arg-type]
        )  # fmt: skip


def guard(session: object, step: Callable[[], Report | None]) -> Report | None:
    return step()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(campaign, "time", made)
    return made


def spend(sessions: list[StandIn], total_s: float) -> list[Report]:
    return Campaign(sessions, total_s, guard).run()  # type: ignore[arg-type]


def test_later_slices_go_where_the_last_ones_gained(clock: Clock) -> None:
    still = StandIn(cube(512), clock, gains=[])
    rising = StandIn(cube(1024), clock, gains=[0.0, 0.3, 0.25, 0.2])
    reports = spend([still, rising], 100.0)
    assert [report.status for report in reports] == ["finished", "finished"]
    assert clock.now <= 100.0, "the finals are in it"
    # First slices: half of what the finals leave, in equal parts.
    assert still.slices[0] == rising.slices[0] == pytest.approx(24.0)
    assert len(rising.slices) > len(still.slices)


def test_points_are_counted_while_the_one_before_is_searched(clock: Clock) -> None:
    sessions = [StandIn(cube(64 * (i + 1)), clock, []) for i in range(3)]
    spend(sessions, 60.0)
    assert [each.is_prepared for each in sessions] == [False, True, True], (
        "the first does it itself"
    )


def test_a_problem_at_the_roofline_gets_no_further_slice(clock: Clock) -> None:
    done = StandIn(cube(512), clock, gains=[0.75])
    open_ = StandIn(cube(1024), clock, gains=[])
    spend([done, open_], 100.0)
    assert done.best_ns == pytest.approx(least_ns(done.problem, DEVICE))
    assert len(done.slices) == 1 and len(open_.slices) > 1


def test_fruitless_slices_take_turns(clock: Clock) -> None:
    one, two = (StandIn(cube(size), clock, gains=[]) for size in (512, 1024))
    spend([one, two], 400.0)
    assert abs(len(one.slices) - len(two.slices)) <= 1
    assert len(one.slices) > 1


def test_a_search_that_is_over_gets_no_further_slice(clock: Clock) -> None:
    over = StandIn(cube(512), clock, gains=[], ended="early")
    other = StandIn(cube(1024), clock, gains=[])
    spend([over, other], 100.0)
    assert len(over.slices) == 1 and over.ended == "finished"
    assert other.ended == "truncated"


def test_the_least_searched_are_served_when_time_is_short(clock: Clock) -> None:
    sessions = [
        StandIn(cube(512), clock, gains=[], stored=50),
        StandIn(cube(1024), clock, gains=[], stored=0),
        StandIn(cube(2048), clock, gains=[], stored=10),
    ]
    reports = spend(sessions, 13.0)
    assert [report.status for report in reports] == ["not reached", "finished", "finished"]
    assert "less than the 6 s that it needs" in reports[0].message
    assert not sessions[0].slices and clock.now <= 13.0


def test_expected_gain_needs_a_device_with_clocks(clock: Clock) -> None:
    assert least_ns(cube(512), replace(DEVICE, sm_clock_khz=0)) == 0.0


# *** on real sessions ***

OTHER = replace(PROBLEM, align_c=4)
"""Another problem that the same fake kernels solve."""


def test_a_time_for_all_is_kept_and_every_problem_confirmed(pool: FakePool, tmp_path: Path) -> None:
    events: list[object] = []
    started = time.monotonic()
    reports = search(
        [PROBLEM, OTHER], arch=75, total_seconds=24, store=tmp_path / "r.db", door=FakeDoor,
        listener=events.append,
    )  # fmt: skip
    assert time.monotonic() - started < 34
    assert [report.status for report in reports] == ["truncated", "truncated"]
    assert all(report.best is not None for report in reports)
    budgets = [str(event.budget) for event in events if isinstance(event, Started)]
    assert budgets == ["24 s for all problems"] * 2
    # Slices go on where the last one stopped: nothing is tried twice, and each has one run.
    for problem in (PROBLEM, OTHER):
        configs = [e.config for e in events if isinstance(e, Tried) and e.problem == problem]
        assert len(set(configs)) == len(configs)
    with Store.open(tmp_path / "r.db", read_only=True) as store:
        runs = store.runs(sort="id")
    assert [(run["status"], run["budget"]) for run in runs] == [
        ("truncated", "24 s for all problems")
    ] * 2
    # The second problem begins with what the first has found minutes ago.
    assert runs[1]["starts"].startswith("batch ") and "batch" not in runs[0]["starts"]
    assert sum(isinstance(event, Finished) for event in events) == 2


def test_two_limits_of_time_are_refused() -> None:
    with pytest.raises(UsageError, match="give only one of the two"):
        search([PROBLEM], arch=75, budget=Budget(seconds=1), total_seconds=1)
    with pytest.raises(UsageError, match="a budget of 0 total seconds does nothing"):
        Budget(total_seconds=0)


def test_an_interrupt_marks_every_open_run(pool: FakePool, tmp_path: Path) -> None:
    seen: set[Problem] = set()

    def impatient(event: object) -> None:
        if isinstance(event, Tried):
            seen.add(event.problem)
            if len(seen) == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search([PROBLEM, OTHER], arch=75, total_seconds=40, store=tmp_path / "r.db",
               door=FakeDoor, listener=impatient)  # fmt: skip
    with Store.open(tmp_path / "r.db", read_only=True) as store:
        assert [run["status"] for run in store.runs()] == ["interrupted"] * 2


# *** starts ***


def confirmed(store: Store, problem: Problem, config: Config, **device: object) -> None:
    on = replace(DEVICE, **device)  # type: ignore[arg-type]
    run = store.begin_run(problem, on, compiler=LABEL)
    variant = VariantRow(
        config=config, arch=on.arch, template_sha256=templates.sha256("sgemm"), compiler=LABEL,
        cubin_sha256=config.sha256,
    )  # fmt: skip
    assert store.confirm(run, [store.record(run, variant, timed(1e9))]) is not None
    store.end_run(run, "finished")


def test_starts_come_from_near_shapes_and_other_devices(pool: FakePool, tmp_path: Path) -> None:
    region = space.load().without_opt_in().region(PROBLEM, 75)
    here, far, sibling, foreign = region.sample(4, np.random.default_rng(0))
    place = tmp_path / "r.db"
    with Store.open(place) as store:
        confirmed(store, Sgemm.parse("32x32x32"), here)
        confirmed(store, cube(4096), far)
        confirmed(store, Sgemm.parse("32x32x64"), sibling, sm_count=7)
        confirmed(store, PROBLEM, foreign, arch=80, name="A100")
    events: list[object] = []
    search([PROBLEM], arch=75, budget=Budget(trials=6), store=place, door=FakeDoor,
           listener=events.append)  # fmt: skip
    tried = [event.config for event in events if isinstance(event, Tried)]
    known = [config for config in tried if config in (here, far, sibling, foreign)]
    assert known == [here, sibling, foreign], "the nearest first, far ones not at all"
    with Store.open(place, read_only=True) as store:
        (run, *_) = store.runs(sort="-id")
    assert "near_shape 2, foreign_arch 1, preset " in run["starts"]


def test_what_is_known_of_a_problem_goes_before_what_a_batch_found() -> None:
    family = space.load().without_opt_in()
    known, preset, *found = family.region(PROBLEM, 75).sample(14, np.random.default_rng(0))
    starts = [Start(known, "exact"), Start(preset, "preset")]
    setting = SimpleNamespace(seeded=True, space=family, arch=75)

    def first() -> list[Config]:
        leaders = {Sgemm.parse("32x32x32"): found}
        return first_points(starts, PROBLEM, cast(Setting, setting), leaders)

    assert first() == [known, *found[:8], preset], "a slice would end before all leaders were tried"
    setting.seeded = False
    assert first() == [known, preset]


def test_a_problem_of_a_batch_begins_with_its_own_best(pool: FakePool, tmp_path: Path) -> None:
    other = Sgemm.parse("32x32x64")
    (own,) = space.load().without_opt_in().region(other, 75).sample(1, np.random.default_rng(0))
    place = tmp_path / "r.db"
    with Store.open(place) as store:
        confirmed(store, other, own, sm_count=7)
    # The later, the faster: what the first search begins with does not lead it.
    pool.make = lambda problem, source: binary(problem, 1e5 - 1e3 * len(pool.sources))
    events: list[object] = []
    search([PROBLEM, other], arch=75, budget=Budget(trials=6), store=place, door=FakeDoor,
           listener=events.append)  # fmt: skip
    tried = [event for event in events if isinstance(event, Tried)]
    assert len([event for event in tried if event.problem == PROBLEM]) == 6
    assert next(event.config for event in tried if event.problem == other) == own


def test_distances() -> None:
    def away(one: Problem, other: Problem) -> float:
        return distance(one.shape, one.key, other.shape, other.key)

    assert away(cube(512), cube(512)) == 0
    assert away(cube(512), Sgemm.parse("1024x512x512")) == pytest.approx(1.0)
    assert away(cube(512), cube(512, layout="tn")) == 2.0
    assert distance("8x8", "a/8x8", "8x8x8", "b/8x8x8") == float("inf")
    leaders = {
        cube(256): [Config({"a": 1})], cube(512): [Config({"a": 2})], cube(8): [Config({"a": 3})],
        cube(1024): [Config({"a": 4})],
    }  # fmt: skip
    assert [config["a"] for config in near(cube(512), leaders)] == [4, 1], "each an octave away"


def test_efforts_say_how_long_their_finals_are() -> None:
    from autotune.search import finals

    quick, thorough = (finals.seconds(2.7e6, EFFORTS[name]) for name in ("quick", "thorough"))
    assert 1 < quick < thorough < 10
    assert finals.seconds(4e7, EFFORTS["normal"]) < 20, "long kernels take one sample a round"


FAR = Sgemm.parse("100000x3x40000")
"""So unlike the rest that neither a search nor the shipped seed knows anything near it."""


def test_a_plan_says_what_is_known_and_changes_nothing(
    pool: FakePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "r.db"
    later = Sgemm.parse("32x32x64")
    search([PROBLEM], arch=75, budget=Budget(trials=5), store=place, door=FakeDoor)
    before = place.read_bytes()

    def outlooks(**more: object) -> list[Outlook]:
        return api.plan([PROBLEM, later, FAR], arch=75, store=place, **more)  # type: ignore[arg-type]

    tuned, near_one, missing = outlooks(trials=20)
    assert [each.state for each in (tuned, near_one, missing)] == ["tuned", "near", "missing"]
    assert (tuned.trials, tuned.wanted, near_one.trials) == (5, 20, 0)
    assert near_one.distance == pytest.approx(1.0, abs=0.1), "a fourfold k, which counts half"
    assert 0 < tuned.seconds < near_one.seconds, "a quarter of its trials is there"
    assert all(each.seconds <= 0.5 for each in outlooks(trials=20, seconds=0.5))
    assert outlooks(total_seconds=60)[0].wanted is None
    monkeypatch.setattr(templates, "sha256", lambda kernel: "t" * 64)
    assert outlooks()[0].state == "stale" and outlooks()[0].trials == 0
    assert place.read_bytes() == before
