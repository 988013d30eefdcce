"""Searches that are killed with SIGKILL at random moments, twenty in all, and taken up again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_NURSERY = """
import json, os, random, signal, sys, time
from dataclasses import replace
from pathlib import Path

folder, kind, kills = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
sys.path[:0] = sys.argv[4:]

import fake_search
from fake_door import DEVICE, FakeDoor
from autotune.search import Budget, Tried, batch, prior, search
from autotune.store import Store

fake_search.install(fake_search.FakePool(), setattr)
prior.SAMPLES, prior.GENERATIONS = 400, 0
if kind == "predict":
    batch.target = lambda arch, name, door: (replace(DEVICE, index=-1), "no driver")
place, said = folder / "r.db", folder / "said"
said.touch()


def look(trials):
    def say(event):
        if isinstance(event, Tried):
            with said.open("a") as file:
                file.write(event.config.sha256 + "\\n")
    return search([fake_search.PROBLEM], arch=75, budget=Budget(trials=trials), store=place,
                  door=FakeDoor, listener=say)


def announced():
    return said.read_text().splitlines()


def stored():
    with Store.open(place) as store:
        return [row["config_sha256"] for row in store.results(stage=kind, sort="id")]


chance = random.Random(kind)
report = []
for turn in range(kills):
    before = len(announced())
    child = os.fork()
    if child == 0:
        look(300)
        os._exit(0)
    # After so many trials and a little more; sometimes before the first.
    wanted, extra_s = chance.choice((0, 1, 2, 3, 5, 8)), chance.uniform(0.0, 0.05)
    deadline = time.monotonic() + 60
    while len(announced()) < before + wanted and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(extra_s if wanted else chance.uniform(0.0, 0.4))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    report.append({"announced": announced(), "stored": stored() if place.exists() else []})
(last,) = look(len(stored()) + 4)
with Store.open(place) as store:
    statuses = [run["status"] for run in store.runs(sort="id")]
print(json.dumps({"turns": report, "announced": announced(), "stored": stored(),
                  "status": last.status, "statuses": statuses}))
"""


@pytest.mark.parametrize(("kind", "kills"), [("predict", 14), ("search", 6)])
def test_a_kill_at_any_moment_loses_only_what_was_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, kills: int
) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    words = [str(tmp_path), kind, str(kills), str(Path(__file__).parent)]
    done = subprocess.run(
        [sys.executable, "-c", _NURSERY, *words], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["turns"]) == kills
    for turn in [*found["turns"], found]:
        stored, announced = turn["stored"], turn["announced"]
        assert len(set(stored)) == len(stored), "no stored row is repeated"
        # A trial is announced once it is stored; each kill may fall between the two.
        assert set(announced) <= set(stored)
        assert len(stored) <= len(announced) + kills
    assert len(found["stored"]) > kills, "the search came on between the kills"
    assert len(found["stored"]) == len(found["turns"][-1]["stored"]) + 4
    assert found["status"] == "finished"
    assert found["statuses"][-1] == "finished"
    assert set(found["statuses"][:-1]) <= {"interrupted"}, "killed runs are recognised as such"
