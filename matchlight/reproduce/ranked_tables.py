"""Tables in which the best figure of a column stands out: bold the best, underlined the second, as papers do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matchlight.reproduce import style
from matchlight.reproduce.numbers import Row

LINE, HEAD, EDGE = 0.21, 0.5, 0.08  # inches: a line of figures, the heads, the page's edge
FIRST = 1.5  # inches of the column of names


def order(values: Sequence[object]) -> list[int]:
    """By line: 0 for the best figure of a column, 1 for the second, then 2, 3, ...; -1 where there is none."""
    numbers = [float(v) if isinstance(v, int | float) and math.isfinite(v) else None for v in values]
    known = sorted({v for v in numbers if v is not None}, reverse=True)
    return [-1 if v is None else known.index(v) for v in numbers]


def shown(value: object) -> str:
    """A percentage to one decimal; - where nothing was measured."""
    return f"{value:.1f}" if isinstance(value, int | float) and math.isfinite(value) else "-"


def marked(table: Sequence[Row]) -> list[Row]:
    """The same for a Markdown page; the first column holds names."""
    name, *columns = table[0]
    ranks = {column: order([row.get(column) for row in table]) for column in columns}
    signs = {0: "**{}**", 1: "<u>{}</u>"}
    return [
        {name: row[name]} | {c: signs.get(ranks[c][k], "{}").format(shown(row.get(c))) for c in columns}
        for k, row in enumerate(table)
    ]


def draw_table(parts: Mapping[str, Sequence[Row]], groups: Sequence[tuple[str, int]]) -> style.Figure:
    """Tables of the same columns, one below the other, each below its title; `groups` are heads over columns."""
    columns = list(next(iter(parts.values()))[0])[1:]
    lines = sum(1.3 + len(table) for table in parts.values())
    height = 2 * EDGE + HEAD + LINE * lines
    figure = style.blank(style.DOUBLE, height)
    wide = (style.DOUBLE - FIRST - 2 * EDGE) / len(columns)
    at = [FIRST + EDGE + (k + 0.5) * wide for k in range(len(columns))]
    top, start = height - EDGE, 0
    for title, count in groups:
        middle = (at[start] + at[start + count - 1]) / 2
        figure.text(middle / style.DOUBLE, (top - 0.1) / height, title, ha="center", va="center", fontsize=8)
        start += count
    for x, column in zip(at, columns, strict=True):
        head = column.split(", ", 1)[-1]
        where = (x / style.DOUBLE, (top - 0.33) / height)
        figure.text(*where, head, ha="center", va="center", fontsize=7, color=style.GREY)
    y = top - HEAD
    for title, table in parts.items():
        _rule(figure, y, height)
        figure.text(EDGE / style.DOUBLE, (y - 0.6 * LINE) / height, title, va="center", fontsize=7, color=style.GREY)
        y -= 1.3 * LINE
        y = _draw_lines(figure, table, at, y, height)
    return figure


def _draw_lines(figure: style.Figure, table: Sequence[Row], at: Sequence[float], y: float, height: float) -> float:
    name, *columns = table[0]
    ranks = {column: order([row.get(column) for row in table]) for column in columns}
    for k, row in enumerate(table):
        middle = (y - LINE / 2) / height
        figure.text(EDGE / style.DOUBLE, middle, str(row[name]), va="center", fontsize=8)
        for x, column in zip(at, columns, strict=True):
            rank, where = ranks[column][k], x / style.DOUBLE
            weight = "bold" if rank == 0 else "normal"
            figure.text(where, middle, shown(row.get(column)), ha="center", va="center", fontsize=8, fontweight=weight)
            if rank == 1:
                half, low = 0.13 / style.DOUBLE, middle - 0.075 / height
                _line(figure, (where - half, where + half), low, "black", 0.7)
        y -= LINE
    return y


def _rule(figure: style.Figure, y: float, height: float) -> None:
    _line(figure, (EDGE / style.DOUBLE, 1 - EDGE / style.DOUBLE), y / height, style.PALE, 0.9)


def _line(figure: style.Figure, x: tuple[float, float], y: float, colour: str, width: float) -> None:
    from matplotlib.lines import Line2D

    figure.add_artist(Line2D(x, (y, y), color=colour, linewidth=width))
