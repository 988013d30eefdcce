"""What near answers lose: every tuned problem looked up as if it had never been tuned.

    python benchmarks/leave_one_out.py --db tuned.db --out leave_one_out.json
    python benchmarks/leave_one_out.py --db tuned.db --out leave_one_out.json --measure
    python benchmarks/leave_one_out.py --db tuned.db --out ... --fit db/near_loss.json
    python benchmarks/leave_one_out.py --pairs leave_one_out.json --out ... --quantile 0.9

The config of the answer is compared with the problem's own best: by the trials in the store where
the search tried it there too, with --measure by timing both in turns on the GPU that is here. --fit
writes the expected loss that look-ups state: a line over the distance that covers the wanted share
of the cases. --pairs takes the losses that an earlier run measured.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from autotune import archs, assets, nearness, query, seed
from autotune.bench import Stand, Wishes
from autotune.lookup import Answer, answer
from autotune.store import Store
from autotune.types import Config, Device, Evidence, Problem

QUANTILE = 0.85
"""More than the 0.8 that have to be covered: of the cases that a line was not fitted to, it covers
fewer."""

Line = Mapping[str, Any]
MEASURED_CONFIGS = """
SELECT results.config_sha256, results.stage, median_ns FROM results
WHERE results.problem = '{problem}' AND arch = {arch} AND sm_count = {sm_count}
    AND provider = 'generated' AND outcome = 'ok' AND evidence = 'measured'
ORDER BY results.id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A problem and the answer that was not tuned for it.

    Attributes:
        loss: 1 - time of the best / time of the answer's config; None where it was not timed.
        stated: What the answer expected to lose.
    """

    problem: str
    match: str
    known: str
    distance: float | None
    stated: float | None
    loss: float | None
    same_config: bool


def left_out(lines: Sequence[Line], place: int, device: Device, empty: Path) -> Answer:
    """The answer for a line's problem from all the others."""
    with tempfile.TemporaryDirectory() as folder:
        others = [line for number, line in enumerate(lines) if number != place]
        seed.write(Path(folder), others)
        return answer(
            seed.problem(lines[place]), device=device, store=empty, seed_folder=Path(folder)
        )


def recorded(db: str, line: Line) -> dict[tuple[str, str], float]:
    """Times of a problem on its device by config digest and stage; the last one counts."""
    rows = query.ask(MEASURED_CONFIGS.format(**line), db)[1]
    return {(config, stage): time_ns for config, stage, time_ns in rows}


def loss_in_store(db: str, line: Line, config: Config) -> float | None:
    """By times of the same stage; None where the store has none."""
    times = recorded(db, line)
    best = Config(line["config"]).sha256
    for stage in ("confirm", "search"):
        if (config.sha256, stage) in times and (best, stage) in times:
            return 1 - times[best, stage] / times[config.sha256, stage]
    return None


def loss_on_device(stand: Stand, problem: Problem, best: Config, config: Config) -> float | None:
    """Both timed in turns; None where one of them fails."""
    heat = stand.prepare(problem, {best: ("best",), config: ("near",)})
    times = {
        entry.names[0]: entry.measurement.median_ns
        for entry in stand.time(problem, heat)
        if entry.measurement.is_ok
    }
    if not (times.get("best") and times.get("near")):
        return None
    return 1 - float(times["best"]) / float(times["near"])  # type: ignore[arg-type]


def pairs(
    options: argparse.Namespace, lines: Sequence[Line], stand: Stand | None
) -> Iterator[Pair]:
    """One for each line, as it is known."""
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "empty.db"
        Store.open(empty).close()
        for place, line in enumerate(lines):
            device = replace(
                archs.get(line["arch"]).typical,
                name=line["device"],
                sm_count=line["sm_count"],
                memory_bytes=line["memory_bytes"],
            )
            found = left_out(lines, place, stand.device if stand else device, empty)
            best = Config(line["config"])
            loss = None
            if found.config == best:
                loss = 0.0
            elif found.config is not None and stand is not None:
                loss = loss_on_device(stand, seed.problem(line), best, found.config)
            elif found.config is not None:
                loss = loss_in_store(options.db, line, found.config)
            pair = Pair(
                problem=line["problem"],
                match=found.match,
                known=found.problem,
                distance=found.distance,
                stated=found.expected_loss,
                loss=loss,
                same_config=found.config == best,
            )
            print(json.dumps(asdict(pair)), flush=True)
            yield pair


# *** what comes of it ***


def fitted(distances: np.ndarray, losses: np.ndarray, quantile: float) -> tuple[float, float]:
    """`least` and `per_distance` of the line that is the quantile of the losses: the pinball loss
    is smallest."""
    grid = np.round(np.arange(0, 0.5, 0.005), 4)
    least, slope = np.meshgrid(grid, grid)
    over = losses - (least[..., None] + slope[..., None] * distances)
    cost = np.where(over > 0, quantile * over, (quantile - 1) * over).mean(axis=-1)
    at = np.unravel_index(np.argmin(cost), cost.shape)
    return float(least[at]), float(slope[at])


def held_out(distances: np.ndarray, losses: np.ndarray, quantile: float) -> float:
    """Share of the cases that a line covers which was fitted on the other half of them."""
    half = np.arange(len(losses)) % 2 == 0
    covered = 0
    for part in (half, ~half):
        least, slope = fitted(distances[part], losses[part], quantile)
        covered += int((losses[~part] <= least + slope * distances[~part]).sum())
    return covered / len(losses)


def summary(found: Sequence[Pair], quantile: float) -> dict[str, Any]:
    """Medians and coverage over the pairs that have a loss; near shapes alone have a distance."""
    near = [p for p in found if p.loss is not None and p.stated is not None]
    known = np.array([p.loss for p in near])
    result: dict[str, Any] = {
        "problems": len(found),
        "matches": dict(Counter(p.match for p in found)),
        "near_with_loss": len(near),
        "near_without_loss": sum(p.loss is None and p.stated is not None for p in found),
    }
    if not near:
        return result
    stated = np.array([p.stated for p in near])
    distances = np.array([p.distance for p in near])
    result |= {
        "median_loss": round(float(np.median(known)), 4),
        "p90_loss": round(float(np.quantile(known, 0.9)), 4),
        "covered_by_stated": round(float((known <= stated).mean()), 4),
        "quantile": quantile,
    }
    if len(near) >= 10:
        least, slope = fitted(distances, known, quantile)
        result |= {
            "least": least,
            "per_distance": slope,
            "covered_held_out": round(held_out(distances, known, quantile), 4),
        }
    return result


def made(options: argparse.Namespace) -> tuple[dict[str, Any], list[Pair]]:
    """Where the losses come from, and the pairs."""
    lines = [line for line in seed.of_store(options.db) if line["evidence"] == Evidence.measured]
    if options.arch:
        lines = [line for line in lines if line["arch"] == archs.parse(options.arch)]
    lines.sort(key=lambda line: str(line["problem"]))
    with ExitStack() as stack:
        stand = None
        if options.measure:
            wishes = Wishes(rounds=options.rounds, with_vendor=False)
            stand = stack.enter_context(Stand(wishes, on_wait=print))
            lines = [line for line in lines if line["sm_count"] == stand.device.sm_count]
        if not lines:
            raise SystemExit(f"{options.db} has no measured best that could be left out")
        found = list(pairs(options, lines, stand))
    provenance: dict[str, Any] = {
        name: sorted({str(line[name]) for line in lines})
        for name in ("device", "driver", "compiler", "template_sha256", "autotune_version")
    }
    provenance |= {
        "timed": "in turns, on this device" if options.measure else "trials in the store",
        "commit": options.commit or assets.revision() or "unknown",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return provenance, found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = parser.add_mutually_exclusive_group(required=True)
    known.add_argument("--db", help="store of tuned problems")
    known.add_argument("--pairs", type=Path, help="file of an earlier run")
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--arch", default=None, help="only this architecture")
    parser.add_argument("--measure", action="store_true", help="time both configs on the GPU here")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quantile", type=float, default=QUANTILE, help="share of cases to cover")
    parser.add_argument("--commit", help="commit that runs, where git cannot tell")
    parser.add_argument("--fit", type=Path, help=f"file to write, as db/{nearness.LOSS_FILE}")
    options = parser.parse_args(arguments)
    if options.pairs:
        text = json.loads(options.pairs.read_text())
        provenance, found = text["provenance"], [Pair(**pair) for pair in text["pairs"]]
    else:
        provenance, found = made(options)
    result = summary(found, options.quantile)
    text = {"provenance": provenance, "summary": result, "pairs": [asdict(p) for p in found]}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(text, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    if options.fit:
        if "least" not in result:
            raise SystemExit("fewer than 10 pairs have a loss: too few to fit a line")
        table = {
            "quantile": options.quantile,
            "least": result["least"],
            "per_distance": result["per_distance"],
            "pairs": result["near_with_loss"],
            "device": ", ".join(provenance["device"]),
            "date": provenance["date"],
            "commit": provenance["commit"],
        }
        nearness.parse_loss(table)
        options.fit.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
