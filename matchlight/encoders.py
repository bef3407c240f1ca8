"""Encoders used by two methods or more: words through a GRU, pictures from pixels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from matchlight.core import Items


def lengths(items: Items) -> Tensor:
    """(N,) real words of each caption, on the CPU: batches carry it there so that nothing waits for the device."""
    if "length" in items.extra:
        return items.extra["length"]
    if items.mask is None:
        return torch.full((len(items),), items.x.shape[1])
    return items.mask.sum(1).cpu()


class Words(nn.Module):
    """Token ids -> one state a word: an embedding table and a GRU, both directions averaged (or one direction)."""

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
        self.embed = nn.Embedding(vocabulary, word_dim, padding_idx=0)  # a dropped word becomes <pad>: a zero vector
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        nn.init.zeros_(self.embed.weight[0])
        self.rnn = nn.GRU(word_dim, dim, layers, batch_first=True, bidirectional=both_ways)
        self.dropout = nn.Dropout(dropout)

    def forward(self, items: Items) -> Tensor:
        """(N, L, D) states; padded places are exactly 0."""
        words = self.dropout(self.embed(items.x))
        pack = nn.utils.rnn.pack_padded_sequence(words, lengths(items), batch_first=True, enforce_sorted=False)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(pack)[0], batch_first=True, total_length=items.x.shape[1])
        if not self.rnn.bidirectional:
            return states
        ahead, back = states.chunk(2, -1)
        return (ahead + back) / 2


def last_state(states: Tensor, items: Items) -> Tensor:
    """(N, D): the state at each caption's last real word."""
    last = lengths(items).to(states.device) - 1
    return states[torch.arange(len(states), device=states.device), last]


class Seen(nn.Module):
    """Pixels -> backbone cells -> an encoder of regions: training end to end from pictures."""

    def __init__(self, backbone: nn.Module, regions: nn.Module):
        super().__init__()
        self.backbone = backbone
        self.regions = regions

    def forward(self, items: Items):  # noqa: ANN201 - whatever `regions` gives
        """The embedding of the cells that the backbone sees."""
        cells = self.backbone(items.x.float())
        return self.regions(Items(cells, None, items.id, items.extra))
