"""The search loop on a fake GPU: real store, space, templates, strategy and worker process."""

from __future__ import annotations

import hashlib
import signal
import sqlite3
import sys
import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from fake_door import DEVICE, PROBE, FakeDoor
from fake_search import LABEL, PROBLEM, FakePool, binary, by_hash, rows, run, tried
from threadpoolctl import threadpool_info

from autotune import space, templates
from autotune.errors import CompilerError, DeviceError, UsageError
from autotune.measure import Job, Worker
from autotune.problems.sgemm import Sgemm
from autotune.search import Budget, Confirmed, Started, Tried, batch, search
from autotune.search.patience import Patience
from autotune.search.tally import Pace, Tally
from autotune.store import Store, VariantRow
from autotune.types import (
    Binary,
    Conditions,
    Config,
    Evidence,
    Failure,
    Measurement,
    Outcome,
    Problem,
    Stage,
)


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


def test_points_are_chosen_and_compiled_while_the_device_measures(
    pool: FakePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile: list[int] = []

    class Patient(Worker):
        def measure(self, job: Job) -> Measurement:
            before = len(pool.sources)
            deadline = time.monotonic() + 10
            while len(pool.sources) == before < 15 and time.monotonic() < deadline:
                time.sleep(0.005)
            meanwhile.append(len(pool.sources) - before)
            return super().measure(job)

    monkeypatch.setattr(batch, "Worker", partial(Patient, probe_cubin=PROBE))
    report, _ = run(tmp_path / "r.db", 15, jobs=1)
    assert report.status == "finished"
    assert sum(more > 0 for more in meanwhile) >= 3
    assert report.trials_per_s is not None and report.trials_per_s > 0


def test_ctrl_c_ends_a_hanging_kernel_at_once(pool: FakePool, tmp_path: Path) -> None:
    def hang(problem: Problem, source: str) -> Binary | Failure:
        digest = int(hashlib.sha256(source.encode()).hexdigest(), 16)
        return binary(problem, 20_000 + digest % 20_000, "hang" if len(pool.sources) > 5 else "")

    pool.make = hang
    hit: list[float] = []

    def interrupt(*_: object) -> None:
        hit.append(time.monotonic())
        raise KeyboardInterrupt

    def say(event: object) -> None:
        if isinstance(event, Tried) and event.number == 5:
            signal.setitimer(signal.ITIMER_REAL, 0.5)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "r.db", listener=say)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - hit[0] < 2.5
    with sqlite3.connect(tmp_path / "r.db") as database:
        assert database.execute("SELECT status FROM run").fetchall() == [("interrupted",)]
    assert len(rows(tmp_path / "r.db", stage="search")) == 5


def test_a_trial_that_the_time_cuts_off_is_not_called_bad(pool: FakePool, tmp_path: Path) -> None:
    def hang(problem: Problem, source: str) -> Binary | Failure:
        return binary(problem, 20_000.0, "hang" if len(pool.sources) == 9 else "")

    pool.make = hang
    started = time.monotonic()
    (report,) = search(
        [PROBLEM], arch=75, budget=Budget(seconds=5), store=tmp_path / "r.db", door=FakeDoor
    )
    assert time.monotonic() - started < 12
    assert report.status == "truncated" and set(report.counts) == {Outcome.ok}


def test_trials_of_another_driver_are_kept_and_not_taken_up(
    pool: FakePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "r.db"
    first, events = run(place, 8)
    updated = replace(DEVICE, driver_version="999.1")
    monkeypatch.setattr(batch, "target", lambda arch, name, door: (updated, ""))
    second, later = run(place, 8)
    (started,) = [event for event in later if isinstance(event, Started)]
    assert started.resumed_trials == 0 and len(tried(later)) == 8
    assert len(rows(place, stage="search")) == 16
    assert tried(later)[0] == first.best, "but the best of then is the first to be tried"
    assert second.best is not None and len(set(tried(events))) == 8


def test_configs_that_the_space_no_longer_has_are_left_alone(
    pool: FakePool, tmp_path: Path
) -> None:
    place = tmp_path / "r.db"
    run(place, 6)
    gone = [space.load().presets["small"].but(block_k=7), Config({"forgotten": 1})]
    with Store.open(place) as store:
        id_ = store.begin_run(PROBLEM, DEVICE, compiler=LABEL)
        for number, config in enumerate(gone):
            row = VariantRow(
                config=config, arch=75, template_sha256=templates.sha256("sgemm"), compiler=LABEL,
                cubin_sha256=f"gone{number}",
            )  # fmt: skip
            ok = Measurement(outcome=Outcome.ok, stage=Stage.search, median_ns=19_000.0)
            store.record(id_, row, ok)
        store.end_run(id_, "finished")
    report, events = run(place, 10)
    (started,) = [event for event in events if isinstance(event, Started)]
    assert started.resumed_trials == 6 and len(tried(events)) == 4
    assert report.best not in gone


def test_a_search_without_seeds_begins_with_the_presets_alone(
    pool: FakePool, tmp_path: Path
) -> None:
    place = tmp_path / "r.db"
    presets = space.load().start_configs(PROBLEM, 75)
    _, events = run(place, len(presets), seeded=False)
    assert tried(events) == presets
    _, seeded = run(tmp_path / "s.db", len(presets) + 10)
    assert len(set(tried(seeded)) - set(presets)) == 10
    with Store.open(place) as store:
        (row,) = store.runs()
    assert row["starts"] == f"preset {len(presets)}"
    with Store.open(tmp_path / "s.db") as store:
        (row,) = store.runs()
    assert "preset " in row["starts"] and row["starts"].endswith(", model 16")


def test_a_compile_that_takes_too_long_is_a_row_and_bars_the_config(
    pool: FakePool, tmp_path: Path
) -> None:
    late = Failure(outcome=Outcome.compile_timeout, message="not done within the limit of 5 s")
    pool.make = lambda problem, source: late if "STAGES = 1" in source else by_hash(problem, source)
    place = tmp_path / "r.db"
    report, _ = run(place, 30)
    assert report.counts[Outcome.compile_timeout]
    assert report.messages[Outcome.compile_timeout] == late.message
    with Store.open(place) as store:
        barred = store.static_failures("sgemm", 75, templates.sha256("sgemm"), LABEL)
    assert len(barred) == report.counts[Outcome.compile_timeout]


def test_the_limit_of_a_compile_follows_those_that_were_seen() -> None:
    patience = Patience()
    assert patience.limit_s == 60
    for _ in range(19):
        patience.saw(0.9)
    assert patience.limit_s == 60, "too few to tell"
    patience.saw(30.0)
    assert patience.limit_s == pytest.approx(9.0), "one slow compile in twenty does not count"
    for _ in range(200):
        patience.saw(0.1)
    assert patience.limit_s == 5, "never below what a busy machine needs"
    for _ in range(2000):
        patience.saw(20.0)
    assert patience.limit_s == 60


def test_the_pool_leaves_the_measuring_process_a_core(
    pool: FakePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    class Enough(Exception):
        """Nothing needs to be searched."""

    def make(compiler: object, jobs: int) -> FakePool:
        asked.append(jobs)
        raise Enough

    monkeypatch.setattr(batch, "Pool", make)
    for cpus, variable, jobs in ((16, "", None), (4, "16", None), (1, "", None), (4, "", 7)):
        monkeypatch.setattr(batch.settings, "cpus", lambda cpus=cpus: cpus)
        monkeypatch.setenv("AUTOTUNE_JOBS", variable)
        with pytest.raises(Enough):
            run(tmp_path / "r.db", 1, jobs=jobs)
    assert asked == [15, 3, 1, 7]


def test_choosing_takes_one_core_and_no_compiler_waits_for_it(
    pool: FakePool, tmp_path: Path
) -> None:
    """Threads of BLAS on all cores would get in each other's way, and in that of the compilers."""

    def threads() -> set[int]:
        return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}

    def listen(event: object) -> None:
        if isinstance(event, Tried):
            during.append(threads())

    before, during, interval = threads(), list[set[int]](), sys.getswitchinterval()
    run(tmp_path / "r.db", 12, listener=listen)
    assert before and during == [{1}] * 12
    assert threads() == before
    assert sys.getswitchinterval() == interval


def test_a_fault_of_the_environment_is_no_trial(pool: FakePool, tmp_path: Path) -> None:
    def broken(problem: Problem, source: str) -> Binary | Failure:
        if len(pool.sources) == 4:
            raise CompilerError("no room for temporary files: planted")
        return by_hash(problem, source)

    submit = pool.submit

    def submitted(source: str, arch: int, *, timeout_s: float) -> Future[Binary | Failure]:
        try:
            return submit(source, arch, timeout_s=timeout_s)
        except CompilerError as error:
            future: Future[Binary | Failure] = Future()
            future.set_exception(error)
            return future

    pool.make = broken
    pool.submit = submitted  # type: ignore[method-assign]
    place = tmp_path / "r.db"
    report, _ = run(place, 12)
    assert (report.status, report.message) == ("failed", "no room for temporary files: planted")
    kept = rows(place, stage="search")
    assert all(row["outcome"] == "ok" for row in kept)
    _, events = run(place, 12)
    assert len(tried(events)) == 12 - len(kept), "what it hit is tried again"


def test_clocks_that_moved_are_noted() -> None:
    tally = Tally()
    for clock in (1980, 1985, 1860):
        conditions = Conditions(sm_clock_mhz=clock)
        ok = Measurement(outcome=Outcome.ok, stage=Stage.search, median_ns=1.0)
        tally.add(Config({"n": clock}), replace(ok, conditions=conditions), 1.0)
    (note,) = tally.notes()
    assert note.startswith("the SM clock moved between 1860 and 1985 MHz")


def test_the_busy_share_leaves_out_the_beginning() -> None:
    pace = Pace()
    assert (pace.busy_share, pace.trials_per_s) == (None, None)
    pace.add((100.0, 103.0), [(101.0, 102.0)], 6)
    assert (pace.busy_share, pace.trials_per_s) == (None, 2.0), "3 s: it has not settled yet"
    # Another slice: 2 s more to settle, then 6 s of which 3 are busy.
    pace.add((200.0, 208.0), [(200.0, 203.0), (206.0, 209.0)], 16)
    assert pace.busy_share == pytest.approx(3 / 6)
    assert pace.trials_per_s == pytest.approx(2.0)
