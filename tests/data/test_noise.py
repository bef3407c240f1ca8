"""Noise is exact, seeded and on record: every sentence the noise page promises, held against naive loops."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from matchlight.core import BadInput
from matchlight.data.formats.sources import ArrayFeatures
from matchlight.data.noise import Truth, flip_labels, mismatch, replay, without
from matchlight.data.noise.mismatching import _share_out
from matchlight.pairs import Labels, Pairs

RATIOS = st.sampled_from([0.0, 0.1, 0.25, 0.4, 0.5, 0.7, 0.9, 1.0])


def make(counts, *, test=0, relevance=None, labels=None, captions=None, scattered=False) -> Pairs:
    """Training pictures with these many captions, then `test` pictures with two each."""
    counts = [*counts, *[2] * test]
    picture = np.repeat(np.arange(len(counts)), counts)
    if scattered:  # rows of one picture need not stand together
        picture = picture[np.random.default_rng(3).permutation(len(picture))]
    splits = np.array(["train"] * (len(counts) - test) + ["test"] * test, dtype="<U8")
    words = captions or [f"caption {row} of picture {p}" for row, p in enumerate(picture)]
    table = None if relevance is None else csr_matrix(np.asarray(relevance, bool))
    names = [f"{i}.jpg" for i in range(len(counts))]
    return Pairs(names=names, captions=words, picture=picture, splits=splits, relevance=table, labels=labels)


def labelled(n, classes=4, *, sets=None, test=3) -> Pairs:
    hot = np.eye(classes, dtype=bool)[np.arange(n + test) % classes] if sets is None else np.asarray(sets, bool)
    names = [f"class {k}" for k in range(hot.shape[1])]
    splits = np.array(["train"] * n + ["test"] * test)
    labels = Labels(names, hot, hot.copy())
    return Pairs([f"{i}" for i in range(n + test)], [""] * (n + test), np.arange(n + test), splits, labels=labels)


def pairing(pairs: Pairs) -> set[tuple[int, str]]:
    return {(int(p), caption) for p, caption in zip(pairs.picture, pairs.captions, strict=True)}


def naive_index(index, ratio, seed):
    """The draw of NCR and DECL with numpy's global generator, one step at a time."""
    saved = np.random.get_state()
    np.random.seed(seed)
    order = np.arange(len(index))
    np.random.shuffle(order)
    chosen = order[: int(ratio * len(index))]
    values = np.array([index[k] for k in chosen], dtype=np.int64)
    np.random.shuffle(values)
    np.random.set_state(saved)
    result = [int(k) for k in index]
    for k, value in zip(chosen, values, strict=True):
        result[k] = int(value)
    return result


def possible(picture, fits, count) -> bool:
    """Is there any way to exchange exactly `count` captions so that none fits where it lands? Tries them all."""
    for order in itertools.permutations(range(len(picture))):
        moved = [(row, source) for row, source in enumerate(order) if row != source]
        if len(moved) == count and not any(fits(source, picture[row]) for row, source in moved):
            return True
    return False


def check_moves(before: Pairs, after: Pairs, truth: Truth, split="train"):
    rows = set(before.rows(split).tolist())
    assert set(truth.moved) <= rows and list(truth.moved) == sorted(truth.moved) == list(truth.source)
    assert Counter(before.captions) == Counter(after.captions)
    assert (before.picture == after.picture).all() and list(before.names) == list(after.names)
    for row in range(len(before)):
        source = truth.source.get(row, row)
        assert after.captions[row] == before.captions[source]
        if row in truth.source:
            assert before.picture[source] != before.picture[row]
            if before.relevance is not None:
                assert not before.relevance[source, before.picture[row]]


@given(st.lists(st.integers(0, 4), min_size=4, max_size=12), RATIOS, st.integers(0, 99), st.booleans())
@settings(deadline=None, max_examples=60)
def test_exactly_the_asked_rows_move_and_none_keeps_a_caption_of_its_own_picture(counts, ratio, seed, scattered):
    pairs = make(counts, test=2, scattered=scattered)
    count = round(ratio * sum(counts))
    fair = sum(min(c, count // 2) for c in counts) >= count  # at most half from one picture, or some must stay
    if count and not fair:
        with pytest.raises(BadInput, match="cannot mismatch"):
            mismatch(pairs, ratio=ratio, seed=seed)
        return
    noisy, truth = mismatch(pairs, ratio=ratio, seed=seed)
    assert len(truth.moved) == count
    check_moves(pairs, noisy, truth)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=10), RATIOS, st.integers(0, 99), st.booleans())
@settings(deadline=None, max_examples=60)
def test_per_picture_all_captions_of_a_picture_move_together_to_one_with_as_many(counts, ratio, seed, scattered):
    pairs = make(counts, test=2, scattered=scattered)
    groups = [size for count, size in Counter(counts).items() if count]
    count = round(ratio * sum(groups))
    ways = itertools.product(*([0, *range(2, size + 1)] for size in groups))
    if count not in {sum(way) for way in ways}:
        with pytest.raises(BadInput, match="as many captions"):
            mismatch(pairs, ratio=ratio, per="picture", seed=seed)
        return
    noisy, truth = mismatch(pairs, ratio=ratio, per="picture", seed=seed)
    check_moves(pairs, noisy, truth)
    assert len({int(pairs.picture[row]) for row in truth.moved}) == count
    for p in range(len(counts)):
        rows = np.flatnonzero(pairs.picture == p).tolist()
        sources = [truth.source.get(row, row) for row in rows]
        assert sources == sorted(sources) and len({int(pairs.picture[s]) for s in sources}) <= 1
        assert sources == np.flatnonzero(np.isin(pairs.picture, pairs.picture[sources])).tolist()


@given(st.data())
@settings(deadline=None, max_examples=60, derandomize=True)
def test_with_relevance_noise_is_found_whenever_trying_all_ways_finds_it(data):
    counts = data.draw(st.lists(st.integers(1, 2), min_size=2, max_size=5).filter(lambda c: sum(c) <= 6))
    rows = sum(counts)
    relevance = np.array(data.draw(st.lists(st.booleans(), min_size=rows * len(counts), max_size=rows * len(counts))))
    relevance = relevance.reshape(rows, len(counts)) & (np.random.default_rng(rows).random((rows, len(counts))) < 0.7)
    pairs = make(counts, relevance=relevance)
    count = data.draw(st.integers(1, rows))

    def fits(row, picture):
        return pairs.picture[row] == picture or relevance[row, picture]

    if possible(pairs.picture, fits, count):
        noisy, truth = mismatch(pairs, ratio=count / rows, seed=data.draw(st.integers(0, 9)))
        assert len(truth.moved) == count
        check_moves(pairs, noisy, truth)
        assert (noisy.relevance.toarray()[truth.moved] == relevance[list(truth.source.values())]).all()
    else:
        with pytest.raises(BadInput):
            mismatch(pairs, ratio=count / rows)


def test_per_picture_no_caption_lands_on_a_picture_it_fits():
    counts, rng = [2] * 12, np.random.default_rng(0)
    pairs = make(counts, relevance=rng.random((24, 12)) < 0.3)
    for seed in range(5):
        noisy, truth = mismatch(pairs, ratio=1.0, per="picture", seed=seed)
        assert len(truth.moved) == 24
        check_moves(pairs, noisy, truth)


def test_a_caption_that_fits_every_picture_is_left_out_and_the_count_still_holds():
    relevance = np.zeros((400, 400), bool)
    relevance[:40] = True
    pairs = make([1] * 400, relevance=relevance)
    noisy, truth = mismatch(pairs, ratio=0.9)
    assert truth.moved == list(range(40, 400))
    with pytest.raises(BadInput, match="cannot mismatch 361 of the 400"):
        mismatch(pairs, ratio=361 / 400)


def test_a_chain_of_exchanges_is_found_where_no_single_swap_helps():
    # Caption k fits every picture but the next one: only the full circle is left.
    n = 40
    relevance = np.ones((n, n), bool)
    relevance[np.arange(n), (np.arange(n) + 1) % n] = False
    _, truth = mismatch(make([1] * n, relevance=relevance), ratio=1.0)
    assert truth.source == {row: (row - 1) % n for row in range(n)}


def test_the_same_words_under_two_pictures_are_never_exchanged_for_each_other():
    pairs = make([1] * 6, captions=["a dog", "a dog", "a cat", "a cat", "a cow", "a bird"])
    for seed in range(10):
        noisy, truth = mismatch(pairs, ratio=1.0, seed=seed)
        assert all(old != new for old, new in zip(pairs.captions, noisy.captions, strict=True))


def test_captions_without_words_are_told_apart_by_their_rows():
    pairs = labelled(10)
    noisy, truth = mismatch(pairs, ratio=1.0)
    assert len(truth.moved) == 10
    sources = [truth.source.get(row, row) for row in range(13)]
    assert (noisy.labels.text == pairs.labels.text[sources]).all() and (noisy.labels.image == pairs.labels.image).all()


def test_a_picture_with_exactly_half_of_the_captions_gives_all_of_them_away():
    pairs = make([500, *[1] * 500])
    noisy, truth = mismatch(pairs, ratio=1.0)
    check_moves(pairs, noisy, truth)
    assert len(truth.moved) == 1000


def test_of_a_picture_with_most_of_the_captions_no_more_than_half_of_the_moved_are_taken():
    pairs = make([900, *[1] * 100])
    noisy, truth = mismatch(pairs, ratio=0.2)  # 200 rows: 100 of the one picture, for whose captions 100 others wait
    check_moves(pairs, noisy, truth)
    assert sum(row < 900 for row in truth.moved) == 100 and len(truth.moved) == 200


@pytest.mark.parametrize("sizes, count", [([3, 2], 4), ([2, 2, 3], 5), ([3], 3), ([2, 2], 4), ([1, 5], 4), ([2, 3], 3)])
def test_shares_of_groups_add_up_and_none_is_one(sizes, count):
    for seed in range(20):
        wanted = _share_out(np.array(sizes), count, np.random.default_rng(seed))
        assert wanted.sum() == count and (wanted != 1).all() and (wanted <= sizes).all()


def test_other_splits_are_untouched_and_any_split_can_be_the_one():
    pairs = make([2] * 5, test=5)
    noisy, truth = mismatch(pairs, ratio=1.0, split="test")
    assert list(noisy.captions[:10]) == list(pairs.captions[:10]) and truth.moved == list(range(10, 20))


@pytest.mark.parametrize("options", [{}, {"per": "picture"}, {"like": "ncr"}, {"like": "decl"}])
def test_one_seed_gives_one_noise_and_another_seed_another(options):
    pairs = make([5] * 40)
    first, again = (mismatch(pairs, ratio=0.5, seed=1, **options) for _ in range(2))
    other = mismatch(pairs, ratio=0.5, seed=2, **options)
    assert first[1] == again[1] and first[0].captions == again[0].captions
    assert first[1].source != other[1].source
    assert pairs.captions == make([5] * 40).captions  # nothing was changed in place


def test_moved_rows_are_drawn_evenly():
    moved = Counter(row for seed in range(300) for row in mismatch(make([2] * 10), ratio=0.5, seed=seed)[1].moved)
    assert len(moved) == 20 and all(110 <= times <= 190 for times in moved.values())  # 150 expected, sd 8.7


def test_ratio_zero_moves_nothing():
    pairs = make([5] * 4)
    for options in ({}, {"per": "picture"}, {"like": "ncr"}, {"like": "decl"}):
        noisy, truth = mismatch(pairs, ratio=0, **options)
        assert noisy.captions == pairs.captions and truth.moved == [] and truth.source == {}


@pytest.mark.parametrize(
    "options, words",
    [
        ({"ratio": -0.1}, "from 0 to 1"),
        ({"ratio": 1.01}, "from 0 to 1"),
        ({"ratio": float("nan")}, "from 0 to 1"),
        ({"ratio": 0.5, "split": "dev"}, "no split 'dev'"),
        ({"ratio": 0.5, "per": "word"}, "caption, picture"),
        ({"ratio": 0.5, "like": "mrl"}, "ncr, decl"),
        ({"ratio": 0.5, "like": "ncr", "per": "picture"}, "decl"),
        ({"ratio": 0.5, "seed": -1}, "seed"),
        ({"ratio": 0.1}, "one cannot move alone"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused_in_one_line(options, words):
    with pytest.raises(BadInput, match=words) as refusal:
        mismatch(make([2] * 6), **options)
    assert "\n" not in str(refusal.value)


def test_a_single_picture_cannot_be_mismatched():
    for per in ("caption", "picture"):
        with pytest.raises(BadInput, match="cannot mismatch"):
            mismatch(make([5]), ratio=1.0, per=per)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), RATIOS, st.integers(0, 50), st.booleans())
@settings(deadline=None, max_examples=40)
def test_like_ncr_pairs_every_caption_with_the_picture_of_the_naive_loop(counts, ratio, seed, scattered):
    pairs = make(counts, test=1, scattered=scattered)
    rows = pairs.rows("train")
    index = naive_index(pairs.picture[rows], ratio, seed)
    noisy, truth = mismatch(pairs, ratio=ratio, seed=seed, like="ncr")
    expected = {(p, pairs.captions[row]) for row, p in zip(rows, index, strict=True)}
    rest = {(int(pairs.picture[row]), pairs.captions[row]) for row in pairs.rows("test")}
    assert pairing(noisy) == expected | rest
    assert len(truth.moved) == sum(int(pairs.picture[row]) != p for row, p in zip(rows, index, strict=True))
    check_moves(pairs, noisy, truth)


def test_like_decl_pairs_all_captions_of_a_picture_with_the_picture_of_the_naive_loop():
    pairs = make([5] * 30)
    index = naive_index(range(30), 0.6, 4)
    noisy, truth = mismatch(pairs, ratio=0.6, seed=4, like="decl")
    assert pairing(noisy) == {(index[p], caption) for p, caption in zip(pairs.picture, pairs.captions, strict=True)}
    assert truth.per == "picture" and truth.like == "decl"


def test_like_decl_refuses_pictures_with_unequal_numbers_of_captions():
    with pytest.raises(BadInput, match="like decl gives picture"):
        mismatch(make([1, 2, 3, 4]), ratio=1.0, like="decl")


def test_index_files_of_ncr_and_decl_give_the_pairing_they_hold(tmp_path):
    pairs = make([5] * 20, test=3)
    for like, start in (("ncr", np.arange(100) // 5), ("decl", np.arange(20))):
        index = np.array(naive_index(start, 0.5, 9), dtype=np.int64)
        np.save(tmp_path / f"{like}.npy", index)
        drawn, told = mismatch(pairs, ratio=0.5, seed=9, like=like)
        for source in (index, tmp_path / f"{like}.npy", str(tmp_path / f"{like}.npy")):
            noisy, truth = replay(pairs, source)
            assert noisy.captions == drawn.captions and truth.source == told.source
            assert truth.like == like and truth.seed is None and truth.ratio == len(truth.moved) / 100


@pytest.mark.parametrize(
    "index, words",
    [
        (np.arange(7), "one a caption of 'train'"),
        (np.zeros(20), "whole numbers"),
        (np.zeros((4, 5), int), "whole numbers"),
        (np.full(20, 4), "'train' has 0 to 3"),
        (np.full(20, -1), "names pictures -1"),
        (np.full(20, 2), "gives picture 0 of 'train' 0 captions where it has 5"),
    ],
)
def test_an_index_of_another_data_set_is_refused_in_one_line(index, words, tmp_path):
    np.save(tmp_path / "index.npy", index)
    with pytest.raises(BadInput, match=words) as refusal:
        replay(make([5] * 4), tmp_path / "index.npy")
    assert "index.npy" in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_file_that_is_no_index_is_refused_and_never_unpickled(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{}, {}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "several.npz", a=np.arange(3))
    (tmp_path / "text.npy").write_text("hello")
    head = "{'descr': '<i8', 'fortran_order': False, 'shape': (90000000000,), }".ljust(117) + "\n"
    (tmp_path / "liar.npy").write_bytes(
        b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + b"12345678"
    )
    for name in ("objects.npy", "several.npz", "text.npy", "liar.npy", "nowhere.npy"):
        with pytest.raises(BadInput, match=name):
            replay(make([5] * 4), tmp_path / name)


# Labels


def single(table) -> np.ndarray:
    assert (table.sum(1) == 1).all()
    return table.argmax(1)


@given(st.integers(1, 60), st.integers(2, 7), RATIOS, st.integers(0, 99), st.sampled_from(["symmetric", "asymmetric"]))
@settings(deadline=None, max_examples=60)
def test_exactly_the_asked_labels_of_each_side_become_another_class(n, classes, ratio, seed, kind):
    pairs = labelled(n, classes)
    noisy, truth = flip_labels(pairs, ratio=ratio, kind=kind, seed=seed)
    for side in ("image", "text"):
        before, after = single(getattr(pairs.labels, side)), single(getattr(noisy.labels, side))
        assert truth.moved[side] == np.flatnonzero(before != after).tolist()
        assert len(truth.moved[side]) == round(ratio * n) and (before[n:] == after[n:]).all()
        if kind == "asymmetric":  # one class always becomes the same other one
            assert len(set(zip(before, after, strict=True))) <= 2 * classes
    assert noisy.captions == pairs.captions and truth.source == {} and truth.kind == "labels" and truth.per == kind


def test_the_two_sides_are_flipped_independently_and_by_seed():
    pairs = labelled(200)
    truths = [flip_labels(pairs, ratio=0.5, seed=seed)[1] for seed in (0, 0, 1)]
    assert truths[0] == truths[1] != truths[2] and truths[0].moved["image"] != truths[0].moved["text"]
    assert pairs.labels.single and (pairs.labels.image == labelled(200).labels.image).all()


def test_symmetric_flips_spread_evenly_over_the_other_classes():
    pairs = labelled(6000, sets=np.eye(4, dtype=bool)[np.zeros(6003, int)])
    seen = np.bincount(single(flip_labels(pairs, ratio=0.5)[0].labels.image[:6000]), minlength=4)
    assert seen[0] == 3000 and (abs(seen[1:] - 1000) < 130).all()  # sd 26


def test_asymmetric_flips_confuse_fixed_pairs_of_classes():
    for classes in (4, 5):
        pairs = labelled(200, classes)
        noisy, _ = flip_labels(pairs, ratio=1.0, kind="asymmetric", seed=3)
        seen = dict(zip(single(pairs.labels.image)[:200], single(noisy.labels.image)[:200], strict=True))
        both_ways = sum(seen[seen[k]] == k for k in seen)
        assert sorted(seen.values()) == list(range(classes)) and both_ways == (4 if classes == 4 else 2)
        same = dict(zip(single(pairs.labels.text)[:200], single(noisy.labels.text)[:200], strict=True))
        assert same == seen  # one confusion for both sides


def test_a_set_of_labels_is_replaced_by_as_many_it_had_not():
    rng = np.random.default_rng(0)
    sets = rng.random((63, 9)) < 0.3
    sets[0], sets[1], sets[2] = False, True, [1, 1, 1, 1, 1, 1, 0, 0, 0]  # none, all, too many to be replaced whole
    labelled_rows = int(sets[:60].any(1).sum())
    noisy, truth = flip_labels(labelled(60, sets=sets), ratio=(labelled_rows - 1) / labelled_rows)
    after = noisy.labels.image
    assert (after.sum(1) == sets.sum(1)).all() and len(truth.moved["image"]) == labelled_rows - 1
    assert 0 not in truth.moved["image"] and 1 not in truth.moved["image"]
    assert not (after & sets)[[row for row in truth.moved["image"] if sets[row].sum() <= 4]].any()
    assert after[2, 6:].all()
    with pytest.raises(BadInput, match="can become another"):
        flip_labels(labelled(60, sets=sets), ratio=1.0)


def naive_mrl(classes, count, ratio, seed, *, top):
    """The symmetric draw of MRL's released code, its generator seeded: shuffle, take the first, draw in item order."""
    stream = random.Random(seed)
    result = []
    for side in (list(classes), list(classes)):
        order = list(range(count))
        stream.shuffle(order)
        noisy = order[: int(ratio * count)]
        result.append([stream.randint(0, top) if k in noisy else side[k] for k in range(count)])
    return result


@pytest.mark.parametrize("extra_class", [False, True])
def test_like_mrl_draws_from_all_classes_as_the_naive_loop_does(extra_class):
    pairs = labelled(50)
    classes = single(pairs.labels.image)[:50].tolist()
    expected = naive_mrl(classes, 50, 0.6, 5, top=4 if extra_class else 3)
    noisy, truth = flip_labels(pairs, ratio=0.6, seed=5, like="mrl", extra_class=extra_class)
    assert single(noisy.labels.image)[:50].tolist() == expected[0]
    assert single(noisy.labels.text)[:50].tolist() == expected[1]
    assert truth.moved["text"] == [k for k in range(50) if expected[1][k] != classes[k]]
    assert len(truth.moved["text"]) < 30  # some come back to their own class by chance
    assert noisy.labels.names == pairs.labels.names + ["extra"] * extra_class


def test_like_mrl_asymmetric_goes_one_way_only():
    pairs = labelled(40)
    noisy, _ = flip_labels(pairs, ratio=1.0, kind="asymmetric", like="mrl")
    after = single(noisy.labels.image)[:40]
    assert len(set(after.tolist())) == 2 and (after != np.arange(40) % 4).sum() == 20


def test_label_lists_of_mrl_are_replayed_with_their_extra_class(tmp_path):
    pairs = labelled(6)
    lists = [[0, 1, 2, 3, 0, 4], [1, 1, 2, 3, 0, 1]]
    (tmp_path / "noise_labels_0.2_sym.json").write_text(json.dumps(lists))
    noisy, truth = replay(pairs, tmp_path / "noise_labels_0.2_sym.json")
    assert truth.moved == {"image": [5], "text": [0]} and truth.ratio == 2 / 12 and truth.like == "mrl"
    assert single(noisy.labels.image)[:6].tolist() == lists[0] and noisy.labels.image.shape == (9, 5)
    assert truth.per == "symmetric"


@pytest.mark.parametrize(
    "content", ["[[0,1", "{}", "[[0],[1]]", "[[0,1,2,3,0,5],[1,1,2,3,0,1]]", '[["a",0,0,0,0,0],[0,0,0,0,0,0]]']
)
def test_broken_label_lists_are_refused_in_one_line(content, tmp_path):
    (tmp_path / "noise.json").write_text(content)
    with pytest.raises(BadInput, match="noise.json") as refusal:
        replay(labelled(6), tmp_path / "noise.json")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"ratio": 2}, "from 0 to 1"),
        ({"ratio": 0.5, "kind": "odd"}, "symmetric, asymmetric"),
        ({"ratio": 0.5, "like": "ncr"}, "mrl"),
        ({"ratio": 0.5, "split": "dev"}, "no split"),
        ({"ratio": 0.5, "extra_class": True}, "extra_class"),
    ],
)
def test_label_noise_that_cannot_be_made_is_refused(options, words):
    with pytest.raises(BadInput, match=words):
        flip_labels(labelled(8), **options)


def test_label_noise_needs_labels_two_classes_and_for_mrl_one_label_an_item():
    with pytest.raises(BadInput, match="no labels"):
        flip_labels(make([2] * 3), ratio=0.5)
    with pytest.raises(BadInput, match="can become another"):
        flip_labels(labelled(4, 1), ratio=0.5)
    with pytest.raises(BadInput, match="exactly one label"):
        flip_labels(labelled(4, sets=np.ones((7, 3))), ratio=0.5, like="mrl")


# Truth


def test_truth_comes_back_from_its_file_as_it_went_in(tmp_path):
    pairs = make([5] * 10)
    told = [mismatch(pairs, ratio=0.3, seed=2)[1], mismatch(pairs, ratio=0.5, per="picture")[1]]
    told += [flip_labels(labelled(20), ratio=0.4)[1], replay(pairs, np.arange(10))[1]]
    for truth in told:
        truth.save(tmp_path / "truth.json")
        assert Truth.load(tmp_path / "truth.json") == truth
    assert [file.name for file in tmp_path.iterdir()] == ["truth.json"]


def test_the_truth_file_has_the_keys_others_read(tmp_path):
    truth = Truth("mismatch", 0.5, 7, "caption", [1, 4], {1: 4, 4: 1})
    truth.save(tmp_path / "truth.json")
    expected = {"kind": "mismatch", "ratio": 0.5, "seed": 7, "per": "caption", "like": None}
    expected |= {"moved": [1, 4], "source": {"1": 4, "4": 1}}
    assert json.loads((tmp_path / "truth.json").read_text()) == expected
    del expected["like"]
    (tmp_path / "truth.json").write_text(json.dumps(expected))
    assert Truth.load(tmp_path / "truth.json") == truth


def test_clean_tells_the_rows_that_were_left_alone():
    truth = Truth("mismatch", 0.5, 7, "caption", [1, 4], {1: 4, 4: 1})
    assert truth.clean([0, 1, 2, 4]).tolist() == [True, False, True, False]
    labels = Truth("labels", 0.5, 7, "symmetric", {"image": [0], "text": [2]})
    assert labels.clean([0, 1, 2]).tolist() == [True, True, False]
    assert labels.clean(np.arange(3), "image").tolist() == [False, True, True]


GOOD = {"kind": "mismatch", "ratio": 0.5, "seed": 7, "per": "caption", "moved": [1, 4], "source": {"1": 4, "4": 1}}
BROKEN = [
    {"kind": "typo"},
    {"kind": []},
    {"ratio": 1.5},
    {"ratio": "half"},
    {"ratio": float("nan")},
    {"seed": "seven"},
    {"per": "word"},
    {"moved": "1, 4"},
    {"moved": [1, 1]},
    {"moved": [1, -4]},
    {"moved": [1, True]},
    {"source": {"1": 4}},
    {"source": {"1": 4, "04": 1}},
    {"source": {"1": 4, "4": 4}},
    {"source": [4, 1]},
    {"like": "sgr"},
    {"kind": "labels", "per": "symmetric"},
]


@pytest.mark.parametrize("change", BROKEN, ids=str)
def test_a_truth_file_that_makes_no_sense_is_refused_in_one_line(change, tmp_path):
    (tmp_path / "truth.json").write_text(json.dumps({**GOOD, **change}))
    with pytest.raises(BadInput, match="truth.json") as refusal:
        Truth.load(tmp_path / "truth.json")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff\xfe", b"{}", b"[" * 100_000])
def test_a_file_that_is_no_truth_is_refused_in_one_line(content, tmp_path):
    (tmp_path / "truth.json").write_bytes(content)
    for path in (tmp_path / "truth.json", tmp_path / "nowhere.json", tmp_path):
        with pytest.raises(BadInput, match=str(path.name)) as refusal:
            Truth.load(path)
        assert "\n" not in str(refusal.value)


def test_a_failed_save_leaves_the_old_file_whole(tmp_path, monkeypatch):
    truth = Truth("mismatch", 0.0, 0, "caption", [])
    truth.save(tmp_path / "truth.json")

    def full(*_args, **_options):
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="disk full"):
        Truth("mismatch", 1.0, 0, "caption", []).save(tmp_path / "truth.json")
    assert Truth.load(tmp_path / "truth.json") == truth and len(list(tmp_path.iterdir())) == 1


def test_flickr30k_sized_noise_is_exact_and_its_time_is_printed(capsys):
    pairs = make([5] * 29_000)
    lines = []
    for per, ratio in (("caption", 0.2), ("caption", 1.0), ("picture", 0.8)):
        start = time.perf_counter()
        noisy, truth = mismatch(pairs, ratio=ratio, per=per)
        lines.append(f"{per} {ratio:.0%} of 145,000: {time.perf_counter() - start:.2f} s")
        source = np.array(list(truth.source.values()))
        assert len(truth.moved) == round(ratio * 145_000)
        assert (pairs.picture[truth.moved] != pairs.picture[source]).all() and len(np.unique(source)) == len(source)
    with capsys.disabled():
        print("\n" + "\n".join(lines))


def test_what_was_broken_can_be_left_out_and_nothing_else_is() -> None:
    pairs = make([2, 3, 1, 2, 2], test=2)
    noisy, truth = mismatch(pairs, ratio=0.4, seed=3)
    left = without(noisy, truth)
    kept = [row for row in range(len(pairs)) if row not in set(truth.moved)]
    assert left.captions == [pairs.captions[row] for row in kept] and list(left.names) == list(pairs.names)
    assert (left.notes["rows"] == kept).all()


def test_wrong_labels_cannot_be_left_out_as_pairs() -> None:
    hot = np.eye(4, dtype=bool)
    pairs = make([1, 1, 1, 1], labels=Labels(list("abcd"), hot, hot))
    with pytest.raises(BadInput, match="only mismatched pairs can be left out"):
        without(*flip_labels(pairs, ratio=0.5, seed=0))


# Captions as the web has them


def wordy(pictures: int, captions: int = 2, test: int = 0) -> Pairs:
    """Captions of seven words, no two alike."""
    words = [f"a brown dog{k} runs over field{k} quickly" for k in range(pictures * captions + 2 * test)]
    return make([captions] * pictures, captions=words, test=test)


@pytest.mark.parametrize("per", ["caption", "picture"])
def test_web_noise_changes_exactly_the_asked_rows_and_says_the_kind_of_each(per):
    pairs = wordy(60)
    noisy, truth = mismatch(pairs, ratio=0.4, per=per, like="web", seed=3)
    changed = [row for row in range(len(pairs)) if noisy.captions[row] != pairs.captions[row]]
    assert changed == truth.moved == list(truth.kinds) and len(changed) == round(0.4 * len(pairs))
    counts = Counter(truth.kinds.values())
    assert set(counts) == set(truth.means) and max(counts.values()) - min(counts.values()) <= (
        1 if per == "caption" else 2
    )
    if per == "picture":
        kinds = {}
        assert all(kinds.setdefault(int(pairs.picture[row]), kind) == kind for row, kind in truth.kinds.items())


def test_only_captions_of_other_pictures_are_wrong_and_what_was_cut_or_made_a_title_still_fits():
    pairs = wordy(120)
    noisy, truth = mismatch(pairs, ratio=0.5, like="web")
    for row in truth.rows_that_are("wrong"):
        origin = truth.source[row]
        assert noisy.captions[row] == pairs.captions[origin] and pairs.picture[origin] != pairs.picture[row]
    for row in truth.rows_that_are("right"):
        assert truth.source[row] == row
        kept = set(noisy.captions[row].lower().replace("-", " ").replace(".jpg", "").split())
        assert len(kept & set(pairs.captions[row].split())) >= 3
    for row in truth.rows_that_are("says nothing"):
        assert row not in truth.source and not set(noisy.captions[row].split()) & set(pairs.captions[row].split())


def test_the_next_picture_is_the_one_beside_it_in_the_file():
    pairs = wordy(60, captions=1)
    _, truth = mismatch(pairs, ratio=0.5, like="web")
    steps = {abs(truth.source[row] - row) for row, kind in truth.kinds.items() if kind == "next"}
    assert steps == {1}


def test_similar_pictures_are_found_by_features_where_there_are_any_and_by_words_where_not():
    vectors = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    vectors[20:] = vectors[:20] + 0.01  # picture k + 20 looks like picture k, and k + 1 is said to be alike
    words = [f"a thing{k // 2} of kind{k // 2} stands there {k}" for k in range(40)]
    plain = make([1] * 40, captions=words)
    for pairs, step in ((plain, 1), (replace(plain, features=ArrayFeatures(vectors)), 20)):
        _, truth = mismatch(pairs, ratio=1.0, like="web")
        similar = [row for row, kind in truth.kinds.items() if kind == "similar"]
        assert similar and {abs(truth.source[row] - row) for row in similar} == {step}


def test_no_caption_of_another_picture_fits_by_relevance():
    fits = np.kron(np.eye(10), np.ones((3, 3))).astype(bool)  # three pictures in a row are of one thing
    pairs = make([1] * 30, captions=[f"a dog{k} on field{k} runs fast" for k in range(30)], relevance=fits)
    for seed in range(5):
        noisy, truth = mismatch(pairs, ratio=1.0, like="web", seed=seed)
        for row in truth.rows_that_are("wrong"):
            assert not fits[truth.source[row], pairs.picture[row]]
        assert (noisy.relevance.toarray()[list(truth.source)] == fits[list(truth.source.values())]).all()


def test_a_caption_too_short_to_cut_becomes_a_template():
    _, truth = mismatch(make([1] * 30, captions=[f"dog{k}" for k in range(30)]), ratio=1.0, like="web")
    assert {"title", "truncated"}.isdisjoint(truth.kinds.values()) and len(truth.moved) == 30


def test_web_noise_is_one_for_a_seed_and_its_truth_comes_back_from_its_file(tmp_path):
    pairs = wordy(30, test=3)
    (one, truth), (two, again) = (mismatch(pairs, ratio=0.4, like="web", seed=5) for _ in range(2))
    assert list(one.captions) == list(two.captions) and truth == again
    assert mismatch(pairs, ratio=0.4, like="web", seed=6)[1] != truth
    assert list(one.captions)[-6:] == list(pairs.captions)[-6:]  # the test split
    truth.save(tmp_path / "truth.json")
    assert Truth.load(tmp_path / "truth.json") == truth
    told = json.loads((tmp_path / "truth.json").read_text())
    assert told["kind"] == "mismatch" and told["like"] == "web" and set(told["kinds"]) == {str(r) for r in truth.moved}


@pytest.mark.parametrize(
    "change",
    [
        {"kinds": {}},
        {"kinds": None},
        {"kinds": {"1": "poem", "4": "title"}},
        {"kinds": {"1": 3, "4": "title"}},
        {"means": {"title": "perhaps"}},
        {"source": {"2": 1}},
        {"source": {"1": -1}},
    ],
    ids=str,
)
def test_a_truth_about_the_web_that_makes_no_sense_is_refused_in_one_line(change, tmp_path):
    web = {
        **GOOD,
        "like": "web",
        "source": {"1": 1},
        "kinds": {"1": "title", "4": "title"},
        "means": {"title": "right"},
    }
    (tmp_path / "truth.json").write_text(json.dumps(web))
    assert Truth.load(tmp_path / "truth.json").rows_that_are("right") == [1, 4]
    (tmp_path / "truth.json").write_text(json.dumps({**web, **change}))
    with pytest.raises(BadInput, match="truth.json") as refusal:
        Truth.load(tmp_path / "truth.json")
    assert "\n" not in str(refusal.value)


def test_web_noise_needs_words():
    with pytest.raises(BadInput, match="writes new words"):
        mismatch(replace(make([1] * 6), tokens=[[1]] * 6), ratio=0.5, like="web")
