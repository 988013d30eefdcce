"""What an explanation is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autotune.analysis.access import Access, Kind, total
from autotune.analysis.occupancy import Occupancy
from autotune.analysis.predict import Prediction
from autotune.analysis.roofline import Roofline
from autotune.analysis.sass import Sass
from autotune.analysis.waves import Waves
from autotune.profile import Profile
from autotune.space import Space
from autotune.types import Config, Device, Evidence, Match, Problem

LEAST_GAIN = 0.005
"""Of the predicted time: what saves less is not worth naming."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A config and where it comes from.

    Attributes:
        origin: In words: `preset seed-v3`, `the default of sm_75`, what the store says.
        match: How the store's answer relates to the problem; None where it was not asked.
        time_ns, evidence: What the store knows of it, for its own problem and device.
    """

    config: Config
    origin: str
    match: Match | None = None
    time_ns: float | None = None
    evidence: Evidence | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """How one side of a block's tile is shared out: rows for m, columns for n.

    Attributes:
        block, thread: Of C, that a block and a thread compute.
        warps, lanes: Warps of a block and lanes of a warp along this side.
        fragment: Neighbouring ones that a thread loads at once.
        warp_stride, lane_stride, fragment_stride: From a warp, a lane, a thread's fragment to the
            next.
    """

    block: int
    thread: int
    warps: int
    lanes: int
    fragment: int
    warp_stride: int
    lane_stride: int
    fragment_stride: int

    @property
    def fragments(self) -> int:
        """Fragments of a thread."""
        return self.thread // self.fragment

    @property
    def owners(self) -> tuple[int, ...]:
        """For each row or column of the block its warp along this side."""
        owner = [0] * self.block
        for warp in range(self.warps):
            for lane in range(self.lanes):
                for fragment in range(self.fragments):
                    first = (
                        warp * self.warp_stride
                        + lane * self.lane_stride
                        + fragment * self.fragment_stride
                    )
                    owner[first : first + self.fragment] = [warp] * self.fragment
        return tuple(owner)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """Who computes what of a block's tile of C.

    Attributes:
        depth: Steps of k of a tile of the operands.
        lanes: Lane numbers as they lie over the warp's tile, row by row.
        rest: What of C lies beyond whole tiles and is left to a launch of its own: `3 columns`;
            empty where tiles compute all.
    """

    m: Axis
    n: Axis
    depth: int
    threads: int
    lanes: tuple[tuple[int, ...], ...]
    rest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a thread and a block take.

    Attributes:
        registers: Per thread.
        shared_bytes: Per block.
        spill_bytes, stack_bytes: None without a binary.
        compiler: Empty where the registers are an estimate.
    """

    threads: int
    registers: int
    shared_bytes: int
    spill_bytes: int | None
    stack_bytes: int | None
    compiler: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What cutting the work into other pieces would win back of the last wave.

    Attributes:
        change: For example `split-K 2`, `tiles of 64 x 128`.
        share: Of the time; what the change itself costs is not counted.
    """

    change: str
    blocks: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Accesses to memory over the whole launch.

    Attributes:
        source: `emulator`, counted from the accesses that the source makes, or `layout`, computed
            from the config.
    """

    source: Literal["emulator", "layout"]
    accesses: tuple[Access, ...]

    def total(self, kind: Kind) -> Access:
        """The sum over all operands."""
        chosen = [access for access in self.accesses if access.kind == kind]
        return total("", kind, chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One parameter changed.

    Attributes:
        gain: Of the predicted time, 0 to 1.
    """

    parameter: str
    before: int | str
    after: int | str
    gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A figure as it was foreseen and as the device counted it; None where one is not known."""

    name: str
    unit: str
    predicted: float | None
    measured: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A part that could not be had."""

    part: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All of it; a part is None where `missing` says why.

    Attributes:
        limiter: The largest of the prediction's terms.
        moves: The single changes that the model likes best, best first; empty where none gains
            `LEAST_GAIN`.
        comparisons: Predicted beside measured; empty without a profile.
    """

    problem: Problem
    device: Device
    choice: Choice
    space: Space
    tile: Tile | None
    resources: Resources
    occupancy: Occupancy
    roofline: Roofline | None
    waves: Waves | None
    recoveries: tuple[Recovery, ...]
    traffic: Traffic | None
    sass: Sass | None
    prediction: Prediction | None
    limiter: str
    moves: tuple[Move, ...]
    profile: Profile | None
    comparisons: tuple[Comparison, ...]
    missing: tuple[Missing, ...]
