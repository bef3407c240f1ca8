"""AOQ against simpler means (supplement, Table 1 and the end of section 1): larger batches, and a normal draw.

`aoq-batch`: does a batch of 192 in place of 128 do what mined negatives do? `aoq-draw`: does it matter whether places
in the lists are drawn uniformly or normally, around the middle?
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from matchlight.reproduce import style
from matchlight.reproduce.aoq_rounds import bases, first, fold_of, galleries, mined, second, title
from matchlight.reproduce.exhibit_page import run_facts
from matchlight.reproduce.exhibits import Result, Work
from matchlight.reproduce.numbers import Row, mean_and_spread
from matchlight.reproduce.recalls import over_seeds, printed, recalls
from matchlight.runs.folder import Run

SMALL, LARGE = 128, 192
PUBLISHED = {  # VSRN on COCO 1K
    f"VSRN, batch {SMALL}": (76.2, 94.8, 98.2, 62.8, 89.7, 95.1),
    f"VSRN, batch {LARGE}": (75.7, 95.0, 98.3, 62.4, 89.7, 95.2),
    f"VSRN + AOQ, batch {SMALL}": (77.5, 95.5, 98.6, 63.5, 90.5, 95.8),
}
SOURCE = "AOQ, COCO 1K: batch 192 from the supplement's Table 1, AOQ from its Table 2, batch 128 from the main paper"
NOT_PRINTED = "the paper calls the difference little and prints no figures"
Runs = dict[str, Run]


def batch_size(work: Work) -> Result:
    """Six recalls and rsum of the base with batches of 128 and of 192, and of AOQ with 128."""
    base = bases(work)[0]
    small, large = first(base, batch=SMALL), first(base, batch=LARGE)
    work.check((small, large, second(base, batch=SMALL)))

    def trained(seed: int) -> Runs:
        one, two = work.train(small, seed=seed), work.train(large, seed=seed)
        more = work.train(second(base, mined(work, base, one), batch=SMALL), seed=seed, start=one)
        name = title(base)
        return {f"{name}, batch {SMALL}": one, f"{name}, batch {LARGE}": two, f"{name} + AOQ, batch {SMALL}": more}

    rows, facts = _rows(work, [trained(seed) for seed in range(work.seeds)])
    few = len(work.pairs.rows("train"))
    if few < LARGE:
        facts.append(f"this data has {few} training pairs: a batch holds all of them, and the sizes do not differ")
    return work.save(
        rows,
        lambda: _draw(rows, list(PUBLISHED.values())),
        table=_table(rows),
        facts=facts,
        published=[{"model": name, **printed(six)} for name, six in PUBLISHED.items()],
        source=SOURCE,
    )


def draws(work: Work) -> Result:
    """Six recalls and rsum after a second round that draws uniformly, or normally, from the same lists."""
    base = bases(work)[0]
    work.check((first(base), second(base)))

    def trained(seed: int) -> Runs:
        one = work.train(first(base), seed=seed)
        lists = mined(work, base, one)
        by_draw = {"uniform": second(base, lists), "normal": second(base, lists, draw="normal")}
        seconds = {f"second, {how}": work.train(setup, seed=seed, start=one) for how, setup in by_draw.items()}
        return {"first round": one, **seconds}

    rows, facts = _rows(work, [trained(seed) for seed in range(work.seeds)])
    how = "normal: around the middle of a list, a sixth of its length as deviation, cut at its ends"
    return work.save(rows, lambda: _draw(rows), table=_table(rows), facts=[*facts, how, NOT_PRINTED])


def _rows(work: Work, by_seed: Sequence[Runs]) -> tuple[list[Row], list[str]]:
    """A row a model and seed, and facts: how it was measured, and each kind of run."""
    fold = fold_of(work)
    rows = [
        {"model": name, "seed": seed, **recalls(work, run, fold=fold)}
        for seed, runs in enumerate(by_seed)
        for name, run in runs.items()
    ]
    facts = [f"split {work.split}, {galleries(fold)}"]
    return rows, facts + [run_facts(name, run) for name, run in by_seed[0].items()]


def _table(rows: Sequence[Row]) -> list[Row]:
    names = dict.fromkeys(row["model"] for row in rows)
    return [{"model": name, **over_seeds([row for row in rows if row["model"] == name])} for name in names]


def _draw(rows: Sequence[Row], published: Sequence[Sequence[float]] = ()) -> style.Figure:
    """Bars of R@1 both ways and of rsum by model; marks at what was printed for it."""
    names = list(dict.fromkeys(row["model"] for row in rows))
    figure, axes = style.panels(1, 3, height=1.9, sharey=True)
    places = np.arange(len(names))[::-1]
    beside = {"i2t R@1": [six[0] for six in published], "t2i R@1": [six[3] for six in published]}
    beside["rsum"] = [sum(six) for six in published]
    heads = {"i2t R@1": "R@1, picture to text", "t2i R@1": "R@1, text to picture", "rsum": "rsum"}
    for panel, (what, head) in zip(axes[0], heads.items(), strict=True):
        values = [mean_and_spread([row[what] for row in rows if row["model"] == name]) for name in names]
        mean, spread = np.array(values).T
        error = spread if (spread > 0).any() else None
        panel.barh(places, mean, 0.6, xerr=error, color=style.COLOURS[0], alpha=0.85, label="measured here")
        if published:
            look: style.Options = {"marker": "D", "facecolors": "none", "edgecolors": style.COLOURS[1], "s": 22}
            panel.scatter(beside[what], places, zorder=3, label="published: VSRN, COCO 1K", **look)
        panel.set_yticks(places, names)
        panel.set(xlabel=head, xlim=(0, None))
        panel.grid(axis="y", visible=False)
        style.few_ticks(panel.xaxis)
    if published:
        style.legend_below(figure, axes[0][0])
    return figure
