"""The best known kernels beside the vendor's, and the ladder that leads to them.

parts.py       the values
stand.py       one device, its compilers and its worker: kernels of a problem, timed in turns
suite.py       what look-up gives for each problem, beside default, presets and vendor
summary.py     geometric means by class, the share that is ahead, the worst
ladder.py      presets in order, each with what it changes and gains
provenance.py  where figures come from
"""

from autotune.bench.ladder import Ladder, Step, climb
from autotune.bench.parts import Case, Entry, Row
from autotune.bench.provenance import origin
from autotune.bench.stand import Stand, Wishes
from autotune.bench.suite import race
from autotune.bench.summary import Summary, summaries

__all__ = [
    "Case",
    "Entry",
    "Ladder",
    "Row",
    "Stand",
    "Step",
    "Summary",
    "Wishes",
    "climb",
    "origin",
    "race",
    "summaries",
]
