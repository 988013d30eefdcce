"""What a worker does with a candidate: load, verify, time, verify again. Runs in the child."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from autotune import verify
from autotune.device import Monitor
from autotune.errors import (
    DeviceError,
    DriverError,
    MissingExtraError,
    ShapeError,
    TemplateError,
)
from autotune.gpu import Context, Kernel, Values
from autotune.measure import vendor
from autotune.measure.arena import DATA, Arena
from autotune.measure.jobs import AnyJob, VendorJob
from autotune.measure.power import Power, watch
from autotune.measure.probe import Probe
from autotune.measure.timing import (
    Run,
    Timer,
    floor_ns,
    is_impossible,
    median_interval,
    quantile,
)
from autotune.types import (
    Conditions,
    Device,
    Launch,
    Measurement,
    Outcome,
    Problem,
    Workspace,
)

STICKY = frozenset(
    f"CUDA_ERROR_{name}"
    for name in (
        "ILLEGAL_ADDRESS", "MISALIGNED_ADDRESS", "LAUNCH_FAILED", "ILLEGAL_INSTRUCTION", "ASSERT",
        "INVALID_ADDRESS_SPACE", "INVALID_PC", "HARDWARE_STACK_ERROR", "ECC_UNCORRECTABLE",
        "NVLINK_UNCORRECTABLE", "CONTEXT_IS_DESTROYED", "TENSOR_MEMORY_LEAK", "CONTAINED",
        "EXTERNAL_DEVICE", "MPS_CLIENT_TERMINATED", "LAUNCH_TIMEOUT", "UNKNOWN",
    )
)  # fmt: skip
"""Errors after which every call of the process fails: only a new process helps."""

UNKNOWN = Conditions()

# A kernel whose first run takes this many times the best, and longer than any first launch costs,
# is not run again.
_HOPELESS = 10.0
_HOPELESS_NS = 2e7
_RECHECK_NS = 3e8
_RESOLUTION_SHARE = 0.05
_ROUND_SAMPLES = 3
_ROUND_NS = 2e7
_SHORT_NS = 5e4
_SHORT_ROUNDS = 3
"""For kernels that take less than `_SHORT_NS`, whose time depends most on where the data lies."""
_CONFIRM_WARM_UP_MS = 20.0
"""Long enough for the clocks to come up, and too short for the device's power limit to take them
down again: after 300 ms a kernel took 5 % longer alone than beside another (docs/tuning.md)."""
_ARENAS_SHARE = 0.4
"""Of the device's memory: what problems keep between their turns."""

Tell = Callable[[str, int], None]
"""Told which step of which job begins, so that the parent can set its clock."""


class Rejected(Exception):
    """A candidate ends here, with its class and the reason."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


@dataclass(slots=True, kw_only=True)
class Candidate:
    """A loaded job on its way through the steps.

    Attributes:
        number: Its place among the jobs of the request.
        bind: Makes one run of the plan on the data that lies at some addresses.
        exact, timed: Such runs, on the integer data and on the random data.
        workspaces: Of the plan.
        first_ns, second_ns: Its first run, on the integer data, which pays for loading; and the
            next, on the random data.
    """

    job: AnyJob
    number: int
    bind: Callable[[Values], Run]
    exact: Run
    timed: Run
    workspaces: tuple[Workspace, ...] = ()
    first_ns: float = 0.0
    second_ns: float = 0.0
    max_error: float | None = None
    checks: str = ""
    conditions: Conditions = UNKNOWN


class Bench:
    """Measures candidates in this process's context, on memory that each problem keeps.

    Errors that break the context leave its methods as `DriverError`; see `is_sticky`.
    """

    def __init__(self, context: Context, door: str, probe: bytes, seed: int, tell: Tell) -> None:
        self._context = context
        self._door = door
        self._seed = seed
        self._tell = tell
        self._probe = Probe(context, probe)
        self._monitor = Monitor(context.device)
        self._timer = Timer(context, self._probe, self._monitor)
        # The one that was used last is the last.
        self._arenas: dict[Problem, Arena] = {}
        self._last: Problem | None = None

    def measure(self, job: AnyJob) -> Measurement:
        """One candidate by itself.

        Raises:
            ShapeError, DeviceError: the problem does not fit into the device's memory.
        """
        arena = self._prepare(job.problem)
        with ExitStack() as stack:
            try:
                _reserve(arena, job)
                candidate = self._load(job, 0, arena, stack)
                if self._verify(candidate, arena):
                    samples, truncated = self._time(candidate)
                else:
                    samples, truncated = [candidate.first_ns], True
                return self._result(candidate, arena, samples, truncated)
            except _CANDIDATE_ERRORS as error:
                return self._failure(job, error)

    def confirm(self, jobs: Sequence[AnyJob], rounds: int, seed: int) -> list[Measurement]:
        """Candidates of one problem timed in turn, round after round, in an order that varies.

        Raises:
            ShapeError, DeviceError: the problem does not fit into the device's memory.
        """
        arena = self._prepare(jobs[0].problem)
        results: dict[int, Measurement] = {}
        alive: list[Candidate] = []
        with ExitStack() as stack:
            # Before any is loaded: a buffer that grows for one would move under another.
            for number, job in enumerate(jobs):
                try:
                    _reserve(arena, job)
                except _CANDIDATE_ERRORS as error:
                    results[number] = self._failure(job, error)
            for number, job in enumerate(jobs):
                if number in results:
                    continue
                try:
                    candidate = self._load(job, number, arena, stack)
                    self._verify(candidate, arena, whole=True)
                    alive.append(candidate)
                except _CANDIDATE_ERRORS as error:
                    results[number] = self._failure(job, error)
            taken = self._interleave(alive, arena, rounds, seed)
            for candidate in alive:
                try:
                    results[candidate.number] = self._confirmed(
                        candidate, arena, taken[candidate.number]
                    )
                except _CANDIDATE_ERRORS as error:
                    results[candidate.number] = self._failure(candidate.job, error)
        return [results[number] for number in range(len(jobs))]

    def power(self, job: AnyJob, seconds: float) -> Power:
        """What a candidate draws while it runs back to back for so long; it is not verified here.

        Raises:
            ShapeError, DeviceError: the problem does not fit into the device's memory.
        """
        arena = self._prepare(job.problem)
        with ExitStack() as stack:
            try:
                _reserve(arena, job)
                candidate = self._load(job, 0, arena, stack)
                self._tell("time", 0)
                # The first run pays for loading; the second says how many fill a warm window.
                for _ in range(2):
                    first_ns = self._timer.once(candidate.timed)
                launches = self._timer.launches(first_ns)
                (run_ns,) = self._timer.sample(candidate.timed, 1, cold=False, launches=launches)
                return watch(candidate.timed, run_ns, self._context, self._monitor, seconds)
            except _CANDIDATE_ERRORS as error:
                return Power(message=self._failure(job, error).message)

    def close(self) -> None:
        """Frees the problems' memory."""
        while self._arenas:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self._arenas.pop(next(iter(self._arenas))).close()

    def _prepare(self, problem: Problem) -> Arena:
        """Data, reference and memory of a problem: kept, since making them takes seconds and a
        batch comes back to its problems, as long as there is room."""
        self._tell("prepare", 0)
        arena = self._arenas.pop(problem, None)
        if arena is None:
            while self._arenas and not self._has_room(problem):
                self._drop_oldest()
            arena = Arena(self._context, self._probe, problem, self._seed)
        elif self._last != problem and arena.input_fault():
            # A kernel of another problem wrote far beyond what is its own.
            arena.restore()
        self._last = problem
        self._arenas[problem] = arena
        return arena

    def _has_room(self, problem: Problem) -> bool:
        free_bytes, total_bytes = self._context.memory()
        needed = verify.needed_bytes(problem)
        kept = sum(map(verify.needed_bytes, self._arenas))
        return needed <= free_bytes and kept + needed <= _ARENAS_SHARE * total_bytes

    def _load(self, job: AnyJob, number: int, arena: Arena, stack: ExitStack) -> Candidate:
        self._tell("load", number)
        device = self._context.device
        workspaces: tuple[Workspace, ...] = ()
        if isinstance(job, VendorJob):

            def bind(values: Values) -> Run:
                return vendor.prepare(job.problem, values, device)

        else:
            workspaces = job.plan.workspaces
            module = self._context.load(job.cubin)
            stack.callback(module.unload)
            for launch in job.plan.launches:
                if shortage := shortages(module.kernel(launch.entry), launch, device):
                    raise Rejected(Outcome.launch_error, shortage)

            def bind(values: Values) -> Run:
                return _in_order([module.prepare(launch, values) for launch in job.plan.launches])

        exact, timed = (bind(arena.values(data, workspaces)) for data in DATA)
        return Candidate(
            job=job, number=number, bind=bind, exact=exact, timed=timed, workspaces=workspaces
        )

    def _verify(self, candidate: Candidate, arena: Arena, whole: bool = False) -> bool:
        """The checks before timing; False when the kernel is too slow to be worth the rest."""
        self._tell("verify", candidate.number)
        arena.reset("exact", candidate.workspaces)
        candidate.first_ns = self._timer.once(candidate.exact)
        _reject_run(candidate, arena, "exact check")
        candidate.checks = "exact, guards"
        best_ns = candidate.job.best_ns
        hopeless = best_ns is not None and candidate.first_ns > max(
            _HOPELESS * best_ns, _HOPELESS_NS
        )
        if hopeless and not whole:
            _reject(arena.input_fault(), "inputs")
            candidate.checks += ", inputs"
            return False
        arena.reset("random", candidate.workspaces)
        candidate.second_ns = self._timer.once(candidate.timed)
        comparison = arena.compare_random()
        candidate.max_error = comparison.max_error
        if not comparison.is_right:
            raise Rejected(Outcome.wrong_result, f"FP64 check: {comparison.message}")
        _reject(arena.input_fault(), "inputs")
        candidate.checks += f", inputs, fp64 of {comparison.compared}"
        return True

    def _time(self, candidate: Candidate) -> tuple[list[float], bool]:
        self._tell("time", candidate.number)
        job, timer = candidate.job, self._timer
        estimate_ns = candidate.second_ns
        # The runs of the checks have warmed it up already.
        rest_ms = job.limits.warm_up_ms - (candidate.first_ns + estimate_ns) / 1e6
        if rest_ms <= 0 and _is_slower(estimate_ns, job):
            # Long, and slower by far: one more run, and that it was no hiccup is sure enough.
            (estimate_ns,) = timer.sample(candidate.timed, 1, cold=job.cold)
            candidate.conditions = timer.conditions
            if _is_slower(estimate_ns, job):
                return [estimate_ns], True
        timer.warm_up(candidate.timed, estimate_ns, rest_ms)
        answer = timer.measure(
            candidate.timed, max(estimate_ns, 1.0), job.best_ns, cold=job.cold, limits=job.limits
        )
        candidate.conditions = timer.conditions
        return answer

    def _interleave(
        self, candidates: Sequence[Candidate], arena: Arena, rounds: int, seed: int
    ) -> dict[int, list[list[float]]]:
        """Samples of each candidate, round by round, each round in another place of memory."""
        samples: dict[int, list[list[float]]] = {each.number: [] for each in candidates}
        if not candidates:
            return samples
        order = random.Random(seed)
        # The device may have idled since the search: its clocks come up under the finalists
        # themselves, none of which then pays for it.
        for candidate in candidates:
            self._tell("time", candidate.number)
            share = _CONFIRM_WARM_UP_MS / len(candidates)
            # The first run paid for loading: a whole library, for the vendor's kernel.
            candidate.first_ns = self._timer.once(candidate.timed)
            self._timer.warm_up(candidate.timed, candidate.first_ns, share)
        rounds = rounds_for(min(candidate.first_ns for candidate in candidates), rounds)
        self._tell("prepare", 0)
        workspaces = [each for candidate in candidates for each in candidate.workspaces]
        with closing(arena.places(workspaces, rounds)) as places:
            for number in range(rounds):
                for candidate in order.sample(list(candidates), len(candidates)):
                    self._tell("time", candidate.number)
                    run = candidate.timed
                    if places:
                        place = number % len(places)
                        run = candidate.bind(places.values(place, candidate.workspaces))
                    count = launches_a_round(candidate.first_ns) - 1
                    run()  # its code and operands' pages, not its predecessor's
                    samples[candidate.number].append(
                        self._timer.sample(run, count, cold=candidate.job.cold)
                    )
                    candidate.conditions = self._timer.conditions
        return samples

    def _confirmed(
        self, candidate: Candidate, arena: Arena, rounds: Sequence[Sequence[float]]
    ) -> Measurement:
        """The measurement, with the interval of its median: rounds are independent, the samples
        within one are not."""
        measurement = self._result(candidate, arena, [ns for each in rounds for ns in each], False)
        median_ns = measurement.median_ns
        assert median_ns is not None
        low_ns, high_ns = median_interval([quantile(each, 0.5) for each in rounds])
        # The median of all samples is not quite that of the rounds' medians.
        return replace(measurement, low_ns=min(low_ns, median_ns), high_ns=max(high_ns, median_ns))

    def _result(
        self, candidate: Candidate, arena: Arena, samples: list[float], truncated: bool
    ) -> Measurement:
        """The measurement, once the kernel has proved itself again."""
        self._tell("verify", candidate.number)
        job = candidate.job
        median = quantile(samples, 0.5)
        if job.limits.recheck_launches:
            # A race passes one check easily.
            # What is clearly slower is never the best, and passed once: it may go without.
            affordable = int(_RECHECK_NS / max(median, 1.0))
            affordable = min(affordable, 1) if truncated else max(affordable, 1)
            launches = min(job.limits.recheck_launches, affordable)
            for launch in range(launches):
                arena.reset("exact", candidate.workspaces)
                candidate.exact()
                _reject_run(
                    candidate, arena, f"exact check {launch + 1} of {launches} after timing"
                )
            _reject(arena.input_fault(), "inputs after timing")
            candidate.checks += f", exact x{launches} after timing" if launches else ""
        device = self._context.device
        least = floor_ns(job.problem, device, job.cold, candidate.conditions.sm_clock_mhz)
        if is_impossible(median, least):
            raise Rejected(
                Outcome.wrong_result,
                f"{median:.0f} ns is impossible: {device.name} needs {least:.0f} ns or more for "
                f"{job.problem.shape}; the kernel skips work, or the clock is wrong",
            )
        return Measurement(
            outcome=Outcome.ok,
            stage=job.stage,
            message=self._note(median, job.cold),
            samples=len(samples),
            median_ns=median,
            p20_ns=quantile(samples, 0.2),
            p80_ns=quantile(samples, 0.8),
            min_ns=min(samples),
            max_error=candidate.max_error,
            checks=f"{candidate.checks}, seed {self._seed}",
            cold_l2=job.cold,
            door=self._door,
            truncated=truncated,
            conditions=candidate.conditions,
            measured_at=now(),
        )

    def _note(self, median_ns: float, cold: bool) -> str:
        """Says so where the events' own time is a visible part of a time."""
        resolution = self._timer.resolution_ns
        if not cold or resolution < _RESOLUTION_SHARE * median_ns:
            return ""
        return (
            f"short: one launch per pair of events, which alone read {resolution:.0f} ns; smaller "
            "differences cannot be told"
        )

    def _failure(self, job: AnyJob, error: Exception) -> Measurement:
        if isinstance(error, DriverError) and is_sticky(error):
            raise error
        outcome = Outcome.launch_error
        if isinstance(error, Rejected):
            outcome = error.outcome
            # What a wrong kernel wrote elsewhere must not fail the next one.
            for arena in self._arenas.values():
                if arena.input_fault():
                    arena.restore()
        elif isinstance(error, MissingExtraError):
            outcome = Outcome.infeasible
        return failure(job, outcome, str(error), self._door)


_CANDIDATE_ERRORS = (Rejected, DriverError, TemplateError, MissingExtraError)
"""What a candidate may be to blame for."""


def is_sticky(error: DriverError) -> bool:
    """Whether the context is broken for good."""
    return error.name in STICKY


def failure(job: AnyJob, outcome: Outcome, message: str, door: str) -> Measurement:
    """The measurement of a candidate without a time."""
    return Measurement(
        outcome=outcome,
        stage=job.stage,
        message=message,
        cold_l2=job.cold,
        door=door,
        measured_at=now(),
    )


def shortages(kernel: Kernel, launch: Launch, device: Device) -> str:
    """What a launch needs beyond what there is, with the numbers; empty when it fits."""
    shared = kernel.static_shared_bytes + launch.shared_bytes
    if launch.threads > kernel.threads_per_block:
        return (
            f"launch resources: {launch.entry} wants {launch.threads} threads a block x "
            f"{kernel.registers} registers = {launch.threads * kernel.registers}, of "
            f"{device.registers_per_sm} registers; at most {kernel.threads_per_block} threads fit"
        )
    if shared > device.shared_bytes_per_block_optin:
        return (
            f"launch resources: {launch.entry} wants {shared} bytes of shared memory a block, of "
            f"{device.shared_bytes_per_block_optin}"
        )
    for name, wanted, most in zip("xyz", launch.grid, device.grid_dimensions, strict=True):
        if not 1 <= wanted <= most:
            return f"launch resources: {launch.entry} wants {wanted} blocks in {name}, of {most}"
    return ""


def now() -> str:
    """ISO 8601, UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def launches_a_round(time_ns: float) -> int:
    """Runs of a kernel in each round of a confirm: one that is not timed, and its samples."""
    return 1 + (_ROUND_SAMPLES if time_ns < _ROUND_NS else 1)


def rounds_for(time_ns: float, rounds: int) -> int:
    """Rounds of a confirm whose fastest kernel takes so long: more places for a short one."""
    return rounds * (_SHORT_ROUNDS if time_ns < _SHORT_NS else 1)


def _is_slower(time_ns: float, job: AnyJob) -> bool:
    return job.best_ns is not None and time_ns > job.limits.slower_factor * job.best_ns


def _in_order(launches: Sequence[Run]) -> Run:
    if len(launches) == 1:
        return launches[0]

    def run() -> None:
        for launch in launches:
            launch()

    return run


def _reserve(arena: Arena, job: AnyJob) -> None:
    if isinstance(job, VendorJob):
        return
    try:
        arena.reserve(job.plan.workspaces)
    except DriverError:
        raise
    except (DeviceError, ShapeError) as error:
        # The problem itself fits: another config may do without.
        raise Rejected(Outcome.infeasible, str(error)) from None


def _reject_run(candidate: Candidate, arena: Arena, check: str) -> None:
    """Ends a candidate whose run on the exact data was not right in every respect."""
    faults = arena.exact_fault(), arena.workspace_fault(candidate.workspaces)
    _reject("; ".join(filter(None, faults)), check)


def _reject(fault: str, check: str) -> None:
    if fault:
        raise Rejected(Outcome.wrong_result, f"{check}: {fault}")
