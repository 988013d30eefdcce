"""Everything that is known of one config on one problem and device, gathered into one value.

Nothing here computes: it asks the compiler, the analysis, the emulator and, where wanted, the
profiler. A part that cannot be had (no compiler, no disassembler, no C++ compiler, no counters) is
None, and `Explanation.missing` says why; the other parts still stand.

parts.py     the values
choose.py    which config is meant
gather.py    everything about it
change.py    what the models would change next
compare.py   predicted beside measured
"""

from autotune.explain.choose import choose
from autotune.explain.gather import explain
from autotune.explain.parts import Choice, Explanation

__all__ = ["Choice", "Explanation", "choose", "explain"]
