"""What semantic sharing minimises: label costs of both sides, guesses at what was hidden, consistency if asked for.

No term of the method itself compares a picture with its caption. The consistency terms are those of the paper's control
"+Con", which its code does not hold; they follow DSCMR, with half the cosine of two items as their affinity.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from matchlight.core import IMAGE, TEXT, Batch, Embedding, Objective, Scores, Terms
from matchlight.parts.labelwise import labels_of, length
from matchlight.parts.layers import unit


def label_cost(place: Tensor, probability: Tensor, label: Tensor, *, loss: str) -> Tensor:
    """(N,) how badly items fit their labels: log(1 + exp(-<place, label>)), or binary cross-entropy over classes."""
    if loss == "likelihood":
        return F.softplus(-(place * label).sum(-1))
    sure = probability.clamp(1e-6, 1 - 1e-6)
    return -(label * sure.log() + (1 - label) * torch.log1p(-sure)).mean(-1)


def alike(a: Tensor, b: Tensor, same: Tensor) -> Tensor:
    """Minus the log-likelihood that items which share a label have a high cosine, and others a low one."""
    half = 0.5 * unit(a) @ unit(b).T
    return (F.softplus(half) - same * half).mean()


def consistency(f: Tensor, g: Tensor, of_f: Tensor, of_g: Tensor) -> Tensor:
    """Pairs (P, D) pulled together, items of like labels made alike within and across sides.

    Distances are between directions: of whole vectors they grow with D, outweigh the labels, and all becomes one point.
    """
    own_f, own_g, both = (((a @ b.T) > 0).float() for a, b in ((of_f, of_f), (of_g, of_g), (of_f, of_g)))
    return alike(f, f, own_f) + alike(g, g, own_g) + alike(f, g, both) + length(unit(f) - unit(g)).mean()


class Labelled(Objective):
    """Label costs of both sides, the cost of guessing what was hidden, and consistency where it is asked for.

    It needs no scores; the matrix is cheap, and what it says of each pair is kept as evidence.
    """

    reduction = "mean"

    def __init__(self, *, loss: str = "likelihood", mask_weight: float = 0.0, consistency: float = 0.0):
        super().__init__()
        self.loss = loss
        self.mask_weight = mask_weight
        self.consistency = consistency

    def forward(self, scores: Scores, embeddings: dict[str, Embedding], batch: Batch) -> Terms:
        """A "label" cost a pair (P,), and one number each for "word", "region", "consistency" as far as they count."""
        image, text = batch.positive.unbind(1)
        label = {side: labels_of(batch, side) for side in (IMAGE, TEXT)}
        cost = {side: self._label(embeddings[side], label[side]) for side in (IMAGE, TEXT)}
        terms = {"label": (cost[IMAGE][image] + cost[TEXT][text]) / 2}  # a picture counts once for each of its captions
        for side, name in ((TEXT, "word"), (IMAGE, "region")):
            if "guess" in embeddings[side].extra:
                total, asked = embeddings[side].extra["guess"].sum(0)
                terms[name] = self.mask_weight * total / asked.clamp(min=1)
        if self.consistency and "mean" in embeddings[IMAGE].extra:
            f, g = embeddings[IMAGE].extra["mean"][image].float(), embeddings[TEXT].extra["mean"][text].float()
            terms["consistency"] = self.consistency * consistency(f, g, label[IMAGE][image], label[TEXT][text])
        return terms

    def _label(self, items: Embedding, label: Tensor) -> Tensor:
        return label_cost(items.single.float(), items.extra["probability"].float(), label, loss=self.loss)
