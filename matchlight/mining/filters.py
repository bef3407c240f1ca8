"""What is likely no negative: a caption that all but repeats one's own, a pair known to fit, a pair that is suspect.

The hardest negatives of a whole training set are where its unmarked matches are. Each function here says which entries
of the lists to strike out: two arrays of bool, as large as the lists.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from matchlight.console import track
from matchlight.core import BadInput
from matchlight.mining.candidates import NONE, Candidates, places
from matchlight.pairs import Pairs

Struck = tuple[np.ndarray, np.ndarray]
AT_ONCE = 200_000  # pairs of captions compared at a time
KINDS = ("none", "captions", "relevance", "scores")


def filtered(
    found: Candidates, pairs: Pairs, *, kind: str, alike: float = 0.8, audit: str | Path | None = None
) -> Candidates:
    """The lists without what is likely no negative; `kind` is one of KINDS."""
    if kind == "none":
        return found
    if kind == "captions":
        return found.without(*alike_captions(found, pairs, alike))
    if kind == "relevance":
        return found.without(*relevant(found, pairs))
    if audit is None:
        raise BadInput("filter=scores reads an audit: audit=DIR (or its pairs.csv)")
    return found.without(*of_suspects(found, pairs, suspects(audit, len(pairs))))


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


def alike_captions(found: Candidates, pairs: Pairs, threshold: float) -> Struck:
    """Entries whose caption, or one of whose captions, is nearly a caption of one's own: TF-IDF cosine >= threshold."""
    vectors = tfidf([pairs.captions[row] for row in found.rows])
    texts, images = (np.zeros(lists.shape, bool) for lists in (found.texts, found.images))
    owner = places(found.pictures, pairs.picture[found.rows])
    groups = Grouped(np.arange(len(found.rows)), owner, len(found.pictures))
    most = int(groups.count.max(initial=1))
    for part in _parts(found.texts, "comparing captions"):
        named = places(found.rows, found.texts[part].ravel()).reshape(found.texts[part].shape)
        for n in range(most):
            own = groups.nth(np.arange(len(found.pictures))[part], n)[:, None]
            texts[part] |= _cosine(vectors, *np.broadcast_arrays(own, named)) >= threshold
    for part in _parts(found.images, "comparing captions"):
        seen = places(found.pictures, found.images[part].ravel()).reshape(found.images[part].shape)
        own = np.arange(len(found.rows))[part][:, None]
        for n in range(most):
            images[part] |= _cosine(vectors, *np.broadcast_arrays(own, groups.nth(seen, n))) >= threshold
    return texts, images


def tfidf(captions: list[str]) -> Any:
    """Captions as sparse rows of unit length: words counted, rare ones worth more."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    try:
        return TfidfVectorizer(dtype=np.float32, token_pattern=r"\S+").fit_transform(captions)
    except ValueError:  # nothing but blanks
        raise BadInput("filter=captions compares words, and these captions hold none") from None


def _cosine(vectors: Any, one: np.ndarray, other: np.ndarray) -> np.ndarray:
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


def relevant(found: Candidates, pairs: Pairs) -> Struck:
    """Entries that the data's own relevance file says fit."""
    if pairs.relevance is None:
        raise BadInput(f"{pairs.root}: filter=relevance needs a relevance file, and this data set has none")
    texts = _fits(pairs.relevance, found.texts, found.pictures[:, None], captions_named=True)
    images = _fits(pairs.relevance, found.images, found.rows[:, None], captions_named=False)
    return texts, images


def _fits(relevance: Any, lists: np.ndarray, own: np.ndarray, *, captions_named: bool) -> np.ndarray:
    named, own = np.maximum(lists, 0), np.broadcast_to(own, lists.shape)
    caption, picture = (named, own) if captions_named else (own, named)
    out = np.empty(lists.shape, bool)
    for part in _parts(lists, "looking up what fits"):
        value = relevance[caption[part].ravel(), picture[part].ravel()]
        out[part] = np.asarray(value).astype(bool).reshape(lists[part].shape)
    return out & (lists != NONE)


# ---- what an audit doubts --------------------------------------------------------------------------------------------


def suspects(audit: str | Path, rows: int) -> np.ndarray:
    """Rows that an audit's pairs.csv marks as suspect."""
    path = Path(audit) / "pairs.csv" if Path(audit).is_dir() else Path(audit)
    try:
        with open(path, newline="", encoding="utf-8") as file:
            lines = [(line["row"], line["suspect"]) for line in csv.DictReader(file)]
        found = [int(row) for row, doubt in lines if str(doubt).strip().lower() in ("1", "true", "yes")]
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; `matchlight audit -o DIR` writes DIR/pairs.csv") from None
    except (KeyError, TypeError, ValueError, UnicodeDecodeError, csv.Error):
        raise BadInput(f"{path}: not an audit's pairs.csv (columns row and suspect are needed)") from None
    if any(not 0 <= row < rows for row in found):
        raise BadInput(f"{path}: names row {max(found)}, and the data has {rows} rows; an audit of other data?")
    return np.array(sorted(found), np.int64)


def of_suspects(found: Candidates, pairs: Pairs, doubtful: np.ndarray) -> Struck:
    """Captions whose own pair is suspect, since they may fit anywhere, and pictures left without a trusted caption."""
    trusted = found.rows[~np.isin(found.rows, doubtful)]
    pictures = np.setdiff1d(found.pictures, pairs.picture[trusted])
    return np.isin(found.texts, doubtful), np.isin(found.images, pictures)
