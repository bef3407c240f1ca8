"""States of captions by a frozen sentence encoder, computed once and kept in the feature cache.

A frozen encoder says the same of a caption in every epoch, and on a CPU reading takes most of the time. The states are
rounded to 16 bits, as the features of pictures are. A row is a word piece; a caption that occurs several times is read
once.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from matchlight.inputs.backbones.base import digest_of_weights
from matchlight.inputs.features.fill import Rows, kept
from matchlight.inputs.features.store import FeatureStore
from matchlight.inputs.sentence_encoders import SentenceEncoder
from matchlight.inputs.text import Captions

BATCH = 64
MOST_BYTES = 8 << 30  # what more than this would take is read anew in every epoch


class CaptionStates:
    """Where the states of each caption begin in a store, and how many they are."""

    def __init__(self, store: FeatureStore, begins: np.ndarray, lengths: np.ndarray):
        self.store, self.begins, self.lengths = store, begins, lengths

    def batch(self, captions: np.ndarray) -> np.ndarray:
        """(B, L, D) states of these captions, float32, filled up with 0 to the longest."""
        lengths = self.lengths[captions]
        steps = np.arange(lengths.max(initial=0))
        real = steps < lengths[:, None]
        states = np.zeros((*real.shape, self.store.shape[1]), np.float32)
        states[real] = self.store.gather((self.begins[captions, None] + steps)[real])
        return states


def fits_on_disk(captions: Captions, encoder: SentenceEncoder) -> bool:
    """Whether the states of these captions take no more than they may."""
    return 2 * int(captions.lengths.sum()) * encoder.dim <= MOST_BYTES


def caption_states(
    captions: Captions, encoder: SentenceEncoder, *, name: str, precision: str = "fp32"
) -> CaptionStates:
    """The states of every caption, found in the cache or computed now; what was stopped goes on.

    In bf16 they are other numbers, and kept apart.
    """
    said = [captions.flat[start:end].tobytes() for start, end in pairwise(captions.offsets)]
    texts = sorted(set(said), key=lambda text: (-len(text), text))  # like lengths together: little padding
    read = Captions.from_tokens(np.frombuffer(text, captions.flat.dtype).tolist() for text in texts)
    # The same captions in another order, as a data set with noise has them, are found under the same name.
    meta: dict[str, Any] = {"what": "features", "backbone": name, "states_of": sha256(read.flat.tobytes()).hexdigest()}
    meta |= {"weights": digest_of_weights(encoder, name), "dtype": "float16", "shape": (len(read.flat), encoder.dim)}
    meta |= {"precision": precision} if precision == "bf16" else {}

    @torch.inference_mode()
    def produce(start: int) -> Iterator[Rows]:
        for first in range(int(np.searchsorted(read.offsets, start)), len(read), BATCH):
            ids, lengths = read.batch(np.arange(first, min(first + BATCH, len(read))))
            real = np.arange(ids.shape[1]) < lengths[:, None]
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                states = encoder(torch.from_numpy(ids), torch.from_numpy(real))
            yield states.float().numpy()[real], []

    begins = dict(zip(texts, read.offsets[:-1], strict=True))
    return CaptionStates(kept(FeatureStore, meta, produce, None), np.array([begins[s] for s in said]), captions.lengths)
