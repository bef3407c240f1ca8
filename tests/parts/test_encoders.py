"""Reading words: both directions are those of a bi-GRU, and padding is never read."""

from __future__ import annotations

import torch
from torch import nn
from torch.testing import assert_close

from matchlight.core import Items
from matchlight.parts import encoders
from matchlight.parts.encoders import Words, gru_names, last_state, turn
from matchlight.training.registry import renamed


def caption_items() -> Items:
    tokens = torch.tensor([[1, 5, 6, 2, 0], [1, 2, 0, 0, 0], [1, 7, 8, 9, 2]])
    return Items(tokens, tokens > 0, torch.arange(3), {"length": torch.tensor([4, 2, 5])})


def test_two_gru_are_one_bidirectional_gru() -> None:
    torch.manual_seed(0)
    words, both = Words(10, 6, word_dim=4), nn.GRU(4, 6, batch_first=True, bidirectional=True)
    state = renamed({f"rnn.{key}": value for key, value in both.state_dict().items()}, gru_names("rnn.", ""))
    words.load_state_dict({"embed.weight": words.embed.weight, **state})
    items = caption_items()
    pack = nn.utils.rnn.pack_padded_sequence(
        words.embed(items.x), items.extra["length"], batch_first=True, enforce_sorted=False
    )
    ahead, back = nn.utils.rnn.pad_packed_sequence(both(pack)[0], batch_first=True)[0].chunk(2, -1)
    assert_close(words(items), (ahead + back) / 2)


def test_padded_rectangles_give_what_packed_sequences_give() -> None:
    torch.manual_seed(0)
    gru, x, count = nn.GRU(4, 6, batch_first=True), torch.randn(3, 5, 4), torch.tensor([4, 2, 5])
    real = torch.arange(5)[None] < count[:, None]
    assert_close(encoders.read(gru, x, count), gru(x)[0] * real[..., None])


def test_turning_twice_changes_nothing_and_padding_stays() -> None:
    x = torch.arange(10.0).view(2, 5, 1)
    count = torch.tensor([3, 5])
    assert turn(x, count)[0, :, 0].tolist() == [2, 1, 0, 3, 4]
    assert_close(turn(turn(x, count), count), x)


def test_the_last_state_is_that_of_the_last_real_word() -> None:
    states = torch.arange(15.0).view(3, 5, 1)
    assert last_state(states, caption_items())[:, 0].tolist() == [3.0, 6.0, 14.0]
