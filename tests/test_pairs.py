"""Pairs: rows, splits, subsets and moved captions, on tables small enough to check by eye."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from matchlight.core import BadInput
from matchlight.data.formats import ArrayFeatures
from matchlight.pairs import BadPicture, Labels, Pairs


@pytest.fixture
def pairs() -> Pairs:
    """Three pictures, five rows; picture 1 belongs to the test split, rows of picture 0 are not neighbours."""
    labels = Labels(["cat", "dog"], np.eye(2, dtype=bool)[[0, 1, 0]], np.eye(2, dtype=bool)[[0, 1, 0, 1, 0]])
    return Pairs(
        names=["a", "b", "c"],
        captions=["a0", "b0", "a1", "b1", "c0"],
        picture=np.array([0, 1, 0, 1, 2]),
        splits=np.array(["train", "test", "train"]),
        features=ArrayFeatures(np.arange(6.0).reshape(3, 2)),
        text_features=np.arange(10.0).reshape(5, 2),
        tokens=[[1], [2, 3], [4], [5], [6]],
        labels=labels,
        relevance=csr_matrix(np.array([[1, 0, 0], [0, 1, 0], [1, 0, 1], [0, 1, 0], [0, 0, 1]], dtype=bool)),
    )


def test_rows_of_a_split_keep_file_order(pairs: Pairs) -> None:
    assert pairs.rows("train").tolist() == [0, 2, 4]
    assert pairs.rows("test").tolist() == [1, 3]
    assert pairs.rows("all").tolist() == [0, 1, 2, 3, 4]
    assert pairs.pictures_of("train").tolist() == [0, 2]


def test_a_subset_takes_everything_along(pairs: Pairs) -> None:
    train = pairs.subset("train")
    assert list(train.names) == ["a", "c"]
    assert list(train.captions) == ["a0", "a1", "c0"]
    assert train.picture.tolist() == [0, 0, 1]
    assert train.features is not None and train.features.gather(np.array([1])).tolist() == [[4.0, 5.0]]
    assert train.text_features is not None and train.text_features[:, 0].tolist() == [0.0, 4.0, 8.0]
    assert train.tokens == [[1], [4], [6]]
    assert train.labels is not None and train.labels.image.tolist() == [[True, False], [True, False]]
    assert train.relevance is not None and train.relevance.toarray().tolist() == [[1, 0], [1, 1], [0, 1]]


def test_a_subset_of_a_subset_still_knows_the_rows_of_the_whole(pairs: Pairs) -> None:
    train = pairs.subset("train")
    last = train.select(np.array([1]), np.array([2]))
    assert train.notes["rows"].tolist() == [0, 2, 4]
    assert last.notes["rows"].tolist() == [4]
    assert last.notes["pictures"].tolist() == [2]


def test_a_row_whose_picture_is_left_out_is_refused(pairs: Pairs) -> None:
    with pytest.raises(BadInput, match="row 1 belongs to a picture that was left out"):
        pairs.select(np.array([0]), np.array([0, 1]))


def test_a_moved_caption_brings_its_words_vectors_labels_and_relevance(pairs: Pairs) -> None:
    moved = pairs.with_captions_moved(np.array([0, 4]), np.array([4, 0]))
    assert list(moved.captions) == ["c0", "b0", "a1", "b1", "a0"]
    assert moved.picture.tolist() == pairs.picture.tolist()
    assert moved.text_features is not None and moved.text_features[0].tolist() == [8.0, 9.0]
    assert moved.tokens is not None and moved.tokens[4] == [1]
    assert moved.relevance is not None and moved.relevance.toarray()[0].tolist() == [0, 0, 1]
    assert list(pairs.captions) == ["a0", "b0", "a1", "b1", "c0"]  # the original is untouched


def test_an_unknown_split_is_answered_with_those_there_are(pairs: Pairs) -> None:
    with pytest.raises(BadInput, match="no split 'val'; it has train, test"):
        pairs.rows("val")


def test_lengths_that_do_not_fit_are_refused() -> None:
    one = {"names": ["a"], "captions": ["x"], "picture": np.array([0]), "splits": np.array(["train"])}
    Pairs(**one)
    with pytest.raises(BadInput, match="2 captions but 1 pairs"):
        Pairs(**{**one, "captions": ["x", "y"]})
    with pytest.raises(BadInput, match="points at a picture"):
        Pairs(**{**one, "picture": np.array([1])})
    with pytest.raises(BadInput, match="2 features for 1 pictures"):
        Pairs(**one, features=ArrayFeatures(np.zeros((2, 3))))
    with pytest.raises(BadInput, match="2 text_features for 1 pairs"):
        Pairs(**one, text_features=np.zeros((2, 3)))
    with pytest.raises(BadInput, match="captions x pictures"):
        Pairs(**one, relevance=csr_matrix((2, 1), dtype=bool))


def test_labels_are_single_only_if_every_item_has_one_class() -> None:
    one = np.array([[True, False]])
    assert Labels(["a", "b"], one, one).single
    assert not Labels(["a", "b"], one, np.array([[True, True]])).single


def test_a_bad_picture_says_what_kind_of_bad() -> None:
    assert BadPicture("x").kind == "unreadable"
    assert BadPicture("x", "missing").kind == "missing"
