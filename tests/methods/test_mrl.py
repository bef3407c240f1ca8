"""MRL against the authors' numbers, against plain loops, and what its parts promise."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from matchlight.core import IMAGE, TEXT, BadInput, Batch, Embedding, Items, Objective, Scores, Sizes
from matchlight.inputs.batches import collate
from matchlight.inputs.prepare import View, prepare
from matchlight.methods import mrl
from matchlight.methods.mrl import RobustLearning, contrastive, robust_clustering
from matchlight.parts.labelwise import Centres, cross_entropy
from matchlight.training.network import whole_batch
from tests.reference import labelwise as naive
from tests.tiny import tiny_pairs

SIZES = Sizes(pairs=10, pictures=10, image="vector", image_dim=6, text_dim=5, classes=4)


def hot(labels: np.ndarray, classes: int) -> torch.Tensor:
    return torch.eye(classes)[torch.from_numpy(np.asarray(labels))]


def paired_batch(image: torch.Tensor, text: torch.Tensor) -> Batch:
    """One text a picture, row by row, with these labels."""
    count = len(image)
    place = torch.arange(count)
    sides = {
        IMAGE: Items(place[:, None], None, place, {"label": image}),
        TEXT: Items(place[:, None], None, place, {"label": text, "picture": place}),
    }
    return Batch(sides, {"positive": torch.stack([place, place], 1)}, place)


def found(vectors: torch.Tensor, centres: torch.Tensor, temperature: float) -> Embedding:
    return Embedding(vectors[:, None], extra={"logits": vectors @ centres / temperature})


def total(objective: Objective, image: Embedding, text: Embedding, batch: Batch) -> float:
    return float(objective.total(objective(Scores(None), {IMAGE: image, TEXT: text}, batch)))


@pytest.mark.parametrize("temperature", ["1", "0.22"])
def test_the_losses_are_the_authors_losses(temperature: str, parity: Path) -> None:
    known = {key: value for key, value in np.load(parity / "losses" / "mrl.npz").items()}
    tau, centres = float(temperature), torch.from_numpy(known["centres_normalised"])
    sides = [torch.from_numpy(known[side]) for side in ("img", "txt")]
    labels = [hot(known[f"labels_{side}"], 6) for side in ("img", "txt")]
    for z, y, side in zip(sides, labels, ("img", "txt"), strict=True):
        mine = float(robust_clustering(z @ centres / tau, y).mean())
        assert mine == pytest.approx(float(known[f"mce_{side}_tau{temperature}"]), rel=1e-5)
    mine = 2 * float(contrastive(sides, temperature=tau).mean())
    assert mine == pytest.approx(float(known[f"contrastive_tau{temperature}"]), rel=1e-5)
    batch = paired_batch(*labels)
    image, text = (found(z, centres, tau) for z in sides)
    for beta in (0.7, 0.4):
        mine = total(RobustLearning(beta=beta, temperature=tau), image, text, batch)
        assert mine == pytest.approx(float(known[f"total_beta{beta}_tau{temperature}"]), rel=1e-5)


def test_centres_and_cross_entropy_are_the_authors(parity: Path) -> None:
    known = np.load(parity / "losses" / "mrl.npz")
    head = Centres(20, 6)
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(known["centres_raw"]))
    z = torch.from_numpy(known["img"])
    loss = float(cross_entropy(head(z).detach(), hot(known["labels_img"], 6)).mean())
    assert loss == pytest.approx(float(known["ce_img_tau1"]), rel=1e-5)
    head.settle()
    assert_close(head.weight.detach(), torch.from_numpy(known["centres_normalised"]))


def test_losses_agree_with_plain_loops() -> None:
    rng = np.random.default_rng(0)
    sides = [z / np.linalg.norm(z, axis=1, keepdims=True) for z in rng.normal(size=(3, 7, 5))]
    centres, labels = rng.normal(size=(5, 4)), rng.integers(0, 4, 7).tolist()
    mine = robust_clustering(torch.from_numpy(sides[0] @ centres) / 0.5, hot(labels, 4))
    assert_close(mine, torch.tensor(naive.robust_clustering(sides[0], centres, labels, 0.5), dtype=torch.float64))
    for count in (2, 3):  # the paper's Eq. 7 sums over however many modalities there are
        mine = contrastive([torch.from_numpy(z) for z in sides[:count]], temperature=0.3)
        assert float(mine.mean()) * count == pytest.approx(naive.contrastive(sides[:count], 0.3), rel=1e-9)


def test_clustering_on_a_hand_worked_case() -> None:
    logits = torch.log(torch.tensor([[2.0, 1.0, 1.0], [1.0, 1.0, 2.0]]))
    loss = robust_clustering(logits, torch.tensor([[1.0, 0, 0], [1.0, 0, 0]]))
    assert_close(loss, torch.tensor([math.log(1 / 2), math.log(3 / 4)]))


def test_the_pull_towards_a_label_is_as_strong_as_the_belief_in_it() -> None:
    logits = torch.randn(6, 5, requires_grad=True)
    labels = hot(np.arange(6) % 5, 5)
    robust_clustering(logits, labels).sum().backward()
    assert logits.grad is not None
    own = logits.detach().softmax(1)[labels > 0]
    assert_close(logits.grad[labels > 0], -own)  # cross-entropy pulls with 1 - p instead


def test_a_label_set_of_all_or_none_costs_nothing_and_breaks_nothing() -> None:
    logits = torch.randn(2, 3, requires_grad=True)
    loss = robust_clustering(logits, torch.tensor([[1.0, 1, 1], [0, 0, 0]]))
    assert_close(loss, torch.zeros(2), atol=1e-6, rtol=0)
    loss.sum().backward()
    assert logits.grad is not None and logits.grad.isfinite().all()


def test_sharp_probabilities_stay_numbers() -> None:
    logits = torch.tensor([[200.0, 0.0, 0.0]], requires_grad=True)
    loss = robust_clustering(logits, torch.tensor([[1.0, 0, 0]]))
    assert float(loss.detach()) == pytest.approx(math.log(2) - 200, rel=1e-5)
    loss.sum().backward()
    assert logits.grad is not None and logits.grad.isfinite().all()


def test_captions_of_one_picture_are_not_compared() -> None:
    picture, texts = torch.randn(1, 8), torch.randn(2, 8)
    group = torch.tensor([0, 0])
    loss = contrastive([picture.expand(2, -1), texts], group=group)
    assert_close(loss, torch.zeros(4))  # nothing is left but each one's own partner


def test_a_pair_is_pulled_together_whatever_its_labels_say() -> None:
    inputs = prepare(tiny_pairs(), View("given"), device=torch.device("cpu"))
    matcher = mrl.MRL(dim=8, hidden=8, beta=0.0).recipe(inputs.sizes).matcher()
    batch = collate(inputs.table, np.arange(8))
    embeddings, batch = whole_batch(matcher, batch)
    objective = RobustLearning(beta=0.0)
    plain = objective(Scores(None), embeddings, batch)
    sides = {
        side: Items(items.x, items.mask, items.id, {**items.extra, "label": 1 - items.extra["label"]})
        for side, items in batch.sides.items()
    }
    turned = objective(Scores(None), embeddings, Batch(sides, batch.links, batch.row))
    assert set(plain) == {"contrast"}
    assert_close(plain["contrast"], turned["contrast"])


def test_official_noise_classes_add_a_centre_that_no_prediction_shows() -> None:
    for word, centres in (("clean", 4), ("official", 5)):
        matcher = mrl.MRL(dim=8, hidden=8, noise_classes=word).recipe(SIZES).matcher()
        assert matcher.head.weight.shape == (8, centres)
        items = Items(torch.randn(3, 6), None, torch.arange(3))
        assert matcher.predict(matcher.embed(IMAGE, items), IMAGE).shape == (3, 4)


def test_centres_start_at_right_angles_and_keep_their_length_in_training() -> None:
    head = Centres(8, 4)
    assert_close(head.weight.T @ head.weight, torch.eye(4), atol=1e-6, rtol=0)
    with torch.no_grad():
        head.weight.mul_(3.0)
    z = torch.randn(2, 8)
    before = head(z)
    head.settle()
    assert_close(head(z), before)  # logits are of unit centres, settled or not
    assert_close(head.weight.norm(dim=0), torch.ones(4))


@pytest.mark.parametrize(
    "wrong", [{"loss": "mse"}, {"noise_classes": "all"}, {"inputs": "white"}, {"beta": 1.5}, {"temperature": 0.0}]
)
def test_what_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        mrl.MRL(**wrong).recipe(SIZES)


def test_the_rate_follows_the_authors_log() -> None:
    recipe = mrl.MRL(epochs=30).recipe(SIZES)
    assert recipe.schedule(0, 0, 1) == recipe.schedule(1, 0, 1) == 1.0
    assert 1e-4 * recipe.schedule(24, 0, 1) == pytest.approx(1.284e-5, rel=1e-3)
