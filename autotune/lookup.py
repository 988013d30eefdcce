"""The best known config for a problem, and how it is known. Never measures.

    exact           this problem on this model of device
    near_shape      a problem of similar sizes and the same regime on this model
    sibling_device  this problem, or a near one, on another model of the same architecture
    arch_default    nothing stored fits: the search space's start for the architecture
    none            not even that

Measured answers of every tier come before predicted ones, and answers of the current template
before stale ones. A stored config is checked against the search space for the problem that was
asked, and passed over where it breaks a rule.

Answers are kept per process until the store changes. A store in a file is looked at on every call
(one `stat` and SQLite's `data_version`), so a committed change is seen by the next call; answers
from PostgreSQL are not kept. To freeze what a job sees, give it an exported copy
(`autotune db export`).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from autotune import archs, problems, storefile, templates
from autotune.errors import AutotuneError, NotFoundError, StoreError, UsageError
from autotune.reader import FileReader, Reader, Row, ServerReader
from autotune.tiers import Candidate, Question, candidates
from autotune.types import Config, Device, Evidence, Match, Problem

if TYPE_CHECKING:
    from autotune.space import Space

LOSS_PER_OCTAVE = 0.1
"""Rule of thumb: speed lost for each factor of two between tuned and asked. Not measured."""

LEAST_LOSS = 0.02
"""Rule of thumb: lost at least, when anything but the sizes differs."""

KEPT_ANSWERS = 4096

Check = Callable[[Config, Problem], str | None]
"""Why a config cannot serve a problem; None when it can."""

Default = Callable[[Problem, int], Config]
"""The config to use for a problem on an architecture when nothing is known."""

_log = logging.getLogger("autotune")


class HasPlace(Protocol):
    """An open store, `autotune.store.Store`."""

    place: Path | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What `lookup` found, and how it knows.

    Attributes:
        match: How the row relates to the question; the module's text has the tiers.
        reason: The same in words, with distance, device and what was passed over.
        config: None only for the match `none`.
        evidence: None where nothing is behind the config: `arch_default` and `none`.
        problem: Key of the problem the row is for.
        device: Name of the device the row is for.
        time_ns: Median of the confirm round, or the prediction, for that problem and device.
        distance: 0 for the same sizes; else the length of the vector of log2 ratios of the sizes.
        expected_loss: Fraction of speed that is probably lost against tuning for this problem
            and device. An estimate by a rule of thumb; None where nothing is known.
        stale: Made by another template than the current one.
        ties: Configs that the confirm round could not tell from this one.
        best_id, measurement_id: The rows in the store.
        passed_over: Nearer rows that could not serve, each with its reason.
    """

    match: Match
    reason: str
    config: Config | None = None
    evidence: Evidence | None = None
    problem: str = ""
    device: str = ""
    time_ns: float | None = None
    distance: float | None = None
    expected_loss: float | None = None
    stale: bool = False
    ties: int = 0
    best_id: int | None = None
    measurement_id: int | None = None
    measured_at: str = ""
    driver: str = ""
    compiler: str = ""
    autotune_version: str = ""
    passed_over: tuple[str, ...] = ()


def lookup(
    m: int,
    n: int,
    k: int,
    *,
    arch: int | str | None = None,
    device: Device | None = None,
    kernel: str = problems.DEFAULT,
    store: str | Path | HasPlace | None = None,
    template_sha256: str | None = None,
    strict: bool = False,
    **options: object,
) -> Answer:
    """The best known config for a shape.

    Args:
        arch: Architecture in any spelling; may be left out when `device` is given.
        device: The model of GPU; without one, every model of `arch` counts.
        store: Path, URL or open store; None for the user's own.
        template_sha256: Digest of the template that will render the config; rows of others are
            stale. None for the installed one.
        strict: Only `exact` and not stale will do.
        **options: Further fields of the problem, for example `layout="tn"`.

    Raises:
        UsageError: a shape, option, kernel or architecture that does not exist.
        NotFoundError: `strict`, and no such answer.
    """
    problem = problems.parse(f"{m}x{n}x{k}", kernel, options)
    found = answer(
        problem,
        arch=arch,
        device=device,
        store=store,
        template_sha256=template_sha256 or templates.sha256(kernel),
    )
    if strict and (found.match is not Match.exact or found.stale):
        raise NotFoundError(f"{problem.key} is not tuned: {found.reason}")
    return found


def answer(
    problem: Problem,
    *,
    arch: int | str | None = None,
    device: Device | None = None,
    store: str | Path | HasPlace | None = None,
    template_sha256: str | None = None,
    check: Check | None = None,
    default: Default | None = None,
) -> Answer:
    """The best known config for a problem of any family; see `lookup`.

    A store that is missing, damaged or of another schema costs a warning, not the answer.

    Args:
        template_sha256: As for `lookup`, but None compares nothing.
        check: In place of the search space's own rules.
        default: In place of the search space's own start.
    """
    if arch is None and device is None:
        raise UsageError("name an architecture or a device to look a config up for")
    number = archs.parse(arch) if arch is not None else (device.arch if device else 0)
    if device is not None and device.arch != number:
        raise UsageError(
            f"sm_{number} was asked for, but {device.name} is sm_{device.arch}; give only one"
        )
    model = (device.arch, device.sm_count, device.memory_bytes) if device else None
    question = Question(problem=problem, arch=number, model=model, template_sha256=template_sha256)
    place = store if store is None or isinstance(store, str | Path) else store.place
    rules = _Rules(check=check, default=default)
    found = _book(storefile.resolve(place)).answer(question, rules)
    if found.match is not Match.exact and len(_misses) < KEPT_ANSWERS:
        _misses[problem.key] = None
    return found


def misses() -> tuple[str, ...]:
    """Keys of the problems that this process asked for and that were not tuned, oldest first."""
    return tuple(_misses)


_misses: dict[str, None] = {}


# *** one question ***


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """What a config must keep, and where one comes from when nothing is stored."""

    check: Check | None
    default: Default | None

    def refusal(self, question: Question, row: Row) -> str | None:
        """Why a stored config cannot serve; None when it can."""
        try:
            config = Config.from_json(row["config_json"])
        except (ValueError, TypeError, AttributeError) as error:
            return f"the config cannot be read: {error}"
        if config.sha256 != row["config_sha256"]:
            return "the config was edited after it was stored"
        if self.check is not None:
            return self.check(config, question.problem)
        try:
            whole = self.whole(config, question.problem)
            return _space(question.problem).explain(whole, question.problem, question.arch)
        except AutotuneError as error:
            return str(error)

    def whole(self, config: Config, problem: Problem) -> Config:
        """A stored config with the parameters that have come since, at their defaults.

        Raises:
            InfeasibleError: a parameter or a value that there no longer is.
        """
        return config if self.check is not None else _space(problem).config(config)

    def start(self, question: Question) -> Config:
        """The config without any row."""
        if self.default is not None:
            return self.default(question.problem, question.arch)
        # Loaded late, like the rules: an exact answer needs no model.
        from autotune import defaults

        return defaults.default(question.problem, archs.get(question.arch).typical)


def _space(problem: Problem) -> Space:
    # Loading the rules costs milliseconds, which callers with rules of their own need not pay.
    from autotune import space

    return space.load(problem.kernel)


def _decide(question: Question, rules: _Rules, reader: Reader) -> Answer:
    """The first candidate, in order, that may serve."""
    passed_over: list[str] = []
    for candidate in candidates(question, reader):
        row = candidate.row
        why = rules.refusal(question, row)
        if why is None:
            return _worded(question, candidate, rules, tuple(passed_over))
        passed_over.append(f"{row['problem']} on {row['device']}: {why}")
        if candidate.tier is Match.exact:
            _log.warning(
                "measurement %s of the results store cannot serve %s: %s",
                row["measurement_id"],
                row["problem"],
                why,
            )
    return _fallback(question, rules, "nothing stored fits", tuple(passed_over))


def _fallback(
    question: Question, rules: _Rules, because: str, passed_over: tuple[str, ...] = ()
) -> Answer:
    try:
        config = rules.start(question)
    except AutotuneError as error:
        return Answer(
            match=Match.none,
            reason=f"{because}, and there is no default: {error}",
            passed_over=passed_over,
        )
    return Answer(
        match=Match.arch_default,
        reason=f"{because}; this is the start that the search space gives for sm_{question.arch}, "
        "never timed for this problem",
        config=config,
        passed_over=passed_over,
    )


def _worded(
    question: Question, candidate: Candidate, rules: _Rules, passed_over: tuple[str, ...]
) -> Answer:
    row, match = candidate.row, candidate.tier
    measured = candidate.is_measured
    how = "measured" if measured else "predicted, never timed,"
    words = [f"{how} for {row['problem']} on {row['device']} ({row['sm_count']} SMs)"]
    loss = LOSS_PER_OCTAVE * candidate.distance
    if match is not Match.exact:
        loss = max(loss, LEAST_LOSS)
    if row["problem"] != question.problem.key:
        words.append(
            f"the nearest problem known to {question.problem.key}, at a distance of "
            f"{candidate.distance:.2f} octaves"
        )
    if match is Match.sibling_device:
        loss += LOSS_PER_OCTAVE * max(0.5, candidate.device_distance)
        words.append("another model of the same architecture")
    elif question.model is None:
        words.append(f"no model was named, so every sm_{question.arch} counts")
    if candidate.stale:
        words.append("stale: made by another version of the template; search again to renew it")
    if match is not Match.exact:
        words.append(f"by a rule of thumb about {loss:.0%} slower than a config tuned for this")
    return Answer(
        match=match,
        reason="; ".join(words),
        config=rules.whole(Config.from_json(row["config_json"]), question.problem),
        evidence=Evidence(row["evidence"]),
        problem=row["problem"],
        device=row["device"],
        time_ns=row["time_ns"],
        distance=candidate.distance,
        expected_loss=min(loss, 0.9) if measured or match is not Match.exact else None,
        stale=candidate.stale,
        ties=row["ties"],
        best_id=row["best_id"],
        measurement_id=row["measurement_id"],
        measured_at=row["measured_at"],
        driver=row["driver"],
        compiler=row["compiler"],
        autotune_version=row["autotune_version"],
        passed_over=passed_over,
    )


# *** stores, and what was answered ***


class _Book:
    """The answers of one store, kept while its state lasts."""

    def __init__(self, place: Path | str) -> None:
        self._reader: Reader = FileReader(place) if isinstance(place, Path) else ServerReader(place)
        self._lock = threading.Lock()
        self._state: Hashable = None
        self._answers: dict[tuple[Question, _Rules], Answer] = {}
        self._warned: set[str] = set()

    def answer(self, question: Question, rules: _Rules) -> Answer:
        with self._lock:
            fault = ""
            try:
                state = self._reader.state()
            except (StoreError, NotFoundError) as error:
                fault = str(error)
                state = fault
            if state is None or state != self._state or len(self._answers) >= KEPT_ANSWERS:
                self._answers.clear()
                self._state = state
            key = (question, rules)
            if key not in self._answers:
                self._answers[key] = self._find(question, rules, fault)
            return self._answers[key]

    def _find(self, question: Question, rules: _Rules, fault: str) -> Answer:
        if not fault:
            try:
                with self._reader.snapshot():
                    return _decide(question, rules, self._reader)
            except StoreError as error:
                fault = str(error)
        if fault not in self._warned:
            self._warned.add(fault)
            _log.warning("%s; looking up goes on without it", fault)
        return _fallback(question, rules, fault)


_books: dict[tuple[int, Path | str], _Book] = {}


def _book(place: Path | str) -> _Book:
    # By process: a database connection must not be used on both sides of a fork.
    key = (os.getpid(), place)
    if key not in _books:
        _books.setdefault(key, _Book(place))
    return _books[key]
