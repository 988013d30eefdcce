"""CUDA source -> C++ that the host's compiler takes, line for line the same."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from autotune import assets
from autotune.errors import CompilerError
from autotune.types import LaunchPlan, Variant

SHARED_RESERVED_BYTES = 256 * 1024
"""More than any architecture gives a block; machine.h has the same number."""

_DYNAMIC_SHARED = re.compile(r"extern __shared__ (?:__align__\((\d+)\) )?(\w+) (\w+)\[\];")

# A loop keeps the turn it is in (`Loop` in host.h). The second `for` is the keyword again, since
# a macro is not expanded within itself; what follows the loop's head is the body of the `else`.
_LOOP = (
    "#define for(...) for (emulate::Loop emulated; emulated.first();) "
    "for (__VA_ARGS__) if (emulated.next()) {} else"
)


def host_source(variant: Variant) -> str:
    """The source of a shared library that `runtime/main.cpp` can load.

    Each primitive of the emitted source gives way to its host twin; lines keep the numbers
    that they have in `Variant.source`.

    Raises:
        CompilerError: the source declares its shared memory in a way that is not known here.
    """
    # The header is only a comment; without it, shapes that need the same code share one library.
    text = "\n" * variant.header.count("\n") + variant.body
    for primitive, twin in _twins().items():
        before, found, after = text.partition(primitive)
        if found:
            # As many lines as before, so that the numbers stay right for what follows.
            newlines = "\n" * primitive.count("\n")
            text = f'{before}#include "{twin}"{newlines}{after}'
    declaration = _DYNAMIC_SHARED.search(text)
    if declaration is None and "__shared__" not in text:
        declaration = _DYNAMIC_SHARED.search("extern __shared__ float none[];")
    if declaration is None:
        raise CompilerError(
            "the emulator does not find `extern __shared__ <type> <name>[];` in the kernel, so it "
            "cannot watch its shared memory; rendering and compiling still work"
        )
    alignment, kind, name = declaration.groups()
    text = text.replace("extern __shared__", "extern")
    lines = [
        '#include "host.h"',
        _LOOP,
        '#line 1 "kernel.cu"',
        text,
        f"alignas(4096) {kind} {name}[{SHARED_RESERVED_BYTES} / sizeof({kind})];",
        'extern "C" void* emulate_shared(long long* alignment)',
        f"{{ *alignment = {alignment or 4}; return {name}; }}",
        _calls(variant.plan),
        _clusters(text, variant.plan),
    ]
    return "\n".join(lines)


def twin_files() -> list[Path]:
    """The files that a host source includes, beside `host.h`."""
    return sorted((assets.folder("templates") / "host").glob("*.h"))


@cache
def _twins() -> dict[str, str]:
    """Primitives as they stand in an emitted source, each with the file name of its twin."""
    folder = assets.folder("templates") / "primitives"
    return {
        (folder / f"{twin.stem}.cuh").read_text(encoding="utf-8").strip("\n"): twin.name
        for twin in twin_files()
    }


def _calls(plan: LaunchPlan) -> str:
    """A function that makes the call of a launch, by its number."""
    member = {
        "operand": "operand", "workspace": "operand", "tensor_map": "map", "float32": "real",
    }  # fmt: skip
    cases = []
    for number, launch in enumerate(plan.launches):
        arguments = []
        for index, argument in enumerate(launch.arguments):
            value = f"a[{index}].{member.get(argument.kind, 'integer')}"
            kinds = {
                "int32": f"(int) {value}",
                "workspace": f"emulate::Address{{{value}}}",
                "tensor_map": f"*{value}",
            }
            arguments.append(kinds.get(argument.kind, value))
        cases.append(f"    case {number}: return {launch.entry}({', '.join(arguments)});")
    return "\n".join(
        [
            'extern "C" void emulate_call(int launch, const emulate::Argument* a)',
            "{",
            "    switch (launch) {",
            *cases,
            "    }",
            "}",
            "",
        ]
    )


def _clusters(text: str, plan: LaunchPlan) -> str:
    """A function that gives the sides of a launch's clusters, by its number."""
    cases = []
    for number, launch in enumerate(plan.launches):
        found = re.search(rf"__cluster_dims__\(([^()]*)\)[^;{{}}]*\b{launch.entry}\(", text)
        sides = found[1] if found else "1, 1, 1"
        cases.append(f"    case {number}: *cluster = {{ {sides} }}; break;")
    return "\n".join(
        [
            'extern "C" void emulate_cluster(int launch, emulate::Index* cluster)',
            "{",
            "    switch (launch) {",
            *cases,
            "    }",
            "}",
            "",
        ]
    )
