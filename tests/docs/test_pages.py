"""The documentation says nothing that is not so: links, commands, code and names are checked against the package."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest
import typer.main
from docs.pages import PAGES, ROOT, Block, anchors, blocks, commands, links, prose

from matchlight import plugins
from matchlight.cli import app
from matchlight.core import BadInput
from matchlight.training.registry import choose, parse, settings_of

GROUPS = {f"matchlight.{group}" for group in plugins.BUILT_IN}  # entry points have no module
PROGRAM = typer.main.get_command(app)
PYTHON = [block for page in PAGES for block in blocks(page, "python")]


def _named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_every_relative_link_of_a_page_leads_somewhere(page: Path) -> None:
    wrong = []
    for target in links(page):
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            wrong.append(target)
    assert not wrong


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"[\w/+-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert listed == {str(page.relative_to(ROOT / "docs")) for page in PAGES if ROOT / "docs" in page.parents}


def test_the_pages_show_commands_of_every_kind() -> None:
    shown = {words[0] for page in PAGES for _, words in commands(page)}
    assert {word for word in shown if not word.startswith("-")} == set(PROGRAM.commands)


@pytest.mark.parametrize("page", [page for page in PAGES if any(commands(page))], ids=_named)
def test_every_command_line_of_a_page_is_one_the_program_takes(page: Path) -> None:
    wrong = [f"{where} ({problem})" for where, words in commands(page) if (problem := _problem(words))]
    assert not wrong


def _problem(words: list[str]) -> str:
    """Why the program would not take a command line; nothing is run."""
    command, trains = PROGRAM, words[0] == "train" and len(words) > 1
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return f"no command {words[0]!r}"
        command, words = command.commands[words[0]], words[1:]
    known = {name for parameter in command.params for name in [*parameter.opts, *parameter.secondary_opts]} | {"--help"}
    unknown = [word for word in words if re.match(r"--?[a-z]", word) and word.split("=")[0] not in known]
    return f"no option {unknown[0]}" if unknown else _bad_settings(words) if trains else ""


def _bad_settings(words: list[str]) -> str:
    """Why a method would not take the `name=value` of a command line."""
    named = not words[0].startswith("-") and "=" not in words[0]  # none: the program chooses a method
    name, rest = (words[0], words[1:]) if named else ("vse_infty", words)
    given = [word for word in rest if re.fullmatch(r"[\w.]+=.+", word)]
    if name not in plugins.names("methods"):
        return "" if name.endswith(".py") or name.isupper() else f"no method {name}"
    try:
        chosen, settings = choose(name, parse(given))
        settings_of(chosen.method, settings, pairs=4000, device="cuda")
    except BadInput as error:
        return str(error)
    return ""


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_every_python_block_compiles(block: Block) -> None:
    text = re.sub(r"^>>> (.*)\n[^>].*", r"\1", block.text, flags=re.MULTILINE)
    assert ast.parse(text).body


@pytest.mark.parametrize("block", [block for block in PYTHON if "matchlight" in block.text], ids=str)
def test_what_a_python_block_imports_from_the_package_exists(block: Block) -> None:
    for module, names in re.findall(r"^from (matchlight[\w.]*) import \(?([\w, ]+)", block.text, re.MULTILINE):
        loaded = importlib.import_module(module)
        for name in re.findall(r"(\w+)(?: as \w+)?(?:, |$)", names.strip()):
            assert hasattr(loaded, name) or _exists(f"{module}.{name}"), f"{module}.{name}"


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_every_module_and_file_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    files = re.findall(r"`((?:matchlight|tests|benchmarks|docs|tools)/[\w./-]*)`", text)
    missing = [name for name in files if not (ROOT / name).exists()]
    scripts = re.findall(r"benchmarks/\w+\.py", text)
    missing += [name for name in scripts if not (ROOT / name).exists()]
    dotted = re.findall(r"`(matchlight(?:\.\w+)+)\W", prose(page)) + re.findall(r"^::: ([\w.]+)", text, re.MULTILINE)
    missing += [name for name in dotted if name not in GROUPS and not _resolves(name)]
    assert not missing


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _resolves(name: str) -> bool:
    """A module, or something inside one."""
    module, rest = name, []
    while not _exists(module):
        module, _, last = module.rpartition(".")
        rest.insert(0, last)
        if not module:
            return False
    value = importlib.import_module(module)
    for part in rest:
        if not hasattr(value, part):
            return False
        value = getattr(value, part)
    return True
