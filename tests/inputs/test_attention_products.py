"""Attention in bfloat16 by plain products: the same as torch's own kernel within rounding."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from matchlight.inputs.backbones import attention_products
from matchlight.inputs.backbones.attention_products import quick_attention

HEADS, TOKENS, DIM = 3, 37, 16


@pytest.fixture
def sides() -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of five pictures."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 5, TOKENS, HEADS, DIM).transpose(2, 3).to(torch.bfloat16)
    return q, k, v


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """What was computed by products, on a CPU that is said to have no matrix units."""
    seen, products = [], attention_products.attention

    def counted(q: Tensor, k: Tensor, v: Tensor, *, scale: float) -> Tensor:
        seen.append(q)
        return products(q, k, v, scale=scale)

    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False, raising=False)
    monkeypatch.setattr(attention_products, "attention", counted)
    return seen


@pytest.mark.parametrize("cached", [1, 2 * HEADS * TOKENS**2 * 2, 4 << 20], ids=["one picture", "two", "all at once"])
@torch.inference_mode()
def test_products_are_as_near_to_float_as_torchs_own_kernel(sides, calls, cached, monkeypatch) -> None:
    monkeypatch.setattr(attention_products, "CACHED", cached)
    right = F.scaled_dot_product_attention(*(each.double() for each in sides), scale=0.3)
    own = F.scaled_dot_product_attention(*sides, scale=0.3)
    with quick_attention(sides[0]):
        ours = F.scaled_dot_product_attention(*sides, scale=0.3)
    assert calls and ours.shape == own.shape
    assert (ours - right).abs().mean() < 3 * (own - right).abs().mean() < 0.01


@torch.inference_mode()
def test_what_it_does_not_know_is_left_to_torch(sides, calls) -> None:
    few = (torch.arange(TOKENS) < 30).expand(TOKENS, TOKENS)
    for said in ({"attn_mask": few}, {"is_causal": True}, {"dropout_p": 0.5}):
        torch.manual_seed(0)
        own = F.scaled_dot_product_attention(*sides, **said)
        torch.manual_seed(0)
        with quick_attention(sides[0]):
            assert torch.equal(F.scaled_dot_product_attention(*sides, **said), own)
    whole = [each.float() for each in sides]
    with quick_attention(whole[0]):
        F.scaled_dot_product_attention(*whole)
    assert not calls


def test_where_gradients_are_on_nothing_changes(sides, calls) -> None:
    with quick_attention(sides[0]):
        F.scaled_dot_product_attention(*sides)
    assert not calls
