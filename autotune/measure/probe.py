"""Kernels of our own that look after the measured ones: comparing, check sums, reading, waiting.

Comparing on the device keeps the check of a 64 MB result at some 50 us where reading it back and
comparing on the host takes 30 ms. Each run of a worker proves them first: doing nothing must fail.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autotune.errors import CompilerError
from autotune.gpu import Context
from autotune.types import Argument, Failure, Launch

SOURCE = """\
// Words that differ; zeros of either sign are equal.
extern "C" __global__ void autotune_differences(const unsigned *x, const unsigned *y,
                                                long long words, unsigned long long *found) {
    const long long step = (long long)gridDim.x * blockDim.x;
    unsigned long long mine = 0;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) {
        mine += x[i] != y[i] && ((x[i] | y[i]) << 1) != 0;
    }
    if (mine) {
        atomicAdd(found, mine);
    }
}

// Sum of every word mixed with its place: equal for equal buffers, in any order of adding.
extern "C" __global__ void autotune_checksum(const unsigned *x, long long words,
                                             unsigned long long *found) {
    const long long step = (long long)gridDim.x * blockDim.x;
    unsigned long long mine = 0;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) {
        unsigned long long mixed = x[i] + 0x9E3779B97F4A7C15ull * (unsigned long long)(i + 1);
        mixed = (mixed ^ (mixed >> 32)) * 0xD6E8FEB86659FD93ull;
        mine += mixed ^ (mixed >> 32);
    }
    for (int lanes = 16; lanes; lanes /= 2) {
        mine += __shfl_down_sync(0xffffffffu, mine, lanes);
    }
    if (threadIdx.x % 32 == 0) {
        atomicAdd(found, mine);
    }
}

// Reads a buffer larger than the caches: they then hold nothing else, and nothing to write back.
extern "C" __global__ void autotune_read(const uint4 *x, long long vectors,
                                         unsigned long long *found) {
    const long long step = (long long)gridDim.x * blockDim.x;
    unsigned mine = 0;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += step) {
        const uint4 value = x[i];
        mine |= value.x | value.y | value.z | value.w;
    }
    // It is full of zeros, which the compiler cannot know.
    if (mine) {
        atomicAdd(found, 1);
    }
}

// Keeps the device busy while the host enqueues what is to be timed.
extern "C" __global__ void autotune_delay(long long ns) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while ((long long)(now - start) < ns);
}
"""

_THREADS = 256
_BLOCKS_PER_SM = 8


def build(arch: int) -> bytes:
    """The cubin of the probe for an architecture.

    Raises:
        CompilerError: no compiler here serves the architecture.
    """
    from autotune.compile import compile_one

    binary = compile_one(SOURCE, arch)
    if isinstance(binary, Failure):
        raise CompilerError(
            f"the kernels that verify results do not compile for sm_{arch}: {binary.message}"
        )
    return binary.cubin


class Probe:
    """The loaded kernels."""

    def __init__(self, context: Context, cubin: bytes) -> None:
        self._context = context
        self._module = context.load(cubin)
        self._found = context.allocate(8)
        self._grid = (context.device.sm_count * _BLOCKS_PER_SM, 1, 1)
        # Prepared once: the host has no time to spare between two samples.
        self._reads: dict[tuple[int, int], Callable[[], None]] = {}
        self._delays: dict[int, Callable[[], None]] = {}

    def differences(self, x: int, y: int, words: int) -> int:
        """How many of the 32-bit words at two addresses differ."""
        return self._count("autotune_differences", {"x": x, "y": y}, words)

    def checksum(self, address: int, words: int) -> int:
        """A 64-bit sum that changes when a word, or the order of two, changes."""
        return self._count("autotune_checksum", {"x": address}, words)

    def read(self, address: int, size_bytes: int) -> None:
        """Enqueues reading a buffer of zeros once.

        Args:
            address: A multiple of 16, as `size_bytes` is.
        """
        if (address, size_bytes) not in self._reads:
            launch = self._launch("autotune_read", ["x"], "vectors", size_bytes // 16)
            values = {"x": address, "found": self._found}
            self._reads[address, size_bytes] = self._module.prepare(launch, values)
        self._reads[address, size_bytes]()

    def delay(self, ns: int) -> None:
        """Enqueues a wait on the device."""
        if ns not in self._delays:
            launch = Launch(
                entry="autotune_delay",
                grid=(1, 1, 1),
                block=(1, 1, 1),
                shared_bytes=0,
                arguments=(Argument(kind="int64", name="ns", value=ns),),
            )
            self._delays[ns] = self._module.prepare(launch, {})
        self._delays[ns]()

    def _count(self, entry: str, operands: dict[str, int], words: int) -> int:
        launch = self._launch(entry, list(operands), "words", words)
        self._context.fill_bytes(self._found, 0, 8)
        self._module.prepare(launch, {**operands, "found": self._found})()
        found = np.zeros(1, np.uint64)
        self._context.download(found, self._found)
        return int(found[0])

    def _launch(self, entry: str, operands: list[str], name: str, count: int) -> Launch:
        return Launch(
            entry=entry,
            grid=self._grid,
            block=(_THREADS, 1, 1),
            shared_bytes=0,
            arguments=(
                *(Argument(kind="operand", name=operand) for operand in operands),
                Argument(kind="int64", name=name, value=count),
                Argument(kind="operand", name="found"),
            ),
        )
