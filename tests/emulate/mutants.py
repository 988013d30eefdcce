"""Kernels with a planted fault: a small change of a rendered source, and what must be named."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernels import changed, line_of, variant

from autotune.emulate import FaultKind
from autotune.problems.sgemm import Sgemm
from autotune.types import Scalar, Variant

EVEN = Sgemm(m=256, n=256, k=32)
RAGGED = Sgemm(m=200, n=150, k=36)
SPACED = Sgemm(m=200, n=150, k=36, lda=44, ldb=160, ldc=164)
BETA = Sgemm(m=200, n=150, k=36, beta_zero=False)
BATCH = Sgemm(m=128, n=128, k=16, batch=3)
WIDE = Sgemm(m=200, n=300, k=40, lda=20_000_000, ldb=400_000_000, ldc=30_000_000)
SHALLOW = Sgemm(m=200, n=150, k=4)
SPLIT = Sgemm(m=128, n=128, k=512)
PRODUCED = Sgemm(m=512, n=256, k=192)
GRID: dict[str, Scalar] = {"schedule": "grid", "group_m": 1}

LOAD_A = "fragment_a[f] = load_shared<4>(a + step * ROW_A + f * 64);"
LOAD_B = "fragment_b[f] = load_shared<4>(b + step * ROW_B + f * 64);"
STORE_A = "store_shared<1>(target_a + e * ROW_A, {staged_a[0].at[e]});"
STORE_A_STAGE = "store_shared<1>(target_a + stage * STAGE_A + e * ROW_A, {staged_a[0].at[e]});"
STORE_B = "store_shared<4>(target_b, staged_b[0]);"
FETCH_A = "staged_a[0] = load_global<4>(source_a);"
FETCH_A_IF = "staged_a[0] = load_global_if<4>("
FETCH_B_IF_PASS = "staged_b[pass] = load_global_if<2>("
STORE_C = "store_global<4>(target + column, value);"
STORE_C_2 = "store_global<2>(target + column, value);"
BARRIER = "barrier();"
BULK_A = "bulk_load_2d(tile_a + stage * STAGE_A, map_a, next_k, row0, &arrived[stage]);"
LOAD_COLUMNS = "fragment_b[f] = load_shared<4>(b + step * ROW_B + f * 32);"
ADD_PART = "const Vector<4> value = load_workspace<4>(part + (i * THREAD_N + j) * THREADS);"


@dataclass(frozen=True)
class Mutant:
    """A change and its fault.

    Attributes:
        old, new: The text that is replaced, which occurs `count` times, and what by.
        line: The text of the line that must be named, and which of several such; None where no
            line can be.
        changes: Parameters beside those of `preset`.
    """

    name: str
    problem: Sgemm
    old: str
    new: str
    kind: FaultKind
    line: str | None
    number: int = 0
    count: int = 1
    preset: str = "seed-v3.2"
    changes: dict[str, Scalar] = field(default_factory=dict)

    def original(self) -> Variant:
        """The kernel without the fault."""
        return variant(self.problem, self.preset, **self.changes)

    def planted(self) -> Variant:
        """The kernel with it."""
        return changed(self.original(), self.old, self.new, self.count)

    def line_number(self, planted: Variant) -> int:
        """Of the line that must be named; 0 where none can be."""
        return line_of(planted, self.line, self.number) if self.line else 0


K = FaultKind

MUTANTS = [
    # ---- barriers
    Mutant(
        "no barrier after the first tile is stored", EVEN,
        "        barrier();\n        int stage = 0;", "        int stage = 0;",
        K.read_after_write, LOAD_A,
    ),
    Mutant(
        "no barrier after a tile is stored", EVEN,
        "staged_b[0]);\n\n            barrier();\n        }", "staged_b[0]);\n        }",
        K.read_after_write, LOAD_A,
    ),
    Mutant(
        "no barrier before the only stage is overwritten", EVEN,
        "            barrier();  // everyone has read this tile\n", "",
        K.write_after_read, STORE_A, 1, changes={"stages": 1},
    ),
    Mutant(
        "stores go to the stage that others still read", EVEN,
        "            stage ^= 1;\n", "",
        K.write_after_read, STORE_A_STAGE,
    ),
    Mutant(
        "fragments come from the other stage", EVEN,
        "int stage = 0;", "int stage = 1;",
        K.unwritten_shared, LOAD_A,
    ),
    Mutant(
        "the next step's fragments come from the wrong stage", EVEN,
        "fragment_a[0], fragment_b[0], read_a + stage * STAGE_A",
        "fragment_a[0], fragment_b[0], read_a + (stage ^ 1) * STAGE_A",
        K.unwritten_shared, LOAD_A, count=2, changes={"register_buffers": 2},
    ),
    Mutant(
        "half of the threads wait", EVEN,
        "        barrier();\n        int stage = 0;",
        "        if (thread < 128)\n            barrier();\n        int stage = 0;",
        K.divergent_barrier, BARRIER, 1,
    ),
    Mutant(
        "threads wait at different barriers", EVEN,
        "        barrier();\n        int stage = 0;",
        "        if (thread < 128)\n            barrier();\n        else\n            barrier();\n"
        "        int stage = 0;",
        K.divergent_barrier, BARRIER, 1,
    ),
    Mutant(
        "a warp leaves early", EVEN,
        "    float sums[THREAD_M][THREAD_N] = {};",
        "    float sums[THREAD_M][THREAD_N] = {};\n    if (warp == 7)\n        return;",
        K.divergent_barrier, BARRIER,
    ),
    Mutant(
        "a thread passes one turn's barrier", EVEN,
        "staged_b[0]);\n\n            barrier();\n        }",
        "staged_b[0]);\n            if (tile != 1 || thread != 5)\n                barrier();\n"
        "        }",
        K.divergent_barrier, BARRIER, 1,
    ),
    # ---- shared memory
    Mutant(
        "B's first tile is not stored", EVEN,
        "        store_shared<4>(target_b, staged_b[0]);\n", "",
        K.unwritten_shared, LOAD_B,
    ),
    Mutant(
        "B's tile starts too far", EVEN,
        "shared + STAGES * STAGE_A", "shared + (STAGES + 1) * STAGE_A",
        K.out_of_bounds_shared, "store_shared<4>(target_b + stage * STAGE_B, staged_b[0]);",
        preset="seed-v3.1",
    ),
    Mutant(
        "rows of A's tile are not multiples of a vector", EVEN,
        "ROW_A = BLOCK_M + 4", "ROW_A = BLOCK_M + 1",
        K.misaligned, LOAD_A,
    ),
    Mutant(
        "two threads store to one place", EVEN,
        "piece_b = thread % 32 * 4", "piece_b = thread % 16 * 4",
        K.write_after_write, STORE_B,
    ),
    Mutant(
        "shared memory is read past the primitive", EVEN,
        "load_shared<4>(a + step * ROW_A + f * 64)",
        "*reinterpret_cast<const Vector<4>*>(a + step * ROW_A + f * 64)",
        K.crash, None,
    ),
    # ---- fragments
    Mutant(
        "A's fragments lie elsewhere", EVEN,
        "a + step * ROW_A + f * 64", "a + step * ROW_A + f * 32",
        K.wrong_result, STORE_C,
    ),
    Mutant(
        "B's fragments lie elsewhere", EVEN,
        "b + step * ROW_B + f * 64", "b + step * ROW_B + f * 60",
        K.wrong_result, STORE_C,
    ),
    Mutant(
        "a fragment's elements are turned round", EVEN,
        ".at[i % 4]", ".at[3 - i % 4]",
        K.wrong_result, STORE_C,
    ),
    Mutant(
        "the swizzle is undone differently", Sgemm(m=256, n=512, k=32),
        "const int swizzle = step / 4 * 8;", "const int swizzle = step / 4 * 4;",
        K.wrong_result, STORE_C, preset="large",
    ),
    Mutant(
        "one step of k is missing", EVEN,
        "step < BLOCK_K; ++step", "step < BLOCK_K - 1; ++step",
        K.wrong_result, STORE_C, count=2,
    ),
    # ---- guards
    Mutant(
        "no guard of M at a load", RAGGED,
        "row0 + line_a < m && piece_a < depth", "piece_a < depth",
        K.out_of_bounds_global, FETCH_A_IF,
    ),
    Mutant(
        "no guard of M at the loop's load", RAGGED,
        "                row0 + line_a < m);", "                true);",
        K.out_of_bounds_global, FETCH_A_IF, 1,
    ),
    Mutant(
        "no guard of N at a load", SPACED,
        "column0 + piece_b < n && (line_b + pass * 4) < depth", "(line_b + pass * 4) < depth",
        K.out_of_bounds_global, FETCH_B_IF_PASS,
    ),
    Mutant(
        "no guard of K at A's load", SHALLOW,
        "row0 + line_a < m && piece_a < depth", "row0 + line_a < m",
        K.out_of_bounds_global, FETCH_A_IF,
    ),
    Mutant(
        "no guard of K at A's load, with room between rows", Sgemm(m=200, n=150, k=4, lda=8),
        "row0 + line_a < m && piece_a < depth", "row0 + line_a < m",
        K.out_of_bounds_global, FETCH_A_IF,
    ),
    Mutant(
        "no guard of K at all", RAGGED,
        " < depth", " < BLOCK_K",
        K.wrong_result, STORE_C_2, count=2,
    ),
    Mutant(
        "no guard of M at the store", RAGGED,
        "row >= m", "row < 0",
        K.out_of_bounds_global, STORE_C_2,
    ),
    Mutant(
        "no guard of N at the store", RAGGED,
        "column0 + n0 + column >= n", "column < 0",
        K.written_twice, STORE_C_2,
    ),
    Mutant(
        "no guard of N at the store, with room between rows", Sgemm(m=200, n=150, k=36, ldc=300),
        "column0 + n0 + column >= n", "column < 0",
        K.out_of_bounds_global, STORE_C_2,
    ),
    Mutant(
        "no guard of N at the loop's load", RAGGED,
        "                column0 + piece_b < n);", "                true);",
        K.out_of_bounds_global, FETCH_B_IF_PASS, 1,
    ),
    # ---- global memory
    Mutant(
        "a vector at an address for scalars", Sgemm(m=256, n=256, k=32, align_a=4),
        "load_global<1>(source_a + pass * 32 * (index_t) lda)",
        "{load_global<4>(source_a + pass * 32 * (index_t) lda).at[0]}",
        K.misaligned,
        "staged_a[pass] = {load_global<4>(source_a + pass * 32 * (index_t) lda).at[0]};",
        count=2,
    ),
    Mutant(
        "C is read although beta is 0", EVEN,
        "alpha * sums[i][j + e];",
        "alpha * sums[i][j + e] + 0.0f * load_global<1>(target + column + e).at[0];",
        K.forbidden_read,
        "value.at[e] = alpha * sums[i][j + e] + 0.0f * load_global<1>(target + column + e).at[0];",
    ),
    Mutant(
        "beta is forgotten", BETA,
        "fmaf(beta, old.at[e], alpha * sums[i][j + e])", "alpha * sums[i][j + e]",
        K.wrong_result, STORE_C_2,
    ),
    Mutant(
        "A is written", EVEN,
        STORE_C, "store_global<4>(const_cast<float*>(a), value);",
        K.forbidden_write, "store_global<4>(const_cast<float*>(a), value);",
    ),
    Mutant(
        "a store goes in front of C", EVEN,
        STORE_C, "store_global<4>(target + column - 4 * (blockIdx.x == 0), value);",
        K.out_of_bounds_global,
        "store_global<4>(target + column - 4 * (blockIdx.x == 0), value);",
    ),
    Mutant(
        "a store goes between the rows of C", SPACED,
        "row * (long long) ldc", "row * (long long) n",
        K.out_of_bounds_global, STORE_C_2,
    ),
    Mutant(
        "matrices of a batch go to one place", BATCH,
        "all_c + matrix * stride_c", "all_c",
        K.written_twice, STORE_C,
    ),
    Mutant(
        "two blocks compute one tile", EVEN,
        "blockIdx.x % tiles_n * BLOCK_N", "0 * BLOCK_N",
        K.written_twice, STORE_C,
    ),
    Mutant(
        "the last row of a thread is not written", EVEN,
        "for (int i = 0; i < THREAD_M; ++i) {", "for (int i = 0; i < THREAD_M - 1; ++i) {",
        K.not_written, None,
    ),
    Mutant(
        "the kernel does nothing", EVEN,
        "    const int thread = threadIdx.x;\n",
        "    const int thread = threadIdx.x;\n    return;\n",
        K.not_written, None,
    ),
    Mutant(
        "the kernel leaves a tile out", EVEN,
        "blockIdx.x / tiles_n * BLOCK_M;",
        "blockIdx.x / tiles_n * BLOCK_M;\n    if (blockIdx.x == 2)\n        return;",
        K.not_written, None,
    ),
    Mutant(
        "a kernel that divides by zero", EVEN,
        "const int tiles_n = n / BLOCK_N;", "const int tiles_n = n / BLOCK_N / (lda - 32);",
        K.crash, None,
    ),
    # ---- offsets past 2^31
    Mutant(
        "A's row offsets are 32 bits wide", WIDE,
        "(row0 + line_a) * (long long) lda", "(row0 + line_a) * lda",
        K.out_of_bounds_global, FETCH_A_IF,
    ),
    Mutant(
        "the steps along B are 32 bits wide", WIDE,
        "typedef long long index_t;", "typedef int index_t;",
        K.out_of_bounds_global, "staged_b[0] = load_global_if<4>(", 1,
    ),
    Mutant(
        "C's row offsets are 32 bits wide", WIDE,
        "row * (long long) ldc", "row * ldc",
        K.out_of_bounds_global, STORE_C,
    ),
    # ---- copies that run by themselves
    Mutant(
        "nobody waits for the next tile", SPLIT,
        "            wait_async<0>();\n", "",
        K.read_in_flight, LOAD_COLUMNS, preset="split-64x64",
    ),
    Mutant(
        "the copy engine is not fenced off", PRODUCED,
        "            fence_async();\n", "",
        K.unfenced_copy, BULK_A, preset="tma-256x128x32", changes=GRID,
    ),
    Mutant(
        "a warp releases a stage that a lane still reads", PRODUCED,
        "            warp_barrier();\n", "",
        K.write_after_read, BULK_A, preset="tma-256x128x32", changes=GRID,
    ),
    Mutant(
        "the producer waits for stages that are free", PRODUCED,
        "phase = 1;  // fresh", "phase = 0;  // fresh",
        K.deadlock, "barrier_wait(&arrived[stage], phase);", preset="tma-256x128x32", changes=GRID,
    ),
    Mutant(
        "too few bytes are expected", PRODUCED,
        "&arrived[stage], TILE_BYTES", "&arrived[stage], TILE_BYTES / 2",
        K.deadlock, "barrier_wait(&arrived[stage], phase);", preset="tma-256x128x32", changes=GRID,
    ),
    Mutant(
        "the hardware's swizzle is not undone", PRODUCED,
        "(q ^ m0 % 8) * 4", "q * 4",
        K.wrong_result, STORE_C, preset="tma-256x128x32", changes=GRID,
    ),
    # ---- parts of a tile
    Mutant(
        "the arrival comes before the part is written", SPLIT,
        "    barrier();  // the part is written, and the tiles in shared memory are read\n", "",
        K.unsynchronised_read, ADD_PART, preset="split-64x64",
    ),
    Mutant(
        "the last block is the one with the last number", SPLIT,
        "count_arrival(counter, others) == others", "blockIdx.y == others",
        K.unsynchronised_read, ADD_PART, preset="split-64x64",
    ),
    Mutant(
        "blocks of a cluster read before all have written", SPLIT,
        "    leave_part(part, sums);\n    cluster_barrier();\n", "    leave_part(part, sums);\n",
        K.read_after_write, "const Vector<4> next = load_cluster<4>(place, block);",
        preset="cluster-64x64",
    ),
    Mutant(
        "a block of a cluster ends while others read", SPLIT,
        "    cluster_barrier();  // nobody ends while others read its shared memory\n", "",
        K.remote_ended, "Vector<4> total = load_cluster<4>(place, 0);",
        preset="cluster-64x64",
    ),
]  # fmt: skip
