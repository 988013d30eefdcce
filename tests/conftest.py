"""Keeps every test away from the user's settings and files."""

from __future__ import annotations

import signal

import pytest

from autotune import settings

_KEPT = ("AUTOTUNE_REQUIRE_GPU", "AUTOTUNE_DEVICE")
"""What the user says about the tests themselves."""

# A shell starts what runs in the background with Ctrl-C ignored, and Python then leaves it so; but
# tests of interruptions need it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.getbasetemp() / "home"
    for name in settings.VARIABLES:
        if name not in _KEPT:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
