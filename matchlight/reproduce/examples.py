"""What a model of noisy pairs finds (NCR's figure of examples): captions with the pictures that come first for them.

A picture that belongs to the caption has a frame; so has one that the data's relevance file calls a fit.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from matchlight.core import TEXT
from matchlight.inputs.batches import seeded
from matchlight.measuring.protocols import figure
from matchlight.pairs import Pairs
from matchlight.reproduce.exhibits import Paths, Result, Work
from matchlight.reproduce.ncr_runs import asked_run
from matchlight.reproduce.sheets import Answer, Query, as_rows, draw_sheet
from matchlight.runs.evaluation import split_scores

SHOWN, TOP = 6, 5


def examples(work: Work, *, run: Paths | None = None, noise: float = 0.4) -> Result:
    """Test captions, drawn at random, with the five pictures that score best; those that fit are framed."""
    work.check_splits(work.split)
    loaded, _ = asked_run(work, run, noise=noise)
    scores = split_scores(loaded, work.pairs, work.split)
    queries = drawn(work.pairs, scores, split=work.split)
    report = work.measured(loaded, protocol="recall")
    table = [
        {"way": way, **{name: figure(report, way, name) for name in ("r1", "r5", "r10")}} for way in ("i2t", "t2i")
    ]
    return work.save(
        as_rows(work.pairs, queries),
        lambda: draw_sheet(work.pairs, queries, across=TOP),
        table=table,
        run=Path(loaded.folder).name,
    )


def drawn(pairs: Pairs, scores: np.ndarray, *, split: str = "test", count: int = SHOWN, seed: int = 0) -> list[Query]:
    """Captions of so many pictures, one each, at random from a seed; with what comes first for them."""
    pictures, rows = pairs.pictures_of(split), pairs.rows(split)
    _, once = np.unique(pairs.picture[rows], return_index=True)
    places = np.sort(seeded(seed, len(rows)).permutation(once)[:count])
    out = []
    for t in places:
        top = np.argsort(-scores[:, t], kind="stable")[:TOP]
        answers = [
            Answer(int(pictures[i]), fits(pairs, int(rows[t]), int(pictures[i])), float(scores[i, t])) for i in top
        ]
        out.append(Query(TEXT, int(rows[t]), tuple(answers)))
    return out


def fits(pairs: Pairs, row: int, place: int) -> bool:
    """Whether a picture belongs to a caption, or is known to fit it."""
    if pairs.picture[row] == place:
        return True
    return pairs.relevance is not None and bool(pairs.relevance[row, place])
