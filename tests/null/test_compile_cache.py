"""The cache: what it returns, and what it never returns."""

from __future__ import annotations

import errno
import json
import logging
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.compile import Cache
from autotune.compile.job import Compiler, Job
from autotune.types import Binary, Failure, Outcome

KEY = "ab" + "0" * 62
NVRTC = Compiler("nvrtc", (13, 5), "13.5.37", frozenset({75, 80}))
BINARY = Binary(
    arch=75,
    compiler="nvrtc 13.5.37",
    cubin=bytes(range(256)) * 8,
    registers=127,
    static_shared_bytes=16640,
    spill_bytes=0,
    stack_bytes=0,
    log="ptxas info: é \ufffd",
    compile_seconds=0.25,
)
FAILURE = Failure(outcome=Outcome.compile_error, message="no", log="error: no")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "dir with space" / "é")


def files(cache: Cache) -> dict[str, Path]:
    return {path.suffix: path for path in cache.folder.rglob("*") if path.is_file()}


def test_binaries_and_failures_come_back_as_they_were(cache: Cache) -> None:
    assert cache.load(KEY) is None
    cache.store(KEY, "source é", BINARY)
    cache.store("cd" + KEY, "source", FAILURE)
    again = Cache(cache.folder)
    assert again.load(KEY) == BINARY
    assert again.load("cd" + KEY) == FAILURE
    assert (cache.folder / "ab" / f"{KEY}.cu").read_text() == "source é"
    assert len(list(cache.folder.rglob("*.*"))) == 5, "no temporary file stays"


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def fewer_registers(path: Path) -> None:
    path.write_text(path.read_text().replace("127", "126"))


def not_an_object(path: Path) -> None:
    path.write_text("[]")


def unknown_field(path: Path) -> None:
    document = json.loads(path.read_text())
    document["result"]["surprise"] = 1
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        (".cubin", truncate),
        (".cubin", empty),
        (".cubin", flip),
        (".cubin", Path.unlink),
        (".json", truncate),
        (".json", empty),
        (".json", flip),
        (".json", fewer_registers),
        (".json", not_an_object),
        (".json", unknown_field),
    ],
)
def test_a_damaged_entry_is_dropped_with_one_line(
    cache: Cache, caplog: pytest.LogCaptureFixture, suffix: str, damage: object
) -> None:
    cache.store(KEY, "source", BINARY)
    assert callable(damage)
    damage(files(cache)[suffix])
    assert cache.load(KEY) is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert KEY in caplog.text
    assert cache.load(KEY) is None
    assert len(caplog.records) == 1
    cache.store(KEY, "source", BINARY)
    assert cache.load(KEY) == BINARY


def test_an_entry_under_another_name_is_not_served(cache: Cache) -> None:
    cache.store(KEY, "source", FAILURE)
    (entry,) = cache.folder.rglob("*.json")
    other = KEY[:-1] + "1"
    entry.rename(entry.with_name(f"{other}.json"))
    assert cache.load(other) is None


def test_drop(cache: Cache) -> None:
    cache.drop(KEY)
    cache.store(KEY, "source", BINARY)
    cache.drop(KEY)
    assert cache.load(KEY) is None


def test_a_folder_that_cannot_be_made_costs_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "kernels")
    for key in (KEY, "cd" + KEY):
        cache.store(key, "source", BINARY)
        assert cache.load(key) is None
        cache.drop(key)
    assert len(caplog.records) == 1
    assert str(cache.folder) in caplog.text
    assert "Not a directory" in caplog.text
    assert "AUTOTUNE_CACHE_DIR" in caplog.text


def test_a_full_disk_is_said_and_leaves_no_half_file(
    cache: Cache, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    cache.store(KEY, "source", BINARY)
    monkeypatch.setattr(Path, "replace", full)
    cache.store("cd" + KEY, "source", BINARY)
    assert "No space left on device" in caplog.text
    assert list((cache.folder / "cd").iterdir()) == []
    assert cache.load(KEY) == BINARY, "reading goes on"


def test_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "mine"))
    cache = Cache()
    assert cache.folder == tmp_path / "mine" / "kernels"
    cache.store(KEY, "source", BINARY)
    assert cache.load(KEY) == BINARY


def test_two_writers_never_give_a_mixture(cache: Cache) -> None:
    """Two processes that compile the same key: the same cubin, other times in the log."""
    results = [
        replace(BINARY, cubin=BINARY.cubin * 100, compile_seconds=seconds) for seconds in (0.1, 0.2)
    ]
    cache.store(KEY, "source", results[0])
    stop = threading.Event()

    def write(result: Binary) -> None:
        own = Cache(cache.folder)
        while not stop.is_set():
            own.store(KEY, "source", result)

    writers = [threading.Thread(target=write, args=(result,)) for result in results]
    for writer in writers:
        writer.start()
    try:
        seen = [cache.load(KEY) for _ in range(300)]
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert all(result in results for result in seen)


def test_another_binary_in_the_middle_of_an_entry_is_not_served(cache: Cache) -> None:
    cache.store(KEY, "source", BINARY)
    text = files(cache)[".json"].read_bytes()
    cache.store(KEY, "source", replace(BINARY, cubin=BINARY.cubin[::-1]))
    files(cache)[".json"].write_bytes(text)
    assert cache.load(KEY) is None


def test_everything_that_changes_the_binary_changes_the_key() -> None:
    job = Job(source="x", arch=75)
    assert job.key(NVRTC) == Job(source="x", arch=75).key(NVRTC)
    keys = {
        job.key(NVRTC),
        Job(source="y", arch=75).key(NVRTC),
        Job(source="x", arch=80).key(NVRTC),
        Job(source="x", arch=75, target="compute_75").key(NVRTC),
        Job(source="x", arch=75, options=("--maxrregcount=64",)).key(NVRTC),
        job.key(replace(NVRTC, build="13.5.38")),
        job.key(replace(NVRTC, kind="nvcc")),
    }
    assert len(keys) == 7
    assert all(len(key) == 64 for key in keys)
