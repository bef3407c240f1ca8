"""NCR: two networks tell each other which pairs look clean, and give every pair a margin as wide as it is trusted.

Huang et al., NeurIPS 2021, "Learning with Noisy Correspondence for Cross-modal Matching". After a warm-up on all
negatives, every epoch begins with both networks measuring all pairs; a mixture on these losses splits the data, each
network trains on the *other's* split, and the labels of both halves are rectified by what the networks predict.

Departs from the paper: captions of one picture are no negatives of it (`siblings="negatives"` counts them); a batch's
labels are predicted just before its own step. From the code: a pair's label is its own (`label_mode=paper`; `matrix`
and `first` are what two releases computed), an empty half or a half of one pair is passed over, and q = 0 predicts 0.
In neither: `harden`, epochs from all negatives to the hardest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from matchlight.core import (
    BadInput,
    Batch,
    Embedding,
    Embeddings,
    Ensemble,
    Matcher,
    Objective,
    Rates,
    Schedule,
    Scores,
    Sizes,
    Terms,
)
from matchlight.files import write_npz
from matchlight.inputs.batches import fewest
from matchlight.methods.sgraf import SGR, read_ncr
from matchlight.methods.vse import VSEInfinity
from matchlight.parts.objectives import Contrast, contrast, hardest_cost, hinge_all
from matchlight.training.arguments import Arguments, BuiltOn, Count, Hardening, NonNegative, Portion, Whole, with_known
from matchlight.training.checkpoints import State
from matchlight.training.contract import Phase, Recipe, Siblings, Strategy, TrainingRun
from matchlight.training.division import clean_probability, looks_clean
from matchlight.training.pair_losses import over_rows, scored
from matchlight.training.registry import Method, name_of
from matchlight.training.strategies import hardness

FIRST, LAST = "division-first.npz", "division.npz"  # right after the warm-up, and at the end of a run

# ---- what a label is worth ------------------------------------------------------------------------------------------


def soft_margin(trust: Tensor, *, margin: float, kind: str, base: float = 10.0) -> Tensor:
    """A margin from 0 (trust 0) to `margin` (trust 1); section 3.3 of the paper uses the exponential one, base 10."""
    if kind == "linear":
        return margin * trust
    if kind == "sin":
        return margin * (torch.sin(torch.pi * trust - torch.pi / 2) / 2 + 0.5)
    return margin * (base**trust - 1) / (base - 1)


def mean_costs(c: Contrast, margin: float) -> Terms:
    """Per pair, its hinge costs over all negatives divided by the size of the batch, both ways."""
    wide = {name: score.shape[1] for name, (score, _) in c.directions().items()}
    return {name: cost / wide[name] for name, cost in hinge_all(c, margin).items()}


def predicted(c: Contrast, margin: float) -> Tensor:
    """(P,) how well each pair fits, from 0 to 1: what its hinge costs leave of the margin, the best tenth being 1."""
    cost = torch.stack(list(mean_costs(c, margin).values())).sum(0)
    left = (margin - cost / 2).clamp(0, margin)
    best = left.topk(len(left) // 10 + 1).values.mean()
    return torch.where(best > 0, left / best.clamp(min=1e-12), torch.zeros_like(left)).clamp(0, 1)


class AllNegatives(Objective):
    """The warm-up: hinge costs averaged over all negatives, none harder than the others."""

    def __init__(self, *, margin: float, siblings: str):
        super().__init__()
        self.margin = margin
        self.siblings = siblings

    def forward(self, scores: Scores, embeddings: dict[str, Embedding], batch: Batch) -> Terms:
        """One term a direction, (P,) each."""
        assert scores.matrix is not None
        return mean_costs(contrast(scores.matrix, batch, siblings=self.siblings), self.margin)


class SoftMargin(Objective):
    """The hardest negative against a margin that follows the pair's label: `batch.extra["trust"]`, (P,) or (P, P).

    Where a batch has `extra["hardness"]`, it counts by that share and the mean of all negatives by the rest.
    """

    def __init__(self, *, margin: float, kind: str, siblings: str):
        super().__init__()
        self.margin = margin
        self.kind = kind
        self.siblings = siblings

    def forward(self, scores: Scores, embeddings: dict[str, Embedding], batch: Batch) -> Terms:
        """One term a direction, (P,) each; pairs without a label are trusted."""
        assert scores.matrix is not None
        c = contrast(scores.matrix, batch, siblings=self.siblings)
        trust = batch.extra.get("trust", torch.ones_like(c.own))
        margin = soft_margin(trust.to(c.own.dtype), margin=self.margin, kind=self.kind)
        ways = {"i2t": margin, "t2i": margin.T} if margin.dim() == 2 else dict.fromkeys(("i2t", "t2i"), margin[:, None])
        costs = {name: (ways[name] - c.own[:, None] + s, ok) for name, (s, ok) in c.directions().items()}
        return {name: hardest_cost(cost, ok, batch.extra.get("hardness")) for name, (cost, ok) in costs.items()}


# ---- co-teaching ----------------------------------------------------------------------------------------------------


class CoTeaching(Strategy):
    """Warm-up, then in every epoch: divide, and train each network on its peer's division with rectified trust."""

    networks: tuple[str, ...] = ("A", "B")

    def __init__(self, arguments: NCR, *, warm: int, siblings: str):
        self.warm, self.epochs, self.threshold = warm, arguments.epochs, arguments.threshold
        self.harden = arguments.harden
        self.margin, self.siblings, self.label_mode = arguments.margin, siblings, arguments.label_mode
        self.gentle = AllNegatives(margin=self.margin, siblings=siblings)
        self.divided = -1  # the epoch the present division was made for
        self.losses: dict[str, np.ndarray] = {}  # by network, by row of the whole table
        self.clean: dict[str, np.ndarray] = {}  # probability of being clean
        self.trust: dict[str, np.ndarray] = {}  # the last rectified trust, which the paper calls a label
        self._good: dict[str, np.ndarray] = {}  # by network, by row: what its peer calls clean

    def phases(self, run: TrainingRun, epoch: int) -> list[Phase]:
        """One phase a network: all rows at first, then clean batches and, in the second half, noisy ones between."""
        if epoch < self.warm:
            gentle = {name: run.networks[name].objective.ranked_by(self.gentle) for name in self.networks}
            return [Phase(run.rows, name, gentle[name], name="warm-up") for name in self.networks]
        if self.divided != epoch:
            self._divide(run, epoch)
        late = epoch - self.warm >= (self.epochs - self.warm) // 2
        harder = hardness(epoch, warm=self.warm, harden=self.harden)
        return [replace(self._phase(run, name, late=late), hardness=harder) for name in self.networks]

    def _divide(self, run: TrainingRun, epoch: int) -> None:
        for k, name in enumerate(self.networks):

            def measure(matrix: Tensor, _: dict[str, Embeddings], batch: Batch) -> dict[str, Tensor]:
                costs = mean_costs(contrast(matrix, batch, siblings=self.siblings), self.margin)
                return {"loss": sum(costs.values())}  # type: ignore[dict-item]

            losses = over_rows(run, run.networks[name].matcher, measure, draw=(epoch, k))["loss"]
            clean = np.full(len(losses), np.nan)
            clean[run.rows] = clean_probability(losses[run.rows], seed=run.seed + epoch)
            self.losses[name], self.clean[name] = losses, clean
            self.trust.setdefault(name, np.full(len(losses), np.nan))
        if self.divided < 0:
            self._write(run, FIRST, epoch)
        self.divided, self._good = epoch, {}

    def _write(self, run: TrainingRun, file: str, epoch: int) -> None:
        """Leave a division beside the run, with the epoch it was made for: the mixture's seed follows from it."""
        if run.chief:
            parts = {"loss": self.losses, "clean": self.clean, "label": self.trust}
            named = {f"{what}_{name}": value for what, by in parts.items() for name, value in by.items()}
            write_npz(run.folder / file, named | {"epoch": np.array(epoch)})

    def peer(self, name: str) -> str:
        """The other network."""
        return self.networks[1 - self.networks.index(name)]

    def good(self, run: TrainingRun, name: str) -> np.ndarray:
        """By row, what the peer calls clean; a clean half too small to learn from becomes the better half."""
        if name not in self._good:
            w = self.clean[self.peer(name)][run.rows]
            chosen = looks_clean(w, threshold=self.threshold)
            chosen = chosen if chosen.sum() >= fewest() else w >= np.median(w)
            self._good[name] = np.zeros(len(run.pairs), dtype=bool)
            self._good[name][run.rows[chosen]] = True
        return self._good[name]

    def _phase(self, run: TrainingRun, name: str, *, late: bool) -> Phase:
        good = self.good(run, name)[run.rows]
        clean, noisy = run.rows[good], run.rows[~good]

        def order(rng: np.random.Generator) -> list[np.ndarray]:
            batches = run.table.plan(clean, run.recipe.batch, rng)
            if not late or len(noisy) < fewest():
                return batches
            others: list[np.ndarray] = []
            while len(others) < len(batches):  # the noisy half begins again when it is used up
                others += run.table.plan(noisy, run.recipe.batch, rng)
            return [part for pair in zip(batches, others, strict=False) for part in pair]

        return Phase(run.rows, name, order=order, name="co-teaching")

    # ---- co-rectify ----

    def before_step(self, run: TrainingRun, phase: Phase, batch: Batch) -> Batch:
        """Trust weights of the pairs that are about to be trained on."""
        if phase.name == "warm-up":
            return batch
        own, peer = phase.network, self.peer(phase.network)
        mine = self._predict(run, own, batch)
        rows = batch.row.cpu().numpy()
        w = torch.from_numpy(self.clean[peer][rows]).to(mine)
        clean = self.good(run, own)[rows[0]]  # a batch is of one kind
        trust = self._clean_trust(w, mine) if clean else self._noisy_trust(mine, self._predict(run, peer, batch))
        self.trust[own][rows] = (trust if trust.dim() == 1 else trust.diagonal()).cpu().numpy()
        return batch.with_extra(trust=trust)

    def _clean_trust(self, w: Tensor, mine: Tensor) -> Tensor:
        if self.label_mode == "matrix":
            return w[:, None] + (1 - w)[:, None] * mine[None]
        return w + (1 - w) * (mine[:1] if self.label_mode == "first" else mine)

    def _noisy_trust(self, mine: Tensor, other: Tensor) -> Tensor:
        trust = (mine + other) / 2
        return trust if self.label_mode == "paper" else trust[:, None].expand(-1, len(trust))

    def _predict(self, run: TrainingRun, name: str, batch: Batch) -> Tensor:
        matcher = run.networks[name].matcher
        was = matcher.training
        matrix, _, whole = scored(run, matcher.eval(), batch)
        matcher.train(was)
        return predicted(contrast(matrix, whole, siblings=self.siblings), self.margin)

    # ---- what is handed over and kept ----

    def assemble(self, networks: Mapping[str, Matcher]) -> Matcher:
        """Both networks, averaged."""
        return Ensemble([networks[name] for name in self.networks])

    def finish(self, run: TrainingRun) -> None:
        """Leave the last division beside the run, which an audit and the paper's figures read.

        A run that ends at its warm-up is divided here, just as the epoch after it would have been.
        """
        if self.divided < 0 and self.warm:
            self._divide(run, self.warm)
        if self.divided >= 0:
            self._write(run, LAST, self.divided)

    def state_dict(self) -> State:
        """The division and the trust weights."""
        return {"divided": self.divided, "losses": self.losses, "clean": self.clean, "labels": self.trust}

    def load_state_dict(self, state: State) -> None:
        """Take them back."""
        self.divided, self._good = state["divided"], {}
        self.losses, self.clean, self.trust = (dict(state[name]) for name in ("losses", "clean", "labels"))


# ---- the recipe -----------------------------------------------------------------------------------------------------


def one_network(scorer: Arguments, sizes: Sizes) -> Recipe:
    """The recipe of a scorer that two networks are made of, whose own hinge is put away."""
    if isinstance(scorer, Hardening) and scorer.harden:
        alone = name_of(scorer)
        raise BadInput(f"harden={scorer.harden}: only ncr, or {alone} alone, has a hardest negative; here harden=0")
    recipe = scorer.recipe(sizes)
    if recipe.strategy.networks != ("A",):
        raise BadInput(f"scorer={name_of(scorer)}: it is two networks already; sgr, saf, scan or vse_infty is one")
    return recipe


def restarted(epoch: int, step: int, steps: int, *, rates: Schedule, warm: int) -> Rates:
    """The warm-up at the first rate, then the scorer's schedule from its beginning."""
    return rates(max(0, epoch - warm), step, steps)


@dataclass(frozen=True, kw_only=True)
class NCR(BuiltOn):
    """NCR on any scorer of one network; `warm` of the `epochs` (at most half) are warm-up.

    Over the `harden` epochs after it, each pair's cost comes from the mean over its negatives to that of the hardest.
    A run `until="warm-up"` ends there, once its pairs are divided: all that the paper's figure of losses needs.
    """

    base_field: ClassVar[str] = "scorer"
    shared: ClassVar[frozenset[str]] = frozenset({"epochs", "harden", "margin", "siblings", "warm"})

    scorer: Arguments = field(default_factory=SGR)
    label_mode: Literal["paper", "matrix", "first"] = "paper"
    soft: Literal["exponential", "linear", "sin"] = "exponential"
    threshold: Portion = 0.5
    margin: NonNegative = 0.2
    warm: Whole = 5
    harden: Whole = 0
    epochs: Count = 45
    until: Literal["end", "warm-up"] = "end"
    siblings: Siblings = "masked"

    def base_arguments(self) -> Arguments:
        """The scorer's."""
        return self.scorer

    def recipe(self, sizes: Sizes) -> Recipe:
        """The scorer's recipe, with two networks, soft margins and co-teaching."""
        siblings = "negatives" if self.label_mode != "paper" else self.siblings  # their labels need square batches
        scorer = with_known(self.scorer, margin=self.margin, epochs=self.epochs, siblings=siblings, harden=0)
        base = one_network(scorer, sizes)
        warm = min(self.warm, self.epochs // 2)
        if self.until == "warm-up" and not warm:
            raise BadInput(
                f"until=warm-up: a run of epochs={self.epochs} warm={self.warm} has no warm-up; give it some"
            )
        loss = SoftMargin(margin=self.margin, kind=self.soft, siblings=siblings)
        cycle = isinstance(scorer, VSEInfinity) and scorer.schedule == "cycle"
        return replace(
            base,
            objective=lambda: base.objective().ranked_by(loss),  # captioning or diversity beside the ranking stays
            strategy=CoTeaching(self, warm=warm, siblings=siblings),
            epochs=warm if self.until == "warm-up" else base.epochs,
            schedule=base.schedule if cycle else partial(restarted, rates=base.schedule, warm=warm),
        )


METHODS = [
    Method(
        "ncr",
        NCR,
        paper="Learning with Noisy Correspondence for Cross-modal Matching (NeurIPS 2021)",
        needs=("pairs", "regions"),
        small={"epochs": 10, "warm": 3},
        presets={
            "f30k": {"epochs": 45, "warm": 5, "decay_every": 30},
            "coco": {"epochs": 30, "warm": 10, "decay_every": 10},
            "cc152k": {"epochs": 50, "warm": 10, "decay_every": 30},
        },
        reader=read_ncr,
    ),
]
