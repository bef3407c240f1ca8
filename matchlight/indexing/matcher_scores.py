"""Models that compare by more than a dot product: arrays become tensors here, and scores come back as arrays."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from matchlight.core import Embedding, Embeddings, Matcher, Parts
from matchlight.indexing.item_sets import EXTRA, MASK, VECTORS, Arrays, ItemSets
from matchlight.indexing.scorers import DotProduct, OwnVectors, Scorer
from matchlight.methods.dual import ScaledCosine
from matchlight.parts.similarities import Dot
from matchlight.runs.evaluation import products_in
from matchlight.scoring.all_pairs import coarse_parts, score_all

FEW = 128  # items that are scored in one go: planning blocks would take longer than scoring them


def as_embeddings(sets: ItemSets) -> Embeddings:
    """The same as tensors, in full precision."""
    members = tuple(_embedding(part) for part in sets.members)
    return members[0] if len(members) == 1 else Parts(members)


def _embedding(part: Arrays) -> Embedding:
    tensors = {name: torch.from_numpy(array) for name, array in part.items()}
    wide = {name: value.float() if value.is_floating_point() else value for name, value in tensors.items()}
    extra = {name.removeprefix(EXTRA): value for name, value in wide.items() if name.startswith(EXTRA)}
    return Embedding(wide[VECTORS], wide.get(MASK), extra)


def as_item_sets(embedding: Embeddings) -> ItemSets:
    """What a model made, as arrays."""
    return ItemSets(tuple(_arrays(part) for part in embedding.members))


def _arrays(part: Embedding) -> Arrays:
    tensors = {VECTORS: part.vectors, **{f"{EXTRA}{name}": value for name, value in part.extra.items()}}
    tensors |= {MASK: part.mask} if part.mask is not None else {}
    return {name: _array(value.detach()) for name, value in tensors.items()}


def _array(value: Tensor) -> np.ndarray:
    return (value.float() if value.is_floating_point() else value).cpu().numpy()


class MatcherScores:
    """A model's own similarity, on its device."""

    def __init__(self, matcher: Matcher, device: torch.device):
        self.matcher, self.device = matcher, device

    @torch.inference_mode()
    def scores(self, images: ItemSets, texts: ItemSets) -> np.ndarray:
        """(I, T)."""
        with products_in("fp32", self.device):
            sides = as_embeddings(images).to(self.device), as_embeddings(texts).to(self.device)
            if len(images) * len(texts) <= FEW:
                return self.matcher.score(*sides).float().cpu().numpy()
            return score_all(self.matcher, *sides, device=self.device)


class Plain:
    """The model's own vectors that propose (`Similarity.coarse`).

    Members of an ensemble that give one vector each stand side by side, so that one inner product is the sum of theirs;
    where a member gives several, each has dimensions of its own, so that its rows only ever meet its own queries.
    """

    name = "plain"
    exact = False

    def __init__(self, matcher: Matcher, device: torch.device):
        self.matcher, self.device = matcher, device

    @property
    def similarity(self) -> str:
        """What the model compares by."""
        return type(self.matcher.each()[0].similarity).__name__

    @torch.inference_mode()
    def rows(self, sets: ItemSets, side: str) -> np.ndarray:
        """(N, k, d)."""
        parts = [part.float() for part in self._parts(sets, side) if part is not None]
        one_each = len({part.shape[1] for part in parts}) == 1 and parts[0].shape[1] == 1
        return (torch.cat(parts, -1) if one_each else apart(parts)).cpu().numpy()

    @torch.inference_mode()
    def known(self, sets: ItemSets, side: str) -> bool:
        """Whether every member has vectors that propose."""
        return all(part is not None for part in self._parts(sets, side))

    def _parts(self, sets: ItemSets, side: str) -> list[Tensor | None]:
        return coarse_parts(self.matcher, side, as_embeddings(sets).to(self.device))


def apart(parts: list[Tensor]) -> Tensor:
    """(N, k1 + k2 + .., d1 + d2 + ..): each part in its own dimensions, zero elsewhere."""
    if len(parts) == 1:
        return parts[0]
    wide, out, start = sum(part.shape[2] for part in parts), [], 0
    for part in parts:
        room = part.new_zeros(*part.shape[:2], wide)
        room[..., start : start + part.shape[2]] = part
        out.append(room)
        start += part.shape[2]
    return torch.cat(out, 1)


def comparing(matcher: Matcher, device: torch.device) -> tuple[Scorer, OwnVectors]:
    """What compares as this model does, and what proposes: without torch where a dot product is all there is to it."""
    similarity = getattr(matcher, "similarity", None)
    if type(similarity) is Dot:
        return (dot := DotProduct()), dot
    if type(similarity) is ScaledCosine:
        scale, bias = similarity.scale.detach().exp(), similarity.bias
        return (dot := DotProduct(float(scale), 0.0 if bias is None else float(bias.detach()))), dot
    return MatcherScores(matcher, device), Plain(matcher, device)
