"""Data sets of the hub: `save_to_disk` folders written and read, and hf-datasets:NAME through the real package."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from serving import drawn

from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.data import formats
from matchlight.data.noise import flip_labels
from matchlight.pairs import Pairs

Rows = set[tuple[str, str, str]]


def rows_of(pairs: Pairs) -> Rows:
    places = pairs.picture.tolist()
    return {
        (Path(pairs.names[p]).name, text, str(pairs.splits[p])) for p, text in zip(places, pairs.captions, strict=True)
    }


@pytest.fixture
def data(tmp_path: Path) -> Pairs:
    return Pairs.read(drawn(tmp_path / "shapes"))


@pytest.fixture
def loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """The real package, with a cache of its own and no network."""
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hub")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    return datasets


def test_a_folder_that_was_written_is_read_again_without_any_package(data: Pairs, tmp_path: Path) -> None:
    out = formats.write(data, tmp_path / "out", to="datasets")
    assert json.loads((out / "dataset_dict.json").read_text()) == {"splits": ["train", "validation", "test"]}
    again = Pairs.read(out)
    assert rows_of(again) == rows_of(data)
    assert again.labels is not None and data.labels is not None and again.labels.names == data.labels.names
    assert again.pictures is not None and data.pictures is not None
    assert again.pictures.read(0) == data.pictures.read(list(data.names).index(Path(again.names[0]).name))


def test_labels_of_texts_that_differ_from_their_pictures_come_back(data: Pairs, tmp_path: Path) -> None:
    broken, _ = flip_labels(data, ratio=0.5, seed=1, split="train", kind="symmetric", like=None)
    again = Pairs.read(formats.write(broken, tmp_path / "out", to="datasets"))
    assert broken.labels is not None and again.labels is not None
    assert not np.array_equal(broken.labels.text, broken.labels.image[broken.picture])
    assert labels_of(again) == labels_of(broken)


def labels_of(pairs: Pairs) -> set[tuple[str, str]]:
    assert pairs.labels is not None
    return {
        (text, pairs.labels.names[int(row.argmax())])
        for text, row in zip(pairs.captions, pairs.labels.text, strict=True)
    }


def test_splits_of_other_names_stay_one_data_set_with_a_column(data: Pairs, tmp_path: Path) -> None:
    from dataclasses import replace

    named = replace(data, splits=np.where(data.splits == "test", "testall", data.splits))
    out = formats.write(named, tmp_path / "out", to="datasets")
    assert (out / "state.json").is_file() and rows_of(Pairs.read(out)) == rows_of(named)


def test_without_the_package_one_line_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert main(["data", "info", "hf-datasets:someone/something"]) == 2
    assert "pip install 'matchlight[hub-data]'" in capsys.readouterr().err
    with pytest.raises(BadInput, match="which data set"):
        Pairs.read("hf-datasets:")


@pytest.mark.full
def test_datasets_opens_what_was_written_and_what_it_saves_is_read(data: Pairs, tmp_path: Path, loader) -> None:  # type: ignore[no-untyped-def]
    out = formats.write(data, tmp_path / "out", to="datasets")
    found = loader.load_from_disk(str(out))
    assert set(found) == {"train", "validation", "test"}
    assert found["train"][0]["image"].size == (96, 72) and len(found["train"][0]["captions"]) == 2
    found.save_to_disk(str(tmp_path / "saved"))
    for path in (tmp_path / "saved", f"hf-datasets:{tmp_path / 'saved'}"):
        again = Pairs.read(path)
        assert rows_of(again) == rows_of(data)
        assert again.pictures is not None and again.pictures.open(3).size == (96, 72)
    assert rows_of(Pairs.read(tmp_path / "saved", format="datasets")) == rows_of(data)


@pytest.mark.full
def test_a_data_set_by_name_is_loaded_with_its_splits_and_class_names(
    data: Pairs, tmp_path: Path, loader, capsys
) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "named"
    for split in ("train", "test"):
        part = data.subset(split)
        assert part.pictures is not None and part.labels is not None
        columns = {
            "image": [{"bytes": part.pictures.read(int(p)), "path": part.names[p]} for p in part.picture],
            "caption": list(part.captions),
            "label": [int(row.argmax()) for row in part.labels.text],
        }
        kinds = {
            "image": loader.Image(),
            "caption": loader.Value("string"),
            "label": loader.ClassLabel(names=part.labels.names),
        }
        made = loader.Dataset.from_dict(columns, features=loader.Features(kinds))
        made.to_parquet(str(folder / f"{split}-00000-of-00001.parquet"))
    assert main(["data", "info", f"hf-datasets:{folder}", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["splits"] == {"train": {"pictures": 16, "captions": 32}, "test": {"pictures": 4, "captions": 8}}
    pairs = Pairs.read(f"hf-datasets:{folder}")
    assert labels_of(pairs) == labels_of(data.subset("train")) | labels_of(data.subset("test"))


@pytest.mark.full
def test_an_image_folder_is_loaded_with_its_pictures(data: Pairs, tmp_path: Path, loader) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "folder" / "train"
    folder.mkdir(parents=True)
    assert data.pictures is not None
    lines = ["file_name,caption"]
    for place in range(4):
        (folder / data.names[place]).write_bytes(data.pictures.read(place))
        lines.append(f"{data.names[place]},picture {place}")
    (folder / "metadata.csv").write_text("\n".join(lines) + "\n")
    pairs = Pairs.read(f"hf-datasets:{tmp_path / 'folder'}")
    assert sorted(pairs.captions) == [f"picture {place}" for place in range(4)]
    assert pairs.pictures is not None and pairs.pictures.open(0).size == (96, 72)


@pytest.mark.full
def test_what_cannot_be_loaded_is_one_line(tmp_path: Path, loader, capsys) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "empty").mkdir()
    for name in (f"{tmp_path}/empty", "no such/name", "nobody/nothing"):
        assert main(["data", "info", f"hf-datasets:{name}"]) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.full
def test_an_audit_of_a_data_set_by_name_is_applied(data: Pairs, tmp_path: Path, loader) -> None:  # type: ignore[no-untyped-def]
    from serving import audit_of

    from matchlight.auditing.apply import apply

    out = formats.write(data, tmp_path / "out", to="datasets")
    audit = audit_of(f"hf-datasets:{out}", tmp_path / "audit")  # type: ignore[arg-type]
    counts = apply(audit, tmp_path / "clean")
    assert (counts["kept"], counts["dropped"]) == (42, 6)
