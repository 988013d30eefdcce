"""Source to cubin: the compiler, its processes, and what it made before.

job.py         what is compiled, by what, and how the compiler's text is read
nvrtc.py       the library that compiles without GPU, driver, host compiler or toolkit
nvcc.py        the toolkit's program
toolchain.py   which of the two, and whether it serves the architecture and the driver
cache.py       results by content
worker.py      the process that compiles
pool.py        many of them, each of which can be ended
"""

from autotune.compile.cache import Cache
from autotune.compile.job import Compiler
from autotune.compile.pool import Pool, compile_one
from autotune.compile.toolchain import check, find

__all__ = ["Cache", "Compiler", "Pool", "check", "compile_one", "find"]
