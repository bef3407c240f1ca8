"""IMRAM: look, remember what was seen, look again; the score adds up what every look found.

Chen et al., CVPR 2020, arXiv:2003.03772. Departs from the paper: captions of the same picture are never negatives
(`siblings="negatives"` counts them, as the repository does). From the code: the update after the last look, which
nothing reads, is left out, so a model of one look has no memory unit.

The memory reads the query q and the attended vector o side by side, W [q; o] = W_q q + W_o o. Since o = sum_m a_m v_m,
the second part is sum_m a_m (W_o v_m): each context member is multiplied once, and neither o nor [q; o] is formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from matchlight.core import BadInput, Embedding, Sizes
from matchlight.methods.scan import (
    COCO,
    FLICKR,
    ROBUST,
    SMALL,
    WORDS,
    AttentionArguments,
    plain_projection,
    shared_arguments,
    shared_sizes,
)
from matchlight.parts.attention import CrossAttention, Meeting, attention, cosines, sum_of
from matchlight.parts.layers import masked_mean, unit
from matchlight.training.arguments import Count, Positive
from matchlight.training.contract import Recipe
from matchlight.training.registry import Checkpoint, Foreign, Method, renamed

MODES = {"text": ("t2i",), "image": ("i2t",), "full": ("t2i", "i2t")}


class Memory(nn.Module):
    """A gated update of the query by what it attended to: g q + (1 - g) tanh(W_l [q; o])."""

    def __init__(self, dim: int):
        super().__init__()
        self.linear = nn.Linear(2 * dim, dim)
        self.gate = nn.Linear(2 * dim, dim)

    def halves(self) -> tuple[Tensor, Tensor, Tensor]:
        """Both layers as one: the part that reads the query, the part that reads what was attended, the bias."""
        weight = torch.cat([self.linear.weight, self.gate.weight])
        ours, theirs = weight.chunk(2, 1)
        return ours, theirs, torch.cat([self.linear.bias, self.gate.bias])

    def forward(self, query: Tensor, weights: Tensor, context: Tensor) -> Tensor:
        """(N, K*Q, D) from queries (N or 1, K*Q, D), weights (N, M, K*Q) and contexts (N, M, D)."""
        ours, theirs, bias = self.halves()
        attended = weights.transpose(1, 2) @ F.linear(context, theirs)
        new, keep = (F.linear(query, ours, bias) + attended).chunk(2, -1)
        return torch.lerp(new.tanh(), query.expand_as(new), keep.sigmoid())


class RecurrentAttention(CrossAttention):
    """Mean cosines of the original fragments with what a query, refined look by look, attends to; all looks added."""

    def __init__(self, *directions: str, dim: int, steps: int, temperature: float, renormalise: bool):
        super().__init__(*directions)
        self.steps = steps
        self.temperature = temperature
        self.renormalise = renormalise
        self.memory = nn.ModuleDict({way: Memory(dim) for way in directions} if steps > 1 else {})

    def direction_scores(self, meeting: Meeting, direction: str) -> Tensor:
        """(N, K). Training that would keep too much for its backward pass works in parts and looks twice."""
        parts = self._parts(meeting)
        if len(parts) == 1:
            return self._total(meeting, direction)
        return torch.cat([checkpoint(self._total, part, direction, use_reentrant=False) for part in parts])

    def _parts(self, meeting: Meeting) -> list[Meeting]:
        kept = 8 * 4 * meeting.seen[0, 0].numel() * meeting.query.vectors.shape[2] * (self.steps - 1)  # a context
        room = room_for_training(meeting.seen.device)
        if not torch.is_grad_enabled() or kept * len(meeting.seen) <= room:
            return [meeting]
        size = max(1, room // (4 * kept))
        return [meeting.take(slice(start, start + size)) for start in range(0, len(meeting.seen), size)]

    def _total(self, meeting: Meeting, direction: str) -> Tensor:
        return sum_of(self.looks(meeting, direction))

    def looks(self, meeting: Meeting, direction: str) -> list[Tensor]:
        """(N, K) scores of each look."""
        seen, found = meeting.seen, []
        query = meeting.per_query(meeting.query.vectors).flatten(1, 2)
        for step in range(self.steps):
            weights = attention(meeting, temperature=self.temperature, seen=seen)
            found.append(masked_mean(cosines(meeting, weights), meeting.query_mask, 2))
            if step + 1 < self.steps:
                query = self._refined(meeting, query, weights, direction)
                seen = (meeting.context.vectors @ query.transpose(1, 2)).view_as(meeting.seen)
        return found

    def _refined(self, meeting: Meeting, query: Tensor, weights: Tensor, direction: str) -> Tensor:
        new: Tensor = self.memory[direction](query, weights.flatten(2), meeting.context.vectors)
        new = unit(new) if self.renormalise else new
        mask = meeting.query_mask  # the memory's bias would bring padded words to life
        return new if mask is None else new * mask.flatten(1)[..., None]

    def cost(self, images: Embedding, texts: Embedding) -> int:
        """Attention and, with more than one look, the memory's layers and their results, each as long as a vector."""
        widest = max(images.vectors.shape[1] if way == "i2t" else texts.vectors.shape[1] for way in self.directions)
        update = 6 * 4 * widest * images.vectors.shape[2] if self.memory else 0
        return super().cost(images, texts) + update


def room_for_training(device: torch.device) -> int:
    """Bytes that one direction's looks may keep: a quarter of the device, or 4 GiB of a computer's memory."""
    return torch.cuda.get_device_properties(device).total_memory // 4 if device.type == "cuda" else 4 << 30


@dataclass(frozen=True, kw_only=True)
class IMRAM(AttentionArguments):
    """IMRAM: `mode=text` refines words, `image` regions, `full` both; `renormalise` keeps queries of unit length."""

    mode: Literal["text", "image", "full"] = "full"
    steps: Count = 3
    temperature: Positive = 9.0
    renormalise: bool = False
    both_ways: bool = True

    def recipe(self, sizes: Sizes) -> Recipe:
        """Networks, losses, rates and epochs."""
        if self.steps < 1:
            raise BadInput(f"steps={self.steps}: at least 1 look is needed")
        similarity = partial(
            RecurrentAttention,
            *MODES[self.mode],
            dim=self.dim,
            steps=self.steps,
            temperature=self.temperature,
            renormalise=self.renormalise,
        )
        return self.assemble(sizes, similarity, both_ways=self.both_ways)


def read(file: Checkpoint) -> Foreign:
    """One flat `model`, with memory units for both directions in every mode; those that are not used are dropped."""
    state = {key.removeprefix("module."): value for key, value in file["model"].items()}
    options = file["opt"]
    mode = options.get("model_mode", "full_IMRAM").removesuffix("_IMRAM")
    steps = int(options.get("iteration_step", 3))
    image = {key.removeprefix("img_enc."): value for key, value in state.items() if key.startswith("img_enc.")}
    text = {key.removeprefix("txt_enc."): value for key, value in state.items() if key.startswith("txt_enc.")}
    used = MODES[mode] if steps > 1 else ()
    units = {f"{layer}_{way}.": f"similarity.memory.{way}.{layer}." for way in used for layer in ("linear", "gate")}
    memory = {key: value for key, value in state.items() if key.startswith(tuple(units))}
    weights = plain_projection(image, "fc_local.") | renamed(text, WORDS) | renamed(memory, units)
    named = shared_arguments(weights, options) | {
        "mode": mode,
        "steps": steps,
        "temperature": float(options.get("lambda_softmax", 9.0)),
        "renormalise": not options.get("no_IMRAM_norm", False),
        "both_ways": any(".back." in key for key in weights),
    }
    return Foreign(named, shared_sizes(weights), weights)


METHODS = [
    Method(
        "imram",
        IMRAM,
        paper="Iterative Matching with Recurrent Attention Memory for Cross-Modal Image-Text Retrieval (CVPR 2020)",
        needs=("pairs", "regions"),
        small={**SMALL, "dim": 128, "batch": 32, "epochs": 8, "steps": 2},
        robust=ROBUST,
        presets={"f30k": FLICKR, "coco": {**COCO, "temperature": 11.0}},
        reader=read,
    ),
]
