"""Tables for people, made with rich."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

NARROWEST = 20
"""Columns of a terminal that text keeps which is folded."""


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: Sequence[str],
    fold: Sequence[str] = (),
    title: str = "",
    header: bool = True,
) -> Table:
    """A table without vertical lines.

    Args:
        left: Headings of the columns that hold text; the others are figures and stand right.
        fold: Headings of the columns that take what width the others leave.
        header: Whether the headings are shown.
    """
    made = Table(
        box=box.SIMPLE_HEAD,
        title=title or None,
        title_justify="left",
        title_style="bold",
        show_header=header,
        pad_edge=False,
        show_edge=False,
    )
    for heading in headings:
        made.add_column(
            heading,
            justify="left" if heading in left else "right",
            overflow="fold",
            no_wrap=heading not in fold,
            min_width=NARROWEST if heading in fold else None,
        )
    for row in rows:
        # Text, not str: rich would read a "[" of a message as markup.
        made.add_row(*(Text(cell) for cell in row))
    return made
