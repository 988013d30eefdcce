"""Everything around the compiler, with shell scripts in nvcc's place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from autotune.compile import Cache, Pool, check, compile_one, find, nvcc
from autotune.errors import ArchitectureError, CompilerError
from autotune.types import Binary, Failure, Outcome

GOOD = """
printf ELF > kernel.cubin
echo "ptxas info    : Compiling entry function 'first' for 'sm_75'"
echo "    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads"
echo "ptxas info    : Used 128 registers, used 1 barriers, 16640 bytes smem, 388 bytes cmem[0]"
echo "ptxas info    : Compiling entry function 'second' for 'sm_75'"
echo "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
echo "ptxas info    : Used 16 registers, used 0 barriers, 388 bytes cmem[0]"
"""
HANG = "echo $$ >> '{calls}.pids'; sleep 1000 & echo $! >> '{calls}.pids'; wait"


class FakeNvcc:
    """A script that answers for CUDA 13.0 and counts how often it is asked to compile."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "nvcc"
        self.calls = folder / "calls"

    def does(self, body: str) -> FakeNvcc:
        body = body.replace("{calls}", str(self.calls))
        self.path.write_text(
            "#!/bin/sh\n"
            'case "$1" in\n'
            '--version) echo "Cuda compilation tools, release 13.0, V13.0.88"; exit;;\n'
            "--list-gpu-code) printf 'sm_75\\nsm_80\\nsm_90\\n'; exit;;\n"
            "esac\n"
            f"echo call >> '{self.calls}'\n{body}\n"
        )
        self.path.chmod(0o755)
        return self

    @property
    def count(self) -> int:
        return len(self.calls.read_text().split()) if self.calls.exists() else 0

    @property
    def processes(self) -> list[int]:
        pids = Path(f"{self.calls}.pids")
        return [int(word) for word in pids.read_text().split()] if pids.exists() else []


@pytest.fixture
def odd_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "dir with space" / "é"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def fake(odd_folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvcc:
    fake = FakeNvcc(odd_folder)
    monkeypatch.setenv("AUTOTUNE_NVCC", str(fake.path))
    monkeypatch.setenv("AUTOTUNE_COMPILER", "nvcc")
    return fake


@pytest.fixture
def temporary(odd_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = odd_folder / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def cache(odd_folder: Path) -> Cache:
    return Cache(odd_folder / "kernels")


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"  # its new parent has not asked yet


def wait_until(condition: Callable[[], bool], limit_s: float = 10.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def failure(result: Binary | Failure) -> Failure:
    assert isinstance(result, Failure)
    return result


def binary(result: Binary | Failure) -> Binary:
    assert isinstance(result, Binary), result
    return result


def test_the_program_describes_itself(fake: FakeNvcc) -> None:
    fake.does("exit 1")
    compiler = find()
    assert compiler.label == "nvcc 13.0.88"
    assert compiler.version == (13, 0)
    assert compiler.archs == {75, 80, 90}
    assert compiler.path == str(fake.path)


def test_an_architecture_it_does_not_know_is_refused_before_compiling(fake: FakeNvcc) -> None:
    fake.does("echo \"nvcc fatal   : Unsupported gpu architecture 'sm_89'\"; exit 1")
    says = r"nvcc 13\.0\.88 .*sm_89.*75, 80, 90.*newer CUDA too"
    with pytest.raises(ArchitectureError, match=says):
        check(find(), 89)
    assert fake.count == 0


def test_resources_of_all_kernels(fake: FakeNvcc, cache: Cache, temporary: Path) -> None:
    fake.does(GOOD)
    result = binary(compile_one("source", 75, cache=cache))
    assert (result.arch, result.compiler, result.cubin) == (75, "nvcc 13.0.88", b"ELF")
    assert (result.registers, result.static_shared_bytes) == (128, 16640)
    assert (result.spill_bytes, result.stack_bytes) == (16, 8)
    assert "'second'" in result.log


def test_what_nvcc_is_asked(fake: FakeNvcc, cache: Cache, temporary: Path) -> None:
    fake.does('echo "$@"; echo "$TMPDIR"; cat kernel.cu; printf ELF > kernel.cubin')
    log = binary(
        compile_one("// é", 90, cache=cache, target="sm_90a", options=("--maxrregcount=64",))
    ).log
    assert "--gpu-architecture=sm_90a --std=c++17 --ptxas-options=-v --maxrregcount=64" in log
    assert str(temporary) in log
    assert "// é" in log


def test_identical_second_run_calls_no_compiler(
    fake: FakeNvcc, cache: Cache, temporary: Path
) -> None:
    fake.does(GOOD + "grep -q BAD kernel.cu && { echo 'error: BAD'; exit 1; }; exit 0")
    results = []
    for _ in range(2):
        with Pool(cache=cache, jobs=2) as pool:
            futures = [pool.submit(f"kernel {i}", 75) for i in range(3)]
            futures.append(pool.submit("BAD", 75))
            results.append([future.result() for future in futures])
        assert fake.count == 4
    assert results[0] == results[1]
    assert (pool.compiles, pool.cache_hits) == (0, 4)
    with Pool(cache=cache, jobs=2) as pool:
        pool.submit("kernel 0", 75).result()
        pool.submit("kernel 0", 80).result()
        pool.submit("kernel 0", 75, options=("--maxrregcount=64",)).result()
        pool.submit("kernel 3", 75).result()
    assert fake.count == 7


def test_another_version_compiles_again(fake: FakeNvcc, cache: Cache, temporary: Path) -> None:
    fake.does(GOOD)
    compile_one("source", 75, cache=cache)
    fake.path.write_text(fake.path.read_text().replace("V13.0.88", "V13.0.90"))
    assert binary(compile_one("source", 75, cache=cache)).compiler == "nvcc 13.0.90"
    assert fake.count == 2


def test_output_that_is_not_utf8(fake: FakeNvcc, cache: Cache, temporary: Path) -> None:
    fake.does(r"printf 'kernel.cu(1): error: \270\377\n'; exit 1")
    for _ in range(2):
        result = failure(compile_one("x", 75, cache=cache))
        assert result.outcome is Outcome.compile_error
        assert result.message == "nvcc 13.0.88 for sm_75: kernel.cu(1): error: \ufffd\ufffd"
        assert result.log == "kernel.cu(1): error: \ufffd\ufffd"
    assert fake.count == 1, "an error of the source is a result like any other"


def test_failing_compiles_leave_nothing_behind(
    fake: FakeNvcc, cache: Cache, temporary: Path
) -> None:
    fake.does('touch "$TMPDIR/tmpxft_1"; echo "error: no"; exit 1')
    with Pool(cache=cache, jobs=2) as pool:
        for future in [pool.submit(f"bad {i}", 75) for i in range(8)]:
            assert failure(future.result()).outcome is Outcome.compile_error
    assert fake.count == 8
    assert list(temporary.iterdir()) == []


def test_a_stuck_compile_ends_and_the_others_go_on(
    fake: FakeNvcc, cache: Cache, temporary: Path
) -> None:
    fake.does(f"grep -q STUCK kernel.cu && {{ {HANG}; }}\n" + GOOD)
    with Pool(cache=cache, jobs=2) as pool:
        pool.submit("warm up", 75).result()
        started = time.monotonic()
        stuck = pool.submit("STUCK", 75, timeout_s=0.5)
        others = [pool.submit(f"good {i}", 75) for i in range(6)]
        result = failure(stuck.result())
        assert 0.5 <= time.monotonic() - started < 1.5
        assert result.outcome is Outcome.compile_timeout
        assert "0.5 s" in result.message
        assert len(fake.processes) == 2
        wait_until(lambda: all(is_gone(pid) for pid in fake.processes), limit_s=0.5)
        assert [binary(other.result()).registers for other in others] == [128] * 6
        calls = fake.count
        assert failure(pool.submit("STUCK", 75, timeout_s=0.1).result()).outcome == (
            Outcome.compile_timeout
        )
        assert fake.count == calls + 1, "a slow machine must not condemn a source for ever"
    assert list(temporary.iterdir()) == []


def test_killed_once_is_tried_again(fake: FakeNvcc, cache: Cache, temporary: Path) -> None:
    fake.does("[ -e '{calls}.marker' ] || { touch '{calls}.marker'; kill -9 $$; }\n" + GOOD)
    assert binary(compile_one("source", 75, cache=cache)).registers == 128
    assert fake.count == 2


@pytest.mark.parametrize(
    "body", ["kill -9 $$", "echo \"nvcc error   : 'cicc' died due to signal 9\"; exit 9"]
)
def test_killed_twice_is_a_failure_that_names_the_signal(
    fake: FakeNvcc, cache: Cache, temporary: Path, body: str
) -> None:
    fake.does(body)
    for calls in (2, 4):  # not cached: it says nothing about the source
        result = failure(compile_one("source", 75, cache=cache))
        assert result.outcome is Outcome.crash
        assert "twice killed by SIGKILL" in result.message
        assert fake.count == calls


def test_the_second_attempt_has_the_machine_for_itself(
    fake: FakeNvcc, cache: Cache, temporary: Path
) -> None:
    fake.does(
        "echo start >> '{calls}.order'; sleep 0.1\n"
        "grep -q HUNGRY kernel.cu && [ ! -e '{calls}.marker' ] && {\n"
        "  touch '{calls}.marker'; echo end >> '{calls}.order'; kill -9 $$; }\n"
        "grep -q HUNGRY kernel.cu && echo alone >> '{calls}.order'\n"
        "sleep 0.1; echo end >> '{calls}.order'\n" + GOOD
    )
    with Pool(cache=cache, jobs=3) as pool:
        futures = [pool.submit(source, 75) for source in ("HUNGRY", *"abcdefg")]
        assert all(isinstance(future.result(), Binary) for future in futures)
    order = Path(f"{fake.calls}.order").read_text().split()
    alone = order.index("alone")
    assert order[: alone - 1].count("start") == order[: alone - 1].count("end")
    assert order[alone - 1 : alone + 2] == ["start", "alone", "end"]


def test_workers_ignore_an_interrupt(fake: FakeNvcc, cache: Cache, temporary: Path) -> None:
    fake.does("kill -INT $PPID; sleep 0.1\n" + GOOD)
    assert binary(compile_one("source", 75, cache=cache)).registers == 128
    assert fake.count == 1


def test_closing_ends_everything_within_a_second(
    fake: FakeNvcc, cache: Cache, temporary: Path
) -> None:
    fake.does(HANG)
    with Pool(cache=cache, jobs=2) as pool:
        futures = [pool.submit(f"stuck {i}", 75, timeout_s=None) for i in range(10)]
        wait_until(lambda: len(fake.processes) == 4)
        started = time.monotonic()
    assert time.monotonic() - started < 1.0
    for future in futures:
        with pytest.raises(CancelledError):
            future.result(timeout=0)
    wait_until(lambda: all(is_gone(pid) for pid in fake.processes), limit_s=0.5)
    assert list(temporary.iterdir()) == []
    assert list(cache.folder.rglob("*")) == []


def test_closing_without_cancel_waits(fake: FakeNvcc, cache: Cache, temporary: Path) -> None:
    fake.does(GOOD)
    pool = Pool(cache=cache, jobs=1)
    futures = [pool.submit(f"kernel {i}", 75) for i in range(3)]
    pool.close(cancel=False)
    assert [binary(future.result(timeout=0)).registers for future in futures] == [128] * 3


CALLER = """
import sys
from pathlib import Path
from autotune.compile import Cache, Pool
print("once", flush=True)
pool = Pool(cache=Cache(Path(sys.argv[1])), jobs=2)
for i in range(4):
    pool.submit(f"stuck {i}", 75, timeout_s=None)
sys.stdin.read()
"""


def test_nothing_survives_a_killed_parent(fake: FakeNvcc, cache: Cache, temporary: Path) -> None:
    fake.does("echo $PPID >> '{calls}.pids'; " + HANG)
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER, str(cache.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    with caller:
        wait_until(lambda: len(fake.processes) == 6)
        os.kill(caller.pid, signal.SIGKILL)
        assert caller.stdout is not None
        # A worker that ran the caller's script would print as well, and hold the pipe open.
        assert caller.stdout.read() == b"once\n"
    wait_until(lambda: all(is_gone(pid) for pid in fake.processes), limit_s=2.0)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "gcc: No such file or directory\nnvcc fatal   : Failed to preprocess host compiler proper",
        "sh: 1: cc1plus: not found",
        "error: -- unsupported GNU version! gcc versions later than 15 are not supported!",
    ],
)
def test_no_host_compiler_is_said_and_is_no_fault_of_the_source(
    fake: FakeNvcc, cache: Cache, temporary: Path, text: str
) -> None:
    fake.does(f"echo '{text}'; exit 1")
    with pytest.raises(CompilerError, match=r"no host compiler.*g\+\+.*--compiler nvrtc"):
        compile_one("source", 75, cache=cache)
    assert list(cache.folder.rglob("*.json")) == []


def test_a_full_temporary_folder_is_said(fake: FakeNvcc, cache: Cache, temporary: Path) -> None:
    fake.does("echo 'fatal error: error writing to x.ii: No space left on device'; exit 1")
    with pytest.raises(CompilerError, match=r"no space left for temporary files.*TMPDIR"):
        compile_one("source", 75, cache=cache)


def test_a_temporary_folder_that_cannot_be_written_is_said(
    fake: FakeNvcc, cache: Cache, odd_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(odd_folder / "absent"))
    fake.does(GOOD)
    with pytest.raises(CompilerError, match="TMPDIR"):
        compile_one("source", 75, cache=cache)


def test_no_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcc, "_USUAL", tmp_path / "usual" / "nvcc")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("AUTOTUNE_NVCC", raising=False)
    with pytest.raises(CompilerError, match=r"no nvcc .*install a CUDA toolkit.*--compiler nvrtc"):
        find("nvcc")
    (tmp_path / "nvcc").write_text("not a program")
    with pytest.raises(CompilerError, match="no nvcc"):
        find("nvcc")
    monkeypatch.setenv("AUTOTUNE_NVCC", "/nowhere/nvcc")
    with pytest.raises(CompilerError, match="AUTOTUNE_NVCC=/nowhere/nvcc"):
        find("nvcc")


def test_nvcc_is_found_in_path_and_then_in_the_usual_folder(
    fake: FakeNvcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.does("")
    monkeypatch.delenv("AUTOTUNE_NVCC")
    monkeypatch.setenv("PATH", f"/nowhere:{fake.path.parent}:{os.environ['PATH']}")
    assert find("nvcc").path == str(fake.path)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(nvcc, "_USUAL", fake.path)
    assert find("nvcc").path == str(fake.path)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo hello", "does not name a CUDA release.*hello"),
        ("echo 'libx.so: fatal'; exit 1", "--version failed .*libx.so: fatal"),
    ],
)
def test_a_program_that_is_no_nvcc(fake: FakeNvcc, script: str, says: str) -> None:
    fake.path.write_text(f"#!/bin/sh\n{script}\n")
    fake.path.chmod(0o755)
    with pytest.raises(CompilerError, match=says):
        find()


def test_a_program_that_cannot_be_started(fake: FakeNvcc) -> None:
    fake.path.write_bytes(b"\x7fELF of another machine")
    fake.path.chmod(0o755)
    with pytest.raises(CompilerError, match="does not answer"):
        find()
