"""What an architecture allows, and how it is spelt. Works for GPUs that are not here.

Sources. Limits: CUDA C++ Programming Guide 13, "Technical Specifications per Compute Capability"
and "Shared Memory" of each capability. Allocation granularities: the data sheet of NVIDIA's
occupancy calculator (Nsight Compute), checked against `cuOccupancyMaxActiveBlocksPerMultiprocessor`
on sm_90. Cores per SM: `_ConvertSMVer2Cores` of NVIDIA's CUDA samples. Typical devices: NVIDIA's
data sheets; boost clock, and used for predictions only.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass

from autotune.errors import ArchitectureError
from autotune.types import Device

KIB = 1024

CORES_PER_SM: dict[int, int] = {
    30: 192, 32: 192, 35: 192, 37: 192,
    50: 128, 52: 128, 53: 128,
    60: 64, 61: 128, 62: 128,
    70: 64, 72: 64, 75: 64,
    80: 64, 86: 128, 87: 128, 89: 128,
    90: 128,
    100: 128, 101: 128, 103: 128, 110: 128,
    120: 128, 121: 128,
}  # fmt: skip
"""FP32 cores per SM, which is also the FP32 FMAs per clock and SM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Limits of one compute capability.

    Attributes:
        number: 75 for 7.5.
        shared_bytes_per_block: Without the function attribute that asks for more.
        shared_bytes_per_block_optin: With it.
        shared_reserved_bytes_per_block: What the system takes of the SM's memory for each block.
        register_unit: Registers are allocated to a warp in multiples of this.
        warp_unit: Warps of a block are counted in multiples of this when registers are allocated.
        shared_unit_bytes: Shared memory is allocated to a block in multiples of this.
        typical: The device that predictions assume where none is named.
    """

    number: int
    generation: str
    shared_bytes_per_sm: int
    shared_bytes_per_block_optin: int
    threads_per_sm: int
    blocks_per_sm: int
    shared_reserved_bytes_per_block: int
    shared_unit_bytes: int
    typical: Device
    shared_bytes_per_block: int = 48 * KIB
    registers_per_sm: int = 64 * KIB
    registers_per_block: int = 64 * KIB
    registers_per_thread: int = 255
    register_unit: int = 256
    warp_unit: int = 4
    threads_per_block: int = 1024
    warp_size: int = 32

    @property
    def warps_per_sm(self) -> int:
        """Resident warps."""
        return self.threads_per_sm // self.warp_size

    @property
    def cores_per_sm(self) -> int:
        """FP32 cores of an SM."""
        return CORES_PER_SM[self.number]

    @property
    def target(self) -> str:
        """What the compilers call it: from sm_90 on with the instructions that only this chip has,
        which move registers between warps."""
        return f"sm_{self.number}a" if self.number >= 90 else f"sm_{self.number}"


def _architecture(
    number: int,
    generation: str,
    *,
    shared_kib: int,
    threads: int,
    blocks: int,
    typical: tuple[str, int, int, int, int, int, int],
    registers_kib: int = 64,
    block_kib: int | None = None,
) -> Architecture:
    """Up to Turing a block may have the SM's shared memory; later 1 KiB is kept for the system."""
    name, sms, clock_mhz, memory_clock_mhz, bus_bits, memory_gib, l2_mib = typical
    reserved = 0 if number <= 75 else KIB
    optin = (block_kib or shared_kib) * KIB - reserved
    return Architecture(
        number=number,
        generation=generation,
        shared_bytes_per_sm=shared_kib * KIB,
        shared_bytes_per_block_optin=optin,
        threads_per_sm=threads,
        blocks_per_sm=blocks,
        shared_reserved_bytes_per_block=reserved,
        shared_unit_bytes=256 if number <= 75 else 128,
        registers_per_block=registers_kib * KIB,
        typical=Device(
            name=name,
            arch=number,
            sm_count=sms,
            cores_per_sm=CORES_PER_SM[number],
            memory_bytes=memory_gib * KIB**3,
            l2_bytes=l2_mib * KIB**2,
            sm_clock_khz=clock_mhz * 1000,
            memory_clock_khz=memory_clock_mhz * 1000,
            memory_bus_bits=bus_bits,
            shared_bytes_per_block=48 * KIB,
            shared_bytes_per_block_optin=optin,
            shared_bytes_per_sm=shared_kib * KIB,
            registers_per_sm=64 * KIB,
            threads_per_block=1024,
            threads_per_sm=threads,
            blocks_per_sm=blocks,
            warp_size=32,
            block_dimensions=(1024, 1024, 64),
            grid_dimensions=(2**31 - 1, 65535, 65535),
        ),
    )


# typical: name, SMs, boost MHz, memory MHz (bandwidth = 2 x clock x bus), bus bits, GiB, L2 MiB
_ROWS = (
    _architecture(50, "Maxwell", shared_kib=64, block_kib=48, threads=2048, blocks=32,
                  typical=("NVIDIA GeForce GTX 750 Ti", 5, 1085, 2700, 128, 2, 2)),
    _architecture(52, "Maxwell", shared_kib=96, block_kib=48, threads=2048, blocks=32,
                  typical=("NVIDIA GeForce GTX 980", 16, 1216, 3505, 256, 4, 2)),
    _architecture(53, "Maxwell", shared_kib=64, block_kib=48, threads=2048, blocks=32,
                  typical=("Jetson TX1", 2, 998, 1600, 64, 4, 0), registers_kib=32),
    _architecture(60, "Pascal", shared_kib=64, block_kib=48, threads=2048, blocks=32,
                  typical=("Tesla P100-SXM2-16GB", 56, 1480, 715, 4096, 16, 4)),
    _architecture(61, "Pascal", shared_kib=96, block_kib=48, threads=2048, blocks=32,
                  typical=("NVIDIA GeForce GTX 1080 Ti", 28, 1582, 5505, 352, 11, 3)),
    _architecture(62, "Pascal", shared_kib=64, block_kib=48, threads=2048, blocks=32,
                  typical=("Jetson TX2", 2, 1300, 1866, 128, 8, 1), registers_kib=32),
    _architecture(70, "Volta", shared_kib=96, threads=2048, blocks=32,
                  typical=("Tesla V100-SXM2-16GB", 80, 1530, 877, 4096, 16, 6)),
    _architecture(72, "Volta", shared_kib=96, threads=2048, blocks=32,
                  typical=("Jetson AGX Xavier", 8, 1377, 2133, 256, 32, 1)),
    _architecture(75, "Turing", shared_kib=64, threads=1024, blocks=16,
                  typical=("Tesla T4", 40, 1590, 5001, 256, 16, 4)),
    _architecture(80, "Ampere", shared_kib=164, threads=2048, blocks=32,
                  typical=("NVIDIA A100-SXM4-80GB", 108, 1410, 1593, 5120, 80, 40)),
    _architecture(86, "Ampere", shared_kib=100, threads=1536, blocks=16,
                  typical=("NVIDIA GeForce RTX 3090", 82, 1695, 9751, 384, 24, 6)),
    _architecture(87, "Ampere", shared_kib=164, threads=1536, blocks=16,
                  typical=("Jetson AGX Orin 64GB", 16, 1300, 3200, 256, 64, 4)),
    _architecture(89, "Ada Lovelace", shared_kib=100, threads=1536, blocks=24,
                  typical=("NVIDIA GeForce RTX 4090", 128, 2520, 10501, 384, 24, 72)),
    _architecture(90, "Hopper", shared_kib=228, threads=2048, blocks=32,
                  typical=("NVIDIA H200", 132, 1980, 3201, 6144, 141, 60)),
    _architecture(100, "Blackwell", shared_kib=228, threads=2048, blocks=32,
                  typical=("NVIDIA B200", 148, 1965, 3996, 8192, 180, 126)),
    _architecture(103, "Blackwell Ultra", shared_kib=228, threads=2048, blocks=32,
                  typical=("NVIDIA B300", 148, 1920, 3996, 8192, 270, 126)),
    _architecture(120, "Blackwell", shared_kib=100, threads=1536, blocks=24,
                  typical=("NVIDIA GeForce RTX 5090", 170, 2407, 14001, 512, 32, 96)),
    _architecture(121, "Blackwell", shared_kib=100, threads=1536, blocks=24,
                  typical=("NVIDIA GB10", 48, 2418, 4266, 256, 128, 24)),
)  # fmt: skip

ARCHITECTURES: dict[int, Architecture] = {row.number: row for row in _ROWS}
"""Every architecture that kernels can be generated for.

Whether one can be compiled for depends on the compiler that is installed: CUDA 13 starts at 75, and
the extra `cu12` brings the last one that knows 50 to 72 (`autotune.compile` says so).
"""

_SPELLING = re.compile(r"(?:sm_|compute_)?(\d{2,3})([af]?)|(\d{1,2})\.(\d)", re.ASCII)


def parse(text: str | int) -> int:
    """The number of an architecture as users spell it.

    Args:
        text: `75`, `7.5`, `sm_75`, `compute_75`, `90a`; not `native`, which needs a device
            (`autotune.device.native`).

    Raises:
        ArchitectureError: not a spelling, or not known.
    """
    match = _SPELLING.fullmatch(str(text).strip().lower())
    if match is None:
        raise ArchitectureError(f"{str(text)!r} is not an architecture; {_possible()}")
    number = int(match[1]) if match[1] else int(match[3]) * 10 + int(match[4])
    if number in ARCHITECTURES:
        return number
    raise ArchitectureError(f"sm_{number} is not known; {_possible()}")


def get(number: int) -> Architecture:
    """The limits of an architecture.

    Raises:
        ArchitectureError: not one of `ARCHITECTURES`.
    """
    return ARCHITECTURES[parse(number)]


def cores_per_sm(number: int) -> int:
    """FP32 cores per SM; for an unknown architecture the last row's value, with a warning."""
    if number in CORES_PER_SM:
        return CORES_PER_SM[number]
    last = max(CORES_PER_SM)
    warnings.warn(
        f"sm_{number} is not in the table of cores per SM; assuming {CORES_PER_SM[last]} "
        f"as on sm_{last}",
        stacklevel=2,
    )
    return CORES_PER_SM[last]


def _possible() -> str:
    numbers = ", ".join(str(number) for number in ARCHITECTURES)
    return f"possible are {numbers}, spelt as 75, 7.5, sm_75 or compute_75, and native"
