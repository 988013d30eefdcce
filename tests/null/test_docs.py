"""The documents say what the program is: every command, option, variable, extra and room."""

import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import autotune
from autotune import api, errors, settings
from autotune.cli import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = runpy.run_path(str(ROOT / "docs" / "commands.py"))
EVERY = list(COMMANDS["commands"]())
NAMES = [name for name, *_ in EVERY]


def rows(page: str) -> list[list[str]]:
    """Cells of every table row of a page, headings included."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_variable_is_in_docs_env() -> None:
    table = rows((ROOT / "docs" / "env.md").read_text())[1:]
    assert {row[0].strip("`"): row[1] for row in table} == settings.VARIABLES


def test_the_reference_of_commands_is_current() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    assert page == COMMANDS["page"](), "run `make docs`"
    for name in NAMES:
        assert f"\n## {name}\n" in page


def test_every_command_group_is_in_the_readme() -> None:
    groups = {name.split()[1] for name in NAMES if " " in name}
    assert {"search", "lookup", "results", "devices", "spaces", "render", "db"} <= groups
    for group in groups:
        assert f"autotune {group}" in README


@pytest.mark.parametrize(("name", "command"), [each[:2] for each in EVERY], ids=NAMES)
def test_every_command_has_help_with_an_example_and_options_with_a_meaning(
    name: str, command: click.Command
) -> None:
    assert command.help
    assert "Example:\n" in command.help.replace("\b", "")
    example = command.help.split("Example:")[1]
    assert name.split()[0] in example and name in example
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.name}"


def typed(page: Path) -> Iterator[list[str]]:
    """Every `autotune ...` command of a page: in blocks, and in the examples of help texts."""
    for line in page.read_text().splitlines():
        words = line.split("#")[0].split("|")[0].split("&&")[0].strip()
        if words.startswith("autotune ") and "..." not in words:
            yield shlex.split(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_the_documents_is_one(page: Path) -> None:
    for words in typed(page):
        command: click.Command = main
        context = main.make_context("autotune", words[1:])
        rest = words[1:]
        while isinstance(command, click.Group):
            _, found, rest = command.resolve_command(context, rest)
            assert found is not None
            command = found
        if rest != ["--help"]:
            command.make_context(words[-1], list(rest), parent=context)
        context.close()


def test_the_readme_has_commands_to_check() -> None:
    assert len(list(typed(ROOT / "README.md"))) >= 8


def test_exit_codes_are_those_of_the_errors() -> None:
    classes = [each for each in vars(errors).values() if isinstance(each, type)]
    codes = {each.exit_code for each in classes if issubclass(each, errors.AutotuneError)}
    assert codes == {1, 2, 3, 4}
    text = README.split("## Exit codes")[1].split("##")[0]
    assert re.findall(r"(\d+) [a-z]", text)[:6] == ["0", "1", "2", "3", "4", "130"]


def test_every_extra_is_in_the_readme() -> None:
    section = README.split("## Extras")[1].split("Known good")[0]
    named = [row[0].strip("`") for row in rows(section)[2:]]
    assert set(named) == set(PROJECT["optional-dependencies"])


def test_every_room_is_in_docs_layout() -> None:
    page = (ROOT / "docs" / "layout.md").read_text()
    package = ROOT / "autotune"
    rooms = [
        f"autotune/{path.name}" + ("/" if path.is_dir() else "")
        for path in package.iterdir()
        if (path.is_dir() and (path / "__init__.py").exists())
        or (path.suffix == ".py" and not path.name.startswith("__"))
    ]
    for room in rooms:
        assert f"`{room}`" in page, room
    for named in re.findall(r"`(autotune/[\w/.]+)`", page):
        assert (ROOT / named).exists(), named


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_public_name_is_in_docs_api() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    for name in autotune.__all__:
        if not name.startswith("__"):
            assert re.search(rf"`(autotune\.)?{name}\b", page), name


def test_the_changelog_knows_this_version() -> None:
    version = PROJECT["version"]
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text()
    assert autotune.__version__ == version


def test_views_are_those_of_the_store() -> None:
    assert api.results.__doc__ is not None
    for view in api._QUESTIONS:
        assert f"`{view}`" in api.results.__doc__


def test_what_a_user_runs_into_is_answered() -> None:
    for question in ("verified?", "failed trials?", "two runs differ?", "two machines?"):
        assert re.search(rf"\*\*[^*]*{re.escape(question)}\*\*", README), question


def test_tables_are_what_was_recorded() -> None:
    """Every table comes from a result file; `python benchmarks/tables.py --write` renews them."""
    tables = runpy.run_path(str(ROOT / "benchmarks" / "tables.py"))
    pages = [page for page in tables["PAGES"] if "<!-- table " in page.read_text()]
    assert ROOT / "README.md" in pages
    for page in pages:
        assert page.read_text() == tables["filled"](page.read_text()), page


def test_the_tests_of_the_cases_exist() -> None:
    page = (ROOT / "docs" / "cases.md").read_text()
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", page)
    sources = {file.name: file.read_text() for file in (ROOT / "tests").rglob("test_*.py")}
    assert len(named) > 30
    for file, test in named:
        assert f"def {test}(" in sources[file], f"{file}::{test}"
    cases = {f"B{number:03}" for number in (*range(19, 29), *range(43, 60))}
    assert {row[0] for row in rows(page)} == {"case", *cases}
