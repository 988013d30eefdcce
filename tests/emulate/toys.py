"""Small kernels written by hand, each to show one rule of the emulator with its right form.

They compute C = A * B for a few rows: a thread has a column, and a stage of shared memory holds one
row of B, so that what matters is who brings the row and who waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernels import changed, line_of

from autotune import assets
from autotune.emulate import FaultKind
from autotune.problems.sgemm import Sgemm
from autotune.types import Argument, Config, Launch, LaunchPlan, Variant

COLUMNS = 128
PROBLEM = Sgemm(m=4, n=100, k=7, ldb=COLUMNS, ldc=COLUMNS)
BEFORE = ("vector", "global", "shared", "barrier")


def operands() -> tuple[Argument, ...]:
    """A, B, C and k, as the toys take them."""
    return (
        *(Argument(kind="operand", name=name) for name in "abc"),
        Argument(kind="int32", name="k", value=PROBLEM.k),
    )


def launch(
    entry: str = "toy",
    *,
    blocks: int = 1,
    threads: int = COLUMNS,
    shared_bytes: int = 0,
    arguments: Sequence[Argument] | None = None,
) -> Launch:
    """A launch of a toy."""
    return Launch(
        entry=entry,
        grid=(blocks, 1, 1),
        block=(threads, 1, 1),
        shared_bytes=shared_bytes,
        arguments=operands() if arguments is None else tuple(arguments),
    )


def toy(
    code: str, primitives: Sequence[str], *launches: Launch, problem: Sgemm = PROBLEM
) -> Variant:
    """A kernel written by hand, as if it had been rendered for `problem`."""
    folder = assets.folder("templates") / "primitives"
    texts = [
        (folder / f"{name}.cuh").read_text(encoding="utf-8") for name in (*BEFORE, *primitives)
    ]
    return Variant(
        problem=problem,
        config=Config({"block_m": problem.m, "block_n": problem.n}),
        arch=90,
        header="// a toy\n\n",
        body="\n".join((*texts, code.lstrip("\n"))),
        template_sha256="",
        plan=LaunchPlan(launches=launches),
    )


@dataclass(frozen=True)
class Slip:
    """A mistake in a toy, and what must be named.

    Attributes:
        old, new: The text that is replaced, which occurs once, and what by.
        line: The line that must be named.
        other: A line that the message must name too; empty where none is.
    """

    name: str
    old: str
    new: str
    kind: FaultKind
    line: str
    other: str = ""

    def planted(self, original: Variant) -> Variant:
        """The toy with the mistake."""
        return changed(original, self.old, self.new)

    def line_number(self, planted: Variant) -> int:
        """Of the line that must be named."""
        return line_of(planted, self.line)
