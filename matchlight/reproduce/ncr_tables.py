"""NCR's tables of the supplement: recall on COCO 5K, and PMRP on COCO 1K, by method and share of mismatched pairs.

SGR* is SGR with a warm-up that has no hard negatives, SGR-C the same on the clean pairs alone, NCR trains through the
noise. Any data with pictures and captions makes the first table, any with labels of the pictures the second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from matchlight.core import BadInput
from matchlight.data.noise import mismatch
from matchlight.measuring.protocols import Report, figure
from matchlight.measuring.referee import evaluate_file
from matchlight.pairs import Pairs
from matchlight.reproduce import style
from matchlight.reproduce.exhibit_page import run_facts
from matchlight.reproduce.exhibits import MethodSetup, Paths, Result, Work, paths_of
from matchlight.reproduce.ncr_runs import NCR
from matchlight.reproduce.numbers import Row, mean_and_spread
from matchlight.runs.folder import Run

SGR = MethodSetup("SGR*", "sgr", quick={"epochs": 4}, usual={"warm": 5})
CLEAN = MethodSetup("SGR-C", "sgr", quick={"epochs": 4}, usual={"warm": 5})
NOISE = (0.0, 0.2, 0.5)
RECALLS = [(side, f"r{k}") for side in ("i2t", "t2i") for k in (1, 5, 10)]
FOLD = 1000
SOURCE_5K = "NCR, supplement, COCO 5K"
SOURCE_PMRP = "NCR, supplement, PMRP on COCO 1K (mean of five folds); without noise, of other papers on the same"
PUBLISHED_5K = {
    (0.0, "NCR"): (58.2, 84.2, 91.5, 41.7, 71.0, 81.3),
    (0.2, "SGR*"): (44.6, 73.5, 83.7, 31.4, 60.4, 72.4),
    (0.2, "SGR-C"): (53.4, 81.5, 89.3, 38.4, 67.8, 78.8),
    (0.2, "NCR"): (56.9, 83.6, 91.0, 40.6, 69.8, 80.1),
    (0.5, "SGR*"): (36.4, 64.8, 77.1, 26.0, 52.9, 64.3),
    (0.5, "SGR-C"): (50.1, 77.4, 86.8, 35.4, 64.5, 76.0),
    (0.5, "NCR"): (53.1, 80.7, 88.5, 37.9, 66.6, 77.8),
}
PUBLISHED_PMRP = {
    (0.0, "PVSE, one vector"): (40.3, 41.8),
    (0.0, "PVSE, two vectors"): (42.8, 43.6),
    (0.0, "VSRN"): (41.2, 42.4),
    (0.0, "VSRN + AOQ"): (44.7, 45.6),
    (0.0, "PCME"): (45.0, 46.0),
    (0.2, "SGR"): (22.0, 23.9),
    (0.2, "NCR"): (47.2, 47.7),
    (0.5, "SGR"): (16.5, 18.8),
    (0.5, "NCR"): (46.2, 46.7),
}


class Asked(TypedDict, total=False):
    """How a table is measured."""

    split: str
    protocol: str
    fold: int | None


@dataclass(frozen=True)
class Place:
    """One line of a table: a method at a share of noise; or a score file, whose noise nobody knows."""

    method: str
    noise: float | None = None

    @property
    def row(self) -> Row:
        """How the line begins."""
        return {"method": self.method} if self.noise is None else {"method": self.method, "noise": self.noise}

    @property
    def shown(self) -> Row:
        """How the line begins in a table for people."""
        return {"method": self.method} if self.noise is None else {"method": self.method, "noise": f"{self.noise:.0%}"}


def recall_5k(work: Work, *, noise: float | None = None, scores: Paths | None = None) -> Result:
    """R@1, R@5, R@10 both ways and rsum on the whole test split, by method and noise."""
    split = _split(work.pairs)
    work.check_splits(split)
    by_line, facts = _reports(work, (SGR, CLEAN, NCR), noise, scores, {"split": split, "protocol": "recall"})
    rows = [
        {**place.row, "seed": seed, **{f"{side} R@{name[1:]}": figure(each, side, name) for side, name in RECALLS}}
        | {"rsum": figure(each, "rsum")}
        for place, reports in by_line.items()
        for seed, each in enumerate(reports)
    ]
    names = [f"{side} R@{name[1:]}" for side, name in RECALLS]
    printed = _printed({place: (*six, sum(six)) for place, six in PUBLISHED_5K.items()}, [*names, "rsum"])
    return work.save(
        rows,
        lambda: _draw(rows, {"rsum": "rsum"}),
        table=_means(rows),
        facts=[f"split {split}, protocol recall (one gallery)", *facts],
        published=printed,
        source=SOURCE_5K,
    )


def pmrp(work: Work, *, noise: float | None = None, scores: Paths | None = None) -> Result:
    """Plausible-match R-precision both ways by method and noise; in folds of 1,000 pictures where there are two."""
    split = _split(work.pairs)
    work.check_splits(split)
    if work.pairs.labels is None:
        raise BadInput(
            f"{work.pairs.root}: {work.name} needs labels of the pictures; `matchlight data labels` makes some"
        )
    fold = FOLD if len(work.pairs.pictures_of(split)) >= 2 * FOLD else None
    asked: Asked = {"split": split, "protocol": "pmrp", "fold": fold}
    by_line, facts = _reports(work, (SGR, NCR), noise, scores, asked)
    rows = [
        {**place.row, "seed": seed, "i2t": figure(each, "i2t"), "t2i": figure(each, "t2i")}
        for place, reports in by_line.items()
        for seed, each in enumerate(reports)
    ]
    how = f"folds of {FOLD} pictures" if fold else "one gallery"
    return work.save(
        rows,
        lambda: _draw(rows, {"i2t": "PMRP, picture to text", "t2i": "PMRP, text to picture"}),
        table=_means(rows),
        facts=[f"split {split}, protocol pmrp ({how})", *facts],
        published=_printed(PUBLISHED_PMRP, ["i2t", "t2i"]),
        source=SOURCE_PMRP,
    )


def _printed(figures: Mapping[tuple[float, str], Sequence[float]], names: Sequence[str]) -> list[Row]:
    """Published figures as lines of a table."""
    return [
        {**Place(method, share).shown, **{name: f"{value:.1f}" for name, value in zip(names, values, strict=True)}}
        for (share, method), values in figures.items()
    ]


def _split(pairs: Pairs) -> str:
    """The full test split of SCAN's COCO folder, else the test split."""
    return "testall" if "testall" in pairs.split_names else "test"


# ---- what is measured ------------------------------------------------------------------------------------------------


def _reports(
    work: Work, setups: Sequence[MethodSetup], noise: float | None, scores: Paths | None, asked: Asked
) -> tuple[dict[Place, list[Report]], list[str]]:
    """(reports by line, one a seed; a fact about each run): of score files, else of runs trained here."""
    if scores is not None:
        work.check_idle()
        if noise is not None:
            raise BadInput(f"{work.name} trains nothing here, so --noise means nothing; score files have theirs")
        return {Place(path.stem): [evaluate_file(path, work.pairs, **asked)] for path in paths_of(scores)}, []
    work.check(setups)
    reports: dict[Place, list[Report]] = {}
    facts: dict[str, None] = {}
    for seed in range(work.seeds):
        for share in NOISE if noise is None else (noise,):
            for one in setups if share else setups[-1:]:  # without noise the paper has NCR alone
                run = _trained(work, one, share, seed)
                reports.setdefault(Place(one.shown, share), []).append(work.measured(run, **asked))
                facts.setdefault(run_facts(one.shown, run))
    return reports, list(facts)


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
            mean, spread = mean_and_spread([row[name] for row in mine])
            line[name] = f"{float(mean):.1f}" + (f" ± {float(spread):.1f}" if len(mine) > 1 else "")
        out.append(line)
    return out


# ---- the figure ------------------------------------------------------------------------------------------------------


def _draw(rows: Sequence[Row], measures: dict[str, str]) -> style.Figure:
    """Bars by share of noise, a colour a method; a panel a measure."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    shares = list(dict.fromkeys(row.get("noise") for row in rows))
    figure, axes = style.panels(1, len(measures), height=2.7)
    wide = 0.8 / len(methods)
    for panel, (name, title) in zip(axes[0], measures.items(), strict=True):
        for k, method in enumerate(methods):
            means = [_at(rows, method, share, name) for share in shares]
            places = np.arange(len(shares)) + (k - (len(methods) - 1) / 2) * wide
            look = {"color": style.COLOURS[k % len(style.COLOURS)], "edgecolor": "white", "linewidth": 0.5}
            panel.bar(places, [mean for mean, _ in means], wide, label=method, **look)
            for place, (mean, spread) in zip(places, means, strict=True):
                if spread:
                    panel.plot([place, place], [mean - spread, mean + spread], color="black", linewidth=0.8)
        panel.set_xticks(np.arange(len(shares)), ["" if s is None else f"{100 * s:g}%" for s in shares])
        panel.set(xlabel="mismatched training pairs", ylabel=title)
        panel.grid(axis="x", visible=False)
    style.legend_below(figure, axes[0][0])
    return figure


def _at(rows: Sequence[Row], method: str, share: float | None, name: str) -> tuple[float, float]:
    values = [row[name] for row in rows if row["method"] == method and row.get("noise") == share]
    if not values:
        return float("nan"), 0.0  # nothing measured: no bar
    mean, spread = mean_and_spread(values)
    return float(mean), float(spread)
