"""The search loop on a fake GPU: real store, space, templates, strategy and worker process."""

from __future__ import annotations

import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest
from fake_door import DEVICE, PROBE, FakeDoor, Spec

from autotune import space, templates
from autotune.compile import Compiler
from autotune.errors import DeviceError, UsageError
from autotune.measure import Worker
from autotune.problems.sgemm import Sgemm
from autotune.search import Budget, Confirmed, Report, Started, Tried, batch, search
from autotune.store import Store
from autotune.types import Binary, Config, Evidence, Failure, Outcome, Problem

PROBLEM = Sgemm.parse("32x32x16")
COMPILER = Compiler("nvrtc", (13, 5), "13.5.37", frozenset([75]))
LABEL = COMPILER.label


def binary(problem: Problem, ns: float, fault: str = "") -> Binary:
    spec = Spec(problem=problem, ns=ns, fault=fault, threads_per_block=1024)
    return Binary(
        arch=75, compiler=LABEL, cubin=spec.cubin, registers=32, static_shared_bytes=0,
        spill_bytes=0, stack_bytes=0, log="", compile_seconds=0.0,
    )  # fmt: skip


def by_hash(problem: Problem, source: str) -> Binary | Failure:
    """Every source its own time, 20 to 40 us."""
    digest = int(hashlib.sha256(source.encode()).hexdigest(), 16)
    return binary(problem, 20_000 + digest % 20_000)


@dataclass
class FakePool:
    """Compiles at once, by a function of the source."""

    make: Callable[[Problem, str], Binary | Failure] = by_hash
    problem: Problem = PROBLEM
    sources: list[str] = field(default_factory=list)

    def submit(self, source: str, arch: int, *, timeout_s: float) -> Future[Binary | Failure]:
        self.sources.append(source)
        future: Future[Binary | Failure] = Future()
        future.set_result(self.make(self.problem, source))
        return future

    def __enter__(self) -> FakePool:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakePool:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    fake = FakePool()
    install(fake, monkeypatch.setattr)
    return fake


def install(pool: FakePool, put: Callable[[object, str, object], None]) -> None:
    put(batch, "Pool", lambda compiler, jobs: pool)
    put(batch, "Worker", partial(Worker, probe_cubin=PROBE))
    put(batch, "target", lambda arch, name, door: (DEVICE, ""))
    put(batch.compile, "find", lambda name=None: COMPILER)
    put(batch.gpu, "choose", lambda door=None: FakeDoor())


def run(place: Path, trials: int = 30, **more: object) -> tuple[Report, list[object]]:
    events: list[object] = []
    more.setdefault("listener", events.append)
    (report,) = search(
        [PROBLEM],
        arch=75,
        budget=Budget(trials=trials),
        store=place,
        door=FakeDoor,
        **more,  # type: ignore[arg-type]
    )
    return report, events


def rows(place: Path, **filters: object) -> list[dict[str, object]]:
    with Store.open(place, read_only=True) as store:
        return store.results(**filters)


def tried(events: list[object]) -> list[Config]:
    return [event.config for event in events if isinstance(event, Tried)]


def test_a_search_from_first_trial_to_confirmed_best(pool: FakePool, tmp_path: Path) -> None:
    place = tmp_path / "r.db"
    report, events = run(place)
    assert (report.status, report.evidence) == ("finished", Evidence.measured)
    assert report.counts == {Outcome.ok: 30}
    assert len(set(tried(events))) == 30

    searched = rows(place, stage="search")
    assert len(searched) == 30
    assert all("exact" in str(row["checks"]) and "after timing" in str(row["checks"])
               for row in searched)  # fmt: skip
    # The best is the fastest of the confirm round, and only that names it.
    confirmed = rows(place, stage="confirm", outcome="ok")
    fastest = min(confirmed, key=lambda row: float(str(row["median_ns"])))
    assert report.best is not None and report.best.json == fastest["config_json"]
    assert report.best_ns == fastest["median_ns"]
    (finals,) = [event for event in events if isinstance(event, Confirmed)]
    assert {row.role for row in finals.rows} >= {"default", "finalist"}
    with Store.open(place, read_only=True) as store:
        (best,) = store.bests()
    assert best["config_json"] == report.best.json


def test_the_same_search_again_tries_nothing_and_a_longer_one_goes_on(
    pool: FakePool, tmp_path: Path
) -> None:
    place = tmp_path / "r.db"
    first, events = run(place, 12)
    again, silence = run(place, 12)
    assert tried(silence) == [] and again.best == first.best
    (started,) = [event for event in silence if isinstance(event, Started)]
    assert started.resumed_trials == 12
    longer, more = run(place, 20)
    assert len(tried(more)) == 8
    assert not set(tried(more)) & set(tried(events))
    assert sum(longer.counts.values()) == 20


def test_another_seed_tries_other_points(pool: FakePool, tmp_path: Path) -> None:
    _, one = run(tmp_path / "1.db", 25, seed=1)
    _, same = run(tmp_path / "2.db", 25, seed=1)
    _, other = run(tmp_path / "3.db", 25, seed=2)
    assert tried(one) == tried(same) != tried(other)


def test_a_fast_wrong_kernel_is_recorded_and_never_best(pool: FakePool, tmp_path: Path) -> None:
    def half(problem: Problem, source: str) -> Binary | Failure:
        if "THREAD_M = 4," in source:
            return binary(problem, 1_000, "half k")
        return by_hash(problem, source)

    pool.make = half
    place = tmp_path / "r.db"
    report, events = run(place)
    wrong = [c for c in tried(events) if c["thread_m"] == 4]
    assert wrong and report.counts[Outcome.wrong_result] == len(wrong)
    assert report.best is not None and report.best["thread_m"] != 4
    with Store.open(place, read_only=True) as store:
        assert len(store.failures(outcome="wrong_result", stage="search")) == len(wrong)


def test_every_kind_of_failure_is_a_row_and_the_search_goes_on(
    pool: FakePool, tmp_path: Path
) -> None:
    faults = ["illegal", "exit", "killed", "launch", "load", "racy", "reads c", "compile", "", ""]
    made = Counter()

    def faulty(problem: Problem, source: str) -> Binary | Failure:
        digest = int(hashlib.sha256(source.encode()).hexdigest(), 16)
        fault = faults[digest % len(faults)]
        made[fault] += 1
        if fault == "compile":
            return Failure(outcome=Outcome.compile_error, message="error: planted")
        return binary(problem, 20_000 + digest % 20_000, fault)

    pool.make = faulty
    report, _ = run(tmp_path / "r.db", 60)
    assert report.status == "finished" and sum(report.counts.values()) == 60
    assert report.counts[Outcome.compile_error] and report.messages[Outcome.compile_error]
    assert report.counts[Outcome.crash] and report.counts[Outcome.launch_error]
    assert report.counts[Outcome.wrong_result] and report.counts[Outcome.ok]
    stored = Counter(
        Outcome(str(row["outcome"])) for row in rows(tmp_path / "r.db", stage="search")
    )
    assert stored == report.counts


def test_nearly_only_wrong_results_throw_suspicion_on_the_reference(
    pool: FakePool, tmp_path: Path
) -> None:
    pool.make = lambda problem, source: binary(problem, 30_000, "half rows")
    report, _ = run(tmp_path / "r.db", 10)
    assert report.status == "failed" and report.best is None
    assert report.counts == {Outcome.wrong_result: 10}
    assert any("suspect the device or the reference" in note for note in report.notes)


def test_an_identical_binary_is_measured_once(pool: FakePool, tmp_path: Path) -> None:
    same = binary(PROBLEM, 30_000)
    pool.make = lambda problem, source: same
    _, events = run(tmp_path / "r.db", 40)
    kernels = space.load("sgemm")
    seen = set()
    for event in events:
        if isinstance(event, Tried):
            plan = kernels.plan(event.config, PROBLEM, 75)
            assert (event.measurement.message == "same binary as an earlier trial") == (
                plan in seen
            )
            seen.add(plan)
    assert len(seen) < 40


def test_what_never_compiles_is_not_tried_for_another_shape(pool: FakePool, tmp_path: Path) -> None:
    def never(problem: Problem, source: str) -> Binary | Failure:
        if "STAGES = 1" in source:
            return Failure(outcome=Outcome.compile_error, message="error: planted")
        return by_hash(problem, source)

    pool.make = never
    place = tmp_path / "r.db"
    _, events = run(place, 40)
    failed = {
        event.config
        for event in events
        if isinstance(event, Tried) and event.measurement.outcome is Outcome.compile_error
    }
    assert failed
    pool.problem = Sgemm.parse("32x32x32")
    later: list[object] = []
    search([pool.problem], arch=75, budget=Budget(trials=40), store=place, door=FakeDoor,
           listener=later.append)  # fmt: skip
    assert not failed & set(tried(later))


def test_a_compiler_that_died_bars_nothing(pool: FakePool, tmp_path: Path) -> None:
    died = Failure(outcome=Outcome.crash, message="the compiler was twice killed by SIGKILL")
    pool.make = lambda problem, source: died if "STAGES = 1" in source else by_hash(problem, source)
    report, _ = run(tmp_path / "r.db", 40)
    assert report.counts[Outcome.crash]
    with Store.open(tmp_path / "r.db") as store:
        assert store.static_failures("sgemm", 75, templates.sha256("sgemm"), LABEL) == {}


def test_time_ends_a_search_and_leaves_it_marked(pool: FakePool, tmp_path: Path) -> None:
    place = tmp_path / "r.db"
    started = time.monotonic()
    (report,) = search([PROBLEM], arch=75, budget=Budget(seconds=4), store=place, door=FakeDoor)
    assert time.monotonic() - started < 10
    assert report.status == "truncated" and report.best is not None


@pytest.mark.parametrize("present", [True, False])
def test_compilers_that_hang_do_not_stretch_a_time_budget(
    pool: FakePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, present: bool
) -> None:
    monkeypatch.setattr(pool, "submit", lambda source, arch, timeout_s: Future())
    if not present:
        absent = replace(DEVICE, index=-1)
        monkeypatch.setattr(batch, "target", lambda arch, name, door: (absent, "no driver"))
    started = time.monotonic()
    (report,) = search(
        [PROBLEM], arch=75, budget=Budget(seconds=2), store=tmp_path / "r.db", door=FakeDoor
    )
    assert time.monotonic() - started < 12
    assert (report.status, report.message) == ("failed", "none of 0 configs gave a usable kernel")


def test_patience_ends_a_search(pool: FakePool, tmp_path: Path) -> None:
    pool.make = lambda problem, source: binary(problem, 30_000)
    (report,) = search([PROBLEM], arch=75, budget=Budget(patience=5), store=tmp_path / "r.db",
                       door=FakeDoor)  # fmt: skip
    # What was on the device meanwhile is kept as well.
    assert report.status == "truncated" and 6 <= sum(report.counts.values()) < 20


def test_an_interrupt_keeps_everything_and_the_same_call_goes_on(
    pool: FakePool, tmp_path: Path
) -> None:
    place = tmp_path / "r.db"
    seen: list[object] = []

    def impatient(event: object) -> None:
        seen.append(event)
        if len(tried(seen)) == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(place, listener=impatient)
    assert len(rows(place, stage="search")) == 7
    with Store.open(place, read_only=True) as store:
        assert store.bests() == []
    _, events = run(place, 20)
    assert len(tried(events)) == 13 and not set(tried(events)) & set(tried(seen))


_CHILD = """
    import sys, pathlib
    sys.path[:0] = {paths!r}
    import test_search as t
    t.install(t.FakePool(), setattr)
    from autotune.search import search, Budget, Tried
    def say(event):
        if isinstance(event, Tried):
            print(event.number, flush=True)
    search([t.PROBLEM], arch=75, budget=Budget(trials=200), store=sys.argv[1],
           door=t.FakeDoor, listener=say)
"""


def test_kill_9_loses_only_the_trial_in_flight(pool: FakePool, tmp_path: Path) -> None:
    place = tmp_path / "r.db"
    code = textwrap.dedent(_CHILD).format(paths=[str(Path(__file__).parent)])
    with subprocess.Popen(
        [sys.executable, "-c", code, str(place)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) >= 15:
                os.kill(child.pid, signal.SIGKILL)
                break
        said = [int(line), *(int(rest) for rest in child.stdout)]
    kept = rows(place, stage="search")
    assert len(kept) in (max(said), max(said) + 1)
    known = {str(row["config_json"]) for row in kept}
    report, events = run(place, len(kept) + 5)
    fresh = tried(events)
    assert len(fresh) == 5 and not known & {config.json for config in fresh}
    assert report.status == "finished"
    # The killed run is recognised as such.
    with sqlite3.connect(place) as database:
        statuses = database.execute("SELECT status FROM run ORDER BY id").fetchall()
    assert statuses == [("interrupted",), ("finished",)]


def test_a_shape_that_cannot_work_does_not_cost_the_others(pool: FakePool, tmp_path: Path) -> None:
    huge = Sgemm.parse("100000x100000x100000")
    reports = search([huge, PROBLEM], arch=75, budget=Budget(trials=5), store=tmp_path / "r.db",
                     door=FakeDoor)  # fmt: skip
    assert [report.status for report in reports] == ["failed", "finished"]
    assert "GB" in reports[0].message and "Tesla T4 has" in reports[0].message


def test_the_incumbent_enters_the_next_confirm_round(pool: FakePool, tmp_path: Path) -> None:
    place = tmp_path / "r.db"
    first, _ = run(place, 10)
    pool.make = lambda problem, source: by_hash(problem, source + "x")
    _, events = run(place, 12)
    (finals,) = [event for event in events if isinstance(event, Confirmed)]
    assert [row.config for row in finals.rows if row.role == "incumbent"] == [first.best]


def test_a_search_serves_one_family_and_something(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to search"):
        search([], arch=75, store=tmp_path / "r.db")
    with pytest.raises(UsageError, match="'sometimes' is not an effort; possible are quick"):
        search([PROBLEM], arch=75, effort_name="sometimes", store=tmp_path / "r.db")
    for nonsense in ({"trials": 0}, {"trials": -3}, {"seconds": 0.0}, {"patience": 0}):
        with pytest.raises(UsageError, match="above 0"):
            Budget(**nonsense)  # type: ignore[arg-type]


def test_without_a_gpu_the_own_architecture_is_an_error(tmp_path: Path) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a GPU")
    with pytest.raises(DeviceError):
        search([PROBLEM], store=tmp_path / "r.db")
    assert not (tmp_path / "r.db").exists()


def test_rows_carry_the_template_that_made_them(pool: FakePool, tmp_path: Path) -> None:
    place = tmp_path / "r.db"
    run(place, 3)
    assert {row["template_sha256"] for row in rows(place)} == {templates.sha256("sgemm")}
