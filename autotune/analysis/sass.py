"""What the compiler made of a kernel: instruction mix, vector widths, spills, operand reuse.

NVIDIA's disassembler does the reading. It comes with the extra `sass`, or with a CUDA toolkit.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune import settings
from autotune.errors import CubinError, MissingExtraError

_TOOL = "nvdisasm"
_TOOLKIT = Path("/usr/local/cuda/bin")
_TIMEOUT_SECONDS = 60
_FUSED_MULTIPLY_ADDS = ("FFMA", "FFMA2")
_WIDTH_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """The instructions of a stretch of code.

    Attributes:
        opcodes: Instructions by name without modifiers, most frequent first: `FFMA`, `LDS`.
        widths: For `LDS STS LDG STG LDGSTS`: instructions by bytes per thread, without those that
            are never executed.
        reuse_flags: Operands of FFMA that are kept in the reuse cache for the next instruction.
    """

    opcodes: Mapping[str, int]
    widths: Mapping[str, Mapping[int, int]]
    reuse_flags: int

    @property
    def instructions(self) -> int:
        """All of them."""
        return sum(self.opcodes.values())

    @property
    def ffma(self) -> int:
        """Fused multiply-add instructions, those on pairs of floats included."""
        return sum(self.opcodes.get(name, 0) for name in _FUSED_MULTIPLY_ADDS)

    @property
    def ffma_share(self) -> float:
        """FFMA among all instructions, 0 to 1."""
        return self.ffma / self.instructions if self.instructions else 0.0

    @property
    def reuse_share(self) -> float:
        """Reuse flags per FFMA, 0 to 3."""
        return self.reuse_flags / self.ffma if self.ffma else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sass:
    """A disassembled kernel.

    Attributes:
        entry: Name of the kernel.
        kernel: All its instructions, without the padding after its end.
        loop: One turn of its main loop: the innermost loop with the most FFMA. None without one.
    """

    entry: str
    kernel: Mix
    loop: Mix | None

    @property
    def spill_loads(self) -> int:
        """Loads from local memory, where spilled registers go."""
        return self.kernel.opcodes.get("LDL", 0)

    @property
    def spill_stores(self) -> int:
        """Stores to local memory."""
        return self.kernel.opcodes.get("STL", 0)


def analyse(cubin: bytes, entry: str | None = None) -> Sass:
    """Disassembles one kernel of a cubin.

    Args:
        cubin: The compiled image, of sm_75 or later.
        entry: Name of the kernel; may be left out where the cubin has only one function.

    Raises:
        MissingExtraError: there is no disassembler.
        CubinError: the disassembler cannot read the image, or it lacks that kernel.
    """
    functions = {function["function-name"]: function for function in _disassemble(cubin)}
    if entry is None and len(functions) == 1:
        (entry,) = functions
    if entry is None or entry not in functions:
        asked = "which kernel is meant was not said" if entry is None else f"no kernel {entry!r}"
        names = ", ".join(sorted(functions)) or "no function at all"
        raise CubinError(f"{asked}: the cubin of {len(cubin)} bytes has {names}")
    instructions = functions[entry]["sass-instructions"]
    # Every instruction of sm_70 and later has one size.
    step = functions[entry]["length"] // len(instructions)
    while instructions and instructions[-1]["opcode"] == "NOP":
        instructions = instructions[:-1]
    return Sass(entry=entry, kernel=_mix(instructions), loop=_main_loop(instructions, step))


def find_disassembler() -> Path:
    """Where the disassembler is: the extra's package, PATH, or the toolkit's usual folder.

    Raises:
        MissingExtraError: in none of them.
    """
    # The package comes first: an older toolkit's tool may not know the cubin or write JSON.
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations or ()) if spec else []
    folders = [folder for root in roots for folder in sorted(Path(root).glob("cu*/bin"))[::-1]]
    folders += [*settings.path_entries(), _TOOLKIT]
    for folder in folders:
        if found := shutil.which(_TOOL, path=str(folder)):
            return Path(found)
    raise MissingExtraError(
        f"{_TOOL}, NVIDIA's disassembler, is neither installed nor on PATH nor in {_TOOLKIT}, so "
        "instructions cannot be counted; everything else works; pip install 'autotune-cuda[sass]'"
    )


def _disassemble(cubin: bytes) -> list[dict[str, Any]]:
    """The functions of a cubin as `nvdisasm --emit-json` gives them."""
    tool = find_disassembler()
    what = f"{tool} cannot read the cubin of {len(cubin)} bytes"
    with tempfile.TemporaryDirectory(prefix="autotune-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        try:
            done = subprocess.run(
                [tool, "--print-code", "--emit-json", path],
                capture_output=True,
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise CubinError(f"{what}: no end after {_TIMEOUT_SECONDS} s") from error
        except OSError as error:
            raise CubinError(f"{what}: {error}") from error
        said = done.stderr.decode(errors="replace").replace(str(path), "it").strip()
    if done.returncode:
        raise CubinError(
            f"{what}: {said or f'exit status {done.returncode}'}; compile the kernel again, or "
            "take a disassembler as new as the compiler (pip install -U 'autotune-cuda[sass]')"
        )
    try:
        _, functions = json.loads(done.stdout)
        return list(functions)
    except (ValueError, TypeError) as error:
        raise CubinError(f"{what}: its answer is not the JSON that was asked for") from error


def _main_loop(instructions: Sequence[Mapping[str, Any]], step: int) -> Mix | None:
    """The innermost loop with the most FFMA; a branch back to its target closes a loop."""
    loops = []
    for index, instruction in enumerate(instructions):
        if instruction["opcode"].split(".")[0] == "BRA":
            target = int(instruction["operands"].split(",")[-1], 16) // step
            if target <= index and _mix(instructions[target : index + 1]).ffma:
                loops.append((target, index))
    innermost = [
        _mix(instructions[start : end + 1])
        for start, end in loops
        if not any(
            start <= first and last <= end and (first, last) != (start, end)
            for first, last in loops
        )
    ]
    return max(innermost, key=lambda mix: mix.ffma, default=None)


def _mix(instructions: Sequence[Mapping[str, Any]]) -> Mix:
    opcodes: Counter[str] = Counter()
    widths: dict[str, Counter[int]] = {
        name: Counter() for name in ("LDS", "STS", "LDG", "STG", "LDGSTS")
    }
    reuse_flags = 0
    for instruction in instructions:
        name, *modifiers = instruction["opcode"].split(".")
        opcodes[name] += 1
        # One that is switched off takes its slot and accesses nothing: `@!PT LDS RZ, [RZ]`.
        if name in widths and instruction.get("predicate") != "@!PT":
            wide = [_WIDTH_BYTES[part] for part in modifiers if part in _WIDTH_BYTES]
            widths[name][wide[-1] if wide else 4] += 1
        if name in _FUSED_MULTIPLY_ADDS:
            reuse_flags += instruction["operands"].count(".reuse")
    return Mix(
        opcodes=dict(opcodes.most_common()),
        widths={name: dict(sorted(counts.items())) for name, counts in widths.items()},
        reuse_flags=reuse_flags,
    )
