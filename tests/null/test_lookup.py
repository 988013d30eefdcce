"""The tiers of an answer, and how each says what it rests on."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sqlite3
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from store_helpers import COMPILER, T4, TEMPLATE, config, cube, live, timed, tune, variant

from autotune import archs, defaults, nearness, space, storefile
from autotune.errors import InfeasibleError, NotFoundError, ShapeError, UsageError
from autotune.lookup import Answer, answer, lookup, misses
from autotune.problems.sgemm import Sgemm
from autotune.store import Store
from autotune.types import Config, Device, Evidence, Match, Measurement, Outcome, Problem, Stage

DEFAULT = config(999)


def fits(config: Config, problem: Problem) -> str | None:
    return None


def start(problem: Problem, arch: int) -> Config:
    return DEFAULT


def ask(path: Path, problem: Problem, device: Device | None = None, **options: object) -> Answer:
    given = {"arch": 75, "check": fits, "default": start, "seed_folder": None, **options}
    if device is not None:
        given["arch"] = device.arch
    return answer(problem, device=device, store=path, **given)  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.db"


@pytest.fixture
def cubes(path: Path) -> Path:
    for size in (512, 1024, 2048):
        tune(path, cube(size), {size: size**3 / 1e3})
    return path


# *** exact ***


def test_exact_says_where_it_comes_from(cubes: Path) -> None:
    found = ask(cubes, cube(1024), live())
    assert (found.match, found.evidence, found.config) == (
        Match.exact,
        Evidence.measured,
        config(1024),
    )
    assert (found.distance, found.expected_loss, found.stale) == (0.0, 0.0, False)
    assert (found.problem, found.device) == ("sgemm/1024x1024x1024/nn", "Tesla T4")
    assert found.time_ns == 1024**3 / 1e3
    assert (found.driver, found.compiler) == ("580.65", COMPILER)
    assert found.measured_at.endswith("Z") and found.autotune_version
    assert (found.best_id, found.measurement_id, found.ties) == (2, 2, 0)
    assert found.reason == "measured for sgemm/1024x1024x1024/nn on Tesla T4 (40 SMs)"


def test_ties_are_counted(path: Path) -> None:
    tune(path, cube(64), {1: 1e6, 2: 1.005e6, 3: 1.008e6, 4: 2e6})
    assert ask(path, cube(64)).ties == 2


def test_a_name_does_not_make_another_device(cubes: Path) -> None:
    for name in ("TESLA T4", "NVIDIA Tesla T4-SHARED", "gpu"):
        device = live(name=name, memory_bytes=int(T4.memory_bytes * 0.98))
        assert ask(cubes, cube(512), device).match is Match.exact


def test_one_shape_never_answers_exactly_for_another(path: Path) -> None:
    tune(path, cube(4096), {1: 1e8})
    found = ask(path, Sgemm(m=4096, n=8192, k=8192))
    assert found.match is Match.near_shape
    # One octave of n, and one of k, which counts half.
    assert found.distance == pytest.approx(math.hypot(1, 0.5))
    assert "sgemm/4096x4096x4096/nn" in found.reason
    assert "(n x2, k x2)" in found.reason


def test_problems_that_differ_in_one_field_do_not_hide_each_other(path: Path) -> None:
    base = cube(256)
    problems = [
        base,
        replace(base, layout="nt"),
        replace(base, beta_zero=False),
        replace(base, align_a=4),
        replace(base, lda=260),
        replace(base, batch=2),
    ]
    for number, problem in enumerate(problems):
        tune(path, problem, {number: 1e6})
    for number, problem in enumerate(problems):
        found = ask(path, problem)
        assert (found.match, found.config) == (Match.exact, config(number))


def test_without_a_device_every_model_counts_and_the_answer_says_which(path: Path) -> None:
    tune(path, cube(512), {1: 1e6}, live(sm_count=20, name="Small T4"))
    found = ask(path, cube(512))
    assert (found.match, found.device) == (Match.exact, "Small T4")
    assert "no model was named, so every sm_75 counts" in found.reason
    # The typical model of the architecture goes first, though its row is younger.
    tune(path, cube(512), {2: 1e6})
    assert ask(path, cube(512)).device == "Tesla T4"


# *** near shapes ***


def unlike(asked: Sgemm, known: Sgemm, sm_count: int = T4.sm_count) -> float:
    """The distance as `autotune.nearness` has it."""
    one, other = (
        nearness.traits("sgemm", each.shape, each.flops, storefile.regime(each), sm_count)
        for each in (asked, known)
    )
    return one.distance(other)


@pytest.mark.parametrize(
    ("asked", "source"),
    [
        (cube(1000), 1024),
        (Sgemm(m=513, n=512, k=512), 512),
        (cube(4096), 2048),
        (Sgemm(m=512, n=512, k=512, batch=2), 512),
        (cube(1023), 1024),
    ],
)
def test_nearest_shape(cubes: Path, asked: Sgemm, source: int) -> None:
    found = ask(cubes, asked, live())
    assert (found.match, found.config) == (Match.near_shape, config(source))
    distance = unlike(asked, cube(source))
    assert found.distance == pytest.approx(distance)
    assert found.expected_loss == pytest.approx(nearness.loss().at(distance))
    assert f"sgemm/{source}x{source}x{source}/nn" in found.reason
    assert f"at a distance of {distance:.2f}" in found.reason
    assert nearness.loss().source in found.reason


@pytest.mark.parametrize(
    "asked",
    [
        Sgemm(m=8192, n=8, k=8),
        cube(1),
        cube(6000, layout="tn"),  # near enough, were it not for the layout
        cube(16384 * 2),
    ],
    ids=lambda problem: problem.key,
)
def test_what_is_too_far_gets_the_default(cubes: Path, asked: Sgemm) -> None:
    found = ask(cubes, asked, live())
    assert (found.match, found.config, found.evidence) == (Match.arch_default, DEFAULT, None)
    assert found.expected_loss is None and found.time_ns is None
    assert "never timed" in found.reason


def test_a_near_config_is_checked_for_the_shape_that_was_asked(cubes: Path) -> None:
    seen: list[tuple[object, str]] = []

    def check(config: Config, problem: Problem) -> str | None:
        seen.append((config["number"], problem.key))
        return "1024 does not divide" if config["number"] == 1024 else None

    found = ask(cubes, cube(1000), live(), check=check)
    assert (found.match, found.config) == (Match.near_shape, config(2048))
    assert found.passed_over == ("sgemm/1024x1024x1024/nn on Tesla T4: 1024 does not divide",)
    # In the order of their distance: a T4 is full with any of these two.
    assert seen == [(number, cube(1000).key) for number in (1024, 2048, 512)]


def test_the_nearest_is_really_the_nearest(path: Path) -> None:
    """The walk by FLOPs stops early; a plain search over all rows must agree."""
    import random

    chance = random.Random(5)
    sizes = [2 ** (k / 4) for k in range(24, 52)]
    shapes = {tuple(round(chance.choice(sizes)) for _ in range(3)) for _ in range(100)}
    with Store.open(path) as store:
        for number, (m, n, k) in enumerate(sorted(shapes)):
            run = store.begin_run(Sgemm(m=m, n=n, k=k), live(), compiler=COMPILER)
            store.confirm(run, [store.record(run, variant(number), timed(1e12))])
    rows = sorted(shapes)
    for _ in range(30):
        m, n, k = (chance.randrange(64, 8000) for _ in range(3))
        asked = Sgemm(m=m, n=n, k=k)
        distances = [unlike(asked, Sgemm(m=m, n=n, k=k)) for m, n, k in rows]
        nearest = min(range(len(rows)), key=lambda i: (distances[i], i))
        found = ask(path, asked, live())
        if distances[nearest] > nearness.MAX_DISTANCE:
            assert found.match is Match.arch_default
        elif distances[nearest] > 0:
            assert found.distance == pytest.approx(distances[nearest])
            assert found.config == config(nearest)


# *** sibling devices ***


@pytest.mark.parametrize(
    "other",
    [live(sm_count=36), live(memory_bytes=T4.memory_bytes // 2)],
    ids=["other SM count", "other memory"],
)
def test_another_model_is_never_exact(cubes: Path, other: Device) -> None:
    found = ask(cubes, cube(1024), other)
    assert (found.match, found.config) == (Match.sibling_device, config(1024))
    assert "another model of the same architecture" in found.reason
    assert found.expected_loss is not None and found.expected_loss > 0
    assert ask(cubes, cube(1000), other).match is Match.sibling_device


def test_another_architecture_never_answers(cubes: Path) -> None:
    found = ask(cubes, cube(1024), live(archs.get(86).typical))
    assert found.match is Match.arch_default


def test_the_sibling_with_the_most_similar_size_goes_first(path: Path) -> None:
    for sm_count in (10, 30, 80):
        tune(path, cube(512), {sm_count: 1e6}, live(sm_count=sm_count))
    assert ask(path, cube(512), live(sm_count=36)).config == config(30)


def test_a_near_shape_here_goes_before_the_same_shape_elsewhere(path: Path) -> None:
    tune(path, cube(1024), {1: 1e7}, live(sm_count=20))
    tune(path, cube(1000), {2: 1e7}, live())
    found = ask(path, cube(1024), live())
    assert (found.match, found.config) == (Match.near_shape, config(2))


# *** predictions and stale rows ***


def predict(path: Path, problem: Problem, times_ns: dict[int, float]) -> None:
    with Store.open(path) as store:
        run = store.begin_run(problem, T4, compiler=COMPILER)
        for number, time_ns in times_ns.items():
            store.record(
                run,
                variant(number),
                Measurement(outcome=Outcome.ok, stage=Stage.predict),
                predicted_ns=time_ns,
            )


def test_a_prediction_answers_as_a_prediction(path: Path) -> None:
    predict(path, cube(2048), {1: 5e6, 2: 4e6, 3: 4e6})
    found = ask(path, cube(2048))
    assert (found.match, found.evidence) == (Match.exact, Evidence.predicted)
    assert (found.config, found.time_ns, found.best_id) == (config(2), 4e6, None)
    assert found.expected_loss is None
    assert found.reason.startswith("predicted, never timed, for sgemm/2048")


def test_any_measurement_goes_before_a_prediction(path: Path) -> None:
    predict(path, cube(2048), {1: 1e6})
    tune(path, cube(1024), {2: 1e9})
    assert ask(path, cube(2048)).evidence is Evidence.measured
    assert ask(path, cube(2048)).match is Match.near_shape
    tune(path, cube(2048), {3: 9e9})
    assert ask(path, cube(2048)).config == config(3)


def test_stale_rows_answer_last_and_say_so(path: Path) -> None:
    tune(path, cube(1024), {1: 1e7})
    assert not ask(path, cube(1024)).stale
    assert not ask(path, cube(1024), template_sha256=TEMPLATE).stale
    found = ask(path, cube(1024), template_sha256="new")
    assert (found.match, found.config, found.stale) == (Match.exact, config(1), True)
    assert "another version of the template; search again" in found.reason
    # A fresh row of a near shape, even of another model, is better than a stale one.
    tune(path, cube(2048), {2: 1e8}, live(sm_count=20), template_sha256="new")
    found = ask(path, cube(1024), live(), template_sha256="new")
    assert (found.match, found.config, found.stale) == (Match.sibling_device, config(2), False)


# *** rows that no longer serve ***


def edit(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("config_json", "why"),
    [
        ('{"block_m":256}', "edited after it was stored"),
        ('{"block_m":1.5}', "cannot be read"),
        ("[1]", "cannot be read"),
    ],
)
def test_an_edited_row_is_passed_over_with_a_warning(
    cubes: Path, caplog: pytest.LogCaptureFixture, config_json: str, why: str
) -> None:
    edit(cubes, f"UPDATE variant SET config_json = '{config_json}' WHERE problem_id = 2")
    found = ask(cubes, cube(1024), live())
    assert (found.match, found.config) == (Match.near_shape, config(2048))
    assert why in found.passed_over[0]
    ask(cubes, cube(1024), live())
    (record,) = caplog.records
    assert "measurement 2 of the results store cannot serve sgemm/1024" in record.getMessage()


def real(preset: str, arch: int = 75) -> Config:
    return space.load("sgemm").preset(preset)


def tune_real(path: Path, problem: Sgemm, config: Config) -> None:
    tune(path, problem, {0: 1e9}, config=config)


def test_the_search_space_checks_what_is_served(path: Path) -> None:
    config = defaults.default(cube(1024), archs.get(75).typical)
    tune_real(path, cube(1024), config)
    assert lookup(1024, 1024, 1024, arch=75, store=path, seed=False).config == config
    near = lookup(1000, 1000, 1000, arch=75, store=path, seed=False)
    assert near.match is Match.near_shape
    assert near.config is not None
    assert space.load("sgemm").explain(near.config, cube(1000), 75) is None
    # Rows of B are 1 long here: no 128-bit loads.
    thin = Sgemm(m=1024, n=1, k=1024)
    found = answer(thin, arch=75, store=path, seed_folder=None)
    assert found.match is Match.arch_default and found.config is not None
    assert space.load("sgemm").explain(found.config, thin, 75) is None


def test_a_row_that_breaks_a_rule_of_the_space_is_not_served(path: Path) -> None:
    config = defaults.default(cube(1024), archs.get(75).typical).but(no_such_parameter=1)
    tune_real(path, cube(1024), config)
    found = lookup(1024, 1024, 1024, arch=75, store=path, seed=False)
    assert found.match is Match.arch_default
    assert "no_such_parameter" in found.passed_over[0]


# *** no store ***


@pytest.mark.parametrize("kind", ["missing", "empty", "folder", "text", "truncated", "newer"])
def test_without_a_usable_store_the_default_answers_with_one_warning(
    path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    if kind == "empty":
        path.touch()
    elif kind == "folder":
        path.mkdir()
    elif kind == "text":
        path.write_text("results\n" * 100)
    elif kind in ("truncated", "newer"):
        for size in range(64, 1024, 64):
            tune(path, cube(size), {1: 1e9})
        if kind == "newer":
            edit(path, f"UPDATE {storefile.VERSION_TABLE} SET version_num = '0009'")
        else:
            whole = path.read_bytes()
            path.write_bytes(whole[: len(whole) // 2])
    found = [ask(path, cube(1024 - 16 * n)) for n in range(4)]
    assert {f.match for f in found} == {Match.arch_default}
    assert found[0].config == DEFAULT
    assert str(path) in found[0].reason
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "looking up goes on without it" in record.getMessage()
    assert path.exists() is (kind != "missing")


def test_a_store_that_appears_is_noticed(path: Path) -> None:
    assert ask(path, cube(64)).match is Match.arch_default
    tune(path, cube(64), {1: 1e6})
    assert ask(path, cube(64)).match is Match.exact
    path.unlink()
    assert ask(path, cube(64)).match is Match.arch_default


def test_none_when_not_even_a_default_exists(path: Path) -> None:
    def no_start(problem: Problem, arch: int) -> Config:
        raise InfeasibleError("no start serves this")

    found = ask(path, cube(64), default=no_start)
    assert (found.match, found.config) == (Match.none, None)
    assert "no start serves this" in found.reason


def test_a_missing_home_still_gives_an_answer(tmp_path: Path) -> None:
    code = """
    from autotune.lookup import lookup
    print(lookup(512, 512, 512, arch=75, seed=False).match)
    """
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("HOME", "XDG", "AUTOT"))
    }
    for home in ({"HOME": "/nonexistent"}, {}):
        ran = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            capture_output=True,
            text=True,
            env={**environment, **home},
        )
        assert ran.stdout == "arch_default\n", ran.stderr


# *** the call ***


def test_usage(path: Path) -> None:
    with pytest.raises(UsageError, match="architecture or a device"):
        answer(cube(64), store=path)
    with pytest.raises(UsageError, match="sm_80 was asked for, but Tesla T4 is sm_75"):
        answer(cube(64), arch=80, device=live(), store=path)
    with pytest.raises(ShapeError):
        lookup(-1, 2, 3, arch=75, store=path)
    with pytest.raises(UsageError, match="no such option"):
        lookup(1, 2, 3, arch=75, store=path, color="red")
    with pytest.raises(UsageError, match="not a kernel family"):
        lookup(1, 2, 3, arch=75, store=path, kernel="hgemm")


def test_strict_raises_what_is_not_tuned_and_misses_are_listed(path: Path) -> None:
    config = defaults.default(cube(1024), archs.get(75).typical)
    tune_real(path, cube(1024), config)
    found = lookup(
        1024, 1024, 1024, arch="sm_75", store=path, template_sha256=TEMPLATE, strict=True
    )
    assert found.config == config and not found.stale
    # The installed template is another one, so the row is stale unless told otherwise.
    assert lookup(1024, 1024, 1024, arch=75, store=path, seed=False).stale
    with pytest.raises(NotFoundError, match="another version of the template"):
        lookup(1024, 1024, 1024, arch=75, store=path, strict=True, seed=False)
    with pytest.raises(NotFoundError, match="1032x1032x1032/nn is not tuned: measured for"):
        lookup(1032, 1032, 1032, arch=75, store=path, strict=True, seed=False)
    assert "sgemm/1032x1032x1032/nn" in misses()
    other = lookup(1024, 1024, 1024, device=live(), store=path, seed=False, layout="tn")
    assert (other.match, other.distance) == (Match.near_shape, 1.0) and not other.is_tuned


def test_what_the_model_finds_far_too_slow_here_gives_way_to_a_start(path: Path) -> None:
    start = defaults.default(cube(1032), archs.get(75).typical)
    tune_real(path, cube(1024), space.load().preset("smallest"))
    found = lookup(1032, 1032, 1032, arch=75, store=path, template_sha256=TEMPLATE, seed=False)
    assert (found.match, found.config) == (Match.arch_default, start)
    assert re.search(
        r"what is measured for sgemm/1024x1024x1024/nn, at a distance of 0\.\d\d, takes \d\.\d\d "
        "times as long here by the model",
        found.reason,
    )
    # Of the problem itself nobody knows better than who measured it.
    exact = lookup(1024, 1024, 1024, arch=75, store=path, template_sha256=TEMPLATE, seed=False)
    assert exact.match is Match.exact
    good = path.with_name("good.db")
    tune_real(good, cube(1024), defaults.default(cube(1024), archs.get(75).typical))
    found = lookup(1032, 1032, 1032, arch=75, store=good, template_sha256=TEMPLATE, seed=False)
    assert found.match is Match.near_shape


def test_an_open_store_can_be_given(cubes: Path) -> None:
    with Store.open(cubes) as store:
        assert answer(cube(512), arch=75, store=store, check=fits).match is Match.exact


# *** the same everywhere, and fresh ***


def test_a_committed_change_is_seen_by_the_next_call(path: Path) -> None:
    tune(path, cube(64), {1: 2e6})
    for number in range(2, 30):
        assert ask(path, cube(64)).config == config(number - 1)
        tune(path, cube(64), {number: 2e6 - number * 5e4})


def test_a_file_that_was_replaced_is_noticed(cubes: Path, tmp_path: Path) -> None:
    assert ask(cubes, cube(512)).match is Match.exact
    other = tmp_path / "other.db"
    tune(other, cube(512), {77: 1e6})
    other.replace(cubes)
    assert ask(cubes, cube(512)).config == config(77)


def test_looking_up_writes_nothing(cubes: Path) -> None:
    before = (cubes.read_bytes(), sorted(p.name for p in cubes.parent.iterdir()))
    ask(cubes, cube(512))
    ask(cubes, cube(1000))
    after = (cubes.read_bytes(), sorted(p.name for p in cubes.parent.iterdir()))
    assert after[0] == before[0]
    assert {name.split("-")[0] for name in after[1]} == {"results.db"}


def test_no_read_transaction_stays_open(cubes: Path) -> None:
    ask(cubes, cube(1000), live())
    connection = sqlite3.connect(cubes, timeout=0)
    busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    connection.close()
    assert busy == 0


ANSWERS = """
import json, sys
sys.path.insert(0, {folder!r})
from store_helpers import *
from autotune.lookup import answer
found = []
for size in (512, 600, 768, 1000, 3000):
    a = answer(cube(size), arch=75, store=sys.argv[1], check=lambda c, p: None)
    found.append([a.match, a.best_id, a.config.json])
print(json.dumps(found))
"""


def test_processes_agree(path: Path, tmp_path: Path) -> None:
    for number, size in enumerate((576, 512, 2048)):
        tune(path, cube(size), {number: 1e7, number + 10: 1e7})
    tune(path, Sgemm(m=1024, n=512, k=1024), {50: 1e7})
    tune(path, Sgemm(m=512, n=1024, k=1024), {51: 1e7})
    code = ANSWERS.format(folder=str(Path(__file__).parent))
    ran = [
        subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
        for _ in range(3)
    ]
    answers = [json.loads(r.stdout) for r in ran]
    assert answers[0] == answers[1] == answers[2]
    assert [match for match, _, _ in answers[0]] == ["exact"] + ["near_shape"] * 4
    # Two rows at the same distance: the one that came first decides.
    assert ask(path, Sgemm(m=768, n=768, k=1024)).config == config(50)


def test_threads_agree(cubes: Path) -> None:
    found: list[Answer] = []
    threads = [
        threading.Thread(
            target=lambda: found.extend(ask(cubes, cube(512 + 8 * (n % 7))) for n in range(50))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 200
    assert len({(f.match, f.distance, f.config) for f in found}) == 7


def test_an_exported_copy_is_a_frozen_view(cubes: Path, tmp_path: Path) -> None:
    from autotune.store import export

    copy = export(cubes, tmp_path / "frozen.db")
    tune(cubes, cube(512), {600: 1.0e5})
    assert ask(cubes, cube(512)).config == config(600)
    assert ask(copy, cube(512)).config == config(512)


def test_importing_and_answering_loads_nothing_heavy(cubes: Path) -> None:
    code = """
    import sys
    from autotune.lookup import lookup
    lookup(1024, 1024, 1024, arch=75, store=sys.argv[1])
    heavy = {"jinja2", "optuna", "numpy", "pycuda", "cuda", "sqlalchemy", "alembic"}
    print(sorted(heavy & set(sys.modules)))
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), cubes], capture_output=True, text=True
    )
    assert ran.stdout == "[]\n", ran.stderr
