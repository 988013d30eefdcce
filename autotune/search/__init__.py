"""Ask -> render -> compile -> measure -> tell -> confirm.

budget.py    how long a search may take
patience.py  how long a compile may take
events.py    what it tells whoever watches
starts.py    what is known of a problem and of near ones
prior.py     what the model thinks of points that nobody has tried
strategy.py  which point to try next: asks and tells an Optuna study
samplers.py  the ways to choose it
points.py, history.py, candidates.py   what they know of the space, of the past, and look at
surrogate.py what trials and the model say of points that nobody has tried
features.py, gaussian.py   points as numbers; a Gaussian process over them
builder.py   from configs to binaries
lane.py      measuring, while the next points are chosen and compiled
tally.py     what came of the trials, and how fast
progress.py  how far a problem has come, and whether its budget is used
loop.py      the trials: asked, compiled, measured, stored and told
session.py   one problem: where it begins, in one go or in slices, and how it ends
campaign.py  who gets the next slice of a common time
finals.py    the confirm round, which alone names a best
batch.py     several problems on one device
plan.py      what a search would do
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
    remaining,
)
from autotune.search.plan import Outlook, plan
from autotune.search.samplers import SAMPLERS

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
    "Outlook",
    "Planned",
    "Report",
    "Started",
    "Tried",
    "Waiting",
    "plan",
    "remaining",
    "search",
]
