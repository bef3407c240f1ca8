"""The captioning branch: what it writes, and that its loss is the word-by-word loop of the authors."""

from __future__ import annotations

from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from matchlight.core import IMAGE, TEXT, Batch, Items, Scores
from matchlight.methods.captioning import Described, to_write
from matchlight.parts.objectives import Hinge
from tests.fixtures import imported
from tests.methods.vsrn_parts import CAPTIONS, captioner_of, matcher_of, release, texts_of, tokens_of
from tests.reference import vsrn as naive


def test_a_caption_is_written_to_its_end_and_one_place_further() -> None:
    words, counts = to_write(*tokens_of([[1, 5, 2], [1, 5, 6, 7, 2]]), max_len=60)
    assert words.tolist() == [[1, 5, 2, 0, 0, 0], [1, 5, 6, 7, 2, 0]]
    assert counts.int().tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]  # 5, end, pad | 5, 6, 7 -> end, pad


def test_a_caption_of_seventy_words_ends_at_place_fifty_nine() -> None:
    words, counts = to_write(*tokens_of([[1, *[5] * 68, 2], [1, 5, 2]]), max_len=60)
    assert words.shape == (2, 60) and words[0, 59] == 2 and not (words[0, 1:59] != 5).any()
    assert counts.sum(1).tolist() == [59, 3]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(2, 8))
def test_what_is_written_is_what_the_authors_grade(lengths: list[int], max_len: int) -> None:
    captions = [[1, *[5 + n % 3] * n, 2] for n in lengths]
    words, counts = to_write(*tokens_of(captions), max_len=max_len)
    for row, ids in enumerate(captions):
        label, mask = naive.label_and_mask(ids, max_len, end=2)
        steps = counts.shape[1]
        assert words[row].tolist() == label[: steps + 1]
        assert counts[row].int().tolist() == mask[1 : steps + 1]
        assert not any(mask[steps + 1 : max_len])


def test_wider_padding_adds_nothing_to_the_caption_loss() -> None:
    captioner = captioner_of(release(f30k=False, caption=True)["model"][2])
    tokens, mask = tokens_of(CAPTIONS)
    states, which = torch.randn(4, 3, 8), torch.arange(4)
    wide = [torch.cat([part, part.new_zeros(4, 5)], 1) for part in (tokens, mask)]
    assert_close(captioner(states, None, which, *wide).sum(1), captioner(states, None, which, tokens, mask).sum(1))


def test_the_caption_term_is_a_mean_over_pairs_of_the_batchs_own_pictures() -> None:
    captioner = captioner_of(release(f30k=False, caption=True)["model"][2])
    matcher = matcher_of(release(f30k=False))
    images = matcher.embed(IMAGE, Items(torch.randn(3, 5, 6), None, torch.arange(3)))
    links = torch.tensor([[0, 0], [0, 1], [1, 2]])  # two captions share a picture; the third picture is a companion
    sides = {IMAGE: Items(torch.zeros(3, 5, 6), None, torch.arange(3)), TEXT: texts_of(CAPTIONS)}
    batch = Batch(sides, {"positive": links}, torch.arange(3), core=(2, 3))
    matrix = Scores(torch.rand(2, 3))
    terms = Described(Hinge(), captioner, weight=0.5)(matrix, {IMAGE: images}, batch)
    tokens, mask = tokens_of(CAPTIONS[:3])
    alone = captioner(images.extra["states"][:2], None, links[:, 0], tokens, mask).sum(1)
    assert_close(terms["caption"], 0.5 * alone / 3)
    assert set(terms) == {"i2t", "t2i", "caption"}


def test_the_caption_loss_is_the_word_by_word_loop() -> None:
    state = release(f30k=False, caption=True)["model"][2]
    captioner = captioner_of(state, max_len=5)  # the third caption has six words: it is cut and ended
    torch.manual_seed(2)
    states, real = torch.randn(2, 4, 8, requires_grad=True), torch.tensor([[True] * 4, [True, True, False, False]])
    which = torch.tensor([0, 1, 1, 0])
    found = captioner(states, real, which, *tokens_of(CAPTIONS)).sum(1)
    cut = [states[0], states[1, :2]]
    wanted = torch.stack(
        [naive.caption_loss(state, cut[int(i)], ids, max_len=5, end=2) for i, ids in zip(which, CAPTIONS, strict=True)]
    )
    assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    a, b = (torch.autograd.grad(value.sum(), states, retain_graph=True)[0] for value in (found, wanted))
    assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_captions_to_write_are_those_of_the_authors(parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / "vsrn", "vsrn", tmp_path / "run")
    texts = run.inputs(pairs).table.items(TEXT, expected["batch_order_sorted_by_length"])
    assert texts.mask is not None
    words, counts = to_write(texts.x, texts.mask, max_len=20)
    steps = counts.shape[1]
    assert words.tolist() == expected["caption_labels_sorted"][:, : steps + 1].tolist()
    assert counts.int().tolist() == expected["caption_masks_sorted"][:, 1 : steps + 1].astype(int).tolist()
    assert not expected["caption_masks_sorted"][:, steps + 1 :].any()
