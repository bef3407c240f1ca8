"""Batches: who belongs to whom by place, what is read once, and what a thread hands over."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from matchlight.core import IMAGE, TEXT
from matchlight.inputs.batches import ahead, collate, moved_to, plan, seeded
from matchlight.inputs.prepare import View, prepare
from tests.tiny import Arrays, tiny_pairs


@pytest.fixture
def table():
    return prepare(tiny_pairs(), View("given"), device=torch.device("cpu")).table


def test_a_picture_is_read_once_for_all_its_captions(table) -> None:
    batch = collate(table, np.array([4, 0, 5, 1]))
    assert batch.sides[IMAGE].id.tolist() == [0, 2] and batch.sides[TEXT].id.tolist() == [4, 0, 5, 1]
    assert batch.positive.tolist() == [[1, 0], [0, 1], [1, 2], [0, 3]]
    assert batch.row.tolist() == [4, 0, 5, 1] and batch.core == (2, 4)


def test_repeated_pictures_stand_beside_each_caption(table) -> None:
    batch = collate(table, np.array([4, 5]), repeat=True)
    assert batch.sides[IMAGE].id.tolist() == [2, 2] and batch.positive.tolist() == [[0, 0], [1, 1]]


def test_companions_follow_the_batch_and_are_linked_by_place(table) -> None:
    batch = collate(table, np.array([0, 2]), more={"off_text": np.array([[0, 7], [1, 9]])})
    assert batch.core == (2, 2)
    places = batch.links["off_text"]
    assert batch.sides[IMAGE].id[places[:, 0]].tolist() == [0, 1]
    assert batch.sides[TEXT].id[places[:, 1]].tolist() == [7, 9]


def test_companions_share_what_the_batch_holds_and_are_read_once(table) -> None:
    more = {"a": np.array([[0, 7], [1, 9]]), "b": np.array([[3, 0], [5, 2]]), "c": np.array([[3, 7], [4, 11]])}
    batch = collate(table, np.array([0, 2]), more=more)
    assert batch.sides[IMAGE].id.tolist() == [0, 1, 3, 4, 5] and batch.sides[TEXT].id.tolist() == [0, 2, 7, 9, 11]
    for name, pairs in more.items():
        image, text = batch.links[name].unbind(1)
        assert batch.sides[IMAGE].id[image].tolist() == pairs[:, 0].tolist()
        assert batch.sides[TEXT].id[text].tolist() == pairs[:, 1].tolist()
    assert batch.core == (2, 2) and batch.positive.tolist() == [[0, 0], [1, 1]]


def test_where_pictures_repeat_a_companion_takes_its_own_rows_copy(table) -> None:
    batch = collate(table, np.array([4, 5]), more={"a": np.array([[2, 7], [2, 9]])}, repeat=True)
    assert batch.links["a"][:, 0].tolist() == [0, 1]  # not the first copy twice: each has its own dropout


def test_every_row_comes_once_and_no_batch_holds_one_pair() -> None:
    parts = plan(np.arange(17), 8, seeded(0))
    assert sorted(np.concatenate(parts).tolist()) == list(range(17)) and [len(p) for p in parts] == [8, 9]


def test_every_process_gets_something_to_read(table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("matchlight.devices.world", lambda: 4)
    assert [len(p) for p in plan(np.arange(19), 8, seeded(0))] == [8, 11]
    assert [len(p) for p in plan(np.arange(8), 2, seeded(0))] == [4, 4]
    for rank in range(4):
        monkeypatch.setattr("matchlight.devices.rank", lambda rank=rank: rank)
        batch = collate(table, np.array([0, 1, 2, 3]))  # two pictures for four processes
        assert len(batch.sides[IMAGE]) == len(batch.sides[TEXT]) == 1 and batch.core == (4, 4)


def test_even_batches_differ_by_one_row_at_most_and_hold_every_row_once() -> None:
    parts = plan(np.arange(20), 8, seeded(0), even=True)
    assert [len(p) for p in parts] == [7, 7, 6] and sorted(np.concatenate(parts).tolist()) == list(range(20))
    assert [len(p) for p in plan(np.arange(3), 2, seeded(0), even=True)] == [3]  # never one pair alone


@pytest.mark.parametrize("even", [False, True])
def test_the_number_of_processes_changes_no_batch(even: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for rows in range(8, 90):
        plans = []
        for world in (1, 2, 4, 8):
            monkeypatch.setattr("matchlight.devices.world", lambda world=world: world)
            plans.append([part.tolist() for part in plan(np.arange(rows), 16, seeded(rows), even=even)])
        assert plans[0] == plans[1] == plans[2] == plans[3]
        assert sorted(sum(plans[0], [])) == list(range(rows))


def test_draws_depend_on_their_numbers_alone() -> None:
    assert seeded(1, 2).integers(1 << 30) == seeded(1, 2).integers(1 << 30) != seeded(2, 1).integers(1 << 30)


def test_a_thread_hands_over_in_order_and_passes_on_what_went_wrong() -> None:
    assert list(ahead(lambda k: k * k, range(5))) == [0, 1, 4, 9, 16]

    def breaks(step: int) -> int:
        if step == 2:
            raise RuntimeError("no more")
        return step

    seen = []
    with pytest.raises(RuntimeError, match="no more"):
        for value in ahead(breaks, range(5)):
            seen.append(value)
    assert seen == [0, 1]


def test_leaving_early_stops_the_thread() -> None:
    made = []
    for value in ahead(lambda k: made.append(k) or k, range(1000)):
        if value == 3:
            break
    assert len(made) < 20


@pytest.mark.parametrize("plain", [True, False])
def test_features_move_to_a_device_whole_or_not_at_all(plain: bool) -> None:
    class Mapped:  # a source that reads rows when asked for, as memory-mapped files do
        shape = (1100, 2, 3)
        values = np.random.default_rng(0).normal(size=shape).astype(np.float32)

        def __len__(self) -> int:
            return len(self.values)

        def gather(self, index: np.ndarray) -> np.ndarray:
            return self.values[index]

    source = Arrays(Mapped.values.astype(np.float16)) if plain else Mapped()
    moved = moved_to(torch.device("cpu"), source, room=1 << 20)
    assert moved is not None and moved.dtype == (torch.float16 if plain else torch.float32)
    assert np.array_equal(moved.numpy(), Mapped.values.astype(moved.numpy().dtype))
    assert moved_to(torch.device("cpu"), source, room=100) is None


@pytest.mark.parametrize("even", [False, True])
def test_rows_that_are_read_together_come_near_each_other_and_every_row_once(
    even: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("matchlight.inputs.batches.WINDOW", 100)
    rows, block = np.arange(1000, 2000), np.repeat(np.arange(50), 20)
    parts = plan(rows, 16, seeded(1), even=even, near=block)
    assert sorted(np.concatenate(parts).tolist()) == rows.tolist()
    assert [len(part) for part in parts] == [len(part) for part in plan(rows, 16, seeded(1), even=even)]
    among = [block[part - 1000] for part in parts]
    assert max(len(np.unique(blocks)) for blocks in among) <= 10  # those of two windows; of 50 there would be 14
    assert all(len(np.flatnonzero(np.diff(blocks))) == len(np.unique(blocks)) - 1 for blocks in among)  # side by side
    again = plan(rows, 16, seeded(1), even=even, near=block)
    assert all((one == other).all() for one, other in zip(parts, again, strict=True))
    firsts = {tuple(plan(rows, 16, seeded(seed), even=even, near=block)[0]) for seed in range(4)}
    assert len(firsts) == 4
