"""The values that flow through the program: frozen, hashable, with the unit in every name.

Nothing here computes anything beyond canonical text; nothing here imports CUDA or NumPy.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    import numpy as np

Scalar = int | str
"""A parameter's value. Flags are 0 and 1, so that constraints can compute with them."""


class Outcome(StrEnum):
    """How a trial ended. Everything but `ok` is a failure with a message, never an infinity."""

    ok = "ok"
    infeasible = "infeasible"
    """refused before launch: a constraint, or registers and shared memory beyond the device"""
    compile_error = "compile_error"
    compile_timeout = "compile_timeout"
    launch_error = "launch_error"
    """the driver refused to load or launch the kernel"""
    crash = "crash"
    """the kernel, its worker process or the compiler died: illegal address, misaligned access,
    signal"""
    timeout = "timeout"
    """the kernel ran for longer than the trial may take"""
    wrong_result = "wrong_result"


class Evidence(StrEnum):
    """What a figure rests on."""

    measured = "measured"
    predicted = "predicted"


class Stage(StrEnum):
    """When a measurement was made; only `confirm` may name a best config."""

    search = "search"
    confirm = "confirm"
    predict = "predict"


class Match(StrEnum):
    """How an answer of `lookup` relates to the question, best first."""

    exact = "exact"
    near_shape = "near_shape"
    sibling_device = "sibling_device"
    arch_default = "arch_default"
    none = "none"


class Config(Mapping[str, Scalar]):
    """One point of a search space: immutable, hashable, independent of the order of its names."""

    __slots__ = ("_hash", "_values")

    def __init__(self, values: Mapping[str, Scalar]) -> None:
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | str):
                raise TypeError(f"parameter {name} must be an int or a str, got {value!r}")
        self._values: dict[str, Scalar] = dict(sorted(values.items()))
        self._hash = hash(tuple(self._values.items()))

    def __getitem__(self, name: str) -> Scalar:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._values == other._values

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{name}={value!r}' for name, value in self.items())})"

    def __reduce__(self) -> tuple[type[Config], tuple[dict[str, Scalar]]]:
        return Config, (dict(self._values),)

    @property
    def json(self) -> str:
        """Canonical JSON: sorted names, no spaces. Equal configs give equal text."""
        return json.dumps(self._values, sort_keys=True, separators=(",", ":"))

    @property
    def sha256(self) -> str:
        """Hex digest of `json`."""
        return hashlib.sha256(self.json.encode()).hexdigest()

    @classmethod
    def from_json(cls, text: str) -> Config:
        """The config whose `json` is `text`."""
        return cls(json.loads(text))

    def but(self, **changes: Scalar) -> Config:
        """A copy with some values changed."""
        return Config({**self._values, **changes})


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One matrix of a problem as it lies in memory: row-major, FP32.

    Attributes:
        name: The kernel's name for it, for example `a`.
        role: `in`, `out` (written and never read) or `inout`.
        rows, columns: Elements as stored, so already swapped for a transposed operand; 0 where a
            sum has no terms.
        leading_dimension: Elements from one row to the next; at least `columns`, and 1.
        batch: Matrices.
        batch_stride: Elements from one matrix to the next; 0 when there is one matrix, or when
            all share one.
        alignment_bytes: 16, 8 or 4: what the base address is a multiple of, and no more.
    """

    name: str
    role: Literal["in", "out", "inout"]
    rows: int
    columns: int
    leading_dimension: int
    batch: int
    batch_stride: int
    alignment_bytes: int

    @property
    def span_elements(self) -> int:
        """Elements from the first to the last one that belongs to the operand, both included."""
        if not (self.rows and self.columns):
            return 0
        return (
            (self.batch - 1) * self.batch_stride
            + (self.rows - 1) * self.leading_dimension
            + self.columns
        )


class Problem(ABC):
    """What a kernel family has to compute, for one size. One subclass a family.

    A subclass is a frozen dataclass: equal problems have equal `key` and hash. Search, store,
    measurement and command line know a problem only through these members.
    """

    __slots__ = ()

    kernel: ClassVar[str]
    """Name of the family: its template folder and its search-space file."""

    size_names: ClassVar[tuple[str, ...]]
    """The sizes of `shape`, in its order."""

    summed: ClassVar[frozenset[str]] = frozenset()
    """Those of the sizes over which the output is a sum."""

    @property
    @abstractmethod
    def key(self) -> str:
        """Canonical text that names every field which may change the best config or the result."""

    @property
    @abstractmethod
    def shape(self) -> str:
        """The sizes alone, for people and for `--shape`."""

    @property
    @abstractmethod
    def flops(self) -> int:
        """Floating-point operations."""

    @property
    @abstractmethod
    def bytes_min(self) -> int:
        """Fewest bytes of device memory traffic: each input read once, each output written once."""

    @property
    @abstractmethod
    def operands(self) -> tuple[Operand, ...]:
        """The matrices, in the order in which the kernel takes them."""

    @property
    @abstractmethod
    def variables(self) -> Mapping[str, Scalar]:
        """The names that constraints, derived values and templates may use."""

    @property
    @abstractmethod
    def scalars(self) -> Mapping[str, float]:
        """The FP32 arguments of the kernel with the values that verification uses."""

    @abstractmethod
    def columns(self) -> Mapping[str, int | str]:
        """Plain columns for the store, the same names for every problem of the family."""

    @property
    def row_axes(self) -> Mapping[str, int]:
        """Inputs of which row r of the output needs only slice r, with the axis of the slices.

        Axes count in (batch, rows, columns). With it a large reference is computed for some rows
        only; empty: every output row needs the whole of every input.
        """
        return {}

    @property
    def column_axes(self) -> Mapping[str, int]:
        """The same for the columns of the output: `row_axes` and these cut out any part of it."""
        return {}

    @classmethod
    @abstractmethod
    def parse(cls, shape: str, **options: object) -> Problem:
        """The problem of a shape as users write it.

        Raises:
            ShapeError: the text is not a shape, or a size is out of range.
        """

    @classmethod
    @abstractmethod
    def from_key(cls, key: str) -> Problem:
        """The problem whose `key` is that text.

        Raises:
            ShapeError: no problem of the family has it.
        """

    @abstractmethod
    def reference(
        self, inputs: Mapping[str, np.ndarray], scalars: Mapping[str, float]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The right result in FP64, and how far an FP32 kernel may be from it.

        Args:
            inputs: FP32 arrays of shape (batch, rows, columns) for every operand that is read.
            scalars: The FP32 arguments.

        Returns:
            Two FP64 arrays of the output's (batch, rows, columns): the value, and the largest
            absolute error that any order of FP32 summation may have.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU: a live one, or the typical one of an architecture that is not here.

    Attributes:
        index: CUDA's number for it; -1 when it is not present.
        sm_clock_khz, memory_clock_khz: Highest clocks, as the driver reports them.
        driver: CUDA version that the driver supports, as 13000 for 13.0; 0 when not present.
    """

    name: str
    arch: int
    sm_count: int
    cores_per_sm: int
    memory_bytes: int
    l2_bytes: int
    sm_clock_khz: int
    memory_clock_khz: int
    memory_bus_bits: int
    shared_bytes_per_block: int
    shared_bytes_per_block_optin: int
    shared_bytes_per_sm: int
    registers_per_sm: int
    threads_per_block: int
    threads_per_sm: int
    blocks_per_sm: int
    warp_size: int
    block_dimensions: tuple[int, int, int]
    grid_dimensions: tuple[int, int, int]
    index: int = -1
    uuid: str = ""
    bus_id: str = ""
    driver: int = 0
    driver_version: str = ""

    @property
    def is_present(self) -> bool:
        """Whether it is a live device of this machine."""
        return self.index >= 0

    @property
    def fp32_tflops(self) -> float:
        """Theoretical FP32 rate in TFLOP/s: SMs x cores x 2 x clock."""
        return self.sm_count * self.cores_per_sm * 2 * self.sm_clock_khz * 1e3 / 1e12

    @property
    def bandwidth_gbs(self) -> float:
        """Theoretical memory bandwidth in GB/s: 2 x clock x bus width."""
        return 2 * self.memory_clock_khz * 1e3 * self.memory_bus_bits / 8 / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMap:
    """What the copy engine of sm_90 has to know of an operand: how it lies, and the box that one
    copy brings.

    Attributes:
        operand: Its name.
        columns, rows: Elements as stored.
        leading_dimension: Elements from one row to the next.
        box_columns, box_rows: Elements of a box; each at most 256.
        swizzle_bytes: 32, 64 or 128: lines of so many bytes, which a row of the box must have, in
            which chunks of 16 bytes are exchanged by line; 0: none are.
    """

    operand: str
    columns: int
    rows: int
    leading_dimension: int
    box_columns: int
    box_rows: int
    swizzle_bytes: Literal[0, 32, 64, 128] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One parameter of a kernel.

    Attributes:
        kind: `operand` or `workspace` (a device address), `tensor_map` (by value, 128 bytes, before
            all others), `int32`, `int64`, or `float32` (a scalar of the problem, given at launch).
        name: The operand's, workspace's, map's, size's or scalar's name.
        value: The number, for `int32` and `int64`.
        tensor_map: The map, for `tensor_map`.
    """

    kind: Literal["operand", "workspace", "tensor_map", "int32", "int64", "float32"]
    name: str
    value: int = 0
    tensor_map: TensorMap | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One kernel launch: entry point, grid and block (x, y, z), dynamic shared memory."""

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[Argument, ...]

    @property
    def threads(self) -> int:
        """Threads per block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Device memory that the blocks of a plan share beside the operands; a multiple of 256 in
    address.

    Attributes:
        name: The kernels' name for it; no operand or scalar has the same.
        size_bytes: At least 4, a multiple of 4.
        is_zeroed: It is zero before the first run, and every run leaves it zero. Another one may
            hold anything before and after a run.
    """

    name: str
    size_bytes: int
    is_zeroed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """All launches that compute one problem, in stream order.

    Attributes:
        workspaces: Memory that they need beside the operands.
        is_deterministic: Whether equal inputs give equal bits, run after run on one device.
        tile: Rows and columns of the output that a block computes, or several blocks together.
    """

    launches: tuple[Launch, ...]
    workspaces: tuple[Workspace, ...] = ()
    is_deterministic: bool = True
    tile: tuple[int, int] = (1, 1)

    @property
    def main(self) -> Launch:
        """The launch that multiplies: the first of those with most shared memory."""
        return max(self.launches, key=lambda launch: launch.shared_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A config rendered for a problem and an architecture.

    Attributes:
        header: Comment that says what the source is; not part of its identity, so that shapes
            which need the same code share one binary.
        body: The CUDA source.
        template_sha256: Digest of every template file of the family.
    """

    problem: Problem
    config: Config
    arch: int
    header: str
    body: str
    template_sha256: str
    plan: LaunchPlan

    @property
    def source(self) -> str:
        """What people read and ship: header and body."""
        return self.header + self.body

    @property
    def source_sha256(self) -> str:
        """Hex digest of `body`."""
        return hashlib.sha256(self.body.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """A compiled variant and what the compiler said of it.

    Attributes:
        compiler: Name and version, for example `nvrtc 13.5`; part of a result's identity.
        registers: Per thread, the largest of all kernels in the source.
        static_shared_bytes: Without what the launch adds.
        spill_bytes: Stores and loads together.
        log: The compiler's whole text.
    """

    arch: int
    compiler: str
    cubin: bytes
    registers: int
    static_shared_bytes: int
    spill_bytes: int
    stack_bytes: int
    log: str
    compile_seconds: float

    @property
    def sha256(self) -> str:
        """Hex digest of the cubin: variants with the same digest are the same kernel."""
        return hashlib.sha256(self.cubin).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why there is no binary: `compile_error`, `compile_timeout`, or `crash` of the compiler.

    Attributes:
        message: One line for people.
        log: All that the compiler printed.
    """

    outcome: Outcome
    message: str
    log: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The state of the device while it was timed; None where the driver would not say."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    throttle_reasons: str | None = None
    """comma-separated names; empty when the device was not held back"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What a trial gave.

    Attributes:
        samples: Timed launches behind the quantiles; 0 for a failure or a prediction.
        median_ns, p20_ns, p80_ns, min_ns: Time of one run of the plan; None for a failure.
        low_ns, high_ns: Of the stage `confirm`: what the median lies in with 95 % confidence, by
            the order of the rounds' medians; fewer than 6 rounds give somewhat less. Else None.
        max_error: Largest |result - reference| / allowed error; at most 1 for a right result.
        checks: What was verified, for example `exact, fp64, guards, exact x8 after timing`.
        cold_l2: Whether the L2 cache was emptied before each sample.
        door: Which binding to the driver timed it: `pycuda` or `cuda-bindings`.
        truncated: Timing was stopped early because the variant was clearly slower than the best.
        measured_at: ISO 8601, UTC.
    """

    outcome: Outcome
    stage: Stage
    message: str = ""
    samples: int = 0
    median_ns: float | None = None
    p20_ns: float | None = None
    p80_ns: float | None = None
    min_ns: float | None = None
    low_ns: float | None = None
    high_ns: float | None = None
    max_error: float | None = None
    checks: str = ""
    cold_l2: bool = True
    door: str = ""
    truncated: bool = False
    conditions: Conditions = Conditions()
    measured_at: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether there is a verified time."""
        return self.outcome is Outcome.ok

    @property
    def interval_ns(self) -> tuple[float, float] | None:
        """`low_ns` and `high_ns`, where they are known."""
        if self.low_ns is None or self.high_ns is None:
            return None
        return self.low_ns, self.high_ns
