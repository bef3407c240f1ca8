"""DSCMR, SDML, deep-SM, FGCrossNet and DCCAE against the authors' numbers, against plain loops, and by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from matchlight.core import IMAGE, TEXT, BadInput, Batch, Embedding, Items, Scores, Sizes
from matchlight.methods import dccae, deep_sm, dscmr, fgcrossnet, sdml
from matchlight.parts.labelwise import length
from matchlight.parts.layers import unit
from tests.methods.test_mrl import hot, paired_batch
from tests.reference import labelwise as naive

SIZES = Sizes(pairs=10, pictures=10, image="vector", image_dim=6, text_dim=5, classes=4)


def embedding(vectors: torch.Tensor, logits: torch.Tensor, **extra: torch.Tensor) -> Embedding:
    return Embedding(vectors[:, None], extra={"logits": logits, **extra})


# ---- DSCMR ----

WEIGHTS = {"alpha0_beta0": (0, 0), "default_alpha1e3_beta1e1": (1e-3, 1e-1), "alpha1_beta0": (1, 0)}


@pytest.mark.parametrize(("key", "weights"), (WEIGHTS | {"alpha0_beta1": (0, 1)}).items())
def test_dscmrs_loss_is_the_authors_loss(key: str, weights: tuple[float, float], parity: Path) -> None:
    known = {name: torch.from_numpy(np.asarray(value)) for name, value in np.load(parity / "losses/dscmr.npz").items()}
    labels = known["labels_onehot"]
    sides = {
        side: embedding(known[f"view{k}_feature"], known[f"view{k}_predict"]) for side, k in ((IMAGE, 1), (TEXT, 2))
    }
    objective = dscmr.Supervised(alpha=weights[0], beta=weights[1])
    mine = objective.total(objective(Scores(None), sides, paired_batch(labels, labels)))
    assert float(mine) == pytest.approx(float(known[f"loss_{key}"]), rel=1e-5)


def test_dscmrs_loss_agrees_with_plain_loops() -> None:
    rng = np.random.default_rng(1)
    u, v, p, q = rng.normal(size=(2, 6, 5)).tolist() + rng.normal(size=(2, 6, 3)).tolist()
    labels = np.eye(3)[rng.integers(0, 3, 6)]
    objective = dscmr.Supervised(alpha=0.5, beta=0.25)
    tensors = [torch.tensor(x) for x in (u, v, p, q)]
    sides = {IMAGE: embedding(tensors[0], tensors[2]), TEXT: embedding(tensors[1], tensors[3])}
    hots = torch.from_numpy(labels).float()
    mine = objective.total(objective(Scores(None), sides, paired_batch(hots, hots)))
    arrays = [np.array(x) for x in (u, v, p, q)]
    assert float(mine) == pytest.approx(naive.dscmr((arrays[0], arrays[1]), (arrays[2], arrays[3]), labels, 0.5, 0.25))


def test_the_same_vector_in_the_same_class_costs_what_a_pencil_says() -> None:
    u = torch.ones(3, 4)
    cost = dscmr.likelihood(u, u, torch.ones(3, 3))
    assert_close(cost, torch.full((3, 3), math.log(1 + math.exp(0.5)) - 0.5))  # 0.4741


def test_a_pair_at_one_place_has_a_gradient_of_nothing_not_nan() -> None:
    u = torch.ones(2, 3, requires_grad=True)
    length(u - u.detach()).sum().backward()
    assert u.grad is not None and u.grad.abs().sum() == 0


# ---- SDML ----


@pytest.mark.parametrize("alpha", ["0", "0.1", "0.5", "0.9"])
def test_sdmls_loss_is_the_authors_loss(alpha: str, parity: Path) -> None:
    known = {name: torch.from_numpy(np.asarray(value)) for name, value in np.load(parity / "losses/sdml.npz").items()}
    rebuilt = length(known["ae_pred"] - known["train_x"])
    side = embedding(known["out_net"], known["out_net"] @ known["W"], rebuilt=rebuilt)
    objective = sdml.Anchored(alpha=float(alpha))
    terms = objective(Scores(None), {IMAGE: side}, paired_batch(known["train_y"], known["train_y"]))
    assert float(terms["rebuilt_image"].mean()) == pytest.approx(float(known[f"ae_loss_alpha{alpha}"]), rel=1e-5)
    assert float(terms["label_image"].mean()) == pytest.approx(float(known[f"d_loss_alpha{alpha}"]), rel=1e-5)
    assert float(objective.total(terms)) == pytest.approx(float(known[f"loss_alpha{alpha}"]), rel=1e-5)


def test_an_item_on_its_classs_direction_has_no_label_error() -> None:
    head = sdml.Fixed(8, 4)
    assert_close(head.directions.T @ head.directions, torch.eye(4), atol=1e-6, rtol=0)
    labels = torch.eye(4)
    assert_close(sdml.label_error(head(head.directions.T), labels), torch.zeros(4), atol=1e-5, rtol=0)


def test_items_without_a_label_do_not_count_among_the_labelled() -> None:
    guesses, labels = torch.zeros(4, 2), torch.tensor([[1.0, 0], [0, 1], [0, 0], [0, 0]])
    assert float(sdml.label_error(guesses, labels).mean()) == pytest.approx(1.0)  # both labelled ones are 1 away


def test_the_sides_of_sdml_share_no_gradient_and_the_space_does_not_move() -> None:
    recipe = sdml.SDML(dim=8, hidden=8).recipe(SIZES)
    matcher = recipe.matcher()
    assert not [name for name, _ in matcher.named_parameters() if not name.startswith("encoders.")]
    image = matcher.embed(IMAGE, Items(torch.randn(3, 6), None, torch.arange(3)))
    image.extra["logits"].sum().backward()
    assert all(p.grad is None for p in matcher.encoders[TEXT].parameters())
    rates = {group["name"]: group["lr"] for group in recipe.groups(matcher, recipe.objective())}
    assert rates == {IMAGE: 1e-4, TEXT: 2e-4}


def test_sdml_rebuilds_only_what_a_loss_may_ask_for() -> None:
    matcher = sdml.SDML(dim=8, hidden=8).recipe(SIZES).matcher().eval()
    items = Items(torch.randn(3, 6), None, torch.arange(3))
    with torch.inference_mode():
        assert "rebuilt" not in matcher.embed(IMAGE, items).extra
    made = matcher.embed(IMAGE, items)
    encoder = matcher.encoders[IMAGE]
    assert_close(made.extra["rebuilt"], (unit(encoder.decode(made.single)) - items.x).norm(dim=1))


# ---- deep-SM ----


def test_deep_sm_compares_vectors_or_probabilities() -> None:
    torch.manual_seed(0)
    items = Items(torch.randn(3, 6), None, torch.arange(3))
    vectors = deep_sm.DeepSM(dim=8, hidden=8).recipe(SIZES).matcher()
    shares = deep_sm.DeepSM(dim=8, hidden=8, space="probability").recipe(SIZES).matcher()
    shares.load_state_dict(vectors.state_dict())
    assert vectors.embed(IMAGE, items).vectors.shape == (3, 1, 8)
    found = shares.embed(IMAGE, items)
    assert_close(found.single.sum(1), torch.ones(3))
    assert_close(shares.predict(found, IMAGE), found.single)
    with pytest.raises(BadInput):
        deep_sm.DeepSM(space="logits").recipe(SIZES)


# ---- FGCrossNet ----


@pytest.mark.parametrize("seed", range(4))
def test_quadruplets_agree_with_four_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, labels = 0.7 * rng.normal(size=(9, 4)), rng.integers(0, 4, 9).tolist()
    known = hot(labels, 4)
    mine = fgcrossnet.quadruplets(torch.from_numpy(x), known @ known.T > 0)
    assert float(mine) == pytest.approx(naive.quadruplets(x, labels), rel=1e-9)


def test_quadruplets_have_the_gradient_of_their_hinges() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    known = hot([0, 0, 1, 1, 2, 2], 3)
    assert torch.autograd.gradcheck(lambda z: fgcrossnet.quadruplets(z, known @ known.T > 0), (x,))


def test_two_classes_make_no_quadruplet() -> None:
    known = hot([0, 0, 1, 1], 2)
    x = torch.randn(4, 3, requires_grad=True)
    loss = fgcrossnet.quadruplets(x, known @ known.T > 0)
    loss.backward()
    assert float(loss.detach()) == 0 and x.grad is not None and x.grad.isfinite().all()


def test_an_item_is_measured_from_the_centre_of_its_class() -> None:
    centres = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    apart = fgcrossnet.centre_distance(torch.zeros(2, 2), centres, torch.eye(2))
    assert_close(apart, torch.tensor([0.0, 25.0]), atol=1e-6, rtol=0)


def test_centres_step_as_if_their_term_had_full_weight() -> None:
    recipe = fgcrossnet.FGCrossNet(dim=8, hidden=8, rate=1e-3, centre=1e-3).recipe(SIZES)
    groups = {group["name"]: group for group in recipe.groups(recipe.matcher(), recipe.objective())}
    assert groups["centres"]["lr"] == pytest.approx(1.0) and groups["net"]["lr"] == 1e-3


def test_ranking_waits_for_the_second_stage_and_the_rate_starts_anew() -> None:
    recipe = fgcrossnet.FGCrossNet(dim=8, hidden=8, first=6, epochs=12).recipe(SIZES)
    objective = recipe.objective()

    class Network:
        def __init__(self) -> None:
            self.objective = objective

    class Shell:
        networks, rows = {"A": Network()}, np.arange(4)

    first, second = recipe.strategy.phases(Shell(), 5)[0], recipe.strategy.phases(Shell(), 6)[0]
    assert first.objective.rank == 0 and first.objective.centres is objective.centres
    assert second.objective is None and objective.rank == 0.1
    assert [recipe.schedule(e, 0, 1) for e in (0, 3, 5, 6, 9)] == [1, 0.5, 0.5, 1, 0.5]


def test_a_batch_whose_triples_would_not_fit_is_refused() -> None:
    with pytest.raises(BadInput, match="batch"):
        fgcrossnet.FGCrossNet(batch=1000).recipe(SIZES)


# ---- DCCAE ----


def test_correlation_agrees_with_symmetric_roots() -> None:
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(40, 5)), rng.normal(size=(40, 5))
    y[:, :2] += x[:, :2]
    mine = dccae.correlation(torch.from_numpy(x), torch.from_numpy(y), ridge=1e-3, smooth=1e-3)
    assert float(mine) == pytest.approx(naive.correlation(x, y, 1e-3, 1e-3), rel=1e-9)


def test_a_view_correlates_with_itself_once_a_dimension() -> None:
    x = torch.randn(50, 4, dtype=torch.float64)
    turned = x @ torch.randn(4, 4, dtype=torch.float64) + 3.0
    assert float(dccae.correlation(x, turned, ridge=1e-12, smooth=0.0)) == pytest.approx(4.0, rel=1e-6)


def test_correlation_has_a_gradient_even_where_values_coincide() -> None:
    x = torch.randn(30, 3, dtype=torch.float64, requires_grad=True)
    dccae.correlation(x, x.detach().clone(), ridge=1e-3).backward()
    assert x.grad is not None and x.grad.isfinite().all()


def test_linear_cca_lines_up_what_is_the_same_up_to_a_linear_map() -> None:
    torch.manual_seed(0)
    x = torch.randn(200, 4)
    similarity = dccae.Canonical(4)
    image, text = Embedding(x[:, None]), Embedding((x @ torch.randn(4, 4) + 2)[:, None])
    before = similarity(image, text)
    similarity.fit(image.single, text.single)
    after = similarity(image, text)
    assert (after.argmax(1) == torch.arange(200)).all() and not (before.argmax(1) == torch.arange(200)).all()
    assert_close(similarity.pairs(image, text), after.diagonal(), atol=1e-5, rtol=1e-4)


def test_dccae_reads_no_labels() -> None:
    torch.manual_seed(0)
    matcher = dccae.DCCAE(dim=3, hidden=8).recipe(SIZES).matcher()
    sides = {
        IMAGE: matcher.embed(IMAGE, Items(torch.randn(12, 6), None, torch.arange(12))),
        TEXT: matcher.embed(TEXT, Items(torch.randn(12, 5), None, torch.arange(12))),
    }
    place = torch.arange(12)
    empty = {side: Items(place[:, None], None, place, {}) for side in sides}
    terms = dccae.Correlation()(Scores(None), sides, Batch(empty, {"positive": torch.stack([place, place], 1)}, place))
    assert set(terms) == {"correlation", "rebuilt_image", "rebuilt_text"}
