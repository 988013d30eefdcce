"""Ask -> render -> compile -> measure -> tell -> confirm.

budget.py    how long a search may take
events.py    what it tells whoever watches
prior.py     what the model thinks of points that nobody has tried
strategy.py  which point to try next
surrogate.py what trials say of points that nobody has tried
builder.py   from configs to binaries
session.py   one problem, until the budget is used
finals.py    the confirm round, which alone names a best
batch.py     several problems on one device
"""

from autotune.search.batch import DEFAULT_SHAPES, search
from autotune.search.budget import EFFORTS, Budget, Effort
from autotune.search.events import (
    Confirmed,
    Confirming,
    Event,
    Finalist,
    Finished,
    Planned,
    Report,
    Started,
    Tried,
    Waiting,
)
from autotune.search.strategy import SAMPLERS

__all__ = [
    "DEFAULT_SHAPES",
    "EFFORTS",
    "SAMPLERS",
    "Budget",
    "Confirmed",
    "Confirming",
    "Effort",
    "Event",
    "Finalist",
    "Finished",
    "Planned",
    "Report",
    "Started",
    "Tried",
    "Waiting",
    "search",
]
