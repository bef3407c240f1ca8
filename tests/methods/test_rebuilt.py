"""Rebuilt pairs: which trusted pairs are near a doubted item, what an epoch then learns from, and how it goes on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from matchlight.core import IMAGE, TEXT, BadInput, Batch
from matchlight.data.noise import mismatch
from matchlight.inputs.batches import LABELLED, collate
from matchlight.inputs.prepare import View, prepare
from matchlight.methods import ncr_plus
from matchlight.methods.rebuilt import Found, Rebuilding, find, nearest_pairs
from matchlight.runs.train_run import train
from matchlight.training.contract import Phase
from matchlight.training.registry import Chosen, methods
from matchlight.training.trainer import Trainer
from tests.tiny import tiny_pairs, tiny_settings
from tests.two_processes import together

PICTURES, CAPTIONS, RATIO = 30, 3, 0.4
SIZES: dict[str, Any] = {**tiny_settings(methods()["ncr+"].defaults), "epochs": 5, "warm": 2, "batch": 32}


@pytest.fixture
def share_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many pairs are wrong, which the few pictures aside of tiny data cannot tell."""
    monkeypatch.setattr(ncr_plus, "share_of_wrong", lambda losses, mismatched: RATIO)


def unit(*size: int, seed: int = 0) -> torch.Tensor:
    return F.normalize(torch.randn(*size, generator=torch.Generator().manual_seed(seed)), dim=-1)


def remembered() -> tuple[dict[str, torch.Tensor], np.ndarray, np.ndarray]:
    """Vectors of all items, the picture of each caption, and a trust of each: some pictures have none to trust."""
    picture = np.repeat(np.arange(PICTURES), CAPTIONS)
    trust = np.random.default_rng(0).random(len(picture))
    trust[picture < 5] = 0.1
    trust[-CAPTIONS:] = np.nan  # of another split
    return {IMAGE: unit(PICTURES, 8), TEXT: unit(len(picture), 8, seed=1)}, picture, trust


# ---- who is near -----------------------------------------------------------------------------------------------------


def test_neighbours_are_those_of_a_plain_loop() -> None:
    captions, texts, images = unit(7, 6), unit(25, 6, seed=1), unit(25, 6, seed=2)
    place, weight = nearest_pairs(captions, texts, images)
    for i, vector in enumerate(captions):
        score = np.array([(float(vector @ a) + float(vector @ b)) / 2 for a, b in zip(texts, images, strict=True)])
        best = np.argsort(-score)[:20]
        np.testing.assert_array_equal(place[i], best)
        share = np.exp(score[best] / 0.05)
        np.testing.assert_allclose(weight[i], share / share.sum(), rtol=1e-4)


def test_every_doubted_caption_finds_pairs_that_are_trusted() -> None:
    vectors, picture, trust = remembered()
    found = find(vectors, picture, trust)
    assert found is not None
    np.testing.assert_array_equal(found.caption, np.flatnonzero(trust < 0.5))
    assert (trust[found.row] >= 0.5).all()


def test_where_all_or_no_pairs_are_trusted_nothing_is_rebuilt() -> None:
    vectors, picture, trust = remembered()
    assert find(vectors, picture, np.ones_like(trust)) is None
    assert find(vectors, picture, np.zeros_like(trust)) is None
    assert find({}, picture, trust) is None


def test_neighbours_are_drawn_as_often_as_they_count() -> None:
    found = Found(np.arange(4000), np.tile([7, 8, 9], (4000, 1)), np.tile([0.5, 0.2, 0.3], (4000, 1)))
    drawn = found.drawn(np.random.default_rng(0))
    assert [(drawn == row).mean() for row in (7, 8, 9)] == pytest.approx([0.5, 0.2, 0.3], abs=0.04)


def test_only_doubted_captions_are_given_another_picture() -> None:
    vectors, picture, trust = remembered()
    rebuilding, found = Rebuilding(asked=True), find(vectors, picture, trust)
    assert found is not None
    rebuilding.found["A"] = found
    run: Any = SimpleNamespace(seed=0, epoch=3, pairs=SimpleNamespace(picture=picture))
    given = rebuilding.phase(run, Phase(np.arange(8)), 0).pictures
    assert given is not None
    kept = np.setdiff1d(np.arange(len(picture)), found.caption)
    np.testing.assert_array_equal(given[kept], picture[kept])
    for place, candidates in zip(given[found.caption], found.row, strict=True):
        assert place in picture[candidates]


# ---- batches and weights ---------------------------------------------------------------------------------------------


def begun(folder: Path, *, scorer: str = "vse_infty", **more: Any) -> Trainer:
    """A trainer before its first step."""
    pairs, _ = mismatch(tiny_pairs(80, 2), ratio=RATIO, seed=1)
    chosen = Chosen.of(methods()["ncr+"], {"scorer": scorer})
    given = {**chosen.defaults, **tiny_settings(chosen.defaults), "epochs": 5, "warm": 2, "batch": 32}
    inputs = prepare(pairs, View("given"), device=torch.device("cpu"))
    return Trainer(folder, chosen.build(inputs.sizes, **{**given, "scorer": scorer, **more}), inputs)


def test_captions_of_a_rebuilt_batch_belong_to_the_pictures_they_were_given(tmp_path: Path) -> None:
    run = begun(tmp_path)
    rows, pictures = run.rows[:4], run.pairs.picture[run.rows[[0, 4, 4, 3]]]
    batch = collate(run.table, rows, pictures=pictures)
    linked = batch.sides[IMAGE].id[batch.positive[:, 0]]
    assert linked.tolist() == batch.sides[TEXT].extra["picture"].tolist() == pictures.tolist()
    assert batch.extra[LABELLED].tolist() == (pictures == run.pairs.picture[rows]).tolist()
    assert LABELLED not in collate(run.table, rows).extra


def test_a_rebuilt_pair_counts_half() -> None:
    trust = torch.tensor([0.9, 0.2, 0.3, 0.8])  # the second was given back its own picture
    links = {"positive": torch.zeros(4, 2, dtype=torch.long)}
    batch = Batch({}, links, torch.arange(4), {LABELLED: torch.tensor([True, True, False, True])})
    rebuilding = Rebuilding(asked=True)
    assert rebuilding.trust(batch, trust).tolist() == pytest.approx([0.9, 0.5, 0.5, 0.8])
    assert rebuilding.trust(Batch({}, links, torch.arange(4)), trust) is trust


@pytest.mark.usefixtures("share_known")
@pytest.mark.parametrize("scorer", ["vse_infty", "dive"])
def test_the_second_round_learns_from_rebuilt_pairs(tmp_path: Path, scorer: str) -> None:
    run = begun(tmp_path, scorer=scorer)
    run.begin()
    strategy: Any = run.recipe.strategy
    assert all(phase.pictures is None for phase in strategy.phases(run, 0))
    while run.epoch < 4:
        run._epoch()
    for phase in strategy.phases(run, 4):
        moved = phase.pictures != run.pairs.picture
        assert moved.any()
        assert (strategy.clean[moved] < 0.5).all()
        batch = strategy.before_step(run, phase, collate(run.table, run.rows, pictures=phase.pictures[run.rows]))
        doubted = strategy.clean[run.rows] < 0.5
        np.testing.assert_array_equal(batch.extra["trust"].numpy()[doubted], 0.5)


def test_a_pass_where_nothing_is_doubted_is_the_very_same() -> None:
    phase, run = Phase(np.arange(4)), SimpleNamespace()
    rebuilding = Rebuilding(asked=True)
    rebuilding.found = {"A": None}
    assert rebuilding.phase(run, phase, 0) is phase  # type: ignore[arg-type]


def test_unless_asked_pairs_are_rebuilt_from_features_alone() -> None:
    for pixels in (True, False):
        run: Any = SimpleNamespace(table=SimpleNamespace(pixels=pixels))
        assert Rebuilding(asked=None).wanted(run) is not pixels
        assert Rebuilding(asked=True).wanted(run)
        assert not Rebuilding(asked=False).wanted(run)


@pytest.mark.usefixtures("share_known")
@pytest.mark.parametrize("epoch", [1, 3])
def test_a_run_stopped_in_either_round_ends_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epoch: int
) -> None:
    pairs, _ = mismatch(tiny_pairs(80, 2), ratio=RATIO, seed=1)
    whole = train("ncr+", pairs, tmp_path / "whole", device="cpu", **SIZES)
    step = Trainer._step

    def stopping(self: Trainer, *given: Any) -> None:
        if self.epoch == epoch and self.step == 1:
            self.save()
            raise KeyboardInterrupt
        step(self, *given)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "_step", stopping)
        train("ncr+", pairs, tmp_path / "stopped", device="cpu", **SIZES)
    resumed = train("ncr+", pairs, tmp_path / "stopped", device="cpu", resume=True, **SIZES)
    for name, value in whole.matcher.state_dict().items():
        assert torch.equal(value, resumed.matcher.state_dict()[name]), name


@pytest.mark.usefixtures("share_known")
def test_evidence_is_about_the_pairs_of_the_data_alone(tmp_path: Path) -> None:
    run = begun(tmp_path, peers=1)
    run.begin()
    while run.epoch < 3:
        run._epoch()
    strategy: Any = run.recipe.strategy
    moved = strategy.clean < 0.5
    assert np.isfinite(run.history[1][run.rows]).sum() > np.isfinite(run.history[2][run.rows]).sum()
    assert np.isfinite(run.history[2][run.rows[~moved[run.rows]]]).all()


def _train_and_tell(rank: int, folder: Path) -> None:
    told: list[np.ndarray] = []
    original = Rebuilding.phase

    def watched(self: Rebuilding, run: Any, phase: Phase, number: int) -> Phase:
        made = original(self, run, phase, number)
        told.extend([] if made.pictures is None else [made.pictures])
        return made

    Rebuilding.phase = watched  # type: ignore[method-assign]
    ncr_plus.share_of_wrong = lambda losses, mismatched: RATIO  # type: ignore[assignment]
    pairs, _ = mismatch(tiny_pairs(80, 2), ratio=RATIO, seed=1)
    train("ncr+", pairs, folder / "run", device="cpu", **SIZES)
    np.savez(folder / f"told-{rank}.npz", *told)


def test_two_processes_learn_from_the_same_rebuilt_pairs(tmp_path: Path) -> None:
    together(_train_and_tell, tmp_path)
    one, other = (np.load(tmp_path / f"told-{rank}.npz") for rank in (0, 1))
    assert len(one.files) == 6  # two networks, three epochs
    for name in one.files:
        np.testing.assert_array_equal(one[name], other[name])
    assert "clean_A" in np.load(tmp_path / "run" / "division.npz")


@pytest.mark.usefixtures("share_known")
def test_a_run_from_another_rebuilds_from_its_first_step(tmp_path: Path) -> None:
    pairs, _ = mismatch(tiny_pairs(80, 2), ratio=RATIO, seed=1)
    first = train("ncr+", pairs, tmp_path / "first", device="cpu", **SIZES)
    seen: list[bool] = []
    original = Rebuilding.phase

    def watched(self: Rebuilding, run: Any, phase: Phase, number: int) -> Phase:
        seen.append((made := original(self, run, phase, number)).pictures is not None)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rebuilding, "phase", watched)
        train("ncr+", pairs, tmp_path / "second", device="cpu", start=first, epochs=1)
    assert seen == [True, True]


@pytest.mark.usefixtures("share_known")
def test_a_scorer_without_a_vector_of_the_whole_rebuilds_nothing_and_says_so_when_asked(tmp_path: Path) -> None:
    pairs, _ = mismatch(tiny_pairs(80, 2), ratio=RATIO, seed=1)
    given = {"scorer": "vse++", "vse++.measure": "order", "epochs": 4, "warm": 2, "batch": 32}
    with pytest.raises(BadInput, match="this scorer has none; leave it out"):
        train("ncr+", pairs, tmp_path / "run", device="cpu", rebuild=True, **given)
    assert not (tmp_path / "run").exists()
    kept = [
        train("ncr+", pairs, tmp_path / str(asked), device="cpu", rebuild=asked, **given).matcher.state_dict().values()
        for asked in (None, False)
    ]
    for one, other in zip(*kept, strict=True):
        assert torch.equal(one, other)
