"""Neighbours by cells: nearly what comparing everything finds, in less time than that takes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from matchlight.auditing import neighbours, vector_cells
from matchlight.auditing.neighbours import AuditedRows, Space, nearest, neighbour_signals
from matchlight.auditing.vector_cells import Cells

COUNT, TOPICS, K = 3000, 60, 10
GROUP = np.arange(COUNT) // 3


@pytest.fixture(scope="module")
def vectors() -> Tensor:
    """Captions about a number of topics: unit vectors about as many directions."""
    torch.manual_seed(0)
    topics = torch.randn(TOPICS, 32)[torch.randint(TOPICS, (COUNT,))]
    return torch.nn.functional.normalize(topics + torch.randn(COUNT, 32), dim=1)


def shared(one: np.ndarray, other: np.ndarray) -> float:
    """The share of places that both lists of a query hold."""
    return float(np.mean([len(set(a) & set(b)) / K for a, b in zip(one.tolist(), other.tolist(), strict=True)]))


def test_nearly_all_neighbours_are_found_by_looking_at_a_tenth(vectors: Tensor, monkeypatch) -> None:
    monkeypatch.setattr(vector_cells, "LOOKED_AT", COUNT // 10)
    found = Cells(vectors, GROUP).nearest(vectors, GROUP, K)
    right = nearest(vectors, vectors, (GROUP, GROUP), K)
    assert shared(found, right) > 0.8
    likeness = [(vectors[:, None] * vectors[torch.from_numpy(places)]).sum(2).mean() for places in (found, right)]
    assert likeness[0] > 0.97 * likeness[1]
    assert not (GROUP[found] == GROUP[:, None]).any()


def test_looking_into_every_cell_finds_what_comparing_everything_does(vectors: Tensor, monkeypatch) -> None:
    monkeypatch.setattr(vector_cells, "LOOKED_AT", COUNT)
    found = Cells(vectors, GROUP).nearest(vectors, GROUP, K)
    assert shared(found, nearest(vectors, vectors, (GROUP, GROUP), K)) > 0.9999


def test_the_answer_does_not_depend_on_who_asks_beside(vectors: Tensor, monkeypatch) -> None:
    whole = Cells(vectors, GROUP).nearest(vectors[:500], GROUP[:500], K)
    monkeypatch.setattr(vector_cells, "QUERIES", 77)
    assert np.array_equal(Cells(vectors, GROUP).nearest(vectors[:500], GROUP[:500], K), whole)


def test_where_all_are_of_one_group_there_is_no_neighbour(vectors: Tensor) -> None:
    alone = np.zeros(50, dtype=np.int64)
    assert (Cells(vectors[:50], alone).nearest(vectors[:5], alone[:5], K) == -1).all()


def test_cells_are_used_where_rows_are_many_and_never_where_they_are_named(vectors: Tensor, monkeypatch) -> None:
    rows = np.arange(COUNT)
    audited = AuditedRows(GROUP, np.arange(COUNT // 3), np.roll(rows, 3))
    space = Space(vectors[::3], vectors)
    exact = neighbour_signals(space, audited, rows)
    monkeypatch.setattr(neighbours, "FEW", 2000)
    monkeypatch.setattr(vector_cells, "LOOKED_AT", COUNT // 10)
    by_cells, named = neighbour_signals(space, audited, rows), neighbour_signals(space, audited, rows, among=rows)
    assert not np.array_equal(by_cells["text_rows"], exact["text_rows"])
    assert all(np.array_equal(named[name], exact[name], equal_nan=True) for name in exact)
    assert abs(np.nanmean(by_cells["text"]) - np.nanmean(exact["text"])) < 0.02
