"""Pairs measured before training: fits that never saw them, the losses of a plain loop, and training on their word."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from matchlight.core import IMAGE, TEXT, BadInput, Matcher
from matchlight.data.noise import mismatch
from matchlight.data.noise.truth import WRONG
from matchlight.files import read_npz
from matchlight.inputs.batches import Table
from matchlight.methods import dive, vse
from matchlight.methods.ncr_plus import MeasureThenTrust
from matchlight.parts.canonical_correlation import SOFTENED
from matchlight.parts.canonical_start import start_canonically
from matchlight.runs.folder import Run
from matchlight.runs.train_run import train
from matchlight.training import closed_form
from matchlight.training.closed_form import LossesAmongRivals, recognised
from matchlight.training.cross_fits import PASSES, Losses, weights_in_passes
from matchlight.training.trainer import Trainer
from tests.tiny import tiny_bert, tiny_pairs, tiny_pictures


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("transformers")
    return tiny_bert(tmp_path_factory.mktemp("bert"))


def settings(bert: str, **more: Any) -> dict[str, Any]:
    if more.get("scorer") == "dive":
        more = {"slots": 2, "hidden": 8, "heads": 2, "head_dim": 4, "depth": 1, **more}
    small = {"sentences": bert, "dim": 8, "epochs": 3, "batch": 32, "peers": 2, "drop_words": 0.0, "preset": "paper"}
    return {"measure": "closed", "device": "cpu", **small, **more}


def phases(run: Run) -> list[str]:
    return [json.loads(line)["phase"] for line in (run.folder / "log.jsonl").read_text().splitlines()]


@pytest.fixture
def closed_forms(monkeypatch: pytest.MonkeyPatch) -> list[closed_form.ClosedForm]:
    """All that are found while a test runs."""
    found: list[closed_form.ClosedForm] = []
    original = closed_form.closed_form
    monkeypatch.setattr(closed_form, "closed_form", lambda *given: found.append(original(*given)) or found[-1])
    return found


def correlated(pictures: int = 300, captions: int = 2, *, wrong: float = 0.5) -> tuple[Any, ...]:
    """Vectors that share eight numbers, and captions of a share of the pictures that belong to others, all alike."""
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(pictures, 8))
    place = np.repeat(np.arange(pictures), captions)
    moved = np.arange(pictures) < wrong * pictures
    of = np.where(moved[place], (place + 1) % math.ceil(wrong * pictures or 1), place)
    images = np.concatenate([shared, rng.normal(size=(pictures, 8))], 1)
    texts = np.concatenate([shared[of] + 0.3 * rng.normal(size=(len(of), 8)), rng.normal(size=(len(of), 4))], 1)
    return torch.from_numpy(images), torch.from_numpy(texts), place, moved[place]


def test_wrong_pairs_are_found_even_where_all_captions_of_a_picture_are_wrong_alike() -> None:
    images, texts, place, wrong = correlated()
    losses, _ = LossesAmongRivals(images, texts, place, seed=0).measured()
    assert roc_auc_score(wrong, losses.loss) > 0.97
    assert losses.share == pytest.approx(wrong.mean(), abs=0.1)


def test_no_pair_is_measured_by_a_fit_that_knows_its_picture() -> None:
    images, texts, place, _ = correlated(wrong=0)
    one, other = (LossesAmongRivals(images, texts, place, seed=0) for _ in range(2))
    weight, fold = np.ones(len(texts)), one.fits.inside[2]
    before = one.losses(weight).loss
    weight[fold] = 5.0
    after = other.losses(weight).loss
    np.testing.assert_allclose(after[fold], before[fold])
    assert not np.allclose(np.delete(after, fold), np.delete(before, fold))
    assert sorted(np.concatenate(one.fits.inside)) == list(range(len(texts)))
    assert not set(place[fold]) & set(np.delete(place, fold))


def test_a_pair_weighs_as_far_as_it_looked_right_in_the_pass_before() -> None:
    found = Losses(np.concatenate([np.ones(60), np.linspace(5, 10, 40)]), np.linspace(5, 10, 100))
    given: list[np.ndarray] = []
    last = weights_in_passes(100, lambda turn, weight: given.insert(turn, weight) or found)
    assert given[0].tolist() == [1.0] * 100 and len(given) == PASSES - 1
    for weight in (*given[1:], last):
        assert weight[:60].min() > 0.95 and weight[60:].max() < 0.05


def test_a_loss_is_that_of_a_plain_loop() -> None:
    images, texts, place, _ = correlated(60, wrong=0.2)
    losses = LossesAmongRivals(images, texts, place, seed=0)
    fits, weight = losses.fits, np.ones(len(texts))
    rows = fits.inside[0]
    weight[rows] = 0
    fit = fits.on_all(weight)
    seen, read = fit.likelihoods(0, fits.images), fit.likelihoods(1, fits.texts)
    for row, loss in zip(rows, losses._of_fold(rows, fit)[0], strict=True):
        score = {(p, t): float(seen[p] @ read[t]) / SOFTENED for p in place[rows] for t in rows}
        own, picture = score[place[row], row], place[row]
        rivals = [
            [score[picture, t] for t in rows if place[t] != picture],
            [score[p, row] for p in set(place[rows]) if p != picture],
        ]
        plain = [-math.log(math.exp(own) / (math.exp(own) + sum(map(math.exp, others)))) for others in rivals]
        assert loss == pytest.approx(sum(plain) / 2, abs=1e-4)


def test_what_has_no_rivals_is_recognised_for_sure() -> None:
    nothing = torch.full((3,), -torch.inf)
    assert recognised(torch.tensor([-4.0, 0.0, 3.0]), [nothing, nothing]).tolist() == [0, 0, 0]


@pytest.mark.parametrize("scorer", ["vse_infty", "dive"])
def test_training_begins_with_what_was_measured(tmp_path: Path, bert: str, scorer: str) -> None:
    pairs, truth = mismatch(tiny_pairs(160, 2), ratio=0.4, per="picture", seed=1)
    run = train("ncr+", pairs, tmp_path / "run", **settings(bert, scorer=scorer))
    assert phases(run) == ["trust"] * 3
    found, rows = read_npz(tmp_path / "run" / "division.npz", "training writes it"), pairs.rows("train")
    wrong = np.isin(rows, truth.rows_that_are(WRONG))
    assert roc_auc_score(wrong, found["loss_A"][rows]) > 0.8
    np.testing.assert_array_equal(found["clean_A"][rows], found["clean_B"][rows])
    assert np.isnan(np.delete(found["loss_A"], rows)).all()


def test_a_run_from_one_of_the_closed_form_takes_a_first_round_where_it_is_asked_for(tmp_path: Path, bert: str) -> None:
    pairs, _ = mismatch(tiny_pairs(160, 2), ratio=0.4, seed=1)
    first = train("ncr+", pairs, tmp_path / "first", **settings(bert, epochs=2, measure="auto"))
    second = train("ncr+", pairs, tmp_path / "second", device="cpu", start=first, epochs=2, warm=1)
    assert phases(second) == ["measure", "trust"]


def test_a_stopped_run_goes_on_with_the_same_trust(tmp_path: Path, bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, _ = mismatch(tiny_pairs(120, 2), ratio=0.4, seed=1)
    measured: list[Path] = []
    original = MeasureThenTrust._measure_closed

    def counted(self: MeasureThenTrust, run: Any) -> None:
        original(self, run)
        measured.append(run.folder)

    monkeypatch.setattr(MeasureThenTrust, "_measure_closed", counted)
    whole = train("ncr+", pairs, tmp_path / "whole", **settings(bert))
    step = Trainer._step

    def stopping(self: Trainer, *given: Any) -> None:
        if self.epoch == 1 and self.step == 1:
            self.save()
            raise KeyboardInterrupt
        step(self, *given)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "_step", stopping)
        train("ncr+", pairs, tmp_path / "stopped", **settings(bert))
    resumed = train("ncr+", pairs, tmp_path / "stopped", resume=True, **settings(bert))
    assert measured == [tmp_path / "whole", tmp_path / "stopped"]  # and not once more when it was resumed
    for name, value in whole.matcher.state_dict().items():
        assert torch.equal(value, resumed.matcher.state_dict()[name]), name


@pytest.mark.parametrize("scorer", ["vse_infty", "dive"])
@pytest.mark.parametrize(("measure", "starts"), [("closed", 2), ("networks", 4)])
def test_networks_begin_once_unless_they_measured_in_a_round_of_their_own(
    tmp_path: Path, bert: str, monkeypatch: pytest.MonkeyPatch, scorer: str, measure: str, starts: int
) -> None:
    pairs, begun = tiny_pairs(60, 2), []

    def watched(matcher: Matcher, table: Table, rows: np.ndarray, seed: int) -> None:
        begun.append(rows)
        start_canonically(matcher, table, rows, seed)

    for module in (vse, dive):
        monkeypatch.setattr(module, "start_canonically", watched)
    given = settings(bert, scorer=scorer, projections="canonical", measure=measure, epochs=2)
    train("ncr+", pairs, tmp_path / "run", **given)
    assert len(begun) == starts
    for rows in begun:
        np.testing.assert_array_equal(rows, pairs.rows("train"))


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({}, ["trust", "trust"]),
        ({"sentences": None}, ["measure", "trust"]),
        ({"warm": 1}, ["measure", "trust"]),
        ({"measure": "networks"}, ["measure", "trust"]),
        ({"finetune": True, "pixels": 32, "freeze_epochs": 0, "peers": 1}, ["measure", "trust"]),
    ],
    ids=str,
)
def test_unless_told_otherwise_the_closed_form_measures_wherever_it_can(
    tmp_path: Path, bert: str, closed_forms: list[closed_form.ClosedForm], more: dict[str, Any], names: list[str]
) -> None:
    pairs = tiny_pictures(18) if more.get("finetune") else tiny_pairs(60, 2)
    run = train("ncr+", pairs, tmp_path / "run", **settings(bert, **{"measure": "auto", "epochs": 2, **more}))
    assert phases(run) == names and len(closed_forms) == (0 if "measure" in names else 1)


@pytest.mark.parametrize("measure", ["auto", "closed"])
def test_networks_that_come_from_another_run_measure_other_pairs_unless_the_closed_form_was_asked_for(
    tmp_path: Path, bert: str, closed_forms: list[closed_form.ClosedForm], measure: str
) -> None:
    pairs = tiny_pairs(90, 2)
    first = train("ncr+", pairs, tmp_path / "first", **settings(bert, measure=measure, epochs=1))
    other, _ = mismatch(pairs, ratio=0.4, seed=2)
    second = train("ncr+", other, tmp_path / "second", device="cpu", start=first, epochs=1)
    assert phases(second) == ["trust"] and len(closed_forms) == (1 if measure == "auto" else 2)
    found, rows = read_npz(second.folder / "division.npz", "training writes it"), other.rows("train")
    assert np.isfinite(found["clean_A"][rows]).all()
    alike = np.array_equal(found["loss_A"][rows], found["loss_B"][rows])  # two networks disagree
    assert alike == (measure == "closed")


def test_vectors_are_of_the_items_that_are_trained_on(
    tmp_path: Path, bert: str, closed_forms: list[closed_form.ClosedForm]
) -> None:
    pairs = tiny_pairs(120, 2)
    train("ncr+", pairs, tmp_path / "run", **settings(bert, epochs=1))
    (one,), rows = closed_forms, pairs.rows("train")
    for side, places in ((IMAGE, np.unique(pairs.picture[rows])), (TEXT, rows)):
        lengths = one.vectors[side].norm(dim=1).numpy()
        np.testing.assert_allclose(lengths[places], 1, rtol=1e-5)
        assert not np.delete(lengths, places).any()


def test_without_anything_pretrained_it_is_refused_before_a_folder_is_made(tmp_path: Path, bert: str) -> None:
    for pairs, more, why in (
        (tiny_pairs(), {"sentences": None}, "needs captions read by a sentence encoder, such as sentences=minilm"),
        (tiny_pictures(), {"finetune": True, "backbone": "lite0", "pixels": 32}, "compares stored features"),
        (tiny_pairs(), {"warm": 2}, "so warm=2 means nothing; drop one"),
    ):
        with pytest.raises(BadInput, match=why):
            train("ncr+", pairs, tmp_path / "run", **settings(bert, **more))
        assert not (tmp_path / "run").exists()
