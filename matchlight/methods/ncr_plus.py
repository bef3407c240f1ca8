"""NCR+: measure first with a loss that hardly memorises, then train afresh on pairs weighted by how clean they look.

Our own. What NCR loses when most pairs are wrong, it loses to its mixture (a split that is mostly wrong feeds itself)
and to its hinge on the hardest negative. Here (1) a short first round trains two networks with a bounded loss, whose
losses, averaged over epochs and networks, put the pairs in order; (2) how many are wrong is measured on pictures the
first round never trained on, against mismatches manufactured on purpose (`division.share_of_wrong`); (3) a second round
begins from fresh weights, so that what was memorised is gone, and weights every pair by its probability of being clean,
which is kept up to date. Few wrong pairs call for the complementary loss, many for the bounded one (`loss=auto`).
The ideas are from GCE (Zhang and Sabuncu 2018), RCL, CRCL, and DivideMix by way of NCR; each can be switched off.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from matchlight.core import Batch, Ensemble, Matcher, Objective, Phase, Recipe, Scores, Sizes, Terms
from matchlight.files import write_npz
from matchlight.inputs.batches import seeded
from matchlight.methods.ncr import scorer_below
from matchlight.methods.vse import DUAL
from matchlight.parts.objectives import Probable
from matchlight.training.division import gaussians, share_of_wrong, weighed
from matchlight.training.judging import fits
from matchlight.training.network import Network
from matchlight.training.recipes import Method, check_choices
from matchlight.training.schedules import one_cycle
from matchlight.training.strategies import Together, in_whole_pictures

DECIDES = ("ema", "epochs", "loss", "pull", "q", "siblings", "warm")  # for the scorer too
BORDERS = ("measured", "converged", "rough")
IGNORED = 0.1  # a pair less likely clean than this is not learnt from at all
FEW = 100  # pairs: no two groups can be told among fewer
MANY = 0.3  # share of wrong pairs from which on the weights let enough of them through for a bounded loss to pay
ASIDE = 0.1  # share of the pictures that the first round only measures


class Weighted(Objective):
    """A loss of probabilities, each pair's multiplied by its weight: `batch.extra["label"]`, 1 where there is none."""

    reduction = "mean"

    def __init__(self, **loss: Any):
        super().__init__()
        self.loss = Probable(**loss)

    def forward(self, scores: Scores, embeddings: dict[str, Any], batch: Batch) -> Terms:
        """One term a direction, (P,) each."""
        terms = self.loss(scores, embeddings, batch)
        weight = batch.extra.get("label")
        return terms if weight is None else {name: term * weight for name, term in terms.items()}


class MeasureThenTrust:
    """A first round that only measures, then a second that trusts each pair as far as it was found clean."""

    def __init__(
        self,
        *,
        warm: int,
        restart: bool,
        relabel: bool,
        border: str,
        labels: str,
        window: int,
        peers: int,
        together: bool,
        first: Objective,
        second: dict[str, Objective],
    ):
        self.networks = ("A", "B")[:peers]
        self.warm, self.restart, self.relabel = warm, restart, relabel
        self.border, self.labels, self.window, self.first = border, labels, window, first
        self.together = together  # a picture comes with all its captions, as in the scorer's own training
        self.second = second  # "few" and "many": the objective by how many pairs are wrong
        self.judged, self.fresh = 0, False  # epochs measured; whether the second round has its new weights
        self.seen: dict[str, list[np.ndarray]] = {}  # round and network -> one array an epoch, by row
        self.clean: dict[str, np.ndarray] = {}  # network -> weight of each row in its training
        self.noise: list[float] = []  # estimated share of wrong pairs, fit by fit

    def phases(self, run: Any, epoch: int) -> list[Phase]:
        """One phase a network; between epochs all pairs are measured, between rounds the weights begin anew."""
        if epoch > self.judged:
            self._measure(run, epoch)
        if epoch >= self.warm and not self.fresh:
            self._begin_again(run)
        if epoch >= self.warm:
            trusting = self.second["many" if self.noise and self.noise[0] >= MANY else "few"]
            return self._round(run, run.rows, trusting, name="trust")
        return self._round(run, run.rows[~self._aside(run)], self.first, name="measure")

    def _round(self, run: Any, rows: np.ndarray, loss: Objective, *, name: str) -> list[Phase]:
        """One phase a network; what the scorer adds to its ranking (captioning, diversity) stays."""
        each = {network: run.networks[network].objective.ranked_by(loss) for network in self.networks}
        phases = [Phase(rows, network, objective, name=name) for network, objective in each.items()]
        return [in_whole_pictures(run, phase) for phase in phases] if self.together else phases

    def _aside(self, run: Any) -> np.ndarray:
        """Which training rows belong to pictures that the first round leaves out."""
        pictures = np.unique(run.pairs.picture[run.rows])
        many = self.border == "measured" and len(run.rows) >= FEW and len(pictures) > 1
        count = max(1, round(ASIDE * len(pictures))) if many else 0
        return np.isin(run.pairs.picture[run.rows], seeded(run.seed, 909).choice(pictures, count, replace=False))

    def _begin_again(self, run: Any) -> None:
        self.fresh = True
        for k, name in enumerate(self.networks if self.restart else ()):
            run.networks[name] = Network(run.recipe, seed=run.seed + 1000 * k + 500, device=run.device, name=name)

    # ---- measuring ----

    def _measure(self, run: Any, epoch: int) -> None:
        """After each epoch but a round's first, whose losses say little yet."""
        early, self.judged = epoch <= self.warm, epoch
        done = epoch if early else epoch - self.warm
        if done < 2 and epoch != self.warm or not (early or self.relabel):
            return
        for k, name in enumerate(self.networks):
            found = fits(run, run.networks[name].judged, draw=(epoch, k))
            for what, values in found.items():
                kept = self.seen.setdefault(f"{what}-{'first' if early else 'second'}-{name}", [])
                kept.append(values.astype(np.float32))
                del kept[: -self.window]
        if epoch >= self.warm:
            self._weigh(run)

    def _evidence(self, what: str, name: str) -> np.ndarray:
        """The mean over a round's epochs, then over rounds: early losses have memorised less, late ones know more."""
        rounds = [self.seen.get(f"{what}-{when}-{name}", []) for when in ("first", "second")]
        return np.mean([np.mean(kept, axis=0) for kept in rounds if kept], axis=0)

    def _weigh(self, run: Any) -> None:
        losses = {name: self._evidence("loss", name)[run.rows] for name in self.networks}
        nulls = {name: self._evidence("null", name)[run.rows] for name in self.networks}
        aside = self._aside(run)
        for name in self.networks:
            told = [self._peer(name)] if self.labels == "peer" else list(self.networks)
            loss, null = (np.mean([part[one] for one in told], axis=0) for part in (losses, nulls))
            weight = np.full(len(run.pairs), np.nan)
            weight[run.rows] = self._probability(loss, null, aside, seed=run.seed)
            self.clean[name] = weight

    def _peer(self, name: str) -> str:
        return self.networks[-1 - self.networks.index(name)]

    def _probability(self, loss: np.ndarray, null: np.ndarray, aside: np.ndarray, *, seed: int) -> np.ndarray:
        if len(loss) < FEW:
            return np.ones(len(loss))
        if self.border != "measured":
            weight = gaussians(loss, converged=self.border == "converged", seed=seed)
            self.noise = self.noise or [float(1 - weight.mean())]  # which loss follows is not the border's business
            return weight
        if not self.noise:  # only the first time: later on those pictures are trained on too
            apart = aside if aside.any() else ~aside  # a single picture cannot be left out
            self.noise = [share_of_wrong(loss[apart], null[apart])]
        weight = np.empty(len(loss))
        for part in (aside, ~aside):  # measured on different terms: ranked apart
            if part.any():
                weight[part] = weighed(loss[part], self.noise[0])
        return weight

    # ---- training ----

    def weigh(self, run: Any, phase: Phase, batch: Batch) -> Batch:
        """The weights of a batch's pairs."""
        if phase.name != "trust":
            return batch
        label = torch.from_numpy(self.clean[phase.network][batch.row.cpu().numpy()]).float().to(batch.row.device)
        return batch.with_extra(label=torch.where(label < IGNORED, 0.0, label))

    def result(self, run: Any) -> Matcher:
        """All networks, averaged."""
        both = [run.networks[name].judged for name in self.networks]
        return Ensemble(both) if len(both) > 1 else both[0]

    def finish(self, run: Any) -> None:
        """Leave what was found out about the pairs beside the run."""
        if self.clean and run.chief:
            named = {f"clean_{name}": value for name, value in self.clean.items()}
            named |= {
                f"{what}_{name}": self._evidence(what, name) for what in ("loss", "null") for name in self.networks
            }
            write_npz(run.folder / "division.npz", named | {"noise": np.array(self.noise)})

    def state_dict(self) -> dict[str, Any]:
        """Everything measured."""
        return {name: getattr(self, name) for name in ("judged", "fresh", "seen", "clean", "noise")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take it back."""
        self.judged, self.fresh, self.noise = state["judged"], state["fresh"], list(state["noise"])
        self.seen = {name: list(kept) for name, kept in state["seen"].items()}
        self.clean = dict(state["clean"])


def rounds(
    epoch: int, step: int, steps: int, *, warm: int, epochs: int, restart: bool, below: Any = None
) -> dict[str, float] | float:
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


def recipe(
    sizes: Sizes,
    *,
    scorer: str = "vse_infty",
    measure: str = "gce",
    loss: str = "auto",
    temperature: float = 0.05,
    q: float = 0.5,
    pull: float = 0.1,
    border: str = "measured",
    labels: str = "both",
    restart: bool = True,
    relabel: bool = True,
    window: int = 6,
    peers: int = 2,
    warm: int | None = None,
    epochs: int = 17,
    ema: float = 0.0,
    siblings: str = "masked",
    **below: Any,
) -> Recipe:
    """NCR+ on any scorer of one network; `warm` of the `epochs` (three tenths, at most half) only measure."""
    check_choices(measure=(measure, Probable.kinds), loss=(loss, ("auto", *Probable.kinds)), border=(border, BORDERS))
    check_choices(labels=(labels, ("both", "peer")), peers=(str(peers), ("1", "2")))
    warm = max(1, min(round(0.3 * epochs) if warm is None else warm, epochs // 2))
    base = scorer_below(sizes, scorer, {"epochs": epochs, "siblings": siblings}, below)
    kind: dict[str, Any] = {"temperature": temperature, "q": q, "pull": pull, "siblings": siblings}
    chosen = {"few": "rclog", "many": "gce"} if loss == "auto" else dict.fromkeys(("few", "many"), loss)
    trust = MeasureThenTrust(
        warm=warm,
        restart=restart,
        relabel=relabel,
        border=border,
        labels=labels,
        window=window,
        peers=peers,
        together=isinstance(base.strategy, Together),
        first=Probable(measure, **kind),
        second={how: Weighted(kind=one, **kind) for how, one in chosen.items()},
    )
    below_it = base.objective
    base.objective = lambda: below_it().ranked_by(Weighted(kind=chosen["few"], **kind))
    base.strategy, base.before_step, base.finish = trust, trust.weigh, trust.finish
    base.schedule = partial(rounds, below=base.schedule, warm=warm, epochs=epochs, restart=restart)
    base.ema = ema
    return base


METHODS = [
    Method(
        "ncr+",
        recipe,
        paper="ours, after NCR (NeurIPS 2021), RCL (TPAMI 2023) and CRCL (NeurIPS 2023)",
        needs=("pairs", "regions"),
        over="scorer",
        decides=DECIDES,
        sets={"vse_infty": {name: value for name, value in DUAL.items() if name not in ("loss", "epochs")}},
        small={"epochs": 14, "loss": "auto"},  # whatever the scorer prefers
    ),
]
