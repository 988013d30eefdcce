"""The frame of every command: how errors, interruptions and logs reach the user.

Whatever a library function raises on purpose becomes one message on stderr and the exit code that
its class has; a fault of autotune itself is said to be one. A traceback comes only with --debug.
"""

from __future__ import annotations

import errno
import logging
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from autotune.errors import AutotuneError

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED = 130

_DEBUG = "autotune.debug"
_COMMAND = "autotune.command"

Command = TypeVar("Command", bound=Callable[..., Any])


class Failure(click.ClickException):
    """A message and the exit code that goes with it."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click's docs do so too


class Commands(click.Group):
    """The group of all commands; the one place where exceptions end."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_COMMAND] = ["autotune", *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except AutotuneError as error:
            _trace(ctx)
            raise Failure(str(error), error.exit_code) from error
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except OSError as error:
            if error.errno == errno.EPIPE:  # click ends quietly: the reader had enough
                raise
            _trace(ctx)
            raise Failure(str(error), 1) from error
        except Exception as error:
            _trace(ctx)
            raise Failure(
                f"autotune has a fault: {type(error).__name__}: {error}; run the same command with "
                "--debug for the place, and report it",
                1,
            ) from error


class ShapeCommand(click.Command):
    """A command whose argument is a shape: one that starts with a minus is no unknown option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for word in args:
            if re.match(r"-\d", word):
                raise click.BadParameter(
                    f"{word!r} is not a shape; write MxNxK, for example 2048x2048x2048", ctx
                )
        return super().parse_args(ctx, args)


def command_line() -> list[str]:
    """The command that is running, word by word."""
    words: list[str] = click.get_current_context().meta[_COMMAND]
    return words


def _trace(ctx: click.Context) -> None:
    if ctx.meta.get(_DEBUG):
        traceback.print_exc()


# *** what is said on the side ***


@cache
def stderr() -> Console:
    """Where progress, notes and logs go; one for all, so that none writes into another's line."""
    from rich.console import Console

    return Console(stderr=True, soft_wrap=True, highlight=False)


def note(text: str) -> None:
    """A line for people, which no program reads."""
    stderr().print(text, markup=False)


class _ConsoleHandler(logging.Handler):
    """Log records as `warning: text`, above a progress bar where there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            note(self.format(record))
        except Exception:
            self.handleError(record)


class _Lower(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()}: {super().format(record)}"


def log_options(command: Command) -> Command:
    """Adds -q, -v, --debug and --log-file, which set up logging before the command runs."""

    def set_level(level: int) -> Callable[[click.Context, click.Parameter, bool], None]:
        def callback(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
            if wanted:
                _handler(ctx).setLevel(level)

        return callback

    def debug(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted:
            ctx.meta[_DEBUG] = True
            _handler(ctx).setLevel(logging.DEBUG)

    def log_file(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
        if path is not None:
            _attach(ctx, _file_handler(path))

    def option(*names: str, **settings: Any) -> Callable[[Command], Command]:
        return click.option(*names, expose_value=False, is_eager=True, **settings)

    for decorate in (
        option("--log-file", type=click.Path(path_type=Path), callback=log_file, metavar="FILE",
               help="Also write everything that happens to this file."),
        option("--debug", is_flag=True, callback=debug,
               help="Show the traceback of an error, and every log line."),
        option("-v", "--verbose", is_flag=True, callback=set_level(logging.INFO),
               help="Say more on stderr."),
        option("-q", "--quiet", is_flag=True, callback=set_level(logging.ERROR),
               help="Only results and errors."),
    ):  # fmt: skip
        command = decorate(command)
    return command


def verbosity() -> int:
    """-1 for --quiet, 1 for --verbose or --debug, else 0."""
    level = _handler(click.get_current_context()).level
    return -1 if level >= logging.ERROR else 1 if level <= logging.INFO else 0


def _handler(ctx: click.Context) -> logging.Handler:
    """The handler that writes to stderr, attached for as long as the program runs."""
    key = "autotune.handler"
    if key not in ctx.meta:
        handler = _ConsoleHandler(logging.WARNING)
        handler.setFormatter(_Lower("%(message)s"))
        ctx.meta[key] = handler
        _attach(ctx, handler)
    made: logging.Handler = ctx.meta[key]
    return made


def _file_handler(path: Path) -> logging.Handler:
    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise Failure(f"cannot write the log file {path}: {error.strerror}", 2) from None
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(processName)s %(message)s"))
    return handler


def _attach(ctx: click.Context, handler: logging.Handler) -> None:
    logger = logging.getLogger("autotune")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)

    def detach() -> None:
        logger.removeHandler(handler)
        handler.close()

    ctx.find_root().call_on_close(detach)


def set_up(ctx: click.Context) -> None:
    """Logs warnings, however they are given, in one form on stderr."""
    _handler(ctx)

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        logging.getLogger("autotune").warning("%s", message)

    before = warnings.showwarning
    warnings.showwarning = show

    def restore() -> None:
        warnings.showwarning = before

    ctx.find_root().call_on_close(restore)


# *** results ***


def emit(
    rows: Sequence[dict[str, Any]] | dict[str, Any],
    output: str | None,
    table: Callable[[], Any],
    *,
    columns: Sequence[str] = (),
) -> None:
    """Prints data to stdout in the form that was asked for.

    Args:
        output: `json`, `csv` or None for people.
        table: Makes what rich prints for people.
        columns: Header of the CSV form; the names of the first row where it is left out.
    """
    if output is None:
        show(table())
        return
    from autotune.report import formats

    if output == "json":
        click.echo(formats.as_json(rows))
    else:
        assert not isinstance(rows, dict)
        click.echo(formats.as_csv(rows, columns or list(rows[0])))


def show(renderable: Any, *, err: bool = False) -> None:
    """Prints what rich has made, to stdout or to stderr."""
    from rich.console import Console

    console = Console(stderr=err, highlight=False)
    if console.is_terminal:
        console.print(renderable)
        return
    # For a pipe or a file: nothing folded, no blanks at the end of lines.
    console.width = 10_000
    with console.capture() as captured:
        console.print(renderable)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()), err=err)


def output_options(*forms: str) -> Callable[[Command], Command]:
    """Adds --json and --csv, or those of them that are named, as the argument `output`."""
    texts = {
        "json": "Print one JSON value.",
        "csv": "Print CSV with a header.",
    }

    def decorate(command: Command) -> Command:
        for form in reversed(forms or tuple(texts)):
            option = click.option(f"--{form}", "output", flag_value=form, help=texts[form])
            command = option(command)
        return command

    return decorate


def db_option(command: Command) -> Command:
    """Adds --db, where the results store is."""
    return click.option(
        "--db",
        metavar="PATH_OR_URL",
        help="Results store: a file, or a PostgreSQL URL.  [default: AUTOTUNE_DB, else results.db "
        "in your data folder]",
    )(command)


def is_interactive() -> bool:
    """Whether a person watches stderr."""
    return sys.stderr.isatty()
