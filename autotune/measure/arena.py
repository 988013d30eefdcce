"""A problem's device memory: inputs, output, expected result, each between guard zones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

import numpy as np

from autotune import verify
from autotune.errors import DeviceError
from autotune.gpu import Context, Values
from autotune.measure.places import Places, Source
from autotune.measure.probe import Probe
from autotune.measure.workspaces import Workspaces, require_bytes
from autotune.types import Problem, Workspace
from autotune.verify import Case, Comparison, Placement

Data = Literal["exact", "random"]
"""Integers at strict alignment, for the exact check; or normal data, for FP64 and for timing."""

DATA: tuple[Data, ...] = ("exact", "random")


class Arena:
    """Everything of one problem that stays on the device from one candidate to the next.

    Raises:
        ShapeError: the problem needs more memory than the device has.
        DeviceError: it would fit, but other programs hold too much.
    """

    def __init__(self, context: Context, probe: Probe, problem: Problem, seed: int) -> None:
        self.problem = problem
        self._context = context
        self._probe = probe
        self._output = verify.output(problem)
        self._addresses: list[int] = []
        self._workspaces = Workspaces(context)
        require_memory(problem, *context.memory())
        self._seed = seed
        try:
            self._allocate_all()
            self.restore()
            self._prove()
        except BaseException:
            self.close()
            raise

    def _allocate_all(self) -> None:
        self._placements: dict[tuple[Data, str], Placement] = {}
        self._bases: dict[tuple[Data, str], int] = {}
        # What no kernel gets to know: the right output, and old values of one that is read too.
        self._kept: dict[Data, int] = {}
        shared = self._allocate(verify.place(self._output, strict=True))
        self._expected = self._allocate(verify.place(self._output, strict=True))
        for data in DATA:
            for operand in self.problem.operands:
                placement = verify.place(operand, strict=data == "exact")
                self._placements[data, operand.name] = placement
                is_output = operand is self._output
                self._bases[data, operand.name] = shared if is_output else self._allocate(placement)
            if self._output.role == "inout":
                self._kept[data] = self._allocate(self._placements[data, self._output.name])

    def _allocate(self, placement: Placement) -> int:
        address = self._context.allocate(placement.total_bytes)
        self._addresses.append(address)
        return address

    def restore(self) -> None:
        """Makes the data and the reference anew and writes them to the device."""
        exact = verify.exact_case(self.problem, self._seed)
        random = verify.random_case(self.problem, self._seed)
        self._upload("exact", exact)
        self._upload("random", random)
        words = verify.image(self._placements["exact", self._output.name], exact.expected)
        self._context.upload(self._expected, words)
        # The inputs are on the device; only the rows that are compared are needed here.
        self._random = replace(random, inputs={})
        self._sums = self._checksums()

    def _upload(self, data: Data, case: Case) -> None:
        for name, values in case.inputs.items():
            is_output = name == self._output.name
            base = self._kept[data] if is_output else self._bases[data, name]
            self._context.upload(base, verify.image(self._placements[data, name], values))

    def _prove(self) -> None:
        """A kernel that does nothing must fail; if it passes, nothing that is said here counts."""
        self.reset("exact")
        if not self.exact_fault():
            raise DeviceError(
                f"verification is broken for {self.problem.key}: a kernel that does nothing "
                "passes; please report this"
            )

    def values(self, data: Data, workspaces: Iterable[Workspace] = ()) -> Values:
        """What a kernel's arguments are bound to, with workspaces that were reserved."""
        values: dict[str, int | float] = dict(self.problem.scalars)
        values.update(self._workspaces.addresses(workspaces))
        for operand in self.problem.operands:
            key = data, operand.name
            values[operand.name] = self._bases[key] + self._placements[key].offset_bytes
        return values

    def places(self, workspaces: Iterable[Workspace], count: int) -> Places:
        """Other places for the random data and for what plans need beside it."""
        sources = {}
        for operand in self.problem.operands:
            is_kept = operand is self._output and "random" in self._kept
            base = self._bases["random", operand.name]
            sources[operand.name] = Source(
                address=self._kept["random"] if is_kept else base,
                placement=self._placements["random", operand.name],
            )
        return Places(self._context, self.problem, sources, workspaces, count, self._seed)

    def reserve(self, workspaces: Iterable[Workspace]) -> None:
        """Makes room for a plan's workspaces: one that has to grow gets another address.

        Raises:
            ShapeError: more than the device has.
            DeviceError: more than is free.
        """
        self._workspaces.reserve(workspaces)

    def reset(self, data: Data, workspaces: Iterable[Workspace] = ()) -> None:
        """Fills the output and all around it with poison; old values where they are read.

        Workspaces too, but for those that are zero between runs.
        """
        self._workspaces.poison(workspaces)
        placement = self._placements[data, self._output.name]
        base = self._bases[data, self._output.name]
        if data in self._kept:
            self._context.copy(base, self._kept[data], placement.total_bytes)
        else:
            self._context.fill_words(base, verify.POISON, placement.words)

    def exact_fault(self) -> str:
        """What is wrong with the output of a run on the exact data; empty when nothing is."""
        name = self._output.name
        placement = self._placements["exact", name]
        base = self._bases["exact", name]
        if self._probe.differences(base, self._expected, placement.words) == 0:
            return ""
        found, wanted = (np.empty(placement.words, np.uint32) for _ in range(2))
        self._context.download(found, base)
        self._context.download(wanted, self._expected)
        return verify.compare_images(placement, found, wanted).message or (
            "the comparisons on device and host disagree"
        )

    def compare_random(self) -> Comparison:
        """The output of a run on the random data against FP64."""
        placement = self._placements["random", self._output.name]
        base = self._bases["random", self._output.name]
        operand = self._output
        rows = self._random.rows
        if rows is None:
            words = np.empty(placement.words, np.uint32)
            self._context.download(words, base)
            return verify.compare(verify.elements(placement, words), self._random)
        result = np.empty((operand.batch, rows.size, operand.columns), np.float32)
        for batch in range(operand.batch):
            for place, row in enumerate(rows):
                offset = batch * operand.batch_stride + int(row) * operand.leading_dimension
                address = base + placement.offset_bytes + offset * verify.WORD_BYTES
                self._context.download(result[batch, place], address)
        return verify.compare(result, self._random)

    def workspace_fault(self, workspaces: Iterable[Workspace]) -> str:
        """Which workspaces were left other than zero, or written beyond; empty when none was."""
        return self._workspaces.fault(workspaces)

    def input_fault(self) -> str:
        """Which inputs, or guards of theirs, were written to; empty when none was."""
        after = self._checksums()
        changed = [name for name, before in self._sums.items() if before != after[name]]
        if not changed:
            return ""
        return f"the kernel wrote where it may only read: {', '.join(changed)}"

    def _checksums(self) -> dict[str, int]:
        output = self._output.name
        sums = {
            f"{name} ({data} data)": self._probe.checksum(base, self._placements[data, name].words)
            for (data, name), base in self._bases.items()
            if name != output
        }
        words = self._placements["exact", output].words
        sums["the expected result"] = self._probe.checksum(self._expected, words)
        return sums

    def close(self) -> None:
        """Frees the memory."""
        self._workspaces.close()
        while self._addresses:
            self._context.free(self._addresses.pop())


def require_memory(problem: Problem, free_bytes: int, total_bytes: int) -> None:
    """Refuses a problem that does not fit.

    Raises:
        ShapeError: more than the device has.
        DeviceError: more than is free.
    """
    what = f"{problem.shape} needs {{}} to be verified and timed"
    require_bytes(verify.needed_bytes(problem), free_bytes, total_bytes, what, "a smaller shape")
