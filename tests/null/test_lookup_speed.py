"""How long a look-up takes in a store of 100,000 measurements."""

from __future__ import annotations

import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from store_helpers import cube, tune

from autotune.lookup import _books, answer
from autotune.problems.sgemm import Sgemm
from autotune.types import Config, Match, Problem

pytestmark = pytest.mark.alone

MEASUREMENTS = 100_000
SHAPES = 2_000


def fits(config: Config, problem: Problem) -> str | None:
    return None


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One real run, copied in SQL: 2,000 shapes with a best each, 50 measurements a shape."""
    path = tmp_path_factory.mktemp("full") / "results.db"
    tune(path, cube(64), {1: 1e9})
    connection = sqlite3.connect(path)

    def copy(table: str, changes: dict[str, str], source: str, many: int) -> None:
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        values = ", ".join(changes.get(name, f"t.{name}") for name in names)
        connection.execute(
            f"WITH RECURSIVE i(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM i WHERE n <= {many}) "
            f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} FROM i, {source} AS t "
            "WHERE t.id = 1"
        )

    # Sizes from 64 to 4096 in steps of 64, as if in a random order.
    m, n, k = (f"(64 * (1 + (i.n * {prime}) % 64))" for prime in (7919, 104729, 1299709))
    copy(
        "problem",
        {
            "id": "i.n",
            "key": f"'sgemm/' || {m} || 'x' || {n} || 'x' || {k} || '/nn#' || i.n",
            "shape": f"{m} || 'x' || {n} || 'x' || {k}",
            "flops": f"2.0 * {m} * {n} * {k}",
            "m": m,
            "n": n,
            "k": k,
        },
        "problem",
        SHAPES,
    )
    per = MEASUREMENTS // SHAPES
    of_shape = f"(2 + (i.n - 2) / {per})"
    copy("run", {"id": "i.n", "problem_id": "i.n"}, "run", SHAPES)
    copy(
        "variant",
        {"id": "i.n", "problem_id": of_shape, "source_sha256": "i.n || ''"},
        "variant",
        MEASUREMENTS,
    )
    copy(
        "measurement",
        {"id": "i.n", "variant_id": "i.n", "run_id": of_shape},
        "measurement",
        MEASUREMENTS,
    )
    first = f"(2 + (i.n - 2) * {per})"
    copy(
        "best",
        {"id": "i.n", "problem_id": "i.n", "variant_id": first, "measurement_id": first},
        "best",
        SHAPES,
    )
    connection.commit()
    assert connection.execute("SELECT count(*) FROM measurement").fetchone()[0] > MEASUREMENTS
    assert connection.execute("SELECT count(*) FROM best").fetchone()[0] == SHAPES + 1
    connection.close()
    return path


def median_ms(path: Path, problems: list[Problem]) -> float:
    times = []
    for problem in problems:
        begun = time.perf_counter()
        answer(problem, arch=75, store=path, check=fits)
        times.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(times)


def test_warm(full: Path) -> None:
    shapes: list[Problem] = [cube(64 * (1 + n)) for n in range(50)]
    found = [answer(problem, arch=75, store=full, check=fits) for problem in shapes]
    assert found[0].match is Match.exact
    assert {f.match for f in found[1:]} == {Match.near_shape}
    assert median_ms(full, shapes * 20) < 1


def test_first_time_for_a_shape(full: Path) -> None:
    """Nothing kept yet: the row by its index, or a walk through part of the store."""
    near: list[Problem] = [Sgemm(m=64 + 4 * n, n=2048 + 8 * n, k=1024) for n in range(100)]
    assert median_ms(full, near) < 25
    _books.clear()
    exact = []
    for _ in range(30):
        _books.clear()
        answer(cube(4096), arch=75, store=full, check=fits)
        begun = time.perf_counter()
        answer(cube(64), arch=75, store=full, check=fits)
        exact.append((time.perf_counter() - begun) * 1e3)
    assert statistics.median(exact) < 1


def test_memory_stays_bounded(full: Path) -> None:
    def many(first: int) -> None:
        for n in range(first, first + 100):
            for _ in range(50):
                answer(cube(4 * n), arch=75, store=full, check=fits)

    many(16)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    many(16)
    # KiB on Linux.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2048


LOOP_S = 0.05
"""What `loop_s` gives on the machine that the limits are meant for, when nothing else runs."""


ALLOWED = 1.5


def loop_s() -> float:
    """CPU time of a loop: how fast this core is at the moment. Shared ones vary by half."""
    begun, total = time.process_time(), 0
    for i in range(1_000_000):
        total += i % 7
    return time.process_time() - begun


def cpu_seconds(code: str, *arguments: object) -> float:
    """The least of a few fresh interpreters, their start included.

    CPU time, since other work of the machine is none of ours; on a core that is slow at the moment
    as much less as a loop takes longer there, but no more than by `ALLOWED`.
    """
    times = []
    # Modules are compiled by the first, as by the first of any user.
    cached = {key: os.environ[key] for key in os.environ if key != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(12):
        slower = min(max(1.0, loop_s() / LOOP_S), ALLOWED)
        begun = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-c", code, *map(str, arguments)]
        ran = subprocess.run(command, capture_output=True, text=True, env=cached)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime
        times.append(spent / slower)
        assert ran.returncode == 0, ran.stderr
    return min(times)


@pytest.mark.parametrize("shape", ["1024, 1024, 1024", "1000, 1001, 1003"])
def test_cold(full: Path, shape: str) -> None:
    code = (
        "import sys; from autotune.lookup import lookup; "
        f"lookup({shape}, arch=75, store=sys.argv[1])"
    )
    assert cpu_seconds(code, full) < 0.3


def test_importing_the_package() -> None:
    assert cpu_seconds("import autotune") < 0.1
