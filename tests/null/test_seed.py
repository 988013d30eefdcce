"""The best configs that ship with the package: their form, and what they answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from store_helpers import COMPILER, T4, TEMPLATE, config, cube, live, timed, tune, variant

from autotune import assets, defaults, nearness, seed, space, storefile, templates
from autotune.errors import NotFoundError, StoreError
from autotune.lookup import Answer, answer
from autotune.problems.sgemm import Sgemm
from autotune.rows import VariantRow
from autotune.store import Store
from autotune.types import Config, Device, Evidence, Match, Measurement, Outcome, Problem, Stage


def fits(config: Config, problem: Problem) -> str | None:
    return None


def start(problem: Problem, arch: int) -> Config:
    return config(999)


def ask(store: Path, folder: Path, problem: Problem, device: Device, **options: object) -> Answer:
    given = {"check": fits, "default": start, **options}
    return answer(problem, device=device, store=store, seed_folder=folder, **given)  # type: ignore[arg-type]


def predict(path: Path, problem: Problem, times_ns: dict[int, float], device: Device = T4) -> None:
    with Store.open(path) as store:
        run = store.begin_run(problem, device, compiler=COMPILER)
        for number, time_ns in times_ns.items():
            store.record(
                run,
                variant(number, arch=device.arch),
                Measurement(outcome=Outcome.ok, stage=Stage.predict),
                predicted_ns=time_ns,
            )


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """A store with bests, a vendor's time, ties and predictions."""
    path = tmp_path / "tuned.db"
    tune(path, cube(2048), {1: 1e9, 2: 1.005e9})
    tune(path, cube(512, layout="tn", beta_zero=False), {3: 1e7})
    problem = Sgemm(m=64, n=64, k=4096, batch=3, lda=4100)
    with Store.open(path) as store:
        run = store.begin_run(problem, live(), compiler=COMPILER)
        library = store.record(run, VariantRow.vendor("cublas", "13.0", 75), timed(3e6))
        best = store.record(run, variant(4), timed(2e6))
        store.confirm(run, [library, best])
    predict(path, cube(1024), {5: 2e6, 6: 1e6, 7: 3e6})
    predict(path, cube(2048), {8: 1.0})
    return path


@pytest.fixture
def folder(tuned: Path, tmp_path: Path) -> Path:
    """The seed of that store."""
    seed.write(tmp_path / "seed", seed.of_store(tuned))
    return tmp_path / "seed"


# *** its form ***


def test_a_line_for_each_problem_and_device(folder: Path) -> None:
    (file,) = folder.iterdir()
    assert file.name == "sgemm-sm_75.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["problem"] for row in rows] == sorted(row["problem"] for row in rows)
    assert all(list(row) == sorted(seed.COLUMNS) for row in rows)
    by_problem = {row["problem"]: row for row in rows}
    assert len(by_problem) == len(rows) == 4
    measured = by_problem[cube(2048).key]
    assert measured["evidence"] == "measured"
    assert (measured["config"], measured["ties"]) == (dict(config(1)), 1)
    assert (measured["time_ns"], measured["vendor_ns"]) == (1e9, None)
    assert (measured["driver"], measured["compiler"]) == ("580.65", COMPILER)
    predicted = by_problem[cube(1024).key]
    assert predicted["evidence"] == "predicted"
    assert (predicted["config"], predicted["time_ns"]) == (dict(config(6)), 1e6)
    split = by_problem[Sgemm(m=64, n=64, k=4096, batch=3, lda=4100).key]
    assert (split["vendor_ns"], split["time_ns"]) == (3e6, 2e6)
    for row in rows:
        problem = seed.problem(row)
        assert (problem.key, storefile.regime(problem)) == (row["problem"], row["regime"])
        assert problem.flops == row["flops"]


def test_equal_bests_give_equal_bytes(tuned: Path, folder: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    seed.write(again, list(reversed(seed.of_store(tuned))))
    for file in folder.iterdir():
        assert (again / file.name).read_bytes() == file.read_bytes()


def test_nothing_to_export(tmp_path: Path) -> None:
    Store.open(tmp_path / "empty.db").close()
    with pytest.raises(NotFoundError, match="neither bests nor predictions"):
        seed.of_store(tmp_path / "empty.db")
    with pytest.raises(NotFoundError, match="there is no results store"):
        seed.of_store(tmp_path / "none.db")


# *** what it answers ***


def test_the_seed_answers_without_a_store_of_ones_own(folder: Path, tmp_path: Path) -> None:
    none = tmp_path / "none.db"
    found = ask(none, folder, cube(2048), live())
    assert (found.match, found.evidence, found.origin) == (Match.exact, Evidence.measured, "seed")
    assert (found.config, found.time_ns, found.ties) == (config(1), 1e9, 1)
    assert (found.best_id, found.measurement_id, found.expected_loss) == (None, None, 0.0)
    assert found.is_tuned
    assert "from the shipped seed" in found.why()
    near = ask(none, folder, cube(2000), live())
    assert (near.match, near.config, near.origin) == (Match.near_shape, config(1), "seed")
    assert near.distance is not None
    assert near.expected_loss == pytest.approx(nearness.loss().at(near.distance))
    other = ask(none, folder, cube(2048), live(sm_count=36))
    assert other.match is Match.sibling_device
    assert not none.exists()


def test_results_of_ones_own_come_first(folder: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.db"
    tune(mine, cube(2048), {50: 2e9})
    found = ask(mine, folder, cube(2048), live())
    assert (found.config, found.origin) == (config(50), "local")
    # As near as the seed's line: the own one.
    assert ask(mine, folder, cube(2000), live()).config == config(50)
    # The seed has the very problem, the store only a near one.
    tn = cube(512, layout="tn", beta_zero=False)
    tune(mine, cube(520, layout="tn", beta_zero=False), {51: 1e7})
    assert ask(mine, folder, tn, live()).config == config(3)


def test_stale_results_of_ones_own_come_after_the_seed(folder: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.db"
    tune(mine, cube(2048), {50: 1e9}, template_sha256="old")
    found = ask(mine, folder, cube(2048), live(), template_sha256=TEMPLATE)
    assert (found.config, found.stale) == (config(1), False)


def test_predictions_answer_as_predictions_and_never_stale(folder: Path, tmp_path: Path) -> None:
    none = tmp_path / "none.db"
    found = ask(none, folder, cube(1024), T4)
    # The measured 2048 cubed is near enough.
    assert (found.evidence, found.config) == (Evidence.measured, config(1))
    file = folder / "sgemm-sm_75.jsonl"
    lines = [line for line in file.read_text().splitlines() if '"predicted"' in line]
    file.write_text("\n".join(lines) + "\n")
    seed.load.cache_clear()
    other = tmp_path / "other.db"
    found = ask(other, folder, cube(1024), T4)
    assert (found.match, found.evidence, found.config) == (
        Match.exact,
        Evidence.predicted,
        config(6),
    )
    assert found.expected_loss is None and not found.is_tuned
    near = ask(other, folder, cube(1000), T4)
    assert (near.match, near.evidence) == (Match.near_shape, Evidence.predicted)
    old = ask(other, folder, cube(1024), T4, template_sha256="newer")
    assert (old.match, old.config) == (Match.arch_default, config(999))


def test_the_model_may_prefer_a_start_to_a_near_prediction(tmp_path: Path) -> None:
    """Nothing was measured, so nothing speaks for what was chosen for another problem."""
    path, slow = tmp_path / "p.db", space.load("sgemm").preset("naive")
    with Store.open(path) as store:
        run = store.begin_run(cube(1024), T4, compiler=COMPILER)
        row = variant(config=slow, template_sha256=templates.sha256("sgemm"))
        store.record(
            run, row, Measurement(outcome=Outcome.ok, stage=Stage.predict), predicted_ns=1.0
        )
    seed.write(tmp_path / "seed", seed.of_store(path))
    found = answer(cube(1000), device=T4, store=tmp_path / "none.db", seed_folder=tmp_path / "seed")
    assert found.match is Match.arch_default
    assert found.config == defaults.default(cube(1000), T4)
    assert "the model likes it better" in found.reason


def test_a_near_config_gives_way_where_it_must(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    wide = defaults.default(cube(1024), T4)
    assert wide["vector_b"] == 4
    tune(path, cube(1024), {0: 1e9}, config=wide, template_sha256=templates.sha256("sgemm"))
    found = answer(cube(1023), device=live(), store=path, seed_folder=None)
    assert (found.match, found.origin) == (Match.near_shape, "local")
    assert found.config is not None and found.config["vector_b"] == 1
    assert "vector_b 4 to 1" in found.fitted and "fitted to this problem" in found.why()
    assert space.load().explain(found.config, cube(1023), 75) is None


def test_a_damaged_seed_costs_a_warning_not_the_answer(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = folder / "sgemm-sm_75.jsonl"
    file.write_text(file.read_text().replace('"kernel"', '"karnel"', 1))
    seed.load.cache_clear()
    found = ask(tmp_path / "none.db", folder, cube(2048), live())
    assert (found.match, found.config) == (Match.arch_default, config(999))
    assert "line 1 lacks 'kernel'" in caplog.text
    mine = tmp_path / "mine.db"
    tune(mine, cube(2048), {50: 2e9})
    assert ask(mine, folder, cube(2048), live()).config == config(50)
    file.write_text("{\n")
    seed.load.cache_clear()
    with pytest.raises(StoreError, match="line 1"):
        seed.load(folder, "sgemm", 75)


def test_a_read_only_installation(folder: Path, tmp_path: Path) -> None:
    """As another user, who may write nothing."""
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[3]); "
        "from store_helpers import *; from autotune.lookup import answer; "
        "print(answer(cube(2048), arch=75, store=sys.argv[2], seed_folder=Path(sys.argv[1]), "
        "check=lambda c, p: None).match)"
    )
    for path in (folder, *folder.iterdir()):
        path.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-c", code, folder, tmp_path / "none.db", Path(__file__).parent],
        capture_output=True, text=True,
    )  # fmt: skip
    folder.chmod(0o755)
    assert done.stdout == "exact\n", done.stderr


# *** what ships ***


def test_every_field_of_a_line_is_described() -> None:
    page = (assets.folder("db") / "README.md").read_text()
    for name, meaning in seed.COLUMNS.items():
        assert f"| `{name}` | {meaning} |" in page


SHIPPED = sorted((assets.folder("db") / "seed").glob("*.jsonl"))


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.name)
def test_what_ships_is_whole_and_serves(file: Path) -> None:
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert rows
    for row in rows:
        assert file.name == seed.file_name(row["kernel"], row["arch"])
        assert row.keys() == seed.COLUMNS.keys()
        problem = seed.problem(row)
        assert (problem.key, storefile.regime(problem)) == (row["problem"], row["regime"])
        assert row["evidence"] in list(Evidence) and row["time_ns"] > 0
        kernels = space.load(row["kernel"])
        config = kernels.config(row["config"])
        assert kernels.explain(config, problem, row["arch"]) is None, row["problem"]


def test_what_ships_has_one_form(tmp_path: Path) -> None:
    rows = [json.loads(line) for file in SHIPPED for line in file.read_text().splitlines()]
    seed.write(tmp_path, rows)
    for file in SHIPPED:
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()
