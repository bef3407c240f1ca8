"""What proposes candidates: the model's own vectors, distilled ones, and questions padded as captions were."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from matchlight.cli import main
from matchlight.core import IMAGE, TEXT, Embedding, Matcher, Similarity
from matchlight.indexing import Index, distil, search_speed, tuning
from matchlight.indexing.candidate_vectors import all_rows
from matchlight.indexing.item_sets import ItemSets
from matchlight.indexing.matcher_scores import MatcherScores, Plain, as_item_sets
from matchlight.indexing.query_encoder import usual_padding
from matchlight.indexing.searcher import Searcher, Side
from matchlight.indexing.stored_sets import Sets, write_shard
from matchlight.indexing.tuning import needed, true_best
from matchlight.runs.evaluation import split_scores
from tests.indexed import PICTURES, pairs, trained
from tests.tiny import tiny_pairs

# ---- proposing -------------------------------------------------------------------------------------------------------


class Hidden(Similarity):
    """A score that no mean of the sets shows: the picture is turned round before it meets the caption."""

    def __init__(self, dim: int):
        super().__init__()
        self.turn = nn.Parameter(torch.linalg.qr(torch.randn(dim, dim, generator=torch.Generator().manual_seed(1)))[0])

    def forward(self, images: Embedding, texts: Embedding) -> Tensor:
        return (images.vectors.mean(1) @ self.turn) @ texts.vectors.mean(1).T

    def coarse(self, embedding: Embedding, side: str) -> Tensor | None:
        return nn.functional.normalize(embedding.vectors.mean(1, keepdim=True), dim=-1)


def hidden_searcher(folder: Path, items: int = 600, dim: int = 12) -> Searcher:
    draw, sides = torch.Generator().manual_seed(0), {}
    for side in (IMAGE, TEXT):
        write_shard(folder / side, as_item_sets(Embedding(torch.randn(items, 3, dim, generator=draw))))
        sides[side] = Side(Sets([folder / side]), np.arange(items), None, 0)
    matcher, cpu = Matcher({}, Hidden(dim)), torch.device("cpu")
    return Searcher(MatcherScores(matcher, cpu), Plain(matcher, cpu), sides)


def test_distilled_vectors_propose_what_plain_ones_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distil, "STEPS", 200)
    searcher = hidden_searcher(tmp_path)
    truth = true_best(searcher, TEXT, seed=0)
    learned = distil.distilled(searcher, seed=0, seconds=0.1)
    found = {}
    for proposer in (searcher.proposer, learned):
        rows = all_rows(proposer, searcher.sides[IMAGE].sets, IMAGE)
        found[proposer.name] = needed(truth, proposer, rows, 0.95)
    assert found["distilled"] < 120 < 300 < found["plain"]


def test_ranks_become_normal_deviates_whatever_the_scores_are() -> None:
    squeezed = torch.tensor([[0.9991, 0.9999, 0.9990, 0.9998]])
    wide = torch.tensor([[-3.0, 80.0, -900.0, 7.0]])
    wanted = torch.tensor([[-0.3186, 1.1503, -1.1503, 0.3186]])  # the normal deviates of 3/8, 7/8, 1/8, 5/8
    torch.testing.assert_close(distil.deviates(squeezed), wanted, atol=1e-4, rtol=0)
    torch.testing.assert_close(distil.deviates(wide), wanted, atol=1e-4, rtol=0)


def test_a_distilled_index_keeps_its_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distil, "STEPS", 20)
    monkeypatch.setattr(distil, "SECONDS", 0.1)
    with Index.build(trained("scan"), pairs(), tmp_path / "i", map=False, coarse="distilled") as index:
        hits = index.search("a cat near owl").hits
    with Index.load(tmp_path / "i", device="cpu") as again:
        assert again.describe()["coarse"] == "distilled"
        assert again.search("a cat near owl").hits == hits
        again.add(tiny_pairs(3, 1, seed=4, held=0))
        assert again.searcher.proposer.name == "distilled"


def test_questions_that_measure_are_kept_from_what_is_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[int]] = {IMAGE: set(), TEXT: set()}
    real = distil.ScoredBlocks._scored

    def scored(self: distil.ScoredBlocks, images: np.ndarray, texts: np.ndarray) -> distil.Block:
        seen[IMAGE] |= set(images.tolist())
        seen[TEXT] |= set(texts.tolist())
        return real(self, images, texts)

    monkeypatch.setattr(distil.ScoredBlocks, "_scored", scored)
    monkeypatch.setattr(distil, "STEPS", 4)
    unseen = {IMAGE: np.arange(0, 600, 7), TEXT: np.arange(3, 600, 9)}
    distil.distilled(hidden_searcher(tmp_path), seed=0, seconds=0.0, unseen=unseen)
    assert seen[IMAGE] and seen[TEXT]
    assert not seen[IMAGE] & set(unseen[IMAGE].tolist())
    assert not seen[TEXT] & set(unseen[TEXT].tolist())


# ---- how many --------------------------------------------------------------------------------------------------------


class Listing(Searcher):
    """An engine's lists written by hand: questions 0 and 2 find their ten at once, 1 and 3 have five of them late."""

    def __init__(self) -> None:
        side = Side([], np.arange(40), None, 0)  # type: ignore[arg-type]
        super().__init__(None, self, {IMAGE: side})  # type: ignore[arg-type]

    def rows(self, sets: ItemSets, side: str) -> np.ndarray:
        return sets.vectors

    def listed(
        self, rows: np.ndarray, wanted: str, count: int, among: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        late = np.r_[0:5, 20:30, 5:10, 10:20, 30:40]
        found = np.stack([np.arange(40), late, np.arange(40), late])[:, None, :count]
        return np.broadcast_to(-np.arange(count, dtype=np.float32), found.shape), found


def test_a_number_chosen_on_one_half_of_the_questions_is_judged_by_the_other() -> None:
    truth = tuning.Truth(TEXT, np.arange(4), ItemSets.single(np.zeros((4, 2))), np.tile(np.arange(10), (4, 1)))
    found = tuning.measure(Listing(), truth, 0.99)
    assert found.candidates == 20  # what the second half needs
    assert found.recall == pytest.approx(0.75)  # the first half's 10 hold five of the second's ten; 20 hold all
    given = tuning.measure(Listing(), truth, 0.99, candidates=16)
    assert (given.candidates, given.recall) == (16, pytest.approx(0.8))  # 1, 0.6, 1, 0.6
    assert (given.questions, given.items) == (4, 40)


def test_a_large_collection_is_asked_fewer_questions_and_a_small_one_keeps_most_to_learn_from() -> None:
    assert tuning.questions_for(8_000, 40_000) == 250  # two million pairs
    assert tuning.questions_for(300_000, 1_500_000) == 64  # the fewest
    assert tuning.questions_for(900, 900) == 112  # an eighth
    assert tuning.questions_for(40, 40) == 40


# ---- imported models -------------------------------------------------------------------------------------------------


def test_questions_are_padded_as_captions_were_where_a_model_depends_on_it(tmp_path: Path) -> None:
    run = trained("dive", padding="official")
    scores = split_scores(run, pairs(), "all")
    with Index.build(run, pairs(), tmp_path / "i", map=False) as index:
        assert index.info["padding"] == 8  # <start> a X near Y near Z <end>
        found = index.search(pairs().captions[1], top=PICTURES, exact=True)
        mine = np.empty(PICTURES)
        mine[[hit.id for hit in found.hits]] = [hit.score for hit in found.hits]
        np.testing.assert_allclose(mine, scores[:, 1], atol=4e-3)


def test_the_usual_padding_is_the_median_over_batches() -> None:
    assert usual_padding(np.array([3, 9, 4, 5, 6, 2, 7]), 2) == 6  # batches pad to 9, 5, 6, 7: between 6 and 7, cut


# ---- by the clock ----------------------------------------------------------------------------------------------------


def test_bench_search_tells_both_times_and_what_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "search", "--items", "300", "--dim", "16", "--json"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert (line["items"], line["vectors"], line["engine"]) == (300, 1200, "flat")
    assert line["recall"] >= 0.98
    assert line["candidates"] < 300
    assert line["ratio"] == pytest.approx(line["exact_milliseconds"]["p50"] / line["milliseconds"]["p50"], rel=0.2)


def test_a_run_is_asked_with_captions_that_its_index_does_not_hold(tmp_path: Path) -> None:
    found = search_speed.time_run(trained("dive"), pairs(), tmp_path / "i", questions=4, map=False)
    assert (found["pictures"], found["captions"], found["questions"]) == (PICTURES, PICTURES, 4)
    assert found["share"] == found["candidates"] / PICTURES
    assert 0.8 < found["recall"] <= 1
    assert set(found["milliseconds"]) == {"p50", "p95", "cpu_p50", "cpu_p95"}
