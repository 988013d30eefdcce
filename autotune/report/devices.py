"""What a GPU is, as its owner checks it first."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from autotune.report import text
from autotune.report.tables import table
from autotune.types import Device


def row(device: Device) -> dict[str, Any]:
    """Every field of the device, and the two rates that follow from them."""
    return {
        **dataclasses.asdict(device),
        "bandwidth_gbs": device.bandwidth_gbs,
        "fp32_tflops": device.fp32_tflops,
    }


def properties(device: Device) -> dict[str, str]:
    """Label to value, in words."""
    driver = f"CUDA {device.driver // 1000}.{device.driver % 1000 // 10}"
    return {
        "name": device.name,
        "architecture": f"sm_{device.arch}",
        "index": str(device.index),
        "UUID": device.uuid or text.DASH,
        "bus id": device.bus_id or text.DASH,
        "SMs": str(device.sm_count),
        "cores per SM": str(device.cores_per_sm),
        "SM clock": f"{device.sm_clock_khz / 1e3:.0f} MHz",
        "theoretical FP32": f"{device.fp32_tflops:.6f} TFLOP/s",
        "memory": text.size(device.memory_bytes),
        "memory bus": f"{device.memory_bus_bits} bit at {device.memory_clock_khz / 1e3:.0f} MHz",
        "theoretical bandwidth": f"{device.bandwidth_gbs:.0f} GB/s",
        "L2 cache": text.size(device.l2_bytes),
        "shared memory per block": (
            f"{text.size(device.shared_bytes_per_block)}, "
            f"up to {text.size(device.shared_bytes_per_block_optin)} on request"
        ),
        "shared memory per SM": text.size(device.shared_bytes_per_sm),
        "registers per SM": str(device.registers_per_sm),
        "threads per block": str(device.threads_per_block),
        "threads per SM": str(device.threads_per_sm),
        "blocks per SM": str(device.blocks_per_sm),
        "warp size": str(device.warp_size),
        "block dimensions": " x ".join(map(str, device.block_dimensions)),
        "grid dimensions": " x ".join(map(str, device.grid_dimensions)),
        "driver": f"{device.driver_version}, {driver}" if device.driver_version else driver,
    }


def devices(present: Sequence[Device]) -> Table:
    """One column a device."""
    columns = [properties(device) for device in present]
    rows = [[label, *(column[label] for column in columns)] for label in columns[0]]
    headings = ["", *(f"device {device.index}" for device in present)]
    return table(headings, rows, left=headings)
