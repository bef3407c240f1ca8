"""MRL's maps (supplement, Table 1 and Figure 6): what methods make of test items, and clusters round their centres."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from matchlight.core import IMAGE, TEXT
from matchlight.inputs.batches import seeded
from matchlight.measuring.protocols import figure
from matchlight.pairs import Pairs
from matchlight.reproduce import style
from matchlight.reproduce.exhibits import Result, Work
from matchlight.reproduce.layouts import (
    SIDES,
    Shown,
    chosen_items,
    frequent,
    laid_out,
    raw_vectors,
    unit_rows,
    vectors_of,
)
from matchlight.reproduce.mrl_methods import CROSS_ENTROPY, MAPPED, MRL, methods, noisy
from matchlight.reproduce.numbers import Row
from matchlight.runs.folder import Run

FOUR = 4  # classes among their centres, as the paper shows
MARKS = {"picture": "o", "text": "^"}


# ---- representations -------------------------------------------------------------------------------------------------


def representations(work: Work, *, noise: float = 0.6) -> Result:
    """Test items as each method represents them, trained on wrong labels; first the two inputs, each by itself."""
    setups = methods(work, MAPPED)
    work.check(setups)
    items = chosen_items(work.pairs, frequent(work.pairs, split=work.split), split=work.split)
    broken = noisy(work.pairs, noise, seed=0)
    runs = {one.shown: work.train(one, pairs=broken) for one in setups}
    maps: list[tuple[str, list[Row]]] = []  # title, points
    for side, raw in raw_vectors(next(iter(runs.values())), work.pairs, items).items():
        maps.append((f"input: {SIDES[side]}s", _points(items, laid_out(raw), sides=(side,))))
    means: dict[str, float] = {}
    for name, run in runs.items():
        means[name] = figure(work.measured(run, protocol="labels"), "map", "mean")
        maps.append((name, _points(items, laid_out(vectors_of(run, work.pairs, items)))))
    rows = [{"panel": title, **point} for title, points in maps for point in points]
    table = [{"method": name, "MAP mean": value} for name, value in means.items()]
    return work.save(rows, lambda: _draw_maps(maps, items.names, means), table=table, noise=noise, classes=items.names)


def _points(items: Shown, where: np.ndarray, *, sides: tuple[str, ...] = (IMAGE, TEXT)) -> list[Row]:
    out = []
    kinds = [(side, place, k) for side in sides for place, k in zip(items.place[side], items.label[side], strict=True)]
    for (side, place, k), (x, y) in zip(kinds, where, strict=True):
        out.append({"side": SIDES[side], "place": int(place), "class": items.names[k], "x": float(x), "y": float(y)})
    return out


def _draw_maps(maps: list[tuple[str, list[Row]]], names: list[str], means: dict[str, float]) -> style.Figure:
    columns = min(4, len(maps)) if len(maps) != 5 else 3
    rows = -(-len(maps) // columns)
    figure, axes = style.panels(rows, columns, height=rows * style.DOUBLE / columns + 0.65)
    for panel in axes.flat[len(maps) :]:
        panel.set_axis_off()
    used = axes.flat[: len(maps)]
    for panel, (title, points) in zip(used, maps, strict=True):
        panel.set_title(title)
        style.bare(panel)
        scatter(panel, points, names)
        if title in means:
            panel.set_xlabel(f"MAP {means[title]:.3f}", labelpad=2)
    style.letter(used)
    _legends(figure, names, seen={point["class"] for _, points in maps for point in points})
    return figure


def scatter(panel: style.Axes, points: list[Row], names: list[str], *, hollow: bool = False) -> None:
    """Colour = class, shape = side: circles are pictures, triangles texts."""
    size = float(np.clip(5000 / len(points), 5, 22))  # square points
    for side, marker in MARKS.items():
        for k, name in enumerate(names):
            own = [(p["x"], p["y"]) for p in points if p["side"] == side and p["class"] == name]
            if own:
                colour = style.of_class(k, len(names))
                face = "none" if hollow else colour
                edge = {"edgecolors": colour, "linewidths": 0.7} if hollow else {"linewidths": 0}
                x, y = zip(*own, strict=True)
                panel.scatter(x, y, s=1.8 * size if hollow else size, marker=marker, c=face, alpha=0.75, **edge)


def _legends(figure: style.Figure, names: list[str], *, seen: Collection[str], centres: bool = False) -> None:
    """The classes that are seen by colour, the sides by shape, below all panels."""
    from matplotlib.lines import Line2D

    dot: style.Options = {"linestyle": "none", "markersize": 4.5}
    shapes = [Line2D([], [], marker=mark, color=style.GREY, label=side, **dot) for side, mark in MARKS.items()]
    if centres:
        for shape in shapes:
            shape.set_markerfacecolor("none")
        shapes.append(Line2D([], [], marker="*", color=style.GREY, label="centre", **{**dot, "markersize": 9}))
    colours = [
        Line2D([], [], marker="s", color=style.of_class(k, len(names)), label=style.wrapped(name, 18, lines=1), **dot)
        for k, name in enumerate(names)
        if name in seen
    ]
    handles = [*shapes, *colours]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(7, len(handles)), columnspacing=1.2)


# ---- clusters and their centres --------------------------------------------------------------------------------------


def clusters(work: Work, *, noise: float = 0.6) -> Result:
    """Four classes, drawn at random, round the centres that were learned for them: cross-entropy beside MRL."""
    setups = (CROSS_ENTROPY, MRL)
    work.check(setups)
    items = chosen_items(work.pairs, _four(work.pairs, work.split), split=work.split)
    broken = noisy(work.pairs, noise, seed=0)
    maps, rows, table = [], [], []
    for one in setups:
        run = work.train(one, pairs=broken)
        vectors, centres = vectors_of(run, work.pairs, items), centres_of(run, items.names)
        where = laid_out(np.concatenate([vectors, centres]))
        points = _points(items, where[: len(vectors)])
        for point, cosines in zip(points, vectors @ centres.T, strict=True):
            own = items.names.index(point["class"])
            point |= {"nearest": items.names[int(cosines.argmax())], "cosine": float(cosines[own])}
        marks = [
            {"side": "centre", "class": name, "x": float(x), "y": float(y)}
            for name, (x, y) in zip(items.names, where[len(vectors) :], strict=True)
        ]
        maps.append((one.shown, points, marks))
        rows += [{"method": one.shown, **point} for point in [*points, *marks]]
        table.append({"method": one.shown, **_tightness(points)})
    return work.save(rows, lambda: _draw_clusters(maps, items.names), table=table, noise=noise, classes=items.names)


def _four(pairs: Pairs, split: str) -> np.ndarray:
    """Four of the more frequent classes, at random from a fixed seed."""
    known = frequent(pairs, split=split)
    return np.sort(seeded(FOUR, len(known)).permutation(known)[:FOUR])


def centres_of(run: Run, names: list[str]) -> np.ndarray:
    """(classes, D) the directions a run has learned for these classes."""
    known = run.classes or []
    weight = run.matcher.head.weight.detach().float().cpu().numpy().T  # type: ignore[union-attr,operator]
    return unit_rows(weight[[known.index(name) for name in names]])


def _tightness(points: list[Row]) -> Row:
    """How often an item's own centre is the nearest of the four, and how near it is."""
    out: Row = {}
    for side in MARKS:
        own = [p for p in points if p["side"] == side]
        out[f"{side}s at their centre"] = float(np.mean([p["nearest"] == p["class"] for p in own]))
        out[f"cosine ({side}s)"] = float(np.mean([p["cosine"] for p in own]))
    return out


def _draw_clusters(maps: list[tuple[str, list[Row], list[Row]]], names: list[str]) -> style.Figure:
    figure, axes = style.panels(1, len(maps), height=3.9)
    for panel, (title, points, marks) in zip(axes.flat, maps, strict=True):
        panel.set_title(title)
        style.bare(panel)
        scatter(panel, points, names, hollow=True)
        for k, mark in enumerate(marks):
            edge = {"edgecolors": "white", "linewidths": 0.8, "zorder": 5}
            panel.scatter(mark["x"], mark["y"], s=190, marker="*", c=style.of_class(k, len(names)), **edge)
    style.letter(axes.flat)
    _legends(figure, names, seen=names, centres=True)
    return figure
