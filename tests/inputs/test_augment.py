"""Augmentation: draws are fair, belong to the row alone, and do what their names say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from matchlight.core import Items
from matchlight.inputs.augmentation import centre, crop_flip_colour, drop_regions, drop_words, row_uniform

torch.set_num_threads(1)
MASK64 = (1 << 64) - 1


def splitmix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def pictures(n: int, height: int = 8, width: int = 10, seed: int = 0) -> Items:
    x = np.random.default_rng(seed).integers(0, 256, (n, 3, height, width), dtype=np.uint8)
    return Items(torch.from_numpy(x), None, torch.arange(n) + 100)


def regions(n: int, count: int) -> Items:
    return Items(torch.randn(n, count, 4), None, torch.arange(n))


def words(lists: list[list[int]]) -> Items:
    wide = max(map(len, lists))
    x = torch.tensor([row + [0] * (wide - len(row)) for row in lists])
    length = torch.tensor([len(row) for row in lists])
    return Items(x, torch.arange(wide)[None] < length[:, None], torch.arange(len(lists)), {"length": length})


# ---- draws ----


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**40), st.integers(0, 2**63), st.integers(1, 6))
def test_a_draw_is_the_hash_written_out_in_whole_numbers(place, seed, n):
    golden = 0x9E3779B97F4A7C15
    row = splitmix((place + golden * (seed + 1)) & MASK64)
    expected = [(splitmix((row + golden * (k + 1)) & MASK64) >> 40) / 2**24 for k in range(n)]
    assert row_uniform(torch.tensor([place]), n, seed)[0].tolist() == expected


def test_draws_are_spread_evenly_over_rows_columns_and_seeds():
    for draw in (
        row_uniform(torch.arange(20000), 1, 0)[:, 0],
        row_uniform(torch.tensor([7]), 20000, 0)[0],
        torch.cat([row_uniform(torch.tensor([7]), 1, seed)[0] for seed in range(2000)]),
    ):
        counts = torch.histc(draw, 20, 0, 1)
        chi = ((counts - len(draw) / 20) ** 2 / (len(draw) / 20)).sum()
        assert chi < 50  # 19 degrees of freedom: above it once in 7000 times
        assert draw.min() >= 0 and draw.max() < 1


def test_draws_of_neighbouring_rows_columns_and_seeds_have_nothing_in_common():
    draw = row_uniform(torch.arange(20000), 2, 3)
    near = (
        (draw[1:, 0], draw[:-1, 0]),
        (draw[:, 0], draw[:, 1]),
        (draw[:, 0], row_uniform(torch.arange(20000), 1, 4)[:, 0]),
    )
    for a, b in near:
        assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1]) < 0.03  # 4 standard deviations


CHANGES = {
    "crop": lambda items: crop_flip_colour(items, seed=5),
    "area": lambda items: crop_flip_colour(items, seed=5, by="area", scale=(0.08, 1), ratio=(0.75, 4 / 3)),
    "regions": lambda items: drop_regions(items, seed=5, p=0.5),
    "varied": lambda items: drop_regions(items, seed=5, p=0.5, varied=True),
    "zero": lambda items: drop_words(items, seed=5, p=0.5),
    "mixed": lambda items: drop_words(items, seed=5, p=0.5, mode="mixed", vocabulary=50, word=9),
}


def made(name: str) -> Items:
    if name in ("crop", "area"):
        return pictures(6)
    return regions(6, 7) if name in ("regions", "varied") else words([list(range(1, 8))] * 6)


@pytest.mark.parametrize("name", CHANGES)
def test_an_item_is_changed_in_the_same_way_alone_and_in_company(name):
    items = made(name)
    whole, order = CHANGES[name](items), torch.tensor([4, 1])
    part = CHANGES[name](items.take(order))
    assert_close(part.x, whole.x[order])
    assert (part.mask is None and whole.mask is None) or torch.equal(part.mask, whole.mask[order])
    assert torch.equal(CHANGES[name](items).x, whole.x)  # and again the same


@pytest.mark.parametrize("name", ["zero", "mixed"])
def test_a_caption_is_changed_in_the_same_way_beside_longer_ones(name):
    short, long = [3, 4, 5, 6, 7], list(range(1, 12))
    for place in range(20):
        alone, beside = words([short]), words([short, long])
        alone.id[:], beside.id[0] = place, place
        one, two = CHANGES[name](alone), CHANGES[name](beside)
        assert one.x[0][one.mask[0]].tolist() == two.x[0][two.mask[0]].tolist()


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_given_stays_untouched(name):
    items = made(name)
    before = items.map(torch.clone)
    CHANGES[name](items)
    assert torch.equal(items.x, before.x)
    assert items.mask is None or torch.equal(items.mask, before.mask)


def test_another_seed_is_another_change():
    items = pictures(4)
    assert not torch.equal(crop_flip_colour(items, seed=1).x, crop_flip_colour(items, seed=2).x)
    with_ids = regions(500, 2)
    other = Items(torch.ones(500, 2, dtype=torch.int64), None, with_ids.id)
    kept = drop_regions(with_ids, seed=1, p=0.5).mask[:, 0].float()
    spoken = (drop_words(other, seed=1, p=0.5).x[:, 0] > 0).float()
    assert abs(torch.corrcoef(torch.stack([kept, spoken]))[0, 1]) < 0.2  # one id and seed, yet no shared luck


# ---- pictures ----


def test_with_nothing_to_draw_the_picture_comes_back():
    items = pictures(3)
    still = crop_flip_colour(items, seed=0, scale=(1, 1), flip=0, brightness=0)
    assert_close(still.x, items.x.float(), atol=1e-2, rtol=0)
    mirrored = crop_flip_colour(items, seed=0, scale=(1, 1), flip=1, brightness=0)
    assert_close(mirrored.x, items.x.flip(3).float(), atol=1e-2, rtol=0)


def test_a_window_of_half_the_side_shows_a_part_at_twice_the_size():
    ramp = torch.arange(64.0).expand(200, 3, 64, 64)  # a pixel's value is its column
    items = Items(ramp, None, torch.arange(200))
    seen = crop_flip_colour(items, seed=0, scale=(0.5, 0.5), flip=0, brightness=0).x
    slope = seen[:, 0, 32, 40] - seen[:, 0, 32, 24]
    assert_close(slope, torch.full((200,), 8.0), atol=1e-3, rtol=0)  # 16 columns of the window are 8 of the picture
    left = seen[:, 0, 0, 0]
    assert (
        left.min() >= 0 and left.max() <= 32.5 and left.min() < 2 and left.max() > 30
    )  # windows lie everywhere inside


def test_the_area_bounds_the_area_and_the_ratio_the_ratio():
    ramp = torch.arange(64.0).expand(300, 64, 64)
    items = Items(torch.stack([ramp, ramp.transpose(1, 2), ramp], 1), None, torch.arange(300))
    seen = crop_flip_colour(items, seed=1, by="area", scale=(0.1, 0.4), ratio=(0.75, 4 / 3), flip=0, brightness=0).x
    wide = (seen[:, 0, 0, 40] - seen[:, 0, 0, 24]) / 16
    tall = (seen[:, 1, 40, 0] - seen[:, 1, 24, 0]) / 16
    area, ratio = wide * tall, wide / tall
    assert 0.0999 <= area.min() < 0.12 and 0.38 < area.max() <= 0.4001
    assert 0.7499 <= ratio.min() < 0.78 and 1.28 < ratio.max() <= 1.3334


def test_brightness_multiplies_and_stays_in_range():
    items = Items(torch.full((300, 3, 2, 2), 100.0), None, torch.arange(300))
    seen = crop_flip_colour(items, seed=0, brightness=0.2).x[:, 0, 0, 0]
    assert 80 <= seen.min() < 82 and 118 < seen.max() <= 120
    bright = Items(torch.full((50, 3, 2, 2), 250, dtype=torch.uint8), None, torch.arange(50))
    assert crop_flip_colour(bright, seed=0, brightness=0.5).x.max() == 255


def test_half_of_the_pictures_are_mirrored():
    items = Items(torch.arange(4.0).expand(1000, 3, 4, 4), None, torch.arange(1000))
    seen = crop_flip_colour(items, seed=0, scale=(1, 1), brightness=0).x
    assert 440 < int((seen[:, 0, 0, 0] > 1.5).sum()) < 560


def test_the_size_that_comes_out_can_be_chosen():
    assert crop_flip_colour(pictures(2), seed=0, size=(5, 6)).x.shape == (2, 3, 5, 6)
    middle = centre(pictures(2, 16, 16), share=0.5, size=(8, 8))
    assert_close(middle.x, pictures(2, 16, 16).x[:, :, 4:12, 4:12].float(), atol=1e-2, rtol=0)


# ---- regions and words ----


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**31), st.floats(0, 1), st.integers(1, 9), st.booleans())
def test_at_least_one_real_region_stays_and_no_padding_becomes_real(seed, p, count, varied):
    mask = row_uniform(torch.arange(30), count, seed + 1) < 0.6
    mask[:, 0] |= ~mask.any(1)
    items = Items(torch.zeros(30, count, 2), mask, torch.arange(30))
    kept = drop_regions(items, seed=seed, p=p, varied=varied).mask
    assert kept.any(1).all() and not (kept & ~mask).any()


def test_regions_leave_at_the_asked_for_rate():
    assert abs(drop_regions(regions(400, 50), seed=0, p=0.2).mask.float().mean() - 0.8) < 0.01
    varied = drop_regions(regions(4000, 50), seed=0, p=0.2, varied=True).mask.float().mean(1)
    assert 0.19 < (varied == 1).float().mean() < 0.25  # a fifth by rule, few more by luck
    assert abs((1 - varied.mean()) - 0.2 * (1 - 0.2**2) / 2) < 0.005  # the integral of .2 v over v in (.2, 1)


def test_zeroed_words_become_the_pad_word_and_stay_in_the_mask():
    items = words([[5, 6, 7, 8], [5, 6]])
    out = drop_words(items, seed=0, p=1.0, special=(6,))
    assert out.x.tolist() == [[0, 6, 0, 0], [0, 6, 0, 0]]
    assert torch.equal(out.mask, items.mask) and torch.equal(out.extra["length"], items.extra["length"])
    assert drop_words(items, seed=0, p=1.0, word=3).x.tolist() == [[3, 3, 3, 3], [3, 3, 0, 0]]
    many = Items(torch.ones(500, 40, dtype=torch.int64), None, torch.arange(500))
    assert abs((drop_words(many, seed=0).x == 0).float().mean() - 0.15) < 0.01


def test_mixed_words_are_masked_swapped_or_taken_out_in_their_shares():
    n, length = 400, 50
    items = Items(torch.arange(1, length + 1).repeat(n, 1), None, torch.arange(n))
    out = drop_words(items, seed=0, p=0.2, mode="mixed", word=999, vocabulary=10**6)
    total = n * length
    masked, gone = int((out.x == 999).sum()), int((~out.mask).sum())
    other = int(((out.x > length) & (out.x != 999)).sum())
    assert abs(masked / total - 0.1) < 0.01 and abs(other / total - 0.02) < 0.005 and abs(gone / total - 0.08) < 0.01
    for row, mask in zip(out.x, out.mask, strict=True):
        real = row[mask]
        assert mask[: len(real)].all() and (row[len(real) :] == 0).all()  # moved up, padded behind
        old = real[real <= length]
        assert (old.diff() > 0).all()  # in their old order


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**31), st.lists(st.integers(1, 6), min_size=1, max_size=8))
def test_a_caption_keeps_at_least_one_word_and_its_length_is_told(seed, lengths):
    items = words([[4] * length for length in lengths])
    out = drop_words(items, seed=seed, p=1.0, mode="mixed", word=2, vocabulary=5)
    assert (out.extra["length"] >= 1).all() and torch.equal(out.extra["length"], out.mask.sum(1))
    assert (out.extra["length"] <= items.extra["length"]).all()


def test_a_mode_that_is_not_known_names_the_known_ones():
    with pytest.raises(ValueError, match="zero, mixed"):
        drop_words(words([[1]]), seed=0, mode="mask")
    with pytest.raises(ValueError, match="vocabulary"):
        drop_words(words([[1]]), seed=0, mode="mixed")
