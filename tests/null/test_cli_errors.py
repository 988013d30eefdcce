"""Bad input: one clear message on stderr, the designed exit code, nothing on stdout."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from autotune import device, problems, settings
from autotune.cli import app, main
from autotune.errors import DeviceError


def run(*args: str) -> Result:
    return CliRunner().invoke(main, args)


def spawn(*args: str, **settings) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "autotune", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **settings)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("0x5x5", "m = 0 is out of range; it must be 1 to 2147482624"),
        ("-1x2x3", "'-1x2x3' is not a shape; write MxNxK"),
        ("2048", "'2048' is not a shape; write MxNxK"),
        ("12x", "'12x' is not a shape; write MxNxK"),
        ("axbxc", "'axbxc' is not a shape; write MxNxK"),
        ("1e10x1x1", "m = 10000000000 is out of range"),
        ("1e999x1x1", "'1e999x1x1' is not a shape"),
    ],
)
def test_shapes_that_are_none(shape: str, message: str) -> None:
    result = run("search", "--arch", "75", "--shape", shape)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_a_power_of_ten_is_a_size() -> None:
    assert problems.parse("1e3x2x20").shape == "1000x2x20"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arch", "74"], "sm_74 is not known; possible are 50, 52, 53, 60"),
        (["--arch", "banana"], "'banana' is not an architecture; possible are"),
        (["--trials", "0"], "0 is not in the range x>=1"),
        (["--trials", "-3"], "-3 is not in the range x>=1"),
        (["--budget", "soon"], "'soon' is not a duration above zero; write for example 90s, 10m"),
        (["--budget", "0s"], "'0s' is not a duration above zero"),
        (["--budget", "-5m"], "'-5m' is not a duration above zero"),
        (["--effort", "heroic"], "'heroic' is not one of 'quick', 'normal', 'thorough'"),
        (["--batch", "0"], "0 is not in the range x>=1"),
        (["--layout", "xy"], "'xy' is not one of 'nn', 'nt', 'tn', 'tt'"),
        (["--shapes", "missing.txt"], "cannot read the shapes in missing.txt: No such file"),
        (["--space", "missing.toml"], "cannot read the search space missing.toml: No such file"),
        (["--log-file", "/missing/x.log"], "cannot write the log file /missing/x.log: No such"),
        (["--frobnicate"], "No such option '--frobnicate'"),
    ],
)
def test_options_that_make_no_sense(arguments: list[str], message: str) -> None:
    result = run("search", *(() if "--arch" in arguments else ("--arch", "75")), *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('rule = "k_unroll * k_slices <= block_k"', 'rule = "k_unrol * k_slices <= block_k"'),
         "constraint 'unrolling' uses the unknown name 'k_unrol'"),
        (('rule = "k_unroll * k_slices <= block_k"', 'rule = "k_unroll.__class__ == 1"'),
         "__class__"),
        (('rule = "k_unroll * k_slices <= block_k"', 'rule = "k_unroll // (k_slices - k_slices)"'),
         "divides by zero"),
        (("values = [8, 16, 32]", "values = []"), "the space is empty"),
        (("kernel = ", "kernel "), "is not TOML"),
    ],
)  # fmt: skip
def test_search_spaces_that_are_wrong(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    from autotune import assets

    text = (assets.folder("search_spaces") / "sgemm.toml").read_text()
    assert change[0] in text
    file = tmp_path / "space.toml"
    file.write_text(text.replace(*change))
    result = run("spaces", "--space", str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr and str(file) in result.stderr


def test_places_that_cannot_be_a_store(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("a shopping list")
    for place, message in (
        (tmp_path, f"results store {tmp_path} is a folder"),
        (text, f"{text} is not a results store: it is not an SQLite file"),
        ("mysql://host/db", "a results store cannot be a mysql database"),
    ):
        result = run("results", "list", "--db", str(place))
        assert (result.exit_code, result.stdout) == (1, ""), result.output
        assert message in result.stderr
    assert text.read_text() == "a shopping list"


def test_reading_never_creates_a_store(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "results.db"
    for command in (["results", "best"], ["db", "upgrade"], ["db", "export", str(tmp_path / "x")]):
        result = run(*command, "--db", str(place))
        assert result.exit_code == 3, result.output
        assert f"there is no results store at {place}; `autotune search` creates one" in (
            result.stderr
        )
    assert list(tmp_path.iterdir()) == []


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run("db", "path", "--db", "~/x/t.db").stdout == f"{tmp_path}/x/t.db\n"
    monkeypatch.chdir(tmp_path)
    assert run("db", "path", "--db", "a b?#.db").stdout == f"{tmp_path}/a b?#.db\n"
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "env.db"))
    assert run("db", "path").stdout == f"{tmp_path}/env.db\n"


@pytest.mark.parametrize("command", [["search"], ["devices"], ["lookup", "8x8x8"]])
def test_no_device_is_exit_code_4(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> list[object]:
        raise DeviceError("there is no NVIDIA driver")

    monkeypatch.setattr(device, "devices", none)
    result = run(*command)
    assert (result.exit_code, result.stdout) == (4, "")
    assert "there is no NVIDIA driver" in result.stderr


def test_devices_says_what_else_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> list[object]:
        raise DeviceError("there is no NVIDIA driver")

    monkeypatch.setattr(device, "devices", none)
    monkeypatch.setattr(device, "missing", lambda: ["there is no NVIDIA driver", "no pycuda"])
    lines = run("devices").stderr.splitlines()
    assert lines == ["Error: there is no NVIDIA driver", "no pycuda"]


@pytest.fixture
def broken() -> click.Group:
    """The command line with commands that go wrong in every way."""

    @click.group(cls=app.Commands)
    @click.pass_context
    def group(ctx: click.Context) -> None:
        app.set_up(ctx)

    @group.command()
    @app.log_options
    def bug() -> None:
        raise ValueError("three is not four")

    @group.command()
    @app.log_options
    def stop() -> None:
        raise KeyboardInterrupt

    @group.command()
    @app.log_options
    def full() -> None:
        raise OSError(28, "No space left on device", "/mnt/x")

    @group.command()
    @app.log_options
    def expected() -> None:
        raise DeviceError("no such GPU")

    return group


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("bug", 1, "Error: autotune has a fault: ValueError: three is not four; run the same "
         "command with --debug for the place, and report it\n"),
        ("stop", 130, "interrupted\n"),
        ("full", 1, "Error: [Errno 28] No space left on device: '/mnt/x'\n"),
        ("expected", 4, "Error: no such GPU\n"),
    ],
)  # fmt: skip
def test_every_exception_ends_in_one_message(
    broken: click.Group, command: str, code: int, message: str
) -> None:
    result = CliRunner().invoke(broken, [command])
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", message)


@pytest.mark.parametrize(("command", "code"), [("bug", 1), ("expected", 4)])
def test_debug_adds_the_traceback(broken: click.Group, command: str, code: int) -> None:
    result = CliRunner().invoke(broken, [command, "--debug"])
    assert result.exit_code == code
    assert result.stderr.startswith("Traceback (most recent call last):\n")
    assert f"in {command}\n" in result.stderr


def test_a_closed_pipe_ends_quietly() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "autotune", "render", "--preset", "seed-v3"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, timeout=60)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


def test_runs_under_warnings_as_errors(tmp_path: Path) -> None:
    done = spawn("render", "--preset", "seed-v3.2", "--arch", "90", "--shape", "1000x1028x1028")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("// sgemm/1000x1028x1028/nn for sm_90, generated by autotune\n")
    done = spawn("lookup", "64x64x64", "--arch", "75", "--json", "--db", str(tmp_path / "no.db"))
    assert (done.returncode, json.loads(done.stdout)["match"]) == (0, "arch_default")


@pytest.mark.parametrize("home", [None, "/nonexistent", "/proc"])
def test_lookup_works_without_a_home(home: str | None, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
    if home is not None:
        environment["HOME"] = home
    done = spawn("lookup", "64x64x64", "--arch", "75", "--json", env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["match"] == "arch_default"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["lookup", "explain"])
def test_a_shape_with_a_minus_is_a_shape_and_no_option(command: str) -> None:
    result = CliRunner().invoke(main, [command, "-1x2x3", "--arch", "75"])
    assert result.exit_code == 2
    assert "'-1x2x3' is not a shape; write MxNxK" in result.stderr


def test_jobs_must_be_a_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_JOBS", "abc")
    result = CliRunner().invoke(
        main, ["search", "--arch", "75", "--shape", "64x64x64", "--db", str(tmp_path / "r.db")]
    )
    assert result.exit_code == 2 and "AUTOTUNE_JOBS is 'abc'" in result.stderr


def test_a_cache_that_cannot_be_written_falls_back_to_a_folder_of_ones_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.delenv("AUTOTUNE_CACHE_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    foreign = tmp_path / f"autotune-{os.getuid()}"
    foreign.mkdir()
    foreign.chmod(0o777)  # as if prepared by somebody else
    settings._stopgap.cache_clear()
    folder = settings.cache_folder()
    settings._stopgap.cache_clear()
    assert folder != foreign and folder.parent == tmp_path
    assert "compiled kernels go to" in caplog.text
