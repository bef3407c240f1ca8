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
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch

from matchlight import devices
from matchlight.console import say
from matchlight.core import BadInput, Batch, Json, Matcher, Objective, Rates, Sizes, Terms
from matchlight.data.fingerprints import fingerprint
from matchlight.inputs.batches import collate, fewest
from matchlight.methods.bfan import read as read_bfan
from matchlight.methods.captioning import Described
from matchlight.methods.quintuplets import KINDS, Draw, Quintuplets
from matchlight.methods.vsrn import VSRN, read_vsrn
from matchlight.pairs import Pairs
from matchlight.training import checkpoints
from matchlight.training.arguments import (
    Arguments,
    Bound,
    BuiltOn,
    Count,
    Fraction,
    NonNegative,
    Positive,
    Settings,
    Staircase,
    Training,
    Value,
    with_known,
)
from matchlight.training.checkpoints import State
from matchlight.training.contract import Best, Phase, Recipe, Strategy, TrainingRun
from matchlight.training.mining import Candidates, load, load_for, mine_into
from matchlight.training.mining.candidates import is_whole
from matchlight.training.mining.filters import filtered, struck
from matchlight.training.network import Network, begin_with, objective_weights, score_batch, whole_batch
from matchlight.training.registry import Checkpoint, Foreign, Method, name_of
from matchlight.training.strategies import WarmUp

STEP = 10  # epochs of a second round at one rate
SPARE = 2  # times as many are mined where some will be struck out


class SecondRound(Strategy):
    """The base's own epochs first, then mining with the best model so far, then epochs with companions."""

    def __init__(self, arguments: AOQ, one: Recipe | None, two: Recipe):
        self.one, self.two, self.first = one, two, 0 if one is None else one.epochs
        self.scratch, self.kind, self.draw = arguments.scratch, arguments.kind, arguments.draw
        self.candidates, self.depth, self.coarse = arguments.candidates, arguments.h, arguments.coarse
        self.filter, self.alike, self.audit = arguments.filter, arguments.alike, arguments.audit
        self.networks = two.strategy.networks
        self.in_second_round = False
        self.companions: Draw | None = None

    def phases(self, run: TrainingRun, epoch: int) -> list[Phase]:
        """The base's phases; in the second round those that rank as the network does have companions."""
        if self.one is not None and epoch < self.first:
            return self.one.strategy.phases(run, epoch)
        if not self.in_second_round:
            self._begin_second_round(run)
        if self.companions is None:
            self.companions = Draw(
                load(run.folder / "candidates")[0], run.pairs.picture, self.depth, self.draw, KINDS[self.kind]
            )
        return [self._with_companions(phase) for phase in self.two.strategy.phases(run, epoch - self.first)]

    def _with_companions(self, phase: Phase) -> Phase:
        if phase.objective is not None and self.scratch:  # a gentle start has no use for the hardest
            return phase
        harder = phase.hardness if self.scratch else None  # without a gentle start there is nothing to come from
        return replace(phase, objective=None, hardness=harder, companions=self.companions, name="second round")

    def assemble(self, networks: Mapping[str, Matcher]) -> Matcher:
        """As the base's."""
        return self.two.strategy.assemble(networks)

    def result(self, run: TrainingRun) -> Matcher:
        """As the base's."""
        return self.two.strategy.result(run)

    def before_step(self, run: TrainingRun, phase: Phase, batch: Batch) -> Batch:
        """As the base's in its round."""
        base = self.one if self.one is not None and run.epoch < self.first else self.two
        return base.strategy.before_step(run, phase, batch)

    def check(self, run: TrainingRun) -> None:
        """Files that were named must be there and fit the data; a run that has its lists needs them no more."""
        if is_whole(run.folder / "candidates"):
            return
        if self.candidates is not None:
            load_for(self.candidates, run.pairs, data=fingerprint(run.pairs)).within(run.rows, run.pairs.picture)
        nothing = Candidates(run.rows[:0], run.rows[:0], np.zeros((0, 1), np.int64), np.zeros((0, 1), np.int64))
        if self.filter in ("relevance", "scores"):
            self._filtered(nothing, run.pairs)
        if self.kind == "adapoffquin" and not {"i2t", "t2i"} <= _terms(run).keys():
            raise BadInput("this base's loss has no terms by pair and direction to weigh; kind=offquin has no weights")

    # ---- between the rounds ----

    def _begin_second_round(self, run: TrainingRun) -> None:
        if self.first:
            _back_to_best(run, self.result(run))
        if run.chief:
            self._lists(run)
        while not is_whole(run.folder / "candidates"):  # the others: a collective would give up waiting
            time.sleep(0.2)
        devices.barrier()
        if self.first or self.scratch:
            self._begin_again(run)
        run.best, run.waited = Best(), 0
        self.in_second_round = True
        run.save()
        run.writer.flush()  # from here on the first round's model may be replaced

    def _lists(self, run: TrainingRun) -> None:
        """Candidates of the training rows in the run folder; what mining kept besides goes, after a kill too."""
        if not is_whole(run.folder / "candidates"):
            self._make_lists(run, run.folder / "candidates")
        shutil.rmtree(run.folder / "mined", ignore_errors=True)

    def _make_lists(self, run: TrainingRun, folder: Path) -> None:
        """Mined or brought along, likely matches struck out."""
        data = fingerprint(run.pairs)
        if self.candidates is not None:
            lists = load_for(self.candidates, run.pairs, data=data).within(run.rows, run.pairs.picture)
            about: dict[str, Json] = {"from": Path(self.candidates).name}
        else:
            top = self.depth * (1 if self.filter == "none" else SPARE)
            lists, about = mine_into(
                run.folder / "mined", self.result(run), run.table, run.rows, top=top, coarse=self.coarse
            )
            say(f"mined {lists.depth[0]} captions a picture in {about['seconds']} s")
        kept = self._filtered(lists, run.pairs)
        self._check_depth(kept)
        about |= {"data": data, "filter": self.filter, **struck(lists, kept)}
        kept.save(folder, about)

    def _filtered(self, lists: Candidates, pairs: Pairs) -> Candidates:
        return filtered(lists, pairs, kind=self.filter, alike=self.alike, audit=self.audit)

    def _check_depth(self, kept: Candidates) -> None:
        """A round without negatives is no second round; one with fewer than were asked for is reported."""
        if not min(kept.depth):
            raise BadInput("no candidate is left after the filter: every list is empty; a gentler filter= keeps some")
        if kept.depth[0] < self.depth:
            say(f"lists are {kept.depth[0]} captions deep, not h={self.depth}: all of them are drawn from")

    def _begin_again(self, run: TrainingRun) -> None:
        """New networks and optimisers: fresh, or with the first round's weights."""
        for k, (name, old) in enumerate(run.networks.items()):
            seed = run.seed + 1000 * k
            if self.scratch:
                run.networks[name] = run.fresh(name, seed=seed)
                continue
            new = Network(run.recipe, seed=seed, device=run.device, name=name)
            new.matcher.load_state_dict(old.evaluated.state_dict())
            new.objective.load_state_dict(old.objective.state_dict())
            if new.average is not None:
                new.average.load_state_dict(old.evaluated.state_dict())
            run.networks[name] = new

    def state_dict(self) -> State:
        """Which round it is; the lists are in the run folder."""
        one = None if self.one is None else self.one.strategy.state_dict()
        return {"turned": self.in_second_round, "one": one, "two": self.two.strategy.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Take it back."""
        self.in_second_round = state["turned"]
        self.two.strategy.load_state_dict(state["two"])
        if self.one is not None:
            self.one.strategy.load_state_dict(state["one"])


@torch.no_grad()
def _terms(run: TrainingRun) -> Terms:
    """The losses of a few rows, without learning from them."""
    network = next(iter(run.networks.values()))
    batch = collate(run.table, run.rows[: 2 * fewest()], repeat=run.repeat).to(run.device)
    embeddings, batch = whole_batch(network.matcher.eval(), batch)
    scores = score_batch(network.matcher, embeddings, batch, matrix=True)
    return network.objective.eval()(scores, embeddings, batch)


def _back_to_best(run: TrainingRun, matcher: Matcher) -> None:
    """The model that was selected, where one was: on the disk, and the same for every process."""
    run.writer.flush()
    if run.best.epoch < 0:
        return
    kept = checkpoints.load_weights(run.folder / "model.safetensors") if run.chief else None
    matcher.load_state_dict(devices.broadcast(kept))
    learnt = devices.broadcast(objective_weights(run.folder) if run.chief else None)
    for name, network in run.networks.items():
        begin_with(network.objective, learnt.get(name, {}))


@dataclass(frozen=True, kw_only=True)
class AOQ(BuiltOn):
    """A second round over `base` (its own arguments are taken too); `epochs` are those of the second round.

    `second_rate` and `second_decay_every` hold for that round alone; without them it has the base's own, but a rate
    that falls in steps falls after ten epochs at the latest, as the paper's.
    """

    base_field: ClassVar[str] = "base"
    shared: ClassVar[frozenset[str]] = frozenset({"epochs"})
    base_epochs: ClassVar[str] = "first"
    from_run: ClassVar[Settings] = {"first": 0, "scratch": False}

    base: Arguments = field(default_factory=VSRN)
    kind: Literal["offtri", "offquin", "adapoffquin"] = "adapoffquin"
    first: Count | None = None
    scratch: bool = True
    candidates: str | None = None
    h: Annotated[int, Bound(least=1, below=1 << 31)] = 300
    draw: Literal["uniform", "normal"] = "uniform"
    alpha: Positive = 0.3
    beta: NonNegative = 1.5
    margin_offline: NonNegative = 0.0
    detach_weight: bool = False
    coarse: Count | None = None
    filter: Literal["none", "captions", "relevance", "scores"] = "none"
    alike: Fraction = 0.8
    audit: str | None = None
    epochs: Count = 20
    second_rate: Positive | None = None
    second_decay_every: Count | None = None

    def base_arguments(self) -> Arguments:
        """The base's."""
        return self.base

    def recipe(self, sizes: Sizes) -> Recipe:
        """The base's recipe twice, with mining between."""
        if (self.audit is None) == (self.filter == "scores"):
            raise BadInput("filter=scores and audit=DIR belong together")
        usual = round(1.5 * self.epochs) if self.first is None else self.first
        first = 0 if self.candidates is not None else usual
        one = with_known(self.base, epochs=first).recipe(sizes) if first else None
        two = self.second_arguments().recipe(sizes)
        _check_gentle(two, scratch=self.scratch, epochs=self.epochs)
        start = "from scratch" if self.scratch else "from the first"
        rounds: dict[str, Json] = {"first": first, "second": self.epochs, "second_starts": start}
        return replace(
            two,
            objective=lambda: self.harder(two.objective(), two.siblings),
            strategy=SecondRound(self, one, two),
            epochs=first + self.epochs,
            schedule=partial(in_rounds, one=one, two=two, first=first, faster=self.faster()),
            notes={**two.notes, "rounds": rounds},
        )

    def harder(self, objective: Objective, siblings: str) -> Objective:
        """An objective whose ranking has quintuplets beside it; other terms (a caption to write) stay as they are."""
        if isinstance(objective, Described):
            ranking = self.harder(objective.ranking, siblings)
            return Described(ranking, objective.captioner, weight=objective.weight)
        weights = {"alpha": self.alpha, "beta": self.beta, "margin": self.margin_offline}
        return Quintuplets(objective, kind=self.kind, **weights, siblings=siblings, detach=self.detach_weight)

    def second_arguments(self) -> Arguments:
        """The base's arguments in the second round alone."""
        base = with_known(self.base, epochs=self.epochs)
        if self.second_rate is not None:
            base = with_known(base, rate=self.second_rate)
        if isinstance(base, Staircase):
            usual = min(STEP, base.decay_every)
            return replace(base, decay_every=self.second_decay_every or usual)
        if self.second_decay_every is not None:
            raise BadInput(f"second_decay_every={self.second_decay_every}: {name_of(base)} has no decay_every")
        return base

    def faster(self) -> float:
        """How much higher the first round's rate is: the optimiser is built with the second's, and both share it."""
        assert isinstance(self.base, Training)
        return 1.0 if self.second_rate is None else self.base.rate / self.second_rate


def _check_gentle(two: Recipe, *, scratch: bool, epochs: int) -> None:
    """A round that is all warm-up would never see what was mined for it."""
    gentle = two.strategy.epochs if isinstance(two.strategy, WarmUp) else 0
    if scratch and gentle >= epochs:
        raise BadInput(f"warm={gentle} epochs={epochs}: the second round would be warm-up alone; give more epochs")


def in_rounds(
    epoch: int, step: int, steps: int, *, one: Recipe | None, two: Recipe, first: int, faster: float
) -> Rates:
    """The base's schedule, begun anew with the second round."""
    if one is not None and epoch < first:
        rates = one.schedule(epoch, step, steps)
        return {name: faster * rate for name, rate in rates.items()} if isinstance(rates, dict) else faster * rates
    return two.schedule(epoch - first, step, steps)


# ---- the authors' checkpoints ----------------------------------------------------------------------------------------


def read(file: Checkpoint) -> Foreign:
    """VSRN ([image, text, caption]) or BFAN ([image, text]) after its second round, recognised by their layers."""
    options = file["opt"]
    base = "vsrn" if any(key.startswith("Rs_GCN_") for key in file["model"][0]) else "bfan"
    foreign = read_vsrn(file) if base == "vsrn" else read_bfan(file)
    named: dict[str, Value] = {
        **foreign.arguments,
        "base": base,
        "margin": float(options.get("marginonline", foreign.arguments["margin"])),
        "margin_offline": float(options.get("marginoffline", 0.0)),
        "alpha": float(options.get("alpha", 0.3)),
        "beta": float(options.get("beta", 1.5)),
        "h": int(options.get("offcandisize", 300)),
    }
    return replace(foreign, arguments=named)


METHODS = [
    Method(
        "aoq",
        AOQ,
        paper="Adaptive Offline Quintuplet Loss for Image-Text Matching (ECCV 2020)",
        needs=("pairs", "regions"),
        small={"epochs": 8},
        reader=read,
    )
]
