"""AOQ: a second round of training on what the first round's model confuses in the *whole* training set.

Chen, Deng, Luo: Adaptive Offline Quintuplet Loss for Image-Text Matching, ECCV 2020, arXiv:2003.03669. A first-round
model ranks all training captions for each picture and all pictures for each caption; the second round draws hard
negatives from these lists beside those of the batch (`quintuplets.py`), for any method that learns from pairs.

Departs from the authors' code: captions of the same picture are never negatives, nor is a mined pair that happens to be
a true match (`siblings=negatives` counts both); companions that the batch holds already, or that are drawn twice, are
encoded once, and BatchNorm sees all of them as one batch where the code has three passes. The first round can run
inside (`first` epochs). Beyond the paper: likely false negatives can be struck from the lists (`filter`), off by
default.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from matchlight import devices
from matchlight.console import say
from matchlight.core import BadInput, Matcher, Objective, Phase, Recipe, Sizes, Terms
from matchlight.data.fingerprints import fingerprint
from matchlight.inputs.batches import collate, fewest
from matchlight.methods.captioning import Described
from matchlight.methods.quintuplets import DRAWS, KINDS, Draw, Quintuplets
from matchlight.training import checkpoints
from matchlight.training.mining import Candidates, load, load_for, mine_into
from matchlight.training.mining.candidates import is_whole
from matchlight.training.mining.filters import KINDS as FILTERS
from matchlight.training.mining.filters import filtered, struck
from matchlight.training.network import Network, begin_with, objective_weights, score_batch, whole_batch
from matchlight.training.recipes import Foreign, Method, check_choices, lowered, method
from matchlight.training.strategies import WarmUp

STEP = 10  # epochs of a second round at one rate
SPARE = 2  # times as many are mined where some will be struck out


def harder(objective: Objective, **settings: Any) -> Objective:
    """An objective whose ranking part has quintuplets beside it; other terms (a caption to write) stay as they are."""
    if isinstance(objective, Described):
        return Described(harder(objective.ranking, **settings), objective.captioner, weight=objective.weight)
    return Quintuplets(objective, **settings)


class SecondRound:
    """The base's own epochs first, then mining with the best model so far, then epochs with companions."""

    def __init__(
        self,
        one: Recipe | None,
        two: Recipe,
        *,
        first: int,
        scratch: bool,
        candidates: str | None,
        depth: int,
        draw: str,
        kind: str,
        coarse: int | None,
        strike: dict[str, Any],
    ):
        self.one, self.two, self.first, self.scratch = one, two, first, scratch
        self.candidates, self.depth, self.draw, self.kind = candidates, depth, draw, kind
        self.coarse, self.strike = coarse, strike
        self.networks = two.strategy.networks
        self.turned = False
        self.companions: Draw | None = None

    def phases(self, run: Any, epoch: int) -> list[Phase]:
        """The base's phases; in the second round those that rank as the network does have companions."""
        if self.one is not None and epoch < self.first:
            return self.one.strategy.phases(run, epoch)
        if not self.turned:
            self._turn(run)
        if self.companions is None:
            self.companions = Draw(
                load(run.folder / "candidates")[0], run.pairs.picture, self.depth, self.draw, KINDS[self.kind]
            )
        return [self._with_companions(phase) for phase in self.two.strategy.phases(run, epoch - self.first)]

    def _with_companions(self, phase: Phase) -> Phase:
        if phase.objective is not None and self.scratch:  # a gentle start has no use for the hardest
            return phase
        return replace(phase, objective=None, companions=self.companions, name="second round")

    def result(self, run: Any) -> Matcher:
        """As the base's."""
        return self.two.strategy.result(run)

    def check(self, run: Any) -> None:
        """Files that were named must be there and fit the data; a run that has its lists needs them no more."""
        if is_whole(run.folder / "candidates"):
            return
        if self.candidates is not None:
            load_for(self.candidates, run.pairs, data=fingerprint(run.pairs)).within(run.rows, run.pairs.picture)
        nothing = Candidates(run.rows[:0], run.rows[:0], np.zeros((0, 1), np.int64), np.zeros((0, 1), np.int64))
        if self.strike["kind"] in ("relevance", "scores"):
            filtered(nothing, run.pairs, **self.strike)
        if self.kind == "adapoffquin" and not {"i2t", "t2i"} <= _terms(run).keys():
            raise BadInput("this base's loss has no terms by pair and direction to weigh; kind=offquin has no weights")

    # ---- between the rounds ----

    def _turn(self, run: Any) -> None:
        if self.first:
            _back_to_best(run, self.result(run))
        if run.chief:
            self._lists(run)
        while not is_whole(run.folder / "candidates"):  # the others: a collective would give up waiting
            time.sleep(0.2)
        devices.barrier()
        if self.first or self.scratch:
            self._begin_again(run)
        run.best, run.waited = {"value": float("-inf"), "epoch": -1, "report": None}, 0
        self.turned = True
        run.save()
        run.writer.flush()  # from here on the first round's model may be replaced

    def _lists(self, run: Any) -> None:
        """Candidates of the training rows in the run folder, mined or brought along, likely matches struck out."""
        folder = run.folder / "candidates"
        if is_whole(folder):
            return
        data = fingerprint(run.pairs)
        if self.candidates is not None:
            found = load_for(self.candidates, run.pairs, data=data).within(run.rows, run.pairs.picture)
            about: dict[str, Any] = {"from": Path(self.candidates).name}
        else:
            top = self.depth * (1 if self.strike["kind"] == "none" else SPARE)
            found, about = mine_into(
                run.folder / "mined", self.result(run), run.table, run.rows, top=top, coarse=self.coarse
            )
            say(f"mined {found.depth[0]} captions a picture in {about['seconds']} s")
        kept = filtered(found, run.pairs, **self.strike)
        self._check_depth(kept)
        about |= {"data": data, "filter": self.strike["kind"], **struck(found, kept)}
        kept.save(folder, about)
        shutil.rmtree(run.folder / "mined", ignore_errors=True)

    def _check_depth(self, kept: Candidates) -> None:
        """A round without negatives is no second round; one with fewer than were asked for is told of."""
        if not min(kept.depth):
            raise BadInput("no candidate is left after the filter: every list is empty; a gentler filter= keeps some")
        if kept.depth[0] < self.depth:
            say(f"lists are {kept.depth[0]} captions deep, not h={self.depth}: all of them are drawn from")

    def _begin_again(self, run: Any) -> None:
        """New networks and optimisers: fresh, or with the first round's weights."""
        for k, (name, old) in enumerate(run.networks.items()):
            new = Network(run.recipe, seed=run.seed + 1000 * k, device=run.device, name=name)
            if not self.scratch:
                new.matcher.load_state_dict(old.judged.state_dict())
                new.objective.load_state_dict(old.objective.state_dict())
                if new.average is not None:
                    new.average.load_state_dict(old.judged.state_dict())
            run.networks[name] = new

    def state_dict(self) -> dict[str, Any]:
        """Which round it is; the lists are in the run folder."""
        one = None if self.one is None else self.one.strategy.state_dict()
        return {"turned": self.turned, "one": one, "two": self.two.strategy.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take it back."""
        self.turned = state["turned"]
        self.two.strategy.load_state_dict(state["two"])
        if self.one is not None:
            self.one.strategy.load_state_dict(state["one"])


@torch.no_grad()
def _terms(run: Any) -> Terms:
    """The losses of a few rows, without learning from them."""
    network = next(iter(run.networks.values()))
    batch = collate(run.table, run.rows[: 2 * fewest()], repeat=run.repeat).to(run.device)
    embeddings, batch = whole_batch(network.matcher.eval(), batch)
    scores = score_batch(network.matcher, embeddings, batch, matrix=True)
    return network.objective.eval()(scores, embeddings, batch)


def _back_to_best(run: Any, matcher: Matcher) -> None:
    """The model that was selected, where one was: on the disk, and the same for every process."""
    run.writer.flush()
    if run.best["epoch"] < 0:
        return
    kept = checkpoints.load_weights(run.folder / "model.safetensors") if run.chief else None
    matcher.load_state_dict(devices.broadcast(kept))
    learnt = devices.broadcast(objective_weights(run.folder) if run.chief else None)
    for name, network in run.networks.items():
        begin_with(network.objective, learnt.get(name, {}))


def recipe(
    sizes: Sizes,
    *,
    base: str = "vsrn",
    kind: str = "adapoffquin",
    first: int | None = None,
    scratch: bool = True,
    candidates: str | None = None,
    h: int = 300,
    draw: str = "uniform",
    alpha: float = 0.3,
    beta: float = 1.5,
    margin_offline: float = 0.0,
    detach_weight: bool = False,
    coarse: int | None = None,
    filter: str = "none",
    alike: float = 0.8,
    audit: str | None = None,
    epochs: int = 20,
    second_rate: float | None = None,
    second_decay_every: int | None = None,
    **below: Any,
) -> Recipe:
    """A second round over `base` (its own arguments are taken too); `epochs` are those of the second round.

    `second_rate` and `second_decay_every` hold for that round alone; without them it has the base's own, but a rate
    that falls in steps falls after ten epochs at the latest, as the paper's.
    """
    check_choices(kind=(kind, tuple(KINDS)), draw=(draw, DRAWS), filter=(filter, FILTERS))
    if h >= 1 << 31:
        raise BadInput(f"h={h}: no list is that long")
    if (audit is None) == (filter == "scores"):
        raise BadInput("filter=scores and audit=DIR belong together")
    length = 0 if candidates is not None else round(1.5 * epochs) if first is None else first
    build = partial(method(base).build, sizes, **lowered(base, below))
    later = _second(base, below, rate=second_rate, decay_every=second_decay_every)
    one, two = build(epochs=length) if length else None, build(epochs=epochs, **later)
    _check_gentle(two, scratch=scratch, epochs=epochs)
    settings = {"kind": kind, "alpha": alpha, "beta": beta, "margin": margin_offline, "detach": detach_weight}
    lists: dict[str, Any] = {"candidates": candidates, "depth": h, "coarse": coarse}
    strike = {"kind": filter, "alike": alike, "audit": audit}
    strategy = SecondRound(one, two, first=length, scratch=scratch, draw=draw, kind=kind, strike=strike, **lists)
    rounds = {"first": length, "second": epochs, "second_starts": "from scratch" if scratch else "from the first"}
    return replace(
        two,
        objective=lambda: harder(two.objective(), siblings=two.siblings, **settings),
        strategy=strategy,
        check=strategy.check,
        epochs=length + epochs,
        schedule=partial(in_rounds, one=one, two=two, first=length, faster=_faster(base, below, second_rate)),
        notes={**two.notes, "rounds": rounds},
    )


def _second(base: str, below: dict[str, Any], **given: Any) -> dict[str, Any]:
    """The base's arguments in the second round alone."""
    named = {name: value for name, value in given.items() if value is not None}
    usual = method(base).defaults
    for name in named:
        if name not in usual:
            raise BadInput(f"second_{name}={named[name]}: {base} has no {name}")
    if "decay_every" in usual:
        named.setdefault("decay_every", min(STEP, below.get("decay_every", usual["decay_every"])))
    return named


def _faster(base: str, below: dict[str, Any], second_rate: float | None) -> float:
    """How much higher the first round's rate is: the optimiser is built with the second's, and both share it."""
    rate = float(lowered(base, below).get("rate", method(base).defaults["rate"]))
    return 1.0 if second_rate is None else rate / second_rate


def _check_gentle(two: Recipe, *, scratch: bool, epochs: int) -> None:
    """A round that is all warm-up would never see what was mined for it."""
    gentle = two.strategy.epochs if isinstance(two.strategy, WarmUp) else 0
    if scratch and gentle >= epochs:
        raise BadInput(f"warm={gentle} epochs={epochs}: the second round would be warm-up alone; give more epochs")


def in_rounds(
    epoch: int, step: int, steps: int, *, one: Recipe | None, two: Recipe, first: int, faster: float
) -> dict[str, float] | float:
    """The base's schedule, begun anew with the second round."""
    if one is not None and epoch < first:
        told = one.schedule(epoch, step, steps)
        return {name: faster * part for name, part in told.items()} if isinstance(told, dict) else faster * told
    return two.schedule(epoch - first, step, steps)


# ---- the authors' checkpoints ----------------------------------------------------------------------------------------


def read(file: dict[str, Any]) -> Foreign:
    """VSRN ([image, text, caption]) or BFAN ([image, text]) after its second round, told apart by their layers."""
    options = file["opt"]
    base = "vsrn" if any(key.startswith("Rs_GCN_") for key in file["model"][0]) else "bfan"
    reader = method(base).reader
    assert reader is not None
    found = reader(file)
    assert isinstance(found, Foreign)
    named = {
        **found.arguments,
        "base": base,
        "margin": float(options.get("marginonline", found.arguments["margin"])),
        "margin_offline": float(options.get("marginoffline", 0.0)),
        "alpha": float(options.get("alpha", 0.3)),
        "beta": float(options.get("beta", 1.5)),
        "h": int(options.get("offcandisize", 300)),
    }
    return replace(found, arguments=named)


METHODS = [
    Method(
        "aoq",
        recipe,
        paper="Adaptive Offline Quintuplet Loss for Image-Text Matching (ECCV 2020)",
        needs=("pairs", "regions"),
        small={"epochs": 8},
        over="base",
        decides=("epochs",),
        lasts="first",
        begun={"first": 0, "scratch": False},
        reader=read,
    )
]
