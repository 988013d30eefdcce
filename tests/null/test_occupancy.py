import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest

from autotune import archs
from autotune.analysis.occupancy import occupancy
from autotune.errors import ArchitectureError, UsageError

NVIDIA = Path(__file__).parents[1] / "data" / "occupancy_cuda13.csv"


def nvidia_rows():
    with NVIDIA.open(newline="") as file:
        return [{name: int(text) for name, text in row.items()} for row in csv.DictReader(file)]


def test_textbook_example():
    sm = replace(
        archs.get(70),
        threads_per_sm=2048,
        registers_per_sm=65536,
        shared_bytes_per_sm=49152,
        shared_bytes_per_block_optin=49152,
    )
    assert sm.warps_per_sm == 64
    found = occupancy(threads=256, registers=32, shared_bytes=8192, limits=sm)
    assert (found.blocks, found.warps, found.fraction) == (6, 48, 0.75)
    assert found.limited_by == ("shared memory",)
    assert found.next_step == "shared bytes <= 6912 would give 7 blocks"
    assert found.reason == ""


def test_equals_nvidias_calculator():
    rows = nvidia_rows()
    assert len(rows) == 330
    for row in rows:
        sm = archs.get(row["arch"])
        found = occupancy(row["threads"], row["registers"], row["shared_bytes"], sm)
        assert found.blocks == row["blocks"], row
        assert bool(found.reason) == (row["blocks"] == 0), row


def test_the_next_step_is_enough_and_no_more_than_needed():
    checked = 0
    for row in nvidia_rows():
        sm = archs.get(row["arch"])
        kernel = {name: row[name] for name in ("threads", "registers", "shared_bytes")}
        now = occupancy(**kernel, limits=sm)
        promise = re.fullmatch(r"(.+) would give (\d+) blocks?", now.next_step)
        if promise is None:
            continue
        changed = {
            name.replace(" ", "_"): int(most)
            for name, most in (part.split(" <= ") for part in promise[1].split(" and "))
        }
        then = occupancy(**{**kernel, **changed}, limits=sm)
        assert then.blocks >= int(promise[2]) == now.blocks + 1, row
        # With fewer threads, the other limits may be wider than what is promised for both.
        for name, most in changed.items():
            if "threads" not in changed and (name, most) != ("registers", 255):
                more = occupancy(**{**kernel, **changed, name: most + 1}, limits=sm)
                assert more.blocks == now.blocks, (row, name)
        checked += 1
    assert checked > 200


@pytest.mark.parametrize(
    ("arch", "kernel", "blocks", "limited_by", "next_step"),
    [
        (90, (256, 96, 16640), 2, ("registers",), "registers <= 80 would give 3 blocks"),
        (75, (256, 128, 16640), 2, ("registers",), "registers <= 80 would give 3 blocks"),
        (75, (256, 64, 16640), 3, ("shared memory",), "shared bytes <= 16384 would give 4 blocks"),
        (
            75,
            (256, 96, 32768),
            2,
            ("registers", "shared memory"),
            "registers <= 80 and shared bytes <= 21760 would give 3 blocks",
        ),
        (75, (768, 32, 0), 1, ("threads",), "threads <= 512 would give 2 blocks"),
        (
            90,
            (32, 32, 0),
            32,
            ("blocks",),
            "an SM holds at most 32 blocks: only more threads per block help",
        ),
        (90, (1024, 32, 0), 2, ("threads", "registers"), ""),
    ],
)
def test_limiter_and_next_step(arch, kernel, blocks, limited_by, next_step):
    found = occupancy(*kernel, archs.get(arch))
    assert (found.blocks, found.limited_by, found.next_step) == (blocks, limited_by, next_step)


def test_registers_left_over_in_a_partition_serve_no_other():
    # 144 registers are 4608 a warp: the SM's 65536 would hold two blocks of 7 warps, but each of
    # its four partitions holds 3 warps.
    assert occupancy(224, 144, 0, archs.get(90)).blocks == 1
    assert occupancy(192, 144, 0, archs.get(90)).blocks == 2


@pytest.mark.parametrize(
    ("kernel", "reason", "next_step"),
    [
        (
            (1024, 128, 0),
            "128 registers x 1024 threads, allocated as 131072, sm_75 allows 65536 per block",
            "registers <= 64 would give 1 block",
        ),
        (
            (256, 64, 102400),
            "102400 bytes of shared memory per block, sm_75 allows 65536",
            "shared bytes <= 65536 would give 1 block",
        ),
        ((1056, 32, 0), "a block of 1056 threads, sm_75 allows 1024", None),
        ((32, 256, 0), "256 registers per thread, sm_75 allows 255", None),
    ],
)
def test_nothing_fits(kernel, reason, next_step):
    found = occupancy(*kernel, archs.get(75))
    assert (found.blocks, found.warps, found.fraction) == (0, 0, 0.0)
    assert found.reason.startswith(reason)
    if next_step:
        assert found.next_step == next_step


def test_shared_memory_around_its_limits():
    """Every limit exactly: 48 KiB, the opt-in, and one byte more."""
    hopper = archs.get(90)
    assert occupancy(256, 32, 48 * 1024, hopper).blocks == 4
    assert occupancy(256, 32, 227 * 1024, hopper).blocks == 1
    assert occupancy(256, 32, 227 * 1024 + 1, hopper).blocks == 0
    # Two blocks of 113 KiB use all 228 KiB, with the system's 1 KiB each.
    assert occupancy(256, 32, 113 * 1024, hopper).blocks == 2
    assert occupancy(256, 32, 113 * 1024 + 1, hopper).blocks == 1
    assert occupancy(256, 32, 64 * 1024, archs.get(75)).blocks == 1
    assert occupancy(256, 32, 64 * 1024 + 1, archs.get(75)).blocks == 0


def test_a_devices_own_limits_count():
    device = replace(archs.get(90).typical, shared_bytes_per_sm=100 * 1024, blocks_per_sm=3)
    assert occupancy(64, 32, 1024, device).blocks == 3
    assert occupancy(64, 32, 64 * 1024, device).blocks == 1
    assert occupancy(64, 32, 64 * 1024, archs.get(90).typical).blocks == 3
    with pytest.raises(ArchitectureError, match="sm_74 is not known"):
        occupancy(64, 32, 1024, replace(device, arch=74))


@pytest.mark.parametrize("kernel", [(0, 32, 0), (32, 0, 0), (32, 32, -1)])
def test_no_kernel_at_all(kernel):
    with pytest.raises(UsageError, match="describe no kernel"):
        occupancy(*kernel, archs.get(90))
