"""Likeness without training: captions by their meaning or their rarer words, pictures by their mean features."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from matchlight import checkpoints
from matchlight.batches import Table
from matchlight.console import say
from matchlight.core import BadInput
from matchlight.pairs import Pairs
from matchlight.prepare import pick_device, prepare, view_of

if TYPE_CHECKING:
    from matchlight.sentences import SentenceEncoder

SHAPES = 160  # dimensions that word counts are folded into
BLOCK = 256  # pictures read at once
KINDS = ("auto", "minilm", "words")


def caption_vectors(captions: list[str], kind: str, kept: Path, *, device: torch.device, seed: int = 0) -> Tensor:
    """(n, D) unit vectors: of meaning, by a pretrained sentence encoder, or of words; `auto`: meaning if installed.

    Reading many captions takes minutes on a CPU, so what was read is `kept` for an audit that goes on.
    """
    if kind not in KINDS:
        raise BadInput(f"captions={kind}: {', '.join(KINDS)}")
    if kept.exists():
        return torch.from_numpy(np.load(kept, allow_pickle=False))
    encoder = None if kind == "words" else _encoder(needed=kind == "minilm")
    if encoder is None:
        return word_vectors(captions, seed=seed)
    texts, place = np.unique(np.array(captions, dtype=object), return_inverse=True)
    vectors = encoder.encode(texts.tolist(), device=device)[place]
    checkpoints.write_array(kept, vectors)
    return torch.from_numpy(vectors)


def _encoder(*, needed: bool) -> SentenceEncoder | None:
    from matchlight.sentences import sentence_encoder

    try:
        return sentence_encoder("minilm", frozen=True)
    except BadInput as missing:
        if needed:
            raise
        say(f"captions are compared by their words ({missing})")
        return None


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
