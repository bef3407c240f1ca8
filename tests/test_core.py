"""The core types: what moves, slices and pads together."""

from __future__ import annotations

import pytest
import torch
from torch import nn, tensor
from torch.testing import assert_close

from matchlight.core import IMAGE, TEXT, Embedding, Ensemble, Items, Matcher, Parts, Similarity, concatenate
from matchlight.parts.similarities import Dot, Order
from matchlight.scoring.all_pairs import block_shape


class Times(nn.Module):
    def __init__(self, factor: float):
        super().__init__()
        self.factor = nn.Parameter(tensor(factor))

    def forward(self, items: Items) -> Embedding:
        return Embedding(items.x[:, None] * self.factor)


def vectors(*rows: list[float]) -> Items:
    return Items(tensor(rows), None, torch.arange(len(rows)))


def test_taking_items_takes_everything_they_carry() -> None:
    items = Items(
        torch.arange(6).view(3, 2), torch.ones(3, 2, dtype=torch.bool), tensor([7, 8, 9]), {"label": tensor([1, 2, 3])}
    )
    taken = items.take(tensor([2, 0]))
    assert (
        taken.id.tolist() == [9, 7] and taken.extra["label"].tolist() == [3, 1] and taken.x.tolist() == [[4, 5], [0, 1]]
    )


def test_sets_of_unequal_size_are_padded_when_joined() -> None:
    small = Embedding(torch.ones(1, 2, 3), torch.ones(1, 2, dtype=torch.bool), {"id": tensor([4])})
    large = Embedding(torch.ones(2, 5, 3), torch.ones(2, 5, dtype=torch.bool), {"id": tensor([5, 6])})
    joined = concatenate([small, large])
    assert joined.vectors.shape == (3, 5, 3) and joined.mask.sum(1).tolist() == [2, 5, 5]
    assert joined.extra["id"].tolist() == [4, 5, 6]


def test_an_ensemble_averages_scores_and_its_embeddings_travel_as_one() -> None:
    members = [Matcher({IMAGE: Times(k), TEXT: Times(1.0)}, Dot()) for k in (1.0, 3.0)]
    both = Ensemble(members)
    images, texts = both.embed(IMAGE, vectors([1.0, 0.0], [0.0, 2.0])), both.embed(TEXT, vectors([1.0, 1.0]))
    assert isinstance(images, Parts) and len(images) == 2
    assert_close(both.score(images, texts), tensor([[2.0], [4.0]]))
    assert_close(both.score(images.take(tensor([1])), texts), tensor([[4.0]]))
    assert_close(both.score_pairs(images.take(slice(0, 1)), texts), tensor([2.0]))
    assert len(concatenate([images, images])) == 4


def test_order_similarity_is_zero_exactly_where_the_caption_lies_below() -> None:
    image, text = Embedding(tensor([[[1.0, 1.0]]])), Embedding(tensor([[[0.5, 1.0]], [[2.0, 1.0]], [[4.0, 5.0]]]))
    assert_close(Order()(image, text), tensor([[0.0, -1.0, -5.0]]))


def test_row_by_row_scores_of_any_similarity_fall_back_on_its_matrix() -> None:
    class Sum(Similarity):
        def forward(self, images: Embedding, texts: Embedding) -> torch.Tensor:
            return images.vectors.sum((1, 2))[:, None] + texts.vectors.sum((1, 2))[None]

    images, texts = Embedding(tensor([[[1.0]], [[2.0]]])), Embedding(tensor([[[10.0]], [[20.0]]]))
    assert Sum().pairs(images, texts).tolist() == [11.0, 22.0]


@pytest.mark.parametrize("budget", [1, 7, 64, 10**9])
def test_a_block_never_outgrows_its_budget_nor_the_matrix(budget: int) -> None:
    tall, wide = block_shape(30, 50, 4, budget)
    assert 1 <= tall <= 30 and 1 <= wide <= 50
    assert tall * wide * 4 <= max(budget, 4)
