"""Vectors of captions by a sentence encoder, computed once and kept in the feature cache: a CPU takes minutes for many.

An entry is found again by the encoder's name and weights and by the captions themselves; one that was stopped goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from matchlight.inputs.backbones.base import digest_of_weights
from matchlight.inputs.features.fill import Rows, kept
from matchlight.inputs.features.store import FeatureStore
from matchlight.inputs.sentence_encoders import SentenceEncoder

BATCH = 64


def caption_vectors(
    captions: Sequence[str], encoder: SentenceEncoder, *, name: str, device: torch.device
) -> np.ndarray:
    """(n, D) unit vectors, float32; a caption that occurs several times is read once."""
    texts = sorted(set(captions), key=lambda text: (-len(text), text))  # like lengths together: little padding
    said = hashlib.sha256("\0".join(texts).encode("utf-8", "replace")).hexdigest()
    meta: dict[str, Any] = {"what": "features", "backbone": name, "captions": said}
    meta |= {"weights": digest_of_weights(encoder, name), "shape": (len(texts), encoder.dim), "dtype": "float32"}

    def produce(start: int) -> Iterator[Rows]:
        encoder.to(device)
        for first in range(start, len(texts), BATCH):
            yield encoder.encode_batch(texts[first : first + BATCH]), []

    store = kept(FeatureStore, meta, produce, None)
    place = {text: row for row, text in enumerate(texts)}
    return store.gather(np.array([place[caption] for caption in captions], dtype=np.int64))
