"""The engine: selection, averaging, early stopping, freezing, evidence, and refusing what cannot be trained."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from matchlight.core import BadInput, Batch
from matchlight.data.fingerprints import fingerprint
from matchlight.files import LOCK, try_lock
from matchlight.inputs.prepare import View, prepare
from matchlight.inputs.text import Vocabulary
from matchlight.runs.evaluation import split_scores
from matchlight.runs.folder import Run
from matchlight.runs.seen import trained_on
from matchlight.runs.train_run import train
from matchlight.training.contract import Phase, Recipe
from matchlight.training.registry import Chosen, methods
from matchlight.training.trainer import Trainer
from tests.tiny import tiny_pairs, tiny_settings

TINY = {"dim": 16, "hidden": 8, "word_dim": 8, "batch": 8, "rate": 2e-3, "preset": "small"}


def trainer(folder: Path, **more: object) -> Trainer:
    inputs = prepare(tiny_pairs(), View("given"), device=torch.device("cpu"))
    method = methods()["vse_infty"]
    settings = {**method.defaults, **{k: v for k, v in TINY.items() if k != "preset"}, "epochs": 2, **more}
    folder.mkdir(exist_ok=True)
    return Trainer(folder, method.build(inputs.sizes, **settings), inputs)


def with_recipe(run: Trainer, **changes: object) -> Recipe:
    run.recipe = replace(run.recipe, **changes)
    return run.recipe


def test_evidence_is_kept_by_row_of_the_whole_table(tmp_path: Path) -> None:
    run = train("vse_infty", tiny_pairs(), tmp_path / "run", device="cpu", epochs=2, **TINY)
    found = np.load(run.folder / "evidence.npy")
    trained = tiny_pairs().rows("train")
    assert found.shape == (2, 48) and found.dtype == np.float16
    assert np.isfinite(found[:, trained]).all() and np.isnan(np.delete(found, trained, 1)).all()


def test_selecting_by_noisy_rows_trains_on_none_of_them(tmp_path: Path) -> None:
    run = trainer(tmp_path / "run", select="noisy")
    pictures = set(run.pairs.picture[run.rows]), set(run.pairs.picture[run.held])
    assert pictures[1] and not pictures[0] & pictures[1]
    assert set(run.pairs.splits[list(pictures[1])]) == {"train"}


def test_the_best_epoch_is_the_one_that_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trainer(tmp_path / "run", epochs=3)
    values = iter([10.0, 30.0, 20.0])
    monkeypatch.setattr(run, "_measure", lambda matcher: {"rsum": next(values)})
    run.fit()
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["epoch"] == 1


def test_patience_ends_a_run_that_no_longer_gains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trainer(tmp_path / "run", epochs=9)
    with_recipe(run, patience=2)
    values = iter([3.0, 2.0, 1.0, 9.0])
    monkeypatch.setattr(run, "_measure", lambda matcher: {"rsum": next(values)})
    run.fit()
    assert len(run.log) == 3


def test_averaged_weights_follow_and_are_what_is_judged(tmp_path: Path) -> None:
    run = trainer(tmp_path / "run", ema=0.9)
    run.fit()
    network = run.networks["A"]
    fast, slow = network.matcher.state_dict(), network.evaluated.state_dict()
    assert network.evaluated is network.average
    assert any(not torch.equal(fast[key], slow[key]) for key in fast)
    close = [(fast[key] - slow[key]).abs().max() for key in fast if fast[key].is_floating_point()]
    assert max(close) < 0.5


def test_a_factor_of_zero_freezes_a_group(tmp_path: Path) -> None:
    run = trainer(tmp_path / "run")
    with_recipe(run, schedule=lambda epoch, step, steps: 0.0 if epoch == 0 else 1.0)
    network = run.networks["A"]
    network.set_rates(0.0)
    assert not any(p.requires_grad for p in network.parameters())
    network.set_rates({"heads": 0.5})
    assert all(p.requires_grad for p in network.parameters())
    assert network.optimiser.param_groups[0]["lr"] == pytest.approx(0.5 * 2e-3)


def test_a_ramp_scales_the_loss_of_its_phase(tmp_path: Path) -> None:
    run = trainer(tmp_path / "run")
    before = {k: v.clone() for k, v in run.networks["A"].matcher.state_dict().items()}
    phase = Phase(rows=run.rows[:8], weight=lambda step, steps: 0.0)
    with_recipe(run, schedule=lambda *a: 1.0)
    run.networks["A"].optimiser.param_groups[0]["weight_decay"] = 0.0
    from matchlight.inputs.batches import collate

    run._step(run.networks["A"], phase, collate(run.table, run.rows[:8]), 1)
    after = run.networks["A"].matcher.state_dict()
    assert all(torch.allclose(before[k], after[k]) for k in before if k.endswith(("weight", "bias")))


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_state(tmp_path: Path) -> None:
    run = trainer(tmp_path / "run")
    run.losses = [torch.tensor(float("nan"))]
    with pytest.raises(BadInput, match="epoch 1 ended in a loss of nan; a smaller rate="):
        run._close_epoch("train", 1.0)


def test_a_lost_state_never_takes_the_place_of_a_good_one(tmp_path: Path) -> None:
    run = trainer(tmp_path / "run")
    run.losses = [torch.tensor(float("nan"))]
    run.save()
    run.writer.flush()
    assert not (tmp_path / "run" / "state").exists()


@pytest.mark.parametrize("steps", [1, 3, 5])
def test_averages_and_the_best_survive_a_kill(steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"epochs": 3, "ema": 0.9, "select": "noisy", "device": "cpu", "seed": -3, **TINY, "batch": 12}
    whole = train("vse_infty", tiny_pairs(), tmp_path / "whole", **settings)
    original, left = Trainer._step, [steps]

    def dies(self: Trainer, *args: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        original(self, *args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "_step", dies)
        patch.setattr(
            "matchlight.training.trainer.time.monotonic", iter(range(0, 10**6, 10)).__next__
        )  # a save at every step
        train("vse_infty", tiny_pairs(), tmp_path / "cut", **settings)
    cut = train("vse_infty", tiny_pairs(), tmp_path / "cut", resume=True, **settings)
    for file in ("model.safetensors", "metrics.json", "evidence.npy"):
        assert (cut.folder / file).read_bytes() == (whole.folder / file).read_bytes()


HARDENING = {
    "vse_infty": {"warm": 1, "harden": 2, "epochs": 4, "loss": "hinge"},
    "sgraf": {"warm": 0, "harden": 2, "epochs": 3, "loss": "hinge", "hardest": True},
    "ncr": {"warm": 1, "harden": 2, "epochs": 4, "scorer": "vse_infty", "dropout": 0.1},
}


def shares(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """The hardness of every step from here on."""
    seen: list[float | None] = []
    original = Trainer._hardened

    def listen(self: Trainer, *args: Any) -> Batch:
        batch = original(self, *args)
        hard = batch.extra.get("hardness")
        assert hard is None or (hard.shape == batch.row.shape and hard.unique().numel() == 1)
        seen.append(None if hard is None else float(hard[0]))
        return batch

    monkeypatch.setattr(Trainer, "_hardened", listen)
    return seen


def test_the_hardest_negative_comes_in_step_by_step_after_the_warm_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = shares(monkeypatch)
    trainer(tmp_path, warm=1, harden=2, epochs=4).fit()
    steps = len(seen) // 4
    assert seen[:steps] + seen[3 * steps :] == [None] * 2 * steps
    assert seen[steps : 3 * steps] == pytest.approx([k / (2 * steps) for k in range(2 * steps)])


def test_without_hardening_no_batch_says_how_hard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = shares(monkeypatch)
    trainer(tmp_path).fit()
    assert set(seen) == {None}


@pytest.mark.parametrize("method", HARDENING)
def test_a_run_stopped_while_it_hardens_ends_with_the_same_weights(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = Chosen.of(methods()[method], {k: v for k, v in HARDENING[method].items() if k == "scorer"})
    settings = {**tiny_settings(chosen.defaults), **HARDENING[method], "select": "last", "device": "cpu"}
    whole = train(method, tiny_pairs(), tmp_path / "whole", **settings)
    step = Trainer._step

    def stopping(self: Trainer, *given: Any) -> None:
        if (self.epoch, self.step) == (1, 1) and self.phase + 1 == len(self.networks):
            self.save()
            raise KeyboardInterrupt
        step(self, *given)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "_step", stopping)
        train(method, tiny_pairs(), tmp_path / "cut", **settings)
    seen = shares(monkeypatch)
    cut = train(method, tiny_pairs(), tmp_path / "cut", resume=True, **settings)
    assert seen[0] is not None and 0 < seen[0] < 1
    assert_close(cut.matcher.state_dict(), whole.matcher.state_dict(), atol=0, rtol=0)
    settings["harden"] = 0
    other = train(method, tiny_pairs(), tmp_path / "other", **settings)
    assert (other.folder / "model.safetensors").read_bytes() != (whole.folder / "model.safetensors").read_bytes()


def test_holding_rows_out_of_a_single_picture_leaves_nothing_to_learn_from(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="after holding some out"):
        train("vse_infty", tiny_pairs(pictures=1, held=0), tmp_path / "run", device="cpu", select="noisy", **TINY)
    assert not (tmp_path / "run").exists()


def test_without_a_val_split_the_last_epoch_is_kept(tmp_path: Path) -> None:
    train("vse_infty", tiny_pairs(held=0), tmp_path / "run", device="cpu", epochs=2, **TINY)
    kept = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert kept["epoch"] == 1 and kept["val"] is None


def test_a_resumed_run_keeps_the_words_it_began_with(tmp_path: Path) -> None:
    small = {"device": "cpu", "epochs": 1, "preset": "small", "dim": 8}
    first = train("vse++", tiny_pairs(), tmp_path / "a", **small)
    words = {**first.vocabulary.ids}
    words["zebra"] = words.pop("pig")
    first.vocabulary = Vocabulary(words)
    train("vse++", tiny_pairs(), tmp_path / "b", start=first, **small)
    other = Run.load(tmp_path / "a", device="cpu")  # which has its words of before
    again = train("vse++", tiny_pairs(), tmp_path / "b", start=other, resume=True, **small)
    assert again.vocabulary.ids == words


def test_a_run_folder_is_not_overwritten(tmp_path: Path) -> None:
    train("vse++", tiny_pairs(), tmp_path / "run", device="cpu", epochs=1, preset="small", dim=8)
    with pytest.raises(BadInput, match="--resume"):
        train("vse++", tiny_pairs(), tmp_path / "run", device="cpu", epochs=1, preset="small", dim=8)
    with pytest.raises(BadInput, match="arguments"):
        train("vse++", tiny_pairs(), tmp_path / "run", device="cpu", epochs=2, preset="small", dim=8, resume=True)


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="not empty"):
        train("vse++", tiny_pairs(), tmp_path, device="cpu", epochs=1, preset="small")
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_resume_on_an_empty_folder_starts_afresh(tmp_path: Path) -> None:
    run = train("vse++", tiny_pairs(), tmp_path / "run", device="cpu", epochs=1, preset="small", dim=8, resume=True)
    assert (run.folder / "model.safetensors").exists()


def test_a_run_may_start_from_another_runs_weights(tmp_path: Path) -> None:
    first = train("vse++", tiny_pairs(), tmp_path / "a", device="cpu", epochs=1, preset="small", dim=8)
    frozen = {"epochs": 1, "preset": "small", "dim": 8, "rate": 1e-12}
    second = train("vse++", tiny_pairs(), tmp_path / "b", device="cpu", start=first, **frozen)
    assert np.allclose(split_scores(first, tiny_pairs(), "test"), split_scores(second, tiny_pairs(), "test"))
    with pytest.raises(BadInput, match="do not fit"):
        train("vse++", tiny_pairs(), tmp_path / "c", device="cpu", start=first, epochs=1, preset="small", dim=16)
    assert not (tmp_path / "c").exists()


def test_a_run_goes_on_only_from_the_weights_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"device": "cpu", "epochs": 1, "preset": "small", "dim": 8}
    first = train("vse++", tiny_pairs(seed=1), tmp_path / "first", **small)
    other = train("vse++", tiny_pairs(seed=1), tmp_path / "other", seed=1, **small)
    whole = train("vse++", tiny_pairs(), tmp_path / "whole", start=first, **small)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "fit", _killed)
        train("vse++", tiny_pairs(), tmp_path / "cut", start=first, **small)
    before = {file: file.read_bytes() for file in (tmp_path / "cut").rglob("*") if file.is_file()}
    with pytest.raises(BadInput, match=r"give it --from again \(first, a run of vse"):
        train("vse++", tiny_pairs(), tmp_path / "cut", resume=True, **small)
    with pytest.raises(BadInput, match=r"\(start differ\).*same --from"):
        train("vse++", tiny_pairs(), tmp_path / "cut", start=other, resume=True, **small)
    assert before == {file: file.read_bytes() for file in (tmp_path / "cut").rglob("*") if file.is_file()}
    (tmp_path / "first").rename(tmp_path / "moved")  # known by its weights, not by its name
    cut = train("vse++", tiny_pairs(), tmp_path / "cut", start=Run.load(tmp_path / "moved"), resume=True, **small)
    for file in ("model.safetensors", "seen.npy"):
        assert (cut.folder / file).read_bytes() == (whole.folder / file).read_bytes()
    assert trained_on(cut.folder, tiny_pairs(seed=1), tiny_pairs(seed=1).rows("train")).all()
    with pytest.raises(BadInput, match="--from"):  # a run that is done has a checkpoint, and is refused all the same
        train("vse++", tiny_pairs(), tmp_path / "cut", resume=True, **small)


def _killed(self: Trainer) -> None:
    raise KeyboardInterrupt


def test_a_run_begun_without_another_takes_none_later(tmp_path: Path) -> None:
    small = {"device": "cpu", "epochs": 1, "preset": "small", "dim": 8}
    first = train("vse++", tiny_pairs(), tmp_path / "first", **small)
    run = train("vse++", tiny_pairs(), tmp_path / "run", **small)
    with pytest.raises(BadInput, match="start differ"):
        train("vse++", tiny_pairs(), tmp_path / "run", start=first, resume=True, **small)
    told = json.loads((run.folder / "recipe.json").read_text())
    assert told.pop("start") is None
    (run.folder / "recipe.json").write_text(json.dumps(told))  # as it was written before recipes told of it
    seen = (run.folder / "seen.npy").read_bytes()
    train("vse++", tiny_pairs(), tmp_path / "run", resume=True, **small)
    assert (run.folder / "seen.npy").read_bytes() == seen


def test_a_recipe_that_is_no_recipe_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text("[]")
    with pytest.raises(BadInput, match=r"recipe\.json: not a recipe"):
        train("vse++", tiny_pairs(), tmp_path, device="cpu", epochs=1, preset="small", dim=8, resume=True)
    assert [file.name for file in tmp_path.iterdir()] == ["recipe.json"]


def test_a_set_without_anything_to_learn_from_is_one_clear_line(tmp_path: Path) -> None:
    alone = tiny_pairs().subset("test")
    with pytest.raises(BadInput, match="no train split"):
        train("vse++", alone, tmp_path / "run", device="cpu")


def test_features_of_another_length_are_told_apart(tmp_path: Path) -> None:
    run = train("vse++", tiny_pairs(), tmp_path / "run", device="cpu", epochs=1, preset="small", dim=8)
    with pytest.raises(BadInput, match="trained on 12"):
        split_scores(run, tiny_pairs(dim=7), "test")
    vectors = replace(tiny_pairs(), text_features=np.zeros((48, 5), dtype=np.float32))
    with pytest.raises(BadInput, match="trained on words"):
        split_scores(run, vectors, "test")
    with pytest.raises(BadInput, match="no captions"):
        split_scores(run, tiny_pairs().select(np.arange(24), np.arange(36)), "test")


@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_what_is_no_run_is_one_clear_line(folder: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not a run folder"):
        Run.load(tmp_path / folder)


def test_a_run_without_its_words_or_with_a_broken_recipe_is_one_clear_line(tmp_path: Path) -> None:
    run = train("vse++", tiny_pairs(), tmp_path / "run", device="cpu", epochs=1, preset="small", dim=8)
    (run.folder / "vocab.json").unlink()
    with pytest.raises(BadInput, match="own words"):
        Run.load(run.folder, device="cpu")
    (run.folder / "recipe.json").write_text('{"name": "vse++"}')
    with pytest.raises(BadInput, match="not a recipe"):
        Run.load(run.folder, device="cpu")


def test_two_processes_never_train_into_one_folder(tmp_path: Path) -> None:
    with try_lock(tmp_path / "run"), pytest.raises(BadInput, match="another process is training into it"):
        train("vse++", tiny_pairs(), tmp_path / "run", device="cpu", epochs=1, preset="small", dim=8)
    (tmp_path / "run" / LOCK).write_text("left by a process that was killed")
    run = train("vse++", tiny_pairs(), tmp_path / "run", device="cpu", epochs=1, preset="small", dim=8)
    assert not (run.folder / LOCK).exists()


def test_evidence_of_a_row_seen_twice_is_the_mean(tmp_path: Path) -> None:
    run = trainer(tmp_path / "run")
    run.seen = [(torch.tensor([0, 3]), torch.tensor([1.0, 2.0])), (torch.tensor([3]), torch.tensor([4.0]))]
    run._remember_evidence()
    assert run.history[-1][[0, 3]].tolist() == [1.0, 3.0] and np.isnan(run.history[-1][1])


def test_a_run_knows_the_pairs_it_was_trained_on_in_any_version_of_the_data(tmp_path: Path) -> None:
    pairs = tiny_pairs()
    run = train("vse++", pairs, tmp_path / "run", device="cpu", preset="small", epochs=1, dim=8, word_dim=8, batch=8)
    rows = np.arange(len(pairs))
    learnt = np.isin(rows, pairs.rows("train"))
    assert (trained_on(run.folder, pairs, rows) == learnt).all()
    changed = replace(pairs, captions=["new words", *pairs.captions[1:]])
    assert (trained_on(run.folder, changed, rows) == (learnt & (rows > 0))).all()
    renamed = replace(pairs, names=[f"other {name}" for name in pairs.names])
    assert fingerprint(renamed) != fingerprint(pairs) and not trained_on(run.folder, renamed, rows).any()
