"""`autotune db`: the results store itself."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.cli import app


@click.group()
def db() -> None:
    """The results store: where it is, its schema, a copy of it.

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
@app.db_option
@app.log_options
def export(file: Path, db: str | None) -> None:
    """Copy the store into one new FILE, also while a search writes to it.

    The copy stands alone: open it with sqlite-utils or Datasette, or give it to --db.

    \b
    Example:
      autotune db export results-copy.db
    """
    from autotune import store

    click.echo(store.export(db, file))
