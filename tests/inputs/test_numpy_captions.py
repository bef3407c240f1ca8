from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from matchlight import files
from matchlight.core import TEXT, Items
from matchlight.indexing.models import open_model
from matchlight.indexing.run_model import RunModel
from matchlight.inputs.numpy_captions import NumpyCaptions, gelu
from matchlight.inputs.text import pad
from matchlight.runs.folder import Run

TEXTS = ["cat", "a dog on a beach", "two men, one of whom carries a red umbrella, wait for an unbelievably late bus"]


@pytest.fixture(scope="module")
def run() -> Run:
    return Run.load("starter-small", device="cpu")


@pytest.fixture(scope="module")
def kept(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run as an index keeps it."""
    folder = tmp_path_factory.mktemp("kept")
    RunModel(run).copy_to(folder)
    return folder


def opened(folder: Path, **changed: object) -> NumpyCaptions | None:
    info = files.read_json(folder / "recipe.json", "a recipe")
    name = changed.pop("name", info["name"])
    return NumpyCaptions.of(folder, {**info, "name": name, "arguments": {**info["arguments"], **changed}})


@torch.inference_mode()
def test_captions_are_read_as_the_run_reads_them(run: Run, kept: Path) -> None:
    captions = opened(kept)
    assert captions is not None
    tokens, mask, _ = pad(captions.token_ids(TEXTS))
    wanted = run.matcher.embed(TEXT, Items(torch.from_numpy(tokens), torch.from_numpy(mask), torch.arange(3)))
    assert np.abs(captions.text(tokens, mask) - wanted.vectors.numpy()).max() < 2e-6


def test_an_index_reads_a_starters_words_by_numpy_and_its_pictures_by_torch(run: Run, kept: Path) -> None:
    model = open_model(kept, "cpu")
    assert not isinstance(model, RunModel)
    reader, as_before = model.reader(), RunModel(run).reader()
    (sets, unknown), (wanted, _) = reader.words(TEXTS[1]), as_before.words(TEXTS[1])
    assert np.abs(sets.vectors - wanted.vectors).max() < 2e-6 and unknown == []
    assert reader.tokens("a beach") == as_before.tokens("a beach") and reader.sees


@pytest.mark.parametrize(
    "changed", [{"name": "vse++"}, {"sentences": "gte-small"}, {"pooling": "gpo"}, {"top_words": "3"}]
)
def test_another_tower_is_left_to_torch(kept: Path, changed: dict[str, object]) -> None:
    assert opened(kept, **changed) is None


def test_a_file_that_leaves_out_what_came_with_minilm_is_left_to_torch(run: Run, tmp_path: Path) -> None:
    for name in ("recipe.json", "model.safetensors"):
        shutil.copy(run.folder / name, tmp_path / name)
    assert opened(tmp_path) is None


def test_the_approximated_gelu_is_the_exact_one_in_single_precision() -> None:
    x = torch.linspace(-12, 12, 20_001)
    exact = torch.nn.functional.gelu(x.double()).numpy()
    assert np.abs(gelu(x.numpy()) - exact).max() < 1e-6
