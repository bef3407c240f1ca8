"""Pooling, masks and BatchNorm: what is padded never counts."""

from __future__ import annotations

import pytest
import torch
from torch import nn, tensor
from torch.testing import assert_close

from matchlight.parts.layers import BatchNorm, GeneralizedPooling, masked_mean, masked_softmax, top_mean, unit


def test_unit_adds_its_epsilon_to_the_norm() -> None:
    assert_close(unit(tensor([3.0, 4.0]), eps=5.0), tensor([0.3, 0.4]))


def test_masked_mean_counts_only_what_is_real() -> None:
    x = tensor([[[1.0], [3.0], [100.0]]])
    assert_close(masked_mean(x, tensor([[True, True, False]])), tensor([[2.0]]))


def test_masked_softmax_gives_padding_exactly_nothing() -> None:
    out = masked_softmax(tensor([[1.0, 1.0, 9.0]]), tensor([[True, True, False]]))
    assert out.tolist() == [[0.5, 0.5, 0.0]]


def test_the_mean_of_the_largest_takes_fewer_where_a_set_is_small() -> None:
    x = tensor([[[1.0], [5.0], [3.0]], [[2.0], [9.0], [9.0]]])
    mask = tensor([[True, True, True], [True, False, False]])
    assert_close(top_mean(x, mask, k=2), tensor([[4.0], [2.0]]))


def test_pooling_weights_sum_to_one_for_every_size() -> None:
    torch.manual_seed(0)
    theta = GeneralizedPooling().weights(tensor([1, 4, 7]), 7)
    assert_close(theta.sum(1), torch.ones(3))
    assert theta[0].tolist()[1:] == [0.0] * 6


@pytest.mark.parametrize("padding", [0, 3])
def test_pooling_ignores_order_and_padding(padding: int) -> None:
    torch.manual_seed(0)
    pool, x = GeneralizedPooling(), torch.randn(2, 5, 6)
    wide = torch.cat([x.flip(1), torch.full((2, padding, 6), 7.0)], 1)
    mask = torch.arange(5 + padding)[None].expand(2, -1) < 5
    assert_close(pool(wide, mask), pool(x, None), atol=1e-6, rtol=1e-5)


def test_pooling_a_single_vector_returns_it() -> None:
    x = torch.randn(3, 1, 4)
    assert_close(GeneralizedPooling()(x, None), x[:, 0])


def test_masked_statistics_are_those_of_the_real_rows_alone() -> None:
    torch.manual_seed(0)
    ours, plain = BatchNorm(4), nn.BatchNorm1d(4)
    x, mask = torch.randn(3, 5, 4), torch.rand(3, 5) > 0.4
    assert_close(ours(x, mask)[mask], plain(x[mask]), atol=1e-5, rtol=1e-4)
    assert_close(ours.running_var, plain.running_var)
    assert_close(ours.running_mean, plain.running_mean)


def test_in_evaluation_padding_cannot_matter() -> None:
    norm = BatchNorm(4).eval()
    x = torch.randn(2, 3, 4)
    assert_close(norm(x, torch.zeros(2, 3, dtype=torch.bool)), norm(x))
