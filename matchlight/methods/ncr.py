"""NCR: two networks tell each other which pairs look clean, and give every pair a margin as wide as it is trusted.

Huang et al., NeurIPS 2021, "Learning with Noisy Correspondence for Cross-modal Matching". After a warm-up on all
negatives, every epoch begins with both networks measuring all pairs; a mixture on these losses splits the data, each
network trains on the *other's* split, and the labels of both halves are rectified by what the networks predict.

Departs from the paper: captions of one picture are no negatives of it (`siblings="negatives"` counts them); a batch's
labels are predicted just before its own step. From the code: a pair's label is its own (`label_mode=paper`; `matrix`
and `first` are what two releases computed), an empty half or a half of one pair is passed over, and q = 0 predicts 0.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from matchlight.core import BadInput, Batch, Ensemble, Matcher, Objective, Phase, Recipe, Scores, Sizes, Terms
from matchlight.files import write_npz
from matchlight.inputs.batches import fewest, plan
from matchlight.methods.sgraf import read_ncr
from matchlight.parts.objectives import INF, Contrast, contrast, hinge_all
from matchlight.training.division import gaussians, looks_clean
from matchlight.training.judging import over_rows, scored
from matchlight.training.recipes import Method, check_choices, lowered, method

MARGINS = ("exponential", "linear", "sin")
MODES = ("paper", "matrix", "first")

# ---- what a label is worth ------------------------------------------------------------------------------------------


def soft_margin(label: Tensor, *, margin: float, kind: str, base: float = 10.0) -> Tensor:
    """A margin from 0 (label 0) to `margin` (label 1); section 3.3 of the paper uses the exponential one, base 10."""
    if kind == "linear":
        return margin * label
    if kind == "sin":
        return margin * (torch.sin(torch.pi * label - torch.pi / 2) / 2 + 0.5)
    return margin * (base**label - 1) / (base - 1)


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

    def forward(self, scores: Scores, embeddings: dict[str, Any], batch: Batch) -> Terms:
        """One term a direction, (P,) each."""
        assert scores.matrix is not None
        return mean_costs(contrast(scores.matrix, batch, siblings=self.siblings), self.margin)


class SoftMargin(Objective):
    """The hardest negative against a margin that follows the pair's label: `batch.extra["label"]`, (P,) or (P, P)."""

    def __init__(self, *, margin: float, kind: str, siblings: str):
        super().__init__()
        self.margin = margin
        self.kind = kind
        self.siblings = siblings

    def forward(self, scores: Scores, embeddings: dict[str, Any], batch: Batch) -> Terms:
        """One term a direction, (P,) each; pairs without a label are trusted."""
        assert scores.matrix is not None
        c = contrast(scores.matrix, batch, siblings=self.siblings)
        label = batch.extra.get("label", torch.ones_like(c.own))
        margin = soft_margin(label.to(c.own.dtype), margin=self.margin, kind=self.kind)
        ways = {"i2t": margin, "t2i": margin.T} if margin.dim() == 2 else dict.fromkeys(("i2t", "t2i"), margin[:, None])
        return {name: _hardest(ways[name] - c.own[:, None] + s, ok) for name, (s, ok) in c.directions().items()}


def _hardest(cost: Tensor, ok: Tensor) -> Tensor:
    return cost.masked_fill(~ok, -INF).amax(1).relu()


# ---- co-teaching ----------------------------------------------------------------------------------------------------


class CoTeaching:
    """Warm-up, then in every epoch: divide, and train each network on its peer's division with rectified labels."""

    networks: tuple[str, ...] = ("A", "B")

    def __init__(self, *, warm: int, epochs: int, threshold: float, margin: float, siblings: str, label_mode: str):
        self.warm, self.epochs, self.threshold = warm, epochs, threshold
        self.margin, self.siblings, self.label_mode = margin, siblings, label_mode
        self.gentle = AllNegatives(margin=margin, siblings=siblings)
        self.divided = -1  # the epoch the present division was made for
        self.losses: dict[str, np.ndarray] = {}  # by network, by row of the whole table
        self.clean: dict[str, np.ndarray] = {}  # probability of being clean
        self.labels: dict[str, np.ndarray] = {}  # the last rectified label
        self._good: dict[str, np.ndarray] = {}  # by network, by row: what its peer calls clean

    def phases(self, run: Any, epoch: int) -> list[Phase]:
        """One phase a network: all rows at first, then clean batches and, in the second half, noisy ones between."""
        if epoch < self.warm:
            gentle = {name: run.networks[name].objective.ranked_by(self.gentle) for name in self.networks}
            return [Phase(run.rows, name, gentle[name], name="warm-up") for name in self.networks]
        if self.divided != epoch:
            self._divide(run, epoch)
        late = epoch - self.warm >= (self.epochs - self.warm) // 2
        return [self._phase(run, name, late=late) for name in self.networks]

    def _divide(self, run: Any, epoch: int) -> None:
        for k, name in enumerate(self.networks):

            def measure(matrix: Tensor, _: Any, batch: Batch) -> dict[str, Tensor]:
                costs = mean_costs(contrast(matrix, batch, siblings=self.siblings), self.margin)
                return {"loss": sum(costs.values())}  # type: ignore[dict-item]

            found = over_rows(run, run.networks[name].matcher, measure, draw=(epoch, k))["loss"]
            clean = np.full(len(found), np.nan)
            clean[run.rows] = gaussians(found[run.rows], seed=run.seed + epoch)
            self.losses[name], self.clean[name] = found, clean
            self.labels.setdefault(name, np.full(len(found), np.nan))
        self.divided, self._good = epoch, {}

    def peer(self, name: str) -> str:
        """The other network."""
        return self.networks[1 - self.networks.index(name)]

    def good(self, run: Any, name: str) -> np.ndarray:
        """By row, what the peer calls clean; a clean half too small to learn from becomes the better half."""
        if name not in self._good:
            w = self.clean[self.peer(name)][run.rows]
            chosen = looks_clean(w, threshold=self.threshold)
            chosen = chosen if chosen.sum() >= fewest() else w >= np.median(w)
            self._good[name] = np.zeros(len(run.pairs), dtype=bool)
            self._good[name][run.rows[chosen]] = True
        return self._good[name]

    def _phase(self, run: Any, name: str, *, late: bool) -> Phase:
        good = self.good(run, name)[run.rows]
        clean, noisy = run.rows[good], run.rows[~good]

        def order(rng: np.random.Generator) -> list[np.ndarray]:
            size, even = run.recipe.batch, run.table.pixels
            batches = plan(clean, size, rng, even=even)
            if not late or len(noisy) < fewest():
                return batches
            others: list[np.ndarray] = []
            while len(others) < len(batches):  # the noisy half begins again when it is used up
                others += plan(noisy, size, rng, even=even)
            return [part for pair in zip(batches, others, strict=False) for part in pair]

        return Phase(run.rows, name, order=order, name="co-teaching")

    # ---- co-rectify ----

    def rectify(self, run: Any, phase: Phase, batch: Batch) -> Batch:
        """Labels of the batch that is about to be trained on."""
        if phase.name == "warm-up":
            return batch
        own, peer = phase.network, self.peer(phase.network)
        mine = self._predict(run, own, batch)
        rows = batch.row.cpu().numpy()
        w = torch.from_numpy(self.clean[peer][rows]).to(mine)
        clean = self.good(run, own)[rows[0]]  # a batch is of one kind
        label = self._clean_label(w, mine) if clean else self._noisy_label(mine, self._predict(run, peer, batch))
        self.labels[own][rows] = (label if label.dim() == 1 else label.diagonal()).cpu().numpy()
        return batch.with_extra(label=label)

    def _clean_label(self, w: Tensor, mine: Tensor) -> Tensor:
        if self.label_mode == "matrix":
            return w[:, None] + (1 - w)[:, None] * mine[None]
        return w + (1 - w) * (mine[:1] if self.label_mode == "first" else mine)

    def _noisy_label(self, mine: Tensor, other: Tensor) -> Tensor:
        label = (mine + other) / 2
        return label if self.label_mode == "paper" else label[:, None].expand(-1, len(label))

    def _predict(self, run: Any, name: str, batch: Batch) -> Tensor:
        matcher = run.networks[name].matcher
        was = matcher.training
        matrix, _, whole = scored(run, matcher.eval(), batch)
        matcher.train(was)
        return predicted(contrast(matrix, whole, siblings=self.siblings), self.margin)

    # ---- what is handed over and kept ----

    def result(self, run: Any) -> Matcher:
        """Both networks, averaged."""
        return Ensemble([run.networks[name].judged for name in self.networks])

    def finish(self, run: Any) -> None:
        """Leave the last division beside the run: what an audit and the paper's figures read."""
        if self.divided >= 0 and run.chief:
            parts = {"loss": self.losses, "clean": self.clean, "label": self.labels}
            named = {f"{what}_{name}": value for what, by in parts.items() for name, value in by.items()}
            write_npz(run.folder / "division.npz", named)

    def state_dict(self) -> dict[str, Any]:
        """The division and the labels."""
        return {"divided": self.divided, "losses": self.losses, "clean": self.clean, "labels": self.labels}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take them back."""
        self.divided, self._good = state["divided"], {}
        self.losses, self.clean, self.labels = (dict(state[name]) for name in ("losses", "clean", "labels"))


# ---- the recipe -----------------------------------------------------------------------------------------------------


def scorer_below(sizes: Sizes, scorer: str, own: dict[str, Any], below: dict[str, Any]) -> Recipe:
    """The recipe of the scorer, told what the method above it has decided."""
    chosen = method(scorer)
    shared = {name: value for name, value in own.items() if name in chosen.defaults}
    recipe = chosen.build(sizes, **{**lowered(scorer, below), **shared})
    if recipe.strategy.networks != ("A",):
        raise BadInput(f"scorer={scorer}: it is two networks already; sgr, saf, scan or vse_infty is one")
    return recipe


def restarted(epoch: int, step: int, steps: int, *, rates: Any, warm: int) -> Any:
    """The warm-up at the first rate, then the scorer's schedule from its beginning."""
    return rates(max(0, epoch - warm), step, steps)


def recipe(
    sizes: Sizes,
    *,
    scorer: str = "sgr",
    label_mode: str = "paper",
    soft: str = "exponential",
    threshold: float = 0.5,
    margin: float = 0.2,
    warm: int = 5,
    epochs: int = 45,
    siblings: str = "masked",
    **below: Any,
) -> Recipe:
    """NCR on any scorer of one network; `warm` of the `epochs` (at most half) are warm-up."""
    check_choices(label_mode=(label_mode, MODES), soft=(soft, MARGINS))
    siblings = "negatives" if label_mode != "paper" else siblings  # their labels belong to square batches
    own = {"margin": margin, "epochs": epochs, "siblings": siblings}
    base = scorer_below(sizes, scorer, own, below)
    warm = min(warm, epochs // 2)
    teaching = CoTeaching(
        warm=warm, epochs=epochs, threshold=threshold, margin=margin, siblings=siblings, label_mode=label_mode
    )
    below_it = base.objective  # what it adds to its ranking (captioning, diversity) stays
    base.objective = lambda: below_it().ranked_by(SoftMargin(margin=margin, kind=soft, siblings=siblings))
    base.strategy, base.before_step, base.finish = teaching, teaching.rectify, teaching.finish
    if below.get("schedule") != "cycle":
        base.schedule = partial(restarted, rates=base.schedule, warm=warm)
    return base


METHODS = [
    Method(
        "ncr",
        recipe,
        paper="Learning with Noisy Correspondence for Cross-modal Matching (NeurIPS 2021)",
        needs=("pairs", "regions"),
        over="scorer",
        decides=("epochs", "margin", "siblings", "warm"),
        small={"epochs": 10, "warm": 3},
        presets={
            "f30k": {"epochs": 45, "warm": 5, "decay_every": 30},
            "coco": {"epochs": 30, "warm": 10, "decay_every": 10},
            "cc152k": {"epochs": 50, "warm": 10, "decay_every": 30},
        },
        reader=read_ncr,
    ),
]
