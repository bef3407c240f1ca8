"""The company a pair keeps: do similar captions sit at similar pictures, and do a picture's captions agree?

Three lists a pair, each with a few rows of the data and how well they speak for it:

    text     the rows whose captions are nearest to the pair's caption: does their picture resemble the pair's picture?
    photo    captions of the pictures nearest to the pair's picture: do they resemble the pair's caption?
    sibling  the other captions of the pair's picture: do they resemble its caption?

None of them reads how the pair itself scores. The same lists are made for each row's manufactured wrong caption. Rows
are kept beside their values, so that the word of a row that is itself suspect can be given less weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from matchlight.inputs.batches import seeded

NEIGHBOURS = 10
CAPTIONS = 3  # of each neighbouring picture
SIBLINGS = 8  # at most
REFERENCES = 50_000  # rows among which neighbours are looked for
BLOCK = 1 << 24  # numbers of a block of similarities

Lists = dict[str, np.ndarray]


@dataclass(frozen=True)
class Space:
    """Unit vectors of the pictures and the captions of some rows, in which likeness is a product."""

    images: Tensor  # (pictures, D)
    texts: Tensor  # (rows, E)


@dataclass(frozen=True)
class Scene:
    """Who is there: the rows under audit, numbered 0 .. n - 1, and their pictures, numbered 0 .. p - 1."""

    picture: np.ndarray  # (n,) of each row
    group: np.ndarray  # (p,) look-alikes share a number
    wrong: np.ndarray  # (n,) row whose caption serves as the wrong one

    @property
    def owner(self) -> np.ndarray:
        """(n,) group of each row's picture."""
        return self.group[self.picture]


def lists(space: Space, scene: Scene, rows: np.ndarray, *, seed: int = 0) -> Lists:
    """For these rows: `<list>_rows` (q, m) and `<list>` (q, m) of the real caption, `<list>_wrong...` of the wrong."""
    found: Lists = {}
    refs = _references(len(scene.picture), seed)
    for name, captions in (("", rows), ("_wrong", scene.wrong[rows])):
        for kind, look in (("text", _by_text), ("photo", _by_photo)):
            found[f"{kind}{name}_rows"], found[f"{kind}{name}"] = look(space, scene, rows, captions, refs)
        found[f"sibling{name}_rows"], found[f"sibling{name}"] = siblings(space.texts, scene, rows, captions)
    return found


def _references(count: int, seed: int) -> np.ndarray:
    if count <= REFERENCES:
        return np.arange(count)
    return np.sort(seeded(seed, 52).choice(count, REFERENCES, replace=False))


@torch.inference_mode()
def nearest(asked: Tensor, among: Tensor, barred: tuple[np.ndarray, np.ndarray], k: int) -> np.ndarray:
    """(q, k) places of the nearest of `among`; those whose number equals the asker's do not count; -1 where too few."""
    k, step = min(k, len(among)), max(1, BLOCK // max(1, len(among)))
    mine, theirs = (torch.from_numpy(np.asarray(numbers)).to(among.device) for numbers in barred)
    out = []
    for start in range(0, len(asked), step):
        likeness = asked[start : start + step] @ among.T
        likeness.masked_fill_(mine[start : start + step, None] == theirs[None], -2.0)
        value, place = likeness.topk(k, dim=1)
        out.append(place.masked_fill(value <= -2.0, -1).cpu())
    return torch.cat(out).numpy() if out else np.zeros((0, k), dtype=np.int64)


def _by_text(space: Space, scene: Scene, rows: np.ndarray, captions: np.ndarray, refs: np.ndarray) -> tuple:
    near = nearest(space.texts[captions], space.texts[refs], (scene.owner[captions], scene.owner[refs]), NEIGHBOURS)
    near = np.where(near >= 0, refs[near], -1)
    near[scene.owner[near] == scene.owner[rows][:, None]] = -1  # the pair's own picture says nothing about itself
    resemblance = _likeness(space.images, scene.picture[rows], scene.picture[near])
    usual = _usual(space.images, scene.picture[rows], scene.picture[refs])
    return near, _where(near, resemblance - usual[:, None])


def _by_photo(space: Space, scene: Scene, rows: np.ndarray, captions: np.ndarray, refs: np.ndarray) -> tuple:
    pictures, first = np.unique(scene.picture[refs], return_index=True)
    mine = scene.picture[rows]
    asked, place = np.unique(mine, return_inverse=True)
    near = nearest(space.images[asked], space.images[pictures], (scene.group[asked], scene.group[pictures]), NEIGHBOURS)
    spoken = _captions_of(scene.picture, pictures, refs)[near]  # (asked, k, CAPTIONS)
    spoken[near < 0] = -1
    spoken = spoken.reshape(len(asked), -1)[place]
    spoken[scene.owner[spoken] == scene.owner[captions][:, None]] = -1  # where a wrong caption was taken from
    resemblance = _likeness(space.texts, captions, spoken)
    usual = _usual(space.texts, captions, refs)
    return spoken, _where(spoken, resemblance - usual[:, None])


def siblings(texts: Tensor, scene: Scene, rows: np.ndarray, captions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The other captions of each row's picture and how much they resemble the caption; nan where there is none."""
    all_rows = np.arange(len(scene.picture))
    table = _captions_of(scene.picture, np.arange(len(scene.group)), all_rows, most=SIBLINGS + 1)
    others = table[scene.picture[rows]]
    others[others == rows[:, None]] = -1
    order = np.argsort(others < 0, axis=1, kind="stable")[:, :SIBLINGS]
    others = np.take_along_axis(others, order, 1)
    return others, _where(others, _likeness(texts, captions, others))


def _captions_of(picture: np.ndarray, pictures: np.ndarray, rows: np.ndarray, most: int = CAPTIONS) -> np.ndarray:
    """(pictures, most) rows of each picture, -1 where it has fewer."""
    order = rows[np.argsort(picture[rows], kind="stable")]
    start = np.searchsorted(picture[order], pictures)
    stop = np.searchsorted(picture[order], pictures, side="right")
    place = start[:, None] + np.arange(most)
    return np.where(place < stop[:, None], order[np.minimum(place, len(order) - 1)], -1)


@torch.inference_mode()
def _likeness(vectors: Tensor, one: np.ndarray, others: np.ndarray) -> np.ndarray:
    """(q, m) products of each one's vector with its others', in blocks."""
    width = max(1, others.shape[1])
    step = max(1, BLOCK // (width * vectors.shape[1]))
    out = [np.zeros((0, others.shape[1]), dtype=np.float32)]
    for start in range(0, len(one), step):
        part = torch.from_numpy(others[start : start + step]).to(vectors.device).clamp(min=0)
        mine = vectors[torch.from_numpy(one[start : start + step]).to(vectors.device)]
        out.append(torch.einsum("qd,qmd->qm", mine, vectors[part]).float().cpu().numpy())
    return np.concatenate(out)


@torch.inference_mode()
def _usual(vectors: Tensor, one: np.ndarray, refs: np.ndarray) -> np.ndarray:
    """(q,) how much each one resembles the average of all: likeness beyond that means something."""
    mean = vectors[torch.from_numpy(refs).to(vectors.device)].mean(0)
    return (vectors @ mean).float().cpu().numpy()[one]


def _where(rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.where(rows >= 0, values, np.nan).astype(np.float16)
