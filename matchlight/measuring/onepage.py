"""A page that is one file: its style and its frame. It loads nothing, and what it shows of a user's data is escaped.

The report of an audit and the report of a comparison look alike because both stand in this frame.
"""

from __future__ import annotations

import html
from collections.abc import Mapping

STYLE = """
:root { color-scheme: light dark; --back: #fbfaf8; --card: #fff; --ink: #1f1d1a; --soft: #5f5a52; --line: #dcd7ce;
  --flame: #a85b00; --glow: #ffb347; --bad: #a3271f; --good: #22633c; --bar: #c9c3b8; }
@media (prefers-color-scheme: dark) { :root { --back: #171512; --card: #211e1a; --ink: #eee9e1; --soft: #b0a898;
  --line: #3b362f; --flame: #ffb347; --glow: #c77700; --bad: #ff9a8f; --good: #8fd6a8; --bar: #57503f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
header, main, footer { max-width: 1080px; margin: 0 auto; padding: 16px; }
h1 { font-size: 24px; margin: 8px 0; } h2 { font-size: 18px; margin: 32px 0 8px; }
p, .soft { color: var(--soft); margin: 4px 0; max-width: 75ch; }
.facts { display: flex; flex-wrap: wrap; gap: 8px; margin: 16px 0; padding: 0; list-style: none; }
.facts li { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 8px 16px; }
.facts b { display: block; font-size: 22px; }
:focus-visible { outline: 3px solid var(--flame); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; } th, td { text-align: left; padding: 6px 8px;
  border-bottom: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere; } th { position: static; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.scroll { overflow-x: auto; } svg { width: 100%; height: auto; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; } svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
"""

FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline';
 {scripts}base-uri 'none'; form-action 'none'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p>{told}</p>
<ul class="facts">{facts}</ul>
</header>
<main>
{main}
</main>
<footer><p>{made}</p></footer>
{ending}</body>
</html>
"""


def one_page(
    *, title: str, told: str, facts: Mapping[str, str], main: str, made: str, style: str = "", ending: str = ""
) -> str:
    """The whole file: `main` and `ending` (scripts) are HTML already, all else is text and gets escaped here."""
    said = "".join(f"<li><b>{html.escape(value)}</b> {html.escape(name)}</li>" for name, value in facts.items())
    return FRAME.format(
        scripts="script-src 'unsafe-inline'; " if "<script" in ending else "",
        title=html.escape(title),
        style=STYLE + style,
        told=html.escape(told),
        facts=said,
        main=main.strip(),
        made=html.escape(made),
        ending=ending,
    )
