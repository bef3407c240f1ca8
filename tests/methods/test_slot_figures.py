"""What `benchmarks/slots.py` and `set_pulls.py` say of slots: hand-worked, on random sets, and of a trained model."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import matchlight as ml
from matchlight.core import BadInput
from matchlight.parts.set_similarities import set_similarity
from tests.tiny import tiny_pairs

SMALL = {"preset": "small", "dim": 8, "word_dim": 6, "epochs": 1, "device": "cpu"}
OF_SETS = {"hidden": 4, "head_dim": 4}


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[2] / "benchmarks" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, made)  # dataclasses look their module up
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return script("slots", monkeypatch)


@pytest.mark.parametrize("name", ["smooth_chamfer", "chamfer", "mil"])
def test_a_step_contracts_collapsed_sets_and_spreads_those_whose_parts_fit(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulls = script("set_pulls", monkeypatch)
    change = {
        (spread, own): pulls.pulled(set_similarity(name), *pulls.random_pairs(spread, own), temperature=0.05).change
        for spread, own in ((0.05, 0.9), (1.0, 0.0), (1.0, 0.9))
    }
    assert change[0.05, 0.9] < 0 and change[1.0, 0.0] < 0 < change[1.0, 0.9]


def test_a_slot_is_used_where_its_cosine_is_the_largest_of_all(slots: ModuleType) -> None:
    images = torch.eye(4)[None].expand(3, -1, -1)
    texts = torch.stack([torch.eye(4)[[k, 3]] * torch.tensor([[1.0], [0.5]]) for k in (0, 1, 1)])
    picture, caption = slots.usage(images, texts)
    assert picture.tolist() == pytest.approx([1 / 3, 2 / 3, 0, 0])
    assert caption.tolist() == [1, 0]
    assert slots.in_use(caption) == pytest.approx(1)
    assert slots.in_use(torch.tensor([0.5, 0.5, 0.0, 0.0])) == pytest.approx(2)


def test_a_spread_that_all_items_share_is_constant(slots: ModuleType) -> None:
    own, apart = torch.randn(50, 1, 8), torch.randn(1, 4, 8)
    assert slots.constant_share(own + apart) == pytest.approx(1, abs=1e-5)
    assert slots.constant_share(torch.randn(1000, 4, 8)) < 0.02


def test_the_script_looks_at_both_networks_and_prints_two_lines_for_each(
    slots: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = tiny_pairs()
    run = ml.train("lantern", pairs, tmp_path / "run", **SMALL, **OF_SETS)
    found = slots.reports(run, pairs, "test", 500)
    assert len(found) == 2
    for side in found[0].values():
        assert sum(side["usage"]) == pytest.approx(1) and sum(side["pull"]) == pytest.approx(1)
        assert 0 <= side["variance"] < 1 and 1 <= side["slots"] <= 4 and len(side["ratio"]) == 4
    assert found[0]["image"]["variance"] != found[1]["image"]["variance"]
    expected = ml.evaluate(run, pairs, "test")["spread"]["image"]
    assert np.mean([one["image"]["variance"] for one in found]) == pytest.approx(expected, abs=1e-3)
    monkeypatch.setattr(slots.ml.Pairs, "read", lambda path: pairs)
    monkeypatch.setattr("sys.argv", ["slots.py", "data", str(tmp_path / "run")])
    slots.main()
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) == 4 and " image " in lines[0] and " #2 " in lines[3] and "nan" not in lines[0]


def test_a_model_of_one_vector_is_refused(slots: ModuleType, tmp_path: Path) -> None:
    pairs = tiny_pairs()
    run = ml.train("vse_infty", pairs, tmp_path / "run", **SMALL)
    with pytest.raises(BadInput, match="one vector an item"):
        slots.reports(run, pairs, "test", 500)
