"""How many clusters fit on the device at a time, as the driver says.

    python benchmarks/clusters.py --out benchmarks/results/clusters_h200.json

A cluster's blocks lie in one GPC, so where a GPC's SMs are no multiple of them some stay empty.
`analysis.waves` counts with shares taken from these numbers. How many blocks an SM holds is set by
shared memory here.
"""

from __future__ import annotations

from contextlib import closing

from cuda.bindings import driver
from provenance import arguments, write

from autotune import device, gpu
from autotune.compile import compile_one
from autotune.types import Binary

SOURCE = 'extern "C" __global__ void empty() {}\n'
SIZES = (1, 2, 3, 4, 5, 6, 7, 8)
PER_SM = (1, 2, 3, 4)


def checked(answer: tuple) -> object:  # type: ignore[type-arg]
    """The value of a driver call."""
    error, *values = answer
    if error != driver.CUresult.CUDA_SUCCESS:
        raise SystemExit(f"the driver says {error}")
    return values[0] if values else None


def clusters(function: object, size: int, shared_bytes: int) -> int:
    """Clusters of `size` blocks that are resident at a time."""
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    attribute.value.clusterDim.x = 1
    attribute.value.clusterDim.y = size
    attribute.value.clusterDim.z = 1
    launch = driver.CUlaunchConfig()
    launch.gridDimX, launch.gridDimY, launch.gridDimZ = 1024, size, 1
    launch.blockDimX, launch.blockDimY, launch.blockDimZ = 128, 1, 1
    launch.sharedMemBytes = shared_bytes
    launch.attrs, launch.numAttrs = [attribute], 1
    return int(checked(driver.cuOccupancyMaxActiveClusters(function, launch)))  # type: ignore[call-overload]


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    options = parser.parse_args()
    target = device.select()
    binary = compile_one(SOURCE, target.arch)
    if not isinstance(binary, Binary):
        raise SystemExit(binary.message)
    rows = {}
    with closing(gpu.choose("cuda-bindings").open(target.index)):
        module = checked(driver.cuModuleLoadData(binary.cubin))
        function = checked(driver.cuModuleGetFunction(module, b"empty"))
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        checked(driver.cuFuncSetAttribute(function, attribute, target.shared_bytes_per_block_optin))
        for blocks in PER_SM:
            shared = target.shared_bytes_per_sm // blocks - 1024
            shared = min(shared // 1024 * 1024, target.shared_bytes_per_block_optin)
            rows[blocks] = [clusters(function, size, shared) for size in SIZES]
            print(f"{blocks} blocks per SM: {dict(zip(SIZES, rows[blocks], strict=True))}")
    write(options, {"cluster_sizes": SIZES, "clusters_by_blocks_per_sm": rows})


if __name__ == "__main__":
    main()
