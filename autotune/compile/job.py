"""What is compiled, by what, and how the compiler's text is read. Nothing here runs a compiler."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Literal

from autotune import archs
from autotune.types import Binary, Failure, Outcome

_FORMAT = 1
"""Raised when entries of the cache change their meaning."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """One compiler of this machine, as it describes itself.

    Attributes:
        version: Major and minor, for example (13, 5): what a driver has to match.
        build: Full version, for example `13.5.37`.
        archs: Architectures it generates code for.
        path: The program; empty for `nvrtc`.
    """

    kind: Literal["nvrtc", "nvcc"]
    version: tuple[int, int]
    build: str
    archs: frozenset[int]
    path: str = ""

    @property
    def label(self) -> str:
        """Name and full version, part of a result's identity: `nvrtc 13.5.37`."""
        return f"{self.kind} {self.build}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One source for one target.

    Attributes:
        source: CUDA C++ that includes no file of its own: its text is its identity.
        target: What the compilers call it, when not as `archs` says: for example `sm_120a`.
        options: Further options, which `nvrtc` and `nvcc` spell alike.
    """

    source: str
    arch: int
    target: str = ""
    options: tuple[str, ...] = ()

    @property
    def flags(self) -> tuple[str, ...]:
        """Every option, spelt as both compilers take it."""
        target = self.target or archs.get(self.arch).target
        return (
            f"--gpu-architecture={target}",
            "--std=c++17",
            "--ptxas-options=-v",
            *self.options,
        )

    def key(self, compiler: Compiler) -> str:
        """Hex digest of all that can change the binary."""
        identity = [_FORMAT, compiler.label, self.arch, self.flags, self.source]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()

    def binary(self, compiler: Compiler, cubin: bytes, log: str, seconds: float) -> Binary:
        """The result of a compile that succeeded."""
        resources = Resources.parse(log)
        return Binary(
            arch=self.arch,
            compiler=compiler.label,
            cubin=cubin,
            registers=resources.registers,
            static_shared_bytes=resources.static_shared_bytes,
            spill_bytes=resources.spill_bytes,
            stack_bytes=resources.stack_bytes,
            log=log,
            compile_seconds=seconds,
        )

    def failure(self, compiler: Compiler, outcome: Outcome, what: str, log: str = "") -> Failure:
        """The result of a compile that did not."""
        target = self.target or archs.get(self.arch).target
        return Failure(outcome=outcome, message=f"{compiler.label} for {target}: {what}", log=log)


class Died(Exception):
    """The compiler did not come to an end by itself: killed by a signal, or out of memory.

    Says nothing about the source, so it is never cached and always tried once more.
    """

    def __init__(self, reason: str, log: str = "") -> None:
        super().__init__(reason, log)
        self.reason = reason
        self.log = log


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What ptxas reports: registers, shared memory and stack of the hungriest function of the
    source, and the spills of all together."""

    registers: int
    static_shared_bytes: int
    spill_bytes: int
    stack_bytes: int

    @classmethod
    def parse(cls, log: str) -> Resources:
        """Read from the text that `--ptxas-options=-v` prints."""
        frames = [tuple(map(int, found)) for found in _FRAME.findall(log)]
        return cls(
            registers=max(map(int, _REGISTERS.findall(log)), default=0),
            static_shared_bytes=max(map(int, _SHARED.findall(log)), default=0),
            spill_bytes=sum(stores + loads for _, stores, loads in frames),
            stack_bytes=max((stack for stack, _, _ in frames), default=0),
        )


_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_ERROR = re.compile(r"\b(?:error|fatal)\b", re.IGNORECASE)


def first_error(log: str) -> str:
    """The line of a compiler's text that a person wants to read first."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if _ERROR.search(line)), lines[-1] if lines else "no text")
