"""What is refused before the first trial, and what the message tells to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import cuda
import pytest

from autotune.compile import Compiler, check, find, nvrtc
from autotune.compile.job import Resources, first_error
from autotune.errors import ArchitectureError, CompilerError, UsageError

CUDA_13 = frozenset({75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121})
NVRTC_13 = Compiler("nvrtc", (13, 5), "13.5.37", CUDA_13)
NVCC_13 = Compiler("nvcc", (13, 0), "13.0.88", CUDA_13)
NVRTC_12 = Compiler("nvrtc", (12, 9), "12.9.86", frozenset({50, 60, 70, 75, 80, 90, 120}))
NVRTC_14 = Compiler("nvrtc", (14, 0), "14.0.1", frozenset({80, 90}))


@pytest.mark.parametrize("compiler", [NVRTC_13, NVCC_13])
@pytest.mark.parametrize("arch", sorted(CUDA_13))
def test_what_the_compiler_lists_is_served(compiler: Compiler, arch: int) -> None:
    check(compiler, arch)
    check(compiler, arch, driver=13000)


@pytest.mark.parametrize(
    ("compiler", "arch", "names"),
    [
        (NVRTC_13, 60, ["sm_60", "75, 80", "autotune-cuda[cu12]", "own", "CUDA 12 toolkit"]),
        (NVCC_13, 70, ["sm_70", "autotune-cuda[cu12]", "CUDA 12 toolkit", "--compiler nvcc"]),
        (NVRTC_13, 37, ["sm_37", "CUDA 12 starts at sm_50", "nothing older"]),
        (NVRTC_13, 130, ["sm_130", "--upgrade nvidia-cuda-nvrtc", "newer CUDA toolkit"]),
        (NVCC_13, 130, ["sm_130", "newer CUDA toolkit than 13.0.88", "AUTOTUNE_NVCC"]),
        (NVRTC_12, 103, ["sm_103", "nvrtc 12.9.86", "--upgrade nvidia-cuda-nvrtc"]),
    ],
)
def test_an_architecture_that_is_not_served(
    compiler: Compiler, arch: int, names: list[str]
) -> None:
    with pytest.raises(ArchitectureError) as caught:
        check(compiler, arch)
    assert all(name in str(caught.value) for name in names), str(caught.value)
    if arch in (37, 103, 130):
        assert "cu12" not in str(caught.value)


def test_pascal_is_served_by_cuda_12() -> None:
    check(NVRTC_12, 60, driver=12040)


@pytest.mark.parametrize("driver", [0, 13000, 13050, 14000])
def test_drivers_that_load_binaries_of_cuda_13(driver: int) -> None:
    check(NVRTC_13, 75, driver)


@pytest.mark.parametrize(
    ("compiler", "driver", "names"),
    [
        (NVRTC_13, 12040, ["CUDA 12.4", "autotune-cuda[cu12]", "a driver for CUDA 13 (580 or"]),
        (NVCC_13, 12090, ["CUDA 12.9", "a CUDA 12 toolkit", "580 or later"]),
        (NVRTC_13, 11080, ["CUDA 11.8", "580 or later"]),
        (NVRTC_12, 11080, ["CUDA 11.8", "525 or later"]),
        (NVRTC_14, 13000, ["CUDA 13.0", "a driver for CUDA 14"]),
    ],
)
def test_a_driver_of_an_older_major_version_is_refused(
    compiler: Compiler, driver: int, names: list[str]
) -> None:
    with pytest.raises(CompilerError) as caught:
        check(compiler, 90 if compiler is NVRTC_14 else 75, driver)
    assert all(name in str(caught.value) for name in names), str(caught.value)
    assert ("cu12" in str(caught.value)) == (compiler is NVRTC_13 and driver == 12040)


def test_unknown_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="'clang' is not known; possible are nvrtc and nvcc"):
        find("clang")
    monkeypatch.setenv("AUTOTUNE_COMPILER", "clang")
    with pytest.raises(UsageError, match="clang"):
        find()


def test_no_cuda_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(CompilerError, match=r"pip install cuda-bindings nvidia-cuda-nvrtc.*nvcc"):
        nvrtc.load()


def test_no_nvrtc_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def version() -> None:
        raise RuntimeError("No such file: libnvrtc.so.13")

    binding = SimpleNamespace(__version__="0.0", nvrtc=SimpleNamespace(nvrtcVersion=version))
    monkeypatch.setitem(sys.modules, "cuda.bindings", binding)  # type: ignore[arg-type]
    monkeypatch.setattr(cuda, "bindings", binding, raising=False)
    with pytest.raises(CompilerError, match=r"libnvrtc.*pip install nvidia-cuda-nvrtc.*nvcc"):
        nvrtc.load()


@pytest.mark.parametrize(("major", "package"), [("13", "nvidia-cuda-nvrtc"), ("12", "-cu12")])
def test_built_in_functions_are_loaded_before_the_compiler(
    monkeypatch: pytest.MonkeyPatch, major: str, package: str
) -> None:
    """The library of 13.0 finds them only where the system looks, or when they are loaded."""
    asked: list[str] = []
    loaded: list[str] = []
    names = [
        f"nvidia/lib/libnvrtc-builtins.alt.so.{major}.0",
        f"nvidia/lib/libnvrtc.alt.so.{major}",
        f"nvidia/lib/libnvrtc.so.{major}",
        f"nvidia/lib/libnvrtc-builtins.so.{major}.0",
    ]

    class File(PurePosixPath):
        def locate(self) -> Path:
            return Path("/site") / self

    def files(package: str) -> list[File]:
        asked.append(package)
        return [File(name) for name in names]

    monkeypatch.setattr(nvrtc.metadata, "files", files)
    monkeypatch.setattr(nvrtc.ctypes, "CDLL", loaded.append)
    nvrtc._load_library.__wrapped__(major)
    assert asked[0].endswith(package)
    assert loaded == [f"/site/{names[3]}", f"/site/{names[2]}"]


def test_a_worker_loads_only_what_it_needs() -> None:
    code = "import autotune.compile.worker, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "autotune.compile.pool" in loaded
    too_much = {"sqlalchemy", "optuna", "jinja2", "numpy", "click", "rich", "pycuda", "cuda"}
    assert not too_much.intersection(loaded)


def test_resources_without_text() -> None:
    nothing = Resources(registers=0, static_shared_bytes=0, spill_bytes=0, stack_bytes=0)
    assert Resources.parse("") == nothing


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("", "no text"),
        ("Segmentation fault\n", "Segmentation fault"),
        ("warning: w\n  k.cu(3): error: e\n1 error detected", "k.cu(3): error: e"),
        (
            "ptxas info\n ptxas error   : too much shared data",
            "ptxas error   : too much shared data",
        ),
        ("nvcc fatal   : Unsupported", "nvcc fatal   : Unsupported"),
    ],
)
def test_first_error(log: str, line: str) -> None:
    assert first_error(log) == line
