"""Captions as a starter's tower of captions reads them, by NumPy: a question is read before torch would be imported.

The tower is MiniLM's BERT, a projection of its states, and the mean of the largest few values of each number
(`PooledPieces` in `methods/vse.py`). Captions of one length are read together, so nothing is padded. Weights are mapped
from the file, of the word pieces only the rows that are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from matchlight.files import regular
from matchlight.inputs.minilm_files import minilm_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

HEADS, LAYERS, TINY = 12, 6, 1e-12  # of MiniLM
BEFORE = "encoders.text."
WANTED = {"sentences": "minilm", "pooling": "top"}


class NumpyCaptions:
    """The tower of captions in a run's file of weights."""

    scale, bias = 1.0, 0.0  # a cosine is compared as it is

    def __init__(self, weights: Path, *, top: int):
        from safetensors import safe_open

        self.path, self.top = weights, top
        self._file: Any = safe_open(regular(weights), framework="np")

    @staticmethod
    def of(folder: Path, info: Mapping[str, Any]) -> NumpyCaptions | None:
        """What reads captions as this run does; None where its tower is another, or is not whole in its file."""
        arguments, path = info.get("arguments"), folder / "model.safetensors"
        if info.get("name") != "vse_infty" or not isinstance(arguments, dict) or not path.is_file():
            return None
        top = arguments.get("top_words")
        if any(arguments.get(name) != value for name, value in WANTED.items()) or type(top) is not int or top < 1:
            return None
        made = NumpyCaptions(path, top=top)
        return made if made.is_whole else None

    @property
    def is_whole(self) -> bool:
        """Whether every layer lies in the file: a starter's own leaves out what it has from MiniLM."""
        last = f"{BEFORE}reader.bert.blocks"
        names = set(self._file.keys())
        wanted = [f"{BEFORE}reader.bert.pieces.weight", f"{last}.0.query.weight", f"{BEFORE}project.weight"]
        return all(name in names for name in wanted) and f"{last}.{LAYERS}.query.weight" not in names

    # ---- words -------------------------------------------------------------------------------------------------------

    vocabulary = None

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return minilm_tokenizer()

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The numbers of each caption's pieces, with what stands around them."""
        return [list(one.ids) for one in self._tokenizer.encode_batch(list(texts))]

    def piece(self, number: int) -> str:
        """What a piece is called."""
        return self._tokenizer.id_to_token(number) or ""

    # ---- vectors -----------------------------------------------------------------------------------------------------

    def text(self, tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """(N, L) pieces and which are real, those before the others -> (N, 1, dim) unit vectors."""
        lengths = mask.sum(1)
        weight, bias = self._linear(f"{BEFORE}project")
        out = np.empty((len(tokens), 1, len(bias)), np.float32)
        for length in np.unique(lengths):
            some = np.flatnonzero(lengths == length)
            states = self._states(tokens[some, :length]) @ weight.T + bias
            largest = np.sort(states, axis=1)[:, -min(self.top, int(length)) :]
            pooled = largest.mean(1)
            out[some, 0] = pooled / (np.linalg.norm(pooled, axis=1, keepdims=True) + 1e-8)
        return out

    def _states(self, ids: np.ndarray) -> np.ndarray:
        """(N, L) -> (N, L, 384): BERT's encoder."""
        bert = f"{BEFORE}reader.bert."
        pieces = self._file.get_slice(f"{bert}pieces.weight")
        rows = {number: pieces[number : number + 1][0] for number in np.unique(ids).tolist()}
        x = np.stack([[rows[number] for number in line] for line in ids.tolist()]).astype(np.float32)
        x = x + self._part(f"{bert}places.weight")[: ids.shape[1]] + self._part(f"{bert}kinds.weight")[0]
        x = self._normal(x, f"{bert}norm")
        for layer in range(LAYERS):
            x = self._block(x, f"{bert}blocks.{layer}.")
        return x

    def _block(self, x: np.ndarray, name: str) -> np.ndarray:
        """Every piece looks at all, then thinks for itself; each step is added on and normalised."""
        many, long, dim = x.shape
        q, k, v = (
            self._through(x, name + part).reshape(many, long, HEADS, -1).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        logits = q @ k.transpose(0, 1, 3, 2) / np.sqrt(np.float32(dim // HEADS))
        seen = np.exp(logits - logits.max(-1, keepdims=True))
        seen = (seen / seen.sum(-1, keepdims=True)) @ v
        mixed = self._through(seen.transpose(0, 2, 1, 3).reshape(x.shape), name + "mixed")
        x = self._normal(x + mixed, name + "mixed_norm")
        wide = gelu(self._through(x, name + "wide"))
        return self._normal(x + self._through(wide, name + "narrow"), name + "narrow_norm")

    def _through(self, x: np.ndarray, name: str) -> np.ndarray:
        weight, bias = self._linear(name)
        out: np.ndarray = x.reshape(-1, x.shape[-1]) @ weight.T + bias
        return out.reshape(*x.shape[:-1], -1)

    def _linear(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        return self._part(f"{name}.weight"), self._part(f"{name}.bias")

    def _normal(self, x: np.ndarray, name: str) -> np.ndarray:
        apart = x - x.mean(-1, keepdims=True)
        spread = np.sqrt((apart * apart).mean(-1, keepdims=True) + TINY)
        weight, bias = self._linear(name)
        return np.asarray(apart / spread * weight + bias)

    def _part(self, name: str) -> np.ndarray:
        if name not in self._kept:
            self._kept[name] = np.asarray(self._file.get_tensor(name), np.float32)
        return self._kept[name]

    @cached_property
    def _kept(self) -> dict[str, np.ndarray]:
        return {}


def gelu(x: np.ndarray) -> np.ndarray:
    """x times the share of a normal distribution below x, by an approximation that float32 cannot tell from it.

    The error function after Abramowitz and Stegun, 7.1.26: off by 1.5e-7 at most.
    """
    z = np.abs(x) * np.float32(0.5**0.5)
    t = 1 / (1 + np.float32(0.3275911) * z)
    terms = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
    total = np.zeros_like(t)
    for term in terms:
        total = (total + np.float32(term)) * t
    below = 0.5 * total * np.exp(-z * z)  # the share beyond |x|
    return np.asarray(x * np.where(x < 0, below, 1 - below))
