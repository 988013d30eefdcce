"""Occupancy as the driver counts it, for some 3000 combinations on the GPU at hand."""

import pytest
from cuda.bindings import driver, nvrtc

from autotune import archs, settings
from autotune.analysis.occupancy import occupancy

pytestmark = pytest.mark.gpu

# Many live values, so that the register limit of each compilation is what decides.
SOURCE = r"""
extern "C" __global__ void busy(const float* a, float* b) {
  extern __shared__ float s[];
  float v[200];
#pragma unroll
  for (int i = 0; i < 200; ++i) v[i] = a[threadIdx.x + i * 1024];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 200; ++i) b[threadIdx.x * i] = v[i] * v[199 - i] + s[threadIdx.x];
}
"""
REGISTERS = (24, 32, 40, 48, 64, 72, 80, 96, 104, 128, 144, 160, 168, 200, 255)
THREADS = (32, 64, 96, 128, 192, 224, 256, 320, 384, 512, 768, 1000, 1024)
DIVISORS = (1, 2, 3, 5, 8)


def ok(result):
    assert result[0].value == 0, result
    return result[1] if len(result) == 2 else result[1:]


@pytest.fixture(scope="module")
def device():
    try:
        is_usable = driver.cuInit(0)[0].value == 0
    except RuntimeError:  # no driver library
        is_usable = False
    if not is_usable:
        if settings.read("AUTOTUNE_REQUIRE_GPU") == "1":
            pytest.fail("AUTOTUNE_REQUIRE_GPU=1, but the driver cannot be initialised")
        pytest.skip("no GPU")
    handle = ok(driver.cuDeviceGet(0))
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(handle))))
    yield handle
    ok(driver.cuDevicePrimaryCtxRelease(handle))


def compiled(arch: int, registers: int) -> bytes:
    program = ok(nvrtc.nvrtcCreateProgram(SOURCE.encode(), b"busy.cu", 0, [], []))
    options = [f"--gpu-architecture=sm_{arch}".encode(), f"--maxrregcount={registers}".encode()]
    ok(nvrtc.nvrtcCompileProgram(program, len(options), options))
    cubin = bytearray(ok(nvrtc.nvrtcGetCUBINSize(program)))
    ok(nvrtc.nvrtcGetCUBIN(program, cubin))
    return bytes(cubin)


def test_equals_the_driver(device):
    attribute = driver.CUdevice_attribute
    major, minor = (
        ok(driver.cuDeviceGetAttribute(which, device))
        for which in (
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )
    )
    sm = archs.get(major * 10 + minor)
    compared = 0
    blocks_seen = set()
    for limit in REGISTERS:
        module = ok(driver.cuModuleLoadData(compiled(sm.number, limit)))
        function = ok(driver.cuModuleGetFunction(module, b"busy"))
        which = driver.CUfunction_attribute
        registers = ok(driver.cuFuncGetAttribute(which.CU_FUNC_ATTRIBUTE_NUM_REGS, function))
        ok(
            driver.cuFuncSetAttribute(
                function,
                which.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                sm.shared_bytes_per_block_optin,
            )
        )
        sizes = {0, 1, 8192, 16640, 48 * 1024, 48 * 1024 + 1, sm.shared_bytes_per_block_optin}
        sizes |= {
            min(sm.shared_bytes_per_sm // divisor - 1024 + more, sm.shared_bytes_per_block_optin)
            for divisor in DIVISORS
            for more in (0, 1)
        }
        for threads in THREADS:
            for shared in sorted(sizes):
                counted = ok(
                    driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, threads, shared)
                )
                found = occupancy(threads, registers, shared, sm)
                assert found.blocks == counted, (threads, registers, shared, found)
                blocks_seen.add(counted)
                compared += 1
        ok(driver.cuModuleUnload(module))
    assert compared >= 300
    assert len(blocks_seen) >= 8
