"""`reproduce all`: resumable, one failure does not stop the others, and what does not fit is left out with a reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from matchlight import reproduce
from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.data import formats
from matchlight.measuring.protocols.measured import Unfit
from matchlight.pairs import Pairs
from matchlight.reproduce import EXHIBITS, reproduce_all, style
from matchlight.reproduce.everything import make_all
from matchlight.reproduce.exhibits import Exhibit, Result, Work
from tests.tiny import Arrays, tiny_pairs


def plot(work: Work) -> Result:
    """An exhibit that takes no time."""
    work.check_splits(work.split)

    def draw() -> style.Figure:
        figure, axes = style.panels(1, 1)
        axes[0][0].plot([0, 1], [0, 1])
        return figure

    return work.save([{"x": 1}], draw, table=[{"x": 1}])


def broken(work: Work) -> Result:
    raise BadInput("no such luck")


def unfit(work: Work) -> Result:
    raise Unfit("this data has no moon")


def fault(work: Work) -> Result:
    raise ZeroDivisionError("by zero")


def some(**functions: Any) -> list[Exhibit]:
    return [Exhibit(name, "a paper", "something", function) for name, function in functions.items()]


def test_one_failure_is_told_and_the_others_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = make_all(some(a=plot, b=broken, c=unfit, d=fault, e=plot), tiny_pairs(), tmp_path, quick=True)
    assert [one.state for one in found] == ["made", "failed", "left out", "failed", "made"]
    assert [one.why for one in found[1:4]] == ["no such luck", "this data has no moon", "ZeroDivisionError: by zero"]
    told = capsys.readouterr().err
    assert "[2/5] b: failed: no such luck" in told and "[3/5] c: left out: this data has no moon" in told
    listed = json.loads((tmp_path / "all.json").read_text())
    assert [one["state"] for one in listed] == [one.state for one in found]
    assert "[a](a.md)" in (tmp_path / "all.md").read_text() and "no such luck" in (tmp_path / "all.md").read_text()
    assert sorted(path.name for path in (tmp_path / "thumbnails").iterdir()) == ["a.png", "e.png"]
    with Image.open(tmp_path / "contact-sheet.png") as sheet:
        sheet.load()


def test_called_again_what_is_finished_is_kept_and_the_rest_is_made(tmp_path: Path) -> None:
    exhibits = some(a=plot, b=plot, c=plot)
    make_all(exhibits, tiny_pairs(), tmp_path, quick=True)
    before = (tmp_path / "a.json").stat().st_mtime_ns
    (tmp_path / "b.svg").unlink()  # killed between two files
    (tmp_path / "c.json").write_text("{")  # killed while writing, by a program that does so in place
    found = make_all(exhibits, tiny_pairs(), tmp_path, quick=True)
    assert [one.state for one in found] == ["kept", "made", "made"]
    assert (tmp_path / "a.json").stat().st_mtime_ns == before
    others = [
        make_all(exhibits, tiny_pairs(), tmp_path),  # asked for in another way
        make_all(exhibits, tiny_pairs(), tmp_path, settings={"epochs": 2}),
        make_all(exhibits, tiny_pairs(), tmp_path, settings={"epochs": 2}, split="val"),
        make_all(exhibits, tiny_pairs(seed=1), tmp_path, settings={"epochs": 2}, split="val"),  # other data
    ]
    assert all(one.state == "made" for some in others for one in some)


def test_a_figure_of_earlier_numbers_is_not_taken_for_one_of_the_new(tmp_path: Path) -> None:
    def stopped(work: Work) -> Result:
        def draw() -> style.Figure:
            raise KeyboardInterrupt  # or killed: the new numbers are there, the new figure is not

        return work.save([{"x": 2}], draw, table=[{"x": 2}])

    make_all(some(a=plot), tiny_pairs(), tmp_path, quick=True)
    with pytest.raises(KeyboardInterrupt):
        make_all(some(a=stopped), tiny_pairs(), tmp_path)
    (found,) = make_all(some(a=plot), tiny_pairs(), tmp_path)
    assert found.state == "made"


def test_the_command_exits_by_what_became_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = formats.write(tiny_pairs(), tmp_path / "data.npz", to="npz")
    words = ["reproduce", "all", "--quick", "--data", str(data), "-o"]
    monkeypatch.setattr(reproduce, "EXHIBITS", {one.name: one for one in some(a=plot, b=unfit)})
    assert main([*words, str(tmp_path / "out")]) == 0
    assert "1 made, 1 left out" in capsys.readouterr().out
    assert main([*words, str(tmp_path / "out"), "--json"]) == 0
    assert [one["state"] for one in json.loads(capsys.readouterr().out)] == ["kept", "left out"]
    monkeypatch.setattr(reproduce, "EXHIBITS", {one.name: one for one in some(a=plot, b=broken)})
    assert main([*words, str(tmp_path / "out")]) == 1
    monkeypatch.setattr(reproduce, "EXHIBITS", {one.name: one for one in some(b=unfit)})
    assert main([*words, str(tmp_path / "none")]) == 2
    assert main([*words, str(tmp_path / "none"), "--noise", "0.2"]) == 2
    assert "belongs to single exhibits" in capsys.readouterr().err
    assert main([*words, str(tmp_path / "none"), "epchs=2"]) == 2
    assert "did you mean 'epochs'" in capsys.readouterr().err


def vectors() -> Pairs:
    """Label-wise data: a vector and a class each, no words."""
    rng = np.random.default_rng(0)
    pairs = tiny_pairs(48, held=12)
    flat = {"features": Arrays(rng.normal(size=(48, 6)).astype(np.float32)), "captions": [""] * 96}
    return replace(pairs, **flat, text_features=rng.normal(size=(96, 5)).astype(np.float32))


@pytest.mark.full
def test_every_exhibit_is_made_of_captions_and_those_of_labels_of_vectors(tmp_path: Path) -> None:
    settings = {"epochs": 2, "dim": 16, "hidden": 8, "batch": 8, "word_dim": 8, "warm": 1, "depth": 1, "heads": 2}
    options: dict[str, Any] = {"quick": True, "settings": settings, "device": "cpu"}
    whole = reproduce_all(tiny_pairs(48, held=12), tmp_path / "words", **options)
    assert {one.name: one.why for one in whole if one.state == "failed"} == {}
    assert [one.name for one in whole if one.state == "made"] == list(EXHIBITS)
    flat = reproduce_all(vectors(), tmp_path / "flat", **options)
    assert {one.name: one.why for one in flat if one.state == "failed"} == {}
    left = [one for one in flat if one.state == "left out"]
    assert {one.name for one in left} >= {name for name in EXHIBITS if name.startswith(("ncr-", "aoq-"))}
    assert all(one.why for one in left) and any(one.state == "made" for one in flat)
