"""Encoders used by two methods or more: words through a GRU, word pieces through a sentence encoder, pixels."""

from __future__ import annotations

import warnings
from dataclasses import replace

import torch
from torch import Tensor, nn

from matchlight import devices
from matchlight.core import BadInput, Embedding, Items
from matchlight.inputs.augmentation import PAD, drop_words
from matchlight.inputs.backbones import backbone
from matchlight.inputs.backbones.vision_transformer import TokenBackbone, TokenChoice, Tuning
from matchlight.inputs.sentence_encoders import SentenceEncoder, sentence_encoder
from matchlight.parts.layers import in_onnx_export, unit


def lengths(items: Items) -> Tensor:
    """(N,) real words of each caption, on the CPU: batches carry it there so that nothing waits for the device."""
    if "length" in items.extra:
        return items.extra["length"]
    if items.mask is None:
        return torch.full((len(items),), items.x.shape[1])
    return items.mask.sum(1).cpu()


def word_vectors(embed: nn.Embedding, tokens: Tensor) -> Tensor:
    """Rows of the table by selection: the gradient of nn.Embedding makes a GPU wait to count the words."""
    rows = embed.weight.index_select(0, tokens.flatten()).view(*tokens.shape, -1)
    return rows * (tokens != PAD)[..., None]


class Words(nn.Module):
    """Token ids -> one state a word: an embedding table and a GRU, both directions averaged (or one direction).

    The two directions are two GRUs, the second reading each caption from its last word to its first. On a GPU they read
    padded rectangles: packed sequences cost a copy a word and direction there, and waiting for those is most of a step.
    """

    def __init__(
        self,
        vocabulary: int,
        dim: int,
        *,
        word_dim: int = 300,
        both_ways: bool = True,
        layers: int = 1,
        dropout: float = 0.0,
    ):
        super().__init__()
        if both_ways and layers > 1:
            raise ValueError("a GRU of both directions has one layer here: a second would read both at once")
        self.embed = nn.Embedding(vocabulary, word_dim)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        self.ahead = nn.GRU(word_dim, dim, layers, batch_first=True)
        self.back = nn.GRU(word_dim, dim, batch_first=True) if both_ways else None
        self.dropout = nn.Dropout(dropout)

    def forward(self, items: Items) -> Tensor:
        """(N, L, D) states; padded places are exactly 0."""
        words = self.dropout(word_vectors(self.embed, items.x))
        count = items.mask.sum(1) if words.is_cuda and items.mask is not None else lengths(items)
        ahead, back = states_of(words, count, self.ahead, self.back)
        return ahead if back is None else (ahead + turn(back, count)) / 2


def states_of(words: Tensor, count: Tensor, ahead: nn.GRU, back: nn.GRU | None) -> tuple[Tensor, Tensor | None]:
    """(N, L, D) float32 states each: a GRU over the words, and another over the words from last to first."""
    kind = torch.bfloat16 if words.is_cuda and reads_bf16() else torch.float32
    with torch.autocast(words.device.type, enabled=False):  # it would choose fp16, which has no room for sums
        words = words.to(kind)
        states = read(ahead, words, count).float()
        return states, None if back is None else read(back, turn(words, count), count).float()


def reads_bf16() -> bool:
    """Whether a GRU on a GPU should work in bf16: the step does, and PyTorch and cuDNN are of the versions that can."""
    wanted = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
    known = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 10)
    return wanted and known and (torch.backends.cudnn.version() or 0) >= 91300


def read(gru: nn.GRU, words: Tensor, count: Tensor) -> Tensor:
    """(N, L, D) states of a GRU that reads `count` words of each row; 0 behind them."""
    longest = words.shape[1]
    if words.device.type == "cpu" and not in_onnx_export():  # ONNX reads rectangles too
        pack = nn.utils.rnn.pack_padded_sequence(words, count, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(gru(pack)[0], batch_first=True, total_length=longest)[0]
    real = torch.arange(longest, device=words.device)[None] < count.to(words.device)[:, None]
    states = gru(words)[0] if words.dtype == torch.float32 else read_in(words.dtype, gru, words)
    return states * real[..., None]


def read_in(kind: torch.dtype, gru: nn.GRU, words: Tensor) -> Tensor:
    """What `gru(words)` gives with all weights rounded to this kind; their gradients are float32 again."""
    start = words.new_zeros(gru.num_layers, len(words), gru.hidden_size)
    weights = [weight.to(kind) for layer in gru.all_weights for weight in layer]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous")
        return torch._VF.gru(words, start, weights, True, gru.num_layers, gru.dropout, gru.training, False, True)[0]


def turn(x: Tensor, count: Tensor) -> Tensor:
    """The first `count` places of each row of (N, L, D) from last to first; what follows stays where it is."""
    place, last = torch.arange(x.shape[1], device=x.device)[None], count.to(x.device)[:, None]
    order = torch.where(place < last, last - 1 - place, place)
    return x.gather(1, order[..., None].expand_as(x))


def gru_names(old: str, new: str) -> dict[str, str]:
    """Key prefixes of a released (bi-)GRU -> those of `Words`, for `recipes.renamed`."""
    names = [f"{kind}_{part}_l0" for kind in ("weight", "bias") for part in ("ih", "hh")]
    both = {f"{old}{name}_reverse": f"{new}back.{name}" for name in names}
    return both | {old: f"{new}ahead."}


def last_state(states: Tensor, items: Items) -> Tensor:
    """(N, D): the state at each caption's last real word."""
    last = lengths(items).to(states.device) - 1
    return states[torch.arange(states.shape[0], device=states.device), last]


class Seen(nn.Module):
    """Pixels -> backbone cells -> an encoder of regions: training end to end from pictures."""

    def __init__(self, backbone: nn.Module, regions: nn.Module):
        super().__init__()
        self.backbone = backbone
        self.regions = regions

    def forward(self, items: Items):  # noqa: ANN201 - whatever `regions` gives
        """The embedding of the cells that the backbone sees."""
        return self.regions(self.cells(items))

    def cells(self, items: Items) -> Items:
        """The same pictures as what the backbone sees in them."""
        return replace(items, x=self.backbone(items.x.float()), mask=None)


class ReadPieces(nn.Module):
    """Captions through a pretrained sentence encoder, one state a word piece, and a projection of those states."""

    def __init__(self, name: str, dim: int, *, drop: float, frozen: bool = False):
        super().__init__()
        self.reader = sentence_encoder(name, frozen=frozen)
        self.project = nn.Linear(self.reader.dim, dim)
        self.drop = drop  # share of the words masked, replaced or left out in training
        self._know(name, self.reader.vocabulary())

    def _know(self, name: str, ids: dict[str, int]) -> None:
        if self.drop and not {"[MASK]", "[CLS]", "[SEP]"} <= ids.keys():
            raise BadInput(f"{name} has no [MASK], [CLS] and [SEP] pieces to drop words with; drop_words=0 would work")
        joined = torch.zeros(max(ids.values()) + 1, dtype=torch.bool)
        joined[[place for piece, place in ids.items() if piece.startswith("##")]] = True
        self.register_buffer("joined", joined, persistent=False)
        self.joined: Tensor
        self.masked = ids.get("[MASK]", 0)
        self.special = tuple(ids[piece] for piece in ("[CLS]", "[SEP]") if piece in ids)

    def read(self, items: Items) -> Items:
        """The captions as (N, L, reader's dim) states with a mask; in training some words are dropped before.

        States that were read before, of an encoder that stays as it is, are taken as they come.
        """
        if items.x.is_floating_point():
            return items
        if self.training and self.drop:
            items = drop_words(
                items,
                seed=devices.shared_draw(),
                p=self.drop,
                mode="mixed",
                joined=self.joined,
                word=self.masked,
                vocabulary=len(self.joined),
                special=self.special,
            )
        mask = torch.ones_like(items.x, dtype=torch.bool) if items.mask is None else items.mask
        return replace(items, x=self.reader.read(items.x, mask, real=items.real), mask=mask)


class LastState(nn.Module):
    """A caption as the state of its GRU at the last word, of unit length."""

    def __init__(self, vocabulary: int, dim: int, *, word_dim: int, layers: int, absolute: bool, eps: float):
        super().__init__()
        self.words = Words(vocabulary, dim, word_dim=word_dim, both_ways=False, layers=layers)
        self.eps = eps
        self.absolute = absolute

    def forward(self, items: Items) -> Embedding:
        """(N, 1, dim)."""
        out = unit(last_state(self.words(items), items), eps=self.eps)
        return Embedding((out.abs() if self.absolute else out)[:, None])


def weights_for(matcher: nn.Module, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Another run's weights by the names of this matcher's.

    Those that were learnt on stored features go behind a backbone, which keeps its own weights; those that were learnt
    behind a backbone are taken without it where features are stored.
    """
    own = matcher.state_dict()
    behind, learnt_behind = (any(".backbone." in name for name in names) for names in (own, weights))
    if behind == learnt_behind:
        return weights
    if learnt_behind:
        return {name.replace(".regions.", ".", 1): value for name, value in weights.items() if ".backbone." not in name}
    named = {name: name.replace(".regions.", ".", 1) for name in own}
    kept = {name: own[name] for name in own if ".backbone." in name}
    return kept | {name: weights[before] for name, before in named.items() if before in weights}


def frozen_readers(matcher: nn.Module) -> dict[str, Tensor]:
    """Weights that a file of a model may leave out: those of sentence encoders that learnt nothing."""
    frozen = [
        (name, part) for name, part in matcher.named_modules() if isinstance(part, SentenceEncoder) and part.frozen
    ]
    return {f"{name}.{key}": value for name, part in frozen for key, value in part.state_dict().items()}


def from_pixels(regions: nn.Module, name: str, choice: TokenChoice, tuning: Tuning) -> Seen:
    """The same encoder behind a backbone that trains with it; its BatchNorm statistics stay as they came."""
    seen = backbone(name, choice=choice)
    seen.freeze_statistics()
    if isinstance(seen, TokenBackbone) and tuning != Tuning():
        seen.prepare_tuning(tuning)
    return Seen(seen, regions)
