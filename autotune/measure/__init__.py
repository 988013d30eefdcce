"""Verified times of kernels on one GPU.

`Worker` is the parent's side (worker.py) of a process (child.py) that owns the device's context
and takes each candidate through load, verify, time and verify again (bench.py), on memory that
stays from one candidate to the next (arena.py), with small kernels of its own (probe.py). Confirm
rounds go from place to place (places.py).
What a kernel draws is a job of its own (power.py).
"""

from autotune.measure.arena import require_memory
from autotune.measure.bench import launches_a_round, rounds_for
from autotune.measure.jobs import AnyJob, Job, Limits, VendorJob
from autotune.measure.lock import DeviceLock
from autotune.measure.power import Power
from autotune.measure.vendor import library as vendor_library
from autotune.measure.vendor import missing as vendor_missing
from autotune.measure.worker import Worker

__all__ = [
    "AnyJob",
    "DeviceLock",
    "Job",
    "Limits",
    "Power",
    "VendorJob",
    "Worker",
    "launches_a_round",
    "require_memory",
    "rounds_for",
    "vendor_library",
    "vendor_missing",
]
