"""What label methods share: how an item becomes a vector, how classes are predicted, how a run is judged by them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from matchlight.core import IMAGE, TEXT, Embedding, Ensemble, Items, Matcher, Parts, Sizes
from matchlight.measuring import metrics
from matchlight.pairs import Labels, Pairs
from matchlight.parts.labelwise import Classified, Cosine, Vector, bag, cross_entropy, width
from matchlight.parts.similarities import Dot
from matchlight.runs.evaluation import evaluate
from matchlight.runs.train_run import train
from matchlight.scoring.encode import encode_both
from tests.reference import labelwise as naive
from tests.tiny import Arrays, tiny_pairs

TINY = {"device": "cpu", "preset": "small", "dim": 8, "hidden": 16, "batch": 8, "rate": 5e-3}


def tiny_vectors(count: int = 60, *, classes: int = 3, seed: int = 0) -> Pairs:
    """One vector a picture, one a text, both near the middle of their class."""
    rng = np.random.default_rng(seed)
    label = np.arange(count) % classes
    image, text = rng.normal(size=(classes, 7)), rng.normal(size=(classes, 5))
    noise = [0.35 * rng.normal(size=(count, dim)) for dim in (7, 5)]
    hot = np.eye(classes, dtype=bool)[label]
    return Pairs(
        names=[f"p{i}" for i in range(count)],
        captions=[""] * count,
        picture=np.arange(count),
        splits=np.array(["train"] * (count - 30) + ["val"] * 15 + ["test"] * 15),
        features=Arrays((image[label] + noise[0]).astype(np.float32)),
        text_features=(text[label] + noise[1]).astype(np.float32),
        labels=Labels([f"class {k}" for k in range(classes)], hot, hot),
    )


# ---- an item as a vector ----


def test_a_caption_is_how_often_each_word_stands_in_it() -> None:
    tokens = torch.tensor([[1, 2, 2, 0], [3, 0, 0, 0]])
    counts = bag(Items(tokens, tokens > 0, torch.arange(2)), 5)
    once, twice = np.log(2), np.log(3)
    length = np.hypot(once, twice)
    wanted = torch.tensor([[0, once / length, twice / length, 0, 0], [0, 0, 0, 1, 0]], dtype=torch.float32)
    assert_close(counts, wanted)


def test_regions_enter_through_the_mean_of_the_real_ones() -> None:
    x = torch.randn(2, 3, 4)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    found = Vector(4, inputs="raw")(Items(x, mask, torch.arange(2)))
    assert_close(found, torch.stack([x[0, :2].mean(0), x[1].mean(0)]))


def test_inputs_are_scaled_as_asked() -> None:
    x = torch.tensor([[4.0, -9.0], [0.0, 1.0], [16.0, 4.0]])
    items = Items(x, None, torch.arange(3))
    assert_close(Vector(2, inputs="raw")(items), x)
    assert_close(Vector(2, inputs="unit")(items).norm(dim=1), torch.ones(3))
    root = torch.tensor([[2.0, -3.0], [0.0, 1.0], [4.0, 2.0]])
    for how, plain in (("standard", x), ("root", root)):
        found = Vector(2, inputs=how)(items)
        assert_close(found, (plain - plain.mean(0)) / plain.std(0, correction=0), atol=1e-4, rtol=1e-4)


def test_a_side_is_as_wide_as_its_vectors_or_its_vocabulary() -> None:
    words = Sizes(pairs=1, pictures=1, image="regions", image_dim=6, vocabulary=11)
    vectors = replace(words, text_dim=3)
    assert (width(words, IMAGE), width(words, TEXT), width(vectors, TEXT)) == (6, 11, 3)


def test_cross_entropy_knows_several_labels_and_none() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25]] * 3))
    labels = torch.tensor([[1.0, 0, 0], [0, 1, 1], [0, 0, 0]])
    assert_close(cross_entropy(logits, labels), -torch.log(torch.tensor([0.5, 0.25, 1.0])))


# ---- predictions ----


def test_linear_guesses_are_cut_to_probabilities_and_softmax_sums_to_one() -> None:
    logits = torch.tensor([[-0.5, 0.4, 1.7]])
    found = Embedding(torch.ones(1, 1, 2), extra={"logits": logits})
    assert_close(Cosine(link="linear").predict(found, IMAGE), torch.tensor([[0.0, 0.4, 1.0]]))
    assert float(Cosine(link="softmax").predict(found, IMAGE).sum()) == pytest.approx(1.0)
    assert Cosine().predict(found, IMAGE) is None and Dot().predict(found, TEXT) is None


class Straight(nn.Module):
    def forward(self, items: Items) -> Embedding:
        return Embedding(items.x[:, None])


def matcher_of(link: str | None, scale: float) -> Matcher:
    head = nn.Linear(3, 3, bias=False)
    nn.init.eye_(head.weight)
    head.weight.data *= scale
    return Classified({IMAGE: Straight(), TEXT: Straight()}, Cosine(link=link), head)


def test_an_ensemble_predicts_the_mean_of_its_members_or_nothing() -> None:
    items = Items(torch.rand(4, 3), None, torch.arange(4))
    two = Ensemble([matcher_of("linear", 1.0), matcher_of("linear", 0.5)])
    found = two.embed(IMAGE, items)
    assert isinstance(found, Parts)
    assert_close(two.predict(found, IMAGE), 0.75 * items.x)
    mixed = Ensemble([matcher_of("linear", 1.0), matcher_of(None, 1.0)])
    assert mixed.predict(mixed.embed(IMAGE, items), IMAGE) is None


# ---- a run, judged by labels ----


@pytest.mark.parametrize("name", ["mrl", "deep_sm", "dscmr", "sdml", "fgcrossnet"])
def test_classes_that_are_easy_to_tell_apart_are_learnt_from_vectors(name: str, tmp_path: Path) -> None:
    pairs = tiny_vectors()
    rate = {"rate": 0.05} if name == "fgcrossnet" else {}
    run = train(name, pairs, tmp_path / "run", **{**TINY, "epochs": 25, **rate})
    report = evaluate(run, pairs, "test")
    assert report["map"]["mean"] > 0.8
    assert set(report["micro_f1"]) == set(report["micro_f1_tuned"]) == set(report["thresholds"]) == {IMAGE, TEXT}
    assert min(report["micro_f1_tuned"].values()) > 0.7


def test_pairs_alone_teach_dccae(tmp_path: Path) -> None:
    pairs = replace(tiny_vectors(120), labels=None)
    run = train("dccae", pairs, tmp_path / "run", device="cpu", preset="small", dim=3, hidden=16, epochs=5)
    report = evaluate(run, pairs, "test", protocol="recall")
    assert report["rsum"] > 250  # chance is about 107 on fifteen pairs
    judged = evaluate(run, tiny_vectors(120), "test", protocol="labels")
    assert "micro_f1" not in judged


def test_micro_f1_is_that_of_the_models_own_probabilities(tmp_path: Path) -> None:
    pairs = tiny_vectors()
    run = train("dscmr", pairs, tmp_path / "run", **{**TINY, "epochs": 10})
    report = evaluate(run, pairs, "test", protocol="labels")
    said = {}
    for split in ("val", "test"):
        images, _ = encode_both(run.matcher, run.inputs(pairs).table, pairs.pictures_of(split), pairs.rows(split))
        said[split] = run.matcher.predict(images, IMAGE).detach().numpy(), pairs.subset(split).labels.image
    assert report["micro_f1"][IMAGE] == pytest.approx(metrics.micro_f1(*said["test"]))
    threshold = metrics.best_threshold(*said["val"])  # never chosen on what it is used on
    assert report["thresholds"][IMAGE] == pytest.approx(threshold)
    assert report["micro_f1_tuned"][IMAGE] == pytest.approx(metrics.micro_f1(*said["test"], threshold=threshold))
    assert "micro_f1_tuned" not in evaluate(run, pairs, "val", protocol="labels")


def test_predictions_find_their_class_by_name_whatever_the_datas_order(tmp_path: Path) -> None:
    pairs = tiny_vectors()
    run = train("dscmr", pairs, tmp_path / "run", **{**TINY, "epochs": 10})
    order, labels = [2, 0, 1], pairs.labels
    empty = np.zeros((len(labels.image), 1), bool)
    turned = Labels(
        [*(labels.names[k] for k in order), "never seen"],
        np.hstack([labels.image[:, order], empty]),
        np.hstack([labels.text[:, order], empty]),
    )
    first, second = evaluate(run, pairs, "test"), evaluate(run, replace(pairs, labels=turned), "test")
    assert first["micro_f1"] == pytest.approx(second["micro_f1"])


def test_auto_judges_a_run_trained_by_labels_by_labels_though_captions_have_words(tmp_path: Path) -> None:
    pairs = tiny_pairs()
    run = train("mrl", pairs, tmp_path / "mrl", **{**TINY, "epochs": 1})
    assert run.by_labels and "map" in evaluate(run, pairs, "test")
    assert "rsum" in evaluate(run, replace(pairs, labels=None), "test")
    other = train("vse++", pairs, tmp_path / "vse", device="cpu", preset="small", dim=8, word_dim=8, epochs=1)
    assert not other.by_labels and "rsum" in evaluate(other, pairs, "test")


def test_map_is_the_double_loops_and_the_authors(parity: Path) -> None:
    known = np.load(parity / "losses" / "map.npz")
    hot = np.eye(known["labels"].max() + 1, dtype=bool)[known["labels"]]
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (known["img"], known["txt"])]
    scores, shared = unit[0] @ unit[1].T, metrics.Relevance.of_labels(hot, hot)
    for key, matrix in (("img2txt", scores), ("txt2img", scores.T)):
        mine = metrics.mean_average_precision(matrix, shared)
        assert mine == pytest.approx(float(known[f"map_{key}_all"]), rel=1e-5)
        loop = naive.mean_average_precision(1 - matrix, known["labels"].tolist(), known["labels"].tolist())
        assert mine == pytest.approx(loop, rel=1e-6)
        first = metrics.mean_average_precision(matrix, shared, at=10)
        assert first == pytest.approx(float(known[f"map_{key}_at10"]), rel=1e-5)
