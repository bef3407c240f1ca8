"""Captioning as part of a loss: regions that can be put into words are worth matching with words.

The decoder of VSRN (Li et al., ICCV 2019, arXiv:1909.02701): a GRU reads a picture's region states in order, a second
one writes the caption word by word, looking at the regions again before each word and always given the true word before
it. It is used in training only and belongs to the objective, not to the model that is kept.

Departs from the authors' code in cost, not in value: the words of all steps are scored at once, each picture is read
once for all of its captions, and writing stops at the batch's longest caption instead of running to `max_len`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchlight.core import IMAGE, TEXT, Batch, Embedding, Objective, Scores, Terms
from matchlight.parts.encoders import read
from matchlight.parts.layers import masked_softmax


def in_order(gru: nn.GRU, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """(N, R, H) states of a GRU that reads the real regions in order (padding stands behind), and the last (N, H)."""
    with torch.autocast(x.device.type, enabled=False):  # autocast would copy all weights at every call
        if mask is None:
            states = gru(x.float())[0]
            return states, states[:, -1]
        count = mask.sum(1).cpu()
        states = read(gru, x.float(), count)
    return states, states[torch.arange(len(x), device=x.device), count.to(x.device) - 1]


def to_write(tokens: Tensor, mask: Tensor, *, max_len: int) -> tuple[Tensor, Tensor]:
    """Captions -> (P, S + 1) words, of which the last S are to be written, and (P, S) which of those count.

    One padding word after `<end>` counts too: the decoder learns to stop. A caption of more than `max_len` words is cut
    there and ends with its own `<end>`; at most `max_len - 1` words are written.
    """
    width = min(tokens.shape[1], max_len)
    words = F.pad(tokens[:, :width], (0, 1))
    if tokens.shape[1] > max_len:
        count = mask.sum(1, keepdim=True)
        end = tokens.gather(1, count - 1)
        words[:, max_len - 1 : max_len] = torch.where(count > max_len, end, words[:, max_len - 1 : max_len])
    steps = min(width, max_len - 1)
    return words[:, : steps + 1], mask[:, :steps]


class Captioner(nn.Module):
    """Region states -> how unlikely each word of a caption is, given the words before it."""

    def __init__(
        self,
        dim: int,
        vocabulary: int,
        *,
        hidden: int = 512,
        word_dim: int = 300,
        dropout: float = 0.2,
        max_len: int = 60,
    ):
        super().__init__()
        self.hidden = hidden
        self.max_len = max_len
        self.squeeze = nn.Linear(dim, hidden)
        self.reader = nn.GRU(hidden, hidden, batch_first=True)
        self.embed = nn.Embedding(vocabulary, word_dim)
        self.look = nn.Linear(2 * hidden, hidden)
        self.worth = nn.Linear(hidden, 1, bias=False)
        self.writer = nn.GRUCell(word_dim + hidden, hidden)
        self.out = nn.Linear(hidden, vocabulary)
        self.dropout = nn.Dropout(dropout)
        nn.init.xavier_normal_(self.squeeze.weight)
        nn.init.xavier_normal_(self.out.weight)

    def forward(self, states: Tensor, real: Tensor | None, which: Tensor, tokens: Tensor, mask: Tensor) -> Tensor:
        """(P, S) minus log probability of each word written, 0 where none is.

        Pictures are (I, R, D) `states` with a mask `real`; captions are (P, L) `tokens` with their `mask`; `which` (P,)
        says whose caption each is.
        """
        words, counts = to_write(tokens, mask, max_len=self.max_len)
        seen, last = in_order(self.reader, self.dropout(self.squeeze(states)), real)
        before = words[:, :-1]
        vectors = self.embed.weight.index_select(0, before.flatten()).view(
            *before.shape, -1
        )  # its gradient never waits
        hidden = self._write(seen, last, real, which, vectors)
        scores = self.out(hidden).flatten(0, 1)  # (P * S, V): one large product instead of S small ones
        loss = F.cross_entropy(scores, words[:, 1:].flatten(), reduction="none")
        return loss.view_as(counts) * counts

    def _write(self, seen: Tensor, last: Tensor, real: Tensor | None, which: Tensor, words: Tensor) -> Tensor:
        """(P, S, H) states of the decoder, given the true words."""
        seen_part, own_part = self.look.weight.split(self.hidden, dim=1)
        keys = F.linear(seen, seen_part, self.look.bias)[which]  # what of W [region; state] + b no step changes
        regions, state = seen[which], last[which]
        there = None if real is None else real[which]
        out = []
        for word in words.unbind(1):
            looks = torch.tanh(keys + F.linear(state, own_part)[:, None])
            attention = masked_softmax(self.worth(looks).squeeze(-1), there)
            context = torch.einsum("pr,prh->ph", attention, regions)
            state = self.writer(self.dropout(torch.cat([word, context], 1)), state)
            out.append(state)
        return torch.stack(out, 1)


class Described(Objective):
    """A ranking objective, plus how badly each pair's caption is generated from its picture's region states.

    The picture encoder gives the states as `extra["states"]` (and their mask, where there is one, as `extra["real"]`).
    The captioning term is the mean over pairs of a caption's summed word losses, whatever the ranking's reduction.
    """

    def __init__(self, ranking: Objective, captioner: Captioner, *, weight: float = 1.0):
        super().__init__()
        self.ranking = ranking
        self.captioner = captioner
        self.weight = weight
        self.reduction = ranking.reduction
        self.needs_matrix = ranking.needs_matrix

    def forward(self, scores: Scores, embeddings: dict[str, Embedding], batch: Batch) -> Terms:
        """The ranking's terms and "caption", (P,)."""
        return {**self.ranking(scores, embeddings, batch), "caption": self.weight * self.describe(embeddings, batch)}

    def ranked_by(self, ranking: Objective) -> Objective:
        """The same decoder beside another loss."""
        return Described(ranking, self.captioner, weight=self.weight)

    def describe(self, embeddings: dict[str, Embedding], batch: Batch) -> Tensor:
        """(P,) each pair's share of the captioning loss."""
        images, texts = embeddings[IMAGE], batch.sides[TEXT]
        image, text = batch.positive.unbind(1)
        pictures, captions = batch.core or (len(images), len(texts))  # companions are not described
        real = images.extra["real"][:pictures] if "real" in images.extra else None
        assert texts.mask is not None
        long = texts.x.shape[1]
        if captions < len(texts) and "length" in texts.extra:  # nor do long ones make the writing longer
            long = int(texts.extra["length"][:captions].max())
        states = images.extra["states"][:pictures].float()
        cost = self.captioner(states, real, image, texts.x[text, :long], texts.mask[text, :long])
        return cost.sum(1) / (len(text) if self.reduction == "sum" else 1)
