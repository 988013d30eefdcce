"""Puts a fault of the runtime into words."""

from __future__ import annotations

import signal
from collections.abc import Callable

from autotune.emulate.report import Fault, FaultKind
from autotune.emulate.run import RawFault, memory
from autotune.types import Operand, Variant

_SHARED, _NOWHERE = -1, -2
_FLOAT_BYTES = 4

KINDS = tuple(FaultKind)
"""In the order of the runtime's `Kind`, which has the first of them."""


def described(raw: RawFault, variant: Variant, line_text: Callable[[int], str]) -> Fault:
    """The fault with its place and a sentence."""
    kind = KINDS[raw.kind]
    address = _address(raw, memory(variant.problem, variant.plan))
    where = f"line {raw.line}, block {raw.block}, thread {raw.thread}"
    if kind is FaultKind.crash:
        address = address if raw.space == _SHARED else ""
        message = _crash(raw, address)
    elif kind is FaultKind.divergent_barrier:
        address = ""
        message = _divergence(raw)
    else:
        message = f"{where}: {_WHAT[kind].format(address=address, **_numbers(raw))}"
        message += f": {line_text(raw.line)}"
    return Fault(
        kind=kind,
        line=raw.line,
        block=raw.block,
        thread=raw.thread,
        address=address,
        message=message,
    )


def element_address(operand: Operand, element: int) -> str:
    """An element by its number and by where that lies in the operand."""
    batch, rest = 0, element
    if operand.batch > 1 and operand.batch_stride:
        batch = max(0, min(element // operand.batch_stride, operand.batch - 1))
        rest = element - batch * operand.batch_stride
    row, column = divmod(rest, operand.leading_dimension)
    of_batch = f" of matrix {batch}" if operand.batch > 1 else ""
    return f"{operand.name}[{element}] (row {row}, column {column}{of_batch})"


_WHAT = {
    FaultKind.write_after_write: "writes {address}, which thread {other_thread} writes at line "
    "{other_line} with no barrier between",
    FaultKind.read_after_write: "reads {address}, which thread {other_thread} writes at line "
    "{other_line} with no barrier between",
    FaultKind.write_after_read: "writes {address}, which thread {other_thread} reads at line "
    "{other_line} with no barrier between",
    FaultKind.unwritten_shared: "reads {address}, which the block has not written",
    FaultKind.out_of_bounds_shared: "accesses {address}, {words} floats, beyond the block's shared "
    "memory",
    FaultKind.out_of_bounds_global: "accesses {address}, {words} floats, outside the operand or "
    "between its rows",
    FaultKind.misaligned: "accesses {address}, {words} floats at an address that is no multiple of "
    "{bytes} bytes",
    FaultKind.forbidden_read: "reads {address}, which is multiplied by zero and must not be read",
    FaultKind.forbidden_write: "writes {address}, an input",
    FaultKind.unwritten_workspace: "reads {address}, which no block has written",
    FaultKind.written_twice: "writes {address}, which thread {other_thread} of this or another "
    "block wrote at line {other_line}",
}


def _numbers(raw: RawFault) -> dict[str, int]:
    return {
        "words": raw.words,
        "bytes": raw.words * _FLOAT_BYTES,
        "other_thread": raw.other_thread,
        "other_line": raw.other_line,
    }


def _crash(raw: RawFault, address: str) -> str:
    """`words` is the signal; `other_line` 0 where the thread had accessed nothing before."""
    after = f" after line {raw.other_line}" if raw.other_line else ""
    name = signal.Signals(raw.words).name
    what = (
        "divided by zero, or by an overflow"
        if name == "SIGFPE"
        else (f"accessed {address or 'memory'} other than through a primitive")
    )
    return f"block {raw.block}, thread {raw.thread}{after}: the kernel {what} ({name})"


def _divergence(raw: RawFault) -> str:
    """`words` is 1 where the thread has ended; `other_line` 0 where the other one has."""
    has = "has ended" if raw.words else f"waits at the barrier of line {raw.line}"
    if not raw.other_line:
        other = "has ended"
    elif raw.other_line == raw.line and not raw.words:
        other = "waits there in another turn of a loop"
    else:
        other = f"waits at that of line {raw.other_line}"
    return (
        f"line {raw.line}, block {raw.block}: thread {raw.thread} {has} while thread "
        f"{raw.other_thread} {other}"
    )


def _address(raw: RawFault, operands: tuple[Operand, ...]) -> str:
    if raw.space == _NOWHERE:
        return f"address {raw.offset_bytes:#x}"
    if raw.space == _SHARED:
        return f"shared + {raw.offset_bytes} bytes"
    return element_address(operands[raw.space], raw.offset_bytes // _FLOAT_BYTES)
