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
        address = address if raw.space != _NOWHERE or raw.offset_bytes else ""
        what = _SENTENCES[kind](raw, address) if kind in _SENTENCES else _plain(kind, raw, address)
        message = f"{where}: {what}: {line_text(raw.line)}"
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
    FaultKind.write_after_write: "writes {address}, which {other} writes at line {other_line} with "
    "no barrier between",
    FaultKind.read_after_write: "reads {address}, which {other} writes at line {other_line} with "
    "no barrier between",
    FaultKind.write_after_read: "writes {address}, which {other} reads at line {other_line} with "
    "no barrier between",
    FaultKind.unwritten_shared: "reads {address}, which the block has not written",
    FaultKind.out_of_bounds_shared: "accesses {address}, {words} floats, beyond the block's shared "
    "memory",
    FaultKind.out_of_bounds_global: "accesses {address}, {words} floats, outside the operand or "
    "between its rows",
    FaultKind.misaligned: "accesses {address}, {words} floats at an address that is no multiple of "
    "{bytes} bytes",
    FaultKind.read_in_flight: "reads {address} before the wait for the copy that {other} started "
    "at line {other_line}",
    FaultKind.write_in_flight: "writes {address} before the wait for the copy that {other} started "
    "at line {other_line}",
    FaultKind.never_awaited: "starts a copy to {address} that nobody waits for",
    FaultKind.unfenced_copy: "copies to {address}, which {other} accessed at line {other_line} "
    "without a fence_async after it",
    FaultKind.remote_ended: "reads {address} of block {other_block}, which may have ended",
    FaultKind.forbidden_read: "reads {address}, which is multiplied by zero and must not be read",
    FaultKind.forbidden_write: "writes {address}, an input",
    FaultKind.written_twice: "writes {address}, which {other} wrote at line {other_line}",
    FaultKind.unwritten_workspace: "reads {address}, which no block has written",
    FaultKind.mixed_atomic: "accesses {address}, to which {other} did at line {other_line} what "
    "does not mix with it: of the two, one is atomic",
}


def _plain(kind: FaultKind, raw: RawFault, address: str) -> str:
    return _WHAT[kind].format(
        address=address,
        words=raw.words,
        bytes=raw.words * _FLOAT_BYTES,
        other=_other(raw),
        other_block=raw.other_block,
        other_line=raw.other_line,
    )


def _other(raw: RawFault) -> str:
    of_block = f" of block {raw.other_block}" if raw.other_block != raw.block else ""
    return f"thread {raw.other_thread}{of_block}"


def _unsynchronised(raw: RawFault, address: str) -> str:
    """`detail` is there where only the way of reading is wrong."""
    lacks = (
        "by a way that may pass by it: only load_workspace does not"
        if raw.detail
        else "with no arrival of both at a counter between"
    )
    return f"reads {address}, which {_other(raw)} wrote at line {raw.other_line}, {lacks}"


def _uninitialised(raw: RawFault, address: str) -> str:
    """`detail` is there where a copy lacks the fence."""
    lacks = "fence_barrier_init after its barrier_init" if raw.detail else "barrier_init"
    return f"uses the mbarrier at {address} without a {lacks} that the thread knows of"


def _misuse(raw: RawFault, address: str) -> str:
    """`detail` has the runtime's number of the misuse, and a count."""
    number, count = (*raw.detail, 0, 0)[:2]
    return (
        f"accesses {address}, which is part of an mbarrier",
        f"arrives at the mbarrier at {address}, all of whose {count} arrivals have come",
        f"initialises the mbarrier at {address} a second time",
        f"initialises the mbarrier at {address} for {count} arrivals; 1 to {2**20 - 1} are allowed",
        f"initialises the mbarrier at {address} beside {count} others, all that the emulator keeps",
    )[number]


def _registers(raw: RawFault, address: str) -> str:
    """`words` is the number of registers, or else whether it is this thread that moves some."""
    if raw.other_thread < 0:
        return f"asks for {raw.words} registers; 24 to 256 in steps of 8 are allowed"
    first, last = raw.other_thread, raw.other_thread + 127
    does = "moves registers" if raw.words else "does not move registers"
    return f"{does} otherwise than thread {first}, and threads {first} to {last} must do the same"


_WAITS = ("", "barrier", "warp_barrier", "cluster_barrier", "barrier_wait")


def _deadlock(raw: RawFault, address: str) -> str:
    """`detail` is that of `note_deadlock` in threads.cpp."""
    wait, alike, others, ended, *phase = raw.detail
    text = f"waits in {_WAITS[wait]} for ever, and {alike - 1} others there"
    if phase:
        number, parity, pending, arrivals, missing = phase
        text += (
            f", for parity {parity} of the mbarrier at {address}: its phase {number} lacks "
            f"{pending} of {arrivals} arrivals and "
        )
        text += f"{missing} bytes" if missing >= 0 else f"has {-missing} bytes too many"
    if others:
        text += f"; {_other(raw)} waits at line {raw.other_line}, and {others - 1} others there"
    return text + f"; {ended} threads have ended"


_SENTENCES = {
    FaultKind.unsynchronised_read: _unsynchronised,
    FaultKind.uninitialised_barrier: _uninitialised,
    FaultKind.barrier_misuse: _misuse,
    FaultKind.divergent_registers: _registers,
    FaultKind.deadlock: _deadlock,
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
