"""The index as users meet it: what it finds, what it shows and how it explains."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import matchlight as ml
from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.indexing import Index, explain, picture_map
from matchlight.runs.evaluation import split_scores
from tests.indexed import PICTURES, pairs, trained


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    """A DivE index that tests only read."""
    with Index.build(trained("dive"), pairs(), tmp_path_factory.mktemp("index") / "i") as index:
        yield index


# ---- finding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dive", "scan", "sgraf", "vse++"])
def test_scoring_everything_gives_the_scores_of_evaluation(name: str, tmp_path: Path) -> None:
    run = trained(name)
    scores = split_scores(run, pairs(), "all")
    with Index.build(run, pairs(), tmp_path / "i", map=False) as index:
        for row in (0, 7, 31):
            found = index.search(pairs().captions[row], top=PICTURES, exact=True)
            mine = np.empty(PICTURES)
            mine[[hit.id for hit in found.hits]] = [hit.score for hit in found.hits]
            np.testing.assert_allclose(mine, scores[:, row], atol=4e-3)  # vectors are stored in half precision
            assert found.scored == found.total == PICTURES


def test_an_index_needs_nothing_but_itself(tmp_path: Path) -> None:
    run = trained("scan")
    copy = tmp_path / "run"
    shutil.copytree(run.folder, copy)
    Index.build(ml.Run.load(copy, device="cpu"), pairs(), tmp_path / "i", map=False).close()
    measured = json.loads((copy / "metrics.json").read_text())
    shutil.rmtree(copy)
    (tmp_path / "i").rename(tmp_path / "moved")
    with Index.load(tmp_path / "moved", device="cpu") as index:
        assert len(index.search("a cat near owl").hits) == 10
        assert json.loads((index.model.folder / "metrics.json").read_text()) == measured


def test_words_the_model_does_not_know_are_told(small: Index) -> None:
    assert small.search("a zebra near cat").unknown == ["zebra"]
    assert small.search("a cat").unknown == []


def test_what_cannot_be_asked_is_told_in_one_line(small: Index) -> None:
    for asked, told in (
        ({}, "words, for a picture"),
        ({"words": "  "}, "no words"),
        ({"words": "x" * 20_000}, "characters"),
        ({"words": "cat", "top": 0}, "top=0"),
        ({"words": "cat", "find": "sound"}, "image or text"),
        ({"words": "cat", "candidates": 0}, "at least 1"),
        ({"image": b"GIF89a"}, "cannot be turned|no readable picture"),
    ):
        with pytest.raises(BadInput, match=told):
            small.search(**asked)


def test_captions_are_found_for_words_and_rows_are_those_of_the_data(small: Index) -> None:
    best = small.search(pairs().captions[12], find="text").hits[0]
    assert (best.caption, best.row, best.id) == (pairs().captions[12], 12, 6)
    assert best.score == pytest.approx(1.0, abs=5e-3)


def test_a_hit_on_a_picture_shows_its_caption_most_like_the_words(small: Index) -> None:
    for row in (12, 13):
        hits = small.search(pairs().captions[row], top=PICTURES, exact=True).hits
        assert {hit.id: hit.row for hit in hits}[6] == row


def test_neighbours_are_by_likeness_and_never_the_picture_itself(small: Index) -> None:
    found = small.neighbours(3, top=5)
    assert len(found) == 5
    assert 3 not in [hit.id for hit in found]
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)


def test_captions_that_fit_a_picture_are_those_of_scoring_everything(small: Index) -> None:
    scores = split_scores(trained("dive"), pairs(), "all")
    found = small.captions(3, top=5)
    assert [hit.row for hit in found] == np.argsort(-scores[3], kind="stable")[:5].tolist()
    assert [hit.rank for hit in found] == [1, 2, 3, 4, 5]
    with pytest.raises(BadInput, match="no picture 99"):
        small.captions(99)


def test_each_slot_of_a_picture_names_the_caption_nearest_to_it(small: Index) -> None:
    told = small.explain(3, "a cat")
    image = small.searcher.sides["image"].sets.take(np.array([3])).vectors[0]
    texts = small.searcher.sides["text"].sets.take(np.arange(2 * PICTURES)).vectors
    near = np.einsum("kd,tsd->kts", image, texts).max(2)
    assert [one["row"] for one in told["nearest"]] == near.argmax(1).tolist()
    assert [one["score"] for one in told["nearest"]] == pytest.approx(near.max(1).tolist(), abs=2e-3)
    assert told["nearest"][0]["caption"] == pairs().captions[told["nearest"][0]["row"]]


def test_an_item_is_described(small: Index) -> None:
    item = small.item(3)
    assert item["name"] == "p3"
    assert [one["row"] for one in item["captions"]] == [6, 7]
    assert item["split"] == "train"
    with pytest.raises(BadInput, match="no picture 99"):
        small.item(99)
    with pytest.raises(BadInput, match="no thumbnail"):
        small.thumbnail(3)


def test_a_split_is_indexed_under_its_own_places(tmp_path: Path) -> None:
    with Index.build(trained("dive"), pairs(), tmp_path / "i", split="test") as index:
        assert index.ids.tolist() == list(range(34, 40))
        assert index.map is not None
        assert index.map.shape == (6, 2)
        hit = index.search(pairs().captions[70], top=6, find="text").hits[0]
        assert (hit.row, hit.id) == (70, 35)


# ---- looking ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dive", "scan", "bfan", "sgraf", "vse++"])
def test_an_explanation_has_a_weight_for_every_word_and_region(name: str, tmp_path: Path) -> None:
    with Index.build(trained(name), pairs(), tmp_path / "i", map=False) as index:
        told = index.explain(3, "a cat near zebra")
        assert told["words"] == ["a", "cat", "near", "zebra"]
        assert told["unknown"] == ["zebra"]
        weights = np.array(told["weights"])
        assert weights.shape == (4, len(told["regions"])) == (4, 1 if name == "vse++" else 5)
        assert weights.min() >= 0
        assert weights.max() == pytest.approx(1.0) or not weights.any()
        exact = index.search("a cat near zebra", top=PICTURES, exact=True).hits
        assert told["score"] == pytest.approx({hit.id: hit.score for hit in exact}[3], abs=1e-4)


def test_cells_of_a_grid_fill_the_picture_row_after_row() -> None:
    assert explain.grid(6, 2 / 3) == [
        (0, 0, 1 / 3, 0.5), (1 / 3, 0, 2 / 3, 0.5), (2 / 3, 0, 1, 0.5),
        (0, 0.5, 1 / 3, 1), (1 / 3, 0.5, 2 / 3, 1), (2 / 3, 0.5, 1, 1),
    ]  # fmt: skip


def test_a_map_puts_pictures_that_look_alike_together() -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([centre + 0.1 * rng.normal(size=(30, 8)) for centre in 4 * np.eye(8)[:2]])
    places = picture_map.points(rows.astype(np.float32))
    assert np.abs(places).max() <= 1
    one, other = places[:30].mean(0), places[30:].mean(0)
    assert np.linalg.norm(one - other) > 2 * max(places[:30].std(0).max(), places[30:].std(0).max())
    beside = picture_map.beside(rows[:2], rows[2:], places[2:])
    assert np.linalg.norm(beside - one, axis=1).max() < np.linalg.norm(one - other) / 2


# ---- pictures --------------------------------------------------------------------------------------------------------

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (40, 60, 220), "yellow": (240, 220, 40)}


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen pictures of a coloured square on grey, and a run that has seen them once."""
    root = tmp_path_factory.mktemp("squares")
    (root / "data" / "images").mkdir(parents=True)
    lines = []
    for k in range(16):
        name, colour = list(COLOURS.items())[k % 4]
        picture = Image.new("RGB", (96, 64), (128, 128, 128))
        picture.paste(colour, (10 + k, 10, 50 + k, 50))
        picture.save(root / "data" / "images" / f"{k:02d}.png")
        split = "train" if k < 12 else "val"
        title = "\x1b]0;mine\x07\x9b2J" if k == 15 else ""  # what would set the window's title and clear the screen
        lines.append({"image": f"{k:02d}.png", "captions": [f"a {name} square{title}"], "split": split})
    (root / "data" / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return root


def test_pictures_in_and_out_by_the_command_line(
    squares: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MATCHLIGHT_CACHE", str(squares / "cache"))
    settings = ["epochs=1", "dim=16", "hidden=8", "word_dim=8", "batch=8", "pixels=64"]
    data, run, out = (str(squares / name) for name in ("data", "run", "index"))
    assert main(["train", "vse_infty", "--data", data, "-o", run, "--device", "cpu", *settings]) == 0
    capsys.readouterr()
    assert main(["index", run, "--data", data, "-o", out, "--device", "cpu", "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert (about["items"], about["captions"], about["thumbnails"]) == (16, 16, True)
    assert main(["search", out, "a red square", "--top", "3", "--json", "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) >= {"query", "results", "milliseconds"}
    assert [set(hit) >= {"rank", "score", "image", "caption", "row"} for hit in found["results"]] == [True] * 3
    picture = str(squares / "data" / "images" / "05.png")
    assert main(["search", out, "--image", picture, "--find", "image", "--json", "--device", "cpu"]) == 0
    best = json.loads(capsys.readouterr().out)["results"][0]
    assert (best["image"].endswith("05.png"), best["score"]) == (True, pytest.approx(1.0, abs=1e-2))
    assert main(["search", out, "a green square", "--top", "16", "--device", "cpu"]) == 0
    told = capsys.readouterr()
    assert not {"\x1b", "\x07", "\x9b"} & {*told.out, *told.err} and "\\x1b]0" in told.out
    assert main(["search", out, "--where", "split", "red"]) == 2
    assert main(["search", out]) == 2
    assert main(["search", str(squares / "data"), "red"]) == 2
    assert [len(line) > 0 for line in capsys.readouterr().err.splitlines()] == [True] * 3
    with Index.load(out, device="cpu") as index:
        shown = Image.open(io.BytesIO(index.thumbnail(5)))
        assert (shown.format, shown.size, index.item(5)["size"]) == ("JPEG", (96, 64), [96, 64])
        told = index.explain(5, "a green square")
        assert (told["kind"], np.array(told["weights"]).shape) == ("occlusion", (3, 16))
        with pytest.raises(BadInput, match="no readable picture"):
            index.search(image=b"not a picture")
        by_bytes = index.search(image=(squares / "data" / "images" / "05.png").read_bytes())
        assert [hit.row for hit in by_bytes.hits] == [hit.row for hit in index.search(image=picture).hits]
