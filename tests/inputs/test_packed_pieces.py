"""A sentence encoder that leaves out padding says what it says with it, and learns the same."""

from __future__ import annotations

import pytest
import torch

from matchlight.inputs.sentence_encoders import Bert, Places

SIZES = {"vocabulary": 50, "longest": 16, "dim": 24, "heads": 3, "wide": 48, "layers": 2, "dropout": 0.0}


def captions(lengths: list[int], longest: int) -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.arange(longest)[None] < torch.tensor(lengths)[:, None]
    return torch.randint(1, 50, mask.shape, generator=torch.Generator().manual_seed(3)) * mask, mask


@pytest.mark.parametrize("room", [14, 32])
@pytest.mark.parametrize("longest", [5, 8])
def test_states_and_gradients_are_those_of_the_rectangle(room: int, longest: int) -> None:
    torch.manual_seed(0)
    bert = Bert(**SIZES)
    ids, mask = captions([5, 1, 4, 3], longest)
    weight = torch.randn(*mask.shape, 24) * mask[..., None]
    found = []
    for states in (bert(ids, mask), bert.packed(ids, mask, room=room)):
        bert.zero_grad()
        (states * weight).sum().backward()
        found.append((states * mask[..., None], [p.grad.clone() for p in bert.parameters()]))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-4, atol=1e-5)
    for one, other in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_gradients_of_padding_go_nowhere() -> None:
    ids, mask = captions([2, 3], 4)
    places = Places(mask, 8)
    x = torch.randn(8, 2, requires_grad=True)
    places.spread(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[1.0, 1.0]] * 5 + [[0.0, 0.0]] * 3
    y = torch.randn(2, 4, 2, requires_grad=True)
    (places.gathered(y) * torch.cat([torch.ones(5, 1), torch.zeros(3, 1)])).sum().backward()
    assert y.grad is not None and torch.equal(y.grad, mask[..., None].expand(-1, -1, 2).float())
