"""A plain matrix product for the GPU, and variants of it with planted faults."""

from __future__ import annotations

from functools import cache

from autotune.compile import compile_one
from autotune.measure import Job
from autotune.problems.sgemm import Sgemm
from autotune.types import Argument, Binary, Launch, LaunchPlan

NAIVE = """\
extern "C" __global__ void __launch_bounds__(256)
naive(float *a, float *b, float *c, int m, int n, int k, int lda, int ldb, int ldc,
      float alpha) {
    const int column = blockIdx.x * 16 + threadIdx.x;
    const int row = blockIdx.y * 16 + threadIdx.y;
    %(before)s
    if (row >= m || column >= n) {
        return;
    }
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) {
        sum += a[(long long)row * lda + i] * b[(long long)i * ldb + column];
    }
    float *const out = c + (long long)row * ldc + column;
    %(after)s
}
"""

STORE = "*out = alpha * sum;"
FIRST = "row == 0 && column == 0"

FAULTS = {
    "": ("", STORE),
    "empty": ("return;", STORE),
    "half rows": ("if (row % 2) return;", STORE),
    "reads c": ("", "*out = alpha * sum + 0.0f * *out;"),
    "one element": ("", "*out = alpha * sum + (row == m - 1 && column == n - 1);"),
    "writes guard": ("", f"{STORE} if ({FIRST}) c[(long long)(m - 1) * ldc + n + 3] = 1.0f;"),
    "writes padding": ("", f"{STORE} if ({FIRST}) c[n] = 1.0f;"),
    "writes input": ("", f"{STORE} if ({FIRST}) b[1] += 1.0f;"),
    "illegal": (f"if ({FIRST}) *(float *)16 = 1.0f;", STORE),
    "misaligned": (f"if ({FIRST}) b[0] += *(double *)((char *)a + 2);", STORE),
    "trap": (f'if ({FIRST}) asm("trap;");', STORE),
    "endless": (f"if ({FIRST}) while (*(volatile float *)a != 1e30f) {{ }}", STORE),
    "slow": ("for (int i = 0; i < 1000; ++i) __nanosleep(100000);", STORE),
}
"""What comes before the sum, and what after it."""

# Right in four launches of five.
RACY = "__device__ int launches;\n" + NAIVE % {
    "before": "",
    "after": f"const int now = {FIRST} ? ++launches : 0; *out = alpha * sum + (now % 5 == 4);",
}


@cache
def cubin(source: str, arch: int) -> bytes:
    binary = compile_one(source, arch)
    assert isinstance(binary, Binary), binary
    return binary.cubin


def source(fault: str) -> str:
    before, after = FAULTS[fault]
    return NAIVE % {"before": before, "after": after}


def plan(problem: Sgemm, *, threads: tuple[int, int, int] = (16, 16, 1)) -> LaunchPlan:
    numbers = {
        "m": problem.m, "n": problem.n, "k": problem.k,
        "lda": problem.lda, "ldb": problem.ldb, "ldc": problem.ldc,
    }  # fmt: skip
    return LaunchPlan(
        launches=(
            Launch(
                entry="naive",
                grid=(-(-problem.n // 16), -(-problem.m // 16), 1),
                block=threads,
                shared_bytes=0,
                arguments=(
                    *(Argument(kind="operand", name=name) for name in "abc"),
                    *(Argument(kind="int32", name=n, value=v) for n, v in numbers.items()),
                    Argument(kind="float32", name="alpha"),
                ),
            ),
        )
    )


def job(problem: Sgemm, arch: int, text: str, **options: object) -> Job:
    return Job(
        problem=problem,
        plan=plan(problem),
        cubin=cubin(text, arch),
        **options,  # type: ignore[arg-type]
    )
