"""Scoring in blocks: captions of like length together, padding cut to a block's longest, and always the same matrix."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from matchlight.core import IMAGE, TEXT, Embedding, Ensemble, Matcher, Parts, Similarity
from matchlight.parts.similarities import Dot, Order
from matchlight.scoring.all_pairs import block_shape, plan_blocks, score_all, trim, used
from tests.reference.sets import sets


class MeanWord(Similarity):
    """The mean word against the mean region; remembers the shapes it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.asked: list[tuple[int, int, int]] = []

    def forward(self, images: Embedding, texts: Embedding) -> Tensor:
        self.asked.append((len(images), len(texts), texts.vectors.shape[1]))
        real = texts.vectors.shape[1] if texts.mask is None else texts.mask.sum(1)[:, None]
        return images.vectors.mean(1) @ (texts.vectors.sum(1) / real).T * self.weight

    def cost(self, images: Embedding, texts: Embedding) -> int:
        return 4 * images.vectors.shape[1] * texts.vectors.shape[1]


def matcher() -> Matcher:
    return Matcher({IMAGE: nn.Identity(), TEXT: nn.Identity()}, MeanWord())


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 9), st.integers(1, 23), st.integers(1, 4000))
def test_the_budget_never_changes_the_matrix(pictures: int, captions: int, budget: int) -> None:
    images, texts, _ = sets(pictures, captions, regions=3, dim=4)
    model = matcher()
    whole = model.score(images, texts).detach().numpy()
    np.testing.assert_allclose(score_all(model, images, texts, budget=budget), whole, atol=1e-6)


def test_a_block_is_no_wider_than_its_longest_caption() -> None:
    images, texts, lengths = sets(4, 20, regions=3, dim=4)
    model = matcher()
    score_all(model, images, texts, budget=4 * 3 * 7 * 8)
    seen = model.similarity.asked
    assert len(seen) > 4
    assert max(width for _, _, width in seen) == max(lengths) and min(width for _, _, width in seen) < max(lengths)
    assert all(p * count * width * 3 * 4 <= 4 * 3 * 7 * 8 for p, count, width in seen), "a block keeps to its budget"


def test_shorter_captions_come_in_wider_runs() -> None:
    images, texts, _ = sets(4, 40, regions=3, dim=4)
    blocks = plan_blocks(matcher(), images, texts, 4 * 3 * 7 * 4 * 5)
    widths, counts = [w for _, _, w in blocks.runs], [stop - start for start, stop, _ in blocks.runs]
    assert widths == sorted(widths, reverse=True) and counts[-2] > counts[0]
    assert sorted(blocks.order.tolist()) == list(range(40))
    assert blocks.runs[0][0] == 0 and blocks.runs[-1][1] == 40


def test_used_places_reach_to_the_last_real_member() -> None:
    mask = torch.tensor([[True, True, False, False], [True, False, True, False], [False] * 4])
    part = Embedding(torch.zeros(3, 4, 2), mask)
    assert used(part).tolist() == [2, 3, 1]
    assert used(Embedding(torch.zeros(3, 5, 2))).tolist() == [5, 5, 5]
    assert used(Parts((part, Embedding(torch.zeros(3, 2, 2), mask[:, :2])))).tolist() == [2, 3, 1]


def test_trimming_cuts_what_follows_the_sets_and_nothing_else() -> None:
    mask = torch.ones(2, 4, dtype=torch.bool)
    extra = {"id": torch.arange(2), "states": torch.zeros(2, 4, 3), "whole": torch.zeros(2, 4)}
    cut = trim(Embedding(torch.zeros(2, 4, 5), mask, extra), 3)
    assert isinstance(cut, Embedding) and cut.mask is not None
    assert cut.vectors.shape == (2, 3, 5) and cut.mask.shape == (2, 3)
    assert [cut.extra[k].shape for k in ("id", "states", "whole")] == [(2,), (2, 3, 3), (2, 4)]
    bare = Embedding(torch.zeros(2, 4, 5))
    assert trim(bare, 3) is bare


def test_a_model_that_depends_on_padding_sees_all_of_it_in_file_order() -> None:
    images, texts, lengths = sets(2, 9, regions=3, dim=4)
    model = matcher()
    model.depends_on_padding = True
    score_all(model, images, texts, budget=4 * 3 * 7 * 4)
    assert {width for _, _, width in model.similarity.asked} == {7} and min(lengths) < 7
    assert plan_blocks(model, images, texts, 1).order.tolist() == list(range(9))


def test_an_ensemble_in_blocks_is_the_mean_of_its_members() -> None:
    images, texts, _ = sets(3, 8, regions=3, dim=4)
    wider = Embedding(
        torch.cat([texts.vectors, torch.zeros(8, 2, 4)], 1), torch.cat([texts.mask, torch.zeros(8, 2) > 0], 1)
    )
    model = Ensemble([matcher(), matcher()])
    with torch.no_grad():
        model.members[1].similarity.weight.fill_(3.0)
    found = score_all(model, Parts((images, images)), Parts((texts, wider)), budget=100)
    np.testing.assert_allclose(found, 2 * score_all(matcher(), images, texts), atol=1e-6)


@pytest.mark.parametrize(("room", "wanted"), [(1, (1, 1)), (100, (10, 10)), (10_000, (20, 30))])
def test_blocks_are_as_square_as_the_matrix_lets_them_be(room: int, wanted: tuple[int, int]) -> None:
    assert block_shape(20, 30, 8, 8 * room) == wanted


def test_dot_and_order_by_hand() -> None:
    image, text = Embedding(torch.tensor([[[3.0, 4.0]]])), Embedding(torch.tensor([[[3.0, 8.0]], [[1.0, 0.0]]]))
    assert Dot()(image, text).tolist() == [[41.0, 3.0]]
    assert Order()(image, text).tolist() == [[-4.0, 0.0]]  # only what the caption has beyond the picture counts
    for similarity in (Dot(), Order()):
        assert_close(similarity.pairs(image.take(torch.tensor([0, 0])), text), similarity(image, text)[0])
