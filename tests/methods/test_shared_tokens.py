"""Where regions are: grids, boxes of their own, things seen through a grid, and scenes that say where things stand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from matchlight.core import IMAGE, BadInput, Items, Sizes
from matchlight.data.formats import boxes, write
from matchlight.inputs.batches import Table
from matchlight.inputs.prepare import view_of
from matchlight.methods import semantic_sharing
from matchlight.methods.shared_tokens import cells, seen, under
from matchlight.pairs import Pairs
from tests.tiny import tiny_pairs

CPU = torch.device("cpu")


def test_cells_of_a_grid_run_row_after_row() -> None:
    found = cells(4, CPU)
    wanted = [[0, 0, 0.5, 0.5], [0.5, 0, 1, 0.5], [0, 0.5, 0.5, 1], [0.5, 0.5, 1, 1]]
    assert_close(found[:, :4], torch.tensor(wanted))
    assert_close(found[:, 4], torch.full((4,), 0.25))


def test_regions_that_make_no_square_are_anywhere() -> None:
    assert_close(cells(5, CPU), torch.tensor([[0.0, 0, 1, 1, 1]] * 5))


def test_a_box_over_two_cells_is_shared_by_area() -> None:
    box = torch.tensor([[[0.25, 0.0, 1.0, 0.5, 0.375], [0.0, 0.0, 0.0, 0.0, 0.0]]])
    share = under(box, cells(4, CPU))
    assert_close(share[0], torch.tensor([[1 / 3, 2 / 3, 0, 0], [0.0, 0, 0, 0]]))


def test_things_are_the_mean_of_the_cells_under_them_and_empty_boxes_are_padding() -> None:
    x = torch.arange(4.0).view(1, 4, 1)
    box = torch.tensor([[[0.25, 0.0, 1.0, 0.5], [0.0, 0.0, 0.0, 0.0]]])
    found = seen(Items(x, None, torch.arange(1), {"box": box, "object": torch.tensor([[7, -1]])}), 4)
    assert_close(found.x[0, :, 0], torch.tensor([0, 1, 2, 3, 2 / 3, 0]))
    assert found.mask is not None and found.mask.tolist() == [[True] * 5 + [False]]
    assert found.kind is not None and found.kind.tolist() == [[-1, -1, -1, -1, 7, -1]]
    assert_close(found.box[0, 4], torch.tensor([0.25, 0.0, 1.0, 0.5, 0.375]))  # the area is worked out


def test_padding_a_grid_does_not_move_its_cells() -> None:
    x = torch.randn(2, 4, 3)
    padded = Items(torch.cat([x, torch.zeros(2, 5, 3)], 1), torch.arange(9).expand(2, -1) < 4, torch.arange(2))
    found = seen(padded, 4)
    assert_close(found.box[:, :4], cells(4, CPU).expand(2, -1, -1))
    assert not found.box[:, 4:].any()


def test_boxes_that_fit_neither_regions_nor_a_grid_are_refused() -> None:
    with pytest.raises(BadInput, match="3 boxes for 5 regions"):
        seen(Items(torch.randn(1, 5, 2), None, torch.arange(1), {"box": torch.rand(1, 3, 5)}), 5)


@torch.no_grad()
def test_a_padded_box_changes_no_picture() -> None:
    sizes = Sizes(pairs=4, pictures=4, image="regions", image_dim=3, regions=4, vocabulary=9, classes=2)
    matcher = (
        semantic_sharing.SemanticSharing(dim=8, heads=2, depth=1, hidden=8, word_dim=4).recipe(sizes).matcher().eval()
    )
    box = torch.rand(2, 3, 2).sort(-1).values.repeat(1, 1, 2)[..., [0, 2, 1, 3]]
    items = Items(torch.randn(2, 4, 3), None, torch.arange(2), {"box": box})
    wider = replace(items, extra={"box": torch.cat([box, torch.zeros(2, 2, 4)], 1)})
    assert_close(matcher.embed(IMAGE, wider).single, matcher.embed(IMAGE, items).single, atol=1e-6, rtol=1e-5)


# ---- scenes.jsonl ----------------------------------------------------------------------------------------------------


def scene(name: str, *things: tuple[str, list[int]]) -> str:
    groups = [{"object": kind, "boxes": [box]} for kind, box in things]
    return json.dumps({"image": f"images/{name}", "size": [100, 50], "groups": groups}) + "\n"


@pytest.fixture
def drawn(tmp_path: Path) -> Pairs:
    """Two pictures in another order than their scenes."""
    lines = scene("a.webp", ("owl", [10, 10, 30, 35]), ("cat", [0, 0, 100, 50])) + scene(
        "b.webp", ("cat", [50, 0, 60, 5])
    )
    (tmp_path / boxes.FILE).write_text(lines)
    whole = tiny_pairs(pictures=2, captions=1, held=0)
    return replace(whole, names=["images/b.webp", "a.webp"], root=tmp_path, features=None, pictures=[None, None])


def test_boxes_are_parts_of_the_picture_and_found_by_its_name(drawn: Pairs) -> None:
    found = boxes.attach(drawn)
    assert found.boxes is not None and found.objects is not None and found.boxes.shape == (2, 2, 5)
    np.testing.assert_allclose(found.boxes[0], [[0.5, 0, 0.6, 0.1, 0.01], [0] * 5], atol=1e-6)
    np.testing.assert_allclose(found.boxes[1], [[0.1, 0.2, 0.3, 0.7, 0.1], [0, 0, 1, 1, 1]], atol=1e-6)
    assert found.objects.tolist() == [[0, -1], [1, 0]]  # cat, owl
    narrowed = replace(found, pictures=None).select(np.array([1]), np.array([1]))
    assert narrowed.objects is not None and narrowed.objects.tolist() == [[1, 0]]


def test_only_a_method_that_asks_for_boxes_gets_them(drawn: Pairs) -> None:
    assert view_of({"boxes": True}, pooled=False, pairs=drawn).boxes
    assert not view_of({"boxes": False}, pooled=False, pairs=drawn).boxes
    assert not view_of({}, pooled=False, pairs=drawn).boxes
    (drawn.root / boxes.FILE).unlink()
    assert not view_of({"boxes": True}, pooled=False, pairs=drawn).boxes and boxes.attach(drawn) is drawn


@pytest.mark.parametrize("line", ["{", "[]", '{"image": "a"}', '{"image": "a", "size": [0, 0], "groups": [1]}'])
def test_a_broken_scene_is_one_clear_line(drawn: Pairs, line: str) -> None:
    (drawn.root / boxes.FILE).write_text(scene("a.webp") + line + "\n")
    with pytest.raises(BadInput, match="line 2"):
        boxes.attach(drawn)


# ---- a detector's classes --------------------------------------------------------------------------------------------


def precomputed(folder: Path, name: str, pictures: int) -> None:
    np.save(folder / f"{name}_ims.npy", np.random.default_rng(0).normal(size=(pictures, 3, 4)).astype(np.float32))
    (folder / f"{name}_caps.txt").write_text("a caption\n" * pictures)


def test_a_detectors_likeliest_classes_are_read_and_kept(tmp_path: Path) -> None:
    precomputed(tmp_path, "train", 2)
    precomputed(tmp_path, "test", 1)
    scores = np.zeros((2, 3, 5), dtype=np.float32)
    scores[0, :, 4], scores[1, [0, 1, 2], [1, 2, 3]] = 1, 1
    np.save(tmp_path / "train_cls.npy", scores)
    found = Pairs.read(tmp_path)
    assert found.objects is not None and found.objects.tolist() == [[4, 4, 4], [1, 2, 3], [-1, -1, -1]]
    items = Table(found, found.features, None).items(IMAGE, np.array([1])) if found.features else None
    assert items is not None and items.extra["object"].tolist() == [[1, 2, 3]]
    for to in ("npz", "scan"):
        again = Pairs.read(write(found, tmp_path / to, to=to))
        assert again.objects is not None and again.objects.tolist() == found.objects.tolist()


def test_classes_of_other_pictures_are_refused(tmp_path: Path) -> None:
    precomputed(tmp_path, "train", 2)
    np.save(tmp_path / "train_cls.npy", np.zeros((3, 3), dtype=np.int64))
    with pytest.raises(BadInput, match="train_cls.npy"):
        Pairs.read(tmp_path)
