"""What commands share: how architectures, durations and problems are given."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from autotune import archs, problems
from autotune.errors import ArchitectureError
from autotune.problems.sgemm import LAYOUTS
from autotune.types import Problem

Command = TypeVar("Command", bound=Callable[..., Any])

NATIVE = "native"
COMPILERS = ("nvrtc", "nvcc")
DOORS = ("pycuda", "cuda-bindings")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class Arch(click.ParamType[int | str]):
    """An architecture as `archs.parse` reads it, or the word `native`."""

    name = "arch"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        if str(value).strip().lower() == NATIVE:
            return NATIVE
        try:
            return archs.parse(value)
        except ArchitectureError as error:
            self.fail(str(error), param, ctx)


class Duration(click.ParamType[float]):
    """A time such as 90s, 10m or 1.5h, in seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", str(value).strip(), re.ASCII)
        if match is None or float(match[1]) == 0:
            self.fail(
                f"{value!r} is not a duration above zero; write for example 90s, 10m or 2h",
                param,
                ctx,
            )
        return float(match[1]) * _SECONDS[match[2]]


def arch_option(*, default: str | None = NATIVE, text: str) -> Callable[[Command], Command]:
    """--arch, `native` by default."""
    return click.option(
        "--arch", type=Arch(), default=default, show_default=default is not None, help=text
    )


def number(arch: int | str) -> int:
    """The architecture's number, asking the driver where the word is `native`.

    Raises:
        DeviceError: `native`, and there is no GPU.
    """
    if isinstance(arch, int):
        return arch
    from autotune import device

    return device.native()


ParseProblem = Callable[..., Problem]
"""Takes a shape, and options that go before those of the command line."""


def problem_options(command: Command) -> Command:
    """Adds what says which problem a shape stands for, as the argument `parse`."""

    @functools.wraps(command)
    def wrapper(*args: Any, kernel: str, layout: str, beta: bool, batch: int, **rest: Any) -> Any:
        given: dict[str, Any] = {}
        if layout != LAYOUTS[0]:
            given["layout"] = layout
        if beta:
            given["beta_zero"] = False
        if batch != 1:
            given["batch"] = batch

        def parse(shape: str, more: Mapping[str, Any] | None = None) -> Problem:
            return problems.parse(shape, kernel, {**given, **(more or {})})

        return command(*args, parse=parse, **rest)

    made: Any = wrapper
    for decorate in (
        click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True,
                     metavar="N", help="Products of the same size, one after the other in memory."),
        click.option("--beta", is_flag=True,
                     help="C = alpha * A * B + beta * C with any beta: C is read as well."),
        click.option("--layout", type=click.Choice(LAYOUTS), default=LAYOUTS[0], show_default=True,
                     help="A and B as stored (n) or transposed (t), row-major."),
        click.option("--kernel", type=click.Choice(list(problems.FAMILIES)),
                     default=problems.DEFAULT, show_default=True, help="Kernel family."),
    ):  # fmt: skip
        made = decorate(made)
    result: Command = made
    return result


def shape_options(verb: str, *, toml: str = "[[shape]] tables") -> Callable[[Command], Command]:
    """--shape and --shapes, as `given` and `file`, for a command that does `verb` to shapes."""

    def decorate(command: Command) -> Command:
        made: Any = command
        for option in (
            click.option("--shapes", "file", type=click.Path(path_type=Path), metavar="FILE",
                         help=f"Shapes, one a line; or TOML with {toml}."),
            click.option("--shape", "given", multiple=True, metavar="MxNxK",
                         help=f"Shape to {verb}; may be given several times."),
        ):  # fmt: skip
            made = option(made)
        result: Command = made
        return result

    return decorate


def seed_option(text: str) -> Callable[[Command], Command]:
    """--seed, 0 by default."""
    return click.option(
        "--seed", type=click.IntRange(min=0), metavar="N", default=0, show_default=True, help=text
    )


device_option = click.option(
    "--device",
    metavar="INDEX|UUID",
    help="GPU to use.  [default: AUTOTUNE_DEVICE, else the first that fits --arch]",
)
warm_option = click.option(
    "--warm",
    is_flag=True,
    help="Time with what the last run left in the L2 cache, not with an empty one.",
)
door_option = click.option(
    "--door",
    type=click.Choice(DOORS),
    help="Binding to the driver.  [default: AUTOTUNE_DOOR, else pycuda where it imports]",
)
compiler_option = click.option(
    "--compiler",
    type=click.Choice(COMPILERS),
    help="Compiler.  [default: AUTOTUNE_COMPILER, else nvrtc]",
)
