"""A kernel is compiled by one of all threads and processes that want it."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from autotune import archs, compile, render, settings, space
from autotune.compile import Compiler
from autotune.compile.job import Job
from autotune.errors import CompilerError
from autotune.problems.sgemm import Sgemm
from autotune.runtime import binary
from autotune.runtime.once import Once
from autotune.types import Binary, Device, Failure, Outcome, Variant

DEVICE: Device = archs.get(75).typical
COMPILER = Compiler("nvrtc", (13, 5), "13.5.37", frozenset([75]))


def variant(size: int = 64) -> Variant:
    return render.render(Sgemm(m=size, n=size, k=size), space.load("sgemm").preset("smallest"), 75)


def made(source: str, arch: int, **_: Any) -> Binary:
    return Job(source=source, arch=arch).binary(COMPILER, b"cubin", "", 0.0)


class Compiling:
    """In place of the compiler: slow enough that others come meanwhile."""

    def __init__(self) -> None:
        self.sources: list[str] = []

    def __call__(self, source: str, arch: int, *, compiler: Any, cache: Any) -> Binary | Failure:
        self.sources.append(source)
        time.sleep(0.1)
        result = made(source, arch)
        cache.store(Job(source=source, arch=arch).key(compiler), source, result)
        return result


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiling:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    found = Compiling()
    monkeypatch.setattr(compile, "find", lambda: COMPILER)
    monkeypatch.setattr(compile, "compile_one", found)
    monkeypatch.setattr(binary, "_binaries", Once())
    return found


def test_threads_compile_a_kernel_once_and_others_beside_it(
    compiling: Compiling, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "autotune")
    one, other = variant(), variant(72)
    assert one.body != other.body
    gate = threading.Barrier(6)

    def work(each: Variant) -> bytes:
        gate.wait()
        return binary.binary(each, DEVICE).cubin

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(work, [one, other] * 3)) == [b"cubin"] * 6
    assert sorted(compiling.sources) == sorted([one.body, other.body])
    lines = sorted(record.message for record in caplog.records)
    assert lines == [f"compiling a kernel for sgemm/{n}x{n}x{n}/nn on sm_75" for n in (64, 72)]


def test_what_the_cache_has_is_not_compiled(
    compiling: Compiling, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "autotune")
    binary.binary(variant(), DEVICE)
    monkeypatch.setattr(binary, "_binaries", Once())
    caplog.clear()
    # Another shape that needs the same code, too.
    for size in (64, 128):
        assert binary.binary(variant(size), DEVICE).cubin == b"cubin"
    assert len(compiling.sources) == 1 and not caplog.records


def test_a_source_that_does_not_compile(
    compiling: Compiling, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = Failure(outcome=Outcome.compile_error, message="nvrtc for sm_75: planted")
    with monkeypatch.context() as patch:
        patch.setattr(compile, "compile_one", lambda *_, **__: failure)
        with pytest.raises(CompilerError, match=r"sgemm/64x64x64/nn has no binary: .* planted"):
            binary.binary(variant(), DEVICE)
    assert binary.binary(variant(), DEVICE).cubin == b"cubin"


def test_a_cache_that_cannot_be_written(
    compiling: Compiling, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(blocked))
    assert settings.cache_folder() == blocked
    assert binary.binary(variant(), DEVICE).cubin == b"cubin"


PROGRAM = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_runtime_binary import COMPILER, DEVICE, Compiling, variant
from autotune import compile
from autotune.runtime import binary

class Noted(Compiling):
    def __call__(self, *args, **options):
        (folder / f"compiled by {{number}}").touch()
        time.sleep(0.4)
        return super().__call__(*args, **options)

folder, number = Path({folder!r}), sys.argv[1]
compile.find, compile.compile_one = lambda: COMPILER, Noted()
wanted = variant()
(folder / f"ready {{number}}").touch()
while len(list(folder.glob("ready *"))) < {count}:
    time.sleep(0.002)
print(binary.binary(wanted, DEVICE).cubin)
"""


def test_processes_compile_a_kernel_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    count = 3
    program = PROGRAM.format(tests=str(Path(__file__).parent), folder=str(tmp_path), count=count)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(number)], stdout=subprocess.PIPE, text=True
        )
        for number in range(count)
    ]
    assert [each.communicate(timeout=60)[0] for each in processes] == ["b'cubin'\n"] * count
    assert len(list(tmp_path.glob("compiled by *"))) == 1


# *** made once ***


def test_a_failure_is_not_kept_and_the_next_tries_again() -> None:
    once: Once[str, int] = Once()

    def fail() -> int:
        raise ValueError("planted")

    with pytest.raises(ValueError, match="planted"):
        once.get("a", fail)
    assert once.known("a") is None
    assert once.get("a", lambda: 1) == once.get("a", fail) == once.known("a") == 1
    once.drop("a")
    assert once.get("a", lambda: 2) == 2
