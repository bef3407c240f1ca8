"""A method of one file: trained, resumed, opened again, and never run where nobody here has named it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from matchlight.core import BadInput
from matchlight.runs.evaluation import evaluate
from matchlight.runs.folder import Run
from matchlight.runs.train_run import train
from matchlight.training.registry import asked_for, settings_of
from tests.tiny import tiny_pairs

METHOD = '''
from dataclasses import dataclass
from functools import partial

from torch import nn

from matchlight.core import IMAGE, TEXT, Embedding, Matcher, Sizes
from matchlight.parts.layers import unit
from matchlight.parts.objectives import Hinge
from matchlight.parts.similarities import Dot
from matchlight.training.arguments import Count, Ranking, Share, Training
from matchlight.training.contract import Recipe, Strategy
from matchlight.training.registry import Method
from matchlight.training.schedules import groups


class MeanRegions(nn.Module):
    def __init__(self, inside, dim):
        super().__init__()
        self.fc = nn.Linear(inside, dim)

    def forward(self, items):
        return Embedding(unit(self.fc(items.x.mean(1)))[:, None])


class MeanWords(nn.Module):
    def __init__(self, words, dim):
        super().__init__()
        self.embed = nn.Embedding(words, dim)

    def forward(self, items):
        states = self.embed(items.x) * items.mask[..., None]
        return Embedding(unit(states.sum(1))[:, None])


@dataclass(frozen=True, kw_only=True)
class Mine(Ranking, Training):
    """Means of regions and words."""

    dim: Count = 16
    dropout: Share = 0.0

    def recipe(self, sizes: Sizes) -> Recipe:
        def matcher():
            image, text = MeanRegions(sizes.image_dim, self.dim), MeanWords(sizes.vocabulary, self.dim)
            return Matcher({IMAGE: image, TEXT: text}, Dot())

        return Recipe(
            matcher=matcher,
            objective=partial(Hinge, margin=self.margin, siblings=self.siblings),
            groups=partial(groups, rate=self.rate, backbone=1.0, decay=0.0),
            strategy=Strategy(),
            epochs=self.epochs,
            batch=self.batch,
            siblings=self.siblings,
        )


METHODS = [Method("mine", Mine, paper="mine", needs=("pairs",), small={"epochs": 2, "batch": 8, "rate": 1e-2})]
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_method.py"
    path.write_text(METHOD)
    return path


def quick(file: Path, out: Path, **more: object) -> Run:
    return train(str(file), tiny_pairs(), out, device="cpu", preset="small", epochs=3, **more)


def test_a_method_of_a_file_trains_resumes_and_is_opened_again(file: Path, tmp_path: Path) -> None:
    run = quick(file, tmp_path / "run")
    again = Run.load(tmp_path / "run", device="cpu")
    assert again.method == "mine" and again.info["method_file"]["path"] == str(file)
    resumed = quick(file, tmp_path / "run", resume=True)
    for other in (again, resumed):
        for ours, theirs in zip(run.matcher.parameters(), other.matcher.parameters(), strict=True):
            assert torch.equal(ours, theirs)
    assert 0 < evaluate(again, tiny_pairs(), split="test")["rsum"] <= 600


def test_its_arguments_are_checked_like_ours(file: Path) -> None:
    method = asked_for(str(file))
    with pytest.raises(BadInput, match="dropout must be from 0 to below 1"):
        settings_of(method, {"dropout": "3"}, pairs=100, device="cpu")
    with pytest.raises(BadInput, match="mine takes no argument 'dimm'; did you mean 'dim'?"):
        settings_of(method, {"dimm": "3"}, pairs=100, device="cpu")


def test_a_file_that_nobody_here_has_named_is_not_run(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(file, tmp_path / "run")
    monkeypatch.setenv("MATCHLIGHT_CACHE", str(tmp_path / "elsewhere"))
    with pytest.raises(BadInput, match="was never used here"):
        Run.load(tmp_path / "run", device="cpu")


def test_a_file_that_has_changed_since_is_not_run(file: Path, tmp_path: Path) -> None:
    quick(file, tmp_path / "run")
    file.write_text(METHOD + "\nraise SystemExit('not what was trained with')\n")
    with pytest.raises(BadInput, match="has changed"):
        Run.load(tmp_path / "run", device="cpu")


def test_a_recipe_that_names_a_strangers_file_runs_nothing(file: Path, tmp_path: Path) -> None:
    quick(file, tmp_path / "run")
    evil = tmp_path / "evil.py"
    evil.write_text("raise SystemExit('code of a stranger')\n")
    recipe = json.loads((tmp_path / "run" / "recipe.json").read_text())
    recipe["method_file"]["path"] = str(evil)
    (tmp_path / "run" / "recipe.json").write_text(json.dumps(recipe))
    with pytest.raises(BadInput, match="evil.py"):
        Run.load(tmp_path / "run", device="cpu")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("METHODS = []", "must hold one Method, and holds 0"),
        ("import nothing_of_that_name", "ModuleNotFoundError"),
        ("def broken(:", "SyntaxError"),
        (METHOD.replace('"mine"', '"ncr"'), "there is a method 'ncr' already"),
    ],
)
def test_a_file_without_a_method_is_one_clear_line(file: Path, text: str, hint: str) -> None:
    file.write_text(text)
    with pytest.raises(BadInput, match=hint) as problem:
        asked_for(str(file))
    assert "\n" not in str(problem.value)


def test_a_file_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file; a method is a name from"):
        asked_for(str(tmp_path / "nothing.py"))


@pytest.mark.parametrize("place", ["name", "scorer"])
def test_a_recipe_that_names_a_file_as_its_method_or_its_base_runs_nothing(tmp_path: Path, place: str) -> None:
    evil = tmp_path / "evil.py"
    evil.write_text("raise SystemExit('code of a stranger')\n")
    small = {"preset": "small", "dim": 8, "word_dim": 8, "sim_dim": 4, "batch": 8, "epochs": 2, "warm": 1}
    train("ncr", tiny_pairs(), tmp_path / "run", device="cpu", **small)
    recipe = json.loads((tmp_path / "run" / "recipe.json").read_text())
    (recipe if place == "name" else recipe["arguments"])[place] = str(evil)
    (tmp_path / "run" / "recipe.json").write_text(json.dumps(recipe))
    with pytest.raises(BadInput, match="is no method"):
        Run.load(tmp_path / "run", device="cpu")


def test_a_second_round_over_a_run_of_a_file_is_refused_in_one_line(file: Path, tmp_path: Path) -> None:
    run = quick(file, tmp_path / "run")
    with pytest.raises(BadInput, match="'mine' is no method"):
        train("aoq", tiny_pairs(), tmp_path / "second", device="cpu", start=run)
