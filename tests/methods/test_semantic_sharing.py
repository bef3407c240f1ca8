"""Semantic sharing against the authors' numbers and a slow loop, its two readings, and what its parts promise."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from matchlight.core import IMAGE, TEXT, BadInput, Batch, Embedding, Items, Scores, Sizes
from matchlight.data.caption_labels import labelled_by_words
from matchlight.inputs.batches import collate
from matchlight.inputs.prepare import View, prepare
from matchlight.measuring.protocols import evaluate_scores
from matchlight.methods import semantic_sharing
from matchlight.methods.semantic_sharing import OFFICIAL, Sharing, read_sharing
from matchlight.methods.shared_losses import Labelled, consistency, label_cost
from matchlight.methods.shared_transformer import NOTHING, Guess, Normed
from matchlight.parts.layers import unit
from matchlight.runs.evaluation import evaluate, split_scores
from matchlight.runs.train_run import train
from matchlight.training.network import Network, score_batch, whole_batch
from tests.fixtures import imported, loss_value, recorded_batch
from tests.reference import semantic_sharing as naive
from tests.tiny import WORDS, Arrays, tiny_pairs

FIXTURE = "label_wise_transformer"
SIZES = Sizes(pairs=10, pictures=10, image="regions", image_dim=6, regions=5, vocabulary=12, classes=4)
SMALL: dict[str, Any] = {"dim": 8, "depth": 2, "heads": 2, "hidden": 12, "word_dim": 5, "objects": 7, "dropout": 0.0}
CPU = torch.device("cpu")


def matcher_of(sizes: Sizes = SIZES, **named: Any) -> Sharing:
    torch.manual_seed(0)
    made = semantic_sharing.SemanticSharing(**{**SMALL, **named}).recipe(sizes).matcher()
    with torch.no_grad():
        for p in made.parameters():
            p.add_(0.1 * torch.randn_like(p))
    assert isinstance(made, Sharing)
    return made.eval()


def pictures_of(count: int = 3, regions: int = 5, **extra: Tensor) -> Items:
    torch.manual_seed(1)
    boxes = torch.rand(count, regions, 5)
    return Items(torch.randn(count, regions, 6), None, torch.arange(count), {"box": boxes, **extra})


def captions_of(*lengths: int, width: int | None = None) -> Items:
    """Captions 1 ... 2 of these lengths, padded to `width`."""
    torch.manual_seed(2)
    tokens = torch.zeros(len(lengths), width or max(lengths), dtype=torch.int64)
    for row, many in enumerate(lengths):
        tokens[row, :many] = torch.cat([torch.tensor([1]), torch.randint(4, 12, (many - 2,)), torch.tensor([2])])
    mask = torch.arange(tokens.shape[1])[None] < torch.tensor(lengths)[:, None]
    return Items(tokens, mask, torch.arange(len(lengths)), {"length": torch.tensor(lengths)})


# ---- the authors' numbers --------------------------------------------------------------------------------------------


def test_imported_weights_score_as_the_authors_code_does(parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / FIXTURE, "semantic_sharing", tmp_path / "run")
    assert run.matcher.depends_on_padding and run.info["arguments"]["measure"] == "dot"
    assert np.abs(split_scores(run, pairs, "test") - expected["scores"]).max() < 1e-5
    table = run.inputs(pairs).table
    for side, key, count in ((IMAGE, "img_emb", 12), (TEXT, "txt_emb", 60)):
        with torch.no_grad():
            likely = run.matcher.states(side, table.items(side, np.arange(count)))[1]
        assert_close(unit(likely), torch.from_numpy(expected[key]), atol=1e-5, rtol=0)


def test_the_report_of_an_imported_run_is_the_recorded_one(parity: Path, tmp_path: Path) -> None:
    run, pairs, _ = imported(parity / FIXTURE, "semantic_sharing", tmp_path / "run")
    recorded = json.loads((parity / FIXTURE / "expected_metrics.json").read_text())
    found = evaluate(run, pairs, "test", protocol="recall")
    assert found["rsum"] == pytest.approx(recorded["rsum"], abs=1e-3)
    scores = split_scores(run, pairs, "test")
    labels = evaluate_scores(scores, pairs.subset("test"), protocol="labels", cutoff=10, discount="coco_t2i")
    assert 100 * labels["ndcg"]["i2t"] == pytest.approx(recorded["ndcg_at10_i2t"], abs=1e-3)
    assert 100 * labels["ndcg"]["t2i"] == pytest.approx(recorded["ndcg_at10_t2i"], abs=1e-3)


def test_the_loss_is_the_authors_loss(parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / FIXTURE, "semantic_sharing", tmp_path / "run")
    batch, scores, embeddings = recorded_batch(run, pairs, expected)
    assert batch.sides[TEXT].x.shape[1] == 15
    found = loss_value(Labelled(), batch, scores, embeddings)
    assert found == pytest.approx(float(expected["loss_class"]), rel=1e-5)


def test_what_the_authors_would_save_is_read_back_weight_by_weight() -> None:
    ours = matcher_of(**{**OFFICIAL, "siblings": "negatives"})
    for data, measure, heads in (("flickr_precomp_12", "cosine", 2), ("coco_precomp_1", "dot", 0)):
        foreign = read_sharing({"model": released(ours), "opt": {"data_name": data}})
        assert foreign.arguments["measure"] == measure and foreign.sizes["classes"] == 4
        wanted = {k: v for k, v in ours.state_dict().items() if heads or not k.startswith("guess.")}
        assert foreign.weights.keys() == wanted.keys()
        assert all(torch.equal(value, wanted[key]) for key, value in foreign.weights.items())


def released(ours: Sharing) -> list[dict[str, Tensor]]:
    """The authors' four state dicts with our weights."""
    state, out = ours.state_dict(), [{}, {}, {"module.fc_predict.weight": torch.zeros(4, 8)}, {}]
    gru = {f"{part}_{kind}_l0": f"{part}_{kind}_l0" for part in ("weight", "bias") for kind in ("ih", "hh")}
    for name in ("weight", "bias"):
        out[0] |= {
            f"fc.{name}": state[f"encoders.image.fc.{name}"],
            f"box_fc.{name}": state[f"encoders.image.box.{name}"],
        }
        out[3] |= {f"fc_predict.{name}": state[f"shared.both.labels.{name}"]}
        out[3] |= {
            f"fc_MLM.{name}": state[f"guess.text.head.{name}"],
            f"fc_MOC.{name}": state[f"guess.image.head.{name}"],
        }
    out[1]["embed.weight"] = state["encoders.text.words.embed.weight"]
    out[1]["position_embeddings.weight"] = state["encoders.text.place.weight"]
    for name in gru:
        out[1][f"rnn.{name}"] = state[f"encoders.text.words.ahead.{name}"]
        out[1][f"rnn.{name}_reverse"] = state[f"encoders.text.words.back.{name}"]
    for k in range(2):
        out[2] |= _released_layer(state, k)
    out[2] |= {"module.encoder.norm.a_2": state["shared.both.norm.scale"]}
    out[2] |= {"module.encoder.norm.b_2": state["shared.both.norm.shift"]}
    return out


def _released_layer(state: dict[str, Tensor], k: int) -> dict[str, Tensor]:
    old, new, out = f"module.encoder.layers.{k}.", f"shared.both.layers.{k}.", {}
    for name in ("weight", "bias"):
        for n, part in enumerate(state[f"{new}ask.{name}"].chunk(3)):
            out[f"{old}self_attn.linears.{n}.{name}"] = part
        out[f"{old}self_attn.linears.3.{name}"] = state[f"{new}tell.{name}"]
        out[f"{old}feed_forward.w_1.{name}"] = state[f"{new}first.{name}"]
        out[f"{old}feed_forward.w_2.{name}"] = state[f"{new}second.{name}"]
    for n in range(2):
        out[f"{old}sublayer.{n}.norm.a_2"] = state[f"{new}norms.{n}.scale"]
        out[f"{old}sublayer.{n}.norm.b_2"] = state[f"{new}norms.{n}.shift"]
    return out


# ---- against the slow loop -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("padding", ["masked", "counted"])
@pytest.mark.parametrize("positions", ["clean", "official"])
def test_batches_give_what_one_item_after_another_gives(padding: str, positions: str) -> None:
    matcher = matcher_of(padding=padding, positions=positions, mask_weight=0.0)
    pictures, captions, label = pictures_of(), captions_of(4, 7, 5), (torch.rand(3, 4) > 0.5).float()
    found = torch.cat([matcher.embed(IMAGE, pictures).single, matcher.embed(TEXT, captions).single])
    loss = label_cost(found, found, torch.cat([label, label]), loss="likelihood").mean()
    fast = torch.autograd.grad(loss, list(matcher.parameters()))
    shared = matcher.shared["both"]
    slow = [
        naive.place(naive.picture(matcher, x, b), shared)
        for x, b in zip(pictures.x, pictures.extra["box"], strict=True)
    ]
    for ids, many in zip(captions.x, captions.extra["length"].tolist(), strict=True):
        slow.append(naive.place(naive.caption(matcher, ids[:many], 7 if padding == "counted" else many), shared))
    assert_close(found, torch.stack(slow), atol=1e-5, rtol=1e-5)
    wanted = naive.label_loss(slow, torch.cat([label, label]))
    assert_close(loss, wanted)
    for mine, theirs in zip(fast, torch.autograd.grad(wanted, list(matcher.parameters())), strict=True):
        assert_close(mine, theirs, atol=1e-4, rtol=1e-3)


def test_consistency_is_the_sum_over_all_pairs_of_items() -> None:
    torch.manual_seed(0)
    f, g, label = torch.randn(4, 6), torch.randn(4, 6), torch.tensor([[1.0, 0], [1, 1], [0, 1], [0, 0]])
    assert_close(consistency(f, g, label, label), naive.consistency(f, g, label))


# ---- losses by hand --------------------------------------------------------------------------------------------------


def test_label_costs_on_hand_worked_cases() -> None:
    one = torch.tensor([[1.0, 0.0]])
    assert float(label_cost(one, one, one, loss="likelihood")) == pytest.approx(0.3133, abs=1e-4)  # log(1 + 1/e)
    assert float(label_cost(one, one, one.flip(1), loss="likelihood")) == pytest.approx(0.6931, abs=1e-4)  # log 2
    likely = torch.tensor([[0.8, 0.4]])
    wanted = -(np.log(0.8) + np.log(0.6)) / 2
    assert float(label_cost(one, likely, one, loss="bce")) == pytest.approx(wanted, abs=1e-5)


def test_the_norm_divides_by_the_unbiased_deviation_plus_epsilon() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0]])
    assert_close(Normed(3)(x), torch.tensor([[-1.0, 0.0, 1.0]]), atol=1e-5, rtol=0)  # deviation 1 with n - 1
    small = torch.tensor([[-1e-6, 0.0, 1e-6]])
    assert_close(Normed(3)(small), torch.tensor([[-0.5, 0.0, 0.5]]), atol=1e-4, rtol=0)  # 1e-6 / (1e-6 + 1e-6)
    assert (nn.LayerNorm(3)(small) - Normed(3)(small)).abs().max() > 0.1


def test_a_row_of_zeros_has_a_gradient_of_numbers() -> None:
    x = torch.zeros(2, 4, requires_grad=True)
    (Normed(4)(x) * torch.tensor([[0.0], [1.0]])).square().sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()


@pytest.mark.parametrize(("names", "least"), [(1000, 5.91), (1392, 6.24)])
def test_a_squashed_guess_never_costs_less_than_its_floor(names: int, least: float) -> None:
    guess = Guess(2, names, squash=True)
    with torch.no_grad():
        guess.head.weight.zero_()
        guess.head.bias.fill_(-50.0)
        guess.head.bias[3] = 50.0  # as sure, and as right, as can be
        cost = guess(torch.ones(1, 1, 2), torch.tensor([[3]]))
    assert float(cost[0, 0]) == pytest.approx(np.log(names - 1 + np.e) - 1, abs=1e-4)
    assert float(cost[0, 0]) == pytest.approx(least, abs=5e-3)


def test_guesses_cost_only_where_something_is_asked() -> None:
    torch.manual_seed(0)
    guess, states = Guess(3, 5, squash=False), torch.randn(2, 4, 3)
    target = torch.tensor([[NOTHING, 2, NOTHING, 4], [NOTHING] * 4])
    found = guess(states, target)
    costs = torch.nn.functional.cross_entropy(guess.head(states[0, [1, 3]]), target[0, [1, 3]], reduction="sum")
    wanted = torch.tensor([[costs.item() / math.log(5), 2.0], [0.0, 0.0]])  # 1 = knowing nothing of five names
    assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    assert_close(guess._everywhere(states, target), found)  # the way of a GPU


def test_terms_are_weighted_and_a_picture_counts_once_for_each_caption() -> None:
    objective = Labelled(mask_weight=0.5)
    one, none = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    label = {IMAGE: torch.stack([one, one]), TEXT: torch.stack([one, one, one])}
    guesses = {IMAGE: torch.tensor([[3.0, 1.0], [1.0, 1.0]]), TEXT: torch.zeros(3, 2)}
    places = {IMAGE: torch.stack([one, none]), TEXT: torch.stack([one, one, one])}
    sides = {side: Items(label[side], None, torch.arange(len(label[side])), {"label": label[side]}) for side in label}
    made = {
        side: Embedding(places[side][:, None], extra={"probability": places[side], "guess": guesses[side]})
        for side in sides
    }
    links = {"positive": torch.tensor([[0, 0], [0, 1], [1, 2]])}
    terms = objective(Scores(None), made, Batch(sides, links, torch.arange(3)))
    fits, fails = float(np.log1p(np.exp(-1))), float(np.log(2))
    assert_close(terms["label"], torch.tensor([fits, fits, (fits + fails) / 2]))
    assert float(terms["region"]) == pytest.approx(0.5 * 4 / 2) and float(terms["word"]) == 0.0
    assert float(objective.total(terms)) == pytest.approx((2 * fits + (fits + fails) / 2) / 3 + 1.0)


# ---- padding and sharing ---------------------------------------------------------------------------------------------


@torch.no_grad()
def test_a_caption_depends_on_its_padding_only_in_the_released_reading() -> None:
    alone, padded = captions_of(5), captions_of(5, width=9)
    clean, official = matcher_of(), matcher_of(**OFFICIAL)
    assert_close(clean.embed(TEXT, padded).single, clean.embed(TEXT, alone).single, atol=1e-6, rtol=1e-5)
    assert (official.embed(TEXT, padded).single - official.embed(TEXT, alone).single).abs().max() > 1e-3
    company = captions_of(5, 9)
    assert_close(official.embed(TEXT, company).single[:1], official.embed(TEXT, padded).single, atol=1e-6, rtol=1e-5)


@torch.no_grad()
def test_which_side_is_read_first_changes_nothing() -> None:
    matcher, pictures, captions = matcher_of(), pictures_of(), captions_of(4, 6)
    first = matcher.embed(IMAGE, pictures).single, matcher.embed(TEXT, captions).single
    second = matcher.embed(TEXT, captions).single, matcher.embed(IMAGE, pictures).single
    assert torch.equal(first[0], second[1]) and torch.equal(first[1], second[0])


def test_independent_sides_share_no_weight_and_guess_nothing() -> None:
    matcher = matcher_of(variant="independent").train()
    assert not len(matcher.guess) and set(matcher.shared) == {IMAGE, TEXT}
    matcher.embed(TEXT, captions_of(4, 6)).vectors.sum().backward()
    moved = {name for name, p in matcher.named_parameters() if p.grad is not None}
    assert moved and not any("image" in name for name in moved)


def test_variants_with_a_consistency_loss_weigh_it_and_sharing_has_none() -> None:
    usual_and_given = {"consistent": (0.1, 0.3), "independent": (0.0, 0.3), "sharing": (0.0, 0.0)}
    for variant, wanted in usual_and_given.items():
        given = [{}, {"consistency": 0.3}]
        made = [semantic_sharing.SemanticSharing(**SMALL, variant=variant, **more).recipe(SIZES) for more in given]
        assert tuple(one.objective().consistency for one in made) == wanted


def test_plain_guesses_cost_as_many_times_more_as_the_logarithm_of_the_names() -> None:
    relative, plain = (matcher_of(mask_cost=cost).guess for cost in ("relative", "plain"))
    for side, names in ((TEXT, SIZES.vocabulary), (IMAGE, SMALL["objects"])):
        assert plain[side].scale == 1.0 and relative[side].scale == pytest.approx(1 / math.log(names))


# ---- hiding ----------------------------------------------------------------------------------------------------------


def test_hidden_words_become_the_mask_word_and_are_asked_for() -> None:
    captions, seen = captions_of(*[9] * 400), []
    for named, word in (({}, 12), (OFFICIAL, 3)):
        encoder = matcher_of(**named).encoders[TEXT].train()
        encoder.words.register_forward_pre_hook(lambda module, args: seen.append(args[0].x))
        target = encoder(captions).extra["target"]
        hidden = target != NOTHING
        assert torch.equal(seen[-1], torch.where(hidden, word, captions.x))
        assert torch.equal(target[hidden], captions.x[hidden])
        assert not hidden[:, 0].any() and not hidden[:, -1].any()  # <start> and <end> stay
        assert float(hidden[:, 1:-1].float().mean()) == pytest.approx(0.15, abs=0.03)
        assert not matcher_of(**named).encoders[TEXT].eval()(captions).extra


def test_hidden_regions_disappear_but_stay_in_the_released_reading() -> None:
    pictures = pictures_of(50, object=torch.arange(5).expand(50, -1))
    for named, visible in (({}, False), (OFFICIAL, True)):
        encoder = matcher_of(**named).encoders[IMAGE]
        plain, found = encoder.eval()(pictures), encoder.train()(pictures)
        target = found.extra["target"]
        hidden = target != NOTHING
        assert hidden.any() and torch.equal(target[hidden], torch.arange(5).expand(50, -1)[hidden])
        assert_close(found.vectors[~hidden], plain.vectors[~hidden])
        assert torch.equal(found.vectors[hidden], plain.vectors[hidden]) is visible


def test_regions_that_look_alike_have_one_class_whatever_their_company() -> None:
    encoder = matcher_of().encoders[IMAGE]
    x = torch.randn(2, 5, 6)
    x[1] = x[0] + 3.0  # the same picture in another light
    kinds = encoder.looks_like(x, None)
    assert torch.equal(kinds[0], kinds[1])
    padded = torch.cat([x, torch.zeros(2, 2, 6)], 1)
    mask = torch.arange(7)[None].expand(2, -1) < 5
    assert torch.equal(encoder.looks_like(padded, mask)[:, :5], kinds)
    assert torch.equal(matcher_of(dim=16).encoders[IMAGE].looks_like(x, None), kinds)  # the same in every run


def test_classes_nobody_knows_are_not_asked_for() -> None:
    kind = torch.tensor([[-1, 99, 2, -1, 99]]).expand(50, -1)  # seven classes: 99 is none
    target = matcher_of().encoders[IMAGE].train()(pictures_of(50, object=kind)).extra["target"]
    assert set(target.unique().tolist()) == {NOTHING, 2}


# ---- what it can be trained on ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "epochs", "least"), [("sharing", 20, 0.8), ("independent", 12, 0.8), ("consistent", 4, 0.4)]
)
def test_labels_are_learnt_and_reported(variant: str, epochs: int, least: float, tmp_path: Path) -> None:
    pairs = labelled_by_words(replace(tiny_pairs(pictures=60, held=10), labels=None), words=WORDS)
    settings = {
        **SMALL,
        "dim": 32,
        "hidden": 64,
        "word_dim": 16,
        "depth": 1,
        "batch": 8,
        "rate": 3e-3,
        "epochs": epochs,
    }
    named = {**settings, "variant": variant, "select": "last", "preset": "paper"}
    run = train("semantic_sharing", pairs, tmp_path / "run", device="cpu", **named)
    report = evaluate(run, pairs, "train")
    assert report["map"]["mean"] > least and report["ndcg"]["mean"] > least
    assert set(report["micro_f1"]) == set(report["micro_f1_tuned"]) == {IMAGE, TEXT}
    assert min(report["micro_f1_tuned"].values()) > (0.7 if variant != "consistent" else 0.2)


def test_vectors_in_place_of_regions_and_of_words_are_read_as_one_token(tmp_path: Path) -> None:
    pairs = tiny_pairs()
    assert pairs.features is not None
    flat = replace(pairs, features=Arrays(pairs.features.gather(np.arange(24)).mean(1)))
    flat = replace(flat, text_features=np.random.default_rng(0).normal(size=(48, 9)).astype(np.float32))
    run = train("semantic_sharing", flat, tmp_path / "run", device="cpu", preset="paper", **SMALL, epochs=1, batch=8)
    assert not len(run.matcher.guess) and 0 <= evaluate(run, flat, "test")["map"]["mean"] <= 1


def test_one_step_of_the_released_reading_moves_every_weight() -> None:
    inputs = prepare(tiny_pairs(), View("given"), device=CPU)
    network = Network(
        semantic_sharing.SemanticSharing(**{**SMALL, **OFFICIAL}).recipe(inputs.sizes), seed=0, device=CPU
    )
    before = {name: p.detach().clone() for name, p in network.matcher.named_parameters()}
    network.matcher.train()
    batch = collate(inputs.table, np.arange(12), repeat=True)
    embeddings, batch = whole_batch(network.matcher, batch)
    scores = score_batch(network.matcher, embeddings, batch, matrix=True)
    network.step(network.objective.total(network.objective(scores, embeddings, batch)))
    still = [name for name, p in network.matcher.named_parameters() if torch.equal(p, before[name])]
    assert not still


@pytest.mark.parametrize(
    "wrong",
    [
        {"variant": "shared"},
        {"loss": "ce"},
        {"padding": "none"},
        {"positions": "each"},
        {"masking": "bert"},
        {"measure": "l2"},
        {"mask_share": 1.0},
        {"dim": 10, "heads": 4},
    ],
)
def test_arguments_that_are_no_choice_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(wrong))):
        semantic_sharing.SemanticSharing(**wrong).recipe(SIZES)
