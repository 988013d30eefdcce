"""Paths and environment variables: the only reader of `os.environ`.

Flag beats variable beats default. docs/env.md lists every variable; a test keeps them equal.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from functools import cache
from pathlib import Path

import platformdirs

from autotune.errors import UsageError

_log = logging.getLogger("autotune")

VARIABLES = {
    "AUTOTUNE_DB": "results store: a path or a SQLAlchemy URL",
    "AUTOTUNE_CACHE_DIR": "folder of compiled kernels and device locks; may be deleted at any time",
    "AUTOTUNE_DEVICE": "GPU to use: CUDA index or UUID",
    "AUTOTUNE_DOOR": "binding to the driver: `pycuda` or `cuda-bindings`",
    "AUTOTUNE_COMPILER": "`nvrtc` or `nvcc`",
    "AUTOTUNE_NVCC": "path of the nvcc that `--compiler nvcc` runs",
    "AUTOTUNE_JOBS": "compiler processes at a time",
    "AUTOTUNE_REQUIRE_GPU": "1: tests that need a GPU fail instead of being skipped",
}
"""Every variable with its meaning."""


def read(name: str) -> str | None:
    """The value of one of `VARIABLES`; None when unset or empty."""
    if name not in VARIABLES:
        raise KeyError(f"{name} is not a documented variable")
    return os.environ.get(name) or None


def store_location() -> str:
    """Path or URL of the results store: `AUTOTUNE_DB`, else a file in the user's data folder."""
    return read("AUTOTUNE_DB") or str(Path(_user_folder("data")) / "results.db")


def cache_folder() -> Path:
    """Folder of what can be made again; falls back to the temporary folder without a home."""
    if chosen := read("AUTOTUNE_CACHE_DIR"):
        return Path(chosen).expanduser()
    folder = Path(_user_folder("cache"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return _stopgap(folder)
    return folder if os.access(folder, os.W_OK) else _stopgap(folder)


@cache
def _stopgap(wanted: Path) -> Path:
    """A folder in the temporary one, which nobody else may have prepared with kernels of his."""
    import tempfile

    folder = Path(tempfile.gettempdir()) / f"autotune-{os.getuid()}"
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
    state = folder.lstat() if folder.is_dir() and not folder.is_symlink() else None
    if state is None or state.st_uid != os.getuid() or state.st_mode & 0o022:
        folder = Path(tempfile.mkdtemp(prefix="autotune-"))
    _log.warning("%s cannot be written; compiled kernels go to %s instead", wanted, folder)
    return folder


def jobs() -> int:
    """Compiler processes at a time: `AUTOTUNE_JOBS`, else the CPUs this process may use.

    Raises:
        UsageError: the variable is not a number from 1 up.
    """
    if chosen := read("AUTOTUNE_JOBS"):
        if not chosen.isdecimal() or int(chosen) < 1:
            raise UsageError(f"AUTOTUNE_JOBS is {chosen!r}; it must be a number of processes, 1 up")
        return int(chosen)
    return cpus()


def cpus() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def path_entries() -> list[Path]:
    """The folders of PATH, for finding tools."""
    return [Path(entry) for entry in os.environ.get("PATH", "").split(os.pathsep) if entry]


def _user_folder(kind: str) -> str:
    # Without HOME (containers under an arbitrary user id) expanduser leaves "~": a relative
    # folder of that name would be created in the working directory.
    folder = (
        platformdirs.user_data_dir("autotune", appauthor=False)
        if kind == "data"
        else platformdirs.user_cache_dir("autotune", appauthor=False)
    )
    if folder.startswith("~"):
        import tempfile  # here: it takes long to import, and few need it

        return str(Path(tempfile.gettempdir()) / f"autotune-{os.getuid()}" / kind)
    return folder
