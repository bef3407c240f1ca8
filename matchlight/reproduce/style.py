"""How figures look: one size, one type, colours that everybody can distinguish, and markers that differ as well.

Figures are drawn without pyplot, so nothing needs a screen and nothing is kept between two of them. The same numbers
give the same bytes. Matplotlib is loaded when a figure is drawn.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from matchlight import files
from matchlight.core import BadInput

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.cm import ScalarMappable as Drawn  # noqa: F401
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

# Okabe and Ito's colours, for lines; Paul Tol's "muted" ones and black, for up to ten classes.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
CLASSES = ("#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[str | tuple[float, tuple[float, ...]], ...] = ("-", (0, (5, 1.5)), (0, (1, 1)))
GREY, PALE, RIGHT, WRONG = "#555555", "#DDDDDD", "#009E73", "#D55E00"
DOUBLE, SINGLE, PANEL = 7.0, 3.5, 2.4  # inches: both columns of a page, one column, the height of a panel
DPI = 200
WAYS = {"i2t": "picture to text", "t2i": "text to picture"}
Options = dict[str, Any]  # keyword arguments of Matplotlib

LOOK: dict[str, object] = {
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


def blank(width: float, height: float, *, layout: str = "none") -> Figure:
    """An empty figure, in inches, whose parts are placed by hand."""
    from matplotlib import figure as shapes
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = shapes.Figure(figsize=(width, height), layout=layout)  # type: ignore[arg-type]
    FigureCanvasAgg(figure)
    return figure


def panels(
    rows: int,
    columns: int,
    *,
    width: float = DOUBLE,
    height: float | None = None,
    sharex: bool | Literal["row"] = False,
    sharey: bool = False,
) -> tuple[Figure, np.ndarray]:
    """A figure and its (rows, columns) array of axes."""
    figure = blank(width, PANEL * rows if height is None else height, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey)


def lines_of(names: Sequence[str]) -> dict[str, Options]:
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
    """The colour of a class: the clearest ones where there are only a few."""
    colours = COLOURS if classes <= len(COLOURS) else CLASSES
    return colours[number % len(colours)]


def band(axes: Axes, x: npt.ArrayLike, mean: np.ndarray, spread: np.ndarray, **style: Any) -> Line2D:
    """A line, and how far seeds lie from it where there are several."""
    if (spread > 0).any():
        axes.fill_between(x, mean - spread, mean + spread, color=style["color"], alpha=0.18, linewidth=0)
    return axes.plot(x, mean, **style)[0]


def whole_numbers(axis: Axis) -> None:
    """Ticks at whole numbers only: epochs have no halves."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=8, integer=True))


def few_ticks(axis: Axis, most: int = 5) -> None:
    """A handful of ticks, at round numbers."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=most, steps=[1, 2, 5, 10]))


def powers_of_ten(axis: Axis) -> None:
    """Ticks of a logarithmic axis written out: 1, 10, 100, 1,000."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(numticks=6))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))


def letter(all_axes: Iterable[Axes]) -> None:
    """(a), (b), ... before the titles of several panels."""
    for k, axes in enumerate(all_axes):
        title = axes.get_title()
        axes.set_title("")
        axes.set_title(f"({chr(97 + k)}) {title}", loc="left")


def legend_below(figure: Figure, axes: Axes, *, ncols: int = 4, title: str | None = None) -> None:
    """One legend for all panels, below them, where it covers nothing."""
    handles, labels = axes.get_legend_handles_labels()
    more: Options = {} if title is None else {"title": title, "title_fontsize": 7.5}
    figure.legend(handles, labels, loc="outside lower center", ncols=min(ncols, len(labels)), **more)


def bare(axes: Axes) -> None:
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


def save(figure: Figure, path: Path) -> list[Path]:
    """`path`.png and `path`.svg, each written whole or not at all."""
    written = []
    for kind in ("png", "svg"):
        target = path.with_name(f"{path.name}.{kind}")
        nobody = {"Software": None} if kind == "png" else {"Date": None, "Creator": "matchlight"}
        with files.replaced(target) as draft:
            figure.savefig(draft, format=kind, metadata=nobody, facecolor="white")
        written.append(target)
    return written
