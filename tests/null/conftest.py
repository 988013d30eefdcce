"""What several tests without a compiler share."""

from pathlib import Path

import pytest
from fake_driver import FakeDriver
from fake_search import FakePool, install
from runtime_helpers import Maker

from autotune.search import prior


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakePool:
    """Searches compile and measure on fakes, and compile caches are the test's own."""
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    fake = FakePool()
    install(fake, monkeypatch.setattr)
    # The model's opinion of thousands of points matters to none of these tests, and takes seconds.
    monkeypatch.setattr(prior, "SAMPLES", 100)
    monkeypatch.setattr(prior, "GENERATIONS", 0)
    return fake


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """A driver with two devices; the primary context of the first is current."""
    found = FakeDriver(monkeypatch)
    found.stack.append(found.primary(0))
    return found


@pytest.fixture
def make(fake: FakeDriver) -> Maker:
    """Arrays on its devices."""
    return Maker(fake)
