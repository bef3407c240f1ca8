"""What a comparison costs (DivE's table): one vector (VSE-infinity = 1), sets of vectors (DivE), attention (SCAN).

Features are encoded already: the clock runs over the scores of all pairs and the ten best of each query, both ways, on
the device. What is shown makes no difference, so random unit vectors stand in for embeddings; how many pictures,
captions and words there are comes from the data. FLOPs are those of one pair, products only. SCAN is timed twice, as
the papers' programs score it (a loop over captions, here on a sample, scaled) and as Matchlight does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from matchlight.comparing import speed
from matchlight.comparing.caption_loop import CaptionLoop
from matchlight.core import BadInput, Embedding, Matcher
from matchlight.inputs.text import tokenize
from matchlight.measuring.protocols.measured import Unfit
from matchlight.parts.set_similarities import SmoothChamfer
from matchlight.parts.similarities import Dot
from matchlight.reproduce import style
from matchlight.reproduce.exhibits import Result, Work
from matchlight.reproduce.numbers import Row
from matchlight.runs.evaluation import products_in
from matchlight.scoring.all_pairs import held_scores
from matchlight.training.arguments import Value, converted
from matchlight.training.registry import nearest

TOP, SAMPLE, RUNS = 10, 50, 10
SIZES = {"dim": 1024, "slots": 4}
VSE, SETS, LOOP, OURS = "VSE-infinity", "DivE", "SCAN, caption by caption", "SCAN, as here"
PUBLISHED = {VSE: (1, 159), SETS: (16, 168), "SCAN": (1280, 198_121)}  # FLOPs, milliseconds
SOURCE = "validation pictures of Flickr30K, ten best, DivE's supplement"


def flops(dim: int, slots: int, words: float) -> dict[str, float]:
    """Of one pair: every vector with every vector; SCAN also forms attended vectors and takes their cosines."""
    scan = 4.0 * speed.REGIONS * words * dim + 2 * words * dim
    return {VSE: 2.0 * dim, SETS: 2.0 * dim * slots**2 + 2 * slots**2, LOOP: scan, OURS: scan}


def best(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The ten best captions of each picture, the ten best pictures of each caption."""
    return scores.topk(min(TOP, scores.shape[1]), 1).indices, scores.topk(min(TOP, scores.shape[0]), 0).indices


def answered(matcher: Matcher, images: Embedding, texts: Embedding) -> Callable[[], object]:
    """Scores and the best of them, as one piece of work to time."""
    return lambda: best(held_scores(matcher, images, texts))


def unit_sets(count: int, slots: int, dim: int, device: torch.device, seed: int) -> Embedding:
    """Random sets of unit vectors."""
    return Embedding(speed.unit_vectors(count, slots, dim, device=device, seed=seed))


def unit_words(lengths: Tensor, dim: int, device: torch.device) -> Embedding:
    """Captions of these lengths as random unit vectors a word, as SCAN reads them."""
    mask = (torch.arange(int(lengths.max()))[None] < lengths[:, None]).to(device)
    return Embedding(speed.unit_vectors(*mask.shape, dim, device=device, seed=1) * mask[..., None], mask)


@torch.inference_mode()
def timed(pictures: int, lengths: Tensor, *, dim: int, slots: int, device: torch.device, runs: int) -> list[Row]:
    """One row a method: FLOPs of a pair and seconds of all answers, and both beside VSE-infinity's."""
    captions = len(lengths)
    regions = unit_sets(pictures, speed.REGIONS, dim, device, 4)
    words = unit_words(lengths, dim, device)
    scan = speed.built("scan", dim).matcher().to(device).eval()
    few = words.take(torch.linspace(0, captions - 1, min(captions, SAMPLE)).long().to(device))
    loop, one, many = CaptionLoop(scan.similarity, "scan"), Matcher({}, Dot()), Matcher({}, SmoothChamfer())
    single, sets = ([unit_sets(n, k, dim, device, n) for n in (pictures, captions)] for k in (1, slots))
    work: dict[str, tuple[Callable[[], object], float]] = {
        VSE: (answered(one, *single), 1.0),
        SETS: (answered(many, *sets), 1.0),
        LOOP: (lambda: best(loop(regions, few)), captions / len(few)),
        OURS: (answered(scan, regions, words), 1.0),
    }
    each = flops(dim, slots, float(lengths.float().mean()))
    rows: list[Row] = []
    for name, (answer, times) in work.items():
        few_runs = runs if name in (VSE, SETS) else min(runs, 3)
        seconds = times * speed.seconds(answer, device, name, runs=few_runs)
        rows.append({"method": name, "flops": each[name], "milliseconds": 1000 * seconds})
    for row in rows:
        row |= {f"{what}_ratio": row[what] / rows[0][what] for what in ("flops", "milliseconds")}
    return rows


# ---- the exhibit -----------------------------------------------------------------------------------------------------


def cost(work: Work) -> Result:
    """FLOPs and latency of scoring a split and ranking it, VSE-infinity = 1; settings are dim and slots."""
    split = work.split
    work.check_splits(split)
    if work.pairs.text_features is not None:
        raise Unfit(f"{work.pairs.root}: its texts are vectors; words to count are needed")
    sizes, device = _sizes(work), speed.pick(work.device)
    first = work.galleries()[0]
    pictures, lengths = len(first.pictures), caption_lengths(work, split)[first.rows]
    with products_in("tf32", device):
        rows = timed(pictures, lengths, device=device, runs=3 if work.quick else RUNS, **sizes)
    cores = f"CPU, threads: {torch.get_num_threads()}"
    machine = torch.cuda.get_device_name(device) if device.type == "cuda" else cores
    counted = f"{pictures:,} pictures of {speed.REGIONS} regions x {len(lengths):,} captions ({split})"
    mean = f"{float(lengths.float().mean()):.1f} words on average, start and end counted"
    facts = [f"{counted}, {mean}", f"dim {sizes['dim']}, {sizes['slots']} x {sizes['slots']} vectors, on {machine}"]
    return work.save(
        rows,
        lambda: _draw(rows),
        table=[_line(row) for row in rows],
        facts=facts,
        published=[
            {"method": name, "FLOPs, ratio": ops, "latency (ms)": ms, "latency, ratio": f"{ms / 159:.2f}"}
            for name, (ops, ms) in PUBLISHED.items()
        ],
        source=SOURCE,
        machine=machine,
        dim=sizes["dim"],
        slots=sizes["slots"],
    )


def _sizes(work: Work) -> dict[str, int]:
    given = {name: value for name, value in work.settings.items() if name in SIZES or not work.lenient}
    for name in given:
        if name not in SIZES:
            raise BadInput(f"{work.name} trains nothing; it takes dim and slots, not {name!r}; {nearest(name, SIZES)}")
    usual = {**SIZES, "dim": 256} if work.quick else SIZES
    sizes = {**usual, **{name: _count(name, value) for name, value in given.items()}}
    if min(sizes.values()) < 1:
        raise BadInput(f"{work.name}: dim and slots must be at least 1")
    return sizes


def caption_lengths(work: Work, split: str) -> Tensor:
    """(captions,) words of each caption of a split, start and end counted."""
    counts = [len(tokenize(work.pairs.captions[row])) + 2 for row in work.pairs.rows(split)]
    return torch.from_numpy(np.array(counts, np.int64))


def _line(row: Row) -> Row:
    ratio = row["milliseconds_ratio"]
    return {
        "method": row["method"],
        "FLOPs a pair": f"{row['flops']:,.0f}",
        "FLOPs, ratio": f"{row['flops_ratio']:.1f}",
        "latency (ms)": f"{row['milliseconds']:,.2f}",
        "latency, ratio": f"{ratio:,.2f}",
    }


def _draw(rows: list[Row]) -> style.Figure:
    """Both ratios on logarithmic axes, here and as published."""
    figure, axes = style.panels(1, 2, height=2.3, sharey=True)
    names = [row["method"] for row in rows]
    printed = {VSE: VSE, SETS: SETS, LOOP: "SCAN"}
    places = np.arange(len(names))[::-1]
    for panel, what, k in zip(axes[0], ("flops_ratio", "milliseconds_ratio"), (0, 1), strict=True):
        here = [row[what] for row in rows]
        panel.barh(places + 0.19, here, 0.36, color=style.COLOURS[0], label="here")
        published = [PUBLISHED[printed[name]][k] / PUBLISHED[VSE][k] if name in printed else np.nan for name in names]
        panel.barh(places - 0.19, published, 0.36, color="#BBBBBB", hatch="////", edgecolor="white", label="published")
        for place, values in ((places + 0.19, here), (places - 0.19, published)):
            for y, value in zip(place, values, strict=True):
                if np.isfinite(value):
                    shown = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
                    panel.text(value * 1.15, y, shown, va="center", fontsize=6.5, color=style.GREY)
        panel.set_xscale("log")
        style.powers_of_ten(panel.xaxis)
        panel.set_xlim(0.5, 12 * max([*here, *(value for value in published if np.isfinite(value))]))
        panel.set_yticks(places, names)
        panel.set_ylim(-0.6, len(names) - 0.4)
        panel.grid(axis="y", visible=False)
    axes[0][0].set(title="FLOPs of a pair", xlabel="VSE-infinity = 1")
    axes[0][1].set(title="all scores and the ten best", xlabel="time, VSE-infinity = 1")
    style.letter(axes[0])
    style.legend_below(figure, axes[0][0])
    return figure


def _count(name: str, value: Value) -> int:
    number = converted(name, value, int)
    assert isinstance(number, int)
    return number
