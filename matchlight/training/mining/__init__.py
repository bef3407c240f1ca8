"""Offline mining: what a trained model confuses over a whole training set, as lists that training can draw from.

`mine` and `mine_into`, below, are what to call. `top_k.py` keeps the best so far, `chunks.py` encodes a side a piece
at a time, `search.py` goes over all pairs, `coarse.py` over proposed ones, `candidates.py` holds the lists and
their files, `released.py` reads lists for a data set, `filters.py` removes what is likely no negative, by what an audit
found (`audit_filter.py`) too.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TypedDict, Unpack

import numpy as np
import torch

from matchlight import files
from matchlight.console import VERSION, say
from matchlight.core import BadInput, Json, Matcher
from matchlight.data.content import content_mark
from matchlight.data.fingerprints import CONTENT, digest, fingerprint
from matchlight.inputs.batches import Table
from matchlight.training.mining.candidates import NONE, Candidates, is_whole, load
from matchlight.training.mining.coarse import propose_and_rescore, would_help
from matchlight.training.mining.released import load_for, read_released
from matchlight.training.mining.search import Ledger, Search, check_numbers, differing, sweep
from matchlight.training.mining.top_k import in_order

__all__ = ["NONE", "Candidates", "SearchOptions", "load", "load_for", "mine", "mine_into", "read_released"]

PROGRESS = "progress.safetensors"


class SearchOptions(TypedDict, total=False):
    """How a search is made; none of it changes exact lists."""

    coarse: int | None  # times as many proposals as wanted are scored exactly; None: everything is
    memory: int | None  # bytes it may take
    quiet: bool  # no progress bar


@torch.inference_mode()
def mine(
    matcher: Matcher,
    table: Table,
    rows: np.ndarray,
    *,
    top: int,
    images: int,
    progress: Path | None = None,
    about: dict[str, Json] | None = None,
    **options: Unpack[SearchOptions],
) -> Candidates:
    """The `top` captions of each picture and the `images` pictures of each caption that score highest, own ones not.

    `progress` is a file in which the search keeps where it stands, `about` what it must agree on to go on from there.
    """
    was_training = matcher.training
    try:
        search = Search(matcher.eval(), table, rows, memory=options.get("memory"), quiet=options.get("quiet", True))
        scored = _scored(search, (top, images), options.get("coarse"), Ledger(progress, about or {}, search))
    finally:
        matcher.train(was_training)
    named, seen = (
        _in_table(*some, known)[:, :most]
        for some, known, most in zip(scored, (search.rows, search.pictures), (top, images), strict=True)
    )
    lists_of_rows = np.empty_like(seen)
    lists_of_rows[search.order] = seen
    return Candidates(search.pictures, rows, named, lists_of_rows).trimmed()


def _scored(
    search: Search, wanted: tuple[int, int], coarse: int | None, ledger: Ledger
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """For both sides, scores and places in no order: of everything, or of what is proposed."""
    if coarse is not None:
        scored = propose_and_rescore(search, wanted, coarse, ledger)
    else:
        if not search.quiet and would_help(search):
            many = len(search.pictures) * len(search.rows) / 1e9
            say(f"{many:.1f} billion pairs to score by attention: coarse=3 (--coarse 3) would score far fewer")
        lists = search.empty(*wanted)
        sweep(search, search.exact, lists, ledger, name="exact")
        scored = [(best.scores, best.places) for best in lists]
    check_numbers(scores for scores, _ in scored)
    return scored


def _in_table(scores: torch.Tensor, places: torch.Tensor, known: np.ndarray) -> np.ndarray:
    """Places of a search as places of the whole table, from high to low, equal scores by place; NONE for no score."""
    whole = torch.from_numpy(known).to(places.device)[places.long().clamp(min=0)]
    return in_order(scores, whole).cpu().numpy()


def images_for(top: int, pictures: int, captions: int) -> int:
    """How many pictures a caption's list is long where a picture's has `top` captions: as many as those belong to."""
    return max(1, -(-top * pictures // max(1, captions)))


def mine_into(
    folder: Path, matcher: Matcher, table: Table, rows: np.ndarray, *, top: int, **options: Unpack[SearchOptions]
) -> tuple[Candidates, dict[str, Json]]:
    """Mine into a folder: lists that are there already are read, a search that was stopped goes on."""
    pictures = len(np.unique(table.pairs.picture[rows]))
    images = images_for(top, pictures, len(rows))
    about: dict[str, Json] = {
        "model": digest(*(value.cpu().numpy() for value in matcher.state_dict().values())),
        "data": fingerprint(table.pairs),
        CONTENT: content_mark(table.pairs),
        "rows": digest(rows),
        "top": top,
        "images": images,
        "coarse": options.get("coarse"),
    }
    _check_same(folder, about)
    if is_whole(folder):
        return load(folder)
    began = time.monotonic()
    options.setdefault("quiet", False)
    lists = mine(matcher, table, rows, top=top, images=images, progress=folder / PROGRESS, about=about, **options)
    seconds = round(time.monotonic() - began, 2)
    lists.save(folder, {**about, "pictures": pictures, "captions": len(rows), "seconds": seconds, "version": VERSION})
    (folder / PROGRESS).unlink(missing_ok=True)
    return load(folder)


def _check_same(folder: Path, about: dict[str, Json]) -> None:
    """A folder with anything in it must hold this very search; of one that is half done its `Ledger` tells."""
    if files.is_free(folder):
        return
    if is_whole(folder):
        _, known = load(folder)
        differs = differing(about, known)
        if differs:
            raise BadInput(f"{folder}: holds candidates of another search ({differs} differ); another -o")
    elif not (folder / PROGRESS).exists() and not (folder / "pictures.npy").exists():
        raise BadInput(f"{folder}: not empty and holds no candidates; choose another -o")
