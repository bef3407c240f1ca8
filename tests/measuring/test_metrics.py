"""Metrics against hand-worked numbers, naive loops, other libraries, and the figures of the authors' code."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix

from matchlight.core import BadInput
from matchlight.measuring import metrics as m
from matchlight.measuring.metrics import Relevance
from tests.reference import ranking

PARITY = os.environ.get("MATCHLIGHT_PARITY")
needs_parity = pytest.mark.skipif(not PARITY, reason="MATCHLIGHT_PARITY does not name a folder of recorded numbers")


def recorded(name: str) -> dict[str, np.ndarray]:
    with np.load(Path(PARITY) / "losses" / f"{name}.npz", allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


def one(*relevant: float) -> tuple[np.ndarray, Relevance]:
    """One query whose list, best first, has this relevance."""
    return np.arange(len(relevant), 0, -1.0)[None], Relevance.of_array(np.array([relevant]))


@st.composite
def questions(draw):
    """(scores with many ties and both signs, relevance with empty rows, gains) of a small random question."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    queries, gallery = draw(st.integers(1, 6)), draw(st.integers(1, 9))
    scores = rng.integers(-3, draw(st.integers(-1, 4)), (queries, gallery)).astype(draw(st.sampled_from(["f4", "f8"])))
    gains = rng.integers(0, 4, (queries, gallery)) * (rng.random((queries, gallery)) < 0.5)
    gains[0, 0] = 1  # somebody can answer
    return scores, gains


def kinds_of(gains: np.ndarray) -> list[Relevance]:
    """The same truth as a dense array and as links."""
    return [Relevance.of_array(gains), Relevance.of_sparse(csr_matrix(gains))]


ties_rules = st.sampled_from(["worst", "official"])
budgets = st.sampled_from([1, 300, 1 << 20])


# --- hand-worked numbers ---


def test_a_tied_wrong_item_comes_first_under_worst_and_the_larger_index_first_under_official():
    scores = np.array([[0.9, 0.5, 0.5, 0.5], [0.5, 0.5, 0.1, 0.5]])
    fits = Relevance.of_array(np.array([[0, 0, 1, 0], [0, 1, 0, 0]], bool))
    assert m.ranks(scores, fits).tolist() == [3, 2]
    assert m.ranks(scores, fits, ties="official").tolist() == [2, 1]


def test_the_best_relevant_item_sets_the_rank_and_tied_relevant_items_do_not_hurt():
    scores = np.array([[-0.2, -0.1, -0.1, -0.9]])
    assert m.ranks(scores, Relevance.of_array([[0, 1, 1, 1]])).tolist() == [0]
    assert m.ranks(scores, Relevance.of_array([[1, 0, 1, 0]])).tolist() == [1]


def test_a_score_of_minus_infinity_still_has_a_rank():
    scores = np.array([[-np.inf, -np.inf, 1.0]])
    assert m.ranks(scores, Relevance.of_array([[1, 0, 0]])).tolist() == [2]


def test_median_is_floored_and_both_averages_count_from_one():
    found = np.array([4, 5, m.NOTHING])
    assert m.median_rank(found) == 5.0
    assert m.mean_rank(found) == 5.5
    assert m.hit_rate(found, at=5) == 0.5


def test_hit_rate_asks_for_any_hit_and_ir_recall_for_the_share():
    scores, fits = one(1, 0, 1, 1)
    assert m.hit_rate(m.ranks(scores, fits), at=1) == 1.0
    assert m.ir_recall(scores, fits, at=1) == pytest.approx(1 / 3)
    assert m.ir_recall(scores, fits, at=3) == pytest.approx(2 / 3)


def test_average_precision_of_1_0_1():
    assert m.mean_average_precision(*one(1, 0, 1)) == pytest.approx((1 + 2 / 3) / 2)
    assert m.mean_average_precision(*one(1, 0, 1), at=2) == 1.0  # only hits inside the list divide


def test_a_query_without_a_hit_is_zero_or_skipped():
    scores, fits = np.array([[2.0, 1.0], [2.0, 1.0]]), Relevance.of_array([[1, 0], [0, 0]])
    assert m.mean_average_precision(scores, fits, empty="zero") == 0.5
    assert m.mean_average_precision(scores, fits, empty="skip") == 1.0
    with pytest.raises(BadInput, match="no query has a relevant item"):
        m.mean_average_precision(scores[1:], Relevance.of_array([[0, 0]]), empty="skip")


def test_map_at_r_and_r_precision_on_rel_non_rel():
    scores, fits = one(1, 0, 1, 1)
    assert m.map_at_r(scores, fits) == pytest.approx((1 + 0 + 2 / 3) / 3)
    assert m.r_precision(scores, fits) == pytest.approx(2 / 3)
    assert m.r_precision(scores, fits, total=[4]) == pytest.approx(3 / 4)  # one relevant item is not in the gallery


def test_ndcg_on_gains_3_2_0():
    assert m.ndcg(*one(3, 2, 0)) == 1.0
    assert m.ndcg(*one(0, 2, 3)) == pytest.approx(0.64804, abs=1e-5)  # 2.76186 / 4.26186
    assert m.ndcg(*one(0, 0, 3), at=2) == 0.0
    assert m.ndcg(*one(0, 0, 0)) == 0.0


def test_the_coco_discount_depends_on_the_caption_number():
    scores, fits = one(0, 1)
    first = m.ndcg(scores, fits, discount="coco_t2i", sibling=[0])
    fifth = m.ndcg(scores, fits, discount="coco_t2i", sibling=[4])
    assert first == pytest.approx(np.log2(2) / np.log2(7))
    assert fifth == pytest.approx(np.log2(6) / np.log2(11))
    with pytest.raises(BadInput, match="sibling"):
        m.ndcg(scores, fits, discount="coco_t2i")


def test_precision_where_recall_first_reaches_a_level():
    scores, fits = one(0, 1, 1, 0, 1, 1)
    levels, precision = m.precision_recall(scores, fits, levels=(0.25, 0.5, 0.75, 1.0))
    assert_allclose(precision, [1 / 2, 2 / 3, 3 / 5, 4 / 6])
    assert_allclose(levels, [0.25, 0.5, 0.75, 1.0])
    assert_allclose(m.precision_recall(scores, fits, levels=(0.25, 0.75), interpolated=True)[1], [2 / 3, 2 / 3])


def test_a_recall_level_that_is_met_exactly_is_not_rounded_up():
    scores, fits = one(*([1] * 55 + [0] * 5 + [1] * 45))  # 0.55 * 100 is 55.000000000000007 in floating point
    assert m.precision_recall(scores, fits, levels=(0.55,))[1] == [1.0]


def test_micro_f1_with_two_right_one_false_one_missed():
    predicted, truth = np.array([[0.9, 0.8], [0.7, 0.2]]), np.array([[1, 1], [0, 1]])
    assert m.micro_f1(predicted, truth) == pytest.approx(2 / 3)
    assert m.micro_f1(np.zeros((2, 2)), np.zeros((2, 2))) == 0.0


def test_the_best_threshold_has_the_highest_micro_f1():
    rng = np.random.default_rng(0)
    predicted, truth = rng.integers(0, 10, (8, 3)) / 10, rng.random((8, 3)) < 0.4
    best = max(m.micro_f1(predicted, truth, threshold=t) for t in np.unique(predicted))
    assert m.micro_f1(predicted, truth, threshold=m.best_threshold(predicted, truth)) == pytest.approx(best)


def test_equal_predictions_cross_a_threshold_together():
    predicted, truth = [[0.9, 0.5, 0.5, 0.5, 0.5]], [[1, 1, 0, 0, 0]]
    assert m.best_threshold(predicted, truth) == 0.9  # F1 2/3; at 0.5 all five are said: 4/7


def test_circular_variance_of_collapsed_orthogonal_and_opposite_sets():
    same = np.ones((1, 4, 8)) * 3
    assert_allclose(m.circular_variance(same), [0.0], atol=1e-12)
    assert_allclose(m.circular_variance(np.eye(4)[None]), [0.5])
    assert_allclose(m.circular_variance(np.array([[[1.0, 2.0], [-1.0, -2.0]]])), [1.0])


def test_circular_variance_leaves_padding_out():
    padded = np.array([[[1.0, 0.0], [1.0, 0.0], [0.0, 9.0]]])
    assert_allclose(m.circular_variance(padded, mask=[[True, True, False]]), [0.0], atol=1e-12)


def test_cross_rank_is_one_only_where_a_pair_is_first_both_ways():
    owner = np.array([0, 0, 1, 1])
    scores = np.array([[0.9, 0.2, 0.1, 0.3], [0.1, 0.1, 0.8, 0.7]])
    # caption 1: first picture, but 0.3 of a foreign caption beats its 0.2; siblings (0.9) do not count
    assert m.cross_ranks(scores, owner).tolist() == [1, 2, 1, 1]


def test_a_histogram_of_ranks_counts_each_once_and_fractions_as_the_next_rank():
    counts = m.rank_histogram([1, 1, 1.5, 5, 5.2, 200, 201, 4000])
    assert counts["1"] == 2 and counts["2-5"] == 2 and counts["6-10"] == 1 and counts["101-200"] == 1
    assert counts[">200"] == 2 and sum(counts.values()) == 8
    assert m.rank_histogram([1, 2, 9], bins=((1, 1), (2, 3))) == {"1": 1, "2-3": 1, ">3": 1}


def test_cross_rank_stretches_the_picture_rank_to_five_r_minus_four():
    owner = np.repeat(np.arange(4), 5)
    scores = np.zeros((4, 20))
    scores[owner, np.arange(20)] = 1.0
    scores[[1, 2], 0] = 2.0  # two foreign pictures fit caption 0 better: r = 3
    found = m.cross_ranks(scores, owner)
    assert found[0] == 5 * 3 - 4
    assert (found[10:15] == 2).all() and (found[15:] == 1).all()  # pictures 1 and 2 now prefer caption 0 to their own


def test_auroc_and_average_precision_of_a_hand_worked_case():
    assert m.auroc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]) == 0.75
    assert m.average_precision([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]) == pytest.approx(1 / 2 * 1 + 1 / 2 * 2 / 3)
    assert m.auroc([1, 1, 1, 1], [0, 1, 1, 0]) == 0.5


# --- against other ways of computing the same ---


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=30))
@settings(deadline=None, max_examples=60)
def test_auroc_and_average_precision_agree_with_scikit_learn(items):
    from sklearn.metrics import average_precision_score, roc_auc_score

    scores, truth = np.array([s for s, _ in items]), np.array([t for _, t in items])
    if truth.all() or not truth.any():
        with pytest.raises(BadInput, match="both true and false"):
            m.auroc(scores, truth)
        return
    assert m.auroc(scores, truth) == pytest.approx(roc_auc_score(truth, scores))
    assert m.average_precision(scores, truth) == pytest.approx(average_precision_score(truth, scores))


@given(questions(), ties_rules, budgets)
@settings(deadline=None, max_examples=60)
def test_ranks_agree_with_a_walk_down_the_sorted_list(question, ties, budget):
    scores, gains = question
    for fits in kinds_of(gains):
        got = m.ranks(scores, fits, ties=ties, budget=budget)
        assert got.tolist() == ranking.ranks(scores, gains > 0, ties)


@given(questions(), ties_rules, budgets, st.integers(1, 10), st.sampled_from(["zero", "skip"]))
@settings(deadline=None, max_examples=60)
def test_figures_over_all_relevant_items_agree_with_naive_loops(question, ties, budget, at, empty):
    scores, gains = question
    expected = ranking.mean_average_precision(scores, gains > 0, ties, at, empty)
    rules = {"ties": ties, "budget": budget}
    for fits in kinds_of(gains):
        if expected is None:
            with pytest.raises(BadInput):
                m.mean_average_precision(scores, fits, at=at, empty=empty, ties=ties)
        else:
            got = m.mean_average_precision(scores, fits, at=at, empty=empty, **rules)
            assert got == pytest.approx(expected)
        both = m.map_at_r(scores, fits, **rules), m.r_precision(scores, fits, **rules)
        assert both == pytest.approx(ranking.at_r(scores, gains > 0, ties))


@given(st.integers(0, 10**6), ties_rules, st.sampled_from(["f2", "f4", "f8", "i4"]))
@settings(deadline=None, max_examples=30)
def test_long_lists_with_many_relevant_items_agree_with_a_walk_down_them(seed, ties, kind):
    rng = np.random.default_rng(seed)
    levels = int(rng.choice([1, 40, 10**4]))  # all scores alike, many ties, hardly any
    scores = rng.integers(-levels, levels + 1, (3, 150)).astype(kind)
    if kind != "i4":
        scores[0, :3] = [np.inf, -np.inf, -0.0]  # both zeros are one score
    gains = rng.integers(0, 4, (3, 150)).astype(np.uint8) * (rng.random((3, 150)) < 0.6)
    walks = [[place for place, hit in enumerate(row, 1) if hit] for row in ranking.listed(scores, gains > 0, ties)]
    for fits in kinds_of(gains):
        assert [p.tolist() for _, p in m.relevant_positions(scores, fits, ties=ties)] == walks
    aps, gained = m.by_gains(scores, Relevance.of_array(gains), at=20, ties=ties)
    assert aps.mean() == pytest.approx(ranking.mean_average_precision(scores, gains > 0, ties, 150, "zero"))
    assert gained.mean() == pytest.approx(ranking.ndcg(scores, gains, ties, 20))
    assert m.r_precision(scores, Relevance.of_array(gains), ties=ties) == pytest.approx(
        ranking.at_r(scores, gains > 0, ties)[1]
    )


@pytest.mark.parametrize("threads", ["1", "2", "3"])
def test_figures_do_not_depend_on_how_many_threads_read(threads, monkeypatch):
    rng = np.random.default_rng(0)
    scores, codes = rng.normal(size=(40, 90)).astype(np.float32), rng.random((40, 5)) < 0.5
    texts, owner = codes[np.arange(90) % 40], np.arange(90) % 40
    fits = Relevance.of_owner(owner, pictures=40)

    def figures():
        near, labels = m.pmrps(scores, codes, texts, budget=9000), Relevance.of_labels(codes, texts)
        ranked = m.ranks(scores, fits, budget=9000), m.cross_ranks(scores, owner, budget=9000)
        return [near, *ranked, *m.by_gains(scores, labels, budget=9000)]

    alone = figures()
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    monkeypatch.setattr("matchlight.measuring.metrics.blocks.workers", lambda: int(threads))
    for mine, other in zip(alone, figures(), strict=True):
        assert_array_equal(mine, other)


@given(questions(), ties_rules, budgets, st.integers(1, 10))
@settings(deadline=None, max_examples=60)
def test_ndcg_agrees_with_a_naive_loop(question, ties, budget, at):
    scores, gains = question
    got = m.ndcg(scores, Relevance.of_array(gains), at=at, ties=ties, budget=budget)
    assert got == pytest.approx(ranking.ndcg(scores, gains, ties, at))


@given(st.integers(0, 10**6), ties_rules, budgets)
@settings(deadline=None, max_examples=40)
def test_pmrp_and_cross_ranks_agree_with_naive_loops_for_any_number_of_captions(seed, ties, budget):
    rng = np.random.default_rng(seed)
    owner = rng.permutation(np.repeat(np.arange(4), rng.integers(1, 5, 4)))  # unequal, and not in picture order
    codes = rng.random((4, 3)) < 0.5
    scores = rng.integers(-2, 3, (4, len(owner))) / 4
    got = m.pmrp(scores, codes, codes[owner], ties=ties, budget=budget)
    assert got == pytest.approx(ranking.pmrp(scores, codes.tolist(), codes[owner].tolist(), ties))
    assert_allclose(m.cross_ranks(scores, owner, ties=ties, budget=budget), ranking.cross_ranks(scores, owner, ties))


# --- relevance ---


def test_every_kind_of_relevance_gives_the_same_blocks_and_turns_round():
    owner = np.array([2, 0, 0, 1, 2, 2])
    dense = owner[None] == np.arange(4)[:, None]
    hot = np.eye(4, dtype=bool)
    kinds = [
        Relevance.of_owner(owner, pictures=4),
        Relevance.of_array(dense),
        Relevance.of_sparse(csr_matrix(dense)),
        Relevance.of_labels(hot, hot[owner]),
        Relevance.of_codes(hot, hot[owner], within=1),  # two different one-hot codes are two apart
    ]
    for kind in kinds:
        assert kind.shape == (4, 6)
        assert_array_equal(kind[1:3, 2:6], dense[1:3, 2:6])
        assert_array_equal(kind.block(1, 3, 2, 6), dense[1:3, 2:6])
        assert_array_equal(kind.T[2:6, 1:3], dense.T[2:6, 1:3])
        assert kind[:, :].dtype == bool


def test_codes_too_many_for_a_table_are_compared_block_by_block_to_the_same_end(monkeypatch):
    rng = np.random.default_rng(0)
    image, text = rng.random((30, 6)) < 0.5, rng.random((40, 6)) < 0.5
    kinds = [lambda: Relevance.of_labels(image, text), lambda: Relevance.of_codes(image, text, within=2)]
    held = [kind().gains(3, 20, 5, 33) for kind in kinds]
    monkeypatch.setattr("matchlight.measuring.metrics.relevance.TABLE", 0)
    for kind, table in zip(kinds, held, strict=True):
        assert_array_equal(kind().gains(3, 20, 5, 33), table)
    assert_array_equal(held[0], (image[3:20, None] & text[None, 5:33]).sum(2))
    assert_array_equal(held[1], np.maximum(0, 3 - (image[3:20, None] ^ text[None, 5:33]).sum(2)))


def test_an_owner_that_is_no_picture_is_named():
    with pytest.raises(BadInput, match="row 1 belongs to picture 7"):
        Relevance.of_owner([0, 7], pictures=2)


# --- inputs ---


def test_scores_that_are_not_numbers_are_refused_with_their_place():
    scores = np.zeros((3, 4), np.float32)
    scores[2, 1] = np.nan
    fits = Relevance.of_array(np.eye(3, 4))
    for figure in (m.ranks, m.map_at_r, m.ndcg):
        with pytest.raises(BadInput, match="row 2, column 1 is not a number"):
            figure(scores, fits, budget=1)
    with pytest.raises(BadInput, match="row 2, column 1 is not a number"):
        m.cross_ranks(scores, [0, 1, 2, 2])


def test_scores_of_another_size_than_relevance_are_refused():
    with pytest.raises(BadInput, match="scores are 2 x 3 but relevance is 3 x 2"):
        m.ranks(np.zeros((2, 3)), Relevance.of_array(np.eye(3, 2)))


def test_unknown_rules_are_refused_by_name():
    fits = Relevance.of_array(np.eye(2))
    with pytest.raises(BadInput, match="'best' is no tie rule; known: worst, official"):
        m.ranks(np.eye(2), fits, ties="best")
    with pytest.raises(BadInput, match="known: zero, skip"):
        m.mean_average_precision(np.eye(2), fits, empty="ignore")


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64])
def test_tensors_are_read_like_arrays(kind):
    numbers = torch.tensor([[3, 1, -2], [5, 4, 4]]).to(kind)
    fits = Relevance.of_array([[0, 1, 0], [0, 1, 0]])
    assert m.ranks(numbers.requires_grad_(kind.is_floating_point), fits).tolist() == [1, 2]


def test_a_memory_mapped_matrix_is_read_in_blocks_within_the_budget(tmp_path):
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(600), 5)
    np.save(tmp_path / "s.npy", rng.random((600, 3000), np.float32))  # 7.2 MB
    scores, fits = np.load(tmp_path / "s.npy", mmap_mode="r"), Relevance.of_owner(owner, pictures=600)
    tracemalloc.start()
    small = [m.ranks(scores, fits, budget=1 << 20), m.ranks(scores.T, fits.T, budget=1 << 20)]
    near = m.map_at_r(scores, fits, budget=1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 << 20
    assert_array_equal(small[0], m.ranks(np.array(scores), fits))
    assert_array_equal(small[1], m.ranks(np.array(scores).T, fits.T))
    assert near == m.map_at_r(np.array(scores), fits)


def test_a_window_reads_as_the_matrix_it_shows():
    rng = np.random.default_rng(1)
    scores, rows, columns = rng.random((9, 12)), np.array([4, 1, 7]), np.array([11, 0, 3, 5])
    window, fits = m.Window.on(scores, rows, columns), Relevance.of_array(rng.random((3, 4)) < 0.5)
    shown = scores[np.ix_(rows, columns)]
    assert_array_equal(m.ranks(window, fits, budget=1), m.ranks(shown, fits))
    assert_array_equal(m.ranks(window.T, fits.T, budget=1), m.ranks(shown.T, fits.T))
    again = m.Window.on(window, np.array([2, 0]), np.array([1, 2]))
    assert_array_equal(again[:], shown[[2, 0]][:, [1, 2]])


def test_one_score_for_everything_earns_nothing():
    owner = np.repeat(np.arange(20), 3)
    fits = Relevance.of_owner(owner, pictures=20)
    constant = np.full((20, 60), 0.7)
    both = m.ranks(constant, fits), m.ranks(constant.T, fits.T)
    assert both[0].tolist() == [57] * 20 and both[1].tolist() == [19] * 60
    assert m.rsum(*both) == 0.0
    assert m.r_precision(constant, fits) == 0.0


# --- the authors' own code ---


@needs_parity
@pytest.mark.parametrize("ties", ["worst", "official"])
def test_recall_agrees_with_the_recorded_ranks(ties):
    file = recorded("recall")
    for scores, name, each in ((file["scores"], "five", 5), (file["scores_one"], "one", 1)):
        fits = Relevance.of_owner(np.arange(scores.shape[1]) // each, pictures=len(scores))
        found = {"i2t": m.ranks(scores, fits, ties=ties), "t2i": m.ranks(scores.T, fits.T, ties=ties)}
        for side, rank in found.items():
            for k in (1, 5, 10):
                assert 100 * m.hit_rate(rank, at=k) == pytest.approx(float(file[f"{name}_{side}_r{k}"]))
            assert m.median_rank(rank) == file[f"{name}_{side}_medr"]
            assert m.mean_rank(rank) == pytest.approx(float(file[f"{name}_{side}_meanr"]))
        if name == "five":
            assert_array_equal(found["i2t"], file["i2t_ranks"])
            assert_array_equal(found["t2i"], file["t2i_ranks"])
            assert m.rsum(found["i2t"], found["t2i"]) == pytest.approx(float(file["five_rsum"]))


@needs_parity
def test_map_agrees_with_the_recorded_figures():
    file = recorded("map")
    image, text = (
        v.astype("f8") / np.linalg.norm(v.astype("f8"), axis=1, keepdims=True) for v in (file["img"], file["txt"])
    )
    scores = image @ text.T
    hot = np.eye(file["labels"].max() + 1)[file["labels"]]
    single, several = (Relevance.of_labels(hot, hot), Relevance.of_labels(file["multilabels"], file["multilabels"]))
    asked = {"img2txt": scores, "txt2img": scores.T}
    for side, each in asked.items():
        ap = m.mean_average_precision(each, single)
        assert ap == pytest.approx(float(file[f"map_{side}_all"]))
        assert ap == pytest.approx(float(file[f"dscmr_map_{side}"]))
        assert m.mean_average_precision(each, single, at=10) == pytest.approx(float(file[f"map_{side}_at10"]))
        ap = m.mean_average_precision(each, several, empty="skip")
        assert ap == pytest.approx(float(file[f"multilabel_{side}_all"]))
    ap = m.mean_average_precision(scores, several, at=10, empty="skip")
    assert ap == pytest.approx(float(file["sdml_multilabel_img2txt_at10"]))


@needs_parity
def test_pmrp_agrees_with_the_recorded_figures():
    file = recorded("pmrp")
    scores, codes = file["scores"], file["class_codes"]
    texts = codes[np.arange(scores.shape[1]) // 5]
    assert 100 * m.pmrp(scores, codes, texts) == pytest.approx(float(file["i2t_pmrp"]))
    assert 100 * m.pmrp(scores.T, texts, codes) == pytest.approx(float(file["t2i_pmrp"]))
    for z in (0, 1, 2):
        near = Relevance.of_codes(codes, texts, within=z)
        rp = [(p <= len(p)).mean() for _, p in m.relevant_positions(scores, near)]
        assert_allclose(rp, file["i2t_rp"][z])
        rp = [(p <= len(p)).mean() for _, p in m.relevant_positions(scores.T, near.T)]
        assert_allclose(rp, file["t2i_rp"][z])
        assert 100 * m.hit_rate(m.ranks(scores, near), at=1) == pytest.approx(float(file["i2t_plausible_r1"]))
        assert 100 * m.hit_rate(m.ranks(scores.T, near.T), at=1) == pytest.approx(float(file["t2i_plausible_r1"]))
