"""PCME against the authors' numbers and against plain loops; what sampling must and must not change."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from matchlight.core import IMAGE, TEXT, BadInput, Batch, Embedding, Items, Scores, Sizes
from matchlight.inputs.batches import collate
from matchlight.inputs.prepare import Inputs, View, prepare
from matchlight.measuring.protocols import evaluate_scores
from matchlight.methods import gaussians, pcme
from matchlight.runs.embeddings import export
from matchlight.runs.evaluation import split_scores
from matchlight.runs.train_run import train
from matchlight.scoring.encode import encode, encode_both
from matchlight.training.network import Network, score_batch, whole_batch
from matchlight.training.registry import methods
from tests.fixtures import imported, loss_value, recorded_batch
from tests.reference import pcme as plain
from tests.tiny import tiny_pairs, tiny_settings

SIZES = Sizes(pairs=10, pictures=10, image="regions", image_dim=6, regions=4, vocabulary=12)
A, B = 7.0, 9.0


def draws(*shape: int, seed: int = 0) -> Tensor:
    return 0.4 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def measured(measure: str, samples: int = 3) -> gaussians.Draws:
    return gaussians.Draws(measure=measure, samples=samples, scale=A, shift=B)


def ready(**more: object) -> tuple[Inputs, Network]:
    inputs = prepare(tiny_pairs(), View("given"), device=torch.device("cpu"))
    settings = {**methods()["pcme"].defaults, **tiny_settings(methods()["pcme"].defaults), **more}
    return inputs, Network(methods()["pcme"].build(inputs.sizes, **settings), seed=0, device=torch.device("cpu"))


# ---- the authors' numbers --------------------------------------------------------------------------------------------


def recorded(expected: dict[str, np.ndarray]) -> dict[str, Embedding]:
    """The draws that the authors' code made, and the spread it made them with."""
    arrays = {name: torch.from_numpy(value) for name, value in expected.items() if value.ndim > 1}
    return {
        side: Embedding(arrays[f"{key}_samples"], extra={"log_sigma": arrays[f"{key}_logsigma"]})
        for side, key in ((IMAGE, "img"), (TEXT, "txt"))
    }


def test_means_and_spreads_are_those_of_the_authors_code(parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / "pcme", "pcme", tmp_path / "run")
    table = run.inputs(pairs).table
    for side, key, count in ((IMAGE, "img", 12), (TEXT, "txt", 60)):
        found = encode(run.matcher, table, side, np.arange(count))
        assert_close(found.extra["mean"], torch.from_numpy(expected[f"{key}_emb"]), atol=1e-6, rtol=0)
        assert_close(found.extra["log_sigma"], torch.from_numpy(expected[f"{key}_logsigma"]), atol=1e-6, rtol=0)


@torch.no_grad()
def test_the_recorded_draws_score_as_the_authors_code_does(parity: Path, tmp_path: Path) -> None:
    import json

    run, pairs, expected = imported(parity / "pcme", "pcme", tmp_path / "run")
    sides, metrics = recorded(expected), json.loads((parity / "pcme" / "expected_metrics.json").read_text())
    similarity = run.matcher.similarity
    assert isinstance(similarity, gaussians.Draws)
    for measure, key, want in (
        ("matmul", "scores", metrics),
        ("probability", "scores_matching_prob", metrics["matching_prob"]),
    ):
        similarity.measure = measure
        found = similarity(sides[IMAGE], sides[TEXT]).numpy()
        assert np.abs(found - expected[key]).max() < 2e-5
        report = evaluate_scores(found, pairs.subset("test"), protocol="recall")
        assert report["i2t"] == pytest.approx(want["i2t"]) and report["t2i"] == pytest.approx(want["t2i"])


def test_draws_of_our_own_scatter_around_what_the_recorded_ones_do(parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / "pcme", "pcme", tmp_path / "run")
    ours, exact = split_scores(run, pairs, "test"), 49 * expected["img_emb"] @ expected["txt_emb"].T
    # both are draws of one random number: equally far from its expectation 49 <mean, mean>
    theirs_off, ours_off = expected["scores"] - exact, ours - exact
    assert ours_off.std() == pytest.approx(theirs_off.std(), rel=0.25)
    assert abs(ours_off.mean()) < 3 * theirs_off.std() / math.sqrt(12)


@torch.no_grad()
def test_the_loss_and_its_parts_are_the_authors(parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / "pcme", "pcme", tmp_path / "run")
    batch, scores, embeddings = recorded_batch(run, pairs, expected)
    places = {IMAGE: expected["batch_images"], TEXT: expected["batch_captions"]}
    for side, drawn in recorded(expected).items():
        some = drawn.take(torch.from_numpy(places[side]))
        embeddings[side] = replace(some, extra={**embeddings[side].extra, **some.extra})
    objective = pcme.SoftContrastive(beta=1e-5, siblings="negatives")
    assert loss_value(objective, batch, scores, embeddings) == pytest.approx(float(expected["loss"]), rel=1e-5)
    terms = {name: float(term.sum()) for name, term in objective(scores, embeddings, batch).items()}
    assert terms["match"] == pytest.approx(2 * float(expected["loss_part_i2t_pos_loss"]), rel=1e-6)
    assert terms["mismatch"] == pytest.approx(2 * float(expected["loss_part_i2t_neg_loss"]), abs=5e-5)
    assert terms["kl"] == pytest.approx(1e-5 * float(expected["loss_part_vib_loss"]), rel=1e-5)


def test_an_import_with_points_on_one_side_is_refused() -> None:
    config = {"model": {"txt_probemb": False}, "criterion": {}}
    with pytest.raises(BadInput, match="points"):
        pcme.read_pcme({"model": {}, "criterion": {}, "config": config})


# ---- draws -----------------------------------------------------------------------------------------------------------


def test_draws_are_standard_normal() -> None:
    x = gaussians.normal(torch.arange(500), 7, 40, seed=0).double()
    assert x.isfinite().all()
    assert float(x.mean()) == pytest.approx(0, abs=0.01) and float(x.var()) == pytest.approx(1, abs=0.01)
    assert float((x**4).mean()) == pytest.approx(3, abs=0.1)
    flat = x.view(500, -1)
    assert np.abs(np.corrcoef(flat[:, :20].T) - np.eye(20)).max() < 0.2


def test_draws_follow_from_the_id_and_the_side_alone() -> None:
    together = gaussians.normal(torch.tensor([5, 9, 2]), 3, 4, seed=0)
    assert_close(gaussians.normal(torch.tensor([9]), 3, 4, seed=0)[0], together[1], atol=0, rtol=0)
    assert not torch.allclose(gaussians.normal(torch.tensor([9]), 3, 4, seed=1)[0], together[1])


def test_training_draws_anew_and_evaluation_does_not() -> None:
    inputs, network = ready()
    items = inputs.table.items(TEXT, np.arange(5))
    matcher = network.matcher.train()
    first, second = matcher.embed(TEXT, items), matcher.embed(TEXT, items)
    assert not torch.equal(first.vectors, second.vectors)  # type: ignore[union-attr]
    matcher.eval()
    first, second = matcher.embed(TEXT, items), matcher.embed(TEXT, items)
    assert torch.equal(first.vectors, second.vectors)  # type: ignore[union-attr]


def test_evaluation_keeps_only_what_the_measure_reads() -> None:
    for measure, kept in (("dot", 1), ("matmul", 1), ("probability", 7)):
        inputs, network = ready(measure=measure)
        images, texts = encode_both(network.matcher.eval(), inputs.table, np.arange(4), np.arange(4))
        assert images.vectors.shape == texts.vectors.shape == (4, kept, 16)  # type: ignore[union-attr]
        with torch.no_grad():  # the loss of the same items still sees every draw
            whole = network.matcher.embed(TEXT, inputs.table.items(TEXT, np.arange(4)))
        assert_close(whole.vectors.mean(1), texts.vectors.mean(1))  # type: ignore[union-attr]


def test_a_wider_gaussian_is_less_certain() -> None:
    narrow = Embedding(torch.zeros(2, 1, 4), extra={"log_sigma": torch.full((2, 4), -2.0)})
    assert_close(gaussians.uncertainty(narrow), torch.full((2,), math.exp(-2)))


def test_uncertainty_is_written_with_the_vectors(tmp_path: Path) -> None:
    settings = tiny_settings(methods()["pcme"].defaults)
    run = train("pcme", tiny_pairs(), tmp_path / "run", device="cpu", preset="small", **settings)
    export(run, tiny_pairs(), tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as file:
        assert file["image_log_sigma"].shape == (24, 16) and file["text_log_sigma"].shape == (48, 16)


# ---- the score and the loss ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("measure", ["dot", "matmul", "probability"])
def test_scores_and_their_gradients_are_those_of_the_plain_loop(measure: str) -> None:
    images, texts = draws(5, 3, 8).requires_grad_(), draws(7, 3, 8, seed=1).requires_grad_()
    fast = measured(measure)(Embedding(images), Embedding(texts))
    slow = plain.probabilities(images, texts, A, B) if measure == "probability" else plain.dots(images, texts)
    slow = slow / 9 if measure == "dot" else slow
    assert_close(fast, slow, atol=1e-5, rtol=1e-5)
    weight = torch.linspace(0.5, 1.5, fast.numel()).view_as(fast)
    ours = torch.autograd.grad((fast * weight).sum(), [images, texts])
    theirs = torch.autograd.grad((slow * weight).sum(), [images, texts])
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_matmul_is_the_product_of_summed_draws() -> None:
    images, texts = draws(4, 3, 8), draws(5, 3, 8, seed=1)
    found = measured("matmul")(Embedding(images), Embedding(texts))
    assert_close(found, images.sum(1) @ texts.sum(1).T)


@pytest.mark.parametrize("measure", ["dot", "matmul", "probability"])
def test_candidates_come_from_unit_vectors(measure: str) -> None:
    found = measured(measure).coarse(Embedding(draws(4, 3, 8)), IMAGE)
    assert found is not None and found.shape == (4, 1, 8)
    assert_close(found.norm(dim=-1), torch.ones(4, 1))


@settings(max_examples=30, deadline=None)
@given(st.floats(-40, 40), st.integers(1, 4))
def test_equal_distances_cost_what_one_distance_does(logit: float, samples: int) -> None:
    square = torch.full((1, samples, 1, samples), 0.25, dtype=torch.float64)
    d = math.sqrt(0.25 + 1e-6)
    odds = gaussians.log_odds(square, torch.tensor(2.0), torch.tensor(logit + 2 * d, dtype=torch.float64), (1, 3))
    for sign in (1, -1):  # log(1 + e^(-2 m l))
        assert_close(
            torch.nn.functional.softplus(-sign * odds).squeeze(),
            torch.nn.functional.softplus(torch.tensor(-2.0 * sign * logit, dtype=torch.float64)),
        )


def test_a_logit_of_zero_costs_log_two() -> None:
    odds = gaussians.log_odds(torch.full((1, 7, 1, 7), 1.0 - 1e-6), torch.tensor(3.0), torch.tensor(3.0), (1, 3))
    assert float(torch.nn.functional.softplus(-odds)) == pytest.approx(math.log(2), abs=1e-5)


def unpaired_batch(count: int) -> Batch:
    """Pair n is the n-th of each side; every picture has one caption."""
    inputs = prepare(tiny_pairs(captions=1), View("given"), device=torch.device("cpu"))
    return collate(inputs.table, np.arange(count), repeat=True)


def sides_of(images: Tensor, texts: Tensor) -> dict[str, Embedding]:
    spread = {name: draws(len(x), x.shape[-1], seed=9) for name, x in ((IMAGE, images), (TEXT, texts))}
    match = torch.tensor([[A, B]]).expand(len(texts), 2)
    return {
        IMAGE: Embedding(images, extra={"log_sigma": spread[IMAGE]}),
        TEXT: Embedding(texts, extra={"log_sigma": spread[TEXT], "match": match}),
    }


@pytest.mark.parametrize("siblings", ["masked", "negatives"])
def test_the_loss_is_the_plain_one(siblings: str) -> None:
    images, texts = draws(5, 3, 8), draws(5, 3, 8, seed=1)
    sides = sides_of(images, texts)
    objective = pcme.SoftContrastive(beta=1e-3, uniform=10.0, siblings=siblings)
    found = objective.total(objective(Scores(None), sides, unpaired_batch(5)))
    expected = plain.loss(images.double(), texts.double(), A, B)
    expected = expected + 1e-3 * sum(plain.kl(s.vectors, s.extra["log_sigma"]).double() for s in sides.values())
    expected = expected + 10.0 * plain.uniformity(torch.cat([images.flatten(0, 1), texts.flatten(0, 1)]).double())
    assert float(found) == pytest.approx(float(expected), rel=1e-5)


def test_draws_far_apart_have_a_finite_uniformity() -> None:
    far = (100 * draws(6, 8)).requires_grad_()
    value = pcme.uniformity(far)
    value.backward()
    assert value.isfinite() and far.grad is not None and far.grad.isfinite().all()


def test_captions_of_one_picture_are_never_mismatches_unless_asked() -> None:
    inputs, network = ready()
    network.matcher.eval()
    values = {}
    for siblings in ("masked", "negatives"):
        batch = collate(inputs.table, np.arange(4), repeat=siblings == "negatives")  # two pictures, two captions each
        embeddings, batch = whole_batch(network.matcher, batch)
        scores = score_batch(network.matcher, embeddings, batch, matrix=True)
        objective = pcme.SoftContrastive(beta=0.0, siblings=siblings)
        ok = objective._others(torch.zeros(scores.matrix.shape), batch)  # type: ignore[union-attr]
        values[siblings] = int(ok.sum())
    assert values == {"masked": 4, "negatives": 12}  # 2 x 2 pictures x captions of the other; 4 x 4 less the diagonal


def test_scale_and_shift_learn_and_are_kept_with_the_model() -> None:
    inputs, network = ready()
    before = network.matcher.similarity.scale.item()  # type: ignore[union-attr,operator]
    batch = collate(inputs.table, np.arange(8))
    embeddings, batch = whole_batch(network.matcher.train(), batch)
    network.step(network.objective.total(network.objective(Scores(None), embeddings, batch)))
    assert network.matcher.similarity.scale.item() != before  # type: ignore[union-attr,operator]
    assert {"similarity.scale", "similarity.shift"} <= set(network.matcher.state_dict())


# ---- training --------------------------------------------------------------------------------------------------------


def caption(*lengths: int) -> Items:
    count = torch.tensor(lengths)
    place = torch.arange(max(lengths))[None]
    mask = place < count[:, None]
    tokens = (place + 10) * mask
    tokens[:, 0] = pcme.START
    tokens[torch.arange(len(lengths)), count - 1] = pcme.END
    return Items(tokens, mask, torch.arange(len(lengths)), {"length": count})


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_a_caption_loses_a_tenth_of_its_words_but_never_its_ends(seed: int) -> None:
    items = caption(25, 12, 2, 10)
    found = pcme.without_words(items, seed=seed, p=0.1)
    assert found.extra["length"].tolist() == [23, 11, 2, 9]
    assert found.mask is not None and found.mask.sum(1).tolist() == [23, 11, 2, 9]
    for n, length in enumerate((23, 11, 2, 9)):
        words = found.x[n].tolist()
        assert words[0] == pcme.START and words[length - 1] == pcme.END and not any(words[length:])
        inner = words[1 : length - 1]
        assert inner == sorted(inner) and set(inner) <= set(items.x[n].tolist())  # in order, nothing new


def test_words_become_unknown_only_where_asked() -> None:
    items = caption(30, 30)
    found = pcme.forgetful(TEXT, items, 3, p=0.3, pixels=False)
    assert (found.x == pcme.UNKNOWN).any()
    assert pcme.forgetful(TEXT, items, 3, p=0.0, pixels=False) is items
    pictures = Items(torch.zeros(2, 4, 6), None, torch.arange(2))
    assert pcme.forgetful(IMAGE, pictures, 3, p=0.3, pixels=False) is pictures


def test_the_rate_falls_twice_and_the_backbone_waits_for_the_second_time() -> None:
    coco = [pcme.two_stages(e, 0, 1, epochs=60, tune=0.5, tune_rate=0.1) for e in range(60)]
    assert coco[0] == {"heads": 1.0, "backbone": 0.0}
    assert coco[15]["heads"] == pytest.approx(0.5)
    assert coco[30]["heads"] == coco[30]["backbone"] == pytest.approx(0.1)
    assert coco[45]["backbone"] == pytest.approx(0.05)
    cub = [pcme.two_stages(e, 0, 1, epochs=60, tune=50 / 60, tune_rate=1.0) for e in range(60)]
    assert cub[9]["heads"] == pytest.approx((1 + math.cos(math.pi * 9 / 50)) / 2)  # the wave of the longer stage
    assert cub[10] == {"heads": 1.0, "backbone": 1.0}
    assert pcme.two_stages(0, 0, 1, epochs=8, tune=0.0, tune_rate=0.1)["backbone"] == 1.0


@pytest.mark.parametrize("wrong", [{"measure": "cosine"}, {"tune": 1.5}])
def test_a_value_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        pcme.PCME(**wrong).recipe(SIZES)  # type: ignore[arg-type]
