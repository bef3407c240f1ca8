"""Labels under audit: wrong ones are found, right ones left alone, one label written twice counts once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from tiny import Arrays

from matchlight import audit
from matchlight.auditing.labels import _judge, can_judge, judge_labels
from matchlight.core import BadInput
from matchlight.noise import Truth
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


@pytest.mark.parametrize("both", [False, True])
def test_wrong_labels_are_found_with_their_likely_class(both):
    clean = classes_of()
    pairs, bad = flipped(clean, 0.2, both=both)
    rows = np.arange(len(pairs))
    verdict = judge_labels(pairs, rows, pairs.features.array, pairs.text_features)
    assert roc_auc_score(bad, -verdict.score) > 0.97
    assert bad[verdict.suspect].mean() > 0.9 and verdict.suspect[bad].mean() > 0.85
    assert (verdict.likely == clean.labels.text.argmax(1))[bad].mean() > 0.9


def test_right_labels_are_left_alone():
    pairs = classes_of()
    verdict = judge_labels(pairs, np.arange(len(pairs)), pairs.features.array, pairs.text_features)
    assert verdict.suspect.mean() < 0.02 and verdict.noise < 0.05


def test_a_label_written_on_both_sides_counts_once():
    rng = np.random.default_rng(0)
    x = {"image": rng.normal(size=(60, 2)), "text": rng.normal(size=(60, 2))}  # says nothing about the classes
    same = rng.integers(2, size=60)
    fold = np.arange(60) % 3
    once = _judge(x, {"image": same, "text": same}, fold, 2)
    assert once.image == pytest.approx(once.text)


def test_labels_need_one_class_an_item():
    pairs = classes_of(30)
    many = replace(pairs, labels=Labels(pairs.labels.names, np.ones((30, 4), dtype=bool), pairs.labels.text))
    assert not can_judge(many)
    with pytest.raises(BadInput, match="exactly one class"):
        judge_labels(many, np.arange(30), np.zeros((30, 2)), np.zeros((30, 2)))


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
