"""docs/coverage.md: every row names code and a test that exist, or says why the item is not here."""

from __future__ import annotations

import re

from matchlight.reproduce import EXHIBITS
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "coverage.md"
PAPERS = ("NCR", "AOQ", "DivE", "MRL", "Semantic sharing")


def rows() -> list[list[str]]:
    """The entries of every row below the heads of the five tables."""
    lines = re.findall(r"^\| (?!item \|)(.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [[entry.strip() for entry in line.split(" | ")] for line in lines]


def test_the_five_papers_have_a_table_each() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == list(PAPERS)
    assert text.count("| item | section | implemented in | test | here |") == len(PAPERS)


def test_every_row_is_whole_and_says_whether_the_item_is_here() -> None:
    wrong = [row[0] for row in rows() if len(row) != 5 or not re.match(r"(yes|shown|no: .+)$", row[4].split(";")[0])]
    assert not wrong


def test_what_is_here_has_a_module_and_a_test_that_exist() -> None:
    missing = []
    for item, _, code, test, here in rows():
        modules = re.findall(r"`((?:matchlight|benchmarks)/[\w./-]+)`", code)
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", test)
        there = modules and named and all((ROOT / name).exists() for name in modules)
        if not here.startswith("no") and not there:
            missing.append(item)
        for file, function in named:
            path = ROOT / file
            if not path.is_file() or f"def {function}(" not in path.read_text(encoding="utf-8"):
                missing.append(f"{file}::{function}")
    assert not missing


def test_the_guide_has_a_row_and_a_small_picture_of_every_exhibit() -> None:
    text = (ROOT / "docs" / "guides" / "reproduce.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| `([a-z0-9-]+)` \|.+\| !\[\1\]\(\.\./(images/exhibits/\1\.png)\)", text, re.MULTILINE)
    assert [name for name, _ in shown] == list(EXHIBITS)
    sizes = [(ROOT / "docs" / picture).stat().st_size for _, picture in shown]
    assert sum(sizes) < 1_500_000 and min(sizes) > 1000


def test_more_than_the_93_things_first_counted_are_listed() -> None:
    assert len(rows()) > 93
