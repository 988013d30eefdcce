"""The best known config for a problem, and how it is known. Never measures.

    exact           this problem on this model of device
    near_shape      a problem like it (`autotune.nearness`) on this model
    sibling_device  this problem, or one like it, on another model of the same architecture
    arch_default    nothing known is near: of the search space's starts the one that the model of
                    `autotune.analysis` likes best
    none            not even that

Known is what the store has, and the best configs that ship with the package (`autotune.seed`); of
two that relate to the question alike the user's own answers. Measured answers of every tier come
before predicted ones, and among them those of the current template before stale ones: a stale one
answers only where nothing else was measured. A config is checked
against the search space for the problem that was asked; one of another problem may give way in
what the space calls adaptable, such as the width of loads. Among near ones the model has a say.

Answers are kept per process until the store changes. A store in a file is looked at on every call
(one `stat` and SQLite's `data_version`), so a committed change is seen by the next call; answers
from PostgreSQL are not kept. To freeze what a job sees, give it an exported copy
(`autotune db export`).
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from autotune import archs, nearness, problems, seed, storefile, templates
from autotune.answers import Answer as Answer
from autotune.answers import expected_loss, worded
from autotune.errors import AutotuneError, InfeasibleError, NotFoundError, StoreError, UsageError
from autotune.reader import FileReader, Reader, ServerReader, StoreReader
from autotune.seed import SeedReader
from autotune.tiers import Candidate, Question, candidates
from autotune.types import Config, Device, Match, Problem

if TYPE_CHECKING:
    from autotune.space import Space

MODEL_TRUST = 0.5
"""Exponent of the ratio of predicted times when near configs are compared: 0 would leave it to the
distance alone, 1 believe the model as much as what was measured elsewhere."""

START_LOSS = 0.25
"""Fraction of the speed that the model's favourite start is taken to cost, beside the expected
losses of near configs. Chosen by eye among 0.1, 0.15 and 0.25, from stored trials of 48 problems on
one H200; benchmarks/leave_one_out.py tells what answers lose with it."""

KEPT_ANSWERS = 4096

Check = Callable[[Config, Problem], str | None]
"""Why a config cannot serve a problem; None when it can."""

Default = Callable[[Problem, int], Config]
"""The config to use for a problem on an architecture when nothing is known."""

_log = logging.getLogger("autotune")


class HasPlace(Protocol):
    """An open store, `autotune.store.Store`."""

    place: Path | str


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
    seed: bool = True,
    **options: object,
) -> Answer:
    """The best known config for a shape.

    Args:
        arch: Architecture in any spelling; may be left out when `device` is given.
        device: The model of GPU; without one, every model of `arch` counts.
        store: Path, URL or open store; None for the user's own.
        template_sha256: Digest of the template that will render the config; rows of others are
            stale. None for the installed one.
        strict: Only `exact`, measured and not stale, will do.
        seed: Whether the best configs that ship with the package may answer.
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
        seed_folder="shipped" if seed else None,
    )
    if strict and not found.is_tuned:
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
    seed_folder: Path | Literal["shipped"] | None = "shipped",
) -> Answer:
    """The best known config for a problem of any family; see `lookup`.

    A store that is damaged or of another schema costs a warning, not the answer; so does one that
    was named and is missing.

    Args:
        template_sha256: As for `lookup`, but None compares nothing.
        check: In place of the search space's own rules.
        default: In place of the search space's own start.
        seed_folder: Of another seed than the one that ships with the package; None for none.
    """
    if arch is None and device is None:
        raise UsageError("name an architecture or a device to look a config up for")
    number = archs.parse(arch) if arch is not None else (device.arch if device else 0)
    if device is not None and device.arch != number:
        raise UsageError(
            f"sm_{number} was asked for, but {device.name} is sm_{device.arch}; give only one"
        )
    question = Question(
        problem=problem,
        device=device or archs.get(number).typical,
        is_named=device is not None,
        template_sha256=template_sha256,
    )
    place = store if store is None or isinstance(store, str | Path) else store.place
    rules = _Rules(check=check, default=default)
    folder = seed.shipped() if seed_folder == "shipped" else seed_folder
    book = _book(storefile.resolve(place), folder)
    found = book.answer(question, rules, is_store_named=store is not None)
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

    def serving(self, question: Question, candidate: Candidate) -> Config:
        """The config of a row, as it can serve the problem that was asked.

        Raises:
            AutotuneError: why it cannot.
        """
        row, problem, arch = candidate.row, question.problem, question.device.arch
        try:
            config = Config.from_json(row["config_json"])
        except (ValueError, TypeError, AttributeError) as error:
            raise InfeasibleError(f"the config cannot be read: {error}") from None
        if config.sha256 != row["config_sha256"]:
            raise InfeasibleError("the config was edited after it was stored")
        if self.check is not None:
            if (why := self.check(config, problem)) is not None:
                raise InfeasibleError(why)
            return config
        family_space = _space(problem)
        # Parameters that have come since it was stored stand at their defaults.
        whole = family_space.config(config)
        if row["problem"] != problem.key:
            fitted = family_space.fitted(whole, problem, arch)
            if fitted is not None:
                return fitted
        family_space.check(whole, problem, arch)
        return whole

    def predicted_ns(self, question: Question, config: Config) -> float | None:
        """What the model expects; None where the configs are not the space's own."""
        if self.check is not None:
            return None
        from autotune.analysis import predict

        return predict.ranking_ns(question.problem, config, question.device)

    def start(self, question: Question) -> Config:
        """The config without any row."""
        if self.default is not None:
            return self.default(question.problem, question.device.arch)
        # Loaded late, like the rules: an exact answer needs no model.
        from autotune import defaults

        return defaults.default(question.problem, question.device)


def _space(problem: Problem) -> Space:
    # Loading the rules costs milliseconds, which callers with rules of their own need not pay.
    from autotune import space

    return space.load(problem.kernel)


def _decide(
    question: Question, rules: _Rules, readers: Sequence[Reader], fault: str = ""
) -> Answer:
    """The best of the first kind of candidates of which any may serve."""
    passed_over: list[str] = []
    ordered = candidates(question, readers)
    for _, alike in itertools.groupby(ordered, key=lambda candidate: candidate.kind):
        served = _served(question, rules, alike, passed_over)
        if served:
            candidate, config = _choose(question, rules, served)
            if (because := _better_start(question, rules, candidate, config)) is not None:
                break
            return worded(question, candidate, config, tuple(passed_over))
    else:
        because = f"nothing known is within a distance of {nearness.MAX_DISTANCE:g}"
    if fault:
        because = f"{fault}; {because}" if readers else fault
    return _fallback(question, rules, because, tuple(passed_over))


def _served(
    question: Question, rules: _Rules, alike: Iterable[Candidate], passed_over: list[str]
) -> list[tuple[Candidate, Config]]:
    """Those of one kind that may serve; of an exact match the first alone."""
    served: list[tuple[Candidate, Config]] = []
    for candidate in alike:
        row = candidate.row
        try:
            served.append((candidate, rules.serving(question, candidate)))
        except AutotuneError as error:
            passed_over.append(f"{row['problem']} on {row['device']}: {error}")
            if candidate.tier is Match.exact:
                _log.warning(
                    "%s cannot serve %s: %s",
                    f"measurement {row['measurement_id']} of the results store"
                    if row["measurement_id"]
                    else "a line of the shipped seed",
                    row["problem"],
                    error,
                )
        if served and candidate.tier is Match.exact:
            break
    return served


def _choose(
    question: Question, rules: _Rules, served: Sequence[tuple[Candidate, Config]]
) -> tuple[Candidate, Config]:
    """Of near configs the one that is probably fastest: by what its distance costs, and by what
    the model expects of it here."""
    if len(served) == 1:
        return served[0]
    times = [rules.predicted_ns(question, config) for _, config in served]
    known = [time for time in times if time is not None and math.isfinite(time)]

    def cost(number: int) -> float:
        time, loss = times[number], expected_loss(served[number][0])
        if time is None or not known:
            return loss
        return loss + MODEL_TRUST * math.log(time / min(known))

    # The first of equals: candidates come in the order of their rank.
    return served[min(range(len(served)), key=cost)]


def _better_start(
    question: Question, rules: _Rules, candidate: Candidate, config: Config
) -> str | None:
    """Why a start of the space is probably faster here than what is known of other problems; None
    where it is not."""
    if candidate.tier is Match.exact:
        return None
    try:
        times = [rules.predicted_ns(question, each) for each in (config, rules.start(question))]
    except AutotuneError:
        return None
    if times[0] is None or times[1] is None or not 0 < times[1] < math.inf:
        return None
    ratio = times[0] / times[1]
    if not candidate.is_measured:
        because = "the model likes it better than what it chose for problems near this one"
        return because if ratio >= 1 else None
    # What was measured elsewhere is worth something, unless the model finds it far too slow here.
    if expected_loss(candidate) + MODEL_TRUST * math.log(ratio) <= START_LOSS:
        return None
    return (
        f"what is measured for {candidate.row['problem']}, at a distance of "
        f"{candidate.distance:.2f}, takes {ratio:.2f} times as long here by the model"
    )


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
        reason=f"the start of the search space for sm_{question.device.arch} that the model likes "
        f"best, never timed for this problem: {because}",
        config=config,
        passed_over=passed_over,
    )


# *** stores, and what was answered ***


class _Book:
    """The answers of one store and seed, kept while the store's state lasts."""

    def __init__(self, place: Path | str, seed_folder: Path | None) -> None:
        self._store: StoreReader = (
            FileReader(place) if isinstance(place, Path) else ServerReader(place)
        )
        self._seed = SeedReader(seed_folder) if seed_folder else None
        self._lock = threading.Lock()
        self._state: Hashable = None
        self._answers: dict[tuple[Question, _Rules], Answer] = {}
        self._warned: set[str] = set()

    def answer(self, question: Question, rules: _Rules, *, is_store_named: bool) -> Answer:
        with self._lock:
            fault: StoreError | NotFoundError | None = None
            try:
                state = self._store.state()
            except (StoreError, NotFoundError) as error:
                fault = error
                state = str(error)
            if state is None or state != self._state or len(self._answers) >= KEPT_ANSWERS:
                self._answers.clear()
                self._state = state
            key = (question, rules)
            if key not in self._answers:
                self._answers[key] = self._find(question, rules, fault, is_store_named)
            return self._answers[key]

    def _find(
        self,
        question: Question,
        rules: _Rules,
        fault: StoreError | NotFoundError | None,
        is_store_named: bool,
    ) -> Answer:
        shipped = [self._seed] if self._seed else []
        if fault is None:
            try:
                with self._store.snapshot():
                    return _decide(question, rules, [self._store, *shipped])
            except StoreError as error:
                fault = error
        self._warn(fault, is_store_named)
        return _decide(question, rules, shipped, str(fault))

    def _warn(self, fault: Exception, is_store_named: bool) -> None:
        text = str(fault)
        if text in self._warned:
            return
        self._warned.add(text)
        # Nobody who never searched needs a store of his own.
        is_usual = isinstance(fault, NotFoundError) and not is_store_named
        _log.log(
            logging.INFO if is_usual else logging.WARNING,
            "%s; looking up goes on without it",
            text,
        )


_books: dict[tuple[int, Path | str, Path | None], _Book] = {}


def _book(place: Path | str, seed_folder: Path | None) -> _Book:
    # By process: a database connection must not be used on both sides of a fork.
    key = (os.getpid(), place, seed_folder)
    if key not in _books:
        _books.setdefault(key, _Book(place, seed_folder))
    return _books[key]
