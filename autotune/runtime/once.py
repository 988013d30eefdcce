"""Made once, whoever comes first; the others wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Once(Generic[K, V]):
    """Values by key, each made by one thread while the rest goes on.

    A failure is not kept: the next that asks tries again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._makers: dict[K, threading.Lock] = {}
        self._values: dict[K, V] = {}

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key; `make` gives it where there is none."""
        found = self._values.get(key)
        if found is not None:
            return found
        with self._lock:
            maker = self._makers.setdefault(key, threading.Lock())
        with maker:
            found = self._values.get(key)
            if found is None:
                found = self._values[key] = make()
            return found

    def known(self, key: K) -> V | None:
        """The value of a key, where there is one."""
        return self._values.get(key)

    def drop(self, key: K) -> None:
        """Forgets a value; who has it keeps it."""
        self._values.pop(key, None)
