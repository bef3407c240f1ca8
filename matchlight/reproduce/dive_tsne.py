"""DivE's map of set elements: t-SNE of the vectors of pictures and captions, coloured by the slot they come from.

A similarity that trains only the nearest elements leaves slots unused or drives them into corners of their own; the
table gives the number for it, the mean circular variance within sets (0 = collapsed, 0.5 = four orthogonal vectors).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from matchlight.core import IMAGE, TEXT
from matchlight.inputs.batches import seeded
from matchlight.measuring.protocols import figure
from matchlight.pairs import Pairs
from matchlight.reproduce import style
from matchlight.reproduce.dive_runs import DIVE, QUICK, TITLES, asked_run
from matchlight.reproduce.exhibit_page import run_facts
from matchlight.reproduce.exhibits import MethodSetup, Paths, Result, Work
from matchlight.reproduce.layouts import SIDES, laid_out
from matchlight.reproduce.numbers import Row, percent
from matchlight.runs.folder import Run
from matchlight.scoring.encode import encode_both

MOST = 150  # pictures, and as many captions: four points each
MARKS = {"picture": "o", "text": "^"}
NOT_PRINTED = "the paper's map has no numbers; its circular variances are in a table that was not at hand"


def elements(work: Work, *, run: Paths | None = None) -> Result:
    """Elements of test sets in the plane, a panel a similarity, and how spread sets are."""
    work.check_splits(work.split)
    named = asked_run(work, run)
    runs = {named.method: named} if named is not None else _trained(work)
    maps: dict[str, list[Row]] = {}
    table = []
    for title, one in runs.items():
        maps[title] = points(one, work.pairs, split=work.split)
        report = work.measured(one, protocol="recall")
        spread = {f"circular variance, {SIDES[side]}s": figure(report, "spread", side) for side in (IMAGE, TEXT)}
        table.append(
            {"similarity" if named is None else "run": title, "rsum": percent([figure(report, "rsum")]), **spread}
        )
    rows = [{"panel": title, **point} for title, some in maps.items() for point in some]
    facts = [*(run_facts(title, one) for title, one in runs.items()), "t-SNE: perplexity 30, from PCA, seed 0"]
    return work.save(rows, lambda: _draw(maps, table), table=table, facts=[*facts, NOT_PRINTED])


def _trained(work: Work) -> dict[str, Run]:
    usual = {} if "similarity" in work.settings else {"smooth_chamfer": DIVE}  # a run that other exhibits share
    setups = [
        replace(usual.get(name, MethodSetup("", "dive", {"similarity": name}, QUICK)), shown=title)
        for name, title in TITLES.items()
    ]
    work.check(setups)
    return {one.shown: work.train(one) for one in setups}


def points(run: Run, pairs: Pairs, *, split: str = "test", seed: int = 0) -> list[Row]:
    """Where every element of some pictures and of a caption each lies in the plane."""
    pictures, rows = pairs.pictures_of(split), pairs.rows(split)
    _, once = np.unique(pairs.picture[rows], return_index=True)
    places = {
        IMAGE: np.sort(seeded(seed, 1).permutation(pictures)[:MOST]),
        TEXT: np.sort(seeded(seed, 2).permutation(rows[once])[:MOST]),
    }
    sides = encode_both(run.matcher, run.inputs(pairs).table, places[IMAGE], places[TEXT])
    sets = [side.members[0].vectors.float().cpu().numpy() for side in sides]
    where = laid_out(np.concatenate([some.reshape(-1, some.shape[-1]) for some in sets]), seed=seed)
    kinds = [
        {"side": SIDES[side], "place": int(place), "slot": slot}
        for side, some in zip((IMAGE, TEXT), sets, strict=True)
        for place in places[side]
        for slot in range(some.shape[1])
    ]
    return [{**kind, "x": float(x), "y": float(y)} for kind, (x, y) in zip(kinds, where, strict=True)]


def _draw(maps: dict[str, list[Row]], table: list[Row]) -> style.Figure:
    slots = 1 + max(point["slot"] for some in maps.values() for point in some)
    wide = style.DOUBLE / 3
    figure, axes = style.panels(1, len(maps), width=max(3.6, wide * len(maps)), height=3.0 if len(maps) > 1 else 3.9)
    for panel, (title, some), line in zip(axes[0], maps.items(), table, strict=True):
        style.bare(panel)
        _scatter(panel, some, slots)
        spread = [value for name, value in line.items() if name.startswith("circular")]
        panel.set_title(title)
        panel.set_xlabel(f"circular variance: pictures {spread[0]:.3f}, texts {spread[1]:.3f}", fontsize=6.5)
    if len(maps) > 1:
        style.letter(axes[0])
    _legend(figure, slots, across=6 if len(maps) > 1 else 3)
    return figure


def _scatter(panel: style.Axes, some: list[Row], slots: int) -> None:
    size = float(np.clip(5000 / len(some), 4, 22))
    for side, marker in MARKS.items():
        for slot in range(slots):
            own = [(p["x"], p["y"]) for p in some if p["side"] == side and p["slot"] == slot]
            if own:
                x, y = zip(*own, strict=True)
                hollow = side == "text"  # so that captions and pictures can be distinguished where points are dense
                colour = style.of_class(slot, slots)
                face: style.Options = {"facecolors": "none", "edgecolors": colour} if hollow else {"color": colour}
                panel.scatter(x, y, s=2 * size if hollow else size, marker=marker, linewidths=0.6, alpha=0.8, **face)


def _legend(figure: style.Figure, slots: int, *, across: int) -> None:
    from matplotlib.lines import Line2D

    dot: style.Options = {"linestyle": "none", "markersize": 4.5}
    faces = {"picture": style.GREY, "text": "none"}
    shapes = [
        Line2D([], [], marker=mark, color=style.GREY, markerfacecolor=faces[side], label=side, **dot)
        for side, mark in MARKS.items()
    ]
    colours = [
        Line2D([], [], marker="s", color=style.of_class(slot, slots), label=f"slot {slot + 1}", **dot)
        for slot in range(slots)
    ]
    figure.legend(handles=[*shapes, *colours], loc="outside lower center", ncols=min(across, len(shapes) + slots))
