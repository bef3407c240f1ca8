"""NCR+: measure first with a loss that hardly memorises, then train afresh on pairs weighted by how clean they look.

Our own. What NCR loses when most pairs are wrong, it loses to its mixture (a split that is mostly wrong feeds itself)
and to its hinge on the hardest negative. Here (1) a short first round trains two networks with a bounded loss, whose
losses, averaged over epochs and networks, put the pairs in order; (2) how many are wrong is measured on pictures the
first round never trained on, against mismatches manufactured on purpose (`division.share_of_wrong`); (3) a second round
begins from fresh weights, so that what was memorised is gone, and weights every pair by its probability of being clean,
which is kept up to date; a caption that is doubted is learnt with the picture of a trusted pair near it. Few wrong
pairs call for the complementary loss, many for the bounded one (`loss=auto`). The ideas are from GCE (Zhang and
Sabuncu 2018), RCL, CRCL, IN2R, and DivideMix by way of NCR; each can be switched off.
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
    Share,
    Whole,
    with_known,
)
from matchlight.training.checkpoints import State
from matchlight.training.contract import Phase, Recipe, Siblings, Strategy, TrainingRun
from matchlight.training.division import clean_probability, clean_probability_given_share, share_of_wrong
from matchlight.training.pair_losses import fits
from matchlight.training.registry import Method
from matchlight.training.schedules import one_cycle
from matchlight.training.strategies import Together, in_whole_pictures

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
        self.warm, self.restart, self.relabel = warm, arguments.restart, arguments.relabel
        self.border, self.labels, self.window = arguments.border, arguments.labels, arguments.window
        self.together = together  # a picture comes with all its captions, as in the scorer's own training
        self.rebuilding = Rebuilding(asked=arguments.rebuild, weight=arguments.rebuilt_weight)
        self.closed = arguments.measure == "closed"
        self.first: Objective = arguments.softmax_loss("gce" if self.closed else arguments.measure)
        self.second = {wrong: arguments.weighted(wrong) for wrong in WRONG}  # by how many pairs are wrong
        self.measured, self.fresh = 0, False  # epochs measured; whether the second round has its new weights
        self.seen: dict[str, list[np.ndarray]] = {}  # round and network -> one array an epoch, by row
        self.clean: dict[str, np.ndarray] = {}  # network -> weight of each row in its training
        self.noise: list[float] = []  # estimated share of wrong pairs, fit by fit
        self._moved: dict[str, tuple[np.ndarray, torch.Tensor]] = {}  # `clean` as steps read it, and what it was then
        self.begun = False  # with another run's weights, which can measure before anything is learnt

    def begin_from(self, run: TrainingRun, source: Path) -> None:
        """What a run like this one found out about the same pairs is known from the start."""
        self.begun = True
        data = files.read_json(source / "recipe.json", "a run's recipe").get("data")
        known = (source / DIVISION).is_file() and is_same_data(data, run.pairs)
        kept = files.read_npz(source / DIVISION, "training writes it") if known else {}
        both = [f"{what}_{name}" for what in ("clean", "loss", "null") for name in self.networks]
        if not {"noise", *both} <= kept.keys():  # none, one of NCR's, or of another number of networks
            return
        self.noise = kept["noise"].tolist()
        for name in self.networks:
            self.clean[name] = kept[f"clean_{name}"]
            self.seen |= {f"{what}-first-{name}": [kept[f"{what}_{name}"]] for what in ("loss", "null")}

    def check(self, run: TrainingRun) -> None:
        """Networks that have learnt nothing cannot measure anything."""
        matcher = run.networks[self.networks[0]].matcher
        if self.closed and not self.clean:
            closed_form.check(run, matcher)
        elif not self.warm and not self.begun:
            raise BadInput("warm=0: the first epochs measure the pairs; only a run --from another can do without")
        self.rebuilding.check(run, matcher)

    def phases(self, run: TrainingRun, epoch: int) -> list[Phase]:
        """One phase a network; between epochs all pairs are measured, between rounds the weights begin anew."""
        if self.closed and not self.clean:
            self._measure_closed(run)
        if epoch > self.measured or epoch == self.warm and not self.clean:
            self._measure(run, epoch)
        if epoch >= self.warm and self.rebuilding.wanted(run) and not self.rebuilding.found:
            self._rebuild(run, self._fits(run, epoch))  # trust came from another run, without what networks remember
        if epoch >= self.warm and not self.fresh:
            self._begin_again(run)
        if epoch >= self.warm:
            trusting = self.second["many" if self.noise and self.noise[0] >= MANY else "few"]
            return self._round(run, run.rows, trusting, name="trust")
        return self._round(run, run.rows[~self._aside(run)], self.first, name="measure")

    def _round(self, run: TrainingRun, rows: np.ndarray, loss: Objective, *, name: str) -> list[Phase]:
        """One phase a network; what the scorer adds to its ranking (captioning, diversity) stays."""
        each = {network: run.networks[network].objective.ranked_by(loss) for network in self.networks}
        phases = [Phase(rows, network, objective, name=name) for network, objective in each.items()]
        phases = [in_whole_pictures(run, phase) for phase in phases] if self.together else phases
        return [self.rebuilding.phase(run, phase, k) for k, phase in enumerate(phases)]

    def _aside(self, run: TrainingRun) -> np.ndarray:
        """Which training rows belong to pictures that the first round leaves out."""
        pictures = np.unique(run.pairs.picture[run.rows])
        many = self.border == "measured" and not self.closed and len(run.rows) >= FEW and len(pictures) > 1
        count = max(1, round(ASIDE * len(pictures))) if many else 0
        return np.isin(run.pairs.picture[run.rows], seeded(run.seed, 909).choice(pictures, count, replace=False))

    def _begin_again(self, run: TrainingRun) -> None:
        self.fresh = True
        for k, name in enumerate(self.networks if self.restart else ()):
            run.networks[name] = run.fresh(name, seed=run.seed + 1000 * k + 500)

    # ---- measuring ----

    def _measure_closed(self, run: TrainingRun) -> None:
        """Before the first step, by fits that did not see the pairs they measure: no picture need be left aside."""
        matcher = run.networks[self.networks[0]].matcher
        found = devices.broadcast(closed_form.closed_form(run, matcher) if run.chief else None)
        for name in self.networks:
            self.seen |= {f"loss-first-{name}": [found.loss], f"null-first-{name}": [found.null]}
        self.fresh = True
        self._weigh(run)
        for name in self.networks if self.rebuilding.wanted(run) else ():
            self.rebuilding.update(run, name, found.vectors, self.clean[name])

    def _measure(self, run: TrainingRun, epoch: int) -> None:
        """After each epoch but a round's first, whose losses say little yet."""
        early, self.measured = epoch <= self.warm, epoch
        done = epoch if early else epoch - self.warm
        if done < 2 and epoch != self.warm or not (early or self.relabel):
            return
        memories = self._fits(run, epoch, keep="first" if early else "second")
        if epoch >= self.warm:
            self._weigh(run)
            self._rebuild(run, memories)

    def _fits(self, run: TrainingRun, epoch: int, *, keep: str = "") -> dict[str, Remembered]:
        """Measure all pairs by each network, for the round named by `keep`; what networks remember where it is used."""
        memories = {}
        for k, name in enumerate(self.networks):
            matcher = run.networks[name].evaluated
            if epoch >= self.warm and self.rebuilding.wanted(run):
                memories[name] = Remembered(run, matcher)
            measured = fits(run, matcher, draw=(epoch, k), beside=memories[name].add if memories else None)
            for what, values in measured.items() if keep else ():
                kept = self.seen.setdefault(f"{what}-{keep}-{name}", [])
                kept.append(values.astype(np.float32))
                del kept[: -self.window]
        return memories

    def _rebuild(self, run: TrainingRun, memories: dict[str, Remembered]) -> None:
        for name in self.networks if memories else ():
            self.rebuilding.update(run, name, memories[self._peer(name)].parts, self.clean[name])

    def _evidence(self, what: str, name: str) -> np.ndarray:
        """The mean over a round's epochs, then over rounds: early losses have memorised less, late ones know more."""
        rounds = [self.seen.get(f"{what}-{when}-{name}", []) for when in ("first", "second")]
        return np.mean([np.mean(kept, axis=0) for kept in rounds if kept], axis=0)

    def _weigh(self, run: TrainingRun) -> None:
        losses = {name: self._evidence("loss", name)[run.rows] for name in self.networks}
        nulls = {name: self._evidence("null", name)[run.rows] for name in self.networks}
        aside = self._aside(run)
        for name in self.networks:
            sources = [self._peer(name)] if self.labels == "peer" else list(self.networks)
            loss, null = (np.mean([part[one] for one in sources], axis=0) for part in (losses, nulls))
            weight = np.full(len(run.pairs), np.nan)
            weight[run.rows] = self._probability(loss, null, aside, seed=run.seed)
            self.clean[name] = weight

    def _peer(self, name: str) -> str:
        return self.networks[-1 - self.networks.index(name)]

    def _probability(self, loss: np.ndarray, null: np.ndarray, aside: np.ndarray, *, seed: int) -> np.ndarray:
        if len(loss) < FEW:
            return np.ones(len(loss))
        if self.border != "measured":
            weight = clean_probability(loss, converged=self.border == "converged", seed=seed)
            self.noise = self.noise or [float(1 - weight.mean())]  # which loss follows is not the border's business
            return weight
        if not self.noise:  # only the first time: later on those pictures are trained on too
            apart = aside if aside.any() else ~aside  # a single picture cannot be left out
            self.noise = [share_of_wrong(loss[apart], null[apart])]
        weight = np.empty(len(loss))
        for part in (aside, ~aside):  # measured on different terms: ranked apart
            if part.any():
                weight[part] = clean_probability_given_share(loss[part], self.noise[0])
        return weight

    # ---- training ----

    def before_step(self, run: TrainingRun, phase: Phase, batch: Batch) -> Batch:
        """The weights of a batch's pairs."""
        if phase.name != "trust":
            return batch
        trust = self._trust(phase.network, batch.row.device)[batch.row]
        return batch.with_extra(trust=self.rebuilding.trust(batch, trust))

    def _trust(self, network: str, device: torch.device) -> torch.Tensor:
        """The weight of every row on the device, moved there once: no step waits to be told its rows."""
        known, trust = self._moved.get(network, (None, None))
        if trust is None or known is not self.clean[network] or trust.device != device:
            clean = torch.from_numpy(self.clean[network]).float()
            trust = torch.where(clean < IGNORED, 0.0, clean).to(device)
            self._moved[network] = self.clean[network], trust
        return trust

    def assemble(self, networks: Mapping[str, Matcher]) -> Matcher:
        """All networks, averaged."""
        both = [networks[name] for name in self.networks]
        return Ensemble(both) if len(both) > 1 else both[0]

    def finish(self, run: TrainingRun) -> None:
        """Leave what was found out about the pairs beside the run."""
        if self.clean and run.chief:
            named = {f"clean_{name}": value for name, value in self.clean.items()}
            named |= {
                f"{what}_{name}": self._evidence(what, name) for what in ("loss", "null") for name in self.networks
            }
            files.write_npz(run.folder / DIVISION, named | {"noise": np.array(self.noise)})

    def state_dict(self) -> State:
        """Everything measured."""
        names = {"judged": self.measured, "fresh": self.fresh, "seen": self.seen}
        return {**names, "clean": self.clean, "noise": self.noise, "rebuilt": self.rebuilding.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Take it back."""
        self.measured, self.fresh, self.noise = state["judged"], state["fresh"], list(state["noise"])
        self.seen = {name: list(kept) for name, kept in state["seen"].items()}
        self.clean = dict(state["clean"])
        self.rebuilding.load_state_dict(state.get("rebuilt", {}))  # runs from before it was kept have none


def rounds(
    epoch: int, step: int, steps: int, *, warm: int, epochs: int, restart: bool, below: Schedule | None = None
) -> Rates:
    """Up, then level while measuring; a cycle of its own for the second round, or one over both without a restart.

    What the scorer's schedule holds back (a backbone, for some epochs) waits in each round.
    """
    second = restart and epoch >= warm
    here = epoch - warm if second else epoch
    if restart and not second:
        factor = min(1.0, 0.04 + 0.96 * (here * steps + step) / max(1, 2 * steps))
    else:
        factor = one_cycle(here, step, steps, epochs=max(1, epochs - warm) if second else epochs)
    parts = below(here, step, steps) if below else None
    return {name: factor if part else 0.0 for name, part in parts.items()} if isinstance(parts, dict) else factor


DUAL_SCORER = {name: value for name, value in DUAL.items() if name not in ("loss", "epochs")}


@dataclass(frozen=True, kw_only=True)
class NCRPlus(BuiltOn):
    """NCR+ on any scorer of one network; `warm` of the `epochs` (three tenths, at most half) only measure."""

    base_field: ClassVar[str] = "scorer"
    shared: ClassVar[frozenset[str]] = frozenset({"ema", "epochs", "loss", "pull", "q", "siblings", "warm"})
    base_defaults: ClassVar[Mapping[str, Settings]] = {"vse_infty": DUAL_SCORER, "dual": COSINES}
    from_run: ClassVar[Settings] = {
        "warm": 0,
        "restart": False,
    }  # it has learnt enough to measure, and is not forgotten

    scorer: Arguments = field(default_factory=VSEInfinity)
    measure: Literal["gce", "infonce", "rclog", "closed"] = "gce"
    loss: Literal["auto", "infonce", "rclog", "gce"] = "auto"
    temperature: Positive = 0.05
    q: Fraction = 0.5
    pull: NonNegative = 0.1
    border: Literal["measured", "converged", "rough"] = "measured"
    labels: Literal["both", "peer"] = "both"
    restart: bool = True
    relabel: bool = True
    window: Count = 6
    peers: Literal[1, 2] = 2
    rebuild: bool | None = None  # None: where the scorer has one vector for a whole item, but not from pixels
    rebuilt_weight: NonNegative = 0.5
    warm: Whole | None = None
    epochs: Count = 17
    ema: Share = 0.0
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
            schedule=partial(rounds, below=base.schedule, warm=warm, epochs=self.epochs, restart=self.restart),
            ema=self.ema,
        )

    def epochs_that_measure(self) -> int:
        """None where the closed form does, at least one and at most half of all where networks do."""
        if self.measure == "closed" and self.warm:
            raise BadInput(
                f"measure=closed measures before the first epoch, so warm={self.warm} means nothing; drop one"
            )
        if self.measure == "closed" or self.warm == 0:
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
