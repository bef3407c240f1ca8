"""What is likely no negative: a caption that all but repeats one's own, a pair known to fit, a pair that is suspect.

The hardest negatives of a whole training set are where its unmarked matches are. Each function here says which entries
of the lists to strike out: two arrays of bool, as large as the lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from matchlight.console import say, track
from matchlight.core import BadInput
from matchlight.pairs import Pairs
from matchlight.training.mining.audit_filter import Doubts, read_doubts
from matchlight.training.mining.candidates import NONE, Candidates, places

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Struck = tuple[np.ndarray, np.ndarray]
AT_ONCE = 200_000  # pairs of captions compared at a time
ROUNDING = 1e-6  # a caption's cosine with itself may come out a little below 1
KINDS = ("none", "captions", "relevance", "scores")


def filtered(
    lists: Candidates, pairs: Pairs, *, kind: str, alike: float = 0.8, audit: str | Path | None = None
) -> Candidates:
    """The lists without entries that are likely no negatives; how many is printed; `kind` is one of KINDS."""
    check_alike(alike)
    if kind == "none":
        return lists
    kept = lists.without(*_likely_matches(lists, pairs, kind, alike, audit))
    if len(lists.rows):
        _tell(kind, struck(lists, kept))
    return kept


def check_alike(alike: float) -> None:
    """A cosine above 0: with 0 every caption would be like every other."""
    if not 0 < alike <= 1:
        raise BadInput(f"alike={alike}: a cosine above 0 and up to 1 (0.8 is the default)")


def _likely_matches(lists: Candidates, pairs: Pairs, kind: str, alike: float, audit: str | Path | None) -> Struck:
    if kind == "captions":
        return alike_captions(lists, pairs, alike)
    if kind == "relevance":
        return relevant(lists, pairs)
    if audit is None:
        raise BadInput("filter=scores reads an audit: audit=DIR (or its pairs.csv)")
    return doubted(lists, pairs, read_doubts(audit, pairs))


def struck(before: Candidates, after: Candidates) -> dict[str, int]:
    """How many entries went from the lists of pictures and captions, and how many of these have none left."""
    out = {}
    for what, old, new in (("captions", before.texts, after.texts), ("pictures", before.images, after.images)):
        out[f"struck_{what}"] = int((old != NONE).sum() - (new != NONE).sum())
    for what, new in (("pictures", after.texts), ("captions", after.images)):
        out[f"{what}_without"] = int((new == NONE).all(1).sum())
    return out


def _tell(kind: str, count: dict[str, int]) -> None:
    gone = f"{count['struck_captions']} captions and {count['struck_pictures']} pictures were struck from the lists"
    left = f"{count['pictures_without']} pictures and {count['captions_without']} captions have none left"
    say(f"filter={kind}: {gone}; {left}")


# ---- captions that say the same --------------------------------------------------------------------------------------


class Grouped:
    """The rows of each picture."""

    def __init__(self, rows: np.ndarray, owner: np.ndarray, pictures: int):
        order = np.argsort(owner, kind="stable")
        self.rows = rows[order]
        self.count = np.bincount(owner, minlength=pictures)
        self.start = np.cumsum(self.count) - self.count

    def nth(self, picture: np.ndarray, n: int) -> np.ndarray:
        """The n-th row of each of these pictures (counted again from the first where it has fewer); NONE for NONE."""
        some = np.maximum(picture, 0)
        row = self.rows[self.start[some] + n % np.maximum(self.count[some], 1)]
        return np.where(picture == NONE, NONE, row)

    def some(self, picture: np.ndarray, share: np.ndarray) -> np.ndarray:
        """A row of each of these pictures, at a share in [0, 1) of their number."""
        return self.rows[self.start[picture] + (share * self.count[picture]).astype(np.int64)]


def alike_captions(candidates: Candidates, pairs: Pairs, threshold: float) -> Struck:
    """Entries whose caption, or one of whose captions, is nearly a caption of one's own: TF-IDF cosine >= threshold."""
    texts, images = (np.zeros(lists.shape, bool) for lists in (candidates.texts, candidates.images))
    if not len(candidates.rows):
        return texts, images
    threshold *= 1 - ROUNDING
    vectors = tfidf([pairs.captions[row] for row in candidates.rows])
    owner = places(candidates.pictures, pairs.picture[candidates.rows])
    groups = Grouped(np.arange(len(candidates.rows)), owner, len(candidates.pictures))
    most = int(groups.count.max(initial=1))
    for part in _parts(candidates.texts, "comparing captions"):
        named = places(candidates.rows, candidates.texts[part].ravel()).reshape(candidates.texts[part].shape)
        for n in range(most):
            own = groups.nth(np.arange(len(candidates.pictures))[part], n)[:, None]
            texts[part] |= _cosine(vectors, *np.broadcast_arrays(own, named)) >= threshold
    for part in _parts(candidates.images, "comparing captions"):
        seen = places(candidates.pictures, candidates.images[part].ravel()).reshape(candidates.images[part].shape)
        own = np.arange(len(candidates.rows))[part][:, None]
        for n in range(most):
            images[part] |= _cosine(vectors, *np.broadcast_arrays(own, groups.nth(seen, n))) >= threshold
    return texts, images


def tfidf(captions: list[str]) -> csr_matrix:
    """Captions as sparse rows of unit length: words counted, rare ones worth more."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    try:
        return TfidfVectorizer(dtype=np.float32, token_pattern=r"\S+").fit_transform(captions)
    except ValueError:  # nothing but blanks
        raise BadInput("filter=captions compares words, and these captions hold none") from None


def _cosine(vectors: csr_matrix, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    flat, named = one.ravel(), other.ravel()
    real = named != NONE
    out = np.zeros(len(flat), np.float32)
    out[real] = np.asarray(vectors[flat[real]].multiply(vectors[named[real]]).sum(1)).ravel()
    return out.reshape(one.shape)


def _parts(lists: np.ndarray, what: str) -> Iterator[slice]:
    step = max(1, AT_ONCE // max(1, lists.shape[1]))
    starts = range(0, len(lists), step)
    return (slice(start, start + step) for start in track(starts, what))


# ---- what is known ---------------------------------------------------------------------------------------------------


def relevant(lists: Candidates, pairs: Pairs) -> Struck:
    """Entries that the data's own relevance file says fit."""
    if pairs.relevance is None:
        raise BadInput(f"{pairs.root}: filter=relevance needs a relevance file, and this data set has none")
    return known_to_fit(lists, pairs.relevance)


def known_to_fit(candidates: Candidates, relevance: csr_matrix) -> Struck:
    """Entries that are True in a sparse (captions, pictures) matrix."""
    texts = _fits(relevance, candidates.texts, candidates.pictures[:, None], captions_named=True)
    images = _fits(relevance, candidates.images, candidates.rows[:, None], captions_named=False)
    return texts, images


def _fits(relevance: csr_matrix, lists: np.ndarray, own: np.ndarray, *, captions_named: bool) -> np.ndarray:
    named, own = np.maximum(lists, 0), np.broadcast_to(own, lists.shape)
    caption, picture = (named, own) if captions_named else (own, named)
    out = np.empty(lists.shape, bool)
    for part in _parts(lists, "looking up what fits"):
        value = relevance[caption[part].ravel(), picture[part].ravel()]
        out[part] = np.asarray(value).astype(bool).reshape(lists[part].shape)
    return out & (lists != NONE)


# ---- what an audit doubts --------------------------------------------------------------------------------------------


def doubted(candidates: Candidates, pairs: Pairs, doubts: Doubts) -> Struck:
    """Captions that may fit anywhere, pictures without a trusted caption, and pairs that the audit would rather see.

    A caption may fit anywhere if its own pair is suspect, or if it fits many pictures.
    """
    trusted = candidates.rows[~np.isin(candidates.rows, doubts.suspects)]
    pictures = np.setdiff1d(candidates.pictures, pairs.picture[trusted])
    texts, images = known_to_fit(candidates, doubts.fits)
    texts |= np.isin(candidates.texts, np.union1d(doubts.suspects, doubts.vague))
    return texts, images | np.isin(candidates.images, pictures)
