"""What the tests of the documentation read: pages, their headings, links, code blocks and commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])

_FENCE = re.compile(r"^( *)```(\S*)([^\n]*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<!\!)\[[^\]]*(?:`[^`]*`[^\]]*)*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
_META = re.compile(r"[|&;<>]|\d>")  # where a shell would end the command


class Block(NamedTuple):
    """A fenced code block: where it is, its language and its text, without the indentation of a list."""

    page: Path
    line: int
    language: str
    text: str
    title: str = ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path, *languages: str) -> Iterator[Block]:
    """The code blocks of a page, of some languages or all."""
    text = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        indent, language, about, body = match.groups()
        if not languages or language in languages:
            body = re.sub(rf"^{indent}", "", body, flags=re.MULTILINE)
            title = about.partition('title="')[2].partition('"')[0]
            yield Block(page, text.count("\n", 0, match.start()) + 1, language, body, title)


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> Iterator[str]:
    """Every relative target of a link or picture."""
    for match in _LINK.finditer(prose(page)):
        target = match.group(1) or match.group(2)
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(page: Path) -> set[str]:
    """The anchors that the site gives a page's headings."""
    headings = re.findall(r"^#+ +(.+?) *$", prose(page), re.MULTILINE)
    return {_slug(heading) for heading in headings}


def _slug(heading: str) -> str:
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", heading)
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def commands(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Where a `matchlight` command line stands in a page's code, and its words."""
    for block in blocks(page, "sh", "console", ""):
        for line in block.text.replace("\\\n", " ").splitlines():
            words = _words(line.removeprefix("$ "))
            if words:
                yield f"{block}: {line.strip()}", words
    for span in re.findall(r"`(matchlight [^`]+)`", prose(page)):
        words = _words(" ".join(span.split()))
        if words:
            yield f"{page.relative_to(ROOT)}: `{span}`", words


def _words(line: str) -> list[str]:
    line = re.sub(r"^torchrun .*\$\(which matchlight\)", "matchlight", line)
    if not line.startswith("matchlight "):
        return []
    line = re.sub(r"\[(--[\w-]+[^\]]*)\]", r"\1", line)  # an option shown as optional is an option
    line = re.sub(r"\[[^\]]*\]|\.\.\.|FILE\.\.\.", "", line)
    return shlex.split(_META.split(line)[0], comments=True)[1:]
