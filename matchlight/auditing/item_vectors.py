"""Vectors of captions and pictures without training: sentence encoder, TF-IDF of words, mean picture features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from matchlight.console import say
from matchlight.core import BadInput
from matchlight.devices import pick_device
from matchlight.inputs.batches import Table
from matchlight.inputs.prepare import prepare, view_of
from matchlight.inputs.weights.ordinary_names import is_ordinary, opened_as_folder
from matchlight.pairs import Pairs

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from matchlight.inputs.sentence_encoders import SentenceEncoder

WORD_DIMS = 160  # dimensions that word counts are reduced to
BLOCK = 256  # pictures read at once
AUTO, WORDS, MINILM = "auto", "words", "minilm"


def caption_names(chosen: str) -> list[str]:
    """The names in `--captions`: sentence encoders joined by "+"; "auto" and "words" stand alone."""
    names = list(dict.fromkeys(name.strip() for name in chosen.split("+")))
    if names in ([AUTO], [WORDS]):
        return names
    for name in names:
        if name != MINILM and not is_ordinary(name, "sentence") and not (name.startswith("hf:") and len(name) > 3):
            known = ", ".join((MINILM, *opened_as_folder("sentence")))
            wanted = f"{AUTO}, {WORDS}, or {known}, hf:NAME joined by '+'"
            raise BadInput(f"captions={chosen}: {name!r} is no kind of caption vector; known: {wanted}")
    return names


def sentence_vectors(captions: list[str], chosen: str, *, device: torch.device) -> Tensor | None:
    """(n, D) vectors of pretrained sentence encoders, side by side; None where only their words are compared.

    Each encoder's vectors have length one. They are kept in the feature cache.
    """
    from matchlight.inputs.caption_vectors import caption_vectors

    parts = [
        torch.from_numpy(caption_vectors(captions, encoder, name=name, device=device))
        for name, encoder in sentence_encoders(chosen).items()
    ]
    return torch.cat(parts, 1) if parts else None


def sentence_encoders(chosen: str) -> dict[str, SentenceEncoder]:
    """The encoders that `--captions` names, by name; none where only words are compared."""
    from matchlight.inputs.sentence_encoders import sentence_encoder

    names = caption_names(chosen)
    try:
        wanted = [MINILM] if names == [AUTO] else [name for name in names if name != WORDS]
        return {name: sentence_encoder(name, frozen=True) for name in wanted}
    except BadInput as missing:
        if names != [AUTO]:
            raise
        say(f"captions are compared by their words ({missing})")
        return {}


def tfidf_vectors(
    captions: list[str], *, seed: int = 0, dim: int = WORD_DIMS, rare: int = 1, common: float = 0.3
) -> Tensor:
    """(n, D) unit vectors of the captions' words, rare words weighing most; nothing is learned about pictures.

    Words of fewer than `rare` captions are left out, and those of more than a share `common`.
    """
    from sklearn.decomposition import TruncatedSVD

    counts = _counts(captions, rare, common)
    if rare > 1 and (counts is None or counts.shape[1] < dim):  # too few words to be choosy
        counts = _counts(captions, 1, common)
    if counts is None:
        return torch.zeros(len(captions), 1)
    dim = min(dim, min(counts.shape) - 1)
    reduced = TruncatedSVD(dim, random_state=seed).fit_transform(counts) if dim > 1 else counts.toarray()
    return unit(torch.from_numpy(np.asarray(reduced, dtype=np.float32)))


def _counts(captions: list[str], rare: int, common: float) -> csr_matrix | None:
    """(n, words) sparse, or None where no word is left: every caption says the same."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    weigh = TfidfVectorizer(sublinear_tf=True, min_df=rare, max_df=common, token_pattern=r"(?u)\b\w+\b")
    try:
        return weigh.fit_transform(captions)
    except ValueError:
        return None


def mean_features(table: Table, pictures: np.ndarray) -> Tensor:
    """(p, D) each picture's features averaged over its cells."""
    parts = []
    for start in range(0, len(pictures), BLOCK):
        x = table.items("image", pictures[start : start + BLOCK]).x
        parts.append((x if x.dim() == 2 else x.float().mean(1)).float().cpu())
    return torch.cat(parts)


def standardised(x: Tensor) -> Tensor:
    """Less what all rows share, every number with the same spread."""
    return (x - x.mean(0)) / x.std(0).clamp(min=1e-6)


def picture_vectors(table: Table, pictures: np.ndarray) -> Tensor:
    """(p, D) unit vectors: each picture's features averaged over its cells, less what all pictures share."""
    return unit(standardised(mean_features(table, pictures)))


def pair_features(pairs: Pairs, rows: np.ndarray, device: str) -> tuple[np.ndarray, np.ndarray]:
    """(n, D) vectors of each row's picture and text: those given, or features and words."""
    if pairs.text_features is not None and pairs.features is not None:
        return pairs.features.gather(pairs.picture[rows]).reshape(len(rows), -1), pairs.text_features[rows]
    inputs = prepare(pairs, view_of({}, pooled=True, pairs=pairs), device=pick_device(device))
    pictures, place = np.unique(pairs.picture[rows], return_inverse=True)
    texts = tfidf_vectors([pairs.captions[row] for row in rows.tolist()])
    return picture_vectors(inputs.table, pictures).numpy()[place], texts.numpy()


def unit(vectors: Tensor) -> Tensor:
    """(n, D) of length one."""
    return vectors / vectors.norm(dim=1, keepdim=True).clamp(min=1e-8)
