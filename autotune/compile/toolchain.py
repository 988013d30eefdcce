"""Chooses the compiler, and says before the first trial what it cannot serve."""

from __future__ import annotations

from autotune import settings
from autotune.compile import nvcc, nvrtc
from autotune.compile.job import Compiler, Died
from autotune.errors import ArchitectureError, CompilerError, UsageError

_FIRST_OF_CUDA_12 = 50
_LOWEST_DRIVER = {12: 525, 13: 580}
"""First driver branch on Linux that loads binaries of a CUDA major version (CUDA Toolkit release
notes, "CUDA Driver")."""
_CU12 = "the extra autotune-cuda[cu12] in an environment of its own"


def find(kind: str | None = None) -> Compiler:
    """The compiler to use.

    Args:
        kind: `nvrtc` or `nvcc`; None takes `AUTOTUNE_COMPILER`, else `nvrtc`.

    Raises:
        UsageError: another word.
        CompilerError: it is not installed, or does not answer.
    """
    kind = kind or settings.read("AUTOTUNE_COMPILER") or "nvrtc"
    if kind == "nvcc":
        return nvcc.identify()
    if kind != "nvrtc":
        raise UsageError(f"compiler {kind!r} is not known; possible are nvrtc and nvcc")
    try:
        return nvrtc.identify()
    except Died as died:
        raise CompilerError(f"NVRTC does not start: it {died.reason}") from died


def check(compiler: Compiler, arch: int, driver: int = 0) -> None:
    """Refuse what cannot work, before any time is spent on it.

    A compiler with a newer minor version than the driver's is fine: cubins are loaded across the
    minor versions of one major version.

    Args:
        driver: CUDA version that the driver supports, as 13000 for 13.0; 0 when nothing is to be
            loaded here.

    Raises:
        ArchitectureError: the compiler does not know the architecture.
        CompilerError: the driver cannot load what it makes. Either message names what to install.
    """
    if arch not in compiler.archs:
        known = ", ".join(map(str, sorted(compiler.archs))) or "nothing"
        raise ArchitectureError(
            f"{compiler.label} cannot compile for sm_{arch}, it knows {known}; "
            + _serving(compiler, arch)
        )
    major = compiler.version[0]
    if driver and driver // 1000 < major:
        remedies = [_driver(major)]
        if driver // 1000 == 12 and compiler.kind == "nvrtc":
            remedies.insert(0, _CU12)
        elif driver // 1000 == 12:
            remedies.insert(0, "a CUDA 12 toolkit")
        raise CompilerError(
            f"{compiler.label} makes binaries that this driver, which supports CUDA "
            f"{driver // 1000}.{driver % 1000 // 10}, cannot load; install {', or '.join(remedies)}"
        )


def _serving(compiler: Compiler, arch: int) -> str:
    if compiler.archs and arch < min(compiler.archs):
        if arch < _FIRST_OF_CUDA_12:
            return f"CUDA 12 starts at sm_{_FIRST_OF_CUDA_12}, and nothing older is supported"
        return f"install {_CU12}, or a CUDA 12 toolkit and use --compiler nvcc"
    if compiler.kind == "nvrtc":
        return (
            "install a newer one (pip install --upgrade nvidia-cuda-nvrtc cuda-bindings), or a "
            "newer CUDA toolkit and use --compiler nvcc"
        )
    return f"install a newer CUDA toolkit than {compiler.build} and set AUTOTUNE_NVCC to its nvcc"


def _driver(major: int) -> str:
    if major in _LOWEST_DRIVER:
        return f"a driver for CUDA {major} ({_LOWEST_DRIVER[major]} or later)"
    return f"a driver for CUDA {major}"
