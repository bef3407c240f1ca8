"""Words and regions from the inside of a model: the attention between them, or the slots that took them."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from matchlight.core import Embedding, Matcher
from matchlight.indexing.item_sets import ItemSets
from matchlight.indexing.matcher_scores import as_embeddings
from matchlight.indexing.slot_attention import slot_shares
from matchlight.methods.similarity_vectors import SimilarityVectors
from matchlight.parts.attention import CrossAttention, attention, cosines, own
from matchlight.parts.set_similarities import SetSimilarity
from matchlight.runs.evaluation import products_in


@torch.inference_mode()
def inside(matcher: Matcher, device: torch.device, image: ItemSets, text: ItemSets) -> tuple[str, np.ndarray] | None:
    """How it was worked out, and (W, R) what each region is to each word; None where a model has no inside to see."""
    members, sides = matcher.each(), [as_embeddings(sets).to(device).members for sets in (image, text)]
    with products_in("fp32", device):
        found = [member_weights(*pair) for pair in zip(members, *sides, strict=True)]
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        return None
    kind = "slots" if isinstance(members[0].similarity, SetSimilarity) else "attention"
    return kind, torch.stack(known).mean(0).float().cpu().numpy()


def member_weights(member: Matcher, image: Embedding, text: Embedding) -> Tensor | None:
    """(W, R) from the inside of one model; None where it has no inside to look at."""
    similarity = member.similarity
    if isinstance(similarity, SimilarityVectors):
        return _agreeing(similarity.attention(image, text, paired=True)[0], image, text)
    if isinstance(similarity, CrossAttention):
        return _attended(similarity, image, text)
    if isinstance(similarity, SetSimilarity) and "shares" in image.extra and slot_shares(text) is not None:
        return _through_slots(image, text)
    return None


def _agreeing(weights: Tensor, image: Embedding, text: Embedding) -> Tensor:
    """Attention (W, R), each word weighted by the cosine between it and what it saw."""
    weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-12)
    saw = weights @ image.vectors[0]
    agree = torch.cosine_similarity(saw, text.vectors[0], dim=-1).clamp(min=0)
    return weights * agree[:, None]


def _attended(similarity: CrossAttention, image: Embedding, text: Embedding) -> Tensor:
    both = []
    attend = partial(attention, temperature=getattr(similarity, "temperature", 9.0))
    if isinstance(norm := getattr(similarity, "norm", None), str):
        attend = partial(attend, norm=norm)
    for way in similarity.directions:
        meeting = own(text, image) if way == "t2i" else own(image, text)
        weights = attend(meeting)
        agree = cosines(meeting, weights).clamp(min=0)[0, 0]  # of each word, or of each region
        weights = weights[0, :, 0] * agree[None]
        both.append(weights.T if way == "t2i" else weights)
    return torch.stack(both).mean(0)


def _through_slots(image: Embedding, text: Embedding) -> Tensor:
    """Word -> the slots that took it -> the picture's slots near those -> the regions they took."""
    words, regions = slot_shares(text), image.extra["shares"]
    assert words is not None
    near = (16 * (text.vectors[0] @ image.vectors[0].T)).flatten().softmax(0).view(text.vectors.shape[1], -1)
    weights = words[0].float() @ near @ regions[0].float().T
    if weights.shape[1] == 1:
        return weights
    return weights - weights.amin(1, keepdim=True)  # slots share evenly what they ignore
