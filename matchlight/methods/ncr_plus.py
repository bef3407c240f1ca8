"""NCR+: measure first with a loss that hardly memorises, then train afresh on pairs weighted by how clean they look.

Our own. What NCR loses when most pairs are wrong, it loses to its mixture (a split that is mostly wrong feeds itself)
and to its hinge on the hardest negative. Here (1) a short first round trains two networks with a bounded loss, whose
losses, averaged over epochs and networks, put the pairs in order; (2) how many are wrong is measured on pictures the
first round never trained on, against mismatches manufactured on purpose (`division.share_of_wrong`); (3) a second round
begins from fresh weights, so that what was memorised is gone, and weights every pair by its probability of being clean;
a caption that is doubted is learnt with the picture of a trusted pair near it. Few wrong pairs call for the
complementary loss, many for the bounded one (`loss=auto`). The ideas are from GCE (Zhang and Sabuncu 2018), RCL, CRCL,
IN2R, and DivideMix by way of NCR; each can be switched off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch

from matchlight import devices, files
from matchlight.core import (
    BadInput,
    Batch,
    Embedding,
    Ensemble,
    Matcher,
    Objective,
    Rates,
    Schedule,
    Scores,
    Sizes,
    Terms,
)
from matchlight.data.fingerprints import is_same_data
from matchlight.inputs.batches import seeded
from matchlight.methods.ncr import one_network
from matchlight.methods.rebuilt import Rebuilding, Remembered
from matchlight.methods.vse import DUAL, VSEInfinity
from matchlight.parts.objectives import SoftmaxLoss
from matchlight.training import closed_form
from matchlight.training.arguments import (
    COSINES,
    Arguments,
    BuiltOn,
    Count,
    Fraction,
    NonNegative,
    Positive,
    Settings,
    Whole,
    with_known,
)
from matchlight.training.checkpoints import State
from matchlight.training.contract import Phase, Recipe, Siblings, Strategy, TrainingRun
from matchlight.training.division import clean_probability_given_share, share_of_wrong
from matchlight.training.pair_losses import fits
from matchlight.training.registry import Method
from matchlight.training.schedules import one_cycle
from matchlight.training.strategies import Together, in_whole_pictures

WINDOW = 6  # last epochs of the first round whose losses are averaged
WRONG: tuple[Literal["few"], Literal["many"]] = ("few", "many")
IGNORED = 0.1  # a pair less likely clean than this is not learnt from at all
FEW = 100  # pairs: two groups cannot be found among fewer
MANY = 0.3  # share of wrong pairs from which on the weights let enough of them through for a bounded loss to pay
DIVISION = "division.npz"  # what a run found out about its pairs
ASIDE = 0.1  # share of the pictures that the first round only measures


class Weighted(Objective):
    """A loss of probabilities, each pair's multiplied by its weight: `batch.extra["trust"]`, 1 where there is none."""

    reduction = "mean"

    def __init__(self, loss: SoftmaxLoss):
        super().__init__()
        self.loss = loss

    def forward(self, scores: Scores, embeddings: dict[str, Embedding], batch: Batch) -> Terms:
        """One term a direction, (P,) each."""
        terms = self.loss(scores, embeddings, batch)
        weight = batch.extra.get("trust")
        return terms if weight is None else {name: term * weight for name, term in terms.items()}


class MeasureThenTrust(Strategy):
    """A first round that only measures, then a second that trusts each pair as far as it was found clean."""

    def __init__(self, arguments: NCRPlus, *, warm: int, together: bool):
        self.networks = ("A", "B")[: arguments.peers]
        self.warm = warm
        self.together = together  # a picture comes with all its captions, as in the scorer's own training
        self.rebuilding = Rebuilding(asked=arguments.rebuild)
        self.closed, self.closed_asked = arguments.measures_closed(), arguments.measure == "closed"
        self.first: Objective = arguments.softmax_loss("gce")
        self.second = {wrong: arguments.weighted(wrong) for wrong in WRONG}  # by how many pairs are wrong
        self.measured, self.fresh = 0, False  # epochs measured; whether the second round has its new weights
        self.seen: dict[str, list[np.ndarray]] = {}  # loss or null, and network -> one array an epoch, by row
        self.clean: np.ndarray | None = None  # how likely each row is clean
        self.noise: float | None = None  # estimated share of wrong pairs
        self._moved: torch.Tensor | None = None  # `clean` as steps read it, on the device
        self.begun = False  # with another run's weights, which can measure before anything is learnt

    def begin_from(self, run: TrainingRun, source: Path) -> None:
        """What a run like this one found out about the same pairs is known from the start, unless `warm` asks again."""
        self.begun, self.closed = True, self.closed_asked  # networks that have learnt know more than the closed form
        data = files.read_json(source / "recipe.json", "a run's recipe").get("data")
        known = not self.warm and (source / DIVISION).is_file() and is_same_data(data, run.pairs)
        kept = files.read_npz(source / DIVISION, "training writes it") if known else {}
        both = [f"{what}_{name}" for what in ("loss", "null") for name in self.networks]
        if not {"noise", "clean_A", *both} <= kept.keys():  # none, one of NCR's, or of another number of networks
            return
        if np.isnan(kept["clean_A"][run.rows]).any():  # that run held other pictures out
            return
        self.noise = float(kept["noise"][0]) if len(kept["noise"]) else None
        self.clean = kept["clean_A"]
        self.seen |= {what: [kept[what]] for what in both}

    def check(self, run: TrainingRun) -> None:
        """Networks that have learnt nothing cannot measure anything."""
        matcher = run.networks[self.networks[0]].matcher
        if self.closed and self.clean is None:
            closed_form.check(run, matcher)
        elif not self.warm and not self.begun:
            raise BadInput(
                "warm=0: the first epochs measure the pairs; measure=closed, or a run --from another, can do without"
            )
        self.rebuilding.check(run, matcher)

    def phases(self, run: TrainingRun, epoch: int) -> list[Phase]:
        """One phase a network; in the first round pairs are measured between epochs, then the weights begin anew."""
        if self.clean is None and self.closed:
            self._measure_closed(run)
        elif self.clean is None and (epoch >= self.warm or epoch > max(1, self.measured)):
            self._measure(run, epoch)
        if epoch < self.warm:
            return self._round(run, run.rows[~self._aside(run)], self.first, name="measure")
        if self.rebuilding.wanted(run) and not self.rebuilding.found:
            self._rebuild(run, self._look(run, epoch))  # trust came from another run, without what networks remember
        if not self.fresh:
            self._begin_again(run)
        trusting = self.second["many" if (self.noise or 0) >= MANY else "few"]
        return self._round(run, run.rows, trusting, name="trust")

    def _round(self, run: TrainingRun, rows: np.ndarray, loss: Objective, *, name: str) -> list[Phase]:
        """One phase a network; what the scorer adds to its ranking (captioning, diversity) stays."""
        each = {network: run.networks[network].objective.ranked_by(loss) for network in self.networks}
        phases = [Phase(rows, network, objective, name=name) for network, objective in each.items()]
        phases = [in_whole_pictures(run, phase) for phase in phases] if self.together else phases
        return [self.rebuilding.phase(run, phase, k) for k, phase in enumerate(phases)]

    def _aside(self, run: TrainingRun) -> np.ndarray:
        """Which training rows belong to pictures that the first round leaves out."""
        pictures = np.unique(run.pairs.picture[run.rows])
        many = not self.closed and len(run.rows) >= FEW and len(pictures) > 1
        count = max(1, round(ASIDE * len(pictures))) if many else 0
        return np.isin(run.pairs.picture[run.rows], seeded(run.seed, 909).choice(pictures, count, replace=False))

    def _begin_again(self, run: TrainingRun) -> None:
        """New weights after a round that measured, unless another run's are gone on with."""
        self.fresh = True
        for k, name in enumerate(self.networks if self.warm and not self.begun else ()):
            run.networks[name] = run.fresh(name, seed=run.seed + 1000 * k + 500)

    # ---- measuring ----

    def _measure_closed(self, run: TrainingRun) -> None:
        """Before the first step, by fits that did not see the pairs they measure: no picture need be left aside."""
        matcher = run.networks[self.networks[0]].matcher
        found = devices.broadcast(closed_form.closed_form(run, matcher) if run.chief else None)
        for name in self.networks:
            self.seen |= {f"loss_{name}": [found.loss], f"null_{name}": [found.null]}
        self._weigh(run)
        for name in self.networks if self.rebuilding.wanted(run) else ():
            self.rebuilding.update(run, name, found.vectors, self._trusted)

    def _measure(self, run: TrainingRun, epoch: int) -> None:
        """After the first epoch only where it is the last: its losses say little. Then the weights are settled."""
        self.measured = epoch
        memories = self._look(run, epoch, keep=True)
        if epoch >= self.warm:
            self._weigh(run)
            self._rebuild(run, memories)

    def _look(self, run: TrainingRun, epoch: int, *, keep: bool = False) -> dict[str, Remembered]:
        """All pairs as each network sees them: their losses, where they are kept, and its vectors after the round."""
        memories = {}
        for k, name in enumerate(self.networks):
            matcher = run.networks[name].evaluated
            if epoch >= self.warm and self.rebuilding.wanted(run):
                memories[name] = Remembered(run, matcher)
            measured = fits(run, matcher, draw=(epoch, k), beside=memories[name].add if memories else None)
            for what, values in measured.items() if keep else ():
                kept = self.seen.setdefault(f"{what}_{name}", [])
                kept.append(values.astype(np.float32))
                del kept[:-WINDOW]
        return memories

    def _rebuild(self, run: TrainingRun, memories: dict[str, Remembered]) -> None:
        for name in self.networks if memories else ():
            self.rebuilding.update(run, name, memories[self._peer(name)].parts, self._trusted)

    def _evidence(self, what: str, name: str) -> np.ndarray:
        """The mean over the epochs that measured: early losses have memorised less, late ones know more."""
        mean: np.ndarray = np.mean(self.seen[f"{what}_{name}"], axis=0)
        return mean

    def _weigh(self, run: TrainingRun) -> None:
        """By the mean of all networks' losses."""
        loss, null = (
            np.mean([self._evidence(what, name)[run.rows] for name in self.networks], axis=0)
            for what in ("loss", "null")
        )
        self.clean = np.full(len(run.pairs), np.nan)
        self.clean[run.rows] = self._probability(loss, null, self._aside(run))

    def _peer(self, name: str) -> str:
        return self.networks[-1 - self.networks.index(name)]

    def _probability(self, loss: np.ndarray, null: np.ndarray, aside: np.ndarray) -> np.ndarray:
        if len(loss) < FEW:
            return np.ones(len(loss))
        apart = aside if aside.any() else ~aside  # a single picture cannot be left out
        self.noise = share_of_wrong(loss[apart], null[apart])
        weight = np.empty(len(loss))
        for part in (aside, ~aside):  # measured on different terms: ranked apart
            if part.any():
                weight[part] = clean_probability_given_share(loss[part], self.noise)
        return weight

    @property
    def _trusted(self) -> np.ndarray:
        assert self.clean is not None
        return self.clean

    # ---- training ----

    def before_step(self, run: TrainingRun, phase: Phase, batch: Batch) -> Batch:
        """The weights of a batch's pairs."""
        if phase.name != "trust":
            return batch
        return batch.with_extra(trust=self.rebuilding.trust(batch, self._trust(batch.row.device)[batch.row]))

    def _trust(self, device: torch.device) -> torch.Tensor:
        """The weight of every row, moved to the device before the first step that trusts: it is settled by then."""
        if self._moved is None:
            clean = torch.from_numpy(self._trusted).float()
            self._moved = torch.where(clean < IGNORED, 0.0, clean).to(device)
        return self._moved

    def assemble(self, networks: Mapping[str, Matcher]) -> Matcher:
        """All networks, averaged."""
        both = [networks[name] for name in self.networks]
        return Ensemble(both) if len(both) > 1 else both[0]

    def finish(self, run: TrainingRun) -> None:
        """Leave what was found out about the pairs beside the run."""
        if self.clean is None or not run.chief:
            return
        named = {f"clean_{name}": self.clean for name in self.networks}
        named |= {f"{what}_{name}": self._evidence(what, name) for what in ("loss", "null") for name in self.networks}
        files.write_npz(run.folder / DIVISION, named | {"noise": np.array([] if self.noise is None else [self.noise])})

    def state_dict(self) -> State:
        """Everything measured."""
        names = {"measured": self.measured, "fresh": self.fresh, "seen": self.seen}
        return {**names, "clean": self.clean, "noise": self.noise, "rebuilt": self.rebuilding.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Take it back."""
        self.measured, self.fresh, self.noise = state["measured"], state["fresh"], state["noise"]
        self.seen = {name: list(kept) for name, kept in state["seen"].items()}
        self.clean = state["clean"]
        self.rebuilding.load_state_dict(state["rebuilt"])


def rounds(epoch: int, step: int, steps: int, *, warm: int, epochs: int, below: Schedule | None = None) -> Rates:
    """Up, then level while networks measure; a cycle of its own for the second round.

    What the scorer's schedule holds back (a backbone, for some epochs) waits in each round.
    """
    here = epoch if epoch < warm else epoch - warm
    if epoch < warm:
        factor = min(1.0, 0.04 + 0.96 * (here * steps + step) / max(1, 2 * steps))
    else:
        factor = one_cycle(here, step, steps, epochs=max(1, epochs - warm))
    parts = below(here, step, steps) if below else None
    return {name: factor if part else 0.0 for name, part in parts.items()} if isinstance(parts, dict) else factor


DUAL_SCORER = {name: value for name, value in DUAL.items() if name not in ("loss", "epochs")}


@dataclass(frozen=True, kw_only=True)
class NCRPlus(BuiltOn):
    """NCR+ on any scorer of one network; `warm` of the `epochs` (three tenths, at most half) only measure."""

    base_field: ClassVar[str] = "scorer"
    shared: ClassVar[frozenset[str]] = frozenset({"epochs", "loss", "pull", "q", "siblings", "warm"})
    base_defaults: ClassVar[Mapping[str, Settings]] = {"vse_infty": DUAL_SCORER, "dual": COSINES}
    from_run: ClassVar[Settings] = {"warm": 0}  # it has learnt enough to measure, and is not forgotten

    scorer: Arguments = field(default_factory=VSEInfinity)
    measure: Literal["auto", "closed", "networks"] = "auto"
    loss: Literal["auto", "infonce", "rclog", "gce"] = "auto"
    temperature: Positive = 0.05
    q: Fraction = 0.5
    pull: NonNegative = 0.1
    peers: Literal[1, 2] = 2
    rebuild: bool | None = None  # None: where the scorer has one vector for a whole item, but not from pixels
    warm: Whole | None = None
    epochs: Count = 17
    siblings: Siblings = "masked"

    def base_arguments(self) -> Arguments:
        """The scorer's."""
        return self.scorer

    def recipe(self, sizes: Sizes) -> Recipe:
        """The scorer's recipe in two rounds, pairs weighted by trust in the second."""
        base = one_network(with_known(self.scorer, epochs=self.epochs, siblings=self.siblings), sizes)
        warm = self.epochs_that_measure()
        strategy = MeasureThenTrust(self, warm=warm, together=isinstance(base.strategy, Together))
        return replace(
            base,
            objective=lambda: base.objective().ranked_by(self.weighted("few")),
            strategy=strategy,
            schedule=partial(rounds, below=base.schedule, warm=warm, epochs=self.epochs),
            ema=0.0,
        )

    def measures_closed(self) -> bool:
        """Whether the closed form measures: where nothing else is said, wherever it can and no epochs are to."""
        if self.measure == "auto":
            return not self.warm and self.scorer.reads_pretrained()
        return self.measure == "closed"

    def epochs_that_measure(self) -> int:
        """None where the closed form does, at least one and at most half of all where networks do."""
        if self.measure == "closed" and self.warm:
            raise BadInput(
                f"measure=closed measures before the first epoch, so warm={self.warm} means nothing; drop one"
            )
        if self.measures_closed() or self.warm == 0:
            return 0
        wanted = round(0.3 * self.epochs) if self.warm is None else self.warm
        return max(1, min(wanted, self.epochs // 2))

    def softmax_loss(self, kind: str) -> SoftmaxLoss:
        """A loss of probabilities with these settings."""
        return SoftmaxLoss(kind, temperature=self.temperature, pull=self.pull, q=self.q, siblings=self.siblings)

    def weighted(self, wrong: Literal["few", "many"]) -> Weighted:
        """The loss of the second round where few pairs are wrong, or many."""
        usual = {"few": "rclog", "many": "gce"}[wrong]
        return Weighted(self.softmax_loss(usual if self.loss == "auto" else self.loss))


METHODS = [
    Method(
        "ncr+",
        NCRPlus,
        paper="ours, after NCR (NeurIPS 2021), RCL (TPAMI 2023) and CRCL (NeurIPS 2023)",
        needs=("pairs", "regions"),
        small={"epochs": 14, "loss": "auto"},  # whatever the scorer prefers
    ),
]
