"""What searches on a fake GPU share: compilers that answer at once, and a short way to search."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fake_door import DEVICE, PROBE, FakeDoor, Spec

from autotune.compile import Compiler
from autotune.measure import Worker
from autotune.problems.sgemm import Sgemm
from autotune.search import Budget, Report, Tried, batch, search
from autotune.store import Store
from autotune.types import Binary, Config, Failure, Problem

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

    def submit(
        self, source: str, arch: int, *, timeout_s: float = 60.0
    ) -> Future[Binary | Failure]:
        self.sources.append(source)
        future: Future[Binary | Failure] = Future()
        future.set_result(self.make(self.problem, source))
        return future

    def __enter__(self) -> FakePool:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def install(pool: FakePool, put: Callable[[object, str, object], None]) -> None:
    put(batch, "Pool", lambda compiler, jobs: pool)
    put(batch, "Worker", partial(Worker, probe_cubin=PROBE))
    put(batch, "target", lambda arch, name, door=None: (DEVICE, ""))
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
