from dataclasses import replace

import pytest

from autotune import archs
from autotune.analysis.roofline import roofline
from autotune.errors import DeviceError
from autotune.problems.sgemm import Sgemm

H200 = archs.get(90).typical


def test_a_square_is_bound_by_compute():
    found = roofline(Sgemm(m=4096, n=4096, k=4096), H200)
    assert found.flops == 137_438_953_472
    assert found.bytes_min == 3 * 4096 * 4096 * 4
    assert found.intensity == pytest.approx(4096 / 6)
    # 132 SMs x 128 cores x 2 x 1.98 GHz = 66.9 TFLOP/s; 2 x 3.201 GHz x 6144 bit = 4.917 TB/s
    assert found.balance == pytest.approx(66.908 / 4.9167, rel=1e-3)
    assert found.bound == "compute"
    assert found.time_ns == found.compute_ns == pytest.approx(2_054_127, rel=1e-4)
    assert found.memory_ns == pytest.approx(40_947, rel=1e-3)


def test_a_vector_is_bound_by_memory():
    found = roofline(Sgemm(m=1, n=8192, k=8192), H200)
    assert found.intensity == pytest.approx(0.4999, rel=1e-3)
    assert found.bound == "memory"
    assert found.time_ns == found.memory_ns == pytest.approx(54_606, rel=1e-3)


def test_reading_c_counts():
    plain, updating = (
        roofline(Sgemm(m=4096, n=4096, k=16, beta_zero=beta_zero), H200)
        for beta_zero in (True, False)
    )
    c_bytes = 4096 * 4096 * 4
    assert updating.bytes_min - plain.bytes_min == c_bytes
    assert updating.memory_ns - plain.memory_ns == pytest.approx(c_bytes / H200.bandwidth_gbs)


def test_tera_is_ten_to_the_twelve():
    """A device of 1 TFLOP/s and 1 GB/s, with round numbers."""
    device = replace(
        H200,
        sm_count=1,
        cores_per_sm=500,
        sm_clock_khz=1_000_000,
        memory_clock_khz=500_000,
        memory_bus_bits=8,
    )
    found = roofline(Sgemm(m=100, n=100, k=100), device)
    assert found.compute_ns == pytest.approx(2_000_000 / 1000)
    assert found.memory_ns == pytest.approx(120_000)
    assert found.balance == pytest.approx(1000)


@pytest.mark.parametrize("clock", ["sm_clock_khz", "memory_clock_khz"])
def test_a_device_without_clocks(clock):
    with pytest.raises(DeviceError, match="take the typical device of sm_90"):
        roofline(Sgemm(m=1, n=1, k=1), replace(H200, **{clock: 0}))
