"""Live devices: which there are, which one is meant, and the state they are in.

State (clocks, temperature, power) comes from NVML where `nvidia-ml-py` is installed. NVML numbers
devices by bus, CUDA often by speed: they are matched by UUID, then bus id, never by number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from autotune import gpu, settings
from autotune.errors import AutotuneError, DeviceError
from autotune.types import Conditions, Device

logger = logging.getLogger("autotune")

_REASONS = {
    0x002: "applications_clocks",
    0x004: "power_cap",
    0x008: "hardware_slowdown",
    0x010: "sync_boost",
    0x020: "thermal_slowdown",
    0x040: "hardware_thermal_slowdown",
    0x080: "power_brake",
    0x100: "display_clocks",
}
"""Bits of NVML's clock event reasons. Bit 0, idle, does not hold a device back."""


def devices(door: gpu.Door | None = None) -> list[Device]:
    """The GPUs that CUDA shows to this process, in CUDA's order.

    Raises:
        DeviceError: there is no driver, or no GPU.
    """
    version = driver_version()
    return [
        replace(device, driver_version=device.driver_version or version)
        for device in (door or gpu.choose()).devices()
    ]


def select(
    arch: int | None = None, device: int | str | None = None, door: gpu.Door | None = None
) -> Device:
    """The one GPU that is meant.

    Args:
        arch: Only a GPU of this architecture will do.
        device: CUDA index, or UUID, whole or so much of its start as is unique; `AUTOTUNE_DEVICE`
            where it is None. Where neither says, the first that fits `arch`.

    Raises:
        DeviceError: no such GPU, or it has another architecture; the message lists what is there.
    """
    present = devices(door)
    device = settings.read("AUTOTUNE_DEVICE") if device is None else device
    listed = "; ".join(f"{d.index}: {d.name}, sm_{d.arch}, {d.uuid}" for d in present)
    if device is not None:
        found = [each for each in present if _is_named(each, str(device).strip())]
        if len(found) != 1:
            problem = "more than one device" if found else "no device"
            raise DeviceError(
                f"{problem} is called {str(device)!r} (a CUDA index or a UUID); present: {listed}"
            )
        if arch not in (None, found[0].arch):
            raise DeviceError(
                f"device {device} is a {found[0].name} with sm_{found[0].arch}, not sm_{arch}; "
                f"present: {listed}"
            )
        return found[0]
    for each in present:
        if arch in (None, each.arch):
            return each
    raise DeviceError(f"no device has sm_{arch}; present: {listed}")


def native() -> int:
    """The architecture of the GPU that is used when none is named.

    Raises:
        DeviceError: there is none.
    """
    return select().arch


def missing() -> list[str]:
    """What keeps this machine from measuring, or from measuring well, in words for people."""
    words = []
    try:
        devices()
    except AutotuneError as error:
        words.append(str(error))
    if find_spec("pycuda") is None:
        words.append(
            "pycuda is not installed, so kernels are timed through cuda-bindings; "
            "pip install 'autotune-cuda[gpu]' (builds against a CUDA toolkit)"
        )
    if (reason := _nvml_or_reason()[1]) is not None:
        words.append(f"clocks, temperature and power are not recorded: {reason}")
    return words


def driver_version() -> str:
    """The driver's own version, such as 580.95.05; empty where NVML does not say."""
    nvml = _nvml_or_reason()[0]
    version = _ask(nvml.nvmlSystemGetDriverVersion) if nvml else None
    return _text(version) if version else ""


class Monitor:
    """Reads the state of one GPU; every field is None where NVML cannot say."""

    def __init__(self, device: Device) -> None:
        self._nvml, reason = _nvml_or_reason()
        self._handle = self._find(device) if self._nvml else None
        if self._handle is None:
            _note(reason or f"NVML does not know {device.name} ({device.uuid}, {device.bus_id})")

    def _find(self, device: Device) -> Any:
        assert self._nvml is not None
        if device.uuid:
            handle = _ask(self._nvml.nvmlDeviceGetHandleByUUID, device.uuid)
            if handle is not None:
                return handle
        if device.bus_id:
            return _ask(self._nvml.nvmlDeviceGetHandleByPciBusId, device.bus_id)
        return None

    def conditions(self) -> Conditions:
        """The state now; a few of NVML's queries, some 0.1 ms."""
        nvml, handle = self._nvml, self._handle
        if nvml is None or handle is None:
            return Conditions()
        power_mw = _ask(nvml.nvmlDeviceGetPowerUsage, handle)
        reasons = _ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        return Conditions(
            sm_clock_mhz=_ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            memory_clock_mhz=_ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            temperature_c=_ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            power_w=None if power_mw is None else power_mw / 1000,
            throttle_reasons=None if reasons is None else reason_names(reasons),
        )

    def energy_j(self) -> float | None:
        """What the device has used since its driver was loaded, in J; renewed some ten times a
        second. None where it does not count."""
        if self._nvml is None or self._handle is None:
            return None
        energy_mj = _ask(self._nvml.nvmlDeviceGetTotalEnergyConsumption, self._handle)
        return None if energy_mj is None else energy_mj / 1000


def reason_names(bits: int) -> str:
    """Names of what holds the clocks back, comma-separated; empty when nothing does."""
    return ",".join(name for bit, name in _REASONS.items() if bits & bit)


def _is_named(device: Device, name: str) -> bool:
    if name.isdecimal():
        return device.index == int(name)
    # "GPU-" alone, or nothing, would name every device.
    digits = name.lower().removeprefix("gpu-")
    return bool(digits) and device.uuid.lower().removeprefix("gpu-").startswith(digits)


@cache
def _nvml_or_reason() -> tuple[ModuleType | None, str | None]:
    """NVML, started; or why there is none."""
    try:
        import pynvml
    except ImportError:
        return None, "nvidia-ml-py is not installed; pip install 'autotune-cuda[gpu]'"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return None, f"NVML does not start: {error}"
    return pynvml, None


def _ask(query: Callable[..., Any], *args: Any) -> Any:
    """The answer; None where this device, driver or container does not support the question."""
    nvml = _nvml_or_reason()[0]
    assert nvml is not None
    try:
        return query(*args)
    except nvml.NVMLError as error:
        _note(f"{getattr(query, '__name__', query)}: {error}")
        return None


@cache
def _once(text: str) -> None:
    logger.info(text)


def _note(reason: str) -> None:
    # One note a process: the reason rarely differs from one query to the next.
    if _once.cache_info().currsize == 0:
        _once(f"clocks, temperature, power or throttle reasons are partly unknown: {reason}")


def _text(raw: str | bytes) -> str:
    return raw.decode(errors="replace") if isinstance(raw, bytes) else raw
