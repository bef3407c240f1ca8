"""Protocols on sets small enough to check by hand, and against every score matrix recorded from the authors' code."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from rich.console import Console
from scipy.sparse import csr_matrix

from matchlight.core import BadInput
from matchlight.measuring import metrics as m
from matchlight.measuring.protocols import PROTOCOLS, eccv_and_cxc, evaluate_scores, figure, table
from matchlight.measuring.protocols.by_labels import siblings
from matchlight.pairs import Labels, Pairs

PARITY = os.environ.get("MATCHLIGHT_PARITY")
needs_parity = pytest.mark.skipif(not PARITY, reason="MATCHLIGHT_PARITY does not name a folder of recorded numbers")
RECORDED = sorted(path.parent.name for path in Path(PARITY).glob("*/expected_metrics.json")) if PARITY else []


def pairs_of(owner, *, pictures=None, words="a dog", **more) -> Pairs:
    owner = np.asarray(owner, np.int64)
    count = owner.max() + 1 if pictures is None else pictures
    splits = np.full(count, "test")
    return Pairs([f"{i}.jpg" for i in range(count)], [words] * len(owner), owner, splits, **more)


def perfect(pairs: Pairs) -> np.ndarray:
    """1 for a caption's own picture, less for all others."""
    return (pairs.picture[None] == np.arange(len(pairs.names))[:, None]).astype(np.float32)


# --- recall ---


def test_recall_on_a_hand_worked_case_with_unequal_captions():
    pairs = pairs_of([0, 0, 1, 2, 2, 2])
    scores = np.array(
        [
            [0.1, 0.4, 0.9, 0.2, 0.2, 0.2],  # own best 0.4, one wrong ahead: rank 1
            [0.3, 0.2, 0.8, 0.1, 0.1, 0.1],  # rank 0
            [0.9, 0.5, 0.6, 0.6, 0.5, 0.1],  # own best 0.6, 0.9 ahead, 0.6 tied: rank 2, official 1
        ]
    )
    report = evaluate_scores(scores, pairs)
    assert set(report) == {"i2t", "t2i", "rsum", "pictures", "captions"}
    third = 100 / 3
    assert report["i2t"] == pytest.approx({"r1": third, "r5": 100, "r10": 100, "medr": 2, "meanr": 2})
    # captions: ranks 2, 1, 1, 0, 0, 2 (the last: 0.2 and 0.1 against 0.1, a tie)
    assert report["t2i"] == pytest.approx({"r1": third, "r5": 100, "r10": 100, "medr": 2, "meanr": 2})
    assert report["rsum"] == pytest.approx(400 + 2 * third)
    assert (report["pictures"], report["captions"]) == (3, 6)
    official = evaluate_scores(scores, pairs, ties="official")
    assert official["i2t"]["meanr"] == pytest.approx(1 + 2 / 3)  # caption 3 (0.6) comes before caption 2 (0.6)


def test_captions_are_found_by_owner_whatever_their_order():
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(6), [1, 4, 2, 5, 3, 2])
    scores, order = rng.random((6, 17)), rng.permutation(17)
    straight = evaluate_scores(scores, pairs_of(owner))
    assert evaluate_scores(scores[:, order], pairs_of(owner[order])) == straight


def test_a_picture_without_captions_asks_nothing_but_stays_in_the_gallery():
    pairs = pairs_of([0, 1], pictures=3)
    scores = np.array([[0.9, 0.1], [0.1, 0.5], [0.2, 0.8]])
    report = evaluate_scores(scores, pairs)
    assert report["i2t"]["r1"] == 100 and report["i2t"]["meanr"] == 1
    assert report["t2i"]["r1"] == 50  # picture 2 beats caption 1's own
    assert report["pictures"] == 3


def test_one_score_for_everything_is_chance_or_worse():
    pairs = pairs_of(np.repeat(np.arange(12), 5))
    assert evaluate_scores(np.zeros((12, 60)), pairs)["rsum"] == 0
    assert evaluate_scores(np.zeros((12, 60)), pairs)["t2i"]["meanr"] == 12


def test_tensors_and_negative_scores_give_the_same_report():
    pairs = pairs_of([0, 0, 1, 2])
    scores = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    assert evaluate_scores(scores - 9, pairs) == evaluate_scores(scores.numpy() - 9, pairs)


def test_scores_of_another_shape_are_refused_in_one_line_with_both_shapes():
    pairs = pairs_of([0, 0, 1])
    with pytest.raises(BadInput, match="scores are 5 x 3 but the data has 2 pictures x 3 captions$"):
        evaluate_scores(np.zeros((5, 3)), pairs)
    with pytest.raises(BadInput, match="transposed: pictures are rows"):
        evaluate_scores(np.zeros((3, 2)), pairs)
    with pytest.raises(BadInput, match="must be a matrix"):
        evaluate_scores(np.zeros(6), pairs)


def test_a_score_that_is_not_a_number_is_refused():
    scores = np.eye(2)
    scores[1, 0] = np.nan
    with pytest.raises(BadInput, match="row 1, column 0"):
        evaluate_scores(scores, pairs_of([0, 1]))


def test_unknown_names_are_refused_with_those_known():
    pairs = pairs_of([0, 1])
    with pytest.raises(BadInput, match="'recal' is no protocol; known: auto, recall, five-fold"):
        evaluate_scores(np.eye(2), pairs, protocol="recal")
    with pytest.raises(BadInput, match="known: worst, official"):
        evaluate_scores(np.eye(2), pairs, ties="random")
    with pytest.raises(BadInput, match="known: pairs, file"):
        evaluate_scores(np.eye(2), pairs, relevance="all")
    with pytest.raises(BadInput, match="no relevance file"):
        evaluate_scores(np.eye(2), pairs, relevance="file")


def test_a_relevance_file_adds_figures_and_changes_recall_only_when_asked():
    fits = csr_matrix(np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]], bool))  # captions x pictures: caption 0 fits 0 and 1
    pairs = pairs_of([0, 1, 2], relevance=fits)
    scores = np.array([[0.5, 0.6, 0.0], [0.9, 0.8, 0.1], [0.1, 0.1, 0.7]])
    report = evaluate_scores(scores, pairs)
    assert report["t2i"]["r1"] == pytest.approx(200 / 3)  # caption 0 prefers picture 1
    assert report["many"]["t2i"]["r1"] == 100
    # picture 0: caption 1 ahead of its only fit; picture 1: both fits on top; picture 2: right
    assert report["many"]["i2t"] == pytest.approx({"r1": 200 / 3, "map_at_r": 200 / 3, "r_precision": 200 / 3})
    assert report["many"]["t2i"] == pytest.approx({"r1": 100, "map_at_r": 100, "r_precision": 100})
    by_file = evaluate_scores(scores, pairs, relevance="file")
    assert by_file["t2i"]["r1"] == 100 and by_file["many"] == report["many"]


# --- folds ---


def test_identity_in_folds_gives_600():
    pairs = pairs_of(np.repeat(np.arange(50), 5))
    report = evaluate_scores(perfect(pairs), pairs, protocol="five-fold", fold=10)
    assert report["rsum"] == 600
    assert len(report["folds"]) == 5 and (report["pictures"], report["captions"]) == (50, 250)
    assert "left_out" not in report


def test_each_fold_is_its_own_gallery_and_rsum_is_the_mean_of_the_true_ones():
    rng = np.random.default_rng(3)
    owner = rng.permutation(np.repeat(np.arange(23), rng.integers(1, 5, 23)))
    scores, pairs = rng.random((23, len(owner))), pairs_of(owner)
    report = evaluate_scores(scores, pairs, protocol="five-fold", fold=7)
    alone = []
    for start in (0, 7, 14):
        rows = np.flatnonzero((owner >= start) & (owner < start + 7))
        alone.append(evaluate_scores(scores[start : start + 7][:, rows], pairs_of(owner[rows] - start)))
    assert report["folds"] == alone
    assert report["rsum"] == pytest.approx(np.mean([fold["rsum"] for fold in alone]))
    assert report["i2t"]["medr"] == pytest.approx(np.mean([fold["i2t"]["medr"] for fold in alone]))
    assert report["left_out"] == 2


def test_folds_of_a_relevance_file_are_cut_from_it():
    pairs = pairs_of([0, 1, 2, 3], relevance=csr_matrix(np.ones((4, 4), bool)))
    scores = 1 - np.eye(4)
    assert evaluate_scores(scores, pairs, protocol="five-fold", fold=2)["i2t"]["r1"] == 0
    assert evaluate_scores(scores, pairs, protocol="five-fold", fold=2, relevance="file")["i2t"]["r1"] == 100


def test_too_few_pictures_for_two_folds_is_one_clear_line():
    pairs = pairs_of(np.arange(12))
    with pytest.raises(BadInput, match="12 pictures do not make two folds of 1000; use protocol recall"):
        evaluate_scores(np.eye(12), pairs, protocol="five-fold")
    with pytest.raises(BadInput, match="two folds of 0"):
        evaluate_scores(np.eye(12), pairs, protocol="five-fold", fold=0)


# --- labels ---


def labelled(image, text, **more) -> Pairs:
    image, text = np.asarray(image, bool), np.asarray(text, bool)
    names = [str(k) for k in range(image.shape[1])]
    return pairs_of(np.arange(len(text)), labels=Labels(names, image, text), **more)


def test_a_set_of_labels_without_words_is_measured_by_labels():
    hot = np.eye(2)[[0, 1, 0]]
    report = evaluate_scores(np.eye(3), labelled(hot, hot, words=""))
    assert set(report) == {"map", "ndcg"} and set(report["map"]) == {"i2t", "t2i", "mean"}
    assert "rsum" in evaluate_scores(np.eye(3), labelled(hot, hot, words="a dog"))


def test_label_figures_on_a_hand_worked_case():
    hot = np.eye(2)[[0, 1, 0]]
    scores = np.array([[0.9, 0.5, 0.1], [0.3, 0.2, 0.1], [0.1, 0.2, 0.3]])
    report = evaluate_scores(scores, labelled(hot, hot), protocol="labels")
    # i2t lists: 1,0,1 -> 5/6; 0,1,0 -> 1/2; 1,0,1 -> 5/6
    assert report["map"]["i2t"] == pytest.approx((5 / 6 + 1 / 2 + 5 / 6) / 3)
    # t2i lists: caption 0: .9 .3 .1 -> 1,0,1; caption 1 (class 1): .5 then .2 twice, the wrong first -> 1/3;
    # caption 2: .3 then .1 twice, the wrong first -> 1,0,1
    assert report["map"]["t2i"] == pytest.approx((5 / 6 + 1 / 3 + 5 / 6) / 3)
    assert report["map"]["mean"] == pytest.approx((report["map"]["i2t"] + report["map"]["t2i"]) / 2)
    gain = (1 + 1 / 2) / (1 + 1 / np.log2(3))
    assert report["ndcg"]["i2t"] == pytest.approx((2 * gain + 1 / np.log2(3)) / 3)


def test_a_query_without_a_match_counts_with_one_class_each_and_not_with_several():
    scores = np.array([[0.9, 0.1], [0.1, 0.9]])
    single = labelled([[1, 0, 0], [0, 1, 0]], [[1, 0, 0], [0, 0, 1]])
    several = labelled([[1, 0, 1], [0, 1, 0]], [[1, 0, 1], [0, 0, 1]])
    assert evaluate_scores(scores, single, protocol="labels")["map"]["i2t"] == 0.5
    assert evaluate_scores(scores, several, protocol="labels")["map"]["i2t"] == 1.0


def test_predictions_add_micro_f1():
    hot = np.eye(2)[[0, 1]]
    guesses = {"image": hot * 0.9, "text": np.full((2, 2), 0.9)}
    report = evaluate_scores(np.eye(2), labelled(hot, hot), protocol="labels", predictions=guesses)
    assert report["micro_f1"] == pytest.approx({"image": 1.0, "text": 2 / 3})


def test_labels_are_asked_for_where_they_are_needed():
    for protocol in ("labels", "pmrp"):
        with pytest.raises(BadInput, match=f"protocol {protocol} needs labels"):
            evaluate_scores(np.eye(2), pairs_of([0, 1]), protocol=protocol)


def test_a_caption_knows_its_number_among_its_pictures():
    assert siblings(np.array([1, 0, 1, 1, 0, 2])).tolist() == [0, 0, 1, 2, 1, 0]


def test_pmrp_on_a_hand_worked_case_leaves_out_pictures_without_a_class():
    codes = np.array([[1, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0]], bool)  # five apart
    pairs = pairs_of([0, 1, 2], labels=Labels(list("abcdef"), codes, codes))
    scores = np.array([[0.9, 0.1, 1.0], [0.5, 0.4, 1.0], [1.0, 1.0, 1.0]])
    assert evaluate_scores(scores, pairs, protocol="pmrp") == {"i2t": 50.0, "t2i": 100.0}


def test_pmrp_in_folds_is_the_mean_of_the_folds():
    rng = np.random.default_rng(0)
    codes, owner = rng.random((8, 4)) < 0.6, np.repeat(np.arange(8), 2)
    codes[:, 0] = True
    scores = rng.random((8, 16))
    whole = pairs_of(owner, labels=Labels(list("abcd"), codes, codes[owner]))
    halves = []
    for start in (0, 4):
        part = codes[start : start + 4]
        half = pairs_of(owner[:8], labels=Labels(list("abcd"), part, part[owner[:8]]))
        block = scores[start : start + 4, 2 * start : 2 * start + 8]
        halves.append(evaluate_scores(block, half, protocol="pmrp"))
    got = evaluate_scores(scores, whole, protocol="pmrp", fold=4)
    assert got == pytest.approx({side: (halves[0][side] + halves[1][side]) / 2 for side in ("i2t", "t2i")})


# --- cross rank ---


def test_every_pair_falls_in_one_bin_of_the_cross_rank():
    rng = np.random.default_rng(0)
    pairs = pairs_of(np.repeat(np.arange(100), [2, 4] * 50))
    report = evaluate_scores(rng.random((100, 300)), pairs, protocol="cross-rank")
    assert sum(report["bins"].values()) == report["pairs"] == 300
    assert report["bins"][">200"] > 50
    best = evaluate_scores(perfect(pairs), pairs, protocol="cross-rank")
    assert best["first"] == 100 and best["bins"]["1"] == 300 and best["mean"] == 1


# --- ECCV Caption ---


def test_a_missing_eccv_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(eccv_and_cxc, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"matchlight\[eccv\]"):
        evaluate_scores(np.eye(2), pairs_of([0, 1]), protocol="eccv")


def test_data_that_is_not_the_coco_test_split_is_refused():
    pytest.importorskip("eccv_caption")
    with pytest.raises(BadInput, match="no caption of the COCO test split"):
        evaluate_scores(np.eye(2), pairs_of([0, 1]), protocol="eccv")
    some = pairs_of([0, 1], notes={"image_ids": [391895, 60623], "caption_ids": [770337, 152106]})
    with pytest.raises(BadInput, match="all 5000 COCO test pictures; this data has 2, and 4998"):
        evaluate_scores(np.eye(2), some, protocol="cxc")


class Truth(eccv_and_cxc.CocoTest):
    """The package's truth for a test split in an order of our own."""

    def __init__(self, seed: int):
        self.folder, self.ties, self._truths = eccv_and_cxc.truth_folder(), "worst", {}
        self.test_ids = np.load(self.folder / "coco_test_ids.npy", allow_pickle=False)
        self.owners = {int(c): i[0] for c, i in self._read("original", "t2i").items()}
        rng = np.random.default_rng(seed)
        self.image_ids = rng.permutation(sorted(set(self.owners.values())))
        self.caption_ids = rng.permutation(self.test_ids)


def test_the_eccv_truth_has_the_sizes_its_authors_published():
    pytest.importorskip("eccv_caption")
    truth = Truth(seed=0)
    expected = {("i2t", "eccv"): (1261, 22550), ("t2i", "eccv"): (1332, 11279), ("t2i", "cxc"): (24972, 35585)}
    for asked, (queries, positives) in expected.items():
        rows, fits, total = truth.truth(*asked)
        assert (len(rows), fits.shape[0], total.sum()) == (queries, queries, positives)


def test_a_perfect_eccv_ranking_stops_short_of_one_only_by_the_two_positives_outside_the_split():
    pytest.importorskip("eccv_caption")
    truth = Truth(seed=1)
    for side, best in (("i2t", 0.99989726), ("t2i", 1.0)):
        _, fits, total = truth.truth(side, "eccv")
        scores = fits[:, :].astype(np.float16)
        assert m.hit_rate(m.ranks(scores, fits), at=1) == 1
        assert m.map_at_r(scores, fits, total=total) == pytest.approx(best, abs=1e-8)
        assert m.r_precision(scores, fits, total=total) == pytest.approx(best, abs=1e-8)


@pytest.mark.filterwarnings("ignore")
def test_figures_over_r_agree_with_the_eccv_package():
    package = pytest.importorskip("eccv_caption._metrics")
    rng = np.random.default_rng(2)
    queries, gallery = np.arange(100, 130), np.arange(1000, 1060)
    named = np.append(gallery, [5, 6])  # two items that are not in the gallery
    truth = {str(q): rng.choice(named, rng.integers(1, 12), replace=False).tolist() for q in queries[:20]}
    for items in truth.values():
        items[0] = int(rng.choice(gallery)) if not set(items) & set(gallery.tolist()) else items[0]
    scores = rng.random((30, 60))
    listed = {int(q): gallery[np.argsort(-line)].tolist() for q, line in zip(queries, scores, strict=True)}
    theirs = package.compute_eccv_metrics(listed, {int(q): items for q, items in truth.items()})
    fits, total = eccv_and_cxc.sparse_truth(truth, queries, gallery)
    assert m.map_at_r(scores, fits, total=total) == pytest.approx(theirs["eccv_map_at_r"])
    assert m.r_precision(scores, fits, total=total) == pytest.approx(theirs["eccv_rprecision"])
    assert m.hit_rate(m.ranks(scores, fits), at=1) == pytest.approx(theirs["eccv_r1"])


def test_coco_ids_come_from_notes_cut_to_the_subset_or_from_names_and_order():
    noted = pairs_of([0, 0, 1], notes={"image_ids": [7, 8], "caption_ids": [71, 72, 81]})
    cut = noted.select(np.array([1]), np.array([2]))
    assert [ids.tolist() for ids in eccv_and_cxc.coco_ids(cut, np.array([]), {})] == [[8], [81]]
    named = Pairs(["x/COCO_val2014_000000000009.jpg", "4.jpg"], ["a"] * 3, np.array([1, 0, 1]), np.full(2, "test"))
    ids = eccv_and_cxc.coco_ids(named, np.array([91, 41, 42]), {91: 9, 41: 4, 42: 4})
    assert [each.tolist() for each in ids] == [[9, 4], [41, 91, 42]]
    with pytest.raises(BadInput, match="'dog.jpg' has no COCO id"):
        eccv_and_cxc.coco_ids(Pairs(["dog.jpg"], ["a"], np.array([0]), np.array(["test"])), np.array([]), {})


# --- tables ---


def shown(report) -> str:
    console = Console(width=140, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(table(report))
    return console.export_text()


def test_every_protocol_has_a_table_and_a_report_that_is_json():
    codes = np.eye(3, dtype=bool)[[0, 1, 2, 0]]
    owner = np.repeat(np.arange(4), 2)
    fits = csr_matrix(np.eye(4, dtype=bool)[owner])
    pairs = pairs_of(owner, labels=Labels(list("abc"), codes, codes[owner]), relevance=fits)
    wanted = {
        "recall": "rsum 600.0",
        "five-fold": "mean of 2 folds",
        "labels": "NDCG",
        "cross-rank": "101-200",
        "pmrp": "PMRP",
    }
    for protocol, words in wanted.items():
        report = evaluate_scores(perfect(pairs), pairs, protocol=protocol, fold=2 if protocol == "five-fold" else None)
        assert words in shown(json.loads(json.dumps(report)))
    assert "mAP@R (all fits)" in shown(evaluate_scores(perfect(pairs), pairs))
    assert "0.2399" in shown({"eccv_map_at_r": {"i2t": 0.2399, "t2i": 0.3196}})
    assert set(PROTOCOLS) == {*wanted, "eccv", "cxc"}


# --- the authors' own code ---


@needs_parity
@pytest.mark.parametrize("ties", ["worst", "official"])
@pytest.mark.parametrize("name", RECORDED)
def test_the_report_agrees_with_the_recorded_one(name, ties):
    folder = Path(PARITY) / name
    expected = json.loads((folder / "expected_metrics.json").read_text())
    with np.load(folder / "expected.npz", allow_pickle=False) as file:
        matrices = {"": file["scores"], "matching_prob": file.get("scores_matching_prob")}
    for key, scores in matrices.items():
        wanted = expected.get(key) if key else expected
        if scores is None or wanted is None:
            continue
        pairs = pairs_of(np.arange(scores.shape[1]) // (scores.shape[1] // len(scores)))
        for matrix in (scores, scores.astype(np.float32)):
            got = evaluate_scores(matrix, pairs, ties=ties)
            assert got["rsum"] == pytest.approx(wanted["rsum"], abs=1e-3)
            for side in ("i2t", "t2i"):
                assert_allclose([got[side][k] for k in got[side]], [wanted[side][k] for k in got[side]], atol=1e-3)


@needs_parity
def test_ndcg_agrees_with_the_recorded_figures_of_the_label_wise_transformer():
    folder = Path(PARITY) / "label_wise_transformer"
    expected = json.loads((folder / "expected_metrics.json").read_text())
    with np.load(folder / "expected.npz", allow_pickle=False) as file:
        scores = file["scores"]
    hot = np.load(folder / "data" / "test_labels.npy", allow_pickle=False) > 0
    owner = np.arange(scores.shape[1]) // 5
    names = [str(k) for k in range(hot.shape[1])]
    pairs = pairs_of(owner, labels=Labels(names, hot, hot[owner]))
    report = evaluate_scores(scores, pairs, protocol="labels", cutoff=10, discount="coco_t2i")
    assert 100 * report["ndcg"]["i2t"] == pytest.approx(expected["ndcg_at10_i2t"], abs=1e-3)
    assert 100 * report["ndcg"]["t2i"] == pytest.approx(expected["ndcg_at10_t2i"], abs=1e-3)
    standard = evaluate_scores(scores, pairs, protocol="labels", cutoff=10)
    assert 100 * standard["ndcg"]["t2i"] == pytest.approx(55.046, abs=1e-3)


def test_a_figure_is_read_by_its_path_and_a_wrong_path_is_an_error():
    report = evaluate_scores(np.eye(2), pairs_of([0, 1]))
    assert figure(report, "i2t", "r1") == 100 and figure(report, "rsum") == 600
    for path in (("i2t", "r2"), ("rsum", "r1"), ("i2t",)):
        with pytest.raises(KeyError, match=path[0]):
            figure(report, *path)


def test_an_option_that_no_protocol_has_is_refused():
    with pytest.raises(TypeError, match="folds"):
        evaluate_scores(np.eye(2), pairs_of([0, 1]), folds=2)
