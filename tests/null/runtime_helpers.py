"""Arrays on the fake driver's devices, and short ways to a product of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_driver import FakeDriver, Shown

import autotune
from autotune import space
from autotune.problems.sgemm import Sgemm
from autotune.runtime import gemm, plan
from autotune.types import Match

SPACE = space.load("sgemm")


class Maker:
    """Arrays on a fake device, of small integers, whose sums are exact in any order."""

    def __init__(self, fake: FakeDriver) -> None:
        self.fake = fake
        self.generator = np.random.default_rng(0)

    def __call__(self, *shape: int, device: int = 0, offset: int = 0) -> np.ndarray:
        size = int(np.prod(shape))
        # An address that is a multiple of 16, and `offset` floats more.
        room = np.empty(size + 8, np.float32)
        first = (-room.ctypes.data % 16) // 4 + offset
        self.fake.place(room, device)
        array = room[first : first + size].reshape(shape)
        array[...] = self.generator.integers(-8, 9, shape)
        return array


def product(a: np.ndarray, b: np.ndarray, out: np.ndarray, **options: Any) -> np.ndarray:
    shown = Shown(out)
    assert autotune.sgemm(Shown(a), Shown(b), shown, **options) is shown
    return out


def problems() -> list[str]:
    """Keys of the problems that were planned."""
    return [key.key for key, _ in gemm._plans._values]


def configured(monkeypatch: pytest.MonkeyPatch, preset: str, **changes: Any) -> None:
    """Look-up gives this preset for everything."""
    config = SPACE.config({**SPACE.preset(preset), **changes})

    def look_up(problem: Sgemm, *, device: Any, **_: Any) -> autotune.Answer:
        fitted = SPACE.fitted(config, problem, device.arch)
        return autotune.Answer(match=Match.exact, reason="planted", config=fitted)

    monkeypatch.setattr(plan, "look_up", look_up)
