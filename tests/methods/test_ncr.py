"""NCR against plain loops, against the authors' numbers, and by what must hold of any division of the data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from matchlight.core import IMAGE, TEXT, BadInput, Batch, Items, Scores
from matchlight.data.noise import mismatch
from matchlight.inputs.batches import collate
from matchlight.inputs.prepare import View, prepare
from matchlight.methods.ncr import NCR, AllNegatives, CoTeaching, SoftMargin, mean_costs, predicted, soft_margin
from matchlight.methods.ncr_plus import NCRPlus
from matchlight.methods.sgraf import SGR
from matchlight.parts.objectives import Hinge, contrast
from matchlight.runs.evaluation import evaluate, split_scores
from matchlight.runs.train_run import train
from matchlight.training.registry import Chosen, methods
from matchlight.training.trainer import Trainer
from tests.fixtures import imported, recorded_batch
from tests.reference import ncr as plain
from tests.tiny import tiny_pairs, tiny_settings

MARGINS = ("exponential", "linear", "sin")
SOFT = {"margin": 0.2, "siblings": "negatives"}


def square(size: int) -> Batch:
    """A batch of pairs, each with a picture of its own."""
    place = torch.arange(size)
    images = Items(torch.zeros(size, 1), None, place)
    texts = Items(torch.zeros(size, 1), None, place, {"picture": place})
    return Batch({IMAGE: images, TEXT: texts}, {"positive": torch.stack([place, place], 1)}, place)


def drawn(size: int = 11, seed: int = 0) -> torch.Tensor:
    scores = 0.3 * torch.randn(size, size, generator=torch.Generator().manual_seed(seed))
    return scores + 0.4 * torch.eye(size)


def total(objective: Any, scores: torch.Tensor, batch: Batch) -> float:
    return float(objective.total(objective(Scores(scores), {}, batch)))


# ---- margins and predictions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MARGINS)
def test_a_margin_grows_with_the_label_from_nothing_to_all(kind: str) -> None:
    label = torch.linspace(0, 1, 21)
    margin = soft_margin(label, margin=0.2, kind=kind)
    assert_close(margin[[0, -1]], torch.tensor([0.0, 0.2]), atol=1e-6, rtol=0)
    assert (margin.diff() > 0).all()


def test_half_a_label_is_worth_less_than_half_a_margin() -> None:
    assert_close(
        soft_margin(torch.tensor(0.5), margin=0.2, kind="exponential"), torch.tensor(0.04805), atol=1e-5, rtol=0
    )


def test_costs_and_predictions_are_those_of_the_plain_loop() -> None:
    scores = drawn()
    c = contrast(scores, square(11), siblings="negatives")
    found = sum(mean_costs(c, 0.2).values())
    np.testing.assert_allclose(found, plain.costs(scores.numpy(), 0.2), rtol=1e-5)
    np.testing.assert_allclose(predicted(c, 0.2), plain.predicted(scores.numpy(), 0.2), rtol=1e-4, atol=1e-6)


def test_predictions_lie_between_0_and_1_and_the_best_pair_is_sure() -> None:
    found = predicted(contrast(drawn(), square(11)), 0.2)
    assert found.min() >= 0 and found.max() == 1


def test_a_batch_where_nothing_fits_predicts_0_and_no_nan() -> None:
    found = predicted(contrast(1 - 5 * torch.eye(6), square(6)), 0.2)
    assert_close(found, torch.zeros(6))


# ---- losses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MARGINS)
@pytest.mark.parametrize("shape", [(11,), (11, 11)])
def test_the_soft_margin_loss_is_that_of_the_plain_loop(kind: str, shape: tuple[int, ...]) -> None:
    scores, label = drawn(), torch.rand(shape, generator=torch.Generator().manual_seed(3))
    found = total(SoftMargin(kind=kind, **SOFT), scores, square(11).with_extra(trust=label))
    assert found == pytest.approx(plain.soft_loss(scores.numpy(), label.numpy(), 0.2, kind), rel=1e-5)


def test_full_trust_is_the_plain_loss_of_the_hardest_negative() -> None:
    batch = square(11)
    trusted = total(SoftMargin(kind="exponential", **SOFT), drawn(), batch.with_extra(trust=torch.ones(11)))
    assert trusted == pytest.approx(total(Hinge(siblings="negatives"), drawn(), batch))
    assert trusted == pytest.approx(total(SoftMargin(kind="exponential", **SOFT), drawn(), batch))


@pytest.mark.parametrize("shape", [(11,), (11, 11)])
def test_hardening_goes_from_the_mean_to_the_hardest_with_each_pairs_own_margin(shape: tuple[int, ...]) -> None:
    scores, label = drawn(), torch.rand(shape, generator=torch.Generator().manual_seed(3))
    margin = soft_margin(label, margin=0.2, kind="linear").expand(11, 11)
    margin = margin if len(shape) == 2 else margin.T
    mean = {"i2t": torch.zeros(11), "t2i": torch.zeros(11)}
    for a in range(11):
        for b in range(11):
            if a != b:
                mean["i2t"][a] += (margin[a, b] + scores[a, b] - scores[a, a]).relu() / 10
                wide = margin[b, a] if len(shape) == 2 else margin[a, 0]
                mean["t2i"][a] += (wide + scores[b, a] - scores[a, a]).relu() / 10
    loss, batch = SoftMargin(kind="linear", **SOFT), square(11).with_extra(trust=label)
    hardest = loss(Scores(scores), {}, batch)
    for share in (0.0, 0.3, 1.0):
        found = loss(Scores(scores), {}, batch.with_extra(hardness=torch.full((11,), share)))
        assert_close(found, {name: (1 - share) * mean[name] + share * hardest[name] for name in mean})


def test_the_recorded_losses_of_the_authors_come_out(parity: Path) -> None:
    z = np.load(parity / "losses" / "ncr_loss.npz")
    scores, batch = torch.from_numpy(z["scores"]), square(11)
    c = contrast(scores, batch, siblings="negatives")
    np.testing.assert_allclose(sum(mean_costs(c, 0.2).values()), z["eval_loss"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(predicted(c, 0.2), z["predict_clamped"], rtol=1e-5, atol=1e-6)
    assert total(AllNegatives(**SOFT), scores, batch) == pytest.approx(float(z["warmup"]), rel=1e-5)
    assert total(SoftMargin(kind="linear", **SOFT), scores, batch) == pytest.approx(float(z["train_hard"]), rel=1e-5)
    row = torch.from_numpy(z["labels"]).expand(11, 11)  # their (B, 1): a margin a row, in both directions
    for kind in MARGINS:
        for name, label in (("", row), ("_matrixlabels", torch.from_numpy(z["labels_matrix"]))):
            found = total(SoftMargin(kind=kind, **SOFT), scores, batch.with_extra(trust=label))
            assert found == pytest.approx(float(z[f"train_{kind}{name}"]), rel=1e-5)


def test_an_imported_checkpoint_scores_and_loses_as_the_authors_do(parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / "ncr", "ncr", tmp_path / "run")
    assert np.abs(split_scores(run, pairs, "test") - expected["scores"]).max() < 5e-6
    batch, _, embeddings = recorded_batch(run, pairs, expected)
    for k, name in enumerate("AB"):
        images, texts = (embeddings[side].members[k] for side in (IMAGE, TEXT))
        with torch.no_grad():
            found = run.matcher.members[k].score(images, texts)
        assert_close(found, torch.from_numpy(expected[f"batch_scores_{name}"]), atol=5e-6, rtol=0)
        c = contrast(found, batch, siblings="negatives")
        np.testing.assert_allclose(predicted(c, 0.2), expected[f"predict_{name}"], rtol=1e-3, atol=1e-4)
        assert total(AllNegatives(**SOFT), found, batch) == pytest.approx(
            float(expected[f"loss_warmup_{name}"]), rel=1e-4
        )


# ---- co-teaching ---------------------------------------------------------------------------------------------------


def teaching(tmp_path: Path, **more: Any) -> Trainer:
    """A trainer in the middle of nothing, on tiny data of which a third is broken."""
    pairs = mismatch(tiny_pairs(40, 2), ratio=0.3, seed=1)[0]
    inputs = prepare(pairs, View("given"), device=torch.device("cpu"))
    method = methods()["ncr"]
    given = {**method.defaults, **tiny_settings(method.defaults), "epochs": 6, "warm": 2, **more}
    return Trainer(tmp_path, method.build(inputs.sizes, **given), inputs)


def test_each_network_trains_on_what_its_peer_calls_clean(tmp_path: Path) -> None:
    run = teaching(tmp_path)
    strategy: Any = run.recipe.strategy
    a, b = strategy.phases(run, 2)
    strategy.clean["B"][run.rows] = np.linspace(0, 1, len(run.rows))
    strategy._good = {}
    wanted = run.rows[np.linspace(0, 1, len(run.rows)) > 0.5]
    seen = np.concatenate(strategy._phase(run, "A", late=False).order(np.random.default_rng(0)))
    assert sorted(seen) == sorted(wanted)
    assert (a.network, b.network) == ("A", "B")


def test_noisy_pairs_wait_for_the_second_half(tmp_path: Path) -> None:
    run = teaching(tmp_path)
    strategy: Any = run.recipe.strategy
    for epoch, noisy in ((2, False), (3, False), (4, True), (5, True)):
        phase = strategy.phases(run, epoch)[0]
        good = strategy.good(run, "A")
        rows = np.concatenate(phase.order(np.random.default_rng(0)))
        assert (~good[rows]).any() == noisy
        for part in phase.order(np.random.default_rng(0)):
            assert len(set(good[part])) == 1  # a batch is of one kind


def test_a_clean_pair_trusts_the_peer_and_a_noisy_one_both_predictions(tmp_path: Path) -> None:
    run = teaching(tmp_path)
    strategy: Any = run.recipe.strategy
    phase = strategy.phases(run, 5)[0]
    for part in phase.order(np.random.default_rng(0))[:2]:
        batch = collate(run.table, part)
        mine, other = (strategy._predict(run, name, batch) for name in "AB")
        w = torch.from_numpy(strategy.clean["B"][part]).float()
        clean = strategy.good(run, "A")[part[0]]
        wanted = w + (1 - w) * mine if clean else (mine + other) / 2
        assert_close(strategy.before_step(run, phase, batch).extra["trust"].float(), wanted)


def test_the_three_label_modes_agree_where_the_peer_is_sure() -> None:
    w, mine = torch.tensor([1.0, 0.5, 0.0]), torch.tensor([0.2, 0.4, 0.6])
    label = {
        mode: CoTeaching._clean_trust(SimpleNamespace(label_mode=mode), w, mine)
        for mode in ("paper", "matrix", "first")
    }
    assert_close(label["paper"], torch.tensor([1.0, 0.7, 0.6]))
    assert_close(label["first"], torch.tensor([1.0, 0.6, 0.2]))
    assert_close(label["matrix"], torch.tensor([[1.0, 1.0, 1.0], [0.6, 0.7, 0.8], [0.2, 0.4, 0.6]]))


@pytest.mark.parametrize("w", [0.0, 1.0])
def test_an_empty_half_ends_nothing(tmp_path: Path, w: float) -> None:
    run = teaching(tmp_path)
    strategy: Any = run.recipe.strategy
    strategy.phases(run, 5)
    strategy.clean["B"][run.rows], strategy._good = w, {}
    batches = strategy._phase(run, "A", late=True).order(np.random.default_rng(0))
    assert batches and all(len(part) > 1 for part in batches)


def test_hardening_follows_the_warm_up_through_batches_of_both_kinds(tmp_path: Path) -> None:
    run = teaching(tmp_path, harden=3)
    strategy: Any = run.recipe.strategy
    phases = [strategy.phases(run, epoch) for epoch in range(6)]
    found = [[phase.hardness and phase.hardness(1, 4) for phase in both] for both in phases]
    assert found[:2] == [[None] * 2] * 2 and found[5] == [None] * 2
    assert found[2:5] == [pytest.approx([(done + 0.25) / 3] * 2) for done in range(3)]


def test_hardening_is_of_ncr_itself_whatever_its_scorer_says() -> None:
    sizes = prepare(tiny_pairs(), View("given"), device=torch.device("cpu")).sizes
    assert Chosen.of(methods()["ncr"]).check_known({"harden": 2}) == {"harden": 2}
    recipe = NCR(scorer=SGR(hardest=False, harden=3), harden=2).recipe(sizes)
    assert isinstance(recipe.strategy, CoTeaching) and recipe.strategy.harden == 2
    assert NCR().recipe(sizes).strategy.harden == 0
    with pytest.raises(BadInput, match="harden=2: only ncr, or sgr alone, .* here harden=0"):
        NCRPlus(scorer=SGR(harden=2)).recipe(sizes)


@pytest.mark.parametrize(
    "more",
    [
        {"label_mode": "matrix"},
        {"label_mode": "first"},
        {"scorer": "vse_infty"},
        {"scorer": "scan"},
        {"warm": 1, "harden": 3},
        {"warm": 0, "harden": 1, "label_mode": "matrix"},
    ],
)
def test_every_mode_and_scorer_trains_and_leaves_its_division(tmp_path: Path, more: dict[str, Any]) -> None:
    pairs = mismatch(tiny_pairs(), ratio=0.3, seed=1)[0]
    settings = tiny_settings(methods()[str(more.get("scorer", "ncr"))].defaults)
    run = train("ncr", pairs, tmp_path / "run", device="cpu", **settings, **more)
    assert len(run.matcher.members) == 2
    kept = np.load(run.folder / "division.npz")
    rows = pairs.rows("train")
    assert np.isfinite(kept["clean_A"][rows]).all() and np.isfinite(kept["loss_B"][rows]).all()
    assert evaluate(run, pairs)["rsum"] > 0


def test_a_run_that_ends_at_its_warm_up_has_the_first_division_of_one_that_goes_on(tmp_path: Path) -> None:
    pairs = mismatch(tiny_pairs(), ratio=0.3, seed=1)[0]
    settings = {**tiny_settings(methods()["ncr"].defaults), "scorer": "vse++", "epochs": 4, "warm": 2}
    settings.pop("sim_dim", None)
    whole = train("ncr", pairs, tmp_path / "whole", device="cpu", **settings)
    short = train("ncr", pairs, tmp_path / "short", device="cpu", **settings, until="warm-up")
    log = (short.folder / "log.jsonl").read_text().splitlines()
    assert len(log) == 2 and "warm-up" in log[-1]
    first, same, last = (
        np.load(folder / file)
        for folder, file in (
            (whole.folder, "division-first.npz"),
            (short.folder, "division.npz"),
            (whole.folder, "division.npz"),
        )
    )
    rows = pairs.rows("train")
    assert (first["epoch"], last["epoch"]) == (2, 3)
    for name in ("loss_A", "clean_B"):
        assert first[name][rows] == pytest.approx(same[name][rows])
    assert not np.allclose(first["loss_A"][rows], last["loss_A"][rows])
    with pytest.raises(BadInput, match="has no warm-up"):
        train("ncr", pairs, tmp_path / "none", device="cpu", **{**settings, "warm": 0}, until="warm-up")


def test_two_networks_already_are_refused_as_a_scorer(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="sgraf: it is two networks already"):
        train("ncr", tiny_pairs(), tmp_path / "run", device="cpu", scorer="sgraf")
    with pytest.raises(BadInput, match=r"ncr is built on one of vse\+\+, vse_infty"):
        train("ncr", tiny_pairs(), tmp_path / "run", device="cpu", scorer="ncr")
    assert not (tmp_path / "run").exists()


def test_the_presets_are_the_papers_table() -> None:
    found = Chosen.of(methods()["ncr"]).presets
    table = {"f30k": (5, 40, 30), "coco": (10, 20, 10), "cc152k": (10, 40, 30)}
    for name, (warm, after, step) in table.items():
        preset = found[name]
        assert (preset["warm"], preset["epochs"] - warm, preset["decay_every"]) == (warm, after, step)
        assert {**methods()["ncr"].defaults, **preset}["batch"] == 128


def test_the_rates_begin_again_after_the_warm_up() -> None:
    method = methods()["ncr"]
    sizes = prepare(tiny_pairs(), View("given"), device=torch.device("cpu")).sizes
    recipe = method.build(sizes, **{**method.defaults, "warm": 4, "epochs": 20, "decay_every": 10})
    rates = [recipe.schedule(epoch, 0, 1) for epoch in (0, 3, 4, 13, 14)]
    rates = [rate if isinstance(rate, float) else rate["sgr"] for rate in rates]
    assert rates == pytest.approx([1, 1, 1, 1, 0.1])


def test_a_batch_with_siblings_keeps_each_pair_its_own_margin() -> None:
    batch = square(4)
    texts = replace(batch.sides[TEXT], extra={"picture": torch.tensor([0, 0, 2, 3])})
    batch = replace(
        batch, sides={**batch.sides, TEXT: texts}, links={"positive": torch.tensor([[0, 0], [0, 1], [2, 2], [3, 3]])}
    )
    label = torch.tensor([1.0, 0.0, 1.0, 1.0])
    scores = torch.full((4, 4), 0.5)
    terms = SoftMargin(margin=0.2, kind="linear", siblings="masked")(Scores(scores), {}, batch.with_extra(trust=label))
    assert_close(terms["i2t"], torch.tensor([0.2, 0.0, 0.2, 0.2]))
