"""NVRTC through cuda-bindings: a library, so it needs no GPU, driver, host compiler or toolkit."""

from __future__ import annotations

import ctypes
import re
import time
from contextlib import suppress
from functools import cache
from importlib import metadata
from typing import Any

from autotune.compile.job import Compiler, Died, Job, first_error
from autotune.errors import CompilerError
from autotune.types import Binary, Failure, Outcome

_BUILD = re.compile(r"^// Cuda compilation tools, .* V([\d.]+)$", re.MULTILINE)


@cache
def identify() -> Compiler:
    """The NVRTC of this environment.

    Raises:
        CompilerError: a package is missing.
    """
    nvrtc = load()
    major, minor = _call(nvrtc.nvrtcVersion())
    archs = frozenset(_call(nvrtc.nvrtcGetSupportedArchs()))
    # The version call knows no build number, but the compiler writes it into every PTX file.
    with _Program(nvrtc, "") as program:
        _call(nvrtc.nvrtcCompileProgram(program.handle, 0, []))
        ptx = program.read("PTX").decode(errors="replace")
    build = _BUILD.search(ptx)
    return Compiler("nvrtc", (major, minor), build[1] if build else f"{major}.{minor}", archs)


def build(compiler: Compiler, job: Job) -> Binary | Failure:
    """Compile in this process; cannot be interrupted.

    Raises:
        Died: out of memory, or the compiler's own fault; trying again may help.
        CompilerError: the installation is broken.
    """
    nvrtc = load()
    codes = nvrtc.nvrtcResult
    started = time.perf_counter()
    with _Program(nvrtc, job.source) as program:
        options = [flag.encode() for flag in (*job.flags, *_without_cache())]
        (code,) = nvrtc.nvrtcCompileProgram(program.handle, len(options), options)
        log = program.read("ProgramLog").decode(errors="replace").strip("\0 \n")
        if code == codes.NVRTC_SUCCESS:
            if "ptxas info" not in log:
                raise Died("gave a binary but did not say what it needs", log)
            cubin = program.read("CUBIN")
            return job.binary(compiler, cubin, log, time.perf_counter() - started)
    if code in (codes.NVRTC_ERROR_COMPILATION, codes.NVRTC_ERROR_INVALID_OPTION):
        return job.failure(compiler, Outcome.compile_error, first_error(log), log)
    if code == codes.NVRTC_ERROR_BUILTIN_OPERATION_FAILURE:
        raise CompilerError(
            f"{compiler.label} cannot load its libnvrtc-builtins library: "
            "reinstall nvidia-cuda-nvrtc"
        )
    raise Died(f"failed with {code.name}", log)


@cache
def _without_cache() -> tuple[str, ...]:
    """The option that keeps NVRTC's own cache out: what comes from there has no resource report.

    Seen with 13.0: the second compile of a source, in another process too, left the log empty.
    """
    nvrtc = load()
    with _Program(nvrtc, "") as program:
        (code,) = nvrtc.nvrtcCompileProgram(program.handle, 1, [b"--no-cache"])
    return ("--no-cache",) if code == nvrtc.nvrtcResult.NVRTC_SUCCESS else ()


class _Program:
    """A program handle that is destroyed on the way out."""

    def __init__(self, nvrtc: Any, source: str) -> None:
        self._nvrtc = nvrtc
        self.handle = _call(nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], []))

    def __enter__(self) -> _Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._nvrtc.nvrtcDestroyProgram(self.handle)

    def read(self, what: str) -> bytes:
        size = _call(getattr(self._nvrtc, f"nvrtcGet{what}Size")(self.handle))
        text = bytearray(size)
        _call(getattr(self._nvrtc, f"nvrtcGet{what}")(self.handle, text))
        return bytes(text)


def _call(answer: tuple[Any, ...]) -> Any:
    """The value of a call that only fails when memory or the library does."""
    code, *values = answer
    if code.value != 0:
        raise Died(f"failed with {code.name}")
    return values[0] if len(values) == 1 else tuple(values)


def load() -> Any:
    """The binding. Imported late: what only looks up results needs no compiler.

    Raises:
        CompilerError: a package is missing.
    """
    try:
        from cuda.bindings import __version__, nvrtc
    except ImportError as error:
        raise CompilerError(
            "the default compiler needs the package cuda-bindings, which cannot be imported "
            f"({error}): pip install cuda-bindings nvidia-cuda-nvrtc, or use --compiler nvcc"
        ) from error
    try:
        _load_library(__version__.split(".")[0])
        nvrtc.nvrtcVersion()
    except (OSError, RuntimeError) as error:  # RuntimeError: cuda-pathfinder found no libnvrtc
        raise CompilerError(
            f"the library libnvrtc is missing ({error}): pip install nvidia-cuda-nvrtc, or use "
            "--compiler nvcc"
        ) from error
    return nvrtc


@cache
def _load_library(major: str) -> None:
    """Load the wheel's library whose major version is the binding's, if there is one.

    The binding takes what is loaded, then the newest of all that is installed. But the extra `cu12`
    adds its library to the newer one, and another package may have loaded one of its own.
    The compiler's built-in functions come first: it asks for them by name alone, and that of 13.0
    does not look beside itself.
    """
    package = "nvidia-cuda-nvrtc" + ("-cu12" if major == "12" else "")
    with suppress(metadata.PackageNotFoundError):
        files = metadata.files(package) or ()
        for name in (f"libnvrtc-builtins.so.{major}.*", f"libnvrtc.so.{major}"):
            for file in files:
                if file.match(name):
                    ctypes.CDLL(str(file.locate()))
