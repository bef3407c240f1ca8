"""What a consistency loss does to the traditional method (supplement, Figure 1): two networks, with and without it."""

from __future__ import annotations

import json

import numpy as np

from matchlight.reproduce import style
from matchlight.reproduce.exhibits import MethodSetup, Result, Work
from matchlight.reproduce.numbers import Row, mean_and_spread
from matchlight.reproduce.sharing import INDEPENDENT, QUICK, SIDES, WAYS
from matchlight.runs.folder import Run

ETA = 0.1
WITHOUT = INDEPENDENT
WITH = MethodSetup("with", "semantic_sharing", {"variant": "independent", "consistency": ETA}, QUICK)
NAMES = {"consistency-": WITHOUT, "consistency+": WITH}
CURVES = {
    "f1_image": "pictures: Micro-F1",
    "f1_text": "texts: Micro-F1",
    "ndcg_i2t": "picture to text: NDCG@500",
    "ndcg_t2i": "text to picture: NDCG@500",
}
FACTS = [
    "traditional: a transformer and a label head a side (variant=independent); consistency+ adds the loss between "
    f"sides with eta = {ETA}",
    "the paper's figure prints no numbers; there the loss lowers the pictures' F1 and both NDCG, and leaves the texts'",
]


def consistency(work: Work) -> Result:
    """Micro-F1 and NDCG on val after every epoch, with and without a loss that pulls a pair's two sides together."""
    work.check(NAMES.values(), splits=("train", "val"))
    rows: list[Row] = []
    for seed in range(work.seeds):
        for name, one in NAMES.items():
            run = work.train(one, seed=seed)
            rows += [{"method": name, "seed": seed, **line} for line in epochs_of(run)]
    return work.save(rows, lambda: _draw(rows), table=_last(rows), facts=FACTS)


def epochs_of(run: Run) -> list[Row]:
    """What a run's log says of each epoch."""
    out = []
    for line in (run.folder / "log.jsonl").read_text(encoding="utf-8").splitlines():
        epoch = json.loads(line)
        values = {f"f1_{side}": epoch["val"]["micro_f1"][side] for side in SIDES}
        values |= {f"ndcg_{way}": epoch["val"]["ndcg"][way] for way in WAYS}
        out.append({"epoch": epoch["epoch"] + 1, **{name: values[name] for name in CURVES}})
    return out


def _last(rows: list[Row]) -> list[Row]:
    """The last epoch, the mean over seeds, and what the loss changes."""
    end = max(row["epoch"] for row in rows)
    out: list[Row] = []
    for name in NAMES:
        own = [row for row in rows if row["method"] == name and row["epoch"] == end]
        means = {title: float(np.mean([row[what] for row in own])) for what, title in CURVES.items()}
        out.append({"method": name, "epoch": end, **means})
    without, with_loss = out
    return [*out, {"method": "difference", **{t: with_loss[t] - without[t] for t in CURVES.values()}}]


def _draw(rows: list[Row]) -> style.Figure:
    """As printed: solid with the loss, dotted without."""
    figure, axes = style.panels(2, 2, sharex=True, height=4.3)
    looks = style.lines_of(list(NAMES))
    dashes = {"consistency-": (0, (1.5, 1.5)), "consistency+": "-"}
    for panel, (what, title) in zip(axes.flat, CURVES.items(), strict=True):
        for name in NAMES:
            own = [row for row in rows if row["method"] == name]
            epochs = sorted({row["epoch"] for row in own})
            seeds = sorted({row["seed"] for row in own})
            mean, spread = mean_and_spread([[row[what] for row in own if row["seed"] == seed] for seed in seeds])
            line = {**looks[name], "linestyle": dashes[name], "markevery": max(1, len(epochs) // 12)}
            style.band(panel, epochs, 100 * mean, 100 * spread, label=name, **line)
        panel.set_title(title)
    for panel in axes[1]:
        panel.set_xlabel("epoch")
        style.whole_numbers(panel.xaxis)
    for panel in axes[:, 0]:
        panel.set_ylabel("validation split (%)")
    style.letter(axes.flat)
    style.legend_below(figure, axes[0][0])
    return figure
