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
from matchlight.evaluation import split_scores
from matchlight.indexing import Index, distil
from matchlight.indexing.asking import usual_padding
from matchlight.indexing.coarse import Plain, all_rows
from matchlight.indexing.searching import Searcher, Side
from matchlight.indexing.tuning import needed, true_best
from matchlight.indexing.vectors import Sets, write_shard
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
        write_shard(folder / side, Embedding(torch.randn(items, 3, dim, generator=draw)))
        sides[side] = Side(Sets([folder / side]), np.arange(items), None, 0)
    matcher = Matcher({}, Hidden(dim))
    return Searcher(matcher, Plain(matcher), sides, torch.device("cpu"))


def test_distilled_vectors_propose_what_plain_ones_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distil, "STEPS", 200)
    searcher = hidden_searcher(tmp_path)
    truth = true_best(searcher, TEXT, seed=0)
    learned = distil.distilled(searcher, seed=0, seconds=0.1)
    found = {}
    for proposer in (searcher.proposer, learned):
        rows = all_rows(proposer, searcher.sides[IMAGE].sets, IMAGE, torch.device("cpu"))
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
