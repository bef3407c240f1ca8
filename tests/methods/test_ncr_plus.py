"""NCR+: what the first round measures, and that the second trusts pairs accordingly."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from matchlight.core import BadInput, Scores
from matchlight.data.noise import mismatch
from matchlight.inputs.batches import collate
from matchlight.inputs.prepare import View, prepare
from matchlight.methods.dive import DivE
from matchlight.methods.lantern import Lantern
from matchlight.methods.ncr_plus import NCRPlus, Weighted, rounds
from matchlight.methods.scan import SCAN
from matchlight.methods.vse import VSEInfinity
from matchlight.pairs import Pairs
from matchlight.parts.objectives import SoftmaxLoss
from matchlight.runs.folder import Run
from matchlight.runs.train_run import train
from matchlight.training.arguments import Arguments
from matchlight.training.checkpoints import load_tree, save_tree
from matchlight.training.contract import Phase
from matchlight.training.pair_losses import Mismatches, fits
from matchlight.training.registry import Chosen, methods
from matchlight.training.trainer import Trainer
from tests.methods.test_ncr import drawn, square
from tests.tiny import tiny_pairs, tiny_pictures, tiny_settings

RATIO = 0.4
SIZES: dict[str, Any] = {**tiny_settings(methods()["ncr+"].defaults), "epochs": 4, "warm": 2, "batch": 32}


def measured(tmp_path: Path, **more: Any) -> tuple[Trainer, np.ndarray]:
    """A trainer before its first step, on data of which 40% is broken, and which rows those are."""
    pairs, truth = mismatch(tiny_pairs(120, 2), ratio=RATIO, seed=1)
    inputs = prepare(pairs, View("given"), device=torch.device("cpu"))
    method = methods()["ncr+"]
    given = {**method.defaults, **tiny_settings(method.defaults), "epochs": 8, "warm": 3, **more}
    return Trainer(tmp_path, method.build(inputs.sizes, **given), inputs), ~truth.clean(np.arange(len(pairs)))


def tell(run: Trainer, wrong: np.ndarray, *, seed: int = 0) -> Any:
    """Losses as a first round would leave them: wrong pairs like strangers, clean ones small."""
    strategy: Any = run.recipe.strategy
    rng = np.random.default_rng(seed)
    for name in strategy.networks:
        loss = np.where(wrong, rng.normal(6, 1, len(wrong)), rng.gamma(1.5, 0.6, len(wrong)))
        strategy.seen[f"loss_{name}"] = [loss]
        strategy.seen[f"null_{name}"] = [rng.normal(6, 1, len(wrong))]
    strategy._weigh(run)
    return strategy


def test_a_weight_multiplies_the_loss_of_its_pair() -> None:
    batch, weight = square(5), torch.tensor([1.0, 0.0, 0.5, 1.0, 0.2])
    plain = SoftmaxLoss("gce")(Scores(drawn(5)), {}, batch)
    found = Weighted(SoftmaxLoss("gce"))(Scores(drawn(5)), {}, batch.with_extra(trust=weight))
    for name, term in plain.items():
        assert_close(found[name], term * weight)


def test_the_first_round_keeps_pictures_aside_and_the_second_trains_on_all(tmp_path: Path) -> None:
    run, _ = measured(tmp_path)
    strategy: Any = run.recipe.strategy
    first = strategy.phases(run, 0)[0].rows
    aside = np.setdiff1d(run.rows, first)
    assert len(aside) == pytest.approx(0.1 * len(run.rows), abs=2)
    assert not set(run.pairs.picture[aside]) & set(run.pairs.picture[first])
    strategy.fresh = True
    strategy.measured = 3
    assert (strategy.phases(run, 3)[0].rows == run.rows).all()


@pytest.mark.parametrize("together", [True, False])
def test_pictures_come_with_all_their_captions_where_the_scorer_has_it_so(tmp_path: Path, together: bool) -> None:
    pairs = tiny_pairs(120, 3)
    inputs = prepare(pairs, View("given"), device=torch.device("cpu"))
    chosen = Chosen.of(methods()["ncr+"], {"scorer": "dive"})
    given = {**chosen.defaults, **tiny_settings(chosen.defaults), "scorer": "dive", "together": together, "batch": 12}
    run = Trainer(tmp_path, chosen.build(inputs.sizes, **given), inputs)
    for phase in run.recipe.strategy.phases(run, 0):
        assert phase.together == together and (phase.order is not None) == together
        for rows in phase.order(np.random.default_rng(0)) if phase.order else []:
            assert set(np.bincount(pairs.picture[rows])) <= {0, 3}


def test_the_share_and_the_weights_follow_what_was_measured(tmp_path: Path) -> None:
    run, wrong = measured(tmp_path)
    strategy = tell(run, wrong)
    assert strategy.noise == pytest.approx(RATIO, abs=0.25)  # twenty rows are aside here, thousands in earnest
    weight = strategy.clean[run.rows]
    assert weight[~wrong[run.rows]].mean() > 0.75 > 0.25 > weight[wrong[run.rows]].mean()
    assert np.isnan(np.delete(strategy.clean, run.rows)).all()


def test_a_pair_that_is_hardly_clean_is_not_learnt_from_at_all(tmp_path: Path) -> None:
    run, wrong = measured(tmp_path)
    strategy = tell(run, wrong)
    strategy.clean[run.rows[:3]] = [0.05, 0.5, 1.0]
    batch = strategy.before_step(run, Phase(run.rows, name="trust"), collate(run.table, run.rows[:3]))
    assert_close(batch.extra["trust"], torch.tensor([0.0, 0.5, 1.0]))
    plain = collate(run.table, run.rows[:3])
    assert "trust" not in strategy.before_step(run, Phase(run.rows, name="measure"), plain).extra


@pytest.mark.parametrize("begun", [True, False])
def test_after_a_round_that_measured_weights_are_new_unless_they_came_from_another_run(
    tmp_path: Path, begun: bool
) -> None:
    run, wrong = measured(tmp_path)
    strategy = tell(run, wrong)
    strategy.measured, strategy.begun = 3, begun
    before = dict(run.networks)
    strategy.phases(run, 3)
    assert [run.networks[name] is before[name] for name in ("A", "B")] == [begun] * 2


def test_pairs_are_measured_from_the_second_epoch_to_the_end_of_the_first_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, wrong = measured(tmp_path, rebuild=False)
    strategy, when = tell(run, wrong), []
    strategy.clean = None
    monkeypatch.setattr(strategy, "_look", lambda run, epoch, *, keep: when.append((epoch, keep)) or {})
    for epoch in (0, 1, 2, 2, 3, 3, 4, 5):  # a run that goes on asks for the phases of its epoch again
        strategy.phases(run, epoch)
    assert when == [(2, True), (3, True)]
    assert np.isfinite(strategy.clean[run.rows]).all()


def test_a_pair_is_trusted_by_the_mean_of_what_both_networks_lose_on_it(tmp_path: Path) -> None:
    run, wrong = measured(tmp_path)
    strategy: Any = run.recipe.strategy
    up = np.arange(len(wrong), dtype=float)
    for name, loss in (("A", up), ("B", 3 * up[::-1])):  # together they fall from 1.5 to 0.5 times the number of rows
        strategy.seen[f"loss_{name}"] = [loss]
        strategy.seen[f"null_{name}"] = [np.full(len(up), 1.3 * len(up))]
    strategy._weigh(run)
    assert strategy.clean[run.rows[0]] < 0.1 < 0.9 < strategy.clean[run.rows[-1]]


def test_what_was_measured_outlives_a_stop(tmp_path: Path) -> None:
    run, wrong = measured(tmp_path)
    before, after = tell(run, wrong), measured(tmp_path)[0].recipe.strategy
    save_tree(tmp_path / "state", before.state_dict())
    after.load_state_dict(load_tree(tmp_path / "state"))
    assert after.noise == before.noise
    np.testing.assert_array_equal(after.clean, before.clean)
    for name, seen in before.seen.items():
        np.testing.assert_array_equal(after.seen[name], seen)


# ---- who measures ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        NCRPlus(scorer=VSEInfinity(sentences="minilm")),
        NCRPlus(scorer=DivE(sentences="minilm"), warm=0),
        Lantern(scorer=DivE(sentences="minilm")),
        NCRPlus(measure="closed"),
    ],
)
def test_the_closed_form_measures_stored_features_and_captions_that_come_pretrained(arguments: NCRPlus) -> None:
    assert arguments.measures_closed() and arguments.epochs_that_measure() == 0


@pytest.mark.parametrize(
    "scorer",
    [
        VSEInfinity(),
        DivE(),
        SCAN(),
        VSEInfinity(sentences="minilm", finetune=True),
        DivE(sentences="minilm", finetune=True),
    ],
)
def test_networks_measure_where_nothing_stored_is_pretrained_on_both_sides(scorer: Arguments) -> None:
    arguments = NCRPlus(scorer=scorer)
    assert not arguments.measures_closed() and arguments.epochs_that_measure() == 5  # three tenths of 17


def test_networks_measure_where_they_or_epochs_for_it_were_asked_for() -> None:
    pretrained = VSEInfinity(sentences="minilm")
    for asked, epochs in ((NCRPlus(scorer=pretrained, measure="networks"), 5), (NCRPlus(scorer=pretrained, warm=2), 2)):
        assert not asked.measures_closed() and asked.epochs_that_measure() == epochs


# ---- what is measured ------------------------------------------------------------------------------------------------


def test_every_row_keeps_one_stranger_and_it_is_no_sibling(tmp_path: Path) -> None:
    run, _ = measured(tmp_path)
    strangers = Mismatches(run, run.networks["A"].matcher)
    a, b = collate(run.table, run.rows[:30]), collate(run.table, run.rows[:30][::-1].copy())
    assert_close(strangers.of(a), strangers.of(b).flip(0))
    own = torch.from_numpy(run.pairs.picture[run.rows[:30]])
    assert (strangers.owner[strangers.of(a)] != own).all()


def test_a_stranger_scores_as_the_matrix_says(tmp_path: Path) -> None:
    run, _ = measured(tmp_path)
    matcher = run.networks["A"].matcher.eval()
    found = fits(run, matcher, draw=(0,))
    assert np.isfinite(found["loss"][run.rows]).all() and np.isfinite(found["null"][run.rows]).all()
    assert np.isnan(np.delete(found["loss"], run.rows)).all()
    again = fits(run, matcher, draw=(0,))
    np.testing.assert_array_equal(found["loss"], again["loss"])


def test_rates_rise_once_a_round() -> None:
    held = {"heads": 1.0, "backbone": 0.0}
    waits = partial(rounds, warm=4, epochs=16, below=lambda epoch, *_: held if epoch < 2 else 1.0)
    assert [isinstance(waits(epoch, 5, 10), dict) for epoch in (0, 1, 2, 4, 5, 6)] == [True, True, False] * 2
    assert waits(5, 0, 10)["backbone"] == 0 and waits(5, 0, 10)["heads"] > 0
    plan = [rounds(epoch, 0, 10, warm=4, epochs=16) for epoch in range(16)]
    assert plan[0] < 0.1 and plan[3] == 1.0 and plan[4] < 0.1 and max(plan[5:9]) > 0.9 and plan[15] < 0.1


@pytest.mark.parametrize("more", [{"peers": 1}, {"rebuild": False, "loss": "infonce"}, {"measure": "networks"}])
def test_every_part_can_be_switched_off(tmp_path: Path, more: dict[str, Any]) -> None:
    pairs = mismatch(tiny_pairs(60, 2), ratio=0.3, seed=1)[0]
    settings = {**tiny_settings(methods()["ncr+"].defaults), "epochs": 4, "warm": 2, **more}
    run = train("ncr+", pairs, tmp_path / "run", device="cpu", **settings)
    assert len(getattr(run.matcher, "members", [0])) == (1 if more.get("peers") == 1 else 2)
    assert "clean_A" in np.load(run.folder / "division.npz")


def test_few_pictures_with_many_captions_train(tmp_path: Path) -> None:
    pairs = tiny_pairs(4, 30, held=0)
    run = train("ncr+", pairs, tmp_path / "run", device="cpu", preset="small", epochs=2, dim=8, hidden=8, word_dim=8)
    assert np.isfinite(np.load(run.folder / "division.npz")["noise"]).all()


def begun(tmp_path: Path, pairs: Pairs, out: str, **more: Any) -> Run:
    """A run of NCR+ with tiny sizes."""
    return train("ncr+", pairs, tmp_path / out, device="cpu", **{**SIZES, **more})


def test_a_run_that_begins_from_another_knows_what_that_one_found_out_about_the_same_pairs(tmp_path: Path) -> None:
    pairs, _ = mismatch(tiny_pairs(90, 2), ratio=RATIO, seed=1)
    first = begun(tmp_path, pairs, "first")
    second = train("ncr+", pairs, tmp_path / "second", device="cpu", start=first, epochs=1)
    assert second.info["arguments"]["dim"] == SIZES["dim"]  # the first one's settings, though none was given
    before, after = (np.load(run.folder / "division.npz") for run in (first, second))
    assert {*before} == {*after}
    for name in ("noise", "clean_A", "clean_B"):
        np.testing.assert_array_equal(before[name], after[name])
    names = [line["phase"] for line in map(json.loads, (second.folder / "log.jsonl").read_text().splitlines())]
    assert names == ["trust"]


def test_a_run_from_another_that_is_given_a_first_round_measures_the_same_pairs_again(tmp_path: Path) -> None:
    pairs, _ = mismatch(tiny_pairs(90, 2), ratio=RATIO, seed=1)
    first = begun(tmp_path, pairs, "first")
    second = train("ncr+", pairs, tmp_path / "second", device="cpu", start=first, epochs=3, warm=1)
    before, after = (np.load(run.folder / "division.npz") for run in (first, second))
    rows = pairs.rows("train")
    assert np.isfinite(after["loss_A"][rows]).all()
    assert not np.array_equal(before["loss_A"][rows], after["loss_A"][rows])
    names = [line["phase"] for line in map(json.loads, (second.folder / "log.jsonl").read_text().splitlines())]
    assert names == ["measure", "trust", "trust"]


def test_a_run_from_another_that_held_other_pictures_out_measures_its_own(tmp_path: Path) -> None:
    pairs, _ = mismatch(tiny_pairs(90, 2), ratio=RATIO, seed=1)
    first = begun(tmp_path, pairs, "first", select="noisy")
    second = train("ncr+", pairs, tmp_path / "second", device="cpu", start=first, epochs=1, seed=5)
    before, after = (np.isfinite(np.load(run.folder / "division.npz")["clean_A"]) for run in (first, second))
    assert before.sum() == after.sum() and (before != after).any()  # each has measured all that it learnt from


def test_on_other_pairs_it_measures_before_it_learns(tmp_path: Path) -> None:
    pairs = tiny_pairs(90, 2)
    other, truth = mismatch(pairs, ratio=0.3, seed=2)  # what it knows by sight, partly mismatched
    first = begun(tmp_path, pairs, "first", epochs=16)
    second = train("ncr+", other, tmp_path / "second", device="cpu", start=first, epochs=1)
    kept, rows = np.load(second.folder / "division.npz"), other.rows("train")
    assert np.isfinite(kept["clean_A"][rows]).all() and len(kept["noise"]) == 1
    clean, loss = truth.clean(rows), kept["loss_A"][rows]
    assert loss[~clean].mean() > loss[clean].mean()  # it knows the pictures, and measured before it saw these pairs


def test_no_measuring_is_refused_where_nothing_has_been_learnt(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="warm=0: the first epochs measure"):
        begun(tmp_path, tiny_pairs(), "run", warm=0)
    assert not (tmp_path / "run").exists()


def test_heads_that_were_trained_on_stored_cells_go_on_with_their_backbone(tmp_path: Path) -> None:
    sizes = {**tiny_settings(methods()["lantern"].defaults), "epochs": 2, "pixels": 64}
    frozen = train("lantern", tiny_pictures(18), tmp_path / "frozen", device="cpu", **sizes)
    rate = {"epochs": 1, "rate": 1e-9, "backbone_rate": 1e-9, "batch": 24}
    tuned = train("lantern", tiny_pictures(18), tmp_path / "tuned", device="cpu", start=frozen, preset="tuned", **rate)
    before, after = frozen.matcher.state_dict(), tuned.matcher.state_dict()
    assert any(".backbone." in name for name in after)
    for name in (name for name in after if ".regions." in name and name.endswith((".weight", ".bias"))):
        assert_close(after[name], before[name.replace(".regions.", ".")])
