"""What several tests without a compiler share."""

from pathlib import Path

import pytest
from fake_search import FakePool, install

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
