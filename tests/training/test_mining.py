"""Mining: the same lists as a ranking of the whole matrix, whatever the blocks, after a kill too; and their files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from matchlight.cli import main
from matchlight.core import IMAGE, TEXT, BadInput, Embedding, Ensemble, Items, Matcher
from matchlight.data import formats
from matchlight.data.fingerprints import fingerprint
from matchlight.inputs.batches import Table
from matchlight.inputs.prepare import View, prepare
from matchlight.pairs import Pairs
from matchlight.parts.similarities import Dot
from matchlight.runs.train_run import train
from matchlight.scoring.all_pairs import score_all
from matchlight.scoring.encode import encode_both
from matchlight.training import checkpoints, mining
from matchlight.training.mining import chunks, load, load_for, mine, mine_into, search
from matchlight.training.mining.candidates import moved_up, places
from matchlight.training.mining.top_k import TopK, in_order
from matchlight.training.registry import methods
from tests.reference import aoq as naive
from tests.tiny import tiny_pairs

CPU = torch.device("cpu")


class Given(nn.Module):
    """Vectors that are known beforehand, by place."""

    def __init__(self, vectors: Tensor):
        super().__init__()
        self.vectors = nn.Parameter(vectors)

    def forward(self, items: Items) -> Embedding:
        return Embedding(self.vectors[items.id][:, None])


def given_matcher(images: np.ndarray, texts: np.ndarray) -> Matcher:
    sides = {IMAGE: Given(torch.from_numpy(images)), TEXT: Given(torch.from_numpy(texts))}
    return Matcher(sides, Dot()).eval()


def table_of(pairs: Pairs) -> Table:
    return prepare(pairs, View("given"), device=CPU).table


def random_matcher(pairs: Pairs, seed: int = 0) -> tuple[Matcher, np.ndarray]:
    """A model that knows random vectors, and the whole matrix of its scores."""
    rng = np.random.default_rng(seed)
    images, texts = (rng.normal(size=(count, 6)).astype(np.float32) for count in (len(pairs.names), len(pairs)))
    return given_matcher(images, texts), images @ texts.T


def as_lists(array: np.ndarray) -> list[list[int]]:
    return [[int(v) for v in row if v != mining.NONE] for row in array]


# ---- the search ------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=12)
@given(st.integers(2, 9), st.integers(1, 3), st.integers(1, 30), st.integers(1, 9), st.integers(0, 5))
def test_lists_are_those_of_the_whole_matrix(pictures: int, captions: int, top: int, images: int, seed: int) -> None:
    pairs = tiny_pairs(pictures, captions, held=0)
    matcher, scores = random_matcher(pairs, seed)
    found = mine(matcher, table_of(pairs), np.arange(len(pairs)), top=top, images=images)
    texts, seen = naive.mined(scores, pairs.picture, top, images)
    assert as_lists(found.texts) == texts and as_lists(found.images) == seen


@pytest.mark.parametrize("memory", [2000, 5000, 1 << 20])
def test_the_blocks_never_change_the_lists(memory: int) -> None:
    pairs = tiny_pairs(12, 2, held=0)
    matcher, scores = random_matcher(pairs)
    seen = search.Search(matcher, table_of(pairs), np.arange(24), memory=memory, quiet=True)
    assert seen.units > (1 if memory < 10000 else 0)
    found = mine(matcher, table_of(pairs), np.arange(24), top=7, images=4, memory=memory)
    texts, images = naive.mined(scores, pairs.picture, 7, 4)
    assert as_lists(found.texts) == texts and as_lists(found.images) == images


def test_only_the_rows_asked_for_are_mined_and_named_by_their_place_in_the_whole_table() -> None:
    pairs = tiny_pairs(10, 2, held=2)
    matcher, scores = random_matcher(pairs)
    rows = pairs.rows("train")[::-1].copy()  # any order
    found = mine(matcher, table_of(pairs), rows, top=50, images=50)
    assert (found.rows == rows).all() and set(as_lists(found.texts)[0]) == set(rows) - {0, 1}
    for row, seen in zip(rows, as_lists(found.images), strict=True):
        others = [i for i in np.argsort(-scores[:, row]) if i != pairs.picture[row] and i < 6]
        assert seen == others


def test_equal_scores_are_ordered_by_place() -> None:
    pairs = tiny_pairs(4, 2, held=0)
    matcher = given_matcher(np.ones((4, 2), np.float32), np.ones((8, 2), np.float32))
    found = mine(matcher, table_of(pairs), np.arange(8), top=8, images=4)
    assert as_lists(found.texts) == [[c for c in range(8) if c // 2 != i] for i in range(4)]


@pytest.mark.parametrize("coarse", [None, 2])
@pytest.mark.parametrize("bad", [1, 4])
def test_scores_that_are_no_numbers_are_refused(bad: int, coarse: int | None) -> None:
    pairs = tiny_pairs(4, 1, held=0)
    images = np.ones((4, 2), np.float32)
    images[:bad] = np.nan
    matcher = given_matcher(images, np.ones((4, 2), np.float32)).train()
    with pytest.raises(BadInput, match="no numbers"):
        mine(matcher, table_of(pairs), np.arange(4), top=2, images=2, coarse=coarse)
    assert matcher.training  # left as it was found


def test_exact_scores_that_are_no_numbers_are_refused_behind_good_proposals(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = tiny_pairs(4, 1, held=0)
    matcher, _ = random_matcher(pairs)
    monkeypatch.setattr(matcher, "score_pairs", lambda images, texts: torch.full((len(images),), float("nan")))
    with pytest.raises(BadInput, match="no numbers"):
        mine(matcher, table_of(pairs), np.arange(4), top=2, images=2, coarse=2)


def test_lists_are_as_wide_as_the_longest_and_padding_is_not_counted() -> None:
    pairs = tiny_pairs(4, 2, held=0)
    matcher, _ = random_matcher(pairs)
    found = mine(matcher, table_of(pairs), np.arange(8), top=50, images=50)
    assert found.texts.shape == (4, 6) and found.images.shape == (8, 3) and found.depth == (6, 3)
    bare = found.without(np.ones((4, 6), bool), found.images != 2)
    assert bare.depth == (0, 1) and bare.texts.shape == (4, 6) and bare.trimmed().texts.shape == (4, 1)


def test_many_pairs_of_a_costly_similarity_are_worth_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = tiny_pairs(6, 2, held=0, regions=30)
    costly, table, _ = scan_matcher(pairs)
    cheap, _ = random_matcher(pairs)
    settings = {"top": 2, "images": 2, "quiet": False}
    mine(costly, table, np.arange(12), **settings)
    assert "coarse" not in capsys.readouterr().err
    monkeypatch.setattr(mining.coarse, "MANY", 71)  # there are 72
    mine(cheap, table_of(pairs), np.arange(12), **settings)
    mine(costly, table, np.arange(12), **{**settings, "quiet": True})
    mine(costly, table, np.arange(12), coarse=2, **settings)
    assert "coarse" not in capsys.readouterr().err
    mine(costly, table, np.arange(12), **settings)
    assert "billion pairs to score" in capsys.readouterr().err


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 8), st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(0, 99))
def test_the_running_best_is_the_best_of_everything(k: int, widths: list[int], seed: int) -> None:
    scores = torch.from_numpy(np.random.default_rng(seed).permutation(3 * sum(widths)).reshape(3, -1)).float()
    best, start = TopK(3, k, CPU), 0
    for width in widths:
        best.add(slice(0, 3), scores[:, start : start + width], start)
        start += width
    wanted = scores.sort(1, descending=True)
    found, many = in_order(best.scores, best.places), min(k, start)
    assert torch.equal(found[:, :many].long(), wanted.indices[:, :many]) and (found[:, many:] == -1).all()


# ---- sets, proposals, memory -----------------------------------------------------------------------------------------


def scan_matcher(pairs: Pairs, name: str = "scan", **more: object) -> tuple[Matcher, Table, np.ndarray]:
    inputs = prepare(pairs, View("given"), device=CPU)
    torch.manual_seed(0)
    matcher = (
        methods()[name].build(inputs.sizes, **{**methods()[name].defaults, "dim": 16, "word_dim": 8, **more}).matcher()
    )

    every = encode_both(matcher.eval(), inputs.table, np.arange(len(pairs.names)), np.arange(len(pairs)))
    return matcher, inputs.table, score_all(matcher, *every)


@pytest.mark.parametrize("memory", [12_000, None])
def test_sets_are_mined_in_chunks_that_are_encoded_again_where_they_do_not_fit(memory: int | None) -> None:
    pairs = tiny_pairs(14, 2, held=0)
    matcher, table, scores = scan_matcher(pairs)
    seen = search.Search(matcher, table, np.arange(28), memory=memory, quiet=True)
    assert seen.texts.all_fit == (memory is None) and (seen.units > 1) == (memory is not None)
    found = mine(matcher, table, np.arange(28), top=6, images=4, memory=memory)
    texts, images = naive.mined(scores, pairs.picture, 6, 4)
    assert as_lists(found.texts) == texts and as_lists(found.images) == images


def test_proposals_wide_enough_give_the_exact_lists() -> None:
    pairs = tiny_pairs(14, 2, held=0)
    matcher, table, scores = scan_matcher(pairs)
    found = mine(matcher, table, np.arange(28), top=6, images=4, coarse=5, memory=12_000)
    texts, images = naive.mined(scores, pairs.picture, 6, 4)
    assert as_lists(found.texts) == texts and as_lists(found.images) == images
    narrow = mine(matcher, table, np.arange(28), top=6, images=4, coarse=1)
    for row, named in zip(scores, as_lists(narrow.texts), strict=True):
        assert len(named) == 6 and (np.diff(row[named]) <= 1e-6).all()  # approximate candidates, exact order


def test_an_ensemble_is_mined_by_the_mean_of_its_members_and_proposes_with_all_of_them() -> None:
    pairs = tiny_pairs(8, 2, held=0)
    (one, first), (two, second) = random_matcher(pairs, 1), random_matcher(pairs, 2)
    both = Ensemble([one, two])
    texts, _ = naive.mined((first + second) / 2, pairs.picture, 5, 3)
    for coarse in (None, 1):
        assert as_lists(mine(both, table_of(pairs), np.arange(16), top=5, images=3, coarse=coarse).texts) == texts


def test_an_ensemble_of_sets_proposes_with_every_vector() -> None:
    pairs = tiny_pairs(14, 2, held=0)
    (one, table, first), (two, _, second) = (scan_matcher(pairs, "dive", slots=k) for k in (2, 3))
    texts, images = naive.mined((first + second) / 2, pairs.picture, 6, 4)
    found = mine(Ensemble([one, two]), table, np.arange(28), top=6, images=4, coarse=5, memory=12_000)
    assert as_lists(found.texts) == texts and as_lists(found.images) == images


def test_a_similarity_without_single_vectors_cannot_propose() -> None:
    pairs = tiny_pairs(4, 1, held=0)
    matcher, table, _ = scan_matcher(pairs, "vse++", measure="order", absolute=True)
    with pytest.raises(BadInput, match="without coarse"):
        mine(matcher, table, np.arange(4), top=2, images=2, coarse=2)


# ---- folders: kept, resumed, refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize("coarse", [None, 3])
def test_a_killed_search_goes_on_to_the_same_lists(
    coarse: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = tiny_pairs(14, 2, held=0)
    matcher, table, _ = scan_matcher(pairs)
    options = {"top": 6, "coarse": coarse, "memory": 12_000, "quiet": True}
    whole, _ = mine_into(tmp_path / "whole", matcher, table, np.arange(28), **options)
    monkeypatch.setattr(search, "SAVE_SECONDS", 0.0)
    units = search.Search(matcher, table, np.arange(28), memory=12_000, quiet=True).units
    for last in (2, units - 1, units + 2):  # killed early, late, and (with proposals) among the exact scores
        done = [0]
        original = search.Search.go

        def dies(self, what, work, *, start, after, done=done, last=last, original=original):
            def counted(k, j):
                done[0] += 1
                if done[0] > last:
                    raise KeyboardInterrupt
                work(k, j)

            original(self, what, counted, start=start, after=after)

        with monkeypatch.context() as patch:
            patch.setattr(search.Search, "go", dies)
            patch.setattr(chunks.Room, "on", staticmethod(lambda device, memory: chunks.Room(12_000, 12_000, device)))
            try:
                mine_into(tmp_path / "cut", matcher, table, np.arange(28), **options)
            except KeyboardInterrupt:
                assert (tmp_path / "cut" / mining.PROGRESS).exists()
    again, about = mine_into(tmp_path / "cut", matcher, table, np.arange(28), **{**options, "memory": 30_000})
    assert (again.texts == whole.texts).all() and (again.images == whole.images).all()
    assert not (tmp_path / "cut" / mining.PROGRESS).exists() and about["captions"] == 28


def test_a_finished_folder_is_read_and_another_search_is_refused(tmp_path: Path) -> None:
    pairs = tiny_pairs(8, 2, held=0)
    matcher, _ = random_matcher(pairs)
    first, about = mine_into(tmp_path / "c", matcher, table_of(pairs), np.arange(16), top=5, quiet=True)
    again, _ = mine_into(tmp_path / "c", matcher, table_of(pairs), np.arange(16), top=5, quiet=True)
    assert (first.texts == again.texts).all() and about["images"] == 3  # 5 captions belong to 3 pictures
    with pytest.raises(BadInput, match="top"):
        mine_into(tmp_path / "c", matcher, table_of(pairs), np.arange(16), top=6, quiet=True)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "letter.txt").write_text("dear")
    with pytest.raises(BadInput, match="not empty"):
        mine_into(tmp_path / "d", matcher, table_of(pairs), np.arange(16), top=6, quiet=True)


@pytest.mark.parametrize("stage", [None, 3])
def test_a_half_done_search_with_other_settings_is_refused_and_kept(
    stage: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = tiny_pairs(14, 2, held=0)
    matcher, table, _ = scan_matcher(pairs)
    options = {"top": 6, "coarse": stage, "memory": 12_000, "quiet": True}
    monkeypatch.setattr(search, "SAVE_SECONDS", 0.0)

    def saved(path: Path, tree: dict, original=checkpoints.save_tree) -> None:
        original(path, tree)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(checkpoints, "save_tree", saved)
        mine_into(tmp_path, matcher, table, np.arange(28), **options)
    left = (tmp_path / mining.PROGRESS).read_bytes()
    for other, told in (({"top": 7}, "top, images"), ({"coarse": 2}, "coarse")):
        with pytest.raises(BadInput, match=rf"half-done search with other settings \({told} differ\)"):
            mine_into(tmp_path, matcher, table, np.arange(28), **{**options, **other})
    assert (tmp_path / mining.PROGRESS).read_bytes() == left
    found, _ = mine_into(tmp_path, matcher, table, np.arange(28), **options)  # the same goes on
    assert found.depth == (6, 3)


@pytest.mark.parametrize("text", ["[]", "3", "{"])
def test_an_about_that_is_no_object_is_told_in_one_line(text: str, tmp_path: Path) -> None:
    pairs = tiny_pairs(4, 2, held=0)
    naive.every_other(pairs, np.arange(8)).save(tmp_path, {"data": fingerprint(pairs)})
    assert load_for(tmp_path, pairs, data=fingerprint(pairs)).depth == (6, 3)
    (tmp_path / "about.json").write_text(text)
    with pytest.raises(BadInput, match="about.json: not"):
        load_for(tmp_path, pairs, data=fingerprint(pairs))


def test_lists_of_other_data_are_refused(tmp_path: Path) -> None:
    pairs, other = tiny_pairs(8, 2, held=0), tiny_pairs(8, 2, held=0, seed=1)
    matcher, _ = random_matcher(pairs)
    found, _ = mine_into(tmp_path / "c", matcher, table_of(pairs), np.arange(16), top=5, quiet=True)
    assert (load_for(tmp_path / "c", pairs, data=fingerprint(pairs)).texts == found.texts).all()
    with pytest.raises(BadInput, match="other data"):
        load_for(tmp_path / "c", other, data=fingerprint(other))


def test_lists_within_some_rows_name_nothing_else() -> None:
    pairs = tiny_pairs(6, 2, held=0)
    lists = naive.every_other(pairs, np.arange(12))
    some = lists.within(np.array([0, 1, 4, 9]), pairs.picture)
    assert some.pictures.tolist() == [0, 2, 4] and as_lists(some.texts) == [[4, 9], [0, 1, 9], [0, 1, 4]]
    assert as_lists(some.images) == [[2, 4], [2, 4], [0, 4], [0, 2]]
    with pytest.raises(BadInput, match="without row 2"):
        some.within(np.arange(12), pairs.picture).within(np.arange(3), pairs.picture)


def test_entries_move_up_in_their_old_order() -> None:
    lists = np.array([[5, 3, 8], [1, 2, -1]])
    keep = np.array([[False, True, True], [True, False, True]])
    assert moved_up(lists, keep).tolist() == [[3, 8, -1], [1, -1, -1]]
    assert places(np.array([4, 2, 9]), np.array([9, 3, 4])).tolist() == [2, -1, 0]


def test_the_lists_are_the_authors_lists(parity: Path) -> None:
    file = np.load(parity / "losses" / "aoq_candidates.npz")
    images, texts = file["img_emb"], file["cap_emb"]
    pairs = tiny_pairs(len(images), 5, held=0)
    found = mine(given_matcher(images, texts), table_of(pairs), np.arange(45), top=12, images=6)
    half = (torch.from_numpy(images).half() @ torch.from_numpy(texts).half().T).float().numpy()
    for scores, ours, theirs in ((half, found.texts, file["i2t_top"]), (half.T, found.images, file["t2i_top"])):
        mine_, recorded = (np.take_along_axis(scores, lists, 1) for lists in (ours, theirs))
        np.testing.assert_allclose(mine_, recorded, atol=2e-3)  # they rank in half precision: near ties may swap
        assert (ours == theirs).mean() > 0.9


# ---- the command -----------------------------------------------------------------------------------------------------


def test_mine_is_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = formats.write(tiny_pairs(), tmp_path / "data.npz", to="npz")
    train("vse++", tiny_pairs(), tmp_path / "run", device="cpu", preset="small", epochs=1, dim=8)
    capsys.readouterr()
    words = ["mine", str(tmp_path / "run"), "--data", str(data), "-o", str(tmp_path / "c"), "--device", "cpu"]
    assert main([*words, "--top", "6", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["top"] == 6 and told["images"] == 3 and told["pictures"] == 12 and told["captions"] == 24
    lists, _ = load(tmp_path / "c")
    assert lists.texts.shape == (12, 6) and lists.texts.max() < 24
    assert main([*words, "--top", "7"]) == 2
    assert "another -o" in capsys.readouterr().err
    assert main([*words[:-3], "nosuch/c", "--split", "nosuch"]) == 2
