"""How figures look: one size, one type, colours that everybody can tell apart, and markers that differ as well.

Figures are drawn without pyplot, so nothing needs a screen and nothing is kept between two of them. The same numbers
give the same bytes. Matplotlib is loaded when a figure is drawn.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matchlight import files
from matchlight.core import BadInput

# Okabe and Ito's colours, for lines; Paul Tol's "muted" ones and black, for up to ten classes.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
CLASSES = ("#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)))
GREY, PALE, RIGHT, WRONG = "#555555", "#DDDDDD", "#009E73", "#D55E00"
DOUBLE, SINGLE, PANEL = 7.0, 3.5, 2.4  # inches: both columns of a page, one column, the height of a panel
DPI = 200

LOOK: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with Matplotlib: the same everywhere
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "legend.borderaxespad": 0.2,
    "savefig.dpi": DPI,
    "svg.fonttype": "none",  # words stay words
    "svg.hashsalt": "matchlight",
    "text.parse_math": False,  # captions may hold a dollar sign
}


def ready() -> None:
    """One clear line, before anything slow, where figures cannot be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise BadInput("figures need one more package: pip install 'matchlight[figures]'") from None


@contextmanager
def look() -> Iterator[None]:
    """The style, while a figure is made and written."""
    ready()
    from matplotlib import rc_context

    with rc_context():
        from matplotlib import rcdefaults, rcParams

        rcdefaults()  # whatever a user's own file says
        rcParams.update(LOOK)  # type: ignore[arg-type]
        yield


def blank(width: float, height: float, **options: Any) -> Any:
    """An empty figure, in inches, whose parts are placed by hand."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), **{"layout": "none", **options})
    FigureCanvasAgg(figure)
    return figure


def panels(
    rows: int, columns: int, *, width: float = DOUBLE, height: float | None = None, **options: Any
) -> tuple[Any, Any]:
    """A figure and its (rows, columns) array of axes."""
    figure = blank(width, PANEL * rows if height is None else height, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def lines_of(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """By name, how its line is drawn: colour and marker first, dashes where there are more names than colours."""
    return {
        name: {
            "color": COLOURS[k % len(COLOURS)],
            "marker": MARKERS[k % len(MARKERS)],
            "markersize": 6.0 if MARKERS[k % len(MARKERS)] in "PX" else 4.5,  # these two are mostly edge
            "linestyle": DASHES[k // len(COLOURS) % len(DASHES)],
            "markeredgecolor": "white",
            "markeredgewidth": 0.3,
        }
        for k, name in enumerate(names)
    }


def of_class(number: int, classes: int) -> str:
    """The colour of a class: the clearest ones where a few are to be told apart."""
    colours = COLOURS if classes <= len(COLOURS) else CLASSES
    return colours[number % len(colours)]


def band(axes: Any, x: Any, mean: Any, spread: Any, **style: Any) -> Any:
    """A line, and how far seeds lie from it where there are several."""
    if (spread > 0).any():
        axes.fill_between(x, mean - spread, mean + spread, color=style["color"], alpha=0.18, linewidth=0)
    return axes.plot(x, mean, **style)[0]


def whole_numbers(axis: Any) -> None:
    """Ticks at whole numbers only: epochs have no halves."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=8, integer=True))


def few_ticks(axis: Any, most: int = 5) -> None:
    """A handful of ticks, at round numbers."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=most, steps=[1, 2, 5, 10]))


def powers_of_ten(axis: Any) -> None:
    """Ticks of a logarithmic axis written out: 1, 10, 100, 1,000."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(numticks=6))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))


def letter(all_axes: Any) -> None:
    """(a), (b), ... before the titles of several panels."""
    for k, axes in enumerate(all_axes):
        title = axes.get_title()
        axes.set_title("")
        axes.set_title(f"({chr(97 + k)}) {title}", loc="left")


def legend_below(figure: Any, axes: Any, **options: Any) -> None:
    """One legend for all panels, below them, where it covers nothing."""
    handles, labels = axes.get_legend_handles_labels()
    most = options.pop("ncols", 4)
    figure.legend(handles, labels, loc="outside lower center", ncols=min(most, len(labels)), **options)


def bare(axes: Any) -> None:
    """A panel whose places mean nothing by themselves: no ticks, no grid."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    for side in axes.spines.values():
        side.set(visible=True, color=PALE)


def wrapped(text: str, width: int, *, lines: int = 3) -> str:
    """A text on a few lines; what does not fit ends in an ellipsis."""
    plain = "".join(c if c.isprintable() else " " for c in text)
    return "\n".join(textwrap.wrap(plain, width, max_lines=lines, placeholder=" …", break_long_words=True))


def save(figure: Any, path: Path) -> list[Path]:
    """`path`.png and `path`.svg, each written whole or not at all."""
    written = []
    for kind in ("png", "svg"):
        target = path.with_name(f"{path.name}.{kind}")
        nobody = {"Software": None} if kind == "png" else {"Date": None, "Creator": "matchlight"}
        with files.replaced(target) as draft:
            figure.savefig(draft, format=kind, metadata=nobody, facecolor="white")
        written.append(target)
    return written
