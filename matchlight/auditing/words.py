"""Likeness without a trained model: captions by their rarer words (TF-IDF), pictures by their mean features."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from matchlight.batches import Table
from matchlight.pairs import Pairs
from matchlight.prepare import pick_device, prepare, view_of

SHAPES = 160  # dimensions that word counts are folded into
BLOCK = 256  # pictures read at once


def word_vectors(captions: list[str], *, seed: int = 0) -> Tensor:
    """(n, D) unit vectors of the captions' words, rare words weighing most; nothing is learned about pictures."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    weigh = TfidfVectorizer(sublinear_tf=True, max_df=0.3, token_pattern=r"(?u)\b\w+\b")
    try:
        counts = weigh.fit_transform(captions)
    except ValueError:  # no word is left: every caption says the same
        return torch.zeros(len(captions), 1)
    dim = min(SHAPES, min(counts.shape) - 1)
    folded = TruncatedSVD(dim, random_state=seed).fit_transform(counts) if dim > 1 else counts.toarray()
    return _unit(torch.from_numpy(np.asarray(folded, dtype=np.float32)))


def picture_vectors(table: Table, pictures: np.ndarray) -> Tensor:
    """(p, D) unit vectors: each picture's features averaged over its cells, less what all pictures share."""
    parts = []
    for start in range(0, len(pictures), BLOCK):
        x = table.items("image", pictures[start : start + BLOCK]).x
        parts.append((x if x.dim() == 2 else x.float().mean(1)).float().cpu())
    whole = torch.cat(parts)
    return _unit((whole - whole.mean(0)) / whole.std(0).clamp(min=1e-6))


def sides_of(pairs: Pairs, rows: np.ndarray, device: str) -> tuple[np.ndarray, np.ndarray]:
    """(n, D) what each row's picture and text look like: given vectors, or features and words."""
    if pairs.text_features is not None and pairs.features is not None:
        return pairs.features.gather(pairs.picture[rows]).reshape(len(rows), -1), pairs.text_features[rows]
    inputs = prepare(pairs, view_of({}, pooled=True, pairs=pairs), device=pick_device(device))
    pictures, place = np.unique(pairs.picture[rows], return_inverse=True)
    texts = word_vectors([pairs.captions[row] for row in rows.tolist()])
    return picture_vectors(inputs.table, pictures).numpy()[place], texts.numpy()


def _unit(vectors: Tensor) -> Tensor:
    return vectors / vectors.norm(dim=1, keepdim=True).clamp(min=1e-8)
