"""What was compiled once is not compiled again: a folder of results, named by their content.

    kernels/ab/abcd….json    resources, log, and a digest over itself and the cubin
                   .cubin    the binary; none for a compile error, which is a result as well
                   .cu       the source, for people

No locks: every file is replaced in one step, the JSON last, and whatever does not match its digest
counts as absent. So several processes, on several hosts, may share the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autotune import settings
from autotune.types import Binary, Failure, Outcome

log = logging.getLogger("autotune")


class Cache:
    """Results by key.

    A folder that cannot be written costs one warning; then it is only read.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Use `folder`; None means `kernels` in the user's cache folder."""
        self.folder = folder or settings.cache_folder() / "kernels"
        self._lock = threading.Lock()
        self._writable = True

    def load(self, key: str) -> Binary | Failure | None:
        """The result, or None; an entry that is damaged is removed, with one log line."""
        entry = self._entry(key)
        try:
            text = entry.read_bytes()
        except OSError:
            return None
        try:
            document = json.loads(text)
            fields: dict[str, Any] = document["result"]
            cubin = b"" if "outcome" in fields else entry.with_suffix(".cubin").read_bytes()
            if document["sha256"] == _digest(key, fields, cubin):
                if "outcome" in fields:
                    return Failure(**{**fields, "outcome": Outcome(fields["outcome"])})
                return Binary(cubin=cubin, **fields)
        except (OSError, ValueError, KeyError, TypeError):
            pass
        log.warning("compiling again: the cached kernel %s is damaged", entry)
        self.drop(key)
        return None

    def store(self, key: str, source: str, result: Binary | Failure) -> None:
        """Keep a result; never raises for a folder that cannot be written or is full."""
        if not self._writable:
            return
        fields = asdict(result)
        cubin: bytes = fields.pop("cubin", b"")
        document = {"sha256": _digest(key, fields, cubin), "result": fields}
        entry = self._entry(key)
        try:
            entry.parent.mkdir(parents=True, exist_ok=True)
            _replace(entry.with_suffix(".cu"), source.encode())
            if cubin:
                _replace(entry.with_suffix(".cubin"), cubin)
            _replace(entry, json.dumps(document, indent=1).encode())
        except OSError as error:
            with self._lock:
                first, self._writable = self._writable, False
            if first:
                log.warning(
                    "compiled kernels are not kept, so the next run compiles them again: cannot "
                    "write to %s (%s); make room, or set AUTOTUNE_CACHE_DIR to another folder",
                    self.folder,
                    error.strerror or error,
                )

    def drop(self, key: str) -> None:
        """Forget a result, for example a binary that the driver refused to load."""
        with contextlib.suppress(OSError):
            self._entry(key).unlink(missing_ok=True)

    def _entry(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"


def _digest(key: str, fields: dict[str, Any], cubin: bytes) -> str:
    text = json.dumps([key, fields], sort_keys=True)
    return hashlib.sha256(text.encode() + cubin).hexdigest()


def _replace(path: Path, content: bytes) -> None:
    """Other processes see the old file or the whole new one."""
    descriptor, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
