"""Curves as a picture: lines against a number, panel by panel, in one SVG that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

# Okabe and Ito's colours, which people who see colours differently can distinguish; dashes where there are more lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("", "6 3", "2 3")
WIDE, TALL, LEFT, TOP, BOTTOM, LEGEND, ROW = 420, 260, 62, 34, 50, 190, 18
MOST = 8  # values of x that are all written; of more, round ones
GREY, GRID = "#888888", "#dddddd"


@dataclass(frozen=True)
class Line:
    """One curve: places (x, y, spread), the spread 0 where a value was measured once."""

    name: str
    points: list[tuple[float, float, float]]


@dataclass(frozen=True)
class Panel:
    """Curves that share their axes."""

    title: str
    lines: list[Line] = field(default_factory=list)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers that span low to high."""
    room = high - low if high > low else max(abs(high), 1.0)
    rough = room / count
    unit = 10 ** math.floor(math.log10(rough))
    step = min((s * unit for s in (1, 2, 2.5, 5, 10)), key=lambda s: abs(s - rough))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 10) for k in range(first, max(last, first + 1) + 1)]


def draw(
    panels: list[Panel], *, across: str, percent: bool = True, inline: bool = False, names: Sequence[str] = ()
) -> str:
    """The SVG: panels one below the other, each with its legend; `percent` writes x as percentages.

    `inline` is for a page with colours of its own (light or dark): no white ground, and black is the page's ink. Lines
    get their colours in the order of `names`, so that several pictures agree.
    """
    names = list(dict.fromkeys([*names, *(line.name for panel in panels for line in panel.lines)]))
    wide, down, groups = LEFT + WIDE + LEGEND, 0, []
    for panel in panels:
        inside = _panel(panel, names, across=across, percent=percent)
        groups += [f'<g transform="translate({LEFT} {down + TOP})">', *inside, "</g>"]
        down += TOP + max(TALL + BOTTOM, ROW * (len(panel.lines) + 1))  # a long legend needs room
    title = escape("; ".join(panel.title for panel in panels), {'"': "&quot;"})
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{down}" viewBox="0 0 {wide} {down}" '
        f'font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="{title}">'
    )
    ground = [] if inline else ['<rect width="100%" height="100%" fill="white"/>']
    text = "\n".join([head, *ground, *groups, "</svg>", ""])
    return text.replace('"#000000"', '"currentColor"').replace(GRID, "var(--line)") if inline else text


@dataclass(frozen=True)
class _Axes:
    x: tuple[float, float]
    y: tuple[float, float]

    def across(self, value: float) -> float:
        low, high = self.x
        return round(WIDE * ((value - low) / (high - low) if high > low else 0.5), 1)

    def down(self, value: float) -> float:
        low, high = self.y
        return round(TALL * (1 - (value - low) / (high - low)), 1)


def _panel(panel: Panel, names: Sequence[str], *, across: str, percent: bool) -> list[str]:
    points = [point for line in panel.lines for point in line.points]
    if not points:
        return [f'<text y="-12" font-weight="600">{escape(panel.title)}: nothing measured yet</text>']
    steps = ticks(min(0.0, *(y - spread for _, y, spread in points)), max(y + spread for _, y, spread in points))
    xs = sorted({x for x, _, _ in points})
    axes = _Axes((xs[0], xs[-1]), (steps[0], steps[-1]))
    out = [f'<text y="-12" font-weight="600">{escape(panel.title)}</text>']
    for value in steps:
        y = axes.down(value)
        out.append(f'<line x1="0" x2="{WIDE}" y1="{y}" y2="{y}" stroke="{GRID}"/>')
        out.append(f'<text x="-8" y="{y + 4}" text-anchor="end" fill="{GREY}">{value:g}</text>')
    for value in xs if len(xs) <= MOST else [x for x in ticks(xs[0], xs[-1]) if xs[0] <= x <= xs[-1]]:
        shown = f"{100 * value:g}%" if percent else f"{value:g}"
        out.append(f'<text x="{axes.across(value)}" y="{TALL + 18}" text-anchor="middle" fill="{GREY}">{shown}</text>')
    out.append(f'<text x="{WIDE / 2}" y="{TALL + 38}" text-anchor="middle">{escape(across)}</text>')
    for row, line in enumerate(panel.lines):
        out += _line(line, axes, row, names.index(line.name))
    return out


def _line(line: Line, axes: _Axes, row: int, number: int) -> list[str]:
    colour, dash = COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]
    style = f'stroke="{colour}" stroke-width="2"' + (f' stroke-dasharray="{dash}"' if dash else "")
    places = [(axes.across(x), axes.down(y), axes.down(y - s), axes.down(y + s)) for x, y, s in sorted(line.points)]
    out = [f'<polyline fill="none" {style} points="{" ".join(f"{x},{y}" for x, y, _, _ in places)}"/>']
    for x, y, low, high in places:
        if low != high:
            out.append(f'<line x1="{x}" x2="{x}" y1="{low}" y2="{high}" stroke="{colour}"/>')
        out.append(f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"/>')
    y = ROW * (row + 0.5)
    out.append(f'<line x1="{WIDE + 16}" x2="{WIDE + 40}" y1="{y}" y2="{y}" {style}/>')
    out.append(f'<text x="{WIDE + 46}" y="{y + 4}">{escape(_short(line.name))}</text>')
    return out


def _short(name: str, most: int = 22) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
