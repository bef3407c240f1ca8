"""The examples of docs/extending.md, taken from the page and used as a reader would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from docs.pages import ROOT, blocks
from serving import drawn

import matchlight as ml
from matchlight.cli import main
from matchlight.data import formats
from matchlight.inputs import features

PAGE = ROOT / "docs" / "extending.md"
SMALL = ["epochs=2", "batch=16"]
BACKBONE = {"matchlight.backbones": {"colours": "my_backbone:Colours"}}


def example(name: str) -> str:
    """The block of the page that is titled so."""
    return next(block.text for block in blocks(PAGE, "python") if block.title == name)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return drawn(tmp_path / "shapes")


@pytest.fixture
def run(data: Path, tmp_path: Path, install_plugin: Callable[..., None]) -> ml.Run:
    """A run on the colours of the page's backbone, which need no weights."""
    install_plugin(
        "my_backbone", example("my_backbone.py"), {"matchlight.backbones": {"colours": "my_backbone:Colours"}}
    )
    sizes = {"dim": 8, "hidden": 8, "word_dim": 8, "batch": 16, "epochs": 1}
    return ml.train("vse_infty", ml.Pairs.read(data), tmp_path / "run", backbone="colours", device="cpu", **sizes)


def test_the_backbone_of_the_page_sees_the_mean_colour_of_each_cell(run: ml.Run, data: Path) -> None:
    store = features.extract(ml.Pairs.read(data), backbone="colours", size=64)
    assert store.gather(np.arange(2)).shape == (2, 4, 3)
    assert run.info["view"]["backbone"] == "colours"


def test_the_format_of_the_page_reads_what_it_wrote(
    data: Path, tmp_path: Path, install_plugin: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    install_plugin("my_format", example("my_format.py"), {"matchlight.formats": {"lines": "my_format:Lines"}})
    assert main(["data", "convert", str(data), "-o", str(tmp_path / "lines"), "--to", "lines"]) == 0
    first, again = ml.Pairs.read(data), ml.Pairs.read(tmp_path / "lines")
    assert (again.captions, list(again.splits)) == (first.captions, list(first.splits))
    assert formats.read(tmp_path / "lines").pictures is not None


def test_the_method_of_the_page_is_trained_and_measured_from_its_file(
    data: Path, tmp_path: Path, install_plugin: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    install_plugin(
        "my_backbone", example("my_backbone.py"), {"matchlight.backbones": {"colours": "my_backbone:Colours"}}
    )
    file = tmp_path / "my_method.py"
    file.write_text(example("my_method.py"))
    assert len(example("my_method.py").splitlines()) <= 60
    given = ["--data", str(data), "--device", "cpu"]
    train = ["train", str(file), *given, "-o", str(tmp_path / "mine"), "dim=16", "backbone=colours", *SMALL]
    assert main(train) == 0
    assert main(["evaluate", str(tmp_path / "mine"), *given, "--json"]) == 0
    assert '"rsum"' in capsys.readouterr().out


def test_a_field_of_the_page_s_method_out_of_its_bounds_is_one_line(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "my_method.py"
    file.write_text(example("my_method.py"))
    assert main(["train", str(file), "--data", str(data), "-o", str(tmp_path / "mine"), "temperature=-1"]) == 2
    assert "temperature" in capsys.readouterr().err
