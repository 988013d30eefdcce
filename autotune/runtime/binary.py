"""The compiled kernel: from the cache, or made by one of all threads and processes that want it."""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from autotune import compile, settings
from autotune.compile import Cache, Compiler
from autotune.compile.job import Job
from autotune.errors import CompilerError
from autotune.runtime.once import Once
from autotune.types import Binary, Device, Failure, Variant

_log = logging.getLogger("autotune")
_binaries: Once[str, Binary] = Once()


def binary(variant: Variant, device: Device) -> Binary:
    """The binary of a variant for a device.

    Raises:
        CompilerError: there is no compiler that serves the device, or the source does not compile.
    """
    compiler = compile.find()
    compile.check(compiler, variant.arch, device.driver)
    job = Job(source=variant.body, arch=variant.arch)
    key = job.key(compiler)
    return _binaries.get(key, lambda: _found(variant, compiler, key))


def _found(variant: Variant, compiler: Compiler, key: str) -> Binary:
    cache = Cache()
    result = cache.load(key)
    if result is None:
        with _only_one(key):
            result = cache.load(key)
            if result is None:
                result = _compiled(variant, compiler, cache)
    if isinstance(result, Failure):
        raise CompilerError(f"the kernel for {variant.problem.key} has no binary: {result.message}")
    return result


def _compiled(variant: Variant, compiler: Compiler, cache: Cache) -> Binary | Failure:
    _log.info("compiling a kernel for %s on sm_%d", variant.problem.key, variant.arch)
    return compile.compile_one(variant.body, variant.arch, compiler=compiler, cache=cache)


@contextmanager
def _only_one(key: str) -> Iterator[None]:
    """Inside is one process at a time of those that want the key. Where the cache's folder cannot
    be written, no binary can be handed on either, and each compiles for itself."""
    # A few files for all keys, since one that is removed could still be waited for.
    path = settings.cache_folder() / "locks" / f"compile-{key[:2]}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError:
        yield
        return
    with file:  # closing gives the lock back, and so does the end of the process
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
