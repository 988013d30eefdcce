"""The least time that a device can need for a problem, and which of its rates sets it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autotune.errors import DeviceError
from autotune.types import Device, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """A problem against the two rates of a device.

    Attributes:
        flops: Floating-point operations of the problem.
        bytes_min: Fewest bytes to and from device memory.
        intensity: FLOP per byte of the problem.
        balance: FLOP per byte at which the device's two rates are equally busy.
        compute_ns: The operations at the theoretical FP32 rate.
        memory_ns: The bytes at the theoretical bandwidth. Data that already lies in the L2 cache
            does not need it: with a warm cache only `compute_ns` is a floor.
    """

    flops: int
    bytes_min: int
    intensity: float
    balance: float
    compute_ns: float
    memory_ns: float

    @property
    def bound(self) -> Literal["compute", "memory"]:
        """The rate that sets the least time."""
        return "compute" if self.compute_ns >= self.memory_ns else "memory"

    @property
    def time_ns(self) -> float:
        """Least time with a cold L2 cache."""
        return max(self.compute_ns, self.memory_ns)


def roofline(problem: Problem, device: Device) -> Roofline:
    """Places a problem under the roofline of a device.

    Raises:
        DeviceError: the device's clocks are not known.
    """
    if device.fp32_tflops <= 0 or device.bandwidth_gbs <= 0:
        raise DeviceError(
            f"{device.name} reports an SM clock of {device.sm_clock_khz} kHz and a memory clock of "
            f"{device.memory_clock_khz} kHz: without both there is no roofline; "
            f"take the typical device of sm_{device.arch}"
        )
    flops_per_ns = device.fp32_tflops * 1e3
    bytes_per_ns = device.bandwidth_gbs
    return Roofline(
        flops=problem.flops,
        bytes_min=problem.bytes_min,
        intensity=problem.flops / problem.bytes_min,
        balance=flops_per_ns / bytes_per_ns,
        compute_ns=problem.flops / flops_per_ns,
        memory_ns=problem.bytes_min / bytes_per_ns,
    )
