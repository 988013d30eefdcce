"""Devices: their figures, which one is meant, what is missing. NVML and door are faked."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest
from fake_door import DEVICE, FakeDoor

from autotune import archs, device, gpu
from autotune.errors import DeviceError, DriverError, MissingExtraError, TemplateError, UsageError
from autotune.types import Argument, Conditions, Device, Launch

RTX_4090 = archs.get(89).typical
FIRST = replace(DEVICE, uuid="GPU-11111111-aaaa", name="Tesla T4")
SECOND = replace(RTX_4090, index=1, uuid="GPU-22222222-bbbb", bus_id="0000:5e:00.0")


class TwoDevices(FakeDoor):
    def devices(self) -> list[Device]:
        return [FIRST, SECOND]


@pytest.fixture(autouse=True)
def no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    use_nvml(monkeypatch, None, "planted")
    monkeypatch.delenv("AUTOTUNE_DEVICE", raising=False)
    monkeypatch.delenv("AUTOTUNE_DOOR", raising=False)
    device._once.cache_clear()


def use_nvml(monkeypatch: pytest.MonkeyPatch, nvml: object, reason: str | None) -> None:
    monkeypatch.setattr(device, "_nvml_or_reason", lambda: (nvml, reason))


def test_figures_of_an_rtx_4090() -> None:
    measured = replace(
        RTX_4090,
        sm_count=128,
        sm_clock_khz=2_520_000,
        memory_clock_khz=10_501_000,
        memory_bus_bits=384,
    )
    assert f"{measured.fp32_tflops:.6f}" == "82.575360"
    assert round(measured.bandwidth_gbs) == 1008


@pytest.mark.parametrize(
    ("arch", "name", "index"),
    [
        (None, None, 0),
        (75, None, 0),
        (89, None, 1),
        (None, 1, 1),
        (None, "1", 1),
        (89, "1", 1),
        (None, "GPU-22222222-bbbb", 1),
        (None, "gpu-2222", 1),
        (None, "GPU-1", 0),
    ],
)
def test_select(arch: int | None, name: int | str | None, index: int) -> None:
    assert device.select(arch, name, TwoDevices()).index == index


def test_select_follows_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_DEVICE", "GPU-22222222-bbbb")
    assert device.select(door=TwoDevices()) == SECOND
    assert device.select(device=0, door=TwoDevices()) == FIRST, "an argument beats it"


@pytest.mark.parametrize(
    ("arch", "name", "message"),
    [
        (90, None, "no device has sm_90"),
        (None, 2, "no device is called '2'"),
        (None, "GPU-", "no device is called"),
        (None, "", "no device is called"),
        (89, 0, "device 0 is a Tesla T4 with sm_75, not sm_89"),
    ],
)
def test_select_lists_what_is_there(arch: int | None, name: object, message: str) -> None:
    with pytest.raises(DeviceError, match=message) as caught:
        device.select(arch, name, TwoDevices())  # type: ignore[arg-type]
    assert "1: NVIDIA GeForce RTX 4090, sm_89, GPU-22222222-bbbb" in str(caught.value)


class Nvml(ModuleType):
    """Knows the second device by bus id only, and answers some questions."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.asked: list[object] = []

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.95.05"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        self.asked.append(uuid)
        raise self.NVMLError("not found")

    def nvmlDeviceGetHandleByPciBusId(self, bus_id: str) -> str:
        self.asked.append(bus_id)
        return f"handle of {bus_id}"

    def nvmlDeviceGetClockInfo(self, handle: str, clock: int) -> int:
        assert handle == "handle of 0000:5e:00.0"
        return {1: 1980, 2: 3201}[clock]

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        raise self.NVMLError("not supported")

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return 650_500

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return 0x1 | 0x4 | 0x40


def test_state_comes_from_the_same_card_and_gaps_stay_empty(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nvml = Nvml()
    use_nvml(monkeypatch, nvml, None)
    caplog.set_level(logging.INFO, "autotune")
    monitor = device.Monitor(SECOND)
    for _ in range(3):
        assert monitor.conditions() == Conditions(
            sm_clock_mhz=1980,
            memory_clock_mhz=3201,
            temperature_c=None,
            power_w=650.5,
            throttle_reasons="power_cap,hardware_thermal_slowdown",
        )
    assert nvml.asked == ["GPU-22222222-bbbb", "0000:5e:00.0"], "by identity, never by number"
    assert len(caplog.records) == 1, "one note, not one a query"
    assert device.devices(TwoDevices())[0].driver_version == "580.95.05"


def test_without_nvml_everything_is_unknown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "autotune")
    assert device.Monitor(FIRST).conditions() == Conditions()
    assert device.Monitor(SECOND).conditions() == Conditions()
    assert [record.message for record in caplog.records] == [
        "clocks, temperature, power or throttle reasons are partly unknown: planted"
    ]
    assert device.driver_version() == ""


def test_idle_does_not_count_as_held_back() -> None:
    assert device.reason_names(0x1) == ""
    assert device.reason_names(0x8 | 0x80) == "hardware_slowdown,power_brake"


def test_missing_says_what_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str | None = None) -> gpu.Door:
        raise DeviceError("there is no NVIDIA driver: libcuda.so.1 does not load")

    monkeypatch.setattr(gpu, "choose", absent)
    monkeypatch.setattr(device, "find_spec", lambda name: None)
    words = device.missing()
    assert len(words) == 3
    assert words[0].startswith("there is no NVIDIA driver")
    assert "autotune-cuda[gpu]" in words[1]
    assert words[2] == "clocks, temperature and power are not recorded: planted"


# --- the door ---------------------------------------------------------------------------------


def fake_bindings(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("autotune.gpu.bindings")
    module.start = lambda: None  # type: ignore[attr-defined]
    module.Bindings = lambda: SimpleNamespace(name="cuda-bindings")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "autotune.gpu.bindings", module)
    return module


def test_choose_prefers_pycuda_and_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_bindings(monkeypatch)
    monkeypatch.delitem(sys.modules, "autotune.gpu.pycuda", raising=False)
    monkeypatch.setitem(sys.modules, "pycuda", None)
    assert gpu.choose().name == "cuda-bindings"
    working = ModuleType("autotune.gpu.pycuda")
    working.PyCuda = lambda: SimpleNamespace(name="pycuda")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "autotune.gpu.pycuda", working)
    assert gpu.choose().name == "pycuda"
    assert gpu.choose("cuda-bindings").name == "cuda-bindings"
    monkeypatch.setenv("AUTOTUNE_DOOR", "cuda-bindings")
    assert gpu.choose().name == "cuda-bindings"


def test_choose_names_the_extra_for_an_absent_pycuda(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_bindings(monkeypatch)
    monkeypatch.delitem(sys.modules, "autotune.gpu.pycuda", raising=False)
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.setenv("AUTOTUNE_DOOR", "pycuda")
    with pytest.raises(MissingExtraError, match=r"pip install 'autotune-cuda\[gpu\]'"):
        gpu.choose()


def test_choose_refuses_an_unknown_door() -> None:
    with pytest.raises(UsageError, match=r"'hip' is not a door.*pycuda, cuda-bindings"):
        gpu.choose("hip")


def test_choose_says_that_there_is_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    from autotune.gpu import bindings

    def not_found(flags: int) -> None:
        raise RuntimeError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(bindings.driver, "cuInit", not_found)
    with pytest.raises(DeviceError, match=r"there is no NVIDIA driver.*--arch 75"):
        gpu.choose()


def test_choose_says_that_the_driver_shows_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from autotune.gpu import bindings

    def no_device(flags: int) -> tuple[object]:
        return (bindings.driver.CUresult.CUDA_ERROR_NO_DEVICE,)

    monkeypatch.setattr(bindings.driver, "cuInit", no_device)
    with pytest.raises(DeviceError, match="shows no GPU to this process; check CUDA_VISIBLE_DEV"):
        gpu.choose()


def test_a_forked_child_is_told_the_fork_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    from autotune.gpu import bindings

    monkeypatch.setattr(bindings, "_started_in_process", os.getpid() - 1)
    with pytest.raises(DriverError, match=r"before this process was forked.*'spawn'"):
        bindings.call(bindings.driver.cuDriverGetVersion)


def test_importing_touches_no_driver() -> None:
    code = (
        "import sys, autotune, autotune.device, autotune.gpu, autotune.measure\n"
        "names = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(names & {'cuda', 'pycuda', 'pynvml', 'cupy'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_uuids_are_written_as_nvidia_smi_does() -> None:
    from autotune.gpu import bindings

    raw = bytes.fromhex("0123456789abcdef0123456789abcdef")
    assert bindings._uuid_text(raw) == "GPU-01234567-89ab-cdef-0123-456789abcdef"


def test_arguments_get_the_width_that_the_kernel_declares() -> None:
    launch = Launch(
        entry="kernel",
        grid=(1, 1, 1),
        block=(1, 1, 1),
        shared_bytes=0,
        arguments=(
            Argument(kind="operand", name="a"),
            Argument(kind="int32", name="m", value=7),
            Argument(kind="int64", name="stride", value=2**40),
            Argument(kind="float32", name="alpha"),
        ),
    )
    packed = gpu.pack(launch, {"a": 2**47, "alpha": 1})
    assert [(type(value).__name__, value) for value in packed] == [
        ("uint64", 2**47),
        ("int32", 7),
        ("int64", 2**40),
        ("float32", 1.0),
    ]
    with pytest.raises(
        TemplateError, match="takes float32 'alpha', which neither problem nor plan has"
    ):
        gpu.pack(launch, {"a": 1})
