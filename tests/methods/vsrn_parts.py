"""Files as VSRN's authors write them, with weights of any kind, and what of ours reads them: for tests."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from matchlight.core import Items, Matcher, Sizes
from matchlight.methods import vsrn
from matchlight.methods.captioning import Captioner
from matchlight.training.registry import renamed
from tests.reference import vsrn as naive

CAPTIONS = [[1, 5, 7, 2], [1, 9, 2], [1, 4, 4, 11, 6, 2], [1, 8, 3, 2]]
CAPTIONER = {
    "encoder.vid2hid.": "squeeze.",
    "decoder.embedding.": "embed.",
    "decoder.attention.linear1.": "look.",
    "decoder.attention.linear2.": "worth.",
    "decoder.out.": "out.",
    "encoder.rnn.": "reader.",
}


def captioner_of(state: dict[str, Tensor], **options: int) -> Captioner:
    """Our decoder with the authors' weights, without dropout."""
    hidden, dim = state["encoder.vid2hid.weight"].shape
    vocabulary, word_dim = state["decoder.embedding.weight"].shape
    made = Captioner(dim, vocabulary, hidden=hidden, word_dim=word_dim, **options)
    cell = {f"decoder.rnn.{k}_l0": f"writer.{k}" for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    made.load_state_dict(renamed(state, CAPTIONER | cell))
    return made.eval()


def tokens_of(captions: list[list[int]]) -> tuple[Tensor, Tensor]:
    wide = max(map(len, captions))
    tokens = torch.tensor([ids + [0] * (wide - len(ids)) for ids in captions])
    return tokens, torch.arange(wide)[None] < torch.tensor([len(ids) for ids in captions])[:, None]


def texts_of(captions: list[list[int]]) -> Items:
    tokens, mask = tokens_of(captions)
    owner = torch.arange(len(captions))
    return Items(tokens, mask, owner, {"picture": owner, "length": mask.sum(1)})


def release(*, f30k: bool, caption: bool = False) -> dict[str, Any]:
    """A file as the authors write them, with weights of any kind."""
    torch.manual_seed(3)
    model = [
        naive.random_picture_state(inside=6, dim=8, f30k=f30k),
        naive.random_text_state(vocabulary=12, word_dim=4, dim=8),
    ]
    if caption:
        model.append(naive.random_caption_state(vocabulary=12, word_dim=4, dim=8, hidden=7))
    return {"model": model, "opt": {"data_name": "f30k_precomp" if f30k else "coco_precomp", "max_violation": True}}


def matcher_of(file: dict[str, Any]) -> Matcher:
    foreign = vsrn.read_vsrn(file)
    sizes = Sizes(pairs=0, pictures=0, image="regions", **foreign.sizes)
    matcher = vsrn.VSRN(**foreign.arguments).recipe(sizes).matcher()
    missing, unknown = matcher.load_state_dict(foreign.weights, strict=False)
    assert not unknown and all(key.endswith("num_batches_tracked") for key in missing)
    return matcher.eval()


def regions_of(*counts: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    mask = torch.arange(max(counts))[None] < torch.tensor(counts)[:, None]
    return torch.randn(len(counts), max(counts), 6), mask
