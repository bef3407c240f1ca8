"""Cross-attention without attended vectors: hand-worked numbers, and the same as when they are formed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from matchlight.core import Embedding
from matchlight.parts.attention import (
    AGGREGATES,
    NORMS,
    Meeting,
    attended_length,
    attention,
    combined,
    cosines,
    every,
    own,
    sharpened,
)
from tests.reference import cross_attention as naive
from tests.reference.sets import sets, words_mask


def test_a_word_between_two_regions_by_hand() -> None:
    regions = Embedding(torch.eye(2)[None])  # one picture: (1, 0) and (0, 1)
    word = Embedding(torch.tensor([[[0.6, 0.8]]]))
    meeting = every(word, regions)
    assert_close(meeting.seen.flatten(), torch.tensor([0.6, 0.8]))
    weights = torch.tensor([0.25, 0.75]).view(1, 2, 1, 1)  # attended vector (0.25, 0.75)
    assert_close(attended_length(meeting, weights).item(), 0.625**0.5)
    assert_close(cosines(meeting, weights).item(), (0.6 * 0.25 + 0.8 * 0.75) / 0.625**0.5)


def test_norms_by_hand() -> None:
    seen = torch.tensor([0.3, -0.4]).view(1, 1, 1, 2)  # one region, two words
    wanted = {
        "no_norm": [0.3, -0.4],
        "clipped": [0.3, -0.04],
        "l2norm": [0.6, -0.8],
        "clipped_l2norm": [0.3 / 0.0916**0.5, -0.04 / 0.0916**0.5],
        "l1norm": [3 / 7, -4 / 7],
        "clipped_l1norm": [0.3 / 0.34, -0.04 / 0.34],
        "softmax": [0.668188, 0.331812],  # 1 / (1 + exp(-0.7))
    }
    assert set(wanted) == set(NORMS)
    for norm, values in wanted.items():
        found = sharpened(seen, temperature=2.0, norm=norm).flatten()
        assert_close(found, 2 * torch.tensor(values), atol=1e-5, rtol=0)


@pytest.mark.parametrize("norm", NORMS)
def test_weights_sum_to_one_over_real_members_and_are_those_of_the_loop(norm: str) -> None:
    images, texts, lengths = sets(3, 4, regions=5, dim=6)
    for query, context in ((texts, images), (images, texts)):
        weights = attention(every(query, context), temperature=4.0, norm=norm)
        real = torch.ones(context.vectors.shape[:2]) if context.mask is None else context.mask.float()
        assert_close(weights.sum(1), torch.ones_like(weights.sum(1)))
        assert (weights * (1 - real)[:, :, None, None] == 0).all()
    found = attention(every(texts, images), temperature=4.0, norm=norm)
    for t, length in enumerate(lengths):
        words = texts.vectors[t, :length].expand(3, -1, -1)
        wanted = naive.attention(words, images.vectors, temperature=4.0, norm=norm)
        assert_close(found[:, :, t, :length], wanted.transpose(1, 2), atol=1e-6, rtol=1e-5)


def test_pair_by_pair_is_the_diagonal_of_all_with_all() -> None:
    images, texts, _ = sets(4, 4, regions=3, dim=5)
    for query, context in ((texts, images), (images, texts)):
        whole, alone = every(query, context), own(query, context)
        diagonal = torch.arange(4)
        assert_close(alone.seen[:, :, 0], whole.seen[diagonal, :, diagonal])
        both = [cosines(m, attention(m, temperature=9.0)) for m in (whole, alone)]
        assert_close(both[1][:, 0], both[0][diagonal, diagonal])


@pytest.mark.parametrize("meet", [every, own])
def test_a_meeting_turned_round_is_the_meeting_the_other_way(meet: object) -> None:
    images, texts, _ = sets(3, 3, regions=5, dim=6)
    turned, direct = meet(texts, images).turned(), meet(images, texts)  # type: ignore[operator]
    assert_close(turned.seen, direct.seen)
    assert_close(turned.gram, direct.gram)
    assert_close(turned.lengths, direct.lengths)
    assert (turned.context_mask == direct.context_mask).all() and turned.query_mask is None


def test_what_stands_at_padded_places_does_not_matter() -> None:
    images, texts, _ = sets(3, 4, regions=5, dim=6)
    assert texts.mask is not None
    junk = texts.vectors + torch.randn_like(texts.vectors) * ~texts.mask[..., None]
    other = Embedding(junk, texts.mask)
    for make in (lambda t: every(t, images), lambda t: every(images, t)):
        assert_close(make(other).seen, make(texts).seen)
        assert_close(make(other).gram, make(texts).gram)


def test_some_contexts_score_as_all_do() -> None:
    images, texts, _ = sets(5, 5, regions=3, dim=4)
    for meeting in (every(texts, images), own(texts, images)):
        part = meeting.take(slice(1, 4))
        weights = attention(meeting, temperature=9.0)
        assert_close(cosines(part, weights[1:4]), cosines(meeting, weights)[1:4])


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 9), st.floats(0.5, 30))
def test_largest_and_summed_evidence_bound_the_soft_maximum(seed: int, words: int, sharpness: float) -> None:
    torch.manual_seed(seed)
    cosine, mask = torch.rand(2, 3, words, dtype=torch.float64) * 2 - 1, words_mask(3, words)[None]
    found = {how: combined(cosine, mask, aggregate=how, sharpness=sharpness) for how in AGGREGATES}
    count = mask.sum(2)
    assert_close(found["sum"], found["mean"] * count)
    assert (found["lse"] >= found["max"] - 1e-9).all()
    assert (found["lse"] <= found["max"] + count.log() / sharpness + 1e-9).all()


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_aggregates_are_those_of_the_loop(aggregate: str) -> None:
    cosine, mask = torch.rand(2, 3, 7) * 2 - 1, words_mask(3, 7)
    found = combined(cosine, mask[None], aggregate=aggregate, sharpness=5.0)
    for t, length in enumerate(mask.sum(1).tolist()):
        assert_close(found[:, t], naive.AGGREGATES[aggregate](cosine[:, t, :length], 5.0))


@pytest.mark.parametrize("norm", NORMS)
def test_zero_vectors_leave_gradients_finite_and_small(norm: str) -> None:
    images, texts, _ = sets(3, 4, regions=5, dim=6)
    with torch.no_grad():
        images.vectors[0, 2] = 0  # a region without content is a real member that points nowhere
    vectors = [images.vectors.clone().requires_grad_(), texts.vectors.clone().requires_grad_()]
    pictures, captions = Embedding(vectors[0], images.mask), Embedding(vectors[1], texts.mask)
    for query, context in ((captions, pictures), (pictures, captions)):
        meeting = every(query, context)
        combined(
            cosines(meeting, attention(meeting, temperature=9.0, norm=norm)), meeting.query_mask, aggregate="lse"
        ).sum().backward()
    for side in vectors:
        assert side.grad is not None and side.grad.isfinite().all() and side.grad.abs().max() < 1e3


def test_scores_of_half_precision_sets_are_computed_in_single() -> None:
    images, texts, _ = sets(2, 3, regions=4, dim=8)
    half = Embedding(texts.vectors.half(), texts.mask)
    meeting: Meeting = every(half, Embedding(images.vectors.bfloat16()))
    assert meeting.seen.dtype == torch.float32
    assert every(Embedding(texts.vectors.double()), Embedding(images.vectors.double())).seen.dtype == torch.float64
