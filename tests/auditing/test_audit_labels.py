"""Labels under audit: wrong ones are found, right ones left alone, one label written twice counts once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from tiny import Arrays

from matchlight import audit
from matchlight.auditing import label_errors
from matchlight.auditing.label_errors import LabelVerdict, _estimate, find_label_errors, has_single_labels
from matchlight.auditing.reasons import Findings, LabelFindings, add_labels, conclude_labels
from matchlight.auditing.truth_check import measured
from matchlight.core import BadInput
from matchlight.data.findings import read_findings
from matchlight.data.noise import Truth, flip_labels
from matchlight.pairs import Labels, Pairs


def classes_of(n: int = 300, *, classes: int = 4, apart: float = 2.5, seed: int = 0) -> Pairs:
    """Pictures and texts as clouds of points around their class."""
    rng = np.random.default_rng(seed)
    true = rng.integers(classes, size=n)
    centres = apart * rng.normal(size=(2, classes, 6))
    hot = np.eye(classes, dtype=bool)[true]
    return Pairs(
        names=[f"p{i}" for i in range(n)],
        captions=[""] * n,
        picture=np.arange(n),
        splits=np.full(n, "train"),
        features=Arrays((centres[0][true] + rng.normal(size=(n, 6))).astype(np.float32)),
        text_features=(centres[1][true] + rng.normal(size=(n, 6))).astype(np.float32),
        labels=Labels([f"class {k}" for k in range(classes)], hot, hot.copy()),
    )


def flipped(pairs: Pairs, share: float, *, both: bool = False, seed: int = 1) -> tuple[Pairs, np.ndarray]:
    """The text labels of some rows turned to the next class (`both`: the picture's too), and which."""
    rng = np.random.default_rng(seed)
    bad = rng.random(len(pairs)) < share
    turned = np.where(bad[:, None], np.roll(pairs.labels.text, 1, axis=1), pairs.labels.text)
    return replace(pairs, labels=Labels(pairs.labels.names, turned if both else pairs.labels.image, turned)), bad


def worded(n: int = 160, *, classes: int = 4, seed: int = 0) -> Pairs:
    """Pictures with one caption each that names four of the things of their class, which the picture shows."""
    rng = np.random.default_rng(seed)
    true = rng.integers(classes, size=n)
    shown = np.stack([10 * one + rng.choice(10, 4, replace=False) for one in true])
    look = rng.normal(size=(10 * classes, 32))
    hot = np.eye(classes, dtype=bool)[true]
    return Pairs(
        names=[f"p{i}" for i in range(n)],
        captions=[" ".join(f"thing{k}" for k in things) for things in shown],
        picture=np.arange(n),
        splits=np.full(n, "train"),
        features=Arrays((look[shown].sum(1) + 0.3 * rng.normal(size=(n, 32))).astype(np.float32)),
        labels=Labels([f"class {k}" for k in range(classes)], hot, hot.copy()),
    )


@pytest.mark.parametrize("both", [False, True])
def test_wrong_labels_are_found_with_their_likely_class(both):
    clean = classes_of()
    pairs, bad = flipped(clean, 0.2, both=both)
    rows = np.arange(len(pairs))
    verdict = find_label_errors(pairs, rows, pairs.features.array, pairs.text_features)
    assert roc_auc_score(bad, -verdict.score) > 0.97
    assert bad[verdict.suspect].mean() > 0.9 and verdict.suspect[bad].mean() > 0.85
    assert (verdict.likely == clean.labels.text.argmax(1))[bad].mean() > 0.9


@pytest.mark.parametrize(("count", "classes", "apart"), [(20, 3, 0.0), (20, 10, 1.0), (100, 10, 0.0), (240, 10, 0.0)])
def test_labels_that_few_or_shapeless_pictures_have_are_not_called_wrong(count, classes, apart):
    pairs = classes_of(count, classes=classes, apart=apart)
    rows = np.arange(count)
    verdict = find_label_errors(pairs, rows, pairs.features.array, pairs.text_features)
    expected, real = verdict.score[verdict.suspect].sum(), verdict.suspect.sum()
    assert real <= expected + 1, (real, expected)


def test_where_labels_cannot_be_told_the_audit_says_so(tmp_path):
    found = audit(None, classes_of(40, classes=10, apart=0.0), tmp_path)
    assert found.summary["flagged"] == 0 and not found.summary["can_tell"]
    assert "too few to tell which labels of 10 classes" in found.summary["notes"][0]


def test_right_labels_are_left_alone():
    pairs = classes_of()
    verdict = find_label_errors(pairs, np.arange(len(pairs)), pairs.features.array, pairs.text_features)
    assert verdict.suspect.mean() < 0.02 and verdict.noise < 0.05


def test_a_label_written_on_both_sides_counts_once():
    rng = np.random.default_rng(0)
    x = {"image": rng.normal(size=(60, 2)), "text": rng.normal(size=(60, 2))}  # says nothing about the classes
    same = rng.integers(2, size=60)
    fold = np.arange(60) % 3
    once = _estimate(x, {"image": same, "text": same}, fold, 2, pictures=len(same))
    assert once.image == pytest.approx(once.text)


def test_labels_need_one_class_an_item():
    pairs = classes_of(30)
    many = replace(pairs, labels=Labels(pairs.labels.names, np.ones((30, 4), dtype=bool), pairs.labels.text))
    assert not has_single_labels(many)
    with pytest.raises(BadInput, match="exactly one class"):
        find_label_errors(many, np.arange(30), np.zeros((30, 2)), np.zeros((30, 2)))


def test_an_audit_of_vectors_and_labels_writes_the_label_columns(tmp_path):
    pairs, bad = flipped(classes_of(), 0.2)
    truth = Truth("labels", 0.2, 0, "symmetric", {"image": [], "text": np.flatnonzero(bad).tolist()})
    found = audit(None, pairs, tmp_path / "audit", truth=truth)
    head = (tmp_path / "audit" / "pairs.csv").read_text().splitlines()[0]
    assert head.startswith("row,image,caption,score,suspect,reason,label,likely")
    assert found.summary["auroc"] > 0.97 and found.suspects[0]["reason"] == "wrong label"
    assert found.suspects[0]["likely"] != ""


def test_vectors_without_labels_cannot_be_audited(tmp_path):
    pairs = replace(classes_of(30), labels=None)
    with pytest.raises(BadInput, match="needs captions in words, or one label an item"):
        audit(None, pairs, tmp_path / "audit")


def test_wrong_labels_of_captions_in_words_come_first_and_are_measured_as_labels(tmp_path):
    pairs, truth = flip_labels(worded(), ratio=0.2, seed=0)
    found = audit(None, pairs, tmp_path / "audit", truth=truth, quick=False, folds=3, captions="words", pictures="own")
    flagged = [one for one in found.suspects if one["reason"] == "wrong label"]
    assert len(flagged) > 30 and max(one["score"] for one in flagged) < 0.5
    assert found.summary["expected_false_alarms"] < 0.06 * found.summary["flagged"] + 1
    assert found.summary["auroc"] > 0.97 and found.summary["average_precision"] > 0.95
    assert found.summary["estimated_label_noise"] == pytest.approx(0.2, abs=0.06)


def judged_by_hand() -> tuple[Pairs, Findings]:
    """Four pairs: fine; with a wrong label; mismatched; with a label that is doubtful and not suspect."""
    pairs = classes_of(4)
    wrong = {"image": np.array([False, True, False, False]), "text": np.zeros(4, dtype=bool)}
    right = np.array([0.7, 0.2, 0.9, 0.6]), np.array([0.8, 0.6, 0.75, 0.65])
    labelled = LabelVerdict(*right, np.zeros(4, dtype=int), 0.3, wrong)
    out = conclude_labels(pairs, np.arange(4), labelled)
    out.score[:], out.suspect[:] = [0.95, 0.97, 0.1, 0.99], [False, False, True, False]
    out.reason[:] = ["", "", "mismatched", ""]
    add_labels(out, pairs, np.arange(4), labelled)
    return pairs, out


def test_a_pair_s_score_is_the_lower_of_its_own_and_its_label_s():
    _, out = judged_by_hand()
    assert out.score.tolist() == [0.95, 0.2, 0.1, 0.99]  # only a label found wrong pulls a pair down
    assert out.reason.tolist() == ["", "wrong label", "mismatched", ""]
    assert out.suspect.tolist() == [False, True, True, False]
    assert out.labels is not None and out.labels.score.tolist() == [0.7, 0.2, 0.75, 0.6]  # the worse side of each


def test_the_truth_about_labels_measures_what_was_thought_of_labels():
    pairs, out = judged_by_hand()
    about_labels = Truth("labels", 0.5, 0, "symmetric", {"image": [1], "text": [3]})
    assert measured(about_labels, out, pairs)["auroc"] == 1.0  # .2 and .6 are below .7 and .75
    about_pairs = Truth("mismatch", 0.25, 0, "caption", [2])
    assert measured(about_pairs, out, pairs)["auroc"] == 1.0  # .1 is the lowest score of a pair, .75 of no label


def test_the_table_names_the_side_whose_label_is_wrong_and_another_class_for_it(tmp_path):
    clean = classes_of()
    pairs, truth = flip_labels(clean, ratio=0.2, seed=0)  # each side on its own
    audit(None, pairs, tmp_path / "audit")
    suspects = [(one.row, one.labels) for one in read_findings(tmp_path / "audit" / "pairs.csv") if one.suspect]
    assert {labels.side for _, labels in suspects} == {"image", "text", "both"}
    assert all(labels.likely not in ("", labels.label) for _, labels in suspects)
    for _, labels in suspects:
        assert labels.label == (labels.text_label if labels.side == "text" else labels.image_label)
    right = [row in truth.moved[labels.side] for row, labels in suspects if labels.side != "both"]
    assert np.mean(right) > 0.9


def test_a_class_that_is_suspect_is_not_offered_in_its_own_place(monkeypatch):
    monkeypatch.setattr(label_errors, "flagged", lambda wrong: np.ones(len(wrong), dtype=bool))  # likely ones too
    monkeypatch.setattr(label_errors, "_unsure", lambda *_: "")
    rng = np.random.default_rng(0)
    x = {side: rng.normal(size=(60, 2)) for side in ("image", "text")}
    given = {side: rng.integers(3, size=60) for side in x}
    verdict = _estimate(x, given, np.arange(60) % 4, 3, pictures=60)
    for side in given:
        assert (verdict.likely != given[side]).all()
    assert (verdict.side == "both").all()


def told(side: str, image: str, text: str) -> str:
    label = text if side == "text" else image
    parts = (np.array([one], dtype=object) for one in (label, "fog", side, image, text))
    return LabelFindings(*parts, np.zeros(1)).sentence(0)


def test_the_report_says_which_label_to_change():
    assert told("text", "day", "night") == "The text's label is night; more likely fog. The picture's is day."
    assert told("image", "day", "night") == "The picture's label is day; more likely fog. The text's is night."
    assert told("both", "day", "day") == "Both labels are day; more likely fog."
    assert told("both", "day", "night") == "The picture's label is day, the text's night; more likely fog."
    assert told("", "day", "day") == ""


@pytest.mark.parametrize(
    ("moved", "complaint"),
    [
        ({"image": [30], "text": []}, "names picture 30, and .* has 30"),
        ({"image": [], "text": [3, 99]}, "names row 99, and .* has 30"),
        ([30], "names row 30, and .* has 30"),
    ],
)
def test_the_truth_about_other_data_is_refused_before_anything_is_written(tmp_path, moved, complaint):
    truth = Truth("labels" if isinstance(moved, dict) else "mismatch", 0.2, 0, "symmetric", moved)
    with pytest.raises(BadInput, match=complaint):
        audit(None, classes_of(30), tmp_path / "audit", truth=truth)
    assert not (tmp_path / "audit").exists()


def test_the_truth_about_labels_is_refused_where_there_are_none(tmp_path):
    truth = Truth("labels", 0.2, 0, "symmetric", {"image": [1], "text": []})
    with pytest.raises(BadInput, match="no single label an item"):
        audit(None, replace(worded(30), labels=None), tmp_path / "audit", truth=truth)
    assert not (tmp_path / "audit").exists()


def test_a_label_audit_that_was_refused_leaves_the_folder_free(tmp_path):
    with pytest.raises(BadInput):
        audit(None, classes_of(8), tmp_path / "audit", folds=20)
    assert not (tmp_path / "audit").exists()
    assert audit(None, classes_of(60), tmp_path / "audit").summary["pairs"] == 60
