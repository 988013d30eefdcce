"""What a search would do, without doing any of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autotune import compile, history, settings, templates
from autotune.errors import NotFoundError
from autotune.lookup import answer
from autotune.search import finals
from autotune.search.budget import Budget, Effort
from autotune.search.campaign import HURRY, least_ns
from autotune.store import Store
from autotune.types import Device, Evidence, Match, Problem, Stage

COMPILE_S = 0.5
"""Of one core, for a kernel: 100 took 26 s on two cores (benchmarks/results). A guess for other
machines, used until a run has been recorded."""
LEAST_TRIAL_S = 0.1
"""For a trial on a device: verifying and timing, however many cores compile."""

State = Literal["tuned", "stale", "predicted", "near", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What is known of a problem, and what searching it would take.

    Attributes:
        state: `tuned`: a confirmed best of this device and template; `stale`: one of an older
            template; `predicted`: this problem, never timed; `near`: only a near shape or another
            model of the architecture; `missing`.
        reason: Where the best known config comes from, in words.
        time_ns: Of that config where it was measured.
        distance: In octaves, of a near shape.
        trials: Those in the store that the search would count.
        wanted: Trials in all; None when only time limits it.
        seconds: Expected, by recent runs on this model of device or else by rule of thumb; never
            more than the budget.
    """

    problem: Problem
    state: State
    reason: str
    time_ns: float | None
    distance: float | None
    trials: int
    wanted: int | None
    seconds: float


def plan(
    problems: Sequence[Problem],
    *,
    device: Device,
    effort: Effort,
    store: Store | str | Path | None = None,
    compiler: str | None = None,
    cold: bool = True,
) -> list[Outlook]:
    """The outlook of each problem. Reads the store and writes nothing.

    Args:
        effort: With the limits that the user gave in place of its own.
    """
    label = compile.find(compiler).label
    with ExitStack() as stack:
        opened: Store | None
        if isinstance(store, Store):
            opened = store
        else:
            try:
                opened = stack.enter_context(Store.open(store, read_only=True))
            except NotFoundError:
                opened = None
        outlooks = [_outlook(problem, device, effort, opened, label, cold) for problem in problems]
    return outlooks


def total_seconds(outlooks: Sequence[Outlook], budget: Budget) -> float:
    """Expected of the whole batch."""
    if budget.total_seconds is not None:
        return budget.total_seconds
    return sum(outlook.seconds for outlook in outlooks)


def _outlook(
    problem: Problem,
    device: Device,
    effort: Effort,
    store: Store | None,
    compiler: str,
    cold: bool,
) -> Outlook:
    state: State = "missing"
    reason, time_ns, distance, trials = "nothing is stored", None, None, 0
    template = templates.sha256(problem.kernel)
    if store is not None:
        found = answer(problem, device=device, store=store, template_sha256=template)
        reason, time_ns, distance = found.reason, found.time_ns, found.distance
        if found.match is Match.exact:
            is_timed = found.evidence is Evidence.measured
            state = "stale" if found.stale else "tuned" if is_timed else "predicted"
        elif found.match in (Match.near_shape, Match.sibling_device):
            state = "near"
        stage = Stage.search if device.is_present else Stage.predict
        trials = sum(
            trial.measurement.stage is stage and trial.measurement.cold_l2 == cold
            for trial in store.trials(problem, device, template, compiler)
        )
    budget = effort.budget
    wanted = budget.trials if device.is_present else effort.predictions
    return Outlook(
        problem=problem,
        state=state,
        reason=reason,
        time_ns=time_ns,
        distance=distance,
        trials=trials,
        wanted=wanted,
        seconds=_seconds(
            problem, device, effort, store, None if wanted is None else wanted - trials
        ),
    )


def _seconds(
    problem: Problem, device: Device, effort: Effort, store: Store | None, left: int | None
) -> float:
    limit_s = effort.budget.seconds
    if left is None:
        return limit_s or 0.0
    past_s = history.trial_seconds(store, device, problem.kernel) if store else None
    guess_s = COMPILE_S / max(1, settings.jobs() - 1)
    if device.is_present:
        guess_s = max(LEAST_TRIAL_S, guess_s)
    seconds = left * (past_s or guess_s)
    if device.is_present:
        seconds += finals.seconds(HURRY * least_ns(problem, device), effort)
    return seconds if limit_s is None else min(limit_s, seconds)
