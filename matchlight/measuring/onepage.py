"""A page that is one file: its style and its frame. It loads nothing, and what it shows of a user's data is escaped.

The report of an audit and the report of a comparison look alike because both stand in this frame (`page/frame.html`).
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from pathlib import Path
from string import Template

PAGE = Path(__file__).parent / "page"


def one_page(
    *, title: str, lead: str, facts: Mapping[str, str], main: str, made: str, style: str = "", ending: str = ""
) -> str:
    """The whole file: `main` and `ending` (scripts) are HTML already, all else is text and gets escaped here."""
    listed = "".join(f"<li><b>{html.escape(value)}</b> {html.escape(name)}</li>" for name, value in facts.items())
    return page_template(PAGE / "frame.html").substitute(
        scripts="script-src 'unsafe-inline'; " if "<script" in ending else "",
        title=html.escape(title),
        style=page_part(PAGE / "frame.css") + style,
        lead=html.escape(lead),
        facts=listed,
        main=main.strip(),
        made=html.escape(made),
        ending=ending,
    )


def page_part(path: Path) -> str:
    """A part of a page that is shipped with the package."""
    return path.read_text(encoding="utf-8")


def page_template(path: Path) -> Template:
    """The same with `$names` to fill in; what is filled in is not looked at again."""
    return Template(page_part(path))
