"""Recording, the confirm round, and questions to the store."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from store_helpers import COMPILER, T4, TEMPLATE, config, cube, failed, live, timed, tune, variant

from autotune import archs
from autotune.errors import NotFoundError, StoreError, UsageError
from autotune.problems.sgemm import Sgemm
from autotune.store import Store, VariantRow
from autotune.types import Conditions, Config, Measurement, Outcome, Stage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.db"


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as connection:
        found = connection.execute(sql).fetchall()
    connection.close()
    return found


def test_a_trial_comes_back_as_it_was_recorded(path: Path) -> None:
    measurement = timed(
        4e6,
        Stage.search,
        cold_l2=False,
        truncated=True,
        conditions=Conditions(
            sm_clock_mhz=1590, temperature_c=61, power_w=69.5, throttle_reasons="sw_power_cap"
        ),
        measured_at="2026-11-30T12:00:00.000Z",
    )
    with Store.open(path) as store:
        run = store.begin_run(cube(2048), live(), compiler=COMPILER)
        id_ = store.record(run, variant(3), measurement, predicted_ns=3.5e6)
    with Store.open(path, read_only=True) as store:
        (trial,) = store.trials(cube(2048), live(), TEMPLATE, COMPILER)
    assert trial.id == id_
    assert trial.measurement == measurement
    assert trial.config == config(3)
    assert trial.predicted_ns == 3.5e6
    assert trial.cubin_sha256 == "cubin3"


@pytest.mark.parametrize("value", [0, 1, -3, 2**40, "", "row", "a'b\"c\u00e9"])
def test_every_kind_of_parameter_survives(path: Path, value: int | str) -> None:
    asked = Config({"p": value, "q": 1})
    with Store.open(path) as store:
        run = store.begin_run(cube(64), live(), compiler=COMPILER)
        store.record(run, variant(config=asked), timed(1e6))
        (trial,) = store.trials(cube(64), live(), TEMPLATE, COMPILER)
    assert trial.config == asked
    assert trial.config.sha256 == asked.sha256
    assert type(trial.config["p"]) is type(value)


def test_every_trial_is_committed_when_record_returns(path: Path) -> None:
    with Store.open(path) as store:
        run = store.begin_run(cube(64), live(), compiler=COMPILER)
        for number in range(3):
            store.record(run, variant(number), timed(1e6, Stage.search))
            # Another connection, while the run goes on and nothing was closed.
            assert rows(path, "SELECT count(*) FROM measurement") == [(number + 1,)]
    assert rows(path, "SELECT status, finished_at FROM run") == [("running", None)]


def test_trials_are_those_of_problem_device_template_and_compiler(path: Path) -> None:
    with Store.open(path) as store:
        for problem, device, changes in (
            (cube(64), live(), {}),
            (cube(128), live(), {}),
            (cube(64), live(sm_count=20), {}),
            (cube(64), live(), {"template_sha256": "other"}),
            (cube(64), live(), {"compiler": "nvrtc 12.9"}),
        ):
            run = store.begin_run(problem, device, compiler=COMPILER)
            store.record(run, variant(**changes), timed(1e6))
            store.record(run, VariantRow.vendor("cublas", "13.1", 75), timed(1e6))
        trials = store.trials(cube(64), live(), TEMPLATE, COMPILER)
    assert [trial.id for trial in trials] == [1]


def test_run_keeps_what_was_asked(path: Path) -> None:
    with Store.open(path) as store:
        run = store.begin_run(
            cube(64),
            live(bus_id="0000:3b:00.0"),
            compiler=COMPILER,
            sampler="tpe",
            seed=7,
            budget="120s",
            argv=["autotune", "search", "--shape", "64x64x64", "--note", "a b"],
            git_sha="abc",
        )
        store.end_run(run, "truncated")
        with pytest.raises(NotFoundError, match="no run 99"):
            store.end_run(99, "finished")
        with pytest.raises(ValueError, match="done"):
            store.end_run(run, "done")
    ((status, sampler, seed, budget, argv, uuid, bus),) = rows(
        path, "SELECT status, sampler, seed, budget, argv, device_uuid, device_bus_id FROM run"
    )
    assert (status, sampler, seed, budget) == ("truncated", "tpe", 7, "120s")
    assert argv == "autotune search --shape 64x64x64 --note 'a b'"
    assert (uuid, bus) == ("GPU-1", "0000:3b:00.0")
    ((driver, compiler, version, sha),) = rows(
        path, "SELECT driver, compiler, autotune_version, git_sha FROM environment"
    )
    assert (driver, compiler, sha) == ("580.65", COMPILER, "abc")
    assert version


def test_a_run_whose_process_is_gone_is_recognised_and_a_live_one_left_alone(path: Path) -> None:
    with Store.open(path) as store:
        dead = store.begin_run(cube(64), live(), compiler=COMPILER)
        alive = store.begin_run(cube(64), live(), compiler=COMPILER)
        elsewhere = store.begin_run(cube(64), live(), compiler=COMPILER)
        with sqlite3.connect(path) as connection:
            # The largest process id that Linux can give is 2^22.
            connection.execute(f"UPDATE run SET pid = {2**22 + 1} WHERE id = {dead}")
            connection.execute(
                f"UPDATE run SET pid = {2**22 + 1}, host = 'far' WHERE id = {elsewhere}"
            )
        connection.close()
        store.begin_run(cube(64), live(), compiler=COMPILER)
    found = dict(rows(path, "SELECT id, status FROM run"))  # type: ignore[arg-type]
    assert found[dead] == "interrupted"
    assert found[alive] == "running"
    assert found[elsewhere] == "running"


def test_static_failures_are_what_no_shape_changes(path: Path) -> None:
    unbuilt = {"registers": None, "cubin_sha256": None}
    with Store.open(path) as store:
        run = store.begin_run(cube(64), live(), compiler=COMPILER)
        store.record(run, variant(1, **unbuilt), failed(Outcome.compile_error, "line 3"))
        store.record(run, variant(2, **unbuilt), failed(Outcome.compile_timeout, "60 s"))
        store.record(run, variant(3, spill_bytes=512), failed(Outcome.infeasible, "spills"))
        store.record(run, variant(4, **unbuilt), failed(Outcome.infeasible, "n % 4"))
        store.record(run, variant(5), failed(Outcome.wrong_result))
        store.record(run, variant(6, template_sha256="x"), failed(Outcome.compile_error))
        known = store.static_failures("sgemm", 75, TEMPLATE, COMPILER)
        assert store.static_failures("sgemm", 80, TEMPLATE, COMPILER) == {}
        assert store.static_failures("other", 75, TEMPLATE, COMPILER) == {}
    assert {key["number"]: (f.outcome, f.message) for key, f in known.items()} == {
        1: ("compile_error", "line 3"),
        2: ("compile_timeout", "60 s"),
        3: ("infeasible", "spills"),
    }


def test_a_binary_that_came_later_fills_the_variant(path: Path) -> None:
    with Store.open(path) as store:
        run = store.begin_run(cube(64), live(), compiler=COMPILER)
        unbuilt = variant(registers=None, spill_bytes=None, cubin_sha256=None)
        store.record(run, unbuilt, failed(Outcome.compile_timeout))
        store.record(run, variant(), timed(1e6))
    assert rows(path, "SELECT registers, cubin_sha256 FROM variant") == [(96, "cubin0")]


# *** who is best ***


def confirm(path: Path, times_ns: dict[int, float], **changes: object) -> object:
    with Store.open(path) as store:
        run = store.begin_run(cube(2048), live(), compiler=COMPILER)
        ids = [store.record(run, variant(n, **changes), timed(t)) for n, t in times_ns.items()]
        return store.confirm(run, ids)


def best(path: Path) -> dict[str, object]:
    with Store.open(path, read_only=True) as store:
        row = store.best(cube(2048), live())
    assert row is not None
    return row


def number_of(row: dict[str, object]) -> object:
    return Config.from_json(str(row["config_json"]))["number"]


def test_the_fastest_of_the_first_round_wins_and_ties_are_recorded(path: Path) -> None:
    decided = confirm(path, {1: 4.05e6, 2: 4.00e6, 3: 4.039e6})
    assert (decided.config, decided.kept, decided.median_ns) == (config(2), False, 4.00e6)
    assert decided.ties == (config(3),)
    assert best(path)["ties"] == 1
    assert best(path)["tflops"] == pytest.approx(2 * 2048**3 / 4.00e6 / 1e3)
    assert best(path)["percent_of_peak"] == pytest.approx(
        100 * 2 * 2048**3 / 4.00e-3 / 1e12 / T4.fp32_tflops
    )


def test_equal_times_go_to_the_earlier_row(path: Path) -> None:
    assert confirm(path, {8: 4e6, 2: 4e6}).config == config(8)


def test_an_incumbent_that_ties_stays_with_its_new_time(path: Path) -> None:
    confirm(path, {1: 4.0e6})
    decided = confirm(path, {2: 4.10e6, 1: 4.14e6})
    assert (decided.config, decided.kept, decided.ties) == (config(1), True, (config(2),))
    assert best(path)["median_ns"] == 4.14e6
    decided = confirm(path, {2: 4.10e6, 1: 4.15e6})
    assert (decided.config, decided.kept, decided.ties) == (config(2), False, ())


def test_a_lucky_old_time_does_not_freeze_the_best(path: Path) -> None:
    confirm(path, {1: 3.0e6})
    assert confirm(path, {1: 4.2e6, 2: 4.0e6}).config == config(2)


def test_an_incumbent_that_another_search_wrote_meanwhile_is_not_lost(path: Path) -> None:
    confirm(path, {1: 4.0e6})
    assert confirm(path, {2: 4.2e6}).config == config(1)
    assert best(path)["median_ns"] == 4.0e6
    assert confirm(path, {3: 3.9e6}).config == config(3)


def test_an_incumbent_that_fails_now_goes(path: Path) -> None:
    confirm(path, {1: 4.0e6})
    with Store.open(path) as store:
        run = store.begin_run(cube(2048), live(), compiler=COMPILER)
        store.record(run, variant(1), failed(Outcome.wrong_result, stage=Stage.confirm))
        challenger = store.record(run, variant(2), timed(5.0e6))
        assert store.confirm(run, [challenger]).config == config(2)


def test_an_incumbent_of_an_older_template_goes(path: Path) -> None:
    confirm(path, {1: 4.0e6})
    assert confirm(path, {2: 5.0e6}, template_sha256="new").config == config(2)


def test_confirming_twice_changes_nothing(path: Path) -> None:
    with Store.open(path) as store:
        run = store.begin_run(cube(2048), live(), compiler=COMPILER)
        ids = [store.record(run, variant(n), timed(t)) for n, t in {1: 4e6, 2: 4.01e6}.items()]
        first = store.confirm(run, ids)
        second = store.confirm(run, ids)
    assert first is not None and second is not None
    assert (second.config, second.ties, second.best_id) == (first.config, first.ties, first.best_id)
    assert rows(path, "SELECT count(*) FROM best") == [(1,)]
    assert rows(path, "SELECT count(*) FROM tie") == [(1,)]


ROOFLINE_NS = 2 * 2048**3 / (T4.fp32_tflops * 1e3)


@pytest.mark.parametrize(
    "measurement",
    [
        timed(4e6, Stage.search),
        failed(Outcome.wrong_result, stage=Stage.confirm),
        timed(4e6, truncated=True),
        timed(ROOFLINE_NS * 0.99),
        timed(4e6, outcome=Outcome.wrong_result),
    ],
    ids=["search", "failed", "truncated", "impossible", "fast but wrong"],
)
def test_what_was_not_confirmed_is_never_best(path: Path, measurement: Measurement) -> None:
    with Store.open(path) as store:
        run = store.begin_run(cube(2048), live(), compiler=COMPILER)
        id_ = store.record(run, variant(), measurement)
        assert store.confirm(run, [id_]) is None
        good = store.record(run, variant(1), timed(5e6))
        decided = store.confirm(run, [id_, good])
    assert decided is not None
    assert (decided.config, decided.refused) == (config(1), (id_,))
    # Nor can anything else write it: the guard is in the file.
    connection = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="confirm round"):
        connection.execute(f"UPDATE best SET measurement_id = {id_}, variant_id = 1")
    connection.execute("DELETE FROM tie")
    connection.execute("DELETE FROM best")
    with pytest.raises(sqlite3.IntegrityError, match="confirm round"):
        connection.execute(
            "INSERT INTO best (problem_id, device_id, variant_id, measurement_id, origin, "
            f"updated_at) VALUES (1, 1, 1, {id_}, 'local', 'now')"
        )
    connection.close()


def test_the_roofline_itself_is_possible(path: Path) -> None:
    assert confirm(path, {1: ROOFLINE_NS * 1.001}) is not None
    ((bound,),) = rows(path, "SELECT roofline_ns FROM measurement")
    assert bound == pytest.approx(ROOFLINE_NS)


def test_roofline_of_a_memory_bound_problem_leaves_out_what_l2_holds(path: Path) -> None:
    problem = Sgemm(m=65536, n=16, k=16)
    with Store.open(path) as store:
        run = store.begin_run(problem, live(), compiler=COMPILER)
        store.record(run, variant(), timed(1e6))
        small = store.begin_run(cube(256), live(sm_clock_khz=0), compiler=COMPILER)
        store.record(small, variant(), timed(1e6))
    traffic = 4 * (65536 * 16 + 16 * 16 + 65536 * 16) - T4.l2_bytes
    first, _second = (r[0] for r in rows(path, "SELECT roofline_ns FROM measurement ORDER BY id"))
    assert first == pytest.approx(traffic / T4.bandwidth_gbs)


def test_the_vendors_kernel_is_compared_and_never_best(path: Path) -> None:
    with Store.open(path) as store:
        run = store.begin_run(cube(2048), live(), compiler=COMPILER)
        vendor = VariantRow.vendor("cublas", "13.1", 75)
        ids = [store.record(run, vendor, timed(time)) for time in (3.6e6, 3.5e6)]
        ids.append(store.record(run, variant(1), timed(4.0e6)))
        decided = store.confirm(run, ids)
        (row,) = store.speedups()
    assert decided is not None and decided.config == config(1)
    assert (row["vendor"], row["vendor_ns"]) == ("cublas", 3.5e6)
    assert row["speedup"] == pytest.approx(3.5 / 4.0)
    assert row["vendor_tflops"] == pytest.approx(2 * 2048**3 / 3.5e6 / 1e3)


def test_unknown_run(path: Path) -> None:
    with Store.open(path) as store:
        with pytest.raises(NotFoundError, match="no run 5"):
            store.confirm(5, [1])
        with pytest.raises(NotFoundError, match="no run 5"):
            store.record(5, variant(), timed(1e6))


# *** predictions ***


def predicted() -> Measurement:
    return Measurement(outcome=Outcome.ok, stage=Stage.predict)


def test_predictions_stay_apart_from_measurements(path: Path) -> None:
    with Store.open(path) as store:
        run = store.begin_run(cube(2048), T4, compiler=COMPILER)
        id_ = store.record(run, variant(), predicted(), predicted_ns=4e6)
        assert store.confirm(run, [id_]) is None
        (row,) = store.results(evidence="predicted")
    assert (row["median_ns"], row["predicted_ns"], row["tflops"]) == (None, 4e6, None)
    assert rows(path, "SELECT present FROM device") == [(0,)]


def test_a_time_cannot_be_stored_for_a_device_that_is_not_here(path: Path) -> None:
    with Store.open(path) as store:
        run = store.begin_run(cube(2048), T4, compiler=COMPILER)
        with pytest.raises(StoreError, match="Tesla T4, which was not timed"):
            store.record(run, variant(), timed(4e6))
        with pytest.raises(StoreError, match="ok_has_time"):
            store.record(run, variant(), replace(timed(4e6), median_ns=None))
        with pytest.raises(StoreError, match=r"sm_90 cannot be recorded in run 1.*sm_75"):
            store.record(run, variant(arch=90), predicted(), predicted_ns=1e6)
    assert rows(path, "SELECT count(*) FROM measurement") == [(0,)]


def test_a_live_device_takes_the_typical_ones_place(path: Path) -> None:
    h200 = archs.get(90).typical
    here = live(h200, name="NVIDIA H200 SXM", memory_bytes=int(h200.memory_bytes * 0.99))
    with Store.open(path) as store:
        store.begin_run(cube(64), h200, compiler=COMPILER)
        store.begin_run(cube(64), here, compiler=COMPILER)
        store.begin_run(cube(64), h200, compiler=COMPILER)
    assert rows(path, "SELECT name, present, memory_bytes FROM device") == [
        ("NVIDIA H200 SXM", 1, here.memory_bytes)
    ]


def test_a_device_is_its_silicon_not_its_name(path: Path) -> None:
    with Store.open(path) as store:
        for device in (
            live(),
            live(name="NVIDIA TESLA T4-16C"),
            live(memory_bytes=int(T4.memory_bytes * 0.98)),
            live(memory_bytes=T4.memory_bytes // 2),
            live(sm_count=36),
        ):
            store.begin_run(cube(64), device, compiler=COMPILER)
    assert rows(path, "SELECT device_id FROM run ORDER BY id") == [(1,), (1,), (1,), (2,), (3,)]


# *** questions ***


def test_results_filter_sort_and_limit(path: Path) -> None:
    tune(path, cube(512), {1: 4e5, 2: 3e5, 3: 5e5})
    tune(path, cube(1024), {1: 2e6}, live(archs.get(90).typical))
    with Store.open(path, read_only=True) as store:
        assert [r["median_ns"] for r in store.results(shape="512x512x512", sort="median_ns")] == [
            3e5,
            4e5,
            5e5,
        ]
        assert [r["id"] for r in store.results(sort="-id", limit=2)] == [4, 3]
        assert [r["arch"] for r in store.results(arch="sm_90")] == [90]
        assert [r["shape"] for r in store.bests(device="h200")] == ["1024x1024x1024"]
        assert store.results(device="%") == []
        assert store.results(outcome="crash") == []
        assert len(store.results(kernel="sgemm", stage="confirm")) == 4
        with pytest.raises(UsageError, match="no column 'speed'; possible are id, kernel"):
            store.results(sort="speed")
        with pytest.raises(UsageError, match="no column 'color'"):
            store.results(color="red")


def test_failures_have_class_and_message(path: Path) -> None:
    with Store.open(path) as store:
        run = store.begin_run(cube(64), live(), compiler=COMPILER)
        store.record(run, variant(1), failed(Outcome.crash, "illegal address"))
        store.record(run, variant(2), timed(1e6))
        (row,) = store.failures(arch=75)
    assert (row["outcome"], row["message"]) == ("crash", "illegal address")
    assert row["config_json"] == config(1).json


def test_rows_have_plain_columns_of_the_problem(path: Path) -> None:
    problem = Sgemm(m=64, n=96, k=128, layout="tn", batch=2, beta_zero=False)
    tune(path, problem, {1: 1e6})
    with Store.open(path, read_only=True) as store:
        (row,) = store.bests()
    assert (row["m"], row["n"], row["k"], row["layout"], row["batch"]) == (64, 96, 128, "tn", 2)
    assert row["problem"] == problem.key
    ((stored,),) = rows(path, "SELECT beta_zero FROM problem")
    assert stored == 0


def test_sizes_beyond_64_bits_of_flops(path: Path) -> None:
    with Store.open(path) as store:
        run = store.begin_run(cube(2_000_000_000), T4, compiler=COMPILER)
        store.record(run, variant(), predicted(), predicted_ns=1e20)
    ((flops,),) = rows(path, "SELECT flops FROM problem")
    assert flops == pytest.approx(1.6e28)


def test_problems_that_differ_in_one_field_have_rows_of_their_own(path: Path) -> None:
    base = cube(256)
    problems = [
        base,
        replace(base, layout="nt"),
        replace(base, beta_zero=False),
        replace(base, align_a=4),
        replace(base, lda=260),
    ]
    for number, problem in enumerate(problems):
        tune(path, problem, {number: 1e6})
    with Store.open(path, read_only=True) as store:
        found = [store.best(problem, live()) for problem in problems]
    assert [number_of(row) for row in found if row] == [0, 1, 2, 3, 4]
