"""AOQ: the authors' losses, a loop over quintuplets, what may be drawn, and two rounds that stop and go on exactly."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.testing import assert_close

from matchlight.core import IMAGE, TEXT, BadInput, Batch, Embedding, Items, Matcher, Scores, Similarity, Sizes
from matchlight.inputs.batches import collate
from matchlight.inputs.prepare import View, prepare
from matchlight.methods import aoq, bfan
from matchlight.methods.captioning import Described
from matchlight.methods.quintuplets import KINDS, QUINTUPLETS, Draw, Quintuplets, counts
from matchlight.parts.objectives import Hinge, SoftmaxLoss
from matchlight.parts.similarities import Dot
from matchlight.runs.evaluation import split_scores
from matchlight.runs.folder import Run
from matchlight.runs.hard_negatives import mine_run
from matchlight.runs.train_run import train
from matchlight.training.mining import Candidates
from matchlight.training.network import Network, objective_weights, score_batch, whole_batch
from matchlight.training.registry import Chosen, methods, settings_of
from matchlight.training.trainer import Trainer
from tests.fixtures import imported
from tests.methods.test_scan import released
from tests.methods.vsrn_parts import release
from tests.reference import aoq as naive
from tests.tiny import tiny_pairs, tiny_settings

SETTINGS = {"alpha": 0.3, "beta": 1.5, "margin": 0.2, "margin_offline": 0.0}


def batch_of(images: list[int], texts: list[int], owners: list[int], links: dict[str, list[tuple[int, int]]]) -> Batch:
    """Items by id; the first of each side are as many as there are labelled pairs."""
    pairs = len(links["positive"])
    sides = {
        IMAGE: Items(torch.zeros(len(images), 1), None, torch.tensor(images)),
        TEXT: Items(torch.zeros(len(texts), 1), None, torch.tensor(texts), {"picture": torch.tensor(owners)}),
    }
    placed = {name: torch.tensor(some) for name, some in links.items()}
    return Batch(sides, placed, torch.arange(pairs), core=(pairs, pairs))


def quintuplets(count: int, *, strangers: bool = True) -> Batch:
    """Pairs 0..n-1, then their offline negatives, then the partners of those, each an item of its own."""
    own, off, partner = (list(range(k * count, (k + 1) * count)) for k in range(3))
    links = {
        "positive": list(zip(own, own, strict=True)),
        "off_text": list(zip(own, off, strict=True)),
        "off_image": list(zip(off, own, strict=True)),
        "off_pair": list(zip(off, off, strict=True)),
        "off_partner": list(zip(partner, partner, strict=True)),
    }
    everything = own + off + partner
    owners = own + [900 + c for c in off + partner] if strangers else everything
    return batch_of(everything, everything, owners, links)


def terms_of(objective: Quintuplets, batch: Batch, images: Embedding, texts: Embedding, how: Similarity) -> Any:
    scores = score_batch(Matcher({}, how), {IMAGE: images, TEXT: texts}, batch, matrix=True)
    return objective(scores, {}, batch), scores


# ---- the authors' numbers --------------------------------------------------------------------------------------------


def recorded(file: Any) -> tuple[Embedding, Embedding, Similarity]:
    """The recorded vectors, or sets, of the three passes one after the other, and what scores them."""
    images = torch.from_numpy(np.concatenate([file["im"], file["im_off"], file["im_off2"]]))
    texts = torch.from_numpy(np.concatenate([file["s"], file["s_off"], file["s_off2"]]))
    if images.dim() == 2:
        return Embedding(images[:, None]), Embedding(texts[:, None]), Dot()
    length = torch.from_numpy(np.concatenate([file["s_len"], file["s_off_len"], file["s_off2_len"]]))
    mask = torch.arange(texts.shape[1])[None] < length[:, None]
    how = bfan.FocalAttention(focal=str(file["focal_type"]), temperature=float(file["lambda_softmax"]))
    return Embedding(images), Embedding(texts * mask[..., None], mask), how


@pytest.mark.parametrize("name", ["aoq_vsrn", "aoq_bfan"])
def test_the_loss_is_the_authors_loss(name: str, parity: Path) -> None:
    file = np.load(parity / "losses" / f"{name}.npz")
    images, texts, how = recorded(file)
    hinge = Hinge(margin=float(file["marginonline"]), siblings="negatives")
    objective = Quintuplets(
        hinge,
        alpha=float(file["alpha"]),
        beta=float(file["beta"]),
        margin=float(file["marginoffline"]),
        siblings="negatives",
    )
    terms, scores = terms_of(objective, quintuplets(len(file["pos"])), images, texts, how)
    named = {"off_text": "i2t_offline", "off_image": "t2i_offline", "off_pair": "i2t_offline_pair"}
    named["off_partner"] = "t2i_offline_pair"
    for link, key in named.items():
        assert_close(scores.links[link], torch.from_numpy(file[key]), atol=1e-5, rtol=1e-5)
    costs = {"i2t": "cost_s_weighted", "t2i": "cost_im_weighted", "off_text": "cost_s2", "off_image": "cost_im2"}
    costs |= {"off_pair": "cost_s3", "off_partner": "cost_im3"}
    for term, key in costs.items():
        assert_close(terms[term], torch.from_numpy(file[key]), atol=1e-5, rtol=1e-5)
    assert float(objective.total(terms)) == pytest.approx(float(file["loss"]), rel=1e-5)


@pytest.mark.parametrize(("fixture", "base"), [("vsrn", "vsrn"), ("vsrn_f30k", "vsrn"), ("bfan_prob", "bfan")])
def test_an_imported_second_round_scores_as_its_base(fixture: str, base: str, parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / fixture, "aoq", tmp_path / "run")
    assert run.info["arguments"]["base"] == base and run.info["name"] == "aoq"
    assert np.abs(split_scores(run, pairs, "test") - expected["scores"]).max() < 1e-5


@pytest.mark.parametrize(("file", "base"), [(release(f30k=False, caption=True), "vsrn"), (released(), "bfan")])
def test_files_are_told_apart_by_their_layers_and_keep_the_losses_settings(file: dict[str, Any], base: str) -> None:
    options = {"marginonline": 0.25, "marginoffline": 0.05, "alpha": 0.2, "beta": 2.0, "offcandisize": 200.0}
    foreign = aoq.read({**file, "opt": {**file["opt"], **options}})
    assert foreign.arguments["base"] == base and foreign.arguments["margin"] == 0.25 and foreign.arguments["h"] == 200
    named = {**Chosen.of(methods()["aoq"], foreign.arguments).defaults, **foreign.arguments}
    recipe = methods()["aoq"].build(Sizes(pairs=0, pictures=0, image="regions", **foreign.sizes), **named)
    assert not recipe.matcher().load_state_dict(foreign.weights, strict=False).unexpected_keys
    objective = recipe.objective()
    ranking = objective.ranking if isinstance(objective, Described) else objective
    assert isinstance(ranking, Quintuplets) and (ranking.alpha, ranking.beta, ranking.margin) == (0.2, 2.0, 0.05)


# ---- the loop --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_loss_and_gradient_are_those_of_a_loop_over_quintuplets(kind: str) -> None:
    torch.manual_seed(0)
    sides = [torch.nn.functional.normalize(torch.randn(15, 4), dim=1) for _ in range(2)]
    fast, slow = ([side.clone().requires_grad_() for side in sides] for _ in range(2))
    objective = Quintuplets(Hinge(siblings="negatives"), kind=kind, siblings="negatives")
    terms, _ = terms_of(objective, quintuplets(5), Embedding(fast[0][:, None]), Embedding(fast[1][:, None]), Dot())
    names = ("image", "text", "off_image", "off_text", "partner_image", "partner_text")
    items = [dict(zip(names, (b, b, 5 + b, 5 + b, 10 + b, 10 + b), strict=True)) for b in range(5)]
    wanted = naive.loss(lambda i, t: slow[0][i] @ slow[1][t], items, SETTINGS, kind=kind)
    found = objective.total(terms)
    assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    found.backward()
    wanted.backward()
    for ours, theirs in zip(fast, slow, strict=True):
        assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-4)


def scored(matrix: list[list[float]], **links: list[float]) -> Scores:
    return Scores(torch.tensor(matrix), {name: torch.tensor(value) for name, value in links.items()})


def test_a_quintuplet_by_hand() -> None:
    # Pairs score .5 and .6; each hardest of the batch is .4 or .1; the margin is .2.
    scores = scored(
        [[0.5, 0.4], [0.1, 0.6]],
        off_text=[0.7, 0.1],
        off_image=[0.4, 0.2],
        off_pair=[0.6, 0.0],
        off_partner=[0.1, 0.65],
    )
    terms = Quintuplets(Hinge())(scores, {}, quintuplets(2))
    # w = 1.5 - (.7 - .4) / .3 = .5 times (.2 + .4 - .5); the second pair's hinge is 0
    assert_close(terms["i2t"], torch.tensor([0.05, 0.0]))
    # 1.5 - (.4 - .1) / .3 = .5 times 0; 1.5 - (.2 - .4) / .3 = 2.1667 times (.2 + .4 - .6) = 0
    assert_close(terms["t2i"], torch.tensor([0.0, 0.0]), atol=1e-6, rtol=0)
    assert_close(terms["off_text"], torch.tensor([0.2, 0.0]))
    assert_close(terms["off_pair"], torch.tensor([0.1, 0.0]))
    assert_close(terms["off_partner"], torch.tensor([0.0, 0.05]))


def test_the_weight_is_beta_for_equals_nothing_at_alpha_beta_and_negative_beyond() -> None:
    weigh = Quintuplets(Hinge()).weight
    online, real = torch.zeros(4), torch.ones(4, dtype=torch.bool)
    assert_close(weigh(torch.tensor([0.0, 0.45, 0.6, -0.3]), online, real), torch.tensor([1.5, 0.0, -0.5, 2.5]))


def test_offline_scores_below_the_pair_cost_nothing() -> None:
    low = dict.fromkeys(QUINTUPLETS, [-0.5, -0.5])
    terms = Quintuplets(Hinge())(scored([[0.5, 0.4], [0.1, 0.6]], **low), {}, quintuplets(2))
    assert not any(terms[name].any() for name in QUINTUPLETS)


def test_equally_hard_negatives_make_the_online_part_beta_times_the_plain_loss() -> None:
    matrix = [[0.5, 0.4], [0.45, 0.6]]
    links = {"off_text": [0.4, 0.45], "off_image": [0.45, 0.4], "off_pair": [0.0, 0.0], "off_partner": [0.0, 0.0]}
    batch = quintuplets(2)
    plain, found = Hinge()(scored(matrix), {}, batch), Quintuplets(Hinge())(scored(matrix, **links), {}, batch)
    for way in ("i2t", "t2i"):
        assert_close(found[way], 1.5 * plain[way])


def test_the_weight_learns_unless_it_is_detached() -> None:
    def slope(*, detach: bool) -> Tensor:
        offline = torch.tensor([0.2, 0.1], requires_grad=True)  # below both pairs: only the weight feels it
        links = {"off_text": offline, "off_image": torch.zeros(2), "off_pair": torch.zeros(2)}
        scores = Scores(torch.tensor([[0.5, 0.4], [0.45, 0.6]]), {**links, "off_partner": torch.zeros(2)})
        objective = Quintuplets(Hinge(), detach=detach)
        total = objective.total(objective(scores, {}, quintuplets(2)))
        return torch.autograd.grad(total, offline, allow_unused=True)[0]

    assert_close(slope(detach=False), -torch.tensor([0.1, 0.05]) / 0.3)  # minus the bracket over alpha
    assert not slope(detach=True).any()


def test_without_companions_the_base_ranks_as_ever() -> None:
    scores, batch = scored([[0.5, 0.4], [0.45, 0.6]]), quintuplets(2)
    plain, found = Hinge()(scores, {}, batch), Quintuplets(Hinge())(scores, {}, batch)
    assert plain.keys() == found.keys() and all(torch.equal(plain[k], found[k]) for k in plain)


def test_other_losses_are_weighed_in_the_same_way() -> None:
    links = {name: [0.3, 0.2] for name in QUINTUPLETS}
    scores, batch = scored([[0.5, 0.4], [0.45, 0.6]], **links), quintuplets(2)
    plain, found = SoftmaxLoss("infonce")(scores, {}, batch), Quintuplets(SoftmaxLoss("infonce"))(scores, {}, batch)
    assert_close(found["i2t"] / plain["i2t"], 1.5 - (torch.tensor([0.3, 0.2]) - torch.tensor([0.4, 0.45])) / 0.3)


def test_a_row_with_nothing_to_draw_from_counts_as_the_base_counts_it() -> None:
    own = {"positive": [(0, 0), (1, 1)], "off_text": [(0, 0), (1, 2)], "off_image": [(0, 0), (2, 1)]}
    batch = batch_of(
        [0, 1, 5], [0, 1, 7], [0, 1, 6], {**own, "off_pair": [(0, 0), (2, 2)], "off_partner": [(0, 0), (2, 2)]}
    )
    scores = scored([[0.5, 0.4], [0.45, 0.6]], **{name: [0.5, 0.9] for name in QUINTUPLETS})
    found = Quintuplets(Hinge(), margin=0.1)(scores, {}, batch)
    plain = Hinge()(scores, {}, batch)
    assert found["i2t"][0] == plain["i2t"][0] and not any(found[name][0] for name in QUINTUPLETS)
    assert_close(found["off_text"][1], torch.tensor(0.4))


def test_a_mined_pair_that_is_a_true_match_counts_only_where_siblings_do() -> None:
    batch = quintuplets(3, strangers=False)  # every offline caption belongs to the offline picture beside it
    masked, counted = counts(batch, siblings="masked"), counts(batch, siblings="negatives")
    assert masked["off_text"].all() and not masked["off_pair"].any() and not masked["off_partner"].any()
    assert counted["off_pair"].all() and counted["off_partner"].all()


def test_a_batch_without_negatives_has_a_finite_gradient() -> None:
    matrix = torch.tensor([[0.5, 0.4]], requires_grad=True)
    links = {name: torch.tensor([0.6, 0.6]) for name in QUINTUPLETS}
    side = {"positive": [(0, 0), (0, 1)], **{name: [(1, 2), (1, 2)] for name in QUINTUPLETS}}
    batch = batch_of([0, 1], [0, 1, 2], [0, 0, 9], side)  # one picture with both captions
    objective = Quintuplets(Hinge())
    total = objective.total(objective(Scores(matrix, links), {}, batch))
    total.backward()
    assert total.isfinite() and matrix.grad is not None and matrix.grad.isfinite().all()


# ---- drawing ---------------------------------------------------------------------------------------------------------


def lists(pictures: int, captions: int, depth: int, images: int, seed: int) -> tuple[Candidates, np.ndarray]:
    rng, picture = np.random.default_rng(seed), np.repeat(np.arange(pictures), captions)
    rows = np.arange(len(picture))
    texts = np.stack([rng.permutation(rows[picture != i])[:depth] for i in range(pictures)])
    others = np.stack([rng.permutation(np.delete(np.arange(pictures), picture[c]))[:images] for c in rows])
    return Candidates(np.arange(pictures), rows, texts, others), picture


@settings(deadline=None, max_examples=20)
@given(
    st.integers(3, 9), st.integers(1, 5), st.integers(1, 30), st.sampled_from(["uniform", "normal"]), st.integers(0, 99)
)
def test_companions_are_who_they_should_be(pictures: int, captions: int, depth: int, how: str, seed: int) -> None:
    found, picture = lists(pictures, captions, 4, 2, seed)
    rows = np.random.default_rng(seed).permutation(len(picture))[:7]
    drawn = Draw(found, picture, depth, how)(rows, np.random.default_rng(seed))
    assert tuple(drawn) == QUINTUPLETS
    (image, text), (other, own) = drawn["off_text"].T, drawn["off_image"].T
    assert (image == picture[rows]).all() and (own == rows).all()
    assert all(t in found.texts[i][:depth] for i, t in zip(image, text, strict=True))
    assert all(i in found.images[c] for c, i in zip(rows, other, strict=True))
    assert (drawn["off_pair"] == np.stack([other, text], 1)).all()
    assert (drawn["off_partner"][:, 0] == picture[text]).all()  # the true picture of the hard caption
    assert (picture[drawn["off_partner"][:, 1]] == other).all()  # a true caption of the hard picture


def test_one_draw_ties_both_hardnesses_as_n_and_n_over_five() -> None:
    found, picture = lists(80, 5, 300, 60, 0)
    draw, rows = Draw(found, picture, 300), np.arange(400)
    drawn = draw(rows, np.random.default_rng(0))
    n = np.array(
        [found.texts[picture[c]].tolist().index(t) for c, t in zip(rows, drawn["off_text"][:, 1], strict=True)]
    )
    m = np.array([found.images[c].tolist().index(i) for c, i in zip(rows, drawn["off_image"][:, 0], strict=True)])
    assert (m == n // 5).all() and m.max() < 60 and n.min() < 20 and n.max() > 280  # the whole list is drawn from


def test_a_normal_draw_keeps_to_the_middle_of_the_list() -> None:
    found, picture = lists(80, 5, 300, 60, 0)
    rows = np.arange(400)
    places = []
    for how in ("uniform", "normal"):
        text = Draw(found, picture, 300, how)(rows, np.random.default_rng(0))["off_text"][:, 1]
        places.append([found.texts[picture[c]].tolist().index(t) for c, t in zip(rows, text, strict=True)])
    assert np.std(places[1]) < 60 < np.std(places[0]) and abs(np.mean(places[1]) - 150) < 15


def test_empty_lists_draw_a_rows_own_items() -> None:
    found, picture = lists(4, 2, 3, 2, 0)
    found.texts[1] = -1
    drawn = Draw(found, picture, 3)(np.array([2, 3, 0]), np.random.default_rng(0))
    assert drawn["off_text"][:2].tolist() == [[1, 2], [1, 3]] and drawn["off_image"][:2].tolist() == [[1, 2], [1, 3]]
    assert drawn["off_text"][2, 1] in found.texts[0]


def test_triplets_draw_two_links_only() -> None:
    found, picture = lists(4, 2, 3, 2, 0)
    draw = Draw(found, picture, 3, links=KINDS["offtri"])
    assert tuple(draw(np.arange(3), np.random.default_rng(0))) == ("off_text", "off_image")


# ---- two rounds ------------------------------------------------------------------------------------------------------


def quick(folder: Path, base: str = "vsrn", **more: object) -> Run:
    known = Chosen.of(methods()["aoq"], {"base": base}).defaults
    options = {key: more.pop(key) for key in ("seed", "resume", "save_minutes", "start") if key in more}
    named = {**tiny_settings(known), "base": base, **more}
    return train("aoq", tiny_pairs(), folder, device="cpu", preset="small", **options, **named)


def phases(run: Run) -> list[str]:
    return [json.loads(line)["phase"] for line in (run.folder / "log.jsonl").read_text().splitlines()]


def weights(run: Run) -> bytes:
    return (run.folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("base", ["vse++", "vse_infty", "scan", "bfan", "imram", "sgr", "saf", "sgraf"])
def test_every_base_has_a_second_round(base: str, tmp_path: Path) -> None:
    run = quick(tmp_path / "run", base, epochs=1, **({"warm": 0} if base != "vse++" else {}))
    assert phases(run) == ["train", "second round"]
    assert run.info["notes"]["rounds"] == {"first": 1, "second": 1, "second_starts": "from scratch"}
    about = json.loads((run.folder / "candidates" / "about.json").read_text())
    assert about["captions"] == 24 and not (run.folder / "mined").exists()


def test_warm_epochs_of_the_second_round_have_no_companions_and_a_round_that_goes_on_has_no_warm_epochs(
    tmp_path: Path,
) -> None:
    fresh = quick(tmp_path / "fresh", "scan", warm=1)
    assert phases(fresh) == ["warm-up", "warm-up", "second round"]
    assert phases(quick(tmp_path / "on", "scan", warm=1, scratch=False)) == ["warm-up", "second round", "second round"]


def test_what_the_paper_settled_on_is_the_default() -> None:
    wanted = {"alpha": 0.3, "beta": 1.5, "h": 300, "draw": "uniform", "kind": "adapoffquin", "epochs": 20}
    assert methods()["aoq"].defaults.items() >= wanted.items()


def test_the_first_round_is_as_long_as_the_papers_beside_the_second() -> None:
    sizes = Sizes(pairs=9, pictures=9, image="regions", image_dim=4, vocabulary=9)
    build = partial(methods()["aoq"].build, sizes, base="scan")
    assert build().epochs == 30 + 20 and build(epochs=8).epochs == 12 + 8 and build(epochs=8, first=2).epochs == 10
    rates = [build(epochs=20, decay_every=10).schedule(epoch, 0, 1) for epoch in (0, 29, 30, 39, 40)]
    assert rates == pytest.approx([1, 0.01, 1, 1, 0.1])  # begun anew with the second round


def test_a_run_that_is_given_is_the_first_round_and_its_weights_the_start(tmp_path: Path) -> None:
    small = {"preset": "small", "device": "cpu", "dim": 8, "word_dim": 8, "batch": 8, "rate": 1e-9, "warm": 0}
    source = train("scan", tiny_pairs(), tmp_path / "scan", epochs=1, **small)
    second = {"start": source, "base": "scan", "epochs": 1, "h": 5, **small}
    run = train("aoq", tiny_pairs(), tmp_path / "run", **second)
    assert phases(run) == ["second round"] and run.info["arguments"]["first"] == 0
    for key, value in source.matcher.state_dict().items():  # at a rate of nothing it stays where it began
        assert_close(run.matcher.state_dict()[key], value, atol=1e-5, rtol=1e-4)
    mined, _ = mine_run(source, tiny_pairs(), tmp_path / "lists", top=5, quiet=True)
    assert (np.load(run.folder / "candidates" / "i2t.npy") == mined.texts).all()
    fresh = train(
        "aoq", tiny_pairs(), tmp_path / "fresh", start=source, base="scan", scratch=True, epochs=1, h=5, **small
    )
    assert (np.load(fresh.folder / "candidates" / "i2t.npy") == mined.texts).all()
    assert weights(fresh) != weights(run) and fresh.info["notes"]["rounds"]["second_starts"] == "from scratch"


def test_what_a_loss_learnt_is_taken_along_into_the_second_round(tmp_path: Path) -> None:
    named = tiny_settings(methods()["vsrn"].defaults) | {"epochs": 1, "rate": 1e-9, "device": "cpu", "preset": "small"}
    source = train("vsrn", tiny_pairs(), tmp_path / "first", **named)
    learnt = objective_weights(source.folder)["A"]
    assert any(key.startswith("captioner") for key in learnt)
    run = train("aoq", tiny_pairs(), tmp_path / "run", seed=5, start=source, h=5, **named)
    after = objective_weights(run.folder)["A"]
    for key in (key for key in learnt if key.startswith("captioner")):  # another seed, yet where the first one ended
        assert_close(after[key], learnt[key], atol=1e-4, rtol=1e-3)


def test_a_second_round_is_built_on_the_method_of_the_run_it_goes_on_from(tmp_path: Path) -> None:
    small = {"preset": "small", "device": "cpu", "dim": 8, "word_dim": 8, "batch": 8, "warm": 0}
    source = train("scan", tiny_pairs(), tmp_path / "scan", epochs=1, **small)
    run = train("aoq", tiny_pairs(), tmp_path / "run", start=source, epochs=1, h=5, **small)
    assert run.info["arguments"]["base"] == "scan"
    with pytest.raises(BadInput, match="a run of scan, and base=bfan was asked for"):
        train("aoq", tiny_pairs(), tmp_path / "other", start=source, base="bfan", epochs=1, **small)


def test_the_second_round_can_have_a_rate_of_its_own_and_falls_after_ten_epochs() -> None:
    sizes = Sizes(pairs=9, pictures=9, image="regions", image_dim=4, vocabulary=9)
    built = methods()["aoq"].build(sizes, base="vsrn", epochs=20, second_rate=1e-5)
    rates = [built.schedule(epoch, 0, 1) * 1e-5 for epoch in (14, 15, 30, 39, 40)]
    assert rates == pytest.approx([2e-4, 2e-5, 1e-5, 1e-5, 1e-6])  # the first round has the base's own
    assert built.groups(built.matcher(), built.objective())[0]["lr"] == 1e-5
    with pytest.raises(BadInput, match="second_decay_every=5: vse_infty has no decay_every"):
        methods()["aoq"].build(sizes, base="vse_infty", epochs=20, second_decay_every=5)


@pytest.mark.parametrize("base", ["vse_infty", "sgraf"])
def test_the_second_round_s_rate_leaves_the_first_round_alone(base: str, tmp_path: Path) -> None:
    def losses(name: str, **more: float) -> list[float]:
        run = quick(tmp_path / name, base, first=2, epochs=1, warm=0, **more)
        return [json.loads(line)["loss"] for line in (run.folder / "log.jsonl").read_text().splitlines()]

    usual, slow = losses("usual"), losses("slow", second_rate=1e-9)
    assert slow[:-1] == pytest.approx(usual[:-1], rel=1e-4)


def test_a_second_round_without_a_single_negative_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no candidate is left"):
        quick(tmp_path / "run", "vse_infty", filter="captions", alike=1e-9, first=1, epochs=1, warm=0)
    with pytest.raises(BadInput, match="warm-up alone"):
        quick(tmp_path / "other", "scan", warm=2, epochs=2)


def test_lists_that_are_given_need_no_first_round(tmp_path: Path) -> None:
    small = {"preset": "small", "device": "cpu", "dim": 8, "word_dim": 8, "batch": 8}
    source = train("vse++", tiny_pairs(), tmp_path / "first", epochs=1, **small)
    mine_run(source, tiny_pairs(), tmp_path / "lists", top=6, quiet=True)
    run = quick(tmp_path / "run", "scan", candidates=str(tmp_path / "lists"), epochs=1, warm=0)
    assert phases(run) == ["second round"]
    with pytest.raises(BadInput, match="about.json"):
        quick(tmp_path / "other", "scan", candidates=str(tmp_path / "nowhere"), epochs=2)
    with pytest.raises(BadInput, match="pairs.csv"):
        quick(tmp_path / "other", "scan", filter="scores", audit=str(tmp_path / "no audit"), epochs=2)
    with pytest.raises(BadInput, match="relevance file"):
        quick(tmp_path / "other", "scan", filter="relevance", epochs=2)
    assert not (tmp_path / "other").exists()  # refused before anything was made


def test_a_loss_without_terms_to_weigh_is_told_before_anything_begins(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="kind=offquin"):
        quick(tmp_path / "run", "pcme", epochs=1)
    assert not (tmp_path / "run").exists()
    assert phases(quick(tmp_path / "run", "pcme", epochs=1, kind="offquin"))[-1] == "second round"


@torch.no_grad()
@pytest.mark.parametrize("base", ["scan", "vsrn", "sgr"])
def test_companions_leave_a_batchs_own_matrix_and_captions_alone(base: str) -> None:
    pairs = tiny_pairs()
    inputs = prepare(pairs, View("given"), device=torch.device("cpu"))
    named = Chosen.of(methods()["aoq"], {"base": base}).defaults | {"base": base}
    network = Network(
        methods()["aoq"].build(inputs.sizes, **named | tiny_settings(named)), seed=0, device=torch.device("cpu")
    )
    network.matcher.eval()
    network.objective.eval()
    draw = Draw(naive.every_other(pairs, np.arange(24)), pairs.picture, 20)
    rows = np.array([1, 3, 5, 7])  # the shorter captions: those of their companions are longer
    seen = []
    for more in (None, draw(rows, np.random.default_rng(0))):
        embeddings, batch = whole_batch(network.matcher, collate(inputs.table, rows, more=more))
        scores = score_batch(network.matcher, embeddings, batch, matrix=True)
        seen.append((scores.matrix, network.objective(scores, embeddings, batch), batch.sides[TEXT].x.shape[1]))
    assert seen[1][2] > seen[0][2]
    assert_close(seen[1][0], seen[0][0], atol=1e-6, rtol=1e-6)
    if base == "vsrn":
        assert_close(seen[1][1]["caption"], seen[0][1]["caption"], atol=1e-5, rtol=1e-5)
    assert set(QUINTUPLETS) <= set(seen[1][1]) and not set(QUINTUPLETS) & set(seen[0][1])


@pytest.mark.parametrize("kind", ["offtri", "offquin"])
def test_the_papers_ablations_train(kind: str, tmp_path: Path) -> None:
    assert phases(quick(tmp_path / "run", kind=kind, epochs=1, warm=0)) == ["train", "second round"]


def test_a_run_killed_between_the_rounds_goes_on_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = quick(tmp_path / "whole", scratch=False)
    original = aoq.mine_into

    def dies(*args: Any, **options: Any) -> Any:
        original(*args, **options)
        raise KeyboardInterrupt  # the lists are there, the state does not know yet

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(aoq, "mine_into", dies)
        quick(tmp_path / "cut", scratch=False)
    assert weights(quick(tmp_path / "cut", scratch=False, resume=True)) == weights(whole)


def test_a_kill_after_the_lists_were_written_leaves_no_second_copy_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(aoq, "shutil", SimpleNamespace(rmtree=dies))
        quick(tmp_path / "cut", scratch=False)
    assert (tmp_path / "cut" / "mined").is_dir()
    quick(tmp_path / "cut", scratch=False, resume=True)
    assert not (tmp_path / "cut" / "mined").exists()


def test_a_run_killed_late_in_the_second_round_goes_on_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, original, left = quick(tmp_path / "whole", "vse_infty"), Trainer._step, [7]

    def dies(self: Trainer, *args: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        original(self, *args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "_step", dies)
        quick(tmp_path / "cut", "vse_infty", save_minutes=0.0)
    assert weights(quick(tmp_path / "cut", "vse_infty", resume=True)) == weights(whole)


def test_the_model_kept_is_one_of_the_second_round(tmp_path: Path) -> None:
    run = quick(tmp_path / "run", "scan", rate=1e-9, first=2, epochs=1, warm=0)  # nothing is learnt: all are as good
    assert json.loads((run.folder / "metrics.json").read_text())["epoch"] == 2


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"base": "aoq"}, "is built on one of"),
        ({"base": "scam"}, "scan"),
        ({"kind": "onquin"}, "offquin"),
        ({"first": "0"}, "at least 1"),
        ({"alpha": "0"}, "above 0"),
        ({"filter": "scores"}, "audit"),
        ({"filter": "wishes"}, "captions"),
        ({"draw": "lots"}, "normal"),
    ],
)
def test_a_slip_is_told_before_anything_begins(given: dict[str, str], hint: str) -> None:
    with pytest.raises(BadInput, match=hint):
        named, _ = settings_of(methods()["aoq"], given, pairs=100, device="cpu")
        methods()["aoq"].build(Sizes(pairs=9, pictures=9, image="regions", image_dim=4, vocabulary=9), **named)


@pytest.mark.parametrize("kind", ["captions", "relevance"])
def test_lists_are_filtered_where_it_is_asked_for(kind: str, tmp_path: Path) -> None:
    pairs = tiny_pairs()
    fits = pairs.picture[:, None] == np.arange(len(pairs.names))[None]
    fits[:, 3] = True  # everything fits picture 3
    pairs = replace(pairs, relevance=csr_matrix(fits))
    settings = tiny_settings(methods()["scan"].defaults) | {"epochs": 1, "first": 1, "base": "scan", "warm": 0}
    train("aoq", pairs, tmp_path / "run", device="cpu", preset="small", filter=kind, alike=0.5, h=8, **settings)
    texts, images = (np.load(tmp_path / "run" / "candidates" / f"{way}.npy") for way in ("i2t", "t2i"))
    assert texts.shape[1] == 16  # twice as many are mined, since some go
    if kind == "relevance":
        assert (images != 3).all() and (texts[3] == -1).all() and (texts[0] != -1).all()
    else:
        assert (texts == -1).any()
