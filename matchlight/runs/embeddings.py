"""Vectors out: what a model makes of pictures and captions, as one .npz for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from matchlight import files
from matchlight.core import IMAGE, TEXT, BadInput, Embeddings, Parts
from matchlight.pairs import Pairs
from matchlight.runs.folder import Run
from matchlight.scoring.encode import encode


def _arrays(prefix: str, embedding: Embeddings) -> dict[str, np.ndarray]:
    """Vectors, masks and extras of one side; an ensemble's members are numbered."""
    if isinstance(embedding, Parts):
        return {
            key: value
            for k, part in enumerate(embedding.members)
            for key, value in _arrays(f"{prefix}_{k}", part).items()
        }
    out = {f"{prefix}_vectors": embedding.vectors}
    if embedding.mask is not None:
        out[f"{prefix}_mask"] = embedding.mask
    out |= {f"{prefix}_{name}": value for name, value in embedding.extra.items() if name != "id"}
    return {name: _numpy(value) for name, value in out.items()}


def _numpy(value: torch.Tensor) -> np.ndarray:
    return value.detach().float().cpu().numpy() if value.is_floating_point() else value.cpu().numpy()


def export(run: Run, pairs: Pairs, out: str | Path, *, split: str = "all") -> dict[str, Any]:
    """Write the vectors of a split; `picture` says which picture each caption belongs to. Captions may be none."""
    out = Path(out)
    if out.suffix != ".npz":
        raise BadInput(f"{out}: vectors are written as .npz")
    inputs = run.inputs(pairs)
    pictures, rows = pairs.pictures_of(split), inputs.table.rows(split)  # without pictures that cannot be read
    pictures = pictures[~np.isin(pictures, inputs.table.broken)]
    if not len(pictures):
        raise BadInput(f"{pairs.root}: none of its pictures can be read; `matchlight data info` says why")
    sides = {IMAGE: pictures, TEXT: rows}
    if not len(rows):  # pictures alone
        del sides[TEXT]
    made = {side: encode(run.matcher, inputs.table, side, places, quiet=False) for side, places in sides.items()}
    place = np.full(len(pairs.names), -1)
    place[pictures] = np.arange(len(pictures))
    arrays = {name: value for side, one in made.items() for name, value in _arrays(side, one).items()}
    arrays["picture"], arrays["row"] = place[pairs.picture[rows]], rows
    arrays["names"] = np.array([pairs.names[i] for i in pictures])
    files.write_npz(out, arrays, compressed=False)
    return {"file": str(out), "pictures": len(pictures), "captions": len(rows), "arrays": sorted(arrays)}
