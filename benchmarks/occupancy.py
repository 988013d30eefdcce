"""Compares `analysis.occupancy` with the driver's own count for random variants of our kernels.

    python benchmarks/occupancy.py --count 400 --out benchmarks/results/occupancy_h200.json

Each variant is compiled; its registers and shared memory go to the calculation, its kernel to
`cuOccupancyMaxActiveBlocksPerMultiprocessor`.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from provenance import arguments, write

from autotune import device, gpu, render, space
from autotune.analysis.occupancy import occupancy
from autotune.compile import Pool
from autotune.problems import family
from autotune.types import Binary


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--shape", default="2048x2048x2048")
    options = parser.parse_args()
    door = gpu.choose(options.door)
    chosen = device.select(door=door)
    problem = family("sgemm").parse(options.shape)
    region = space.load().region(problem, chosen.arch)
    # The compiler's report of a source of several kernels is of the hungriest: those of one only.
    drawn = region.sample(2 * options.count, np.random.default_rng(0))
    every = (render.render(problem, config, chosen.arch) for config in drawn)
    variants = [each for each in every if len(each.plan.launches) == 1][: options.count]
    differences, counted_blocks = [], Counter[int]()
    context = door.open(chosen.index)
    with Pool() as pool:
        jobs = [pool.submit(variant.body, chosen.arch) for variant in variants]
        for variant, job in zip(variants, jobs, strict=True):
            binary = job.result()
            assert isinstance(binary, Binary), binary
            (launch,) = variant.plan.launches
            module = context.load(binary.cubin)
            counted = module.kernel(launch.entry).blocks_per_sm(launch.threads, launch.shared_bytes)
            module.unload()
            found = occupancy(launch.threads, binary.registers, launch.shared_bytes, chosen)
            counted_blocks[counted] += 1
            if found.blocks != counted:
                differences.append([variant.config.json, found.blocks, counted])
    context.close()
    write(
        options,
        {
            "shape": options.shape,
            "variants": len(variants),
            "different": differences,
            "blocks_per_sm": dict(sorted(counted_blocks.items())),
        },
    )
    print(f"{len(variants)} variants, {len(differences)} differ; blocks an SM: {counted_blocks}")


if __name__ == "__main__":
    main()
