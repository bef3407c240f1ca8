"""AOQ's cost (supplement, Table 3): a step of the second round beside a plain step of its base, forward to update.

Negatives are drawn from random lists, so that next to nothing is shared between a batch and its companions: the costly
case. Plain and second-round steps take turns, and the median of each counts.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from matchlight.core import Batch, Objective
from matchlight.devices import pick_device, pick_precision
from matchlight.inputs.batches import collate, seeded
from matchlight.inputs.prepare import prepare, view_of
from matchlight.measuring.protocols.measured import Unfit
from matchlight.methods.captioning import Described
from matchlight.methods.quintuplets import KINDS, Draw, Quintuplets
from matchlight.pairs import Pairs
from matchlight.reproduce import style
from matchlight.reproduce.exhibits import Arguments, MethodSetup, Result, Work
from matchlight.reproduce.numbers import Row
from matchlight.training.contract import Phase
from matchlight.training.mining import Candidates
from matchlight.training.mining.filters import Grouped
from matchlight.training.registry import Chosen, find, settings_of
from matchlight.training.trainer import Trainer

BASES, QUICK_BASES = ("vsrn", "scan"), ("vse_infty",)
STEPS, QUICK_STEPS, WARM, BATCHES = 30, 5, 3, 4
TITLES = {"plain": "plain", "offtri": "OffTri", "offquin": "OffQuin", "adapoffquin": "AdapOffQuin"}
PUBLISHED = {"plain": 1.096, "offtri": 1.489, "offquin": 1.557, "adapoffquin": 1.604}  # seconds
SOURCE = "VSRN, batch 128, GTX 1080 Ti, AOQ's supplement, Table 3"


def clock(device: torch.device) -> float:
    """Seconds of a GPU, once it has done what it was asked to; core-seconds on a CPU, which others may be using too."""
    if device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def random_lists(pairs: Pairs, rows: np.ndarray, *, depth: int) -> Candidates:
    """Lists that name other pictures, and other pictures' captions, at random."""
    rng = np.random.default_rng(0)
    pictures, own = np.unique(pairs.picture[rows], return_inverse=True)
    captions = Grouped(rows, own, len(pictures))
    away = rng.integers(1, len(pictures), (len(pictures), depth))
    others = (np.arange(len(pictures))[:, None] + away) % len(pictures)
    texts = captions.some(others.ravel(), rng.random(others.size)).reshape(others.shape)
    few = max(1, depth * len(pictures) // len(rows))
    images = pictures[(own[:, None] + rng.integers(1, len(pictures), (len(rows), few))) % len(pictures)]
    return Candidates(pictures, rows, texts, images)


def second_round(
    base: str, pairs: Pairs, folder: str, *, settings: Arguments, where: torch.device, precision: str
) -> Trainer:
    """The second round's network, whose step without companions is the base's own."""
    chosen = Chosen.of(find("aoq"), {"base": base})
    known = {name: value for name, value in settings.items() if name in {*chosen.defaults, "preset"}}
    count = len(pairs.rows("train"))
    given, _ = settings_of(chosen.method, {**known, "base": base, "first": 1}, pairs=count, device=where.type)
    inputs = prepare(pairs, view_of(given, pooled=chosen.pooled, pairs=pairs), device=where)
    return Trainer(Path(folder), chosen.build(inputs.sizes, **given), inputs, device=where, precision=precision)


def batches(run: Trainer, kind: str, *, depth: int = 300) -> list[Batch]:
    """Batches of one kind, on the device; plain ones have no companions."""
    draw = None
    if kind != "plain":
        draw = Draw(random_lists(run.pairs, run.rows, depth=depth), run.pairs.picture, depth, links=KINDS[kind])
    made = []
    for step in range(BATCHES):
        some = seeded(7, step).choice(run.rows, min(run.recipe.batch, len(run.rows)), replace=False)
        more = draw(some, seeded(8, step)) if draw else None
        made.append(collate(run.table, some, more=more).to(run.device))
    return made


def quintuplets_of(objective: Objective) -> Quintuplets:
    """The part that ranks, behind captioning where there is some."""
    ranking = objective.ranking if isinstance(objective, Described) else objective
    assert isinstance(ranking, Quintuplets)
    return ranking


def medians(run: Trainer, *, steps: int) -> dict[str, float]:
    """Seconds a step, by kind; kinds take turns."""
    network, phase = run.networks["A"], Phase(rows=run.rows)
    network.matcher.train()
    prepared = {kind: batches(run, kind) for kind in TITLES}
    taken: dict[str, list[float]] = {kind: [] for kind in TITLES}
    for step in range(steps + WARM):
        for kind, made in prepared.items():
            quintuplets_of(network.objective).kind = "adapoffquin" if kind == "plain" else kind
            began = clock(run.device)
            run._step(network, phase, made[step % BATCHES], steps)
            if step >= WARM:
                taken[kind].append(clock(run.device) - began)
        run.losses.clear()
        run.seen.clear()
    return {kind: float(np.median(times)) for kind, times in taken.items()}


def measure(base: str, pairs: Pairs, *, settings: Arguments, steps: int, where: torch.device, precision: str) -> Row:
    """Seconds of each kind of step and their ratio to the plain one, for one base."""
    if len(np.unique(pairs.picture[pairs.rows("train")])) < 2:
        raise Unfit(f"{pairs.root}: a second round needs two training pictures at least")
    with tempfile.TemporaryDirectory() as folder:
        run = second_round(base, pairs, folder, settings=settings, where=where, precision=precision)
        times = medians(run, steps=steps)
    ratios = {kind: seconds / times["plain"] for kind, seconds in times.items()}
    return {"base": base, "batch": run.recipe.batch, "seconds": times, "ratio": ratios}


# ---- the exhibit -----------------------------------------------------------------------------------------------------


def cost(work: Work) -> Result:
    """Seconds of a training step, plain and with companions, on this data and machine."""
    asked = work.settings.get("base")
    bases = (str(asked),) if asked else QUICK_BASES if work.quick else BASES
    work.check([MethodSetup(base, "aoq", {"base": base}) for base in bases], splits=("train",))
    where = pick_device(work.device)
    precision = pick_precision("auto", where)
    settings = {"preset": "small", **work.settings} if work.quick else work.settings
    steps = QUICK_STEPS if work.quick else STEPS
    by_base = [
        measure(base, work.pairs, settings=settings, steps=steps, where=where, precision=precision) for base in bases
    ]
    rows = [
        {"base": one["base"], "batch": one["batch"], "step": kind, "seconds": seconds, "ratio": one["ratio"][kind]}
        for one in by_base
        for kind, seconds in one["seconds"].items()
    ]
    machine = torch.cuda.get_device_name(where) if where.type == "cuda" else "CPU, core-seconds"
    facts = [f"median of {steps} steps each, in turns, {precision}, on {machine}; lists drawn at random"]
    return work.save(
        rows,
        lambda: _draw(rows),
        table=[{**row, "step": TITLES[row["step"]]} for row in rows],
        facts=facts,
        published=[
            {"step": TITLES[kind], "seconds": seconds, "ratio": seconds / PUBLISHED["plain"]}
            for kind, seconds in PUBLISHED.items()
        ],
        source=SOURCE,
        machine=machine,
        precision=precision,
    )


def _draw(rows: list[Row]) -> style.Figure:
    """Bars of the ratio to the plain step, by kind; the published ones are hatched."""
    bases = list(dict.fromkeys(row["base"] for row in rows))
    bars = [(base, [row["ratio"] for row in rows if row["base"] == base], f"{_plain(rows, base)}") for base in bases]
    bars.append(("VSRN, published", [seconds / PUBLISHED["plain"] for seconds in PUBLISHED.values()], "1.10 s"))
    figure, axes = style.panels(1, 1, width=4.8, height=2.7)
    panel, wide = axes[0][0], 0.8 / len(bars)
    for k, (name, ratios, plain) in enumerate(bars):
        last = k == len(bars) - 1
        look = {"color": "#BBBBBB" if last else style.COLOURS[k], "hatch": "////" if last else "", "edgecolor": "white"}
        places = np.arange(len(ratios)) + (k - (len(bars) - 1) / 2) * wide
        panel.bar(places, ratios, wide, label=f"{name} (plain step {plain})", linewidth=0.5, **look)
        for x, ratio in zip(places, ratios, strict=True):
            panel.text(x, ratio + 0.02, f"{ratio:.2f}", ha="center", va="bottom", fontsize=6.5, color=style.GREY)
    panel.set_xticks(np.arange(len(TITLES)), list(TITLES.values()))
    panel.set(ylabel="time of a step, plain = 1")
    panel.margins(y=0.12)
    panel.grid(axis="x", visible=False)
    style.legend_below(figure, panel, ncols=2)
    return figure


def _plain(rows: list[Row], base: str) -> str:
    seconds = next(row["seconds"] for row in rows if row["base"] == base and row["step"] == "plain")
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{1000 * seconds:.1f} ms"
