"""Vision transformers as backbones: tokens, cells, sizes, preprocessing and tuning, on tiny networks made here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import matchlight as ml
from matchlight.core import IMAGE, BadInput, Sizes
from matchlight.indexing.query_encoder import QueryEncoder
from matchlight.inputs.backbones import TokenChoice, backbone
from matchlight.inputs.backbones.vision_transformer import EVERY_CELL, TokenBackbone, Tuning
from matchlight.inputs.features import encode
from matchlight.inputs.prepare import View
from matchlight.inputs.preprocessing import Preprocessing, stated
from matchlight.methods.vse import VSEInfinity
from matchlight.runs.embeddings import export

transformers = pytest.importorskip("transformers")
CPU = torch.device("cpu")
PATCH, SIDE = 14, 56  # pixels: four by four cells
PROCESSOR = {"size": {"shortest_edge": 64}, "crop_size": {"height": SIDE, "width": SIDE}, "do_center_crop": True}


@pytest.fixture(scope="module")
def dino(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DINOv2 of three narrow layers whose position table is larger than its preprocessor's pictures."""
    folder = tmp_path_factory.mktemp("dino")
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "patch_size": PATCH}
    transformers.Dinov2Model(transformers.Dinov2Config(**shape, image_size=84)).save_pretrained(folder)
    transformers.BitImageProcessor(**PROCESSOR).save_pretrained(folder)
    return folder


def network(dino: Path, **named: object) -> TokenBackbone:
    """The tiny network as a backbone."""
    made = backbone(f"hf:{dino}", **named)  # type: ignore[arg-type]
    assert isinstance(made, TokenBackbone)
    return made


def photo(seed: int = 0, size: tuple[int, int] = (90, 70)) -> Image.Image:
    """A picture of noise."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8))


def test_the_size_is_the_preprocessors_not_the_position_tables(dino: Path) -> None:
    assert network(dino).usual_size(CPU) == (SIDE, SIDE)
    view = View("grid", f"hf:{dino}", choice=TokenChoice()).with_size(CPU)
    assert view.size == SIDE and view.preprocessing.shorter is None  # captions tell of all of a picture
    view = View("grid", f"hf:{dino}", choice=TokenChoice(), frame="stated").with_size(CPU)
    assert view.preprocessing.shorter == 64 and view.preprocessing.resample == "bicubic"


@pytest.mark.parametrize(
    ("processor", "settings"),
    [
        ("BitImageProcessor", PROCESSOR),
        ("CLIPImageProcessor", {"size": {"shortest_edge": 30}, "crop_size": 30}),
        ("CLIPImageProcessor", {"size": {"shortest_edge": 20}, "crop_size": 31}),  # a crop larger than the picture
        ("SiglipImageProcessor", {"size": {"height": 32, "width": 40}}),
        ("ViTImageProcessor", {}),
    ],
)
def test_pixels_are_those_of_the_models_own_preprocessor(processor: str, settings: dict[str, object]) -> None:
    theirs = getattr(transformers, processor)(**settings)
    ours = stated(theirs.to_dict())
    mean, std = (np.array(values)[:, None, None] for values in (ours.mean, ours.std))
    for seed, size in enumerate([(40, 60), (61, 33), (300, 301)]):
        image = photo(seed, size)
        expected = theirs(image, return_tensors="np")["pixel_values"][0]
        np.testing.assert_allclose((ours.pixels(image) / 255 - mean) / std, expected, atol=1e-6)


def test_another_size_keeps_the_share_that_a_crop_cuts_off() -> None:
    assert Preprocessing((224, 224), 256).at((448, 448)) == Preprocessing((448, 448), 512)
    assert Preprocessing((224, 224)).at((100, 80)).shorter is None


def test_tokens_are_the_librarys_own_and_cells_their_means(dino: Path) -> None:
    image = photo()
    theirs = transformers.Dinov2Model.from_pretrained(dino)
    pixels = transformers.BitImageProcessor.from_pretrained(dino)(image, return_tensors="pt")["pixel_values"]
    with torch.inference_mode():
        states = theirs(pixel_values=pixels).last_hidden_state[0].numpy()
    whole, patches = states[:1], states[1:].reshape(4, 4, -1)
    halves = patches.reshape(2, 2, 2, 2, -1).mean((1, 3)).reshape(4, -1)
    expected = {
        ("cells", None): states[1:],
        ("class", None): whole,
        ("both", None): states,
        ("both", (2, 2)): np.concatenate([whole, halves]),
    }
    for (tokens, cells), values in expected.items():
        made = network(dino, choice=TokenChoice(tokens, cells))  # type: ignore[arg-type]
        size = made.preprocessing((SIDE, SIDE), "stated")
        np.testing.assert_allclose(encode([image], made, size=size)[0], values, atol=5e-3)


def test_one_vector_a_picture_is_the_class_token_beside_the_mean_of_the_cells(dino: Path) -> None:
    grid = encode([photo()], network(dino), size=SIDE)[0].astype(np.float32)
    pooled = encode([photo()], network(dino), kind="pooled", size=SIDE)[0]
    np.testing.assert_allclose(pooled, np.concatenate([grid[0], grid[1:].mean(0)]), atol=2e-3)


def test_positions_are_interpolated_for_other_sizes(dino: Path) -> None:
    made = network(dino, choice=EVERY_CELL)
    assert made.cells((PATCH * 2, PATCH * 3)) == 6
    assert made.cells((PATCH * 6, PATCH * 6)) == 36


@pytest.mark.parametrize("cells", ["8", "0x3", "axb", "8x8x8"])
def test_a_grid_that_is_none_is_refused_in_one_line(cells: str) -> None:
    with pytest.raises(BadInput, match="rows x columns, such as 8x8"):
        TokenChoice.written("both", cells)


def test_a_view_is_kept_and_read_back_whole(dino: Path) -> None:
    view = View("pixels", f"hf:{dino}", choice=TokenChoice("class", (2, 3)), frame="stated").with_size(CPU)
    back = View.from_json(view.to_json())
    assert (back.size, back.choice) == (view.size, view.choice)
    assert (back.preprocessing.shorter, back.preprocessing.resample) == (64, "bicubic")


def test_runs_from_before_there_was_a_choice_read_every_cell_of_the_whole_picture() -> None:
    view = View.from_json({"kind": "grid", "backbone": "hf:x", "size": 518})
    assert view.choice is None and view.preprocessing == Preprocessing((518, 518))
    assert view.with_size(CPU) is view


# ---- tuning ----------------------------------------------------------------------------------------------------------


def learning(made: TokenBackbone) -> set[str]:
    """Names of the parameters that learn."""
    return {name for name, parameter in made.named_parameters() if parameter.requires_grad}


def test_only_the_last_layers_learn_where_that_is_asked_for(dino: Path) -> None:
    made = network(dino)
    made.prepare_tuning(Tuning(last=1))
    assert learning(made) and all(".layer.2." in name or "layernorm" in name for name in learning(made))
    none = network(dino)
    none.prepare_tuning(Tuning(last=0))
    assert learning(none) == {"network.layernorm.weight", "network.layernorm.bias"}


def test_each_layer_learns_slower_than_the_one_behind_it(dino: Path) -> None:
    sizes = Sizes(pairs=60, pictures=30, image="pixels", image_dim=16, regions=1, vocabulary=40)
    tuned = VSEInfinity(backbone=f"hf:{dino}", finetune=True, layer_decay=0.5, rate=0.3, backbone_rate=0.5, dim=8)
    recipe = tuned.recipe(sizes)
    matcher = recipe.matcher()
    rates = {id(p): group["lr"] for group in recipe.groups(matcher, recipe.objective()) for p in group["params"]}
    for name, p in matcher.named_parameters():
        if ".backbone." in name:
            place = next((3 - k for k in range(3) if f".layer.{k}." in name), 0 if "layernorm" in name else 4)
            assert rates[id(p)] == pytest.approx(0.3 * 0.5 / 15 * 0.5**place), name
        else:
            assert rates[id(p)] == 0.3


def test_skipped_layers_leave_the_mean_of_what_they_add(dino: Path) -> None:
    made, plain = network(dino), network(dino)
    made.prepare_tuning(Tuning(drop_path=0.5))
    pixels = torch.rand(1, 3, SIDE, SIDE) * 255
    torch.testing.assert_close(made.eval()(pixels), plain.eval()(pixels))
    made.train()
    last = made.layers()[1][2]
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    last.register_forward_hook(lambda _, given, out: seen.append((given[0], out if torch.is_tensor(out) else out[0])))
    torch.manual_seed(0)
    with torch.no_grad():
        made(pixels.expand(64, -1, -1, -1))
    before, after = seen[0]
    skipped = (before == after).flatten(1).all(1).float().mean()
    assert 0.3 < skipped < 0.7


def test_recomputed_layers_give_the_same_gradients(dino: Path) -> None:
    pixels = torch.rand(2, 3, SIDE, SIDE) * 255
    gradients = []
    for tuning in (Tuning(), Tuning(checkpointing=True)):
        made = network(dino).train()
        made.prepare_tuning(tuning)
        made(pixels).square().sum().backward()
        gradients.append({name: p.grad for name, p in made.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys() and gradients[0]
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient)


def drawn(folder: Path) -> ml.Pairs:
    """Eight pictures of noise, each with two captions."""
    (folder / "images").mkdir(parents=True)
    lines = []
    for k in range(8):
        photo(k).save(folder / "images" / f"{k}.png")
        captions = [f"a thing {k}", f"thing {k} here"]
        lines.append(json.dumps({"image": f"{k}.png", "captions": captions, "split": "train" if k < 6 else "test"}))
    (folder / "captions.jsonl").write_text("\n".join(lines))
    return ml.Pairs.read(folder)


TUNED = {"finetune": True, "last": 1, "drop_path": 0.3, "layer_decay": 0.7, "checkpointing": True}


@pytest.mark.parametrize("tuned", [False, True], ids=["frozen", "tuned"])
def test_it_trains_comes_back_and_reads_a_question_as_it_read_its_data(dino: Path, tmp_path: Path, tuned: bool) -> None:
    pairs = drawn(tmp_path / "data")
    settings = {"backbone": f"hf:{dino}", "cells": "2x2", "frame": "stated"}
    settings |= {"epochs": 1, "batch": 8, "dim": 8, "hidden": 8, "word_dim": 4}
    settings |= TUNED if tuned else {}
    ml.train("vse_infty", pairs, tmp_path / "run", device="cpu", preset="small", **settings)  # type: ignore[arg-type]
    run = ml.Run.load(tmp_path / "run")
    view = run.info["view"]
    assert (view["tokens"], view["cells"], view["size"], view["shorter"]) == ("both", [2, 2], SIDE, 64)
    asked = QueryEncoder(run)
    question = asked.embed(IMAGE, asked.image_items([photo(7)])).vectors[0]
    export(run, pairs, tmp_path / "vectors.npz")
    held = torch.from_numpy(np.load(tmp_path / "vectors.npz")["image"][7])
    torch.testing.assert_close(question, held, atol=2e-3, rtol=0)
    weights = {name for name in run.matcher.state_dict() if ".backbone." in name}
    assert bool(weights) == tuned


def test_a_run_from_before_there_was_a_choice_keeps_reading_every_cell(dino: Path, tmp_path: Path) -> None:
    settings = {"backbone": f"hf:{dino}", "tokens": "cells", "cells": "4096x4096", "epochs": 1, "batch": 8, "dim": 8}
    pairs = drawn(tmp_path / "data")
    ml.train("vse_infty", pairs, tmp_path / "run", device="cpu", preset="small", finetune=True, **settings)  # type: ignore[arg-type]
    file = tmp_path / "run" / "recipe.json"
    recipe = json.loads(file.read_text())
    for name in ("tokens", "cells"):
        del recipe["arguments"][name], recipe["view"][name]
    file.write_text(json.dumps(recipe))
    network = ml.Run.load(tmp_path / "run").matcher.encoders[IMAGE].backbone
    assert isinstance(network, TokenBackbone) and (network.tokens, network.cell_grid) == ("cells", (4096, 4096))
