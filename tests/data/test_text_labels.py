"""Labels read off captions: which words name things, what counts as a mention, and the command that writes them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.data.caption_labels import labelled_by_words, object_words, singular, summary
from matchlight.pairs import Labels, Pairs

CAPTIONS = [
    ["a brown dog runs on the grass", "two dogs are running near a fence"],
    ["a small dog is behind a fence", "a dog in front of the fence"],
    ["the man is riding a red bike", "a man with a bike"],
    ["men on bikes", "a group of men is riding"],
    ["a woman stands on the grass", "a tall woman in a building"],
    ["the building is on a hill", "two small buildings behind a red fence"],
    ["a horse on a small hill", "the brown horse jumps over a red fence"],
    ["the owl", "an owl in a tree"],
]


def pairs_of(captions: list[list[str]], **more: object) -> Pairs:
    flat = [caption for own in captions for caption in own]
    picture = np.repeat(np.arange(len(captions)), [len(own) for own in captions])
    splits = np.array(["train"] * (len(captions) - 1) + ["test"])
    return Pairs([f"{i}.png" for i in range(len(captions))], flat, picture, splits, **more)  # type: ignore[arg-type]


def words_of(captions: list[list[str]], **options: float) -> list[str]:
    pairs = pairs_of(captions)
    return object_words(pairs.captions, pairs.picture, **options)  # type: ignore[arg-type]


def test_things_are_found_and_adjectives_verbs_and_single_mentions_are_not() -> None:
    assert set(words_of(CAPTIONS)) == {"dog", "fence", "grass", "man", "bike", "building", "hill"}


def test_frequent_things_come_first_and_equally_frequent_ones_by_alphabet() -> None:
    captions = [["a cat"], ["a cat"], ["a cat"], ["an owl and a bee"], ["the owl and the bee"], ["a tree"], ["a tree"]]
    assert words_of(captions) == ["cat", "bee", "owl", "tree"]
    assert words_of(captions, top=2) == ["cat", "bee"]


def test_words_of_too_many_or_too_few_pictures_are_passed_over() -> None:
    captions = [["a cat and a dog"]] * 6 + [["a cat"]] * 3 + [["a cat and an elk"]]
    assert words_of(captions, most=1.0) == ["cat", "dog"]  # one picture of an elk is one too few
    assert words_of(captions, most=0.9) == ["dog"]
    assert words_of(captions, most=1.0, least=0.7) == ["cat"]


@pytest.mark.parametrize(
    ("word", "known", "wanted"),
    [
        ("dogs", ["dog"], "dog"),
        ("dogs", [], "dogs"),
        ("men", ["man"], "man"),
        ("boxes", ["box"], "box"),
        ("puppies", ["puppy"], "puppy"),
        ("grass", ["gras"], "grass"),
        ("horses", ["horse"], "horse"),
        ("bus", ["bu"], "bus"),
    ],
)
def test_plurals_are_the_thing_itself(word: str, known: list[str], wanted: str) -> None:
    assert singular(word, known) == wanted


def test_a_picture_has_every_label_that_one_of_its_captions_names() -> None:
    made = labelled_by_words(pairs_of(CAPTIONS), words=["dog", "fence", "man", "Owl"])
    assert made.labels is not None and made.labels.names == ["dog", "fence", "man", "owl"]
    wanted = [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0]]
    assert made.labels.image.astype(int).tolist() == [*wanted, [0, 0, 0, 1]]
    assert (made.labels.text == made.labels.image[made.picture]).all()
    told = summary(made)
    assert told["labels"] == 4 and told["labelled_pictures"] == 7 and told["labels_per_picture"] == 1.12
    assert told["names"] == ["fence", "dog", "man", "owl"]


def test_labels_are_chosen_by_training_captions_alone() -> None:
    made = labelled_by_words(pairs_of([*CAPTIONS[:-1], ["a zebra", "a zebra in the zoo"]]))
    assert made.labels is not None and "zebra" not in made.labels.names and not made.labels.image[-1].any()


@settings(deadline=None, max_examples=20)
@given(order=st.permutations(range(7)))
def test_the_order_of_pictures_does_not_choose_the_labels(order: list[int]) -> None:
    assert words_of([CAPTIONS[place] for place in order]) == words_of(CAPTIONS[:7])


def test_data_that_has_labels_or_no_words_is_refused() -> None:
    pairs = pairs_of(CAPTIONS)
    hot = np.ones((8, 1), dtype=bool)
    with pytest.raises(BadInput, match="has labels already"):
        labelled_by_words(replace(pairs, labels=Labels(["a"], hot, hot[pairs.picture])))
    with pytest.raises(BadInput, match="not in words"):
        labelled_by_words(replace(pairs, captions=[""] * len(pairs), text_features=np.zeros((len(pairs), 3))))
    with pytest.raises(BadInput, match="--words"):
        labelled_by_words(pairs_of([["running"], ["jumping"], ["up"]]))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    (folder / "images").mkdir(parents=True)
    lines = []
    for number, captions in enumerate(CAPTIONS):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / "images" / f"{number}.png")
        lines.append({"image": f"{number}.png", "captions": captions, "split": "train" if number < 7 else "test"})
    (folder / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_the_command_writes_the_same_data_with_labels(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "labels", str(photos), "-o", str(tmp_path / "out"), "--top", "3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    made = Pairs.read(tmp_path / "out")
    assert made.labels is not None and sorted(made.labels.names) == sorted(told["names"]) and told["labels"] == 3
    before = Pairs.read(photos)
    assert list(made.captions) == list(before.captions) and list(made.splits) == list(before.splits)
    assert main(["data", "labels", str(tmp_path / "out"), "-o", str(tmp_path / "again")]) == 2
    assert "has labels already" in capsys.readouterr().err


def test_the_command_takes_a_list_of_words(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "words.txt").write_text("owl\n\nwoman\n")
    arguments = ["data", "labels", str(photos), "-o", str(tmp_path / "out"), "--words", str(tmp_path / "words.txt")]
    assert main(arguments) == 0
    assert "labels 2" in capsys.readouterr().out
    made = Pairs.read(tmp_path / "out")
    assert made.labels is not None and made.labels.image.sum() == 2
