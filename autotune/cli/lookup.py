"""`autotune lookup`: the best known config of a shape."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from autotune.cli import app, options
from autotune.errors import NotFoundError
from autotune.types import Config, Problem

if TYPE_CHECKING:
    from autotune.lookup import Answer


@click.command(cls=app.ShapeCommand)
@click.argument("shape", metavar="MxNxK")
@options.arch_option(text="Architecture to find a config for: 75, 7.5, sm_75, or native.")
@click.option(
    "--strict", is_flag=True, help="Only a config measured for this very problem will do."
)
@options.problem_options
@app.db_option
@app.output_options("json")
@app.log_options
def lookup(
    shape: str,
    arch: int | str,
    strict: bool,
    parse: options.ParseProblem,
    db: str | None,
    output: str | None,
) -> None:
    """Print the best known config for a shape, and how it is known. Never measures.

    Where nothing is stored for the shape, the answer comes from a near shape, from another model of
    the same architecture, or is the default of the architecture; `match` and `reason` say which.
    -v says why: distance, evidence, expected loss, ties, what was fitted, what was passed over.

    \b
    Example:
      autotune lookup 2048x2048x2048 --arch 75
      autotune lookup 1000x1000x1000 --arch 75 --json | jq -r .config_json
    """
    from autotune import device, templates
    from autotune.lookup import answer

    problem = parse(shape)
    found = answer(
        problem,
        arch=arch if isinstance(arch, int) else None,
        device=None if isinstance(arch, int) else device.select(),
        store=db,
        template_sha256=templates.sha256(problem.kernel),
    )
    if found.config is None or (strict and not found.is_tuned):
        raise NotFoundError(f"{problem.key}: {found.reason}")
    app.emit(_row(found), output, lambda: _text(found, problem))
    if app.verbosity() > 0:
        app.note(found.why())


def _row(answer: Answer) -> dict[str, Any]:
    assert answer.config is not None
    fields = dataclasses.asdict(dataclasses.replace(answer, config=None))
    del fields["config"]
    return {**fields, "config_json": answer.config.json}


def _text(answer: Answer, problem: Problem) -> Any:
    from autotune import space
    from autotune.report import text
    from autotune.report.tables import table

    family_space = space.load(problem.kernel)
    config: Config = answer.config or Config({})
    loss = answer.expected_loss
    rows = [
        ["problem", problem.key],
        ["match", str(answer.match)],
        ["reason", answer.reason],
        ["evidence", str(answer.evidence) if answer.evidence else text.DASH],
        ["of", f"{answer.problem} on {answer.device}" if answer.problem else text.DASH],
        ["time", text.time(answer.time_ns)],
        ["expected loss", text.DASH if loss is None else f"{loss:.0%}"],
        ["recorded", answer.measured_at or text.DASH],
        ["nearest preset", text.config(config, family_space)],
        ["config", config.json],
    ]
    return table(["name", "value"], rows, left=["name", "value"], fold=["value"], header=False)
