"""The examples of docs/integrations.md, each section executed from top to bottom as a reader would.

A section's `sh` blocks go to the command line, its `python` blocks are executed. The page's table says which tests
execute a section: `make test`, or `make full` with the packages named there, without which it is skipped.
"""

from __future__ import annotations

import re
import shlex
import shutil
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from docs.pages import ROOT, Block, anchors, blocks
from serving import audit_of

from matchlight.cli import main

PAGE = ROOT / "docs" / "integrations.md"
ROW = re.compile(r"^\| (.+?) \| (.+?) \| \[.+?\]\(#([\w-]+)\) \| (.+?) \|$", re.MULTILINE)


@dataclass
class Section:
    """A section of the page and what its row of the table says."""

    anchor: str
    test: str
    blocks: list[Block] = field(default_factory=list)

    @property
    def packages(self) -> list[str]:
        """What `make full` needs to execute it."""
        return re.findall(r"`([\w.]+)`", self.test.partition("make full`")[2])

    def parameter(self) -> object:
        marks = [pytest.mark.full] if self.test.startswith("`make full`") else []
        return pytest.param(self, id=self.anchor, marks=marks)


def sections() -> dict[str, Section]:
    """By anchor; a tool may have several rows in the table, of one section."""
    text = PAGE.read_text(encoding="utf-8")
    found = {anchor: Section(anchor, test) for _, _, anchor, test in ROW.findall(text)}
    heads = [(text.count("\n", 0, match.start()) + 1, match[1]) for match in re.finditer(r"^## (.+)$", text, re.M)]
    for block in blocks(PAGE, "sh", "python"):
        head = [name for line, name in heads if line < block.line][-1]
        slug = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", head).strip().lower())
        found[slug].blocks.append(block)
    return found


@pytest.fixture
def workplace(collection: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the data set, the run and the audit that the examples begin with."""
    index, data = collection
    shutil.copytree(data, tmp_path / "my_photos")
    shutil.copytree(index.parent / "run", tmp_path / "runs" / "first")
    audit_of(tmp_path / "my_photos", tmp_path / "audits" / "one")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path


def test_every_row_of_the_table_has_a_section_with_an_example() -> None:
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert rows and {anchor for _, _, anchor, _ in rows} <= anchors(PAGE)
    assert all(section.blocks and section.test.startswith("`make ") for section in sections().values())


def brought_by(extra: str) -> set[str]:
    """Names of the packages that an extra installs, those of other extras in it included."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    found: set[str] = set()
    for line in extras[extra]:
        inner = re.fullmatch(r"matchlight\[(.+)\]", line)
        names = [brought_by(name) for name in inner[1].split(",")] if inner else [{re.split(r"[\s<>=;\[]", line)[0]}]
        found |= set().union(*names)
    return found


def test_the_extra_tools_brings_what_full_tests_ask_for_but_fiftyone() -> None:
    asked = {package.replace("_", "-") for section in sections().values() for package in section.packages}
    there = {name.removesuffix("-skinny") for name in brought_by("tools")}
    assert len(asked) > 5 and asked - there == {"fiftyone"}


@pytest.mark.parametrize("section", [section.parameter() for section in sections().values()])
def test_the_example_of_the_page_runs(section: Section, workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for package in section.packages:
        pytest.importorskip(package, reason=f"{package} is not installed")
    scope: dict[str, object] = {"__name__": "example"}
    for block in section.blocks:
        if block.language == "python":
            exec(compile(block.text, str(block), "exec"), scope)
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] == "matchlight" and main(words[1:]) != 0:
                told = capsys.readouterr().err
                if "found no MongoDB" in told:
                    pytest.skip(told)
                pytest.fail(f"{line}: {told}")
