"""A strategy replaces how a base ranks; what the base adds to its ranking stays, in every phase."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from matchlight.core import BadInput, Objective, Terms
from matchlight.inputs.batches import collate
from matchlight.inputs.prepare import View, prepare
from matchlight.methods.ncr import SoftMargin
from matchlight.methods.pvse import Polysemy
from matchlight.methods.quintuplets import Draw
from matchlight.methods.set_losses import SetLoss, Triplet
from matchlight.parts.objectives import Hinge
from matchlight.runs.folder import Run
from matchlight.runs.train_run import train
from matchlight.training.network import Network, score_batch, whole_batch
from matchlight.training.registry import Chosen, choose, methods
from tests.reference import aoq as naive
from tests.tiny import tiny_pairs, tiny_settings

OF_SETS = {"mmd", "diversity_image", "diversity_text"}
FURTHER = {"dive": OF_SETS, "pvse": {"mmd", "diversity"}, "vsrn": {"caption"}}
PHASES = {"ncr": ["warm-up", "co-teaching"], "ncr+": ["measure", "trust"]}
CPU = torch.device("cpu")


def quick(folder: Path, name: str, base: str, **more: Any) -> Run:
    """Two tiny epochs of a strategy over a base."""
    field = methods()[name].arguments.base_field
    chosen = Chosen.of(methods()[name], {field: base})
    given = {**tiny_settings(chosen.defaults), field: base, **more}
    return train(name, tiny_pairs(), folder, device="cpu", preset="small", **given)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The names of the terms of every step."""
    seen: list[set[str]] = []
    total = Objective.total

    def listen(self: Objective, terms: Terms) -> torch.Tensor:
        seen.append(set(terms))
        return total(self, terms)

    monkeypatch.setattr(Objective, "total", listen)
    return seen


@pytest.mark.parametrize("base", sorted(FURTHER))
@pytest.mark.parametrize("name", sorted(PHASES))
def test_every_step_has_the_terms_of_its_base(name: str, base: str, tmp_path: Path, told: list[set[str]]) -> None:
    run = quick(tmp_path / "run", name, base, warm=1)
    assert [json.loads(line)["phase"] for line in (run.folder / "log.jsonl").open()] == PHASES[name]
    assert len(told) >= 4 and all(terms >= FURTHER[base] | {"i2t", "t2i"} for terms in told)


@pytest.mark.parametrize("scratch", [True, False])
def test_both_rounds_of_aoq_have_the_terms_of_dive(scratch: bool, tmp_path: Path, told: list[set[str]]) -> None:
    rounds = {"loss": "triplet", "warm": 1, "first": 2, "epochs": 2}
    run = quick(tmp_path / "run", "aoq", "dive", scratch=scratch, **rounds)
    names = [json.loads(line)["phase"] for line in (run.folder / "log.jsonl").open()]
    later = ["warm-up", "second round"] if scratch else ["second round"] * 2
    assert names == ["warm-up", "train", *later]
    assert all(terms >= OF_SETS for terms in told) and told[-1] >= {"off_text", "off_partner"}


@pytest.mark.parametrize("name", sorted(PHASES))
def test_the_terms_have_a_say_in_what_is_learnt(name: str, tmp_path: Path) -> None:
    runs = [
        quick(tmp_path / f"{weight}", name, "dive", warm=1, epochs=1, mmd=0.0, diversity=weight)
        for weight in (0.0, 5.0)
    ]
    without, with_them = (next(run.matcher.parameters()).detach() for run in runs)
    assert not torch.equal(without, with_them)


def test_another_ranking_loss_stands_beside_the_terms_in_the_same_proportion() -> None:
    pairs = tiny_pairs()
    inputs = prepare(pairs, View("given"), device=CPU)
    named = methods()["dive"].defaults | tiny_settings(methods()["dive"].defaults)
    matcher = methods()["dive"].build(inputs.sizes, **named).matcher().eval()
    embeddings, batch = whole_batch(matcher, collate(inputs.table, np.arange(8)))
    scores = score_batch(matcher, embeddings, batch, matrix=True)
    hinge = Hinge()  # a sum by itself
    base = SetLoss(Triplet(), mmd=0.5, diversity=0.25)
    found = base.ranked_by(hinge)
    apart = base.total({name: term for name, term in base(scores, embeddings, batch).items() if name in OF_SETS})
    alone = sum(term.mean() for term in hinge(scores, embeddings, batch).values())
    assert_close(found.total(found(scores, embeddings, batch)), alone + apart)


def test_what_only_ranks_is_replaced_whole() -> None:
    soft = SoftMargin(margin=0.2, kind="linear", siblings="masked")
    assert Hinge().ranked_by(soft) is soft
    kept = Polysemy(diversity=0.3, mmd=0.2, siblings="masked").ranked_by(soft)
    assert isinstance(kept, Polysemy) and (kept.ranking, kept.diversity, kept.mmd) == (soft, 0.3, 0.2)


@torch.no_grad()
@pytest.mark.parametrize("base", ["dive", "pvse"])
def test_companions_take_no_part_in_the_terms_of_the_sets(base: str) -> None:
    pairs = tiny_pairs()
    inputs = prepare(pairs, View("given"), device=CPU)
    named = Chosen.of(methods()["aoq"], {"base": base}).defaults | {"base": base}
    network = Network(methods()["aoq"].build(inputs.sizes, **named | tiny_settings(named)), seed=0, device=CPU)
    network.matcher.eval()
    network.objective.eval()
    rows, draw = np.array([1, 3, 5, 7]), Draw(naive.every_other(pairs, np.arange(24)), pairs.picture, 20)
    seen = []
    for more in (None, draw(rows, np.random.default_rng(0))):
        embeddings, batch = whole_batch(network.matcher, collate(inputs.table, rows, more=more))
        scores = score_batch(network.matcher, embeddings, batch, matrix=True)
        seen.append(network.objective(scores, embeddings, batch))
    for name in FURTHER[base]:
        assert_close(seen[1][name], seen[0][name], atol=1e-6, rtol=1e-5)


# ---- the same thing asked for from below -----------------------------------------------------------------------------


def test_a_base_may_name_the_strategy() -> None:
    chosen, given = choose("dive", {"strategy": "ncr+", "epochs": "3"})
    assert (chosen.name, given) == ("ncr+", {"epochs": "3", "scorer": "dive"}) and chosen.base is methods()["dive"]
    chosen, given = choose("scan", {"strategy": "aoq"})
    assert (chosen.name, given) == ("aoq", {"base": "scan"})
    chosen, given = choose("dive", {"epochs": 3})
    assert (chosen.name, chosen.base, given) == ("dive", None, {"epochs": 3})


def test_a_run_asked_for_from_below_is_the_run_asked_for_from_above(tmp_path: Path) -> None:
    given = {**tiny_settings(methods()["dive"].defaults), "epochs": 2, "warm": 1, "preset": "small"}
    below = train("dive", tiny_pairs(), tmp_path / "below", device="cpu", strategy="ncr+", **given)
    above = quick(tmp_path / "above", "ncr+", "dive", warm=1)
    assert (below.method, below.info["arguments"]) == ("ncr+", above.info["arguments"])
    for ours, theirs in zip(below.matcher.parameters(), above.matcher.parameters(), strict=True):
        assert_close(ours, theirs, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("name", "given", "hint"),
    [
        ("dive", {"strategy": "vse++"}, "ncr, ncr+ or aoq"),
        ("dive", {"strategy": "nothing"}, "ncr, ncr+ or aoq"),
        ("dive", {"strategy": "ncr", "scorer": "saf"}, "it is dive already"),
        ("ncr", {"strategy": "aoq"}, "base=ncr"),
    ],
)
def test_a_strategy_that_cannot_be_is_told(name: str, given: dict[str, str], hint: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=hint.replace("+", r"\+")):
        train(name, tiny_pairs(), tmp_path / "run", **given)
