"""What can be asked of an index: signs and quotes, picture and words, filters, chances, near-duplicates, growth."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from matchlight.cli import main
from matchlight.core import IMAGE, TEXT, BadInput
from matchlight.data.camera_notes import UNKNOWN, bounds, camera_notes
from matchlight.indexing import Index
from matchlight.indexing.chances import FILE, Chances
from matchlight.indexing.questions import Question
from matchlight.pairs import Pairs
from matchlight.runs.folder import Run

# ---- signs and quotes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("a dog on a beach", Question("a dog on a beach")),
        ("dog +red -car", Question("dog red", ("red",), ("car",))),
        ('man "red shirt"', Question("man red shirt", said=("red shirt",))),
        ('dog -"palm tree" +"blue ball"', Question("dog blue ball", ("blue ball",), ("palm tree",))),
        ("a t-shirt, 3 - 2 + c++", Question("a t-shirt, 3 - 2 + c++")),
        ('an odd " quote', Question('an odd " quote')),
    ],
)
def test_signs_and_quotes_are_read_and_other_text_is_left_alone(typed: str, expected: Question) -> None:
    assert Question.of(typed) == expected


def test_a_question_of_what_it_is_not_alone_is_told(collection: tuple[Path, Path]) -> None:
    with pytest.raises(BadInput, match="say what to look for too"):
        Question.of("-car")
    with pytest.raises(BadInput, match="8 at most"):
        Question.of(" ".join(f"+{k}" for k in range(9)))
    assert main(["search", str(collection[0]), "--", "-car"]) == 2


@pytest.fixture(scope="module")
def index(collection: tuple[Path, Path]) -> Index:
    return Index.load(collection[0], device="cpu")


def test_less_of_a_word_leaves_out_pictures_whose_captions_say_it(index: Index) -> None:
    every = {hit.image for hit in index.search("a ball", top=24, fold=False).hits}
    left = {hit.image for hit in index.search("a ball -red", top=24, fold=False).hits}
    assert len(every) == 24 and left == {name for name in every if "red" not in name}


def test_more_of_a_word_lifts_what_fits_it(index: Index) -> None:
    def mean_rank(words: str) -> float:
        hits = index.search(words, top=24, exact=True, fold=False).hits
        return float(np.mean([hit.rank for hit in hits if hit.id in wanted]))

    wanted = [hit.id for hit in index.search("blue", top=6, exact=True, fold=False).hits]
    assert mean_rank("a ball on white +blue") < mean_rank("a ball on white")


def test_quotes_find_only_pictures_with_a_caption_that_says_so(index: Index) -> None:
    found = index.search('"RED ball"', top=24).hits
    assert [Path(hit.image).name for hit in found] == ["red_ball.png"]
    assert index.search('"ball red"').hits == []


# ---- a picture and words ---------------------------------------------------------------------------------------------


def test_a_picture_and_words_together_find_pictures_near_both(index: Index) -> None:
    like, words, both = (
        {hit.id: hit.rank for hit in index.search(**asked, find="image", top=24, exact=True, fold=False).hits}  # type: ignore[arg-type]
        for asked in ({"like": 0}, {"words": "a green box"}, {"words": "a green box", "like": 0})
    )
    assert 0 not in like and 0 not in both and 0 in words  # a picture is not found with itself
    first = min(both, key=lambda id: both[id])
    assert like[first] <= 12 or words[first] <= 12
    same = index.search("a green box", image=index.thumbnail(0), top=3)
    assert len(same.hits) == 3 and all(hit.chance is None for hit in same.hits)
    with pytest.raises(BadInput, match="not captions"):
        index.search("a box", like=0, find="text")
    with pytest.raises(BadInput, match="not both"):
        index.search("a box", like=0, image=index.thumbnail(0))


# ---- chances ---------------------------------------------------------------------------------------------------------


def test_an_index_says_how_likely_hits_are_and_what_that_was_measured_with(index: Index) -> None:
    found = index.search("a red ball on white", top=5)
    assert found.chances_from == "learnt captions"  # fewer than forty of its captions are new to the model
    assert all(hit.chance is not None and 0 <= hit.chance <= 1 for hit in found.hits)
    about = index.describe()["chances"]
    assert about["source"] == "learnt captions" and about["image"]["questions"] >= 40  # type: ignore[index,call-overload]
    plain = found.plain()
    assert type(plain["nothing_fits"]) is bool and "chance" in plain["results"][0]  # type: ignore[index,operator,call-overload]


def test_an_index_of_old_has_no_chances_and_still_answers(collection: tuple[Path, Path], tmp_path: Path) -> None:
    with Index.load(collection[0]) as index:
        old = Chances.load(tmp_path / FILE, index.searcher)
        assert old.curves == {} and old.source is None and len(old.sample[IMAGE]) == 24 and len(old.sample[TEXT]) == 48
        index.chances = old
        found = index.search("a red ball +red")
        assert not found.nothing_fits and {hit.chance for hit in found.hits} == {None}


# ---- dates, cameras, folders, captions, near-duplicates --------------------------------------------------------------


def shot(path: Path, source: Path, taken: str, model: str, *, make: str = "Lumen", quality: int = 90) -> None:
    """A photograph with what a camera writes into it."""
    image, notes = Image.open(source).convert("RGB").resize((192, 144)), Image.Exif()
    notes[0x010F], notes[0x0110] = make, model
    notes.get_ifd(0x8769)[0x9003] = taken
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, "JPEG", quality=quality, exif=notes)


@pytest.fixture(scope="module")
def album(collection: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of photographs in folders, two of them saved twice."""
    folder, drawn = tmp_path_factory.mktemp("album"), collection[1] / "images"
    shot(folder / "2023/winter/a.jpg", drawn / "red_ball.png", "2023:12:24 18:00:00", "Lumen One")
    shot(folder / "2024/summer/b.jpg", drawn / "blue_box.png", "2024:07:01 09:30:00", "Lumen One")
    shot(folder / "2024/summer/b again.jpg", drawn / "blue_box.png", "2024:07:01 09:30:00", "Lumen One", quality=70)
    shot(folder / "2024/c.jpg", drawn / "green_ring.png", "0000:00:00 00:00:00", "Two\x00\x1b[31m")
    shutil.copy(drawn / "yellow_bar.png", folder / "d.png")
    out = folder.with_name(f"{folder.name}.index")
    Index.build(Run.load(collection[0].parent / "run", device="cpu"), Pairs.read(folder), out).close()
    return out


def names(index: Index, **where: str | list[str]) -> set[str]:
    return {index.item(int(id))["name"].rpartition("/")[2] for id in index.matching(where)}


def test_pictures_are_found_by_date_camera_and_folder(album: Path) -> None:
    with Index.load(album) as index:
        assert names(index, **{"from": "2024"}) == {"b.jpg", "b again.jpg"}
        assert names(index, **{"from": "2023-12-24", "to": "2023-12-24"}) == {"a.jpg"} == names(index, to="2023-12")
        assert names(index, camera="Lumen One") == {"a.jpg", "b.jpg", "b again.jpg"}
        assert names(index, camera="Lumen Two [31m") == {"c.jpg"}  # nothing that a terminal would obey
        assert names(index, folder="2024") == {"b.jpg", "b again.jpg", "c.jpg"}
        assert names(index, folder=["2024/summer/", "2023"]) == {"a.jpg", "b.jpg", "b again.jpg"}
        item = next(index.item(int(id)) for id in index.matching({"name": "2023"}))
        assert (item["taken"], item["camera"]) == ("2023-12-24T18:00:00", "Lumen One")
        for where, told in (
            ({"from": "May"}, "2024-05-31"),
            ({"camera": "Nokia"}, "it has Lumen One"),
            ({"caption": " "}, "the words that a caption must hold"),
        ):
            with pytest.raises(BadInput, match=told):
                index.matching(where)
        with pytest.raises(BadInput, match="no captions"):
            index.search('a "red ball"')


def test_near_duplicates_are_shown_as_one_unless_all_are_asked_for(album: Path) -> None:
    with Index.load(album) as index:
        folded, every = (index.search("a blue box", top=5, fold=fold).hits for fold in (True, False))
        assert len(every) == 5 and [hit.alike for hit in every] == [()] * 5
        assert len(folded) == 4 and sorted(len(hit.alike) for hit in folded) == [0, 0, 0, 1]
        (kept,) = (hit for hit in folded if hit.alike)
        assert {index.item(one)["name"].rpartition("/")[2] for one in (kept.id, *kept.alike)} == {
            "b.jpg",
            "b again.jpg",
        }


def test_the_command_line_narrows_and_tells_what_is_alike(album: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["search", str(album), "a blue box", "--where", "from=2024-07", "--where", "folder=2024"]
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [len(hit["alike"]) for hit in found["results"]] == [1] and found["total"] == 2
    assert found["results"][0]["caption"] is None and found["results"][0]["chance"] is None
    assert found["nothing_fits"] is False
    assert main([*asked, "--no-fold"]) == 0
    assert "b again.jpg" in capsys.readouterr().out


def test_notes_of_hostile_pictures_are_unknown() -> None:
    for blob in (b"", b"\xff\xd8\xff\xe1\x00\x08Exif\x00\x00", b"GIF89a"):
        assert camera_notes(blob).taken == UNKNOWN and camera_notes(blob).camera == ""
    assert bounds("2024-02", "from")[1] == bounds("2024-03-01", "from")[0]
    assert bounds("9999", "to")[1] > bounds("9998", "to")[1]


# ---- growth ----------------------------------------------------------------------------------------------------------


def test_results_stay_as_they_were_when_the_index_grows(collection: tuple[Path, Path], tmp_path: Path) -> None:
    """What was found is found in the same order with the same scores, new pictures between; chances hardly move."""
    pairs = Pairs.read(collection[1])
    old, new = (
        pairs.select(which, np.flatnonzero(np.isin(pairs.picture, which))) for which in np.split(np.arange(24), [20])
    )
    run = Run.load(collection[0].parent / "run", device="cpu")
    asked = ("a red ball", "the ring is green", "a yellow box on white -ball")
    with Index.build(run, old, tmp_path / "grows") as index:
        before = [index.search(words, top=20, fold=False).hits for words in asked]
        index.add(new)
        after = [index.search(words, top=24, fold=False).hits for words in asked]
    assert index.chances.source == "learnt captions"
    for was, now in zip(before, after, strict=True):
        kept = [hit for hit in now if hit.id < 20]
        assert [hit.id for hit in kept] == [hit.id for hit in was]
        assert np.allclose([hit.score for hit in kept], [hit.score for hit in was], atol=1e-6)
        moved = np.abs(np.array([hit.chance for hit in kept]) - np.array([hit.chance for hit in was]))
        assert moved.max() < 0.1
