"""Importing released checkpoints: one network or several a file, and one clear line where something does not fit."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch

from matchlight.core import BadInput, Ensemble
from matchlight.methods import vse
from matchlight.runs.folder import Run
from matchlight.runs.importing import import_checkpoints
from matchlight.training.registry import Foreign, Method


def parts(seed: int, *, dim: int = 4, words: int = 5) -> list[dict[str, torch.Tensor]]:
    """A VSE++ network as its authors save it."""
    draw = torch.Generator().manual_seed(seed)
    shapes: list[dict[str, tuple[int, ...]]] = [
        {"fc.weight": (dim, 6), "fc.bias": (dim,)},
        {"embed.weight": (words, 3), "rnn.weight_ih_l0": (3 * dim, 3), "rnn.weight_hh_l0": (3 * dim, dim)}
        | {"rnn.bias_ih_l0": (3 * dim,), "rnn.bias_hh_l0": (3 * dim,)},
    ]
    return [{key: torch.randn(shape, generator=draw) for key, shape in part.items()} for part in shapes]


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    words = ["<pad>", "<start>", "<end>", "<unk>", "dog"]
    text = json.dumps({"word2idx": {word: k for k, word in enumerate(words)}, "idx2word": {}, "idx": 5})
    path = tmp_path / "vocab.json"
    path.write_text(text)
    return path


def saved(path: Path, **content: Any) -> Path:
    torch.save({"opt": Namespace(margin=0.1), "epoch": 1, **content}, path)
    return path


def read_both(file: dict[str, Any]) -> list[Foreign]:
    return [vse.read_plus_plus({"model": file[name], "opt": file["opt"]}) for name in ("model_A", "model_B")]


def test_a_file_becomes_a_run_that_can_be_opened_again(vocabulary: Path, tmp_path: Path) -> None:
    file = saved(tmp_path / "a.pth.tar", model=parts(0))
    run = import_checkpoints([file], "vse++", vocabulary, tmp_path / "run")
    again = Run.load(tmp_path / "run", device="cpu")
    assert run.info["arguments"]["margin"] == 0.1 and "members" not in run.info
    assert torch.equal(again.matcher.encoders["image"].fc.weight, parts(0)[0]["fc.weight"])


def test_several_files_make_an_ensemble(vocabulary: Path, tmp_path: Path) -> None:
    files = [saved(tmp_path / f"{k}.tar", model=parts(k)) for k in range(2)]
    run = import_checkpoints(files, "vse++", vocabulary, tmp_path / "run")
    assert isinstance(run.matcher, Ensemble) and len(run.info["members"]) == 2
    assert torch.equal(run.matcher.members[1].encoders["image"].fc.weight, parts(1)[0]["fc.weight"])


def test_several_networks_in_a_file_make_an_ensemble(
    vocabulary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Method("pair", vse.VSEPlusPlus, "two networks a file", ("pairs",), reader=read_both)
    for place in ("importing", "folder"):
        monkeypatch.setattr(f"matchlight.runs.{place}.find", lambda name: two)
    file = saved(tmp_path / "ab.tar", model_A=parts(0), model_B=parts(1))
    run = import_checkpoints([file], "pair", vocabulary, tmp_path / "run")
    assert isinstance(run.matcher, Ensemble) and run.info["imported"]["files"] == ["ab.tar"]
    for k, member in enumerate(Run.load(tmp_path / "run", device="cpu").matcher.members):
        assert torch.equal(member.encoders["image"].fc.weight, parts(k)[0]["fc.weight"])


def test_what_does_not_fit_is_one_clear_line(vocabulary: Path, tmp_path: Path) -> None:
    good = saved(tmp_path / "good.tar", model=parts(0))
    wide = saved(tmp_path / "wide.tar", model=parts(0, words=7))
    odd = saved(tmp_path / "odd.tar", model=[parts(0)[0] | {"extra.weight": torch.zeros(1)}, parts(0)[1]])
    short = saved(tmp_path / "short.tar", model=[parts(0)[0]])
    lame = saved(tmp_path / "lame.tar", model=[{"fc.weight": torch.zeros(4, 6)}, parts(0)[1]])
    cases = [([wide], "7"), ([good, wide], "sizes are not those"), ([odd], "extra.weight"), ([short], "short.tar")]
    for files, word in [*cases, ([lame], "'encoders.image.fc.bias' is missing")]:
        with pytest.raises(BadInput, match=word) as problem:
            import_checkpoints(files, "vse++", vocabulary, tmp_path / "run")
        assert "\n" not in str(problem.value) and not (tmp_path / "run").exists()


def test_a_folder_that_holds_something_is_left_alone(vocabulary: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "note").write_text("mine")
    with pytest.raises(BadInput, match="not empty"):
        import_checkpoints([saved(tmp_path / "a.tar", model=parts(0))], "vse++", vocabulary, tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["note"]
