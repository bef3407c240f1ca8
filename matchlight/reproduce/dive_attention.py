"""DivE's attention maps: what every slot takes of a picture, round by round, and the caption nearest to its element.

A cell's share is what the softmax over slots gives a slot, before each slot's shares are made to sum to 1, the mean
over heads: 1 / slots means that nobody cares for the cell. The caption of an element is the one of the split that has
the element nearest to it. Of a vision transformer the class token, which has no place, is shared out like a cell, but
not drawn. `network=2` looks at the second network of an ensemble.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from matchlight.core import IMAGE, BadInput, Embedding
from matchlight.indexing.explain import Box, grid
from matchlight.inputs.batches import seeded
from matchlight.methods.slots import SetPrediction
from matchlight.pairs import Pairs
from matchlight.reproduce import style
from matchlight.reproduce.dive_runs import DIVE, asked_run, first_member
from matchlight.reproduce.exhibit_page import run_facts
from matchlight.reproduce.exhibits import Paths, Result, Work
from matchlight.reproduce.numbers import Row
from matchlight.reproduce.sheets import EDGE, GAP, HEAD, NOTE, Page, fits, picture, said, thumbnail, words
from matchlight.runs.folder import Run
from matchlight.scoring.encode import encode, encode_both

DIFFERENT, ALIKE, COUNTED = 2, 2, 500  # pictures drawn of either kind; pictures whose elements are counted
FINE = 48  # points a side of a map made of boxes
# Inches: the picture, a map, and how much lower than wide both are.
SEEN, MAP, RATIO = 1.35, 0.86, 0.75


@dataclass(frozen=True)
class Look:
    """One picture: its cells, what slots took of them by round, and the caption nearest to each slot's element."""

    place: int
    boxes: list[Box]
    shares: np.ndarray  # (rounds, slots, cells)
    rows: np.ndarray  # (slots,) captions
    cosines: np.ndarray  # (slots,)


def maps(work: Work, *, run: Paths | None = None, network: int = 1) -> Result:
    """Pictures with what each slot took of them and said of them: of captions that differ, and of a shared one."""
    work.check_splits(work.split)
    one = asked_run(work, run)
    if one is None:
        work.check((DIVE,))
        one = work.train(DIVE)
    one = alone(one, network)
    counted, nearest, cosines = nearest_in_galleries(work, one)
    known = np.array(
        [[fits(work.pairs, int(row), int(place)) for row in line] for place, line in zip(counted, nearest, strict=True)]
    )
    own = chosen(nearest, known)
    looks = looked(one, work.pairs, counted[own], nearest[own], cosines[own])
    apart = np.mean([len(set(line.tolist())) for line in nearest])
    agree = np.mean([len(set(line.tolist())) < len(line) for line in nearest])
    facts = [
        run_facts("run", one) + (f"; its network {network}" if network > 1 else ""),
        f"{100 * np.mean(known):.1f}% of elements ({len(counted):,} test pictures) are nearest to a caption that fits",
        f"the elements of a picture are nearest to {apart:.2f} different captions on average; "
        f"two of them share one in {100 * agree:.1f}% of pictures",
        f"first pictures whose elements have a caption each (Fig. A2), then {ALIKE} of which two share one (Fig. A3)",
        "share: after the softmax over slots, mean over heads; the paper's figure is drawings, not numbers",
    ]
    rows = [row for look in looks for row in as_rows(work.pairs, look)]
    return work.save(
        rows,
        lambda: _draw(work.pairs, looks),
        table=[line for look in looks for line in _lines(work.pairs, look)],
        facts=facts,
        elements_that_fit=float(np.mean(known)),
        captions_a_picture=float(apart),
        pictures_of_shared_captions=float(agree),
    )


def counted_pictures(pairs: Pairs, *, split: str = "test", seed: int = 0) -> np.ndarray:
    """Pictures whose elements are counted, at random, in order."""
    return np.sort(seeded(seed, 3).permutation(pairs.pictures_of(split))[:COUNTED])


def chosen(nearest: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Lines of the pictures that are drawn: first some whose elements have a caption each, then some that share one.

    `nearest` (pictures, slots) are captions, `known` says which of them fit; of either kind those come first of which
    most fit. Where one kind is too rare, the other fills up.
    """
    shared = np.array([len(set(line.tolist())) < len(line) for line in nearest])
    best = np.argsort(-known.sum(1), kind="stable")
    kinds = [[k for k in best if shared[k] == kind] for kind in (False, True)]
    total = min(DIFFERENT + ALIKE, len(nearest))
    alike = kinds[1][: max(ALIKE, total - len(kinds[0]))]
    return np.array([*kinds[0][: total - len(alike)], *alike], int)


def alone(run: Run, network: int) -> Run:
    """A run of several networks as a run of one of them, counted from 1."""
    each = run.matcher.each()
    if not 1 <= network <= len(each):
        raise BadInput(f"network={network}: {run.folder} has {len(each)}")
    return run if len(each) == 1 else replace(run, matcher=each[network - 1])


# ---- what the model says ---------------------------------------------------------------------------------------------


def nearest_in_galleries(work: Work, run: Run) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pictures that are counted, and what is nearest to their elements among the captions of their gallery."""
    counted, pictures = counted_pictures(work.pairs, split=work.split), work.pairs.pictures_of(work.split)
    rows, parts = work.pairs.rows(work.split), []
    for gallery in work.galleries():
        places = np.intersect1d(counted, pictures[gallery.pictures])
        if len(places):
            parts.append((places, *nearest_captions(run, work.pairs, places, rows[gallery.rows])))
    counted, nearest, cosines = (np.concatenate(values) for values in zip(*parts, strict=True))
    return counted, nearest, cosines


def nearest_captions(run: Run, pairs: Pairs, places: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(pictures, slots) which of these rows' captions is nearest to each element, and the cosines."""
    sides = encode_both(run.matcher, run.inputs(pairs).table, places, rows)
    images, texts = (side.members[0].vectors.float() for side in sides)
    nearest = [(one @ texts.flatten(0, 1).T).view(len(one), *texts.shape[:2]).amax(2).max(1) for one in images]
    best = torch.stack([one.indices for one in nearest]).cpu().numpy()
    return rows[best], torch.stack([one.values for one in nearest]).cpu().numpy()


def attention(run: Run, pairs: Pairs, places: np.ndarray) -> Tensor:
    """(pictures, cells, rounds, heads, slots) shares, 1 when summed over slots."""
    member = first_member(run)
    modules = [part for part in member.encoders[IMAGE].modules() if isinstance(part, SetPrediction)]
    if not modules:
        raise BadInput(f"{run.folder}: {run.method} has no slots to look at; dive has")
    try:
        for part in modules:
            part.keep_attention = True
        sets = encode(member, run.inputs(pairs).table, IMAGE, places)
    finally:
        for part in modules:
            part.keep_attention = False
    assert isinstance(sets, Embedding)
    return sets.extra["attention"].float().cpu()


def looked(run: Run, pairs: Pairs, places: np.ndarray, rows: np.ndarray, cosines: np.ndarray) -> list[Look]:
    """Everything that is drawn of these pictures."""
    shares = attention(run, pairs, places).mean(3).permute(0, 2, 3, 1).numpy()
    items = run.inputs(pairs).table.items(IMAGE, places)
    out = []
    for k, place in enumerate(places):
        real = np.arange(shares.shape[-1]) if items.mask is None else np.flatnonzero(items.mask[k].cpu().numpy())
        box = items.extra["box"][k] if "box" in items.extra else None
        if box is None and class_token_first(run, len(real)):
            real = real[1:]
        boxes = cells(run, box, len(real))
        out.append(Look(int(place), boxes, shares[k][..., real], rows[k], cosines[k]))
    return out


def cells(run: Run, box: Tensor | None, count: int) -> list[Box]:
    """Where a picture's cells are: its own boxes, or the backbone's grid over the whole picture."""
    if box is not None and len(box) >= count:
        return [tuple(float(v) for v in one[:4]) for one in box[:count].cpu()]  # type: ignore[misc]
    return grid(count, _shape(run))


def class_token_first(run: Run, count: int) -> bool:
    """Whether the first of so many inputs is the whole picture's: only without it, the rest is a grid like the picture.

    Runs say whether class tokens are read where there are any, not whether their network has one.
    """
    if run.info["view"].get("tokens") != "both" or count < 2:
        return False
    return _unlike(count - 1, _shape(run)) < _unlike(count, _shape(run))


def _unlike(count: int, shape: float) -> float:
    """How far the best grid of so many cells is from cells as high as they are wide."""
    _, _, right, bottom = grid(count, shape)[0]
    return abs(math.log(right / bottom / shape))


def _shape(run: Run) -> float:
    """A picture's height over its width, as the network sees it."""
    size = run.info["view"].get("size") or 1
    height, width = (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
    return height / width


def as_rows(pairs: Pairs, look: Look) -> list[Row]:
    """A line for each picture, round, slot and cell."""
    name, edges = str(pairs.names[look.place]), ("left", "top", "right", "bottom")
    return [
        {
            "picture": name,
            "round": t + 1,
            "slot": s + 1,
            "cell": c,
            **dict(zip(edges, look.boxes[c], strict=True)),
            "share": float(v),
        }
        for (t, s, c), v in np.ndenumerate(look.shares)
    ]


def _lines(pairs: Pairs, look: Look) -> list[Row]:
    """A line for each element of a picture."""
    return [
        {
            "picture": str(pairs.names[look.place]),
            "slot": slot + 1,
            "largest share, last round": float(look.shares[-1, slot].max()),
            "nearest caption": pairs.captions[row],
            "cosine": float(cosine),
            "fits": "yes" if fits(pairs, int(row), look.place) else "no",
        }
        for slot, (row, cosine) in enumerate(zip(look.rows, look.cosines, strict=True))
    ]


# ---- the figure ------------------------------------------------------------------------------------------------------


def raster(shares: np.ndarray, boxes: Sequence[Box]) -> np.ndarray:
    """Shares as an image: the cells of a grid as they are; boxes, which overlap, as the mean of those that cover."""
    lefts, tops = {box[0] for box in boxes}, {box[1] for box in boxes}
    if len(lefts) * len(tops) == len(boxes):
        return np.asarray(shares).reshape(len(tops), len(lefts))
    total, times = np.zeros((FINE, FINE)), np.zeros((FINE, FINE))
    for share, box in zip(shares, boxes, strict=True):
        left, top, right, bottom = (int(np.clip(round(edge * FINE), 0, FINE)) for edge in box)
        total[top : max(bottom, top + 1), left : max(right, left + 1)] += share
        times[top : max(bottom, top + 1), left : max(right, left + 1)] += 1
    return total / np.maximum(times, 1)


def _draw(pairs: Pairs, looks: Sequence[Look]) -> style.Figure:
    rounds, slots, _ = looks[0].shares.shape
    high = RATIO * MAP
    block = slots * (high + GAP / 2) + GAP
    page = Page(HEAD + len(looks) * block + NOTE)
    at = EDGE + SEEN + 2 * GAP
    words_at = at + rounds * (MAP + GAP / 2) + GAP
    middles = [(at + t * (MAP + GAP / 2) + MAP / 2, "center", f"round {t + 1}") for t in range(rounds)]
    page.heads([(EDGE, "left", "picture"), *middles, (words_at, "left", "nearest caption")])
    top = max(float(look.shares.max()) for look in looks)
    drawn = None
    for look in looks:
        picture(page.axes(EDGE, SEEN, RATIO * SEEN), pairs, look.place)
        page.left -= RATIO * SEEN + GAP
        words(page.axes(EDGE, SEEN, high), said(pairs, _own(pairs, look.place)), width=22, lines=6)
        page.left += RATIO * SEEN + GAP
        for slot in range(slots):
            for t in range(rounds):
                axes = page.axes(at + t * (MAP + GAP / 2), MAP, high)
                drawn = _map(axes, pairs, look, t, slot, top=top)
                if t == 0:
                    axes.set_ylabel(f"slot {slot + 1}", fontsize=6.5, labelpad=2)
            _caption(page.axes(words_at, style.DOUBLE - words_at - EDGE, high), pairs, look, slot)
            page.left -= high + GAP / 2
        page.left -= GAP
    assert drawn is not None  # there is a picture at least
    _bar(page, drawn, at, rounds * (MAP + GAP / 2) - GAP / 2, even=1 / slots)
    return page.figure


def _own(pairs: Pairs, place: int) -> int:
    return int(np.flatnonzero(pairs.picture == place)[0])


def _map(axes: style.Axes, pairs: Pairs, look: Look, t: int, slot: int, *, top: float) -> style.Drawn:
    style.bare(axes)
    pixels = thumbnail(pairs, look.place)
    if pixels is not None:
        axes.imshow(np.asarray(pixels).mean(2), cmap="gray", vmin=0, vmax=255, extent=(0, 1, 1, 0), aspect="auto")
    shares = raster(look.shares[t, slot], look.boxes)
    how: style.Options = {"cmap": "inferno", "vmin": 0, "vmax": top, "extent": (0, 1, 1, 0), "aspect": "auto"}
    return axes.imshow(shares, interpolation="bilinear", alpha=0.65 if pixels is not None else 1.0, **how)


def _caption(axes: style.Axes, pairs: Pairs, look: Look, slot: int) -> None:
    axes.set_axis_off()
    row = int(look.rows[slot])
    right = fits(pairs, row, look.place)
    text = style.wrapped(said(pairs, row), 26, lines=4)
    axes.text(0, 0.5, "✓" if right else "✗", color=style.RIGHT if right else style.WRONG, va="center", fontsize=8)
    axes.text(0.11, 0.5, text, va="center", fontsize=6.5, color=style.RIGHT if right else "black")


def _bar(page: Page, drawn: style.Drawn, at: float, width: float, *, even: float) -> None:
    axes = page.axes(at, width, 0.08)
    bar = page.figure.colorbar(drawn, cax=axes, orientation="horizontal")
    bar.set_label(f"share of a cell ({even:.2f} = shared out evenly)", fontsize=6.5, labelpad=1)
    bar.ax.tick_params(labelsize=6, length=2, pad=1)
    bar.outline.set_visible(False)
