"""The host's C++ compiler, and what it built once: a folder of binaries named by their content."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from autotune import settings
from autotune.emulate import source
from autotune.errors import CompilerError
from autotune.types import Variant

COMPILERS = ("g++", "clang++", "c++")
RUNTIME = Path(__file__).parent / "runtime"

_COMPILE_SECONDS = 300
# Signed overflow wraps, as it does on the device; a * b + c is not fused behind our back. Fortified
# longjmp refuses to switch stacks.
_FLAGS = (
    "-std=c++17",
    "-fwrapv",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-U_FORTIFY_SOURCE",
    "-fPIC",
)
_RUNTIME_FLAGS = ("-O2", "-rdynamic", "-ldl")
# Most kernels run for milliseconds: here the time to compile counts.
_KERNEL_FLAGS = ("-O1", "-shared", "-w")


def runtime() -> Path:
    """The program that runs kernels, built if need be.

    Raises:
        CompilerError: no compiler, or it fails.
    """
    files = sorted(RUNTIME.iterdir())
    key = _key(*(f"{file.name}\0{file.read_text(encoding='utf-8')}" for file in files))
    sources = [str(file) for file in files if file.suffix == ".cpp"]
    return _built(key, "emulator", sources, _RUNTIME_FLAGS)


def library(variant: Variant) -> Path:
    """A variant's kernels as a library for `runtime`, built if need be.

    Raises:
        CompilerError: no compiler, or it does not take the source.
    """
    text = source.host_source(variant)
    headers = [RUNTIME / "host.h", *source.twin_files()]
    key = _key(text, *(file.read_text(encoding="utf-8") for file in headers))
    include = [f"-I{folder}" for folder in dict.fromkeys(file.parent for file in headers)]
    return _built(key, "kernel.so", ["-x", "c++", "-"], (*_KERNEL_FLAGS, *include), text)


def _key(*parts: str) -> str:
    text = "\0".join((*_compiler(_search_path()), *_FLAGS, *_RUNTIME_FLAGS, *_KERNEL_FLAGS, *parts))
    return hashlib.sha256(text.encode()).hexdigest()


def _built(
    key: str, name: str, sources: Sequence[str], flags: Sequence[str], text: str = ""
) -> Path:
    """The cached file, or a new one, which appears in the folder in one step."""
    folder = _folder(settings.cache_folder() / "emulate") / key[:2]
    target = folder / f"{key}-{name}"
    if target.is_file():
        return target
    compiler = _compiler(_search_path())[0]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=folder) as work:
        fresh = Path(work) / name
        # Libraries come last: a linker takes from them what it has been asked for so far.
        command = [compiler, *_FLAGS, *sources, "-o", str(fresh), *flags]
        try:
            done = subprocess.run(
                command, input=text.encode(), capture_output=True, timeout=_COMPILE_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise CompilerError(
                f"{compiler} did not compile a kernel for the emulator in {_COMPILE_SECONDS} s"
            ) from None
        if done.returncode:
            log = done.stderr.decode(errors="replace").strip()
            raise CompilerError(
                f"{compiler} does not compile the kernel for the emulator, which may lack a word "
                f"of CUDA that it uses:\n{log}"
            )
        fresh.replace(target)
    return target


@cache
def _folder(folder: Path) -> Path:
    """That folder, or a temporary one for this process where it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="autotune-emulate-"))


def _search_path() -> str:
    return os.pathsep.join(str(entry) for entry in settings.path_entries())


@cache
def _compiler(search_path: str) -> tuple[str, str]:
    """Path and version of the first compiler that there is."""
    for name in COMPILERS:
        if found := shutil.which(name, path=search_path):
            done = subprocess.run([found, "--version"], capture_output=True)
            return found, done.stdout.decode(errors="replace")
    raise CompilerError(
        f"the emulator needs a C++ compiler, and none of {', '.join(COMPILERS)} is on PATH; "
        "install one (Debian and Ubuntu: apt install g++). Searching, compiling, rendering, "
        "look-ups and `explain` work without it"
    )
