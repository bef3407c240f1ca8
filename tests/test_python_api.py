"""The Python API: type hints on everything public, results as tables and data frames, audits of lists in memory."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
from serving import drawn

import matchlight as ml
from matchlight.pairs import BadPicture
from matchlight.runs.history import History

CALLABLE = Callable[..., object]


def functions(name: str) -> Iterator[tuple[str, CALLABLE]]:
    """A public function, or the public methods and properties of a public class."""
    value = getattr(ml, name)
    if not inspect.isclass(value):
        yield from [(name, value)] if callable(value) else []
        return
    for part, own in vars(value).items():
        if part.startswith("_") and part != "__init__":
            continue
        inner = own.fget if isinstance(own, property) else own.func if isinstance(own, cached_property) else own
        inner = inner.__func__ if isinstance(inner, staticmethod | classmethod) else inner
        if inspect.isfunction(inner):
            yield f"{name}.{part}", inner


@pytest.mark.parametrize("name", ml.__all__)
def test_every_public_name_says_the_types_of_what_it_takes_and_gives(name: str) -> None:
    for place, function in functions(name):
        signature = inspect.signature(function)
        hints = [one.annotation for one in signature.parameters.values() if one.name not in ("self", "cls")]
        if not place.endswith("__init__"):
            hints.append(signature.return_annotation)
        assert inspect.Parameter.empty not in hints, place


def test_type_checkers_see_every_public_name() -> None:
    text = Path(ml.__file__).read_text()
    declared = text.partition("if TYPE_CHECKING:")[2].partition("_HOMES")[0]
    assert all(f"{name}," in declared or f"{name}\n" in declared for name in ml.__all__)
    assert (Path(ml.__file__).parent / "py.typed").is_file()


# ---- results ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def report(tmp_path: Path) -> ml.Evaluation:
    pairs = ml.Pairs.read(drawn(tmp_path / "shapes"))
    part = pairs.subset("test")
    scores = np.random.default_rng(0).random((len(part.names), len(part))).astype(np.float32)
    np.save(tmp_path / "scores.npy", scores)
    return ml.evaluate_file(tmp_path / "scores.npy", pairs, ci=True)


def test_a_report_is_a_dataclass_and_a_dict_that_prints_as_a_table(report: ml.Evaluation) -> None:
    assert dataclasses.is_dataclass(report) and json.loads(json.dumps(report)) == dict(report)
    assert (report.split, report.protocol) == ("test", "auto")
    assert "image to text" in str(report) and "│" in str(report) and "\x1b" not in str(report)
    assert report._repr_html_().startswith("<pre>")


def test_a_report_becomes_a_data_frame_with_a_line_a_figure(report: ml.Evaluation) -> None:
    frame = report.to_pandas()
    side = report["i2t"]
    assert isinstance(side, dict)
    assert frame.loc["i2t.r1", "value"] == side["r1"] and frame.loc["pictures", "value"] == 4
    assert frame.loc["rsum", "low"] <= frame.loc["rsum", "value"] <= frame.loc["rsum", "high"]


def test_what_a_search_found_prints_as_a_table_and_becomes_a_data_frame() -> None:
    hits = [ml.Hit(1, 0.75, 3, "a.jpg", "a dog \x1b[31m", 7), ml.Hit(2, 0.5, 4, "b.jpg", "a cat", 8)]
    results = ml.Results("a dog", hits, 1.5)
    assert "a dog: 2 hits in 1.5 ms" in str(results) and "a cat" in str(results) and "\x1b" not in str(results)
    assert results.to_pandas().loc[2, "image"] == "b.jpg"


def test_the_history_of_a_run_prints_as_a_table_and_becomes_a_data_frame(tmp_path: Path) -> None:
    lines = [{"epoch": 0, "phase": "fit", "loss": 2.5, "seconds": 1.0, "val": {"rsum": 30.5, "i2t": {"r1": 5.0}}}]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    history = History.read(tmp_path)
    assert "val.rsum" in str(history) and "30.5" in str(history)
    assert history.to_pandas().loc[0, "val.i2t.r1"] == 5.0
    assert History.read(tmp_path / "none").to_pandas().empty
    (tmp_path / "log.jsonl").write_text("[1]\n")
    with pytest.raises(ml.BadInput, match="not a run's log"):
        History.read(tmp_path)


# ---- lists in memory -------------------------------------------------------------------------------------------------


@pytest.fixture
def lists(tmp_path: Path) -> tuple[list[object], list[list[str]]]:
    """Pictures of PIL, an array and a path; the captions of two pictures changed places."""
    pairs = ml.Pairs.read(drawn(tmp_path / "shapes"))
    assert pairs.pictures is not None
    images: list[object] = [pairs.pictures.open(place) for place in range(len(pairs.names))]
    images[1], images[2] = np.asarray(images[1]), tmp_path / "shapes" / "images" / pairs.names[2]
    captions = [[pairs.captions[row] for row in np.flatnonzero(pairs.picture == place)] for place in range(24)]
    captions[3], captions[17] = captions[17], captions[3]
    return images, captions


def test_lists_in_memory_are_audited_and_one_broken_picture_does_not_end_it(
    lists: tuple[list[object], list[list[str]]], tmp_path: Path
) -> None:
    images, captions = lists
    images[5] = Path("nowhere.jpg")
    audit = ml.audit(images=images, captions=captions, pictures="own", out=tmp_path / "audit")  # type: ignore[arg-type]
    frame = audit.to_pandas()
    assert len(frame) == 48 and list(frame.image[:5:2]) == ["image-0", "image-1", str(images[2])]
    assert set(frame[frame.image == "nowhere.jpg"].reason) == {"unreadable"}
    swapped = frame.image.isin(["image-3", "image-17"])
    assert frame[swapped].score.max() < frame[~swapped].score.median()
    assert (tmp_path / "audit" / "report.html").is_file()
    assert "48 pairs of 'train'" in str(audit) and audit._repr_html_().startswith("<pre>")
    assert len(audit.to_pandas(suspects=True)) == audit.summary["flagged"] == len(audit.suspects)


def test_pairs_of_lists_hold_pictures_captions_and_labels(lists: tuple[list[object], list[list[str]]]) -> None:
    images, captions = lists
    pairs = ml.Pairs.of(images[:2], ["one", ["two", "three"]], labels=["b", "a"])  # type: ignore[arg-type]
    assert (len(pairs), pairs.picture.tolist(), pairs.split_names) == (3, [0, 1, 1], ["train"])
    assert pairs.labels is not None and pairs.labels.text.argmax(1).tolist() == [1, 0, 0]
    assert pairs.pictures is not None and pairs.pictures.open(1).size == (96, 72)
    assert pairs.pictures.read(0).startswith(b"\x89PNG")
    assert pairs.pictures.stamp(0) != pairs.pictures.stamp(1) == pairs.pictures.take(np.array([1])).stamp(0)
    with pytest.raises(BadPicture):
        ml.Pairs.of([np.zeros((2, 2, 7))], ["x"]).pictures.open(0)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "audit what"),
        ({"images": ["a.jpg"]}, "go together"),
        ({"captions": ["a"]}, "go together"),
        ({"images": ["a.jpg"], "captions": ["a", "b"]}, "1 images but 2 captions"),
        ({"images": [7], "captions": ["a"]}, r"images\[0\]: int"),
        ({"images": ["a.jpg"], "captions": [[7]]}, r"captions\[0\]: 7 is no text"),
        ({"images": ["a.jpg"], "captions": ["a"], "labels": []}, "1 images but 0 labels"),
    ],
)
def test_lists_that_do_not_fit_are_one_clear_line(given: dict[str, object], says: str) -> None:
    with pytest.raises(ml.BadInput, match=says):
        ml.audit(**given)  # type: ignore[arg-type]
