"""Small kernels written by hand, each to show one rule of the emulator with its right form.

They compute C = A * B for a few rows: a thread has a column, and a stage of shared memory holds one
row of B, so that what matters is who brings the row and who waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernels import changed, line_of, said

from autotune import assets
from autotune.emulate import FaultKind, emulate
from autotune.problems.sgemm import Sgemm
from autotune.types import Argument, Config, Launch, LaunchPlan, Variant, Workspace

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
    code: str,
    primitives: Sequence[str],
    *launches: Launch,
    problem: Sgemm = PROBLEM,
    workspaces: Sequence[Workspace] = (),
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
        plan=LaunchPlan(launches=launches, workspaces=tuple(workspaces)),
    )


@dataclass(frozen=True)
class Slip:
    """A mistake in a toy, and what must be named.

    Attributes:
        old, new: The text that is replaced, which occurs once, and what by.
        line: The line that must be named; empty where none can be.
        says: What the message must hold; `<<...>>` in it stands for the number of that line.
    """

    name: str
    old: str
    new: str
    kind: FaultKind
    line: str
    says: str = ""

    def check(self, original: Variant) -> None:
        """The toy with the mistake is caught by name."""
        planted = changed(original, self.old, self.new)
        report = emulate(planted)
        assert report.verdict == "fault", "the mistake was not seen"
        fault = report.faults[0]
        line = line_of(planted, self.line) if self.line else 0
        assert (fault.kind, fault.line) == (self.kind, line), said(report)
        before, _, rest = self.says.partition("<<")
        other, _, after = rest.partition(">>")
        says = f"{before}{line_of(planted, other)}{after}" if other else self.says
        assert says in fault.message, f"{says!r} is not in {fault.message!r}"
