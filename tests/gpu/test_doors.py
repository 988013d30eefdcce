"""Both doors to the driver, on a GPU."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
from sources import cubin, plan, source

from autotune import device, gpu
from autotune.errors import DriverError
from autotune.measure import probe
from autotune.measure.bench import shortages
from autotune.measure.timing import Timer
from autotune.problems.sgemm import Sgemm
from autotune.types import Argument, Device, Launch

pytestmark = pytest.mark.gpu

PROBLEM = Sgemm.parse("1024x1024x1024")


@pytest.fixture(params=gpu.DOORS)
def door(request: pytest.FixtureRequest) -> gpu.Door:
    if request.param == "pycuda":
        pytest.importorskip("pycuda")
    return gpu.choose(request.param)


@pytest.fixture
def context(door: gpu.Door, live: Device) -> Iterator[gpu.Context]:
    with closing(door.open(live.index)) as context:
        yield context


def test_what_a_device_says_of_itself(door: gpu.Door, live: Device) -> None:
    found = device.devices(door)[live.index]
    assert found == live
    assert found.uuid.startswith("GPU-") and len(found.uuid) == 40
    assert found.bus_id.count(":") == 2
    assert found.arch >= 50 and found.sm_count > 0 and found.warp_size == 32
    assert found.driver >= 12000
    assert 1 < found.fp32_tflops < 1000 and 50 < found.bandwidth_gbs < 50000
    assert found.shared_bytes_per_block == 48 * 1024 <= found.shared_bytes_per_block_optin
    assert device.select(device=found.uuid, door=door) == found
    assert device.select(arch=found.arch, door=door).arch == found.arch == device.native()


def test_clocks_are_those_of_this_card(live: Device) -> None:
    if device._nvml_or_reason()[0] is None:
        pytest.skip("no NVML")
    state = device.Monitor(live).conditions()
    assert state.sm_clock_mhz is None or 100 <= state.sm_clock_mhz <= 4000
    assert state.power_w is None or 5 < state.power_w < 2000


def test_memory_goes_there_and_back(context: gpu.Context) -> None:
    free, total = context.memory()
    assert 0 < free <= total
    there, copy = context.allocate(4096), context.allocate(4096)
    assert there % 256 == copy % 256 == 0
    values = np.arange(1024, dtype=np.float32)
    context.upload(there, values)
    context.copy(copy, there, 4096)
    context.fill_words(copy, 0x7FC0DEAD, 2)
    context.fill_bytes(copy + 8, 0xFF, 4)
    back = np.empty(1024, np.uint32)
    context.download(back, copy)
    assert list(back[:3]) == [0x7FC0DEAD, 0x7FC0DEAD, 0xFFFFFFFF]
    assert np.array_equal(back.view(np.float32)[3:], values[3:])
    context.free(there)
    context.free(copy)


def test_both_doors_read_the_same_attributes(live: Device) -> None:
    pytest.importorskip("pycuda")
    seen = []
    for name in gpu.DOORS:
        with closing(gpu.choose(name).open(live.index)) as context:
            module = context.load(cubin(source(""), live.arch))
            kernel = module.kernel("naive")
            seen.append(
                (
                    kernel.registers,
                    kernel.local_bytes,
                    kernel.static_shared_bytes,
                    kernel.threads_per_block,
                    kernel.blocks_per_sm(256, 0),
                )
            )
            del kernel
            module.unload()
    assert seen[0] == seen[1]
    registers, local, shared, threads, blocks = seen[0]
    assert (local, shared, threads) == (0, 0, 256)
    assert 8 <= registers <= 255 and 1 <= blocks <= 8


def test_an_unknown_entry_is_named_by_the_driver(context: gpu.Context, live: Device) -> None:
    module = context.load(cubin(source(""), live.arch))
    with pytest.raises(DriverError) as caught:
        module.kernel("absent")
    assert caught.value.name == "CUDA_ERROR_NOT_FOUND"
    with pytest.raises(DriverError) as caught:
        context.load(b"no cubin\0")
    assert caught.value.name.startswith("CUDA_ERROR_INVALID_")


def test_both_doors_give_the_same_result_in_the_same_time(live: Device) -> None:
    pytest.importorskip("pycuda")
    code, checks = cubin(source(""), live.arch), probe.build(live.arch)
    generator = np.random.default_rng(0)
    size = PROBLEM.m
    inputs = {name: generator.standard_normal((size, size), np.float32) for name in "ab"}
    contexts, timers, runs, results, times = {}, {}, {}, {}, {}
    for name in gpu.DOORS:
        context = contexts[name] = gpu.choose(name).open(live.index)
        values: dict[str, int | float] = {"alpha": 1.0}
        for operand in "abc":
            values[operand] = context.allocate(4 * size * size)
        for operand, array in inputs.items():
            context.upload(int(values[operand]), array)
        context.fill_words(int(values["c"]), 0x7FC0DEAD, size * size)
        runs[name] = context.load(code).prepare(plan(PROBLEM).launches[0], values)
        timers[name] = Timer(context, probe.Probe(context, checks), device.Monitor(live))
        runs[name]()
        results[name] = np.empty((size, size), np.float32)
        context.download(results[name], int(values["c"]))
        times[name] = []
    for name in gpu.DOORS:
        timers[name].warm_up(runs[name], 1e6, 200)
    for turn in range(20):
        for name in gpu.DOORS if turn % 2 else reversed(gpu.DOORS):
            times[name] += timers[name].sample(runs[name], 3, cold=True)
    for name in reversed(gpu.DOORS):
        contexts[name].close()
    assert np.array_equal(results["pycuda"], results["cuda-bindings"])
    expected = inputs["a"].astype(np.float64) @ inputs["b"]
    assert np.allclose(results["pycuda"], expected, rtol=0, atol=1e-3)
    ratio = statistics.median(times["pycuda"]) / statistics.median(times["cuda-bindings"])
    assert abs(ratio - 1) < 0.01, times


SHARED = """\
extern "C" __global__ void fill(unsigned *out, int words) {
    extern __shared__ unsigned memory[];
    for (int i = threadIdx.x; i < words; i += blockDim.x) {
        memory[i] = i * 2654435761u;
    }
    __syncthreads();
    unsigned sum = 0;
    for (int i = threadIdx.x; i < words; i += blockDim.x) {
        sum += memory[words - 1 - i];
    }
    atomicAdd(out, sum);
}
"""


@pytest.mark.parametrize("kib", [47, 48, 49, 64, 96])
def test_shared_memory_beyond_the_default(context: gpu.Context, live: Device, kib: int) -> None:
    words = kib * 256
    launch = Launch(
        entry="fill",
        grid=(1, 1, 1),
        block=(128, 1, 1),
        shared_bytes=kib * 1024,
        arguments=(
            Argument(kind="operand", name="out"),
            Argument(kind="int32", name="words", value=words),
        ),
    )
    module = context.load(cubin(SHARED, live.arch))
    shortage = shortages(module.kernel("fill"), launch, live)
    if kib * 1024 > live.shared_bytes_per_block_optin:
        assert f"wants {kib * 1024} bytes" in shortage
        with pytest.raises(DriverError):
            module.prepare(launch, {"out": 0})
        return
    assert shortage == ""
    out = context.allocate(4)
    context.fill_bytes(out, 0, 4)
    module.prepare(launch, {"out": out})()
    found = np.empty(1, np.uint32)
    context.download(found, out)
    expected = np.arange(words, dtype=np.uint32) * np.uint32(2654435761)
    assert found[0] == expected.sum(dtype=np.uint32)
    context.free(out)


def test_the_probe_counts_and_sums(context: gpu.Context, live: Device) -> None:
    checks = probe.Probe(context, probe.build(live.arch))
    words = 1_000_003
    x, y = context.allocate(4 * words), context.allocate(4 * words)
    values = np.random.default_rng(0).integers(1, 2**31, words, np.uint32)
    values[:2] = 0, 7
    context.upload(x, values)
    context.upload(y, values)
    before = checks.checksum(x, words)
    assert before == checks.checksum(x, words) == checks.checksum(y, words)
    assert checks.differences(x, y, words) == 0
    for place in (1, words // 2, words - 1):
        context.fill_words(y + 4 * place, 0x7FC0DEAD, 1)
    assert checks.differences(x, y, words) == 3
    context.fill_words(y, 0x80000000, 1)
    assert checks.differences(x, y, words) == 3, "minus zero is zero"
    swapped = values.copy()
    swapped[[5, 6]] = swapped[[6, 5]]
    context.upload(y, swapped)
    assert checks.checksum(y, words) != before
    context.free(x)
    context.free(y)


def test_the_callers_context_is_current_again(door: gpu.Door, live: Device) -> None:
    from cuda.bindings import driver

    before = int(driver.cuCtxGetCurrent()[1])
    context = door.open(live.index)
    assert int(driver.cuCtxGetCurrent()[1]) != 0
    context.close()
    context.close()
    assert int(driver.cuCtxGetCurrent()[1]) == before


def test_a_forked_child_is_told_the_rule() -> None:
    code = """
import os
from autotune import gpu
from autotune.errors import DriverError
gpu.choose("cuda-bindings").devices()
child = os.fork()
if child == 0:
    try:
        gpu.choose("cuda-bindings").devices()
    except DriverError as error:
        print(error, flush=True)
        os._exit(7)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "CUDA was started before this process was forked" in done.stdout, done.stderr
    assert done.stdout.endswith("7\n")
