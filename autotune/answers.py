"""What a look-up answers, and how it says what it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autotune import nearness
from autotune.seed import SeedReader
from autotune.tiers import Candidate, Question
from autotune.types import Config, Evidence, Match

DEVICE_LOSS = 0.1
"""Rule of thumb: speed lost for each factor of two between the multiprocessors of two models. Not
measured."""

LEAST_DEVICE_DISTANCE = 0.5
"""Octaves that another model counts at least: clocks and memory differ as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What `lookup` found, and how it knows; `why()` says it in words.

    Attributes:
        match: How the row relates to the question; the module's text has the tiers.
        reason: The same in a sentence, with distance, device and expected loss.
        config: None only for the match `none`.
        evidence: None where nothing is behind the config: `arch_default` and `none`.
        origin: `local`, the store; `seed`, what ships with the package; empty for neither.
        problem: Key of the problem the row is for.
        device: Name of the device the row is for.
        time_ns: Median of the confirm round, or the prediction, for that problem and device.
        vendor_ns: Of the vendor's library in the same confirm round; None where it was not timed.
        distance: 0 for the same problem; else as `autotune.nearness` measures it.
        expected_loss: Fraction of speed that is probably lost against tuning for this problem
            and device; None where nothing is known.
        fitted: What was changed in the row's config for this problem, `vector_a 4 to 1` each.
        stale: Made by another template than the current one.
        ties: Configs that the confirm round could not tell from this one.
        best_id, measurement_id: The rows in the store; None for the seed.
        passed_over: Rows that would have come first or been compared and could not serve, each with
            its reason.
    """

    match: Match
    reason: str
    config: Config | None = None
    evidence: Evidence | None = None
    origin: Literal["", "local", "seed"] = ""
    problem: str = ""
    device: str = ""
    time_ns: float | None = None
    vendor_ns: float | None = None
    distance: float | None = None
    expected_loss: float | None = None
    fitted: tuple[str, ...] = ()
    stale: bool = False
    ties: int = 0
    best_id: int | None = None
    measurement_id: int | None = None
    measured_at: str = ""
    driver: str = ""
    compiler: str = ""
    autotune_version: str = ""
    passed_over: tuple[str, ...] = ()

    @property
    def is_tuned(self) -> bool:
        """Whether it was measured for this very problem and device, with the current template."""
        return self.match is Match.exact and self.evidence is Evidence.measured and not self.stale

    def why(self) -> str:
        """All of it in words, a fact a line."""
        said = [f"{self.match}: {self.reason}"]
        if self.evidence is not None:
            place = "the shipped seed" if self.origin == "seed" else "the results store"
            versions = ", ".join(
                f"{name} {version}".strip()
                for name, version in (
                    ("driver", self.driver),
                    ("", self.compiler),
                    ("autotune", self.autotune_version),
                )
                if version
            )
            said.append(f"{self.evidence} {self.measured_at} ({versions}), from {place}")
        if self.time_ns is not None:
            vendor = ""
            if self.vendor_ns is not None:
                vendor = f"; the vendor's library took {self.vendor_ns / 1e3:,.2f} us beside it"
            said.append(f"{self.time_ns / 1e3:,.2f} us for {self.problem}{vendor}")
        if self.ties:
            said.append(f"{self.ties} other configs are as fast within the confirm round's error")
        if self.fitted:
            said.append(f"fitted to this problem: {', '.join(self.fitted)}")
        return "\n".join([*said, *(f"passed over: {each}" for each in self.passed_over)])


def expected_loss(candidate: Candidate) -> float:
    """Fraction of the speed of a config tuned for the question that is probably lost."""
    if candidate.tier is Match.exact:
        return 0.0
    loss = nearness.loss().at(candidate.distance)
    if candidate.tier is Match.sibling_device:
        loss += DEVICE_LOSS * max(LEAST_DEVICE_DISTANCE, candidate.device_distance)
    return min(loss, 0.9)


def worded(
    question: Question, candidate: Candidate, config: Config, passed_over: tuple[str, ...]
) -> Answer:
    """The answer that a row gives.

    Args:
        config: Of the row, as it can serve the question.
        passed_over: See `Answer`.
    """
    row, match, asked = candidate.row, candidate.tier, question.problem
    how = "measured" if candidate.is_measured else "predicted, never timed,"
    words = [f"{how} for {row['problem']} on {row['device']} ({row['sm_count']} SMs)"]
    if row["problem"] != asked.key:
        ratios = nearness.ratios(asked.kernel, asked.shape, row["shape"])
        words.append(
            f"near {asked.key}, at a distance of {candidate.distance:.2f}"
            + (f" ({ratios})" if ratios else "")
        )
    if match is Match.sibling_device:
        words.append(
            f"another model of the same architecture than {question.device.name} "
            f"({question.device.sm_count} SMs)"
        )
    elif not question.is_named:
        words.append(f"no model was named, so every sm_{question.device.arch} counts")
    if candidate.stale:
        words.append("stale: made by another version of the template; search again to renew it")
    loss = expected_loss(candidate) if candidate.is_measured else None
    if loss:
        words.append(
            f"probably at most {loss:.0%} slower than a config tuned for this, "
            f"{nearness.loss().source}"
        )
    stored = Config.from_json(row["config_json"])
    return Answer(
        match=match,
        reason="; ".join(words),
        config=config,
        evidence=Evidence(row["evidence"]),
        origin="seed" if isinstance(candidate.reader, SeedReader) else "local",
        problem=row["problem"],
        device=row["device"],
        time_ns=row["time_ns"],
        vendor_ns=row["vendor_ns"],
        distance=candidate.distance,
        expected_loss=loss,
        fitted=tuple(
            f"{name} {stored[name]} to {value}"
            for name, value in config.items()
            if name in stored and stored[name] != value
        ),
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
