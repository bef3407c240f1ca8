"""A joint model as a run: with no training, tuned, below other methods; it needs nothing but its own folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn, tensor
from torch.testing import assert_close

from matchlight.core import IMAGE, TEXT, BadInput, Batch, Embedding, Items, Scores
from matchlight.indexing import Index
from matchlight.methods.dual import Contrastive, Dual, ScaledCosine, Sigmoid, brought_back, warmed_cosine
from matchlight.methods.dual_files import published_weights
from matchlight.runs.embeddings import export
from matchlight.runs.evaluation import evaluate, split_scores
from matchlight.runs.folder import Run
from matchlight.runs.importing import import_joint_model, merge_adapters
from matchlight.runs.train_run import train
from matchlight.training.trainer import Trainer
from tests.joint import KINDS, make
from tests.tiny import tiny_pairs, tiny_pictures

pytest.importorskip("transformers")
QUICK = {"epochs": 2, "batch": 8, "rate": 1e-3, "device": "cpu", "preset": "small"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {kind: f"hf:{make(kind, tmp_path_factory.mktemp(kind))}" for kind in KINDS}


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest, models: dict[str, str]) -> str:
    return models[request.param]


def moved(model: str, to: Path) -> str:
    """A copy that a test may take away again."""
    return f"hf:{shutil.copytree(model[3:], to)}"


# ---- with no training ------------------------------------------------------------------------------------------------


def test_an_imported_model_is_a_run_like_any_other(model: str, tmp_path: Path) -> None:
    there, pairs = moved(model, tmp_path / "there"), tiny_pictures()
    before = split_scores(import_joint_model(there, tmp_path / "run"), pairs, "test")
    shutil.rmtree(there[3:])  # its folder is all it needs
    run = Run.load(tmp_path / "run", device="cpu")
    np.testing.assert_array_equal(split_scores(run, pairs, "test"), before)
    assert evaluate(run, pairs, "test")["pictures"] == 6
    export(run, pairs, tmp_path / "vectors.npz")
    with np.load(tmp_path / "vectors.npz") as file:
        np.testing.assert_allclose(np.linalg.norm(file["image"][:, 0], axis=1), 1, atol=1e-5)
    index = Index.build(run, pairs, tmp_path / "index")
    shutil.rmtree(tmp_path / "run")  # and an index is by itself, too
    found = Index.load(tmp_path / "index").search("a dog near cat", top=3)
    assert Index.load(tmp_path / "index").explain(0, "a dog")["words"]
    assert len(found.hits) == 3 and len(index.search(image=pairs.pictures.open(0), top=2).hits) == 2


def test_a_recipe_says_what_was_imported_and_names_no_place(models: dict[str, str], tmp_path: Path) -> None:
    import_joint_model(models["clip"], tmp_path / "run")
    said = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert said["preset"] == "imported" and said["imported"]["files"] == ["model.safetensors"]
    assert str(tmp_path / "run") not in json.dumps(said)


def test_features_alone_are_refused_in_one_line(models: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="needs pictures, and this set has only features"):
        train("dual", tiny_pairs(), tmp_path / "run", model=models["clip"], **QUICK)
    with pytest.raises(BadInput, match="model=hf:NAME"):
        train("dual", tiny_pictures(), tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()


# ---- tuned -----------------------------------------------------------------------------------------------------------


def changed(run: Run, model: str) -> set[str]:
    """The published weights that a run does not hold any more as they were."""
    start, now = published_weights(Dual(model=model).opened), run.matcher.state_dict()
    return {name for name, value in start.items() if not torch.equal(now[name], value)}


def test_all_weights_are_tuned(model: str, tmp_path: Path) -> None:
    run = train("dual", tiny_pictures(), tmp_path / "run", model=model, select="last", **QUICK)
    still = published_weights(Dual(model=model).opened).keys() - changed(run, model)
    assert not [name for name in still if not name.endswith("key.bias")]  # which a softmax does not see


def test_only_the_last_blocks_are_tuned(models: dict[str, str], tmp_path: Path) -> None:
    run = train("dual", tiny_pictures(), tmp_path / "run", model=models["siglip"], tune="last", last=1, **QUICK)
    moved = changed(run, models["siglip"])
    assert any("image.tower.blocks.1." in name for name in moved) and any("image.tower.pool." in name for name in moved)
    assert not [name for name in moved if "blocks.0." in name or "patches" in name or "pieces" in name]


def test_a_frozen_model_learns_its_scale_alone(models: dict[str, str], tmp_path: Path) -> None:
    run = train("dual", tiny_pictures(), tmp_path / "run", model=models["siglip"], tune="none", **QUICK)
    assert changed(run, models["siglip"]) == {"similarity.scale", "similarity.bias"}


def test_a_tuned_run_needs_no_second_file_of_weights(models: dict[str, str], tmp_path: Path) -> None:
    there = moved(models["clip"], tmp_path / "there")
    run = train("dual", tiny_pictures(), tmp_path / "run", model=there, **QUICK)
    shutil.rmtree(there[3:])
    assert not list((run.folder / "pretrained").glob("*.safetensors"))
    again = Run.load(run.folder, device="cpu")
    np.testing.assert_array_equal(*(split_scores(one, tiny_pictures(), "test") for one in (run, again)))


@pytest.mark.parametrize(("steps", "tune"), [(0, "all"), (3, "lora")])  # 0: before anything was saved
def test_a_killed_run_goes_on_without_the_model_it_began_with(
    steps: int, tune: str, models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tune == "lora":
        pytest.importorskip("peft")
    there, given = moved(models["clip"], tmp_path / "there"), {**QUICK, "keep": 0.3, "tune": tune, "save_minutes": 0.0}
    whole = train("dual", tiny_pictures(), tmp_path / "whole", model=there, **given)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "_step", stopping_after(steps))
        train("dual", tiny_pictures(), tmp_path / "cut", model=there, **given)
    shutil.rmtree(there[3:])
    resumed = train("dual", tiny_pictures(), tmp_path / "cut", model=there, resume=True, **given)
    assert_close(resumed.matcher.state_dict(), whole.matcher.state_dict(), atol=0, rtol=0)


def stopping_after(steps: int) -> Callable[..., None]:
    original, left = Trainer._step, [steps]

    def step(self: Trainer, *given: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        original(self, *given)

    return step


def test_a_run_starts_from_an_imported_one(models: dict[str, str], tmp_path: Path) -> None:
    there = moved(models["siglip2"], tmp_path / "there")
    start = import_joint_model(there, tmp_path / "start")
    shutil.rmtree(there[3:])
    run = train("dual", tiny_pictures(), tmp_path / "run", start=start, **{**QUICK, "rate": 1e-9})
    np.testing.assert_allclose(*(split_scores(one, tiny_pictures(), "test") for one in (run, start)), atol=1e-4)


def test_keep_brings_weights_back(models: dict[str, str]) -> None:
    start = published_weights(Dual(model=models["clip"]).opened)
    matcher = Dual(model=models["clip"]).network()
    with torch.no_grad():
        for p in matcher.parameters():
            p.add_(1.0)
    kept = brought_back(matcher, start, 0.75).state_dict()
    assert_close(kept, {name: value + 0.25 for name, value in start.items()})
    assert_close(matcher.state_dict(), {name: value + 1 for name, value in start.items()})  # what trains is untouched


def test_a_run_that_keeps_everything_is_the_pretrained_model(models: dict[str, str], tmp_path: Path) -> None:
    run = train("dual", tiny_pictures(), tmp_path / "run", model=models["siglip"], keep=1.0, **QUICK)
    assert not changed(run, models["siglip"])


# ---- LoRA ------------------------------------------------------------------------------------------------------------


def test_lora_is_saved_small_and_merged_on_request(model: str, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    there, pairs = moved(model, tmp_path / "there"), tiny_pictures()
    run = train("dual", pairs, tmp_path / "run", model=there, tune="lora", rank=2, select="last", **QUICK)
    shutil.rmtree(there[3:])
    run = Run.load(run.folder, device="cpu")
    merged = merge_adapters(run.folder, tmp_path / "merged")
    small, whole = ((one.folder / "model.safetensors").stat().st_size for one in (run, merged))
    assert small < whole / 3
    scores = [split_scores(one, pairs, "test") for one in (run, merged)]
    np.testing.assert_allclose(*scores, atol=1e-4)
    assert not any("lora_" in name for name in merged.matcher.state_dict())
    assert not list((merged.folder / "pretrained").glob("*.safetensors"))


def test_lora_moves_nothing_but_its_small_matrices(models: dict[str, str]) -> None:
    pytest.importorskip("peft")
    matcher = Dual(model=models["clip"], tune="lora", rank=2).network()
    free = [name for name, p in matcher.named_parameters() if p.requires_grad]
    assert all("lora_" in name or name == "similarity.scale" for name in free) and len(free) == 2 * 2 * 4 * 2 + 1
    assert set(matcher.state_dict()) == set(free)


def test_an_index_of_a_lora_run_is_by_itself(models: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("peft")
    run = train("dual", tiny_pictures(), tmp_path / "run", model=models["clip"], tune="lora", **QUICK)
    Index.build(run, tiny_pictures(), tmp_path / "index")
    shutil.rmtree(run.folder)
    assert len(Index.load(tmp_path / "index").search("a dog", top=2).hits) == 2


def test_a_run_without_adapters_has_nothing_to_merge(models: dict[str, str], tmp_path: Path) -> None:
    import_joint_model(models["clip"], tmp_path / "run")
    with pytest.raises(BadInput, match="nothing to merge"):
        merge_adapters(tmp_path / "run", tmp_path / "out")


# ---- below other methods ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("ncr", {"scorer": "dual", "warm": 1}),
        ("ncr+", {"scorer": "dual"}),
        ("aoq", {"base": "dual", "first": 1}),
        ("lantern", {"scorer": "dual"}),
    ],
)
def test_other_methods_train_a_joint_model(
    name: str, given: dict[str, object], models: dict[str, str], tmp_path: Path
) -> None:
    there = moved(models["siglip2"], tmp_path / "there")
    run = train(name, tiny_pictures(), tmp_path / "run", model=there, **given, **QUICK)
    shutil.rmtree(there[3:])
    again = Run.load(run.folder, device="cpu")
    np.testing.assert_array_equal(*(split_scores(one, tiny_pictures(), "test") for one in (run, again)))
    assert np.abs(split_scores(again, tiny_pictures(), "test")).max() <= 1.001  # cosines, and means of them


def test_lantern_finds_sets_among_a_towers_states(models: dict[str, str], tmp_path: Path) -> None:
    run = train("lantern", tiny_pictures(), tmp_path / "run", scorer="dual", model=models["clip"], **QUICK)
    pairs = tiny_pictures()
    items = run.inputs(pairs).table.items(TEXT, np.arange(3))
    assert {part.vectors.shape for part in run.matcher.embed(TEXT, items).members} == {(3, 4, 20)}


# ---- scores, losses, rates -------------------------------------------------------------------------------------------


def vectors(*rows: list[float]) -> Embedding:
    return Embedding(nn.functional.normalize(tensor(rows, dtype=torch.float32), dim=1)[:, None])


def test_a_score_is_the_scaled_cosine_and_the_bias() -> None:
    scores = ScaledCosine(bias=True)
    with torch.no_grad():
        scores.scale.fill_(np.log(10.0))
        scores.bias.fill_(-2.0)
    assert_close(scores(vectors([1, 0]), vectors([3, 4], [0, 1])), tensor([[4.0, -2.0]]))  # 10 * .6 - 2 ; 10 * 0 - 2
    assert scores.per_cosine() == pytest.approx(10)


def batch(picture: list[int]) -> Batch:
    """Captions of these pictures, in this order."""
    count, owner = max(picture) + 1, tensor(picture)
    images = Items(torch.zeros(count, 1), None, torch.arange(count))
    texts = Items(torch.zeros(len(picture), 1), None, torch.arange(len(picture)), {"picture": owner})
    links = {"positive": torch.stack([owner, torch.arange(len(picture))], 1)}
    return Batch({IMAGE: images, TEXT: texts}, links, torch.arange(len(picture)))


def test_the_sigmoid_loss_on_a_hand_worked_case() -> None:
    matrix = tensor([[2.0, -1.0], [0.0, 3.0]])
    terms = Sigmoid()(Scores(matrix), {}, batch([0, 1]))
    assert_close(terms["own"], tensor([0.126928, 0.048587]), atol=1e-5, rtol=0)  # log(1 + e^-2) ; log(1 + e^-3)
    assert_close(terms["others"], tensor([0.313262, 0.693147]), atol=1e-5, rtol=0)  # log(1 + e^-1) ; log(1 + e^0)


def test_captions_of_the_same_picture_are_no_negatives() -> None:
    matrix = tensor([[2.0, 9.0, -1.0], [0.0, 0.0, 3.0]])
    terms = Sigmoid()(Scores(matrix), {}, batch([0, 0, 1]))
    assert_close(terms["others"][:2], tensor([0.313262, 0.313262]), atol=1e-5, rtol=0)
    both = Contrastive()(Scores(matrix), {}, batch([0, 0, 1]))
    assert_close(2 * both["i2t"][0], torch.log1p(torch.exp(tensor(-3.0))))


def test_rates_rise_in_a_line_and_fall_along_a_cosine() -> None:
    rates = [warmed_cosine(0, step, 10, epochs=1, warm=0.2) for step in range(10)]
    assert rates[:3] == pytest.approx([1 / 3, 2 / 3, 1]) and rates[6] == pytest.approx(0.5)
    assert rates[2:] == sorted(rates[2:], reverse=True) and rates[-1] > 0  # a rate of 0 would freeze what is tuned
    assert warmed_cosine(0, 0, 1, epochs=1, warm=1.0) > 0


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command_imports_merges_and_says_what_it_cannot_do(
    models: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from matchlight.cli import main

    def asked(*words: str) -> tuple[int, str]:
        return main(["import", *words]), capsys.readouterr().err.strip()

    assert asked(models["clip"], "-o", str(tmp_path / "run"))[0] == 0
    assert Run.load(tmp_path / "run", device="cpu").method == "dual"
    for words, line in (
        ((models["clip"], "-o", str(tmp_path / "run")), "not empty"),
        ((models["clip"], "--method", "scan", "-o", str(tmp_path / "x")), "is imported by itself"),
        (("model.pth.tar", "-o", str(tmp_path / "x")), "need --method and --vocab"),
        ((str(tmp_path / "run"), "-o", str(tmp_path / "x")), "nothing to merge"),
    ):
        code, said = asked(*words)
        assert code == 2 and line in said and "\n" not in said
    assert not (tmp_path / "x").exists()
