"""What a trained run confuses in a split of a data set, as a folder of lists."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import numpy as np

from matchlight.core import BadInput, Json
from matchlight.pairs import Pairs
from matchlight.runs.folder import Run
from matchlight.training.mining import SearchOptions, mine_into
from matchlight.training.mining.candidates import Candidates


def mine_run(
    run: Run, pairs: Pairs, out: str | Path, *, top: int = 300, split: str = "train", **options: Unpack[SearchOptions]
) -> tuple[Candidates, dict[str, Json]]:
    """What a trained run confuses in a split of a data set, as a folder of lists."""
    if top < 1:
        raise BadInput(f"--top {top}: at least 1")
    pairs.need_captions("mining")
    inputs = run.inputs(pairs)
    rows = inputs.table.rows(split)
    if len(np.unique(pairs.picture[rows])) < 2:
        raise BadInput(f"{pairs.root}: the {split} split has fewer than two pictures; there is nothing to confuse")
    return mine_into(Path(out), run.matcher, inputs.table, rows, top=top, **options)
