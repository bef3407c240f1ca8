"""An index of pictures alone: searched by words and by pictures, served, and grown by pictures with captions too."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from matchlight.cli import main
from matchlight.core import BadInput, Embedding, Matcher
from matchlight.indexing import Index
from matchlight.pairs import Pairs
from matchlight.parts.similarities import Dot
from matchlight.runs.folder import Run
from matchlight.serve import create
from tests.indexed import pairs, trained


@pytest.fixture(scope="module")
def photos(collection: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pictures of the collection in folders, and one that is broken."""
    folder = tmp_path_factory.mktemp("photos")
    for number, file in enumerate(sorted((collection[1] / "images").iterdir())):
        (folder / str(number % 3)).mkdir(exist_ok=True)
        shutil.copy(file, folder / str(number % 3) / file.name)
    (folder / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    return folder


@pytest.fixture(scope="module")
def built(collection: tuple[Path, Path], photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bare") / "index"
    Index.build(Run.load(collection[0].parent / "run", device="cpu"), Pairs.read(photos), folder).close()
    return folder


@pytest.fixture
def bare(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "bare"))


def test_words_find_the_pictures_they_find_with_captions_beside_them(collection, bare: Path) -> None:
    with Index.load(collection[0]) as full, Index.load(bare) as alone:
        assert (len(alone), alone.describe()["captions"], alone.describe()["recall"]) == (24, 0, {"image": None})
        for words in ("a red ball", "the ring is blue"):
            names = [
                [hit.image.rpartition("/")[2] for hit in index.search(words, top=5, exact=True).hits]
                for index in (full, alone)
            ]
            assert names[0] == names[1]
        hit = alone.search("a red ball", top=1).hits[0]
        assert (hit.caption, hit.row) == ("", -1)
        assert alone.neighbours(hit.id, top=3) and alone.captions(hit.id) == []
        assert alone.explain(hit.id, "a red ball")["nearest"] == []


def test_captions_are_not_there_to_be_found_and_a_line_says_so(bare: Path, photos: Path) -> None:
    with Index.load(bare) as index:
        with pytest.raises(BadInput, match="holds pictures without captions; find=image"):
            index.search("a red ball", find="text")
        file = next(photos.glob("0/*.png"))
        assert index.search(image=str(file), top=1).hits[0].image == f"0/{file.name}"


def test_the_commands_index_search_and_embed_pictures_alone(collection, photos, tmp_path, capsys) -> None:
    run = str(collection[0].parent / "run")
    assert main(["index", run, "--data", str(photos), "-o", str(tmp_path / "index"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["items"] == 24
    assert main(["search", str(tmp_path / "index"), "a red ball"]) == 0
    shown = capsys.readouterr().out
    assert "image" in shown and "caption" not in shown and "-1" not in shown
    assert main(["search", str(tmp_path / "index"), "a red ball", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["results"]) == 10
    assert main(["embed", run, "--data", str(photos), "-o", str(tmp_path / "vectors.npz"), "--json"]) == 0
    with np.load(tmp_path / "vectors.npz") as arrays:
        assert len(arrays["image"]) == len(arrays["names"]) == 24 and "text" not in arrays
        assert "cut.png" not in arrays["names"]


def test_pictures_alone_are_served(bare: Path) -> None:
    from starlette.testclient import TestClient

    with TestClient(create(bare), base_url="http://127.0.0.1:8000") as client:
        hits = client.get("/api/search", params={"q": "a red ball", "top": 4}).json()["results"]
        assert len(hits) == 4
        assert client.get(f"/api/items/{hits[0]['id']}").json()["captions"] == []
        assert client.get(f"/api/items/{hits[0]['id']}/captions").json()["results"] == []
        assert client.get("/api/about").status_code == 200


def test_an_index_without_captions_grows_by_both_and_loses_the_captions_again(collection, bare: Path) -> None:
    captioned = Pairs.read(collection[1])
    few = captioned.select(np.arange(4), np.flatnonzero(captioned.picture < 4))
    with Index.load(bare) as index:
        added = index.add(few)
        assert (len(index), index.describe()["captions"]) == (28, len(few))
        assert index.search("a red ball", find="text", top=2).hits[0].caption
        rows = index.describe()["vectors"]["text"]
        more = index.add(captioned.select(np.arange(4, 6), np.zeros(0, dtype=np.int64)))
        assert len(index) == 30 and index.describe()["vectors"]["text"] == rows
        index.remove(added)
        assert (len(index), index.describe()["captions"]) == (26, 0)
        assert more[0] in index.ids.tolist()
        index.remove(more)
        with pytest.raises(BadInput, match="nothing would be left"):
            index.remove(index.ids.tolist())


class ScoresOnly(Dot):
    """A similarity of another package that scores pairs and has no vectors to propose with."""

    def coarse(self, embedding: Embedding, side: str) -> Tensor | None:
        return None


def test_a_model_without_vectors_of_its_own_says_that_it_learns_them_from_captions(tmp_path: Path) -> None:
    run = trained("vse_infty")
    alone = pairs().select(np.arange(len(pairs().names)), np.zeros(0, dtype=np.int64))
    bare = replace(run, matcher=Matcher(dict(run.matcher.encoders.items()), ScoresOnly()))
    with pytest.raises(BadInput, match="ScoresOnly has no vectors of its own.*vse_infty or lantern"):
        Index.build(bare, alone, tmp_path / "index")
