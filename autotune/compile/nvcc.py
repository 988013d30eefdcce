"""The nvcc of a CUDA toolkit: a program, so it needs a host compiler and leaves files behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

from autotune import settings
from autotune.compile.job import Compiler, Died, Job, first_error
from autotune.errors import CompilerError
from autotune.types import Binary, Failure, Outcome

_USUAL = Path("/usr/local/cuda/bin/nvcc")
_ANSWER_LIMIT_S = 30.0
_VERSION = re.compile(r"release (\d+)\.(\d+), V([\d.]+)")
_ARCH = re.compile(r"^sm_(\d+)$", re.MULTILINE)
_NO_HOST = re.compile(
    r"Failed to preprocess host compiler|Cannot find compiler|unsupported (?:GNU|clang) version"
    r"|(?:gcc|g\+\+|cc1plus).*(?:not found|No such file)"
)
_CHILD_DIED = re.compile(r"died due to signal (\d+)")
_NO_ROOM = "No space left on device"


def identify() -> Compiler:
    """The nvcc that `AUTOTUNE_NVCC`, PATH or the usual folder gives, in this order.

    Raises:
        CompilerError: there is none, or it does not answer.
    """
    path = _find()
    answer = _ask(path, "--version")
    version = _VERSION.search(answer)
    if version is None:
        raise CompilerError(
            f"{path} --version does not name a CUDA release but says {first_error(answer)!r}; "
            "set AUTOTUNE_NVCC to the nvcc of a CUDA toolkit"
        )
    archs = frozenset(map(int, _ARCH.findall(_ask(path, "--list-gpu-code"))))
    return Compiler("nvcc", (int(version[1]), int(version[2])), version[3], archs, str(path))


def build(compiler: Compiler, job: Job, folder: str) -> Binary | Failure:
    """Compile in a folder that the caller removes, whatever happens.

    nvcc joins this process's group, so that killing the group ends it and all its children.

    Raises:
        Died: nvcc or one of its children was killed by a signal.
        CompilerError: no host compiler, or no room for temporary files.
    """
    started = time.perf_counter()
    here = Path(folder)
    # `env` because the two variables concern nvcc alone: where it leaves its files, and that it
    # speaks the language which the patterns above know.
    command = ["env", "LC_ALL=C", f"TMPDIR={folder}", compiler.path, "--cubin", *job.flags]
    try:
        (here / "kernel.cu").write_text(job.source, encoding="utf-8")
        done = subprocess.run(
            [*command, "-o", "kernel.cubin", "kernel.cu"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        log = done.stdout.decode(errors="replace").strip()
        if done.returncode == 0:
            cubin = (here / "kernel.cubin").read_bytes()
            return job.binary(compiler, cubin, log, time.perf_counter() - started)
    except OSError as error:
        raise CompilerError(f"cannot compile in {folder}: {error}; set TMPDIR to a folder with "
                            "room for temporary files") from error  # fmt: skip
    if done.returncode < 0:
        raise Died(f"killed by {signal.Signals(-done.returncode).name}", log)
    if died := _CHILD_DIED.search(log):
        raise Died(f"killed by {signal.Signals(int(died[1])).name}", log)
    if _NO_ROOM in log:
        raise CompilerError(
            f"no space left for temporary files in {folder}; set TMPDIR to a folder with room"
        )
    if _NO_HOST.search(log):
        raise CompilerError(
            f"{compiler.path} found no host compiler that it can use ({first_error(log)}): install "
            "one (g++), or use --compiler nvrtc, which needs none"
        )
    return job.failure(compiler, Outcome.compile_error, first_error(log), log)


def _find() -> Path:
    if chosen := settings.read("AUTOTUNE_NVCC"):
        candidates = [Path(chosen).expanduser()]
        places = f"AUTOTUNE_NVCC={chosen}"
    else:
        candidates = [*(entry / "nvcc" for entry in settings.path_entries()), _USUAL]
        places = f"PATH and {_USUAL.parent}"
    for candidate in candidates:
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate.absolute()
    raise CompilerError(
        f"no nvcc that can be run in {places}: install a CUDA toolkit, set AUTOTUNE_NVCC to its "
        "nvcc, or use --compiler nvrtc, which needs no toolkit"
    )


def _ask(path: Path, question: str) -> str:
    try:
        done = subprocess.run(
            [str(path), question],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_ANSWER_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompilerError(
            f"{path} {question} does not answer ({error}); set AUTOTUNE_NVCC to a working nvcc"
        ) from error
    answer = done.stdout.decode(errors="replace")
    if done.returncode != 0:
        raise CompilerError(
            f"{path} {question} failed ({first_error(answer)}); autotune needs the nvcc of CUDA 11 "
            "or later: set AUTOTUNE_NVCC to one"
        )
    return answer
