"""Ranks counted where the scores are: the code a GPU runs, here on tensors in host memory, against the host's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from scipy.sparse import csr_matrix

from matchlight.core import BadInput
from matchlight.inputs.prepare import prepare
from matchlight.measuring import metrics as m
from matchlight.measuring.metrics import Relevance, Window, blocks, on_device
from matchlight.measuring.protocols import evaluate_scores
from matchlight.pairs import Labels, Pairs
from matchlight.scoring.all_pairs import held_scores, score_all, to_host
from matchlight.scoring.encode import encode_both
from matchlight.training.network import Network
from matchlight.training.registry import methods
from tests.tiny import pairs_for, tiny_settings, view_for

TIES = ("worst", "official")


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU's tensors count as a GPU's."""
    monkeypatch.setattr(blocks, "HOST", ())


def uneven(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(scores with many ties, the picture of each caption): captions in no order, some pictures without any."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 6, (9, 31)).astype(np.float32), rng.integers(0, 9, 31)


def truths(owner: np.ndarray, seed: int) -> list[Relevance]:
    several = np.random.default_rng(seed).random((9, 31)) < 0.2
    return [Relevance.of_owner(owner, pictures=9), Relevance.of_sparse(csr_matrix(several))]


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("budget", [1, 3000, 1 << 20])
def test_ranks_and_positions_on_the_device_are_the_hosts(ties: str, budget: int) -> None:
    for seed in range(10):
        scores, owner = uneven(seed)
        held = torch.from_numpy(scores)
        for fits in truths(owner, seed):
            for here, there, truth in ((scores, held, fits), (scores.T, held.T, fits.T)):
                assert_array_equal(m.ranks(there, truth, ties=ties, budget=budget), m.ranks(here, truth, ties=ties))
                both = (m.relevant_positions(one, truth, ties=ties, budget=budget) for one in (there, here))
                for (query, places), (other, expected) in zip(*both, strict=True):
                    assert query == other
                    assert_array_equal(places, expected)
        crossed = m.cross_ranks(held, owner, ties=ties, budget=budget)
        assert_array_equal(crossed, m.cross_ranks(scores, owner, ties=ties))


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("ties", TIES)
def test_queries_with_many_relevant_items_are_ranked_alike(ties: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scores, owner = uneven(3)
    fits = truths(owner, 3)[1]
    expected = m.maps_at_r(scores, fits, ties=ties), m.cross_ranks(scores, owner, ties=ties)
    monkeypatch.setattr(on_device, "FEW", 1)  # lists are sorted
    held = torch.from_numpy(scores)
    assert_array_equal(m.maps_at_r(held, fits, ties=ties), expected[0])
    assert_array_equal(m.cross_ranks(held, owner, ties=ties), expected[1])


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.bfloat16, torch.int32])
def test_scores_of_every_type_are_ranked_on_the_device(kind: torch.dtype) -> None:
    scores, owner = uneven(1)
    fits = Relevance.of_owner(owner, pictures=9)
    assert_array_equal(m.ranks(torch.from_numpy(scores).to(kind), fits), m.ranks(scores, fits))


@pytest.mark.usefixtures("everywhere")
def test_a_window_on_the_device_is_that_of_the_host() -> None:
    scores, _ = uneven(5)
    rows, columns = np.array([4, 1, 7, 8]), np.array([3, 4, 5, 20, 9])
    fits = Relevance.of_owner(np.array([0, 1, 3, 3, 2]), pictures=4)
    here, there = Window.on(scores, rows, columns), Window.on(torch.from_numpy(scores), rows, columns)
    assert_array_equal(m.ranks(there, fits), m.ranks(here, fits))
    assert_array_equal(m.ranks(there.T, fits.T, ties="official"), m.ranks(here.T, fits.T, ties="official"))


@pytest.mark.usefixtures("everywhere")
def test_a_score_that_is_no_number_is_named_on_the_device_too() -> None:
    scores, owner = uneven(0)
    scores[5, 17] = np.nan
    with pytest.raises(BadInput, match="row 5, column 17 is not a number"):
        m.ranks(torch.from_numpy(scores), Relevance.of_owner(owner, pictures=9), budget=1)


def tied_data() -> tuple[np.ndarray, Pairs]:
    """(scores with ties, data that every protocol but COCO's own can read)."""
    rng = np.random.default_rng(0)
    picture = np.repeat(np.arange(12), rng.integers(1, 5, 12))
    hot = rng.random((12, 4)) < 0.4
    hot[:, 0] |= ~hot.any(1)
    fits = csr_matrix((rng.random((len(picture), 12)) < 0.1) | (picture[:, None] == np.arange(12)[None]))
    pairs = Pairs(
        names=[f"{k}.jpg" for k in range(12)],
        captions=[f"caption {k}" for k in range(len(picture))],
        picture=picture,
        splits=np.full(12, "test"),
        labels=Labels(["a", "b", "c", "d"], hot.astype(np.float32), hot[picture].astype(np.float32)),
        relevance=fits,
    )
    return rng.integers(0, 8, (12, len(picture))).astype(np.float32), pairs


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("ties", TIES)
def test_every_protocol_reports_the_same_from_the_device(ties: str) -> None:
    scores, pairs = tied_data()
    expected = evaluate_scores(scores, pairs, protocol="all", ties=ties, fold=4, ci=True)
    assert evaluate_scores(torch.from_numpy(scores), pairs, protocol="all", ties=ties, fold=4, ci=True) == expected
    assert {"recall", "five-fold", "labels", "cross-rank", "pmrp"} <= set(expected)


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("name", ["vse++", "scan", "sgr", "dive", "pcme", "vse_infty"])
def test_a_methods_ranks_on_the_device_are_the_hosts_whatever_the_blocks(name: str) -> None:
    inputs = prepare(pairs_for(name), view_for(name), device=torch.device("cpu"))
    method = methods()[name]
    recipe = method.build(inputs.sizes, **{**method.defaults, **tiny_settings(method.defaults)})
    matcher, pairs = Network(recipe, seed=0, device=torch.device("cpu")).matcher.eval(), inputs.table.pairs
    sides = encode_both(matcher, inputs.table, np.arange(len(pairs.names)), np.arange(len(pairs)))
    for budget in (1, 4000, 1 << 30):
        held, host = (how(matcher, *sides, budget=budget) for how in (held_scores, score_all))
        assert_array_equal(to_host(held), host)
        for ties in TIES:
            assert evaluate_scores(held, pairs, protocol="recall", ties=ties) == evaluate_scores(
                host, pairs, protocol="recall", ties=ties
            )
