"""NCR's tables of the supplement: recall on COCO 5K (Table 2) and PMRP on COCO 1K (Table 3), by method and noise.

SGR* is SGR with a warm-up that has no hard negatives, SGR-C the same on the clean pairs alone, NCR trains through the
noise. Any data with pictures and captions makes both tables; PMRP needs labels of the pictures as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from matchlight.core import BadInput
from matchlight.data.noise import mismatch
from matchlight.measuring.protocols import figure
from matchlight.reproduce import style
from matchlight.reproduce.exhibit_page import run_facts
from matchlight.reproduce.exhibits import MethodSetup, Paths, Result, Work, paths_of
from matchlight.reproduce.ncr_runs import NCR
from matchlight.reproduce.numbers import Row, mean_and_spread
from matchlight.reproduce.recalls import RECALLS, columns, recalls
from matchlight.runs.folder import Run

QUICK = {"epochs": 2, "dim": 128, "word_dim": 64}
QUICKLY_WARM = {**QUICK, "warm": 1}
SCAN, IMRAM, SAF, PLAIN_SGR, SGRAF = (
    MethodSetup(shown, shown.lower(), quick=QUICK) for shown in ("SCAN", "IMRAM", "SAF", "SGR", "SGRAF")
)
VSRN = MethodSetup("VSRN", "vsrn", quick=QUICKLY_WARM)
SGR = MethodSetup("SGR*", "sgr", quick=QUICKLY_WARM, usual={"warm": 5})
CLEAN = MethodSetup("SGR-C", "sgr", quick=QUICKLY_WARM, usual={"warm": 5})
SGR_3 = MethodSetup("SGR", "sgr", quick=QUICKLY_WARM, usual={"warm": 5})  # Table 3 has SGR*'s recalls under this name
WITHOUT_NOISE = (SCAN, VSRN, IMRAM, SAF, PLAIN_SGR, SGRAF, NCR)
WITH_NOISE = (SCAN, VSRN, IMRAM, SAF, SGR, CLEAN, NCR)
FOLD = 1000
SOURCE_5K = "NCR, supplement, Table 2, COCO 5K; - is not given there"
SOURCE_PMRP = "NCR, supplement, Table 3, COCO 1K (mean of five folds)"
Printed = Mapping[tuple[float, str], Sequence[float | None]]
PUBLISHED_5K: Printed = {
    (0.0, "SCAN"): (44.7, 75.9, 86.6, 33.3, 63.5, 75.4),
    (0.0, "VSRN"): (53.0, 81.1, 89.4, 40.5, 70.6, 81.1),
    (0.0, "IMRAM"): (53.7, 83.2, 91.0, 39.7, 69.1, 79.8),
    (0.0, "SAF"): (53.3, None, 90.1, 39.8, None, 80.2),
    (0.0, "SGR"): (56.9, None, 90.5, 40.2, None, 79.8),
    (0.0, "SGRAF"): (57.8, None, 91.6, 41.9, None, 81.3),
    (0.0, "NCR"): (58.2, 84.2, 91.5, 41.7, 71.0, 81.3),
    (0.2, "SCAN"): (42.4, 72.1, 82.6, 22.8, 52.3, 66.3),
    (0.2, "VSRN"): (8.9, 26.5, 40.2, 5.7, 20.3, 31.4),
    (0.2, "IMRAM"): (44.3, 75.5, 85.7, 34.1, 63.1, 74.5),
    (0.2, "SAF"): (42.7, 73.8, 83.7, 31.6, 60.8, 72.9),
    (0.2, "SGR*"): (44.6, 73.5, 83.7, 31.4, 60.4, 72.4),
    (0.2, "SGR-C"): (53.4, 81.5, 89.3, 38.4, 67.8, 78.8),
    (0.2, "NCR"): (56.9, 83.6, 91.0, 40.6, 69.8, 80.1),
    (0.5, "SCAN"): (18.5, 44.5, 58.9, 2.2, 6.2, 9.6),
    (0.5, "VSRN"): (8.3, 25.4, 37.7, 4.8, 18.1, 29.2),
    (0.5, "IMRAM"): (5.0, 23.0, 38.5, 8.1, 26.0, 38.3),
    (0.5, "SAF"): (10.4, 32.8, 48.2, 15.2, 38.3, 51.9),
    (0.5, "SGR*"): (36.4, 64.8, 77.1, 26.0, 52.9, 64.3),
    (0.5, "SGR-C"): (50.1, 77.4, 86.8, 35.4, 64.5, 76.0),
    (0.5, "NCR"): (53.1, 80.7, 88.5, 37.9, 66.6, 77.8),
}
PUBLISHED_PMRP: Printed = {  # R@1, R@5, R@10, PMRP, each way
    (0.2, "SGR"): (67.8, 91.7, 96.2, 22.0, 52.9, 83.5, 90.1, 23.9),
    (0.2, "NCR"): (77.7, 95.5, 98.2, 47.2, 62.5, 89.3, 95.3, 47.7),
    (0.5, "SGR"): (60.6, 87.4, 93.6, 16.5, 46.0, 74.2, 79.0, 18.8),
    (0.5, "NCR"): (74.6, 94.6, 97.8, 46.2, 59.1, 87.8, 94.5, 46.7),
}
PMRP_COLUMNS = [f"{way} {what}" for way in ("i2t", "t2i") for what in ("R@1", "R@5", "R@10", "PMRP")]


@dataclass(frozen=True)
class Place:
    """One line of a table: a method at a share of noise; or a score file, whose noise nobody knows."""

    method: str
    noise: float | None = None

    @property
    def row(self) -> Row:
        """How the line begins."""
        return {"method": self.method} if self.noise is None else {"noise": self.noise, "method": self.method}

    @property
    def shown(self) -> Row:
        """How the line begins in a table for people."""
        return {"method": self.method} if self.noise is None else {"noise": f"{self.noise:.0%}", "method": self.method}


# ---- the two tables --------------------------------------------------------------------------------------------------


def recall_5k(work: Work, *, noise: float | None = None, scores: Paths | None = None) -> Result:
    """R@1, R@5, R@10 both ways and rsum on the whole test split, by method and noise."""
    work.check_splits(work.split)
    shares = (0.0, 0.2, 0.5) if noise is None else (noise,)
    asked = {share: WITH_NOISE if share else WITHOUT_NOISE for share in shares}
    rows, facts = _rows(work, asked, lambda source: recalls(work, source), noise=noise, scores=scores)
    printed = [
        {**Place(method, share).shown, **_figures(columns(), six), "rsum": _sum(six)}
        for (share, method), six in PUBLISHED_5K.items()
    ]
    beside = {place: _sum(six) for place, six in PUBLISHED_5K.items()}
    return work.save(
        rows,
        lambda: _draw(rows, {"rsum": "rsum"}, {"rsum": beside}, "published, COCO 5K"),
        table=_means(rows),
        facts=[f"split {work.split}, {_galleries(work.fold)}", *facts],
        published=[{name: _entry(value) for name, value in line.items()} for line in printed],
        source=SOURCE_5K,
    )


def pmrp(work: Work, *, noise: float | None = None, scores: Paths | None = None) -> Result:
    """Recalls and plausible-match R-precision both ways by method and noise; in folds of 1,000 where there are two."""
    work.check_splits(work.split)
    fold = work.fold or (FOLD if len(work.pairs.pictures_of(work.split)) >= 2 * FOLD else None)

    def measure(source: Run | Path) -> Row:
        found = recalls(work, source, fold=fold)
        plausible = None
        if work.pairs.labels is not None:
            plausible = work.measured(source, protocol="pmrp", fold=fold)
        found |= {f"{way} PMRP": None if plausible is None else figure(plausible, way) for way in ("i2t", "t2i")}
        return {name: found[name] for name in PMRP_COLUMNS}

    asked = dict.fromkeys((0.2, 0.5) if noise is None else (noise,), (SGR_3, NCR))
    rows, facts = _rows(work, asked, measure, noise=noise, scores=scores)
    facts.append("SGR warms up without hard negatives: its published recalls are those of SGR* on COCO 1K")
    if work.pairs.labels is None:
        facts.append("no PMRP: it needs labels of the pictures, and this data has none; `matchlight data labels`")
    what = "R@1" if work.pairs.labels is None else "PMRP"
    shown = {f"{way} {what}": f"{what}, {title}" for way, title in style.WAYS.items()}
    beside = {
        name: {place: values[PMRP_COLUMNS.index(name)] for place, values in PUBLISHED_PMRP.items()} for name in shown
    }
    return work.save(
        rows,
        lambda: _draw(rows, shown, beside, "published, COCO 1K"),
        table=_means(rows),
        facts=[f"split {work.split}, {_galleries(fold)}", *facts],
        published=[
            {**Place(method, share).shown, **_figures(PMRP_COLUMNS, values)}
            for (share, method), values in PUBLISHED_PMRP.items()
        ],
        source=SOURCE_PMRP,
    )


def _galleries(fold: int | None) -> str:
    return "one gallery" if fold is None else f"the mean over galleries of {fold:,} pictures"


def _figures(names: Sequence[str], values: Sequence[float | None]) -> Row:
    return {name: _entry(value) for name, value in zip(names, values, strict=True)}


def _entry(value: object) -> object:
    return f"{value:.1f}" if isinstance(value, float) else value


def _sum(six: Sequence[float | None]) -> float | None:
    """The sum of six recalls, where all of them are printed."""
    known = [value for value in six if value is not None]
    return sum(known) if len(known) == len(RECALLS) else None


# ---- what is measured ------------------------------------------------------------------------------------------------


def _rows(
    work: Work,
    asked: Mapping[float, Sequence[MethodSetup]],
    measure: Callable[[Run | Path], Row],
    *,
    noise: float | None,
    scores: Paths | None,
) -> tuple[list[Row], list[str]]:
    """(a row a line and seed, a fact about each kind of run): of score files, else of runs trained here."""
    if scores is not None:
        work.check_idle()
        if noise is not None:
            raise BadInput(f"{work.name} trains nothing here, so --noise means nothing; score files have theirs")
        return [{**Place(path.stem).row, "seed": 0, **measure(path)} for path in paths_of(scores)], []
    work.check([one for setups in asked.values() for one in setups])
    rows: list[Row] = []
    facts: dict[str, None] = {}
    for seed in range(work.seeds):
        for share, setups in asked.items():
            for one in setups:
                run = _trained(work, one, share, seed)
                rows.append({**Place(one.shown, share).row, "seed": seed, **measure(run)})
                facts.setdefault(run_facts(one.shown, run))
    return rows, list(facts)


def _trained(work: Work, one: MethodSetup, share: float, seed: int) -> Run:
    broken, truth = mismatch(work.pairs, ratio=share, seed=seed) if share else (work.pairs, None)
    if one is CLEAN and truth is not None:
        kept = np.flatnonzero(truth.clean(np.arange(len(broken))))
        broken = broken.select(np.arange(len(broken.names)), kept)
    return work.train(one, pairs=broken, seed=seed)


def _means(rows: Sequence[Row]) -> list[Row]:
    """A line a method and share of noise: means over seeds, with the deviation where there are several."""
    out = []
    for key in dict.fromkeys((row.get("noise"), row["method"]) for row in rows):
        mine = [row for row in rows if (row.get("noise"), row["method"]) == key]
        line: Row = Place(key[1], key[0]).shown
        for name in [name for name in mine[0] if name not in ("noise", "method", "seed")]:
            values = [row[name] for row in mine if row[name] is not None]
            mean, spread = mean_and_spread(values) if values else (np.nan, 0.0)
            several = f" ± {float(spread):.1f}" if len(values) > 1 else ""
            line[name] = f"{float(mean):.1f}{several}" if values else None
        out.append(line)
    return out


# ---- the figure ------------------------------------------------------------------------------------------------------

Beside = Mapping[tuple[float, str], float | None]


def _draw(rows: Sequence[Row], measures: Mapping[str, str], printed: Mapping[str, Beside], whose: str) -> style.Figure:
    """A column of panels a share of noise, a line of them a measure: bars by method, and a mark at what was printed."""
    shares = list(dict.fromkeys(row.get("noise") for row in rows))
    most = max(len(_methods(rows, share)) for share in shares)
    height = 0.55 + (0.5 + 0.24 * most) * len(measures)
    figure, axes = style.panels(len(measures), len(shares), height=height, sharex="row")
    for line, (name, title) in zip(axes, measures.items(), strict=True):
        for panel, share in zip(line, shares, strict=True):
            methods = _methods(rows, share)
            places = np.arange(len(methods))[::-1]
            mean, spread = np.array([_at(rows, method, share, name) for method in methods]).T
            error = spread if (spread > 0).any() else None
            panel.barh(places, mean, 0.62, xerr=error, color=style.COLOURS[0], alpha=0.85, label="measured here")
            beside = [printed[name].get((share, method)) if share is not None else None for method in methods]
            marks = [np.nan if value is None else value for value in beside]
            look: style.Options = {"marker": "D", "facecolors": "none", "edgecolors": style.COLOURS[1], "s": 22}
            panel.scatter(marks, places, zorder=3, label=whose, **look)
            panel.set_yticks(places, methods)
            panel.set(xlabel=title, ylim=(-0.6, len(methods) - 0.4))
            panel.set_title("score files" if share is None else f"{share:.0%} mismatched")
            panel.grid(axis="y", visible=False)
    style.legend_below(figure, axes[0][0])
    return figure


def _methods(rows: Sequence[Row], share: float | None) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in rows if row.get("noise") == share))


def _at(rows: Sequence[Row], method: str, share: float | None, name: str) -> tuple[float, float]:
    mean, spread = mean_and_spread([r[name] for r in rows if r["method"] == method and r.get("noise") == share])
    return float(mean), float(spread)
