"""Where figures come from: what every file of results says at its head."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from typing import Any

from autotune import assets, rows
from autotune.types import Device

UNKNOWN = "unknown"


def origin(device: Device, compiler: str, door: str, commit: str | None) -> dict[str, Any]:
    """Device, driver, compiler, door, commit and date.

    Args:
        commit: What runs, where git cannot tell; None asks git, and is `unknown` without it.
    """
    return {
        "device": device.name,
        "arch": device.arch,
        "sm_count": device.sm_count,
        "driver": device.driver_version,
        "cuda": device.driver,
        "peak_tflops": round(device.fp32_tflops, 2),
        "bandwidth_gbs": round(device.bandwidth_gbs, 1),
        "compiler": compiler,
        "door": door,
        "python": platform.python_version(),
        "autotune": rows.package_version(),
        "commit": commit or assets.revision() or UNKNOWN,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
