"""One kernel as files that need nothing of this package: source, launch code, a check, the cubin.

The launch code is for the CUDA runtime: nvcc links that by itself, it needs no file at run time,
and works on every device of a process. The cubin is for those who load it through the driver.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune import archs, assets, render, rows
from autotune.compile import compile_one
from autotune.errors import CompilerError, UsageError
from autotune.space import Space
from autotune.types import Argument, Binary, Config, Failure, Launch, Problem, Variant, Workspace

WORKSPACE_ALIGNMENT = 256
DEFAULT_SHARED_BYTES = 48 * archs.KIB
"""What a block has without asking, static and dynamic together."""

_C_TYPES = {"int32": "int", "int64": "long long"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written.

    Attributes:
        stem: Start of every file's name, and of the C names.
        compile_command: Makes the checking program, in the folder.
    """

    folder: Path
    stem: str
    files: tuple[Path, ...]
    compile_command: tuple[str, ...]


def export(
    problem: Problem,
    config: Config,
    arch: int,
    folder: Path,
    *,
    sm_count: int | None = None,
    reason: str = "the config was given.",
    knowledge: Mapping[str, Any] | None = None,
    family_space: Space | None = None,
) -> Exported:
    """Writes a kernel and all that is needed to run it; files of the same names are replaced.

    Args:
        config: A valid point of the family's space.
        sm_count: Of the device that grids are planned for; of the architecture's typical one by
            default.
        reason: Why it is this config, for the README.
        knowledge: What else is known of it, for the provenance.
        family_space: The space that the config belongs to; the shipped one by default.

    Raises:
        InfeasibleError: the config breaks a constraint.
        CompilerError: it does not compile.
        UsageError: the family has no checking program, or the folder cannot be written.
    """
    variant = render.render(problem, config, arch, family_space=family_space, sm_count=sm_count)
    stem = f"{re.sub(r'[^0-9A-Za-z]+', '_', problem.key)}_sm{arch}"
    symbols = {launch.entry: f"{stem}__{launch.entry}" for launch in variant.plan.launches}
    source = variant.header + _renamed(variant.body, symbols)
    binary = compile_one(source, arch)
    if isinstance(binary, Failure):
        raise CompilerError(f"the kernel of {problem.key} does not compile: {binary.message}")
    # Not -arch=sm_90a, which compiles for a plain compute_90 as well, with nvcc 13.0.
    target = archs.get(arch).target
    names = {
        **_names(variant, binary, symbols),
        "stem": stem,
        "sm_count": sm_count or archs.get(arch).typical.sm_count,
        "gencode": f"-gencode arch={target.replace('sm', 'compute')},code={target}",
        "version": rows.package_version(),
        "compiler": binary.compiler,
        "reason": reason,
    }
    texts = {
        f"{stem}.cu": source,
        f"{stem}.h": _filled("launch.h.j2", names),
        f"{stem}_check.cu": _filled(f"{problem.kernel}_check.cu.j2", names),
        f"{stem}.json": _provenance(variant, binary, names, knowledge or {}),
        "README.md": _filled("README.md.j2", names),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        (folder / f"{stem}.cubin").write_bytes(binary.cubin)
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}; name another -o") from None
    return Exported(
        folder=folder,
        stem=stem,
        files=tuple(folder / name for name in (*texts, f"{stem}.cubin")),
        compile_command=(
            *("nvcc", *str(names["gencode"]).split(), "-std=c++17", "-O2"),
            *(f"{stem}.cu", f"{stem}_check.cu", "-o", "check"),
        ),
    )


def _renamed(body: str, symbols: Mapping[str, str]) -> str:
    """The source with other entry points, so that one program can have many kernels."""
    for entry, symbol in symbols.items():
        body, count = re.subn(rf"\b{re.escape(entry)}(?=\()", symbol, body)
        if count != 1:
            raise CompilerError(f"the source names its entry point {entry} {count} times, not once")
    return body


def _filled(template: str, names: Mapping[str, Any]) -> str:
    if not (assets.folder("templates") / "export" / template).exists():
        raise UsageError(f"kernels of {names['problem'].kernel} cannot be exported yet")
    return render.environment().get_template(f"export/{template}").render(names)


def _names(variant: Variant, binary: Binary, symbols: Mapping[str, str]) -> dict[str, Any]:
    """What the templates may use."""
    problem, plan = variant.problem, variant.plan
    placed = list(_placed(plan.workspaces))
    arguments = list(
        {argument.name: argument for each in plan.launches for argument in each.arguments}.values()
    )
    numbers = [
        {"name": argument.name, "type": _C_TYPES[argument.kind], "value": argument.value}
        for argument in arguments
        if argument.kind in _C_TYPES
    ]
    return {
        "problem": problem,
        "p": problem.columns(),
        "arch": variant.arch,
        "operands": problem.operands,
        "spans": {operand.name: operand.span_elements for operand in problem.operands},
        "scalars": list(problem.scalars),
        "alpha": problem.scalars.get("alpha"),
        "beta": problem.scalars.get("beta"),
        "flops": f"{float(problem.flops):.1f}",
        "deterministic": plan.is_deterministic,
        "symbols": list(symbols.values()),
        "workspaces": placed,
        "workspace_bytes": placed[-1]["end"] if placed else 0,
        "maps": [_map(argument) for argument in arguments if argument.kind == "tensor_map"],
        "numbers": numbers,
        "launches": [_launch(each, binary, symbols[each.entry]) for each in plan.launches],
    }


def _placed(workspaces: Sequence[Workspace]) -> Iterator[dict[str, Any]]:
    """The workspaces one after the other in one piece of memory."""
    offset = 0
    for each in workspaces:
        yield {**asdict(each), "offset": offset, "end": offset + each.size_bytes}
        offset += -(-each.size_bytes // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT


def _map(argument: Argument) -> dict[str, Any]:
    assert argument.tensor_map is not None
    swizzle = argument.tensor_map.swizzle_bytes
    return {
        **asdict(argument.tensor_map),
        "name": argument.name,
        "swizzle": f"{swizzle}B" if swizzle else "NONE",
    }


def _launch(launch: Launch, binary: Binary, symbol: str) -> dict[str, Any]:
    total = binary.static_shared_bytes + launch.shared_bytes
    return {
        "symbol": symbol,
        "grid": launch.grid,
        "block": launch.block,
        "shared_bytes": launch.shared_bytes,
        "needs_attribute": total > DEFAULT_SHARED_BYTES,
        "arguments": [argument.name for argument in launch.arguments],
    }


def _provenance(
    variant: Variant, binary: Binary, names: Mapping[str, Any], knowledge: Mapping[str, Any]
) -> str:
    """Where the kernel comes from, as JSON."""
    facts = {
        "problem": variant.problem.key,
        "kernel": variant.problem.kernel,
        "shape": variant.problem.shape,
        "columns": dict(variant.problem.columns()),
        "arch": variant.arch,
        "sm_count": names["sm_count"],
        "config": dict(variant.config),
        "config_sha256": variant.config.sha256,
        "template_sha256": variant.template_sha256,
        "source_sha256": variant.source_sha256,
        "cubin_sha256": binary.sha256,
        "compiler": binary.compiler,
        "registers": binary.registers,
        "spill_bytes": binary.spill_bytes,
        "is_deterministic": variant.plan.is_deterministic,
        "workspaces": names["workspaces"],
        "launches": [
            {**asdict(launch), "entry": shown["symbol"]}
            for launch, shown in zip(variant.plan.launches, names["launches"], strict=True)
        ],
        "autotune_version": names["version"],
        "git_sha": assets.revision(),
        "exported_at": rows.now(),
        "known": dict(knowledge),
    }
    return json.dumps(facts, indent=1) + "\n"
