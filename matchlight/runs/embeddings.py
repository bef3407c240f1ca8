"""Vectors out: what a model makes of pictures and captions, for other tools.

As one .npz (`image` and `text`, (items, vectors, dim) each, in file order), or, where an item is one vector, as the
files that FAISS, LanceDB and clip-retrieval read (vector_files.py).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from matchlight.core import IMAGE, TEXT, BadInput, Embeddings, Parts
from matchlight.pairs import Pairs
from matchlight.runs.folder import Run
from matchlight.runs.vector_files import Written, check_target, write
from matchlight.scoring.encode import encode


def arrays_of(prefix: str, embedding: Embeddings) -> dict[str, np.ndarray]:
    """Vectors, masks and extras of one side; an ensemble's members are numbered."""
    if isinstance(embedding, Parts) and all(part.vectors.shape[1] == 1 for part in embedding.members):
        return {prefix: _numpy(joined(embedding))}
    if isinstance(embedding, Parts):
        return {
            key: value
            for k, part in enumerate(embedding.members)
            for key, value in arrays_of(f"{prefix}_{k}", part).items()
        }
    out = {prefix: embedding.vectors}
    if embedding.mask is not None:
        out[f"{prefix}_mask"] = embedding.mask
    out |= {f"{prefix}_{name}": value for name, value in embedding.extra.items() if name != "id"}
    return {name: _numpy(value) for name, value in out.items()}


def joined(embedding: Embeddings) -> torch.Tensor:
    """(N, K, D); members of an ensemble side by side, so that a dot product is the mean of theirs."""
    members = [one.vectors for one in embedding.members]
    return members[0] if len(members) == 1 else torch.cat(members, -1) / len(members) ** 0.5


def _numpy(value: torch.Tensor) -> np.ndarray:
    return value.detach().float().cpu().numpy() if value.is_floating_point() else value.cpu().numpy()


def export(run: Run, pairs: Pairs, out: str | Path, *, split: str = "all", to: str = "npz") -> Written:
    """Write the vectors of a split; captions may be none."""
    out = Path(out)
    check_target(out, to)
    inputs = run.inputs(pairs)
    pictures, rows = pairs.pictures_of(split), inputs.table.rows(split)  # without pictures that cannot be read
    pictures = pictures[~np.isin(pictures, inputs.table.broken)]
    if not len(pictures):
        raise BadInput(f"{pairs.root}: none of its pictures can be read; `matchlight data info` says why")
    sides = {IMAGE: pictures, TEXT: rows}
    if not len(rows):  # pictures alone
        del sides[TEXT]
    made = {side: encode(run.matcher, inputs.table, side, places, quiet=False) for side, places in sides.items()}
    arrays = {name: value for side, one in made.items() for name, value in arrays_of(side, one).items()}
    return write(to, out, arrays, pairs, pictures, rows)
