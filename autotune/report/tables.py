"""Tables for people, made with rich."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, left: Sequence[str], title: str = ""
) -> Table:
    """A table without vertical lines.

    Args:
        headings: All empty for a list of names and values, which has no line of headings.
        left: Headings of the columns that hold text; the others are figures and stand right.
    """
    made = Table(
        box=box.SIMPLE_HEAD,
        title=title or None,
        title_justify="left",
        title_style="bold",
        show_header=any(headings),
        pad_edge=False,
        show_edge=False,
    )
    for heading in headings:
        made.add_column(
            heading, justify="left" if heading in left else "right", overflow="fold", no_wrap=False
        )
    for row in rows:
        # Text, not str: rich would read a "[" of a message as markup.
        made.add_row(*(Text(cell) for cell in row))
    return made
