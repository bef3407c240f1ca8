"""Vectors that were made already: an .npz, clip-retrieval's folder, arrays; and what cannot be used of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from given import clip_retrieval_folder, joint_vectors
from tiny import tiny_pairs

from matchlight.core import BadInput
from matchlight.inputs.given_vectors import data_of_vectors, read_vectors
from matchlight.pairs import Pairs

PAIRS = tiny_pairs(12, 2, held=3)
IMAGES, TEXTS = joint_vectors(PAIRS)


def saved(folder: Path, **arrays: np.ndarray) -> Path:
    np.savez(folder / "vectors.npz", **arrays)
    return folder / "vectors.npz"


@pytest.mark.parametrize("names", [("images", "texts"), ("image_vectors", "text_vectors"), ("img_emb", "text_emb")])
def test_an_npz_holds_a_vector_of_every_picture_and_caption(names, tmp_path):
    found = read_vectors(saved(tmp_path, **dict(zip(names, (IMAGES, TEXTS), strict=True))), PAIRS)
    np.testing.assert_array_equal(found.images, IMAGES)
    np.testing.assert_array_equal(found.texts, TEXTS)
    assert found.joint


def test_vectors_of_pictures_may_be_given_once_for_each_caption_and_as_sets_of_one(tmp_path):
    found = read_vectors(saved(tmp_path, images=IMAGES[PAIRS.picture], texts=TEXTS[:, None]), PAIRS)
    np.testing.assert_array_equal(found.images, IMAGES)
    np.testing.assert_array_equal(found.texts, TEXTS)


def test_a_folder_of_arrays_is_read_where_it_is_needed_and_not_before(tmp_path):
    np.save(tmp_path / "images.npy", IMAGES.astype(np.float16))
    np.save(tmp_path / "texts.npy", TEXTS)
    found = read_vectors(tmp_path, PAIRS)
    np.testing.assert_array_equal(found.images, IMAGES.astype(np.float16))
    np.testing.assert_array_equal(found.texts, TEXTS)
    assert isinstance(found.images.base, np.memmap) or isinstance(found.images, np.memmap)
    np.save(tmp_path / "texts.npy", np.full_like(TEXTS, np.nan))
    with pytest.raises(BadInput, match="texts: row 0 holds NaN"):
        read_vectors(tmp_path, PAIRS)


def test_a_mark_changes_with_any_value():
    other = IMAGES.copy()
    other[3, 2] += 1e-3
    marks = [read_vectors((images, TEXTS), PAIRS).mark() for images in (IMAGES, IMAGES.copy(), other)]
    assert marks[0] == marks[1] != marks[2]


@pytest.mark.parametrize(
    ("images", "texts", "said"),
    [
        (IMAGES[:-1], TEXTS, "11 vectors of pictures, but . has 12 pictures and 24 captions"),
        (IMAGES, TEXTS[:-1], "23 vectors of captions, but . has 24 captions"),
        (np.where(np.eye(12, 16) > 0, np.nan, IMAGES), TEXTS, "images: row 0 holds NaN or infinite values"),
        (IMAGES[:, 0], TEXTS, r"images: float32 of shape \(12,\); one vector an item is needed"),
        (IMAGES.reshape(12, 4, 4), TEXTS, r"images: float32 of shape \(12, 4, 4\)"),
    ],
)
def test_what_does_not_fit_is_one_line(images, texts, said, tmp_path):
    with pytest.raises(BadInput, match=said) as told:
        read_vectors(saved(tmp_path, images=images, texts=texts), PAIRS)
    assert "vectors.npz" in str(told.value) and "\n" not in str(told.value)


def test_a_wrong_kind_of_file_says_what_would_do(tmp_path):
    pickled = np.empty(12, dtype=object)
    for arrays, said in (({"images": pickled, "texts": TEXTS}, "pickled"), ({"texts": TEXTS}, "it holds texts")):
        with pytest.raises(BadInput, match=said):
            read_vectors(saved(tmp_path, **arrays), PAIRS)
    (tmp_path / "vectors.npz").write_bytes(b"PK\x03\x04 cut")
    (tmp_path / "vectors.csv").write_text("1,2")
    for path, said in (
        ("vectors.npz", "not a .npz file"),
        ("vectors.csv", "no .npz file"),
        ("none.npz", "no such file"),
        (".", "no folder of vectors"),
    ):
        with pytest.raises(BadInput, match=said):
            read_vectors(tmp_path / path, PAIRS)


def test_vectors_of_two_lengths_cannot_be_compared_with_each_other():
    found = read_vectors((IMAGES[:, :7], TEXTS), PAIRS)
    assert not found.joint
    with pytest.raises(BadInput, match="pictures have 7 numbers, captions 16"):
        found.in_place_of_both(PAIRS)


# ---- clip-retrieval --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return clip_retrieval_folder(tmp_path_factory.mktemp("made") / "emb", PAIRS, IMAGES, TEXTS, parts=11)


def test_clip_retrievals_folder_is_a_data_set_with_its_vectors(folder):
    pairs = Pairs.read(folder)
    assert pairs.format == "clip-retrieval" and list(pairs.captions) == list(PAIRS.captions)
    assert pairs.features is not None and pairs.text_features is None
    found = read_vectors(folder, data_of_vectors(folder))  # part 10 comes after part 2
    np.testing.assert_allclose(found.images, IMAGES[PAIRS.picture], atol=1e-3)  # a row is a picture there
    np.testing.assert_allclose(found.texts, TEXTS, atol=1e-3)
    same = read_vectors(folder, PAIRS)  # other data with the same captions
    np.testing.assert_allclose(same.images, IMAGES, atol=1e-3)
    np.testing.assert_allclose(same.texts, TEXTS, atol=1e-3)


def test_a_folder_of_other_captions_or_of_no_captions_is_refused(folder, tmp_path):
    with pytest.raises(BadInput, match=r"row 0 is .* in metadata/, .*leave --data out"):
        read_vectors(folder, tiny_pairs(12, 2, held=3, seed=9))
    with pytest.raises(BadInput, match="metadata/ has 24 captions, . has 10"):
        read_vectors(folder, tiny_pairs(5, 2, held=1))
    with pytest.raises(BadInput, match="only clip-retrieval's folder says which captions"):
        data_of_vectors(tmp_path / "vectors.npz")
    short = clip_retrieval_folder(tmp_path / "short", PAIRS, IMAGES, TEXTS)
    np.save(short / "text_emb" / "text_emb_1.npy", TEXTS[:3])
    with pytest.raises(BadInput, match="24 vectors in img_emb/ and 15 in text_emb/"):
        read_vectors(short, PAIRS)
    for file in (short / "text_emb").iterdir():
        file.unlink()
    with pytest.raises(BadInput, match="vectors of the captions are needed too"):
        read_vectors(short, PAIRS)
