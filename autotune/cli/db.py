"""`autotune db`: the results store itself."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from autotune import api
from autotune.cli import app
from autotune.errors import StoreError, UsageError

if TYPE_CHECKING:
    from autotune.exchange import Merged

FORMATS = ("sqlite", "jsonl", "csv", "parquet", "seed")


@click.group()
def db() -> None:
    """The results store: where it is, whether it is sound, copies of it, one merged into another.

    \b
    Example:
      sqlite3 "$(autotune db path)" "SELECT * FROM best_config"
    """


@db.command()
@app.db_option
@app.log_options
def path(db: str | None) -> None:
    """Print where the store is: the absolute path of a file, or a URL.

    \b
    Example:
      autotune db path
    """
    from autotune import storefile

    click.echo(storefile.resolve(db))


@db.command()
@app.db_option
@app.log_options
def upgrade(db: str | None) -> None:
    """Bring a store of an older version to the current schema, after a backup beside it.

    \b
    Example:
      autotune db upgrade
    """
    from autotune import store, storefile

    backup = store.upgrade(db)
    place = storefile.resolve(db)
    if backup is None:
        app.note(f"{place} has the current schema")
    else:
        app.note(f"{place} is upgraded; the store as it was is in {backup}")


@db.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="sqlite", show_default=True,
    help="sqlite: a copy of the store. jsonl: every trial, for `autotune db import`. csv, parquet: "
    "the rows of --view. seed: best configs as the package ships them; FILE is the folder.",
)  # fmt: skip
@click.option(
    "--view", type=click.Choice(get_args(api.View)), default="results", show_default=True,
    help="Rows of csv and parquet: every trial, the bests, failures, or bests beside the vendor.",
)  # fmt: skip
@app.db_option
@app.log_options
def export(file: Path, form: str, view: api.View, db: str | None) -> None:
    """Copy the store, or what is in it, into a new FILE, also while a search writes to it.

    A copy stands alone: open it with sqlite-utils or Datasette, give it to --db, ship it with an
    application.

    \b
    Example:
      autotune db export results-copy.db
      autotune db export bests.csv --format csv --view best
      autotune db export db/seed --format seed
    """
    from autotune import exchange, seed, store

    if form == "sqlite":
        click.echo(store.export(db, file))
    elif form == "seed":
        lines = seed.of_store(db)
        for written in seed.write(file, lines):
            click.echo(written)
        if stale := seed.stale(lines):
            app.note(
                f"{stale} of {len(lines)} lines were made by another version of the templates; "
                "search again to renew them"
            )
    elif form == "jsonl":
        with store.Store.open(db, read_only=True) as opened:
            number = exchange.write_lines(opened, file)
        app.note(f"{number} trials")
        click.echo(file.absolute())
    else:
        _export_rows(file, form, view, db)
        click.echo(file.absolute())


def _export_rows(file: Path, form: str, view: api.View, db: str | None) -> None:
    from autotune.report import formats

    rows = api.results(view, store=db)
    if file.exists():
        raise StoreError(f"{file} exists already; name a new file")
    try:
        if form == "parquet":
            formats.write_parquet(file, rows, api.columns(view))
        else:
            file.write_text(formats.as_csv(rows, api.columns(view)) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from None


@db.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@app.db_option
@app.output_options("json")
@app.log_options
def import_(file: Path, db: str | None, output: str | None) -> None:
    """Add the trials of a FILE that `autotune db export --format jsonl` wrote.

    What is here already stays as it is; doing it twice changes nothing.

    \b
    Example:
      autotune db import trials.jsonl
    """
    from autotune import exchange, store

    with store.Store.open(db) as opened:
        _tell(exchange.absorb(opened, exchange.read_lines(file)), output)


@db.command()
@click.argument("other", metavar="OTHER")
@app.db_option
@app.output_options("json")
@app.log_options
def merge(other: str, db: str | None, output: str | None) -> None:
    """Add what another store knows to this one; OTHER, a file or URL, is only read.

    Devices, problems and variants that both have become one. Where both have a best, the faster of
    the two confirmed times stays, those of the current templates first. Measured and predicted
    trials stay apart. Merging twice, or the other way round, gives the same bests.

    \b
    Example:
      autotune db merge colleague.db
      autotune db merge old.db --db all.db
    """
    from autotune import exchange, store

    with store.Store.open(db) as opened:
        _tell(exchange.merge(opened, other), output)


def _tell(merged: Merged, output: str | None) -> None:
    from autotune.report.tables import table

    counts = dataclasses.asdict(merged)
    cells = [[name.replace("_", " "), str(count)] for name, count in counts.items()]
    app.emit(counts, output, lambda: table(["what", "rows"], cells, left=["what"], header=False))


@db.command()
@app.db_option
@app.output_options()
@app.log_options
def doctor(db: str | None, output: str | None) -> None:
    """Examine the store: damage, schema, rows that should not be, stale bests; say what to do.

    Changes nothing. The exit code is 1 where something should be done.

    \b
    Example:
      autotune db doctor
    """
    from autotune import doctor as examiner
    from autotune.report.tables import table

    found = examiner.examine(db)
    rows = [dataclasses.asdict(finding) for finding in found]
    names = ["check", "status", "detail", "advice"]
    cells = [
        [f.check, f.status, f"{f.count} {f.detail}" if f.count else f.detail, f.advice]
        for f in found
    ]
    show = lambda: table(names, cells, left=names, fold=["detail", "advice"])  # noqa: E731
    app.emit(rows, output, show)
    if any(finding.status == "fault" for finding in found):
        raise app.Failure("the results store needs attention", 1)
