"""AdamP is Adam except where a weight's scale does not matter."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.testing import assert_close

from matchlight.training.network import OPTIMISERS
from matchlight.training.optimisers import AdamP, projected


def after(optimiser: type, steps: int = 5, **options: float) -> nn.Linear:
    torch.manual_seed(0)
    layer, x = nn.Linear(6, 4), torch.randn(16, 6)
    mover = optimiser(layer.parameters(), lr=0.05, **options)
    for _ in range(steps):
        mover.zero_grad()
        (layer(x) - 3 * x[:, :4]).square().mean().backward()
        mover.step()
    return layer


def test_without_projection_it_takes_the_steps_of_adam() -> None:
    assert_close(after(AdamP, delta=0.0).weight, after(torch.optim.Adam).weight)
    assert_close(after(AdamP, delta=0.0, weight_decay=0.1).weight, after(torch.optim.AdamW, weight_decay=0.1).weight)


def test_a_scale_free_weight_keeps_its_length_to_first_order() -> None:
    p = torch.tensor([[3.0, 0.0], [0.0, 2.0]])
    grad = torch.tensor([[0.0, 1.0], [1.0, 0.0]])  # orthogonal to each row: the rows' scale does not matter
    move = torch.tensor([[5.0, 1.0], [1.0, 7.0]])
    out, decay = projected(p, grad, move, delta=0.1, ratio=0.1)
    assert_close(out, torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    assert_close(decay, torch.tensor(0.1))


def test_any_other_weight_is_moved_as_it_is() -> None:
    p = torch.tensor([[3.0, 0.0], [0.0, 2.0]])
    out, decay = projected(p, p.clone(), torch.ones(2, 2), delta=0.1, ratio=0.1)
    assert_close(out, torch.ones(2, 2))
    assert_close(decay, torch.tensor(1.0))


def test_a_weight_that_is_scale_free_only_as_a_whole_is_projected_as_a_whole() -> None:
    p = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    grad = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])  # along each row, orthogonal in all
    out, _ = projected(p, grad, torch.tensor([[2.0, 1.0], [4.0, 0.0]]), delta=0.1, ratio=0.1)
    assert_close(out, torch.tensor([[-1.0, 1.0], [1.0, 0.0]]))  # less 3 along (1, 0, 1, 0)


def test_state_comes_back() -> None:
    layer = after(AdamP)
    first, second = (AdamP(copy.deepcopy(layer).parameters(), lr=0.1) for _ in range(2))
    for mover in (first, second):
        for p in mover.param_groups[0]["params"]:
            p.grad = torch.ones_like(p)
    first.step()
    second.load_state_dict(first.state_dict())
    assert second.state_dict()["state"][0]["step"] == 1
    assert_close(second.state_dict()["state"][0]["mean"], first.state_dict()["state"][0]["mean"])


def test_names_lead_to_them() -> None:
    assert OPTIMISERS["adamp"] is AdamP


def test_amsgrad_is_torchs_own() -> None:
    mover = OPTIMISERS["amsgrad"]([nn.Parameter(torch.zeros(2))], lr=0.1)
    assert type(mover) is torch.optim.Adam and mover.param_groups[0]["amsgrad"] is True
    assert_close(after(OPTIMISERS["amsgrad"]).weight, after(torch.optim.Adam, amsgrad=True).weight, rtol=0, atol=0)
