"""How fast the device does nothing but read: what a kernel that is bound by memory can reach.

    python benchmarks/reading.py --out benchmarks/results/reading_h200.json

As many bytes as the memory-bound problems of the suite move, each read once with a cold L2 cache,
by the fastest of some grids; times as in a search. Short reads reach less of the bandwidth, since
launching and the way to memory and back take their time once.
"""

from __future__ import annotations

import statistics
from contextlib import closing
from typing import Any

import selection
from provenance import arguments, write

from autotune import device, gpu
from autotune.analysis.roofline import roofline
from autotune.compile import compile_one
from autotune.measure import probe
from autotune.measure.timing import Timer
from autotune.types import Argument, Binary, Device, Launch

SOURCE = """\
extern "C" __global__ void read_all(const uint4 *x, long long vectors, unsigned *found) {
    const long long step = (long long)gridDim.x * blockDim.x;
    unsigned mine = 0;
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + (AHEAD - 1) * step < vectors; i += AHEAD * step) {
        uint4 value[AHEAD];
        #pragma unroll
        for (int ahead = 0; ahead < AHEAD; ++ahead)
            value[ahead] = x[i + ahead * step];
        #pragma unroll
        for (int ahead = 0; ahead < AHEAD; ++ahead)
            mine |= value[ahead].x | value[ahead].y | value[ahead].z | value[ahead].w;
    }
    for (; i < vectors; i += step)
        mine |= x[i].x | x[i].y | x[i].z | x[i].w;
    // The buffer is full of zeros, which the compiler cannot know.
    if (mine)
        *found = mine;
}
"""
AHEAD = (2, 4, 8)
THREADS = (256, 512)
BLOCKS_PER_SM = (1, 2, 4, 8)
SAMPLES = 15


def sizes(options: Any, target: Device) -> dict[int, list[str]]:
    """Bytes to read, and the memory-bound problems that move as many."""
    found: dict[int, list[str]] = {}
    for case in selection.cases(options):
        if roofline(case.problem, target).bound == "memory":
            size = int(case.problem.bytes_min) // 16 * 16
            found.setdefault(size, []).append(case.problem.key)
    if not found:
        raise SystemExit("none of these problems is bound by memory")
    return dict(sorted(found.items()))


def launch(size: int, threads: int, blocks: int) -> Launch:
    """Of the kernel, on the buffer x."""
    return Launch(
        entry="read_all",
        grid=(blocks, 1, 1),
        block=(threads, 1, 1),
        shared_bytes=0,
        arguments=(
            Argument(kind="operand", name="x"),
            Argument(kind="int64", name="vectors", value=size // 16),
            Argument(kind="operand", name="found"),
        ),
    )


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    selection.add_arguments(parser)
    options = parser.parse_args()
    target = device.select()
    wanted = sizes(options, target)
    rows = []
    with closing(gpu.choose(options.door).open(target.index)) as context:
        timer = Timer(
            context, probe.Probe(context, probe.build(target.arch)), device.Monitor(target)
        )
        buffer, found = context.allocate(max(wanted)), context.allocate(4)
        context.fill_bytes(buffer, 0, max(wanted))
        modules = {}
        for ahead in AHEAD:
            binary = compile_one(SOURCE.replace("AHEAD", str(ahead)), target.arch)
            if not isinstance(binary, Binary):
                raise SystemExit(binary.message)
            modules[ahead] = context.load(binary.cubin)
        for size, problems in wanted.items():
            times: dict[tuple[int, int, int], float] = {}
            for ahead, module in modules.items():
                for threads in THREADS:
                    for per_sm in BLOCKS_PER_SM:
                        blocks = per_sm * target.sm_count
                        run = module.prepare(
                            launch(size, threads, blocks), {"x": buffer, "found": found}
                        )
                        timer.once(run)
                        samples = timer.sample(run, SAMPLES, cold=True)
                        times[ahead, threads, per_sm] = statistics.median(samples)
            best = min(times, key=lambda way: times[way])
            rate = size / times[best]
            row = {
                "bytes": size,
                "problems": problems,
                "ns": times[best],
                "gbs": rate,
                "percent_of_bandwidth": 100 * rate / target.bandwidth_gbs,
                "loads_ahead": best[0],
                "threads": best[1],
                "blocks_per_sm": best[2],
            }
            rows.append(row)
            print(f"{size / 1e6:8.1f} MB {row['ns'] / 1e3:8.1f} us {rate:7.0f} GB/s", flush=True)
    write(options, {"resolution_ns": timer.resolution_ns, "rows": rows})


if __name__ == "__main__":
    main()
