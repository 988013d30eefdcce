"""What copies of a warp by cp.async cost on the device, beside what is foreseen.

    python benchmarks/async_copies.py --out benchmarks/results/async_copies_h200.json

Each pattern (where 32 lanes read, where they write, which lie outside and write zeros) is launched
once by one warp, under ncu. Patterns are those of tiles (rows of some lanes, at some distance in
global and in shared memory), random ones, and such in which lanes share a place or take no part.
The file has every pattern with its counts; what is foreseen is not in it, and printed beside it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from provenance import arguments, write

from autotune import device, gpu, profile
from autotune.analysis.async_copies import copy_cost
from autotune.compile import compile_one
from autotune.types import Argument, Binary, Launch

LANES = np.arange(32)
ABSENT = -1
SEED = 5
FLOATS = 1 << 20
"""Of the memory that is read; patterns stay within."""

SHARED_BYTES = 160 * 1024

SECTORS = "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts.sum"
COUNTERS = {
    "wavefronts": profile.COPY_WAVEFRONTS,
    "conflicts": profile.COPY_CONFLICTS,
    "sectors": SECTORS,
    "l1_sectors": profile.LOAD_SECTORS,
}
"""`l1_sectors` are those of all loads, of the two or three that read the pattern as well."""

KERNELS = """\
extern "C" __global__ void copy_{words}{suffix}(
    const float* x, const int* sources, const int* targets, const int* sizes)
{{
    extern __shared__ __align__(128) float shared[];
    const int source = sources[threadIdx.x], target = targets[threadIdx.x];
    const int size = sizes[threadIdx.x];
    const unsigned to = (unsigned) __cvta_generic_to_shared(shared + target);
    if (source >= 0)
        asm volatile("cp.async.{way}.shared.global [%0], [%1], {bytes}{given};"
                     :: "r"(to), "l"(x + source), "r"(size) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
}}
"""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Places in floats; `sources` has ABSENT for lanes that take no part.

    Attributes:
        family: What it is an example of.
        words: That a lane copies.
        inside: Which lanes read their source; the others write zeros.
    """

    family: str
    words: int
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    inside: NDArray[np.bool_]

    @property
    def entry(self) -> str:
        """The kernel that makes it."""
        return f"copy_{self.words}{'' if self.inside.all() else '_if'}"


def patterns() -> list[Pattern]:
    """All of them, the same in every run."""
    random = np.random.default_rng(SEED)
    return [*_regular(), *_wide(random), *_narrow(random)]


def _pattern(
    family: str, words: int, sources: Any, targets: Any, inside: Any = None, active: Any = None
) -> Pattern:
    takes_part = np.ones(32, bool) if active is None else active
    return Pattern(
        family,
        words,
        np.where(takes_part, sources, ABSENT),
        np.asarray(targets),
        np.ones(32, bool) if inside is None else inside,
    )


def _regular() -> Iterator[Pattern]:
    """Strides and rows."""
    for words in (1, 2, 4):
        plain = LANES * words
        for stride in (1, 2, 4, 8, 16, 32, 64):
            yield _pattern("strided sources", words, plain * stride, plain)
        for stride in (2, 4, 8, 32):
            yield _pattern("strided targets", words, plain, plain * stride)
        for pitch in (32 + words, 36):
            yield _pattern("strided targets", words, plain, LANES * pitch)
        yield _pattern("shifted sources", words, plain + words, plain)
        yield _pattern("one target", words, plain, plain * 0)
        for count in (1, 16):
            yield _pattern("some lanes", words, plain, plain, active=count > LANES)
        for rows in (2, 4, 8, 16):
            row, piece = LANES // (32 // rows), LANES % (32 // rows)
            sources = row * 4096 + piece * words
            yield _pattern("rows", words, sources, plain)
            if words == 1:
                yield _pattern("rows, transposed", words, sources, piece * 132 + row)
            else:
                pitch = 32 // rows * words + 4
                yield _pattern("rows, padded", words, sources, row * pitch + piece * words)
            if words == 4:
                swapped = row * (32 // rows) * 4 + (piece ^ row % (32 // rows)) * 4
                yield _pattern("rows, swizzled", words, sources, swapped)


def _wide(random: np.random.Generator) -> Iterator[Pattern]:
    """Copies of 16 bytes: how sectors and their halves may be moved."""
    halves = [4 * index for index in range(8)] + [32, 36]
    first_two = LANES < 2
    for source in halves:
        for target in halves[1:]:
            places = np.zeros(32, int)
            places[1] = source
            targets = np.zeros(32, int)
            targets[1] = target
            yield _pattern("two lanes", 4, places, targets, active=first_two)
    for _ in range(40):
        drawn = random.choice(8, 4) * 4
        if drawn[1] != drawn[3]:
            sources, targets = np.zeros(32, int), np.zeros(32, int)
            sources[:2], targets[:2] = drawn[[0, 2]], drawn[[1, 3]]
            yield _pattern("two lanes", 4, sources, targets, active=first_two)
    half = LANES % 2 * 4
    for _ in range(25):
        moved = np.concatenate([random.permutation(4) + 4 * line for line in range(4)])
        yield _pattern("sectors within lines", 4, LANES * 4, moved[LANES // 2] * 8 + half)
    for _ in range(15):
        moved = random.permutation(16)
        yield _pattern("sectors anywhere", 4, LANES * 4, moved[LANES // 2] * 8 + half)
    for _ in range(25):
        moved = np.concatenate([random.permutation(8) + 8 * line for line in range(4)])
        yield _pattern("halves within lines", 4, LANES * 4, moved * 4)
    for _ in range(15):
        places = random.permutation(32) * 4, random.permutation(32) * 4
        yield _pattern("halves anywhere", 4, *places)
    for _ in range(40):
        lanes = int(random.choice([2, 4, 8, 16, 32]))
        row, piece = LANES // lanes, LANES % lanes * 4
        apart, pitch = random.integers(1, 400) * 4, random.integers(1, 80) * 4
        first = random.integers(0, 9) * 4
        yield _pattern("rows anyhow", 4, row * apart + piece + first, row * pitch + piece)
    for _ in range(15):
        lanes = int(random.choice([4, 8, 16]))
        row, piece = LANES // lanes, LANES % lanes * 4
        chosen = random.random(32) < 0.6
        sources = row * 1028 + piece
        targets = row * (lanes * 4 + random.choice([0, 4, 8])) + piece
        yield _pattern("some lanes", 4, sources, targets, active=chosen)
        yield _pattern("some outside", 4, sources, targets, inside=chosen)
        yield _pattern(
            "some outside, all from one place", 4, sources * chosen, targets, inside=chosen
        )


def _narrow(random: np.random.Generator) -> Iterator[Pattern]:
    """Copies of 4 and 8 bytes: banks of sources and of targets."""
    for words in (1, 2):
        plain = LANES * words
        for _ in range(20):
            yield _pattern("any targets", words, plain, random.permutation(128)[:32] * words)
            yield _pattern("any sources", words, random.permutation(128)[:32] * words, plain)
        for _ in range(25):
            sources, targets = (random.permutation(96)[:32] * words for _ in range(2))
            yield _pattern("any sources and targets", words, sources, targets)
        for _ in range(10):
            yield _pattern("few sources", words, random.integers(0, 12, 32) * words, plain)
        for _ in range(30):
            lanes = int(random.choice([2, 4, 8, 16, 32]))
            row, piece = LANES // lanes, LANES % lanes
            apart, pitch = random.integers(1, 700) * words, random.integers(16, 80) * 2
            step = random.choice([1, 1, 2])
            targets = piece * pitch + row * words * step
            yield _pattern("rows, transposed", words, row * apart + piece * words, targets)
        for _ in range(12):
            lanes = int(random.choice([4, 8, 16]))
            row, piece = LANES // lanes, LANES % lanes
            chosen = random.random(32) < 0.6
            sources = row * random.integers(30, 500) * words + piece * words
            targets = piece * 66 + row * words
            yield _pattern("some lanes", words, sources, targets, active=chosen)
            yield _pattern("some outside", words, sources, targets, inside=chosen)
            yield _pattern(
                "some outside, all from one place", words, sources * chosen, targets, inside=chosen
            )


def source() -> str:
    """CUDA of all kernels."""
    ways = ((1, "ca"), (2, "ca"), (4, "cg"))
    return "".join(
        KERNELS.format(words=words, suffix=suffix, way=way, bytes=4 * words, given=given)
        for words, way in ways
        for suffix, given in (("", ""), ("_if", ", %2"))
    )


def launch(door: str | None, cubin: Path) -> None:
    """Makes every copy once; what ncu starts."""
    made = patterns()
    with closing(gpu.choose(door).open(device.select().index)) as context:
        module = context.load(cubin.read_bytes())
        x = context.allocate(4 * FLOATS)
        context.fill_bytes(x, 0, 4 * FLOATS)
        places = {name: context.allocate(4 * 32) for name in ("sources", "targets", "sizes")}
        for pattern in made:
            sizes = np.where(pattern.inside, 4 * pattern.words, 0)
            for name, values in zip(places, (pattern.sources, pattern.targets, sizes), strict=True):
                context.upload(places[name], values.astype(np.int32))
            run = module.prepare(
                Launch(
                    entry=pattern.entry,
                    grid=(1, 1, 1),
                    block=(32, 1, 1),
                    shared_bytes=SHARED_BYTES,
                    arguments=tuple(Argument(kind="operand", name=name) for name in ("x", *places)),
                ),
                {"x": x, **places},
            )
            run()
            context.synchronize()


def foreseen(pattern: Pattern) -> tuple[int, int, int]:
    """Wavefronts, conflicts and sectors by the rules."""
    is_active = pattern.sources != ABSENT
    sources, targets = (
        [
            4 * int(place) if active else None
            for place, active in zip(places, is_active, strict=True)
        ]
        for places in (pattern.sources, pattern.targets)
    )
    cost = copy_cost(sources, targets, 4 * pattern.words, list(map(bool, pattern.inside)))
    return cost.wavefronts, cost.conflicts, cost.sectors


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    options = parser.parse_args()
    binary = compile_one(source(), device.select().arch)
    if not isinstance(binary, Binary):
        raise SystemExit(binary.message)
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "copies.cubin"
        cubin.write_bytes(binary.cubin)
        command = [
            str(profile.find_ncu()), "--csv", "--print-units", "base",
            "--kernel-name", "regex:^copy_", "--metrics", ",".join(COUNTERS.values()),
            sys.executable, __file__, "--launch", str(cubin), options.door or "",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    made, kernels = patterns(), profile.parse(done.stdout)
    if done.returncode or len(kernels) != len(made):
        said = (done.stdout + done.stderr)[-800:]
        raise SystemExit(f"ncu counted {len(kernels)} of {len(made)} copies: {said}")
    rows = []
    right: Counter[str] = Counter()
    for pattern, (entry, counters) in zip(made, kernels, strict=True):
        if entry != pattern.entry:
            raise SystemExit(f"ncu counted {entry}, not {pattern.entry}")
        counts = {name: int(counters[metric]) for name, metric in COUNTERS.items()}
        rows.append(
            {
                "family": pattern.family,
                "words": pattern.words,
                "sources": " ".join(map(str, pattern.sources)),
                "targets": " ".join(map(str, pattern.targets)),
                "inside": "".join(map(str, pattern.inside.astype(int))),
                **counts,
            }
        )
        counted = counts["wavefronts"], counts["conflicts"], counts["sectors"]
        right[pattern.family] += counted == foreseen(pattern)
    families = Counter(pattern.family for pattern in made)
    for family, count in families.items():
        print(f"{family:>34} {count:4} patterns, {right[family]:4} as foreseen")
    write(options, {"rows": rows})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--launch"]:
        launch(sys.argv[3] or None, Path(sys.argv[2]))
    else:
        main()
