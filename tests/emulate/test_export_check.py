"""The program that checks an exported kernel: right results pass, wrong ones do not.

It is compiled for the CPU, against a stand-in for the CUDA runtime whose only kernel is a plain
product that can be told to make a mistake.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from autotune import export, space
from autotune.problems.sgemm import Sgemm

KERNELS = space.load("sgemm")

RUNTIME = """
#include <cstdlib>
#include <cstring>
typedef int cudaError_t;
typedef void *cudaStream_t;
typedef int cudaEvent_t;
enum { cudaSuccess, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
enum { cudaFuncAttributeMaxDynamicSharedMemorySize };
struct dim3 { unsigned x, y, z; };
inline const char *cudaGetErrorString(cudaError_t) { return ""; }
inline cudaError_t cudaMalloc(void **to, size_t size) { *to = std::malloc(size); return 0; }
inline cudaError_t cudaMemcpy(void *to, const void *from, size_t size, int)
{
    std::memcpy(to, from, size);
    return 0;
}
inline cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t)
{
    std::memset(to, value, size);
    return 0;
}
inline cudaError_t cudaFuncSetAttribute(const void *, int, int) { return 0; }
inline cudaError_t cudaEventCreate(cudaEvent_t *) { return 0; }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return 0; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return 0; }
inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t) { *ms = 1; return 0; }
cudaError_t cudaLaunchKernel(const void *, dim3, dim3, void **arguments, size_t, cudaStream_t);
"""

KERNEL = """
#include "STEM.h"
extern "C" void STEM__sgemm(void) {}
static int launches = 0;
cudaError_t cudaLaunchKernel(const void *, dim3, dim3, void **arguments, size_t, cudaStream_t)
{
    const float *a = *(const float **)arguments[0], *b = *(const float **)arguments[1];
    float *c = *(float **)arguments[2];
    ++launches;
    for (long z = 0; z < BATCH; ++z)
        for (long i = 0; i < M; ++i)
            for (long j = 0; j < N; ++j) {
                float sum = 0;
                for (long l = 0; l < K; ++l)
                    sum += a[z * SA + (TA ? l * LDA + i : i * LDA + l)]
                        * b[z * SB + (TB ? j * LDB + l : l * LDB + j)];
                float &to = c[z * SC + i * LDC + j];
                to = BETA ? ALPHA * sum + BETA * to : ALPHA * sum;
            }
    MISTAKE
    return 0;
}
"""

PROBLEMS = [
    Sgemm.parse("48x40x56"),
    Sgemm.parse("33x50x17", layout="tn", ldc=53, lda=36, batch=2, beta_zero=False),
    Sgemm.parse("40x31x24", layout="nt", batch=3),
    Sgemm.parse("24x36x20", layout="tt", ldb=21, beta_zero=False),
]
MISTAKES = {
    "none": "",
    "last element": "c[(BATCH - 1) * SC + (M - 1) * LDC + N - 1] += 1;",
    "one element": "c[(M / 2) * LDC + 3] += 1;",
    "never written": 'c[5] = __builtin_nanf("");',
    "later runs": "if (launches > 1) c[0] += 1;",
}


def program(problem: Sgemm, folder: Path, mistake: str) -> Path:
    """The check of a kernel, compiled for the CPU."""
    config = KERNELS.fitted(KERNELS.preset("smallest"), problem, 75)
    assert config is not None
    done = export.export(problem, config, 75, folder)
    sizes = {
        "M": problem.m, "N": problem.n, "K": problem.k, "BATCH": problem.batch,
        "LDA": problem.lda, "LDB": problem.ldb, "LDC": problem.ldc,
        "SA": problem.stride_a, "SB": problem.stride_b, "SC": problem.stride_c,
        "TA": int(problem.layout[0] == "t"), "TB": int(problem.layout[1] == "t"),
        "ALPHA": problem.scalars["alpha"], "BETA": problem.scalars.get("beta", 0.0),
    }  # fmt: skip
    (folder / "cuda_runtime_api.h").write_text("#pragma once\n" + RUNTIME)
    (folder / "kernel.cpp").write_text(
        "".join(f"#define {name} {value}\n" for name, value in sizes.items())
        + KERNEL.replace("STEM", done.stem).replace("MISTAKE", mistake)
    )
    check = folder / "check"
    command = ["g++", "-std=c++17", "-O1", "-Wall", "-Werror", "-I.", "-x", "c++"]
    ran = subprocess.run(
        [*command, "kernel.cpp", f"{done.stem}_check.cu", "-o", check],
        cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return check


@pytest.mark.parametrize(
    ("problem", "mistake"),
    [(problem, "none") for problem in PROBLEMS]
    + [(PROBLEMS[number % 4], name) for number, name in enumerate(MISTAKES) if name != "none"],
    ids=lambda value: value if isinstance(value, str) else value.key,
)
def test_right_results_pass_and_wrong_ones_do_not(
    problem: Sgemm, mistake: str, tmp_path: Path
) -> None:
    check = program(problem, tmp_path, MISTAKES[mistake])
    ran = subprocess.run([check], capture_output=True, text=True)
    if mistake == "none":
        assert ran.returncode == 0, ran.stderr
        elements = problem.batch * problem.m * problem.n
        assert f"{elements} of {elements} elements compared, all exact" in ran.stdout
    else:
        assert ran.returncode == 1
        assert "elements are wrong" in ran.stderr and ran.stdout == ""
