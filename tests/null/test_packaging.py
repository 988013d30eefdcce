"""What is installed, what importing it costs, and what it pulls in."""

import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HEAVY = {"alembic", "cuda", "jinja2", "numpy", "optuna", "pycuda", "rich", "sqlalchemy"}


def python(program: str) -> str:
    command = [sys.executable, "-W", "error", "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def loaded(program: str) -> set[str]:
    """Those of `HEAVY` that a program has loaded when it ends."""
    program += "\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
    return HEAVY & set(json.loads(python(program).splitlines()[-1]))


def test_importing_the_package_is_quick_and_loads_nothing() -> None:
    program = (
        "import time; start = time.process_time(); import autotune; "
        "print(time.process_time() - start)"
    )
    assert min(float(python(program)) for _ in range(3)) < 0.1
    assert loaded("import autotune") == set()


def test_looking_up_loads_no_template_engine_sampler_driver_or_database_toolkit(
    tmp_path: Path,
) -> None:
    program = f"""
import autotune
answer = autotune.lookup(64, 64, 64, arch=75, store={str(tmp_path / "no.db")!r})
assert answer.match is autotune.Match.arch_default
"""
    assert loaded(program) & (HEAVY - {"numpy"}) == set()


def test_help_needs_nothing_heavy() -> None:
    program = """
import contextlib, io, sys
from autotune.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    main(["search", "--help"], standalone_mode=False)
"""
    assert loaded(program) == set()


@pytest.mark.parametrize(
    "before",
    ["", "import autotune.lookup, autotune.search", "from autotune.search import Budget",
     "autotune.search; autotune.lookup; import autotune.search, autotune.lookup"],
)  # fmt: skip
def test_functions_are_not_hidden_by_the_modules_of_their_name(before: str) -> None:
    program = f"""
import autotune
{before}
import inspect
print(inspect.isfunction(autotune.search), inspect.isfunction(autotune.lookup),
      autotune.search.__module__, autotune.lookup.__module__)
"""
    assert python(program).split() == ["True", "True", "autotune.api", "autotune.lookup"]


def test_every_public_name_can_be_imported() -> None:
    program = """
import autotune
for name in autotune.__all__:
    assert getattr(autotune, name) is not None, name
assert set(autotune.__all__) <= set(dir(autotune))
try:
    autotune.frobnicate
except AttributeError as error:
    print(error)
"""
    assert python(program) == "module 'autotune' has no attribute 'frobnicate'\n"


def test_the_base_package_needs_no_pycuda() -> None:
    names = " ".join(PROJECT["dependencies"])
    assert "pycuda" not in names and "cupy" not in names
    assert any(each.startswith("pycuda") for each in PROJECT["optional-dependencies"]["gpu"])
    assert any("nvdisasm" in each for each in PROJECT["optional-dependencies"]["sass"])


def test_the_wheel_has_templates_spaces_and_migrations(tmp_path: Path) -> None:
    from hatchling.builders.wheel import WheelBuilder

    (artifact,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    names = set(zipfile.ZipFile(artifact).namelist())
    for folder in ("templates", "search_spaces", "db"):
        for file in (ROOT / folder).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                assert f"autotune/{file.relative_to(ROOT)}" in names
    assert {"autotune/py.typed", "autotune/cli/search.py"} <= names
    assert not {name.split("/")[0] for name in names} & {"tests", "templates", "db", "docs"}


def test_as_a_module_it_is_the_same_program() -> None:
    import autotune

    done = subprocess.run(
        [sys.executable, "-m", "autotune", "--version"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, f"autotune {autotune.__version__}\n")
