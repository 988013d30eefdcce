"""The kinds of kernel that differ in how they are exported: compiled anywhere, run on a GPU."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune import space
from autotune.problems.sgemm import Sgemm
from autotune.types import Config, Scalar

KERNELS = space.load("sgemm")
NVCC = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A problem, and a preset with changes that serves it.

    Attributes:
        arch: What it is compiled for where nothing runs.
        lowest: The first architecture that can run it.
    """

    problem: Sgemm
    arch: int
    lowest: int = 75
    preset: str
    changes: Mapping[str, Scalar] = field(default_factory=dict)

    def config(self, arch: int) -> Config:
        """Fitted to the problem and an architecture."""
        wanted = KERNELS.config({**KERNELS.preset(self.preset), **self.changes})
        found = KERNELS.fitted(wanted, self.problem, arch)
        assert found is not None, KERNELS.explain(wanted, self.problem, arch)
        return found


KINDS = {
    "plain": Kind(problem=Sgemm.parse("1024x1024x1024"), arch=75, preset="seed-v3.2"),
    "nothing to add": Kind(
        problem=Sgemm.parse("300x200x0", beta_zero=False), arch=75, preset="small"
    ),
    "workspace": Kind(
        problem=Sgemm.parse("515x770x2051", layout="tt", batch=2, beta_zero=False),
        arch=80, preset="small", changes={"split_k": 8},
    ),
    "last": Kind(
        problem=Sgemm.parse("1000x1100x1300", layout="tn", ldc=1104),
        arch=120, preset="small", changes={"split_k": 4, "split_k_mode": "last"},
    ),
    "atomic": Kind(
        problem=Sgemm.parse("1024x1024x4096", beta_zero=False),
        arch=86, preset="small", changes={"split_k": 4, "split_k_mode": "atomic"},
    ),
    "cluster": Kind(
        problem=Sgemm.parse("512x512x4096"), arch=90, lowest=90,
        preset="small", changes={"split_k": 4, "split_k_mode": "cluster"},
    ),
    "stream": Kind(
        problem=Sgemm.parse("3000x5000x777"),
        arch=89, preset="medium", changes={"schedule": "stream"},
    ),
    "tma": Kind(
        problem=Sgemm.parse("4096x4096x4096"), arch=90, lowest=90, preset="tma-256x128x32"
    ),
    "skinny": Kind(
        problem=Sgemm.parse("4x7680x2560"), arch=100, preset="skinny-columns-split"
    ),
}  # fmt: skip
