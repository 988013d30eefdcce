"""The commands and programs of README and docs run on a clean machine without a GPU, and again."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clean")


def bash(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    home = folder / "home"
    home.mkdir(exist_ok=True)
    # `autotune` is the program of this interpreter, wherever it is installed.
    program = f'autotune() {{ "{sys.executable}" -W error -m autotune "$@"; }}\n'
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", program + script],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize("time", ["first", "second"])
def test_the_readme_runs(clean: Path, time: str) -> None:
    script = "\n".join(block for block in blocks("README.md", "sh") if "make " not in block)
    assert script.count("\nautotune ") + script.startswith("autotune ") >= 8
    done = bash(script, clean)
    assert done.returncode == 0, done.stderr
    assert "Nothing was timed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("page", ["README.md", "docs/api.md"])
def test_the_programs_run(clean: Path, page: str) -> None:
    programs = blocks(page, "python")
    assert programs
    for program in programs:
        (clean / "program.py").write_text(program)
        done = bash(f'"{sys.executable}" -W error program.py', clean)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()
