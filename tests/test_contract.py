"""One battery for every recipe: being listed is enough to be tested."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from matchlight.core import IMAGE, TEXT, Items, Matcher
from matchlight.inputs.batches import collate
from matchlight.inputs.prepare import Inputs, prepare
from matchlight.runs.evaluation import evaluate
from matchlight.runs.folder import Run
from matchlight.runs.train_run import train
from matchlight.scoring.all_pairs import score_all
from matchlight.scoring.encode import encode_both
from matchlight.training.network import Network, score_batch, whole_batch
from matchlight.training.registry import methods
from matchlight.training.trainer import Trainer
from tests.tiny import pairs_for, tiny_settings, view_for
from tests.two_processes import alone_and_together

NAMES = sorted(methods())
CPU = torch.device("cpu")


def ready(name: str, **more: object) -> tuple[Inputs, Network]:
    """A tiny network of a recipe on tiny data."""
    inputs = prepare(pairs_for(name), view_for(name), device=CPU)
    method = methods()[name]
    recipe = method.build(inputs.sizes, **{**method.defaults, **tiny_settings(method.defaults), **more})
    return inputs, Network(recipe, seed=0, device=CPU)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def all_scores(matcher: Matcher, inputs: Inputs, **options: int) -> np.ndarray:
    pairs = inputs.table.pairs
    images, texts = encode_both(matcher, inputs.table, np.arange(len(pairs.names)), np.arange(len(pairs)), **options)
    return score_all(matcher, images, texts)


def widen(items: Items, more: int) -> Items:
    """The same items with padding behind them."""
    room = items.x.new_zeros(len(items), more, *items.x.shape[2:])
    real = torch.ones(items.x.shape[:2], dtype=torch.bool) if items.mask is None else items.mask
    mask = torch.cat([real, torch.zeros(len(items), more, dtype=torch.bool)], 1)
    return replace(items, x=torch.cat([items.x, room], 1), mask=mask)


@torch.no_grad()
def test_padding_changes_nothing(name: str) -> None:
    inputs, network = ready(name)
    matcher = network.matcher.eval()
    images, texts = inputs.table.items(IMAGE, np.arange(6)), inputs.table.items(TEXT, np.arange(12))
    more = images if inputs.table.pixels else widen(images, 2)
    plain = matcher.score(matcher.embed(IMAGE, images), matcher.embed(TEXT, texts))
    padded = matcher.score(matcher.embed(IMAGE, more), matcher.embed(TEXT, widen(texts, 3)))
    if matcher.depends_on_padding:
        assert (plain - padded).abs().max() > 1e-6
    else:
        assert_close(padded, plain, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_an_item_scores_alone_as_in_company(name: str) -> None:
    inputs, network = ready(name)
    matcher = network.matcher.eval()
    whole = all_scores(matcher, inputs)
    alone = all_scores(matcher, inputs, batch=1)
    np.testing.assert_allclose(alone, whole, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_blocks_give_what_the_whole_gives(name: str) -> None:
    inputs, network = ready(name)
    matcher = network.matcher.eval()
    images, texts = encode_both(matcher, inputs.table, np.arange(7), np.arange(12))
    whole = score_all(matcher, images, texts, budget=1 << 30)
    np.testing.assert_allclose(score_all(matcher, images, texts, budget=1), whole, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_pair_by_pair_scores_are_those_of_the_matrix(name: str) -> None:
    inputs, network = ready(name)
    matcher = network.matcher.eval()
    images, texts = encode_both(matcher, inputs.table, np.arange(8), np.arange(8))
    assert_close(matcher.score_pairs(images, texts), matcher.score(images, texts).diagonal(), atol=1e-5, rtol=1e-4)


def loss_of(network: Network, inputs: Inputs, rows: np.ndarray) -> torch.Tensor:
    batch = collate(inputs.table, rows, repeat=network.plan.siblings == "negatives")
    embeddings, batch = whole_batch(network.matcher, batch)
    scores = score_batch(network.matcher, embeddings, batch, matrix=network.objective.needs_matrix)
    return network.objective.total(network.objective(scores, embeddings, batch))


@torch.no_grad()
def test_the_order_of_rows_does_not_change_the_loss(name: str) -> None:
    inputs, network = ready(name)
    network.matcher.eval()
    network.objective.eval()
    rows = np.arange(12)
    assert_close(loss_of(network, inputs, rows), loss_of(network, inputs, rows[::-1].copy()), atol=1e-5, rtol=1e-4)


def test_a_gradient_reaches_every_parameter(name: str) -> None:
    inputs, network = ready(name)
    network.matcher.train()
    torch.manual_seed(0)
    learned = [*network.matcher.named_parameters(), *network.objective.named_parameters()]
    with torch.no_grad():  # off the start, where a block that begins as the identity hides what is inside it
        for _, p in learned:
            p.add_(0.05 * torch.randn_like(p))
    loss_of(network, inputs, np.arange(24)).backward()
    idle = [key for key, p in learned if p.grad is None or not p.grad.abs().sum() > 0]
    assert not idle


def quick(name: str, folder: Path, **more: object) -> Run:
    settings = {**tiny_settings(methods()[name].defaults), **more}
    options = {key: settings.pop(key) for key in ("seed", "resume", "save_minutes") if key in settings}
    return train(name, pairs_for(name), folder, device="cpu", preset="small", **options, **settings)


def weights(run: Run) -> bytes:
    return (run.folder / "model.safetensors").read_bytes()


def test_a_run_comes_back_from_its_folder(name: str, tmp_path: Path) -> None:
    run = quick(name, tmp_path / "run")
    again = Run.load(tmp_path / "run", device="cpu")
    assert evaluate(run, pairs_for(name), "test") == evaluate(again, pairs_for(name), "test")
    for file in ("recipe.json", "log.jsonl", "metrics.json", "evidence.npy", "vocab.json"):
        assert (tmp_path / "run" / file).exists() or (file == "vocab.json" and run.vocabulary is None)
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in log] == list(range(len(log)))


def test_a_seed_decides_everything(name: str, tmp_path: Path) -> None:
    first = quick(name, tmp_path / "a", epochs=1)
    assert weights(first) == weights(quick(name, tmp_path / "b", epochs=1))
    assert weights(first) != weights(quick(name, tmp_path / "c", epochs=1, seed=1))


def test_a_killed_run_goes_on_to_the_same_weights(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = quick(name, tmp_path / "whole")
    original, left = Trainer._step, [4]

    def dies(self: Trainer, *args: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        original(self, *args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "_step", dies)
        quick(name, tmp_path / "cut", save_minutes=0.0)
    resumed = quick(name, tmp_path / "cut", resume=True)
    assert weights(resumed) == weights(whole)
    log = [json.loads(line) for line in (tmp_path / "cut" / "log.jsonl").read_text().splitlines()]
    assert [line["resumed_from_step"] for line in log if "resumed_from_step" in line] == [4]


LEARN_QUICKLY = (  # half of the epochs are enough for these, and all that take long are among them
    "dccae deep_sm dscmr dual imram lantern mrl ncr pcme pvse saf sdml semantic_sharing sgraf vse++ vse_infty vsrn"
).split()


def test_eight_pairs_can_be_learnt_by_heart(name: str, tmp_path: Path) -> None:
    pairs = pairs_for(name, pictures=8, captions=1, held=0)
    epochs = 30 if name in LEARN_QUICKLY else 60
    longer = {"epochs": epochs, "rate": 1e-2, "dim": 32, "select": "last", "decay_every": 60, "drop_epoch": 60}
    longer |= {
        "warm": epochs // 4,
        "dropout": 0.0,
        "sim_dim": 16,
    }  # SGR: so few steps are too few for hard negatives at once
    longer |= {"hidden": 32, "text_rate": 1e-2} | ({"halve_every": 60, "rate": 5e-2} if name == "fgcrossnet" else {})
    known = {key: value for key, value in longer.items() if key in methods()[name].defaults}
    settings = {**tiny_settings(methods()[name].defaults), **known}
    run = train(name, pairs, tmp_path / "run", device="cpu", preset="small", **settings)
    if "labels" in methods()[name].needs:  # such a method need not tell items of one class apart
        report = evaluate(run, pairs, "train")
        assert report["map"]["i2t"] >= 0.9 and report["map"]["t2i"] >= 0.9
        return
    report = evaluate(run, pairs, "train", protocol="recall")
    assert report["i2t"]["r1"] >= 75 and report["t2i"]["r1"] >= 75


@pytest.fixture(scope="session")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[float]]]:
    """Losses of every recipe over 12 steps, by one process and by two; one pair of processes serves all recipes."""
    shared = tmp_path_factory.getbasetemp()
    folder = (shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared) / "processes"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:  # test workers share the result: the first makes it, the others wait
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "losses.json").exists():
            (folder / "losses.json").write_text(json.dumps(alone_and_together(folder, NAMES)))
    return json.loads((folder / "losses.json").read_text())


def test_two_processes_take_the_steps_of_one(name: str, two_processes: dict[str, list[list[float]]]) -> None:
    one, two = two_processes[name]
    assert len(one) == 12
    tolerance = 1e-3 if name == "bfan" else 1e-5  # BFAN's gate is a step: the last bit of a score may open or shut it
    np.testing.assert_allclose(two, one, rtol=tolerance, atol=1e-6)
