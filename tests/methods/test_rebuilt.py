"""Rebuilt pairs: which trusted pairs are near a doubted item, what an epoch then learns from, and how it goes on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from matchlight.core import IMAGE, TEXT, BadInput, Batch, Embedding, Items
from matchlight.data.noise import mismatch
from matchlight.inputs.batches import LABELLED, collate
from matchlight.inputs.prepare import View, prepare
from matchlight.methods.rebuilt import Found, HowToRebuild, Rebuilding, geometry, learnt_pairs, nearest_pairs
from matchlight.runs.train_run import train
from matchlight.training.contract import Phase
from matchlight.training.registry import Chosen, methods
from matchlight.training.trainer import Trainer
from tests.tiny import tiny_pairs, tiny_settings
from tests.two_processes import together

PICTURES, CAPTIONS = 30, 3
SIZES: dict[str, Any] = {**tiny_settings(methods()["ncr+"].defaults), "epochs": 5, "warm": 2, "batch": 32}


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


@pytest.mark.parametrize("near", ["within", "across", "both"])
@pytest.mark.parametrize(("how", "count"), [("nearest", 1), ("mean", 5), ("attention", 20)])
def test_neighbours_are_those_of_a_plain_loop(how: Any, count: int, near: Any) -> None:
    own, same, other = unit(7, 6), unit(25, 6, seed=1), unit(25, 6, seed=2)
    place, weight = nearest_pairs(own, same, other, how=how, near=near)
    for i, vector in enumerate(own):
        to_same, to_other = [float(vector @ one) for one in same], [float(vector @ one) for one in other]
        both = [(a + b) / 2 for a, b in zip(to_same, to_other, strict=True)]
        score = np.array({"within": to_same, "across": to_other, "both": both}[near])
        best = np.argsort(-score)[:count]
        np.testing.assert_array_equal(place[i], best)
        share = np.exp(score[best] / 0.05) if how == "attention" else np.ones(count)
        np.testing.assert_allclose(weight[i], share / share.sum(), rtol=1e-4)


@pytest.mark.parametrize("how", ["nearest", "mean", "attention"])
def test_a_doubted_pair_is_never_learnt_from(how: Any) -> None:
    vectors, picture, trust = remembered()
    found = HowToRebuild(how).find(vectors, picture, trust)
    assert set(found) == {IMAGE, TEXT}
    for one in found.values():
        assert (trust[one.row] >= 0.5).all()


def test_every_doubted_caption_is_rebuilt_and_every_picture_without_a_trusted_one() -> None:
    vectors, picture, trust = remembered()
    found = HowToRebuild("mean").find(vectors, picture, trust)
    np.testing.assert_array_equal(found[TEXT].item, np.flatnonzero(trust < 0.5))
    wanted = [i for i in range(PICTURES - 1) if not (trust[picture == i] >= 0.5).any()]
    np.testing.assert_array_equal(found[IMAGE].item, wanted)
    assert set(HowToRebuild("mean", "captions").find(vectors, picture, trust)) == {TEXT}
    assert set(HowToRebuild("mean", "pictures").find(vectors, picture, trust)) == {IMAGE}


def test_where_all_or_no_pairs_are_trusted_nothing_is_rebuilt() -> None:
    vectors, picture, trust = remembered()
    assert HowToRebuild("mean").find(vectors, picture, np.ones_like(trust)) == {}
    assert HowToRebuild("mean").find(vectors, picture, np.zeros_like(trust)) == {}


def test_neighbours_are_drawn_as_often_as_they_count() -> None:
    found = Found(np.arange(4000), np.tile([7, 8, 9], (4000, 1)), np.tile([0.5, 0.2, 0.3], (4000, 1)))
    drawn = found.drawn(np.random.default_rng(0))
    assert [(drawn == row).mean() for row in (7, 8, 9)] == pytest.approx([0.5, 0.2, 0.3], abs=0.04)


def test_an_epoch_holds_every_training_row_once_and_lonely_pictures_beside() -> None:
    vectors, picture, trust = remembered()
    rows = np.flatnonzero(~np.isnan(trust))
    found = HowToRebuild("mean").find(vectors, picture, trust)
    pairs = learnt_pairs(found, rows, picture, np.random.default_rng(0))
    own, lonely = pairs[: len(rows)], pairs[len(rows) :]
    np.testing.assert_array_equal(own[:, 1], rows)
    trusted = trust[rows] >= 0.5
    np.testing.assert_array_equal(own[trusted, 0], picture[rows[trusted]])
    for side, moved in ((TEXT, own[~trusted]), (IMAGE, lonely)):
        for (place, caption), candidates in zip(moved, found[side].row, strict=True):
            assert (place in picture[candidates]) if side == TEXT else (caption in candidates)


# ---- batches and weights ---------------------------------------------------------------------------------------------


def begun(folder: Path, *, ratio: float = 0.4, scorer: str = "vse_infty", **more: Any) -> Trainer:
    """A trainer before its first step."""
    pairs, _ = mismatch(tiny_pairs(80, 2), ratio=ratio, seed=1)
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


def test_a_rebuilt_pair_counts_as_much_as_was_asked_for() -> None:
    labelled = torch.tensor([True, True, False, False])
    batch = Batch({}, {"positive": torch.zeros(4, 2, dtype=torch.long)}, torch.arange(4), {LABELLED: labelled})
    trust = torch.tensor([0.9, 0.2, 0.3, 0.8])  # the second was given back its own picture, the fourth a lonely one
    assert Rebuilding(HowToRebuild("mean", weight=0.4)).trust(batch, trust).tolist() == pytest.approx([0.9, *[0.4] * 3])
    alone = Rebuilding(HowToRebuild("mean", "pictures", weight=0.4)).trust(batch, trust)
    assert alone.tolist() == pytest.approx([0.9, 0.2, 0.4, 0.4])


@pytest.mark.parametrize("scorer", ["vse_infty", "dive"])
def test_the_second_round_learns_from_rebuilt_pairs(tmp_path: Path, scorer: str) -> None:
    run = begun(tmp_path, scorer=scorer, rebuild="mean", border="rough")
    run.begin()
    strategy: Any = run.recipe.strategy
    assert all(phase.pairs is None for phase in strategy.phases(run, 0))
    while run.epoch < 4:
        run._epoch()
    phases = strategy.phases(run, 4)
    assert [phase.pairs is not None for phase in phases] == [True, True]
    for phase in phases:
        assert phase.order is not None and phase.pairs is not None
        places = np.concatenate(phase.order(np.random.default_rng(0)))
        np.testing.assert_array_equal(np.sort(places), np.arange(len(phase.pairs)))
        doubted = strategy.rebuilding.found[phase.network][TEXT].item
        assert (strategy.clean[strategy._peer(phase.network)][doubted] < 0.5).all()


def test_a_pass_where_nothing_is_doubted_is_the_very_same(tmp_path: Path) -> None:
    phase, run = Phase(np.arange(4)), SimpleNamespace()
    rebuilding = Rebuilding(HowToRebuild("mean"))
    rebuilding.found = {"A": {}}
    assert rebuilding.phase(run, phase, 0) is phase  # type: ignore[arg-type]
    pairs, _ = mismatch(tiny_pairs(80, 2), ratio=0.4, seed=1)
    given = {**SIZES, "border": "rough", "doubt": 0.0}
    kept = [train("ncr+", pairs, tmp_path / how, device="cpu", rebuild=how, **given) for how in ("none", "mean")]
    for one, other in zip(*(run.matcher.state_dict().values() for run in kept), strict=True):
        assert torch.equal(one, other)


def test_a_stopped_run_ends_with_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**SIZES, "rebuild": "attention", "geometry": 1.0, "border": "rough"}
    pairs, _ = mismatch(tiny_pairs(80, 2), ratio=0.4, seed=1)
    whole = train("ncr+", pairs, tmp_path / "whole", device="cpu", **settings)
    step = Trainer._step

    def stopping(self: Trainer, *given: Any) -> None:
        if self.epoch == 3 and self.step == 1:
            self.save()
            raise KeyboardInterrupt
        step(self, *given)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "_step", stopping)
        train("ncr+", pairs, tmp_path / "stopped", device="cpu", **settings)
    resumed = train("ncr+", pairs, tmp_path / "stopped", device="cpu", resume=True, **settings)
    for name, value in whole.matcher.state_dict().items():
        assert torch.equal(value, resumed.matcher.state_dict()[name]), name


def test_evidence_is_about_the_pairs_of_the_data_alone(tmp_path: Path) -> None:
    run = begun(tmp_path, rebuild="mean", border="rough", peers=1)
    run.begin()
    while run.epoch < 3:
        run._epoch()
    strategy: Any = run.recipe.strategy
    moved = strategy.clean["A"] < 0.5
    assert np.isfinite(run.history[1][run.rows]).sum() > np.isfinite(run.history[2][run.rows]).sum()
    assert np.isfinite(run.history[2][run.rows[~moved[run.rows]]]).all()


def _train_and_tell(rank: int, folder: Path) -> None:
    told: list[np.ndarray] = []
    original = Rebuilding.phase

    def watched(self: Rebuilding, run: Any, phase: Phase, number: int) -> Phase:
        made = original(self, run, phase, number)
        told.extend([] if made.pairs is None else [made.pairs])
        return made

    Rebuilding.phase = watched  # type: ignore[method-assign]
    pairs, _ = mismatch(tiny_pairs(80, 2), ratio=0.4, seed=1)
    train("ncr+", pairs, folder / "run", device="cpu", **{**SIZES, "rebuild": "mean", "border": "rough"})
    np.savez(folder / f"told-{rank}.npz", *told)


def test_two_processes_learn_from_the_same_rebuilt_pairs(tmp_path: Path) -> None:
    together(_train_and_tell, tmp_path)
    one, other = (np.load(tmp_path / f"told-{rank}.npz") for rank in (0, 1))
    assert len(one.files) == 6  # two networks, three epochs
    for name in one.files:
        np.testing.assert_array_equal(one[name], other[name])
    assert "clean_A" in np.load(tmp_path / "run" / "division.npz")


def test_a_run_from_another_rebuilds_from_its_first_step(tmp_path: Path) -> None:
    pairs, _ = mismatch(tiny_pairs(80, 2), ratio=0.4, seed=1)
    first = train("ncr+", pairs, tmp_path / "first", device="cpu", **{**SIZES, "border": "rough"})
    seen: list[bool] = []
    original = Rebuilding.phase

    def watched(self: Rebuilding, run: Any, phase: Phase, number: int) -> Phase:
        seen.append((made := original(self, run, phase, number)).pairs is not None)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rebuilding, "phase", watched)
        more = {"epochs": 1, "relabel": False, "rebuild": "mean"}
        train("ncr+", pairs, tmp_path / "second", device="cpu", start=first, **more)
    assert seen == [True, True]


def test_a_scorer_without_a_vector_of_the_whole_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="this scorer has none; use rebuild=none"):
        train(
            "ncr+",
            tiny_pairs(),
            tmp_path / "run",
            device="cpu",
            scorer="vse++",
            rebuild="mean",
            **{"vse++.measure": "order"},
        )
    assert not (tmp_path / "run").exists()


# ---- geometry --------------------------------------------------------------------------------------------------------


def test_geometry_is_a_plain_loop_over_pairs_of_pairs() -> None:
    images, texts = unit(3, 2, 5), unit(4, 2, 5, seed=1)
    link, trust = [(0, 0), (0, 1), (1, 2), (2, 3)], [1.0, 0.7, 0.5, 0.2]
    batch = Batch(
        {IMAGE: Items(images, None, torch.arange(3)), TEXT: Items(texts, None, torch.arange(4))},
        {"positive": torch.tensor(link)},
        torch.arange(4),
    )
    found = geometry({IMAGE: Embedding(images), TEXT: Embedding(texts)}, batch, torch.tensor(trust))
    one, other = (F.normalize(side.mean(1), dim=1) for side in (images, texts))
    total = weights = 0.0
    for p, (i, t) in enumerate(link):
        for q, (j, u) in enumerate(link):
            if i != j:
                total += trust[p] * trust[q] * float(one[i] @ one[j] - other[t] @ other[u]) ** 2
                weights += trust[p] * trust[q]
    assert_close(found, torch.tensor(total / weights))


def test_a_batch_of_one_picture_has_no_geometry() -> None:
    images, texts = unit(1, 1, 5), unit(2, 1, 5)
    sides = {IMAGE: Items(images, None, torch.arange(1)), TEXT: Items(texts, None, torch.arange(2))}
    batch = Batch(sides, {"positive": torch.tensor([[0, 0], [0, 1]])}, torch.arange(2))
    assert geometry({IMAGE: Embedding(images), TEXT: Embedding(texts)}, batch, torch.ones(2)) == 0
