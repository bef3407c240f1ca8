"""The authors' lists: found by name, counted inside the training split, refused where they were made for other data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from matchlight.core import BadInput
from matchlight.pairs import Pairs
from matchlight.training.mining import read_released, released
from tests.tiny import tiny_pairs

TEXTS = [[7, 2], [0, 5], [1, 1], [0, 0]]  # of four pictures with two captions each
IMAGES = [[3, 1], [3, 1], [3, 0], [2, 0], [3, 1], [0, 1], [0, 1], [1, 2]]


def put(folder: Path, name: str, texts: list[list[int]] = TEXTS, images: list[list[int]] = IMAGES) -> Path:
    folder.mkdir(exist_ok=True)
    np.save(folder / f"i2t_{name}.npy", np.array(texts, np.int32))
    np.save(folder / f"t2i_{name}.npy", np.array(images, np.int32))
    return folder


def changed(lists: list[list[int]], row: int, place: int, value: int) -> list[list[int]]:
    out = [list(line) for line in lists]
    out[row][place] = value
    return out


@pytest.fixture
def pairs() -> Pairs:
    return tiny_pairs(8, 2, held=2)


def test_the_authors_files_count_inside_the_training_split(tmp_path: Path, pairs: Pairs) -> None:
    put(tmp_path, "f30k")
    found = read_released(tmp_path, pairs)
    assert found.texts.tolist() == TEXTS and found.images.tolist() == IMAGES
    last = replace(pairs, splits=pairs.splits[::-1].copy())  # the training split stands last
    moved = read_released(tmp_path, last)
    assert moved.texts.tolist()[0] == [15, 10] and moved.images.tolist()[2] == [7, 4]


@pytest.mark.parametrize("at_once", [1, released.AT_ONCE])
@pytest.mark.parametrize("value", [-1, 8, 319])
def test_an_entry_outside_the_split_is_told_with_its_row(
    value: int, at_once: int, tmp_path: Path, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(released, "AT_ONCE", at_once)
    put(tmp_path, "f30k", texts=changed(TEXTS, 2, 1, value))
    with pytest.raises(BadInput, match=f"i2t_f30k.npy: row 2 names place {value}, outside 0 to 7 of the train split"):
        read_released(tmp_path, pairs)
    put(tmp_path, "f30k", images=changed(IMAGES, 5, 0, value))
    with pytest.raises(BadInput, match=f"t2i_f30k.npy: row 5 names place {value}, outside 0 to 3 of the train split"):
        read_released(tmp_path, pairs)


@pytest.mark.parametrize("at_once", [1, released.AT_ONCE])
def test_files_that_name_own_items_were_made_for_another_order(
    at_once: int, tmp_path: Path, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(released, "AT_ONCE", at_once)
    put(tmp_path, "f30k", texts=changed(TEXTS, 3, 1, 6))
    with pytest.raises(BadInput, match="i2t_f30k.npy: row 3 names place 6, which is its own.*matchlight mine"):
        read_released(tmp_path, pairs)
    put(tmp_path, "f30k", images=changed(IMAGES, 7, 1, 3))
    with pytest.raises(BadInput, match="t2i_f30k.npy: row 7 names place 3, which is its own.*in its order") as told:
        read_released(tmp_path, pairs)
    assert "\n" not in str(told.value)


def test_of_two_sets_the_one_named_for_the_data_is_read(tmp_path: Path, pairs: Pairs) -> None:
    folder = put(tmp_path / "lists", "f30k")
    put(folder, "coco", texts=changed(TEXTS, 0, 0, 6))
    for root, first in (("f30k_precomp", 7), ("coco_precomp_2014", 6), ("coco", 6)):
        assert read_released(folder, replace(pairs, root=tmp_path / root)).texts[0, 0] == first
    with pytest.raises(BadInput, match="i2t_coco.npy, i2t_f30k.npy, t2i_coco.npy, t2i_f30k.npy.*'my'.*keep one set"):
        read_released(folder, replace(pairs, root=tmp_path / "my_photos"))


def test_the_only_set_is_read_whatever_its_name_and_half_a_set_is_none(tmp_path: Path, pairs: Pairs) -> None:
    folder = put(tmp_path / "lists", "f30k")
    (put(folder, "coco") / "t2i_coco.npy").unlink()
    assert read_released(folder, replace(pairs, root=tmp_path / "my_photos")).texts.tolist() == TEXTS
    (folder / "t2i_f30k.npy").unlink()
    with pytest.raises(BadInput, match="found: i2t_coco.npy, i2t_f30k.npy.*about.json"):
        read_released(folder, pairs)
    with pytest.raises(BadInput, match="no i2t_NAME.npy with its t2i_NAME.npy .found: neither"):
        read_released(tmp_path / "nowhere", pairs)


def test_files_for_another_number_of_pictures_are_refused(tmp_path: Path, pairs: Pairs) -> None:
    put(tmp_path, "f30k", texts=TEXTS[:3])
    with pytest.raises(BadInput, match=r"\(3, 2\), but the train split of .* has 4 pictures"):
        read_released(tmp_path, pairs)
