"""Small builders that the tests of store and look-up share."""

from __future__ import annotations

from pathlib import Path

from autotune import archs
from autotune.problems.sgemm import Sgemm
from autotune.store import Store, VariantRow
from autotune.types import Config, Device, Measurement, Outcome, Stage

T4 = archs.get(75).typical
TEMPLATE = "t" * 64
COMPILER = "nvrtc 13.5"


def live(device: Device = T4, **changes: object) -> Device:
    """A device as the driver of this machine would report it."""
    from dataclasses import replace

    values = {"index": 0, "driver": 13000, "driver_version": "580.65", "uuid": "GPU-1", **changes}
    return replace(device, **values)  # type: ignore[arg-type]


def cube(size: int, **options: object) -> Sgemm:
    return Sgemm(m=size, n=size, k=size, **options)  # type: ignore[arg-type]


def config(number: int = 0) -> Config:
    return Config({"block_m": 128, "number": number, "order": "row"})


def variant(number: int = 0, **changes: object) -> VariantRow:
    values: dict[str, object] = {
        "config": config(number),
        "arch": 75,
        "template_sha256": TEMPLATE,
        "source_sha256": f"source{number}",
        "compiler": COMPILER,
        "registers": 96,
        "shared_bytes": 16640,
        "spill_bytes": 0,
        "stack_bytes": 0,
        "cubin_sha256": f"cubin{number}",
        **changes,
    }
    return VariantRow(**values)  # type: ignore[arg-type]


def timed(median_ns: float, stage: Stage = Stage.confirm, **changes: object) -> Measurement:
    values: dict[str, object] = {
        "outcome": Outcome.ok,
        "stage": stage,
        "samples": 30,
        "median_ns": median_ns,
        "p20_ns": median_ns * 0.99,
        "p80_ns": median_ns * 1.01,
        "min_ns": median_ns * 0.98,
        "max_error": 0.25,
        "checks": "exact, fp64",
        "door": "pycuda",
        **changes,
    }
    return Measurement(**values)  # type: ignore[arg-type]


def failed(outcome: Outcome, message: str = "why", stage: Stage = Stage.search) -> Measurement:
    return Measurement(outcome=outcome, stage=stage, message=message)


def tune(
    path: Path,
    problem: Sgemm,
    times_ns: dict[int, float],
    device: Device | None = None,
    **changes: object,
) -> int:
    """One run with a confirm round over configs by number; returns the id of the best."""
    device = device or live()
    with Store.open(path) as store:
        run = store.begin_run(problem, device, compiler=COMPILER)
        ids = [
            store.record(run, variant(number, **{"arch": device.arch, **changes}), timed(time_ns))
            for number, time_ns in times_ns.items()
        ]
        confirmation = store.confirm(run, ids)
        store.end_run(run, "finished")
    assert confirmation is not None
    return confirmation.best_id
