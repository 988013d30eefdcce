"""Tests marked `gpu` are skipped without a GPU, and fail where one was promised."""

from __future__ import annotations

from functools import cache

import pytest

from autotune import device, settings
from autotune.errors import AutotuneError
from autotune.types import Device


@cache
def device_or_reason() -> Device | str:
    """The GPU that is used when none is named, or why there is none."""
    try:
        return device.select()
    except AutotuneError as error:
        return str(error)


def pytest_runtest_setup(item: pytest.Item) -> None:
    found = device_or_reason() if item.get_closest_marker("gpu") else None
    if isinstance(found, str):
        if settings.read("AUTOTUNE_REQUIRE_GPU") == "1":
            pytest.fail(f"AUTOTUNE_REQUIRE_GPU=1, but: {found}")
        pytest.skip(found)


@pytest.fixture(scope="session")
def live() -> Device:
    """The GPU under test."""
    found = device_or_reason()
    assert isinstance(found, Device)
    return found
