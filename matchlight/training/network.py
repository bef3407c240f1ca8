"""One network in training: a matcher, its objective, its optimiser, and the averaged copy of its weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from matchlight import devices
from matchlight.core import IMAGE, TEXT, Batch, Embedding, Embeddings, Group, Items, Matcher, Objective, Rates, Scores
from matchlight.inputs.batches import Table
from matchlight.inputs.compiled import compile_training
from matchlight.scoring.all_pairs import trim
from matchlight.training import checkpoints
from matchlight.training.graphed import GraphedSteps, Graphs, Key
from matchlight.training.optimisers import AdamP

OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "rmsprop": torch.optim.RMSprop,
    "amsgrad": partial(torch.optim.Adam, amsgrad=True),
    "adamp": AdamP,
}
UNFUSED = ("rmsprop", "adamp")  # torch has no fused kernels for these
RECORDED = ("adam", "adamw", "amsgrad")  # whose fused kernels read the rate on the device


Begin = Callable[[Matcher, Table, np.ndarray, int], None]  # (matcher, table, training rows, seed)


@dataclass(kw_only=True)
class NetworkPlan:
    """How a network is built and stepped; matcher and objective are functions, so that each gets fresh weights."""

    matcher: Callable[[], Matcher]
    objective: Callable[[], Objective]
    groups: Callable[[Matcher, Objective], list[Group]]
    optimiser: str = "adam"  # a name in OPTIMISERS
    betas: tuple[float, float] = (0.9, 0.999)
    clip: float = 2.0  # 0 = no clipping
    ema: float = 0.0  # decay of the averaged copy of the weights; 0 = none
    matchers: dict[str, Callable[[], Matcher]] = field(default_factory=dict)  # by network, where networks differ
    handed_over: Callable[[Matcher], Matcher] | None = None  # what is evaluated and kept of a matcher; None: itself
    begin: Begin | None = None  # weights that are found in the training rows before the first step

    def build(self, network: str) -> Matcher:
        """A fresh matcher for the network of that name."""
        return self.matchers.get(network, self.matcher)()


class Network:
    """Built fresh from a plan under a seed; two co-taught networks are two of these."""

    def __init__(self, plan: NetworkPlan, *, seed: int, device: torch.device, name: str = "A", compiled: bool = False):
        devices.seed(seed)
        self.plan = plan
        self.device = device
        self.matcher: Matcher = plan.build(name).to(device)
        self.objective: Objective = plan.objective().to(device)
        self.optimiser = self._optimiser(plan.groups(self.matcher, self.objective))
        self.average: Matcher | None = copy.deepcopy(self.matcher).requires_grad_(False) if plan.ema else None
        self.steps = 0
        self.graphed: GraphedSteps | None = None  # None: every step is launched kernel by kernel
        if compiled:
            compile_training(self.matcher)

    def begin(self, table: Table, rows: np.ndarray, seed: int) -> None:
        """Before the first step: what the plan finds in the data rather than by steps."""
        if self.plan.begin is not None:
            self.plan.begin(self.matcher, table, rows, seed)
            if self.average is not None:
                self.average.load_state_dict(self.matcher.state_dict())

    def _optimiser(self, groups: list[Group]) -> torch.optim.Optimizer:
        with_base = [{**group, "base": group["lr"]} for group in groups]
        options: dict[str, Any] = {"betas": self.plan.betas} if "adam" in self.plan.optimiser else {}
        if self.device.type == "cuda" and self.plan.optimiser not in UNFUSED:
            options["fused"] = True
        return OPTIMISERS[self.plan.optimiser](with_base, lr=groups[0]["lr"], **options)

    def set_rates(self, factor: Rates) -> None:
        """Scale every group's rate; a factor of 0 freezes the group, so that its gradients are not even computed."""
        for group in self.optimiser.param_groups:
            scale = factor.get(group["name"], 1.0) if isinstance(factor, dict) else factor
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(group["base"] * scale)
            else:
                group["lr"] = group["base"] * scale
            if group.get("frozen") != (scale == 0.0):
                group["frozen"] = scale == 0.0
                for p in group["params"]:
                    p.requires_grad_(scale != 0.0)
                    p.grad = None

    def parameters(self) -> list[nn.Parameter]:
        """Everything the optimiser moves."""
        return [p for group in self.optimiser.param_groups for p in group["params"]]

    def step(self, loss: Tensor) -> None:
        """One update, and what follows it."""
        self.update(loss)
        self.follow()

    def update(self, loss: Tensor) -> None:
        """Gradients of all processes, clipped and applied: all of it on the device."""
        self.optimiser.zero_grad(set_to_none=True)
        (loss / devices.world()).backward()
        parameters = self.parameters()
        devices.share_gradients(parameters)
        if self.plan.clip:
            nn.utils.clip_grad_norm_([p for p in parameters if p.grad is not None], self.plan.clip)
        self.optimiser.step()

    @torch.no_grad()
    def follow(self) -> None:
        """After an update: it is counted, and the averaged copy moves towards the weights."""
        self.steps += 1
        if self.average is None:
            return
        decay = min(self.plan.ema, (1 + self.steps) / (10 + self.steps))  # early averages forget the random start
        for slow, fast in zip(self.average.state_dict().values(), self.matcher.state_dict().values(), strict=True):
            if slow.dtype.is_floating_point:
                slow.lerp_(fast, 1 - decay)
            else:
                slow.copy_(fast)

    # ---- steps as graphs ----

    def keep_steps(self, graphs: Graphs) -> None:
        """Steps are recorded from here on; a graph reads rates and the number of steps on the device."""
        self.graphed = GraphedSteps(graphs)
        for group in self.optimiser.param_groups:
            group["lr"] = torch.as_tensor(group["lr"], dtype=torch.float32).to(self.device, copy=True)

    @property
    def key(self) -> Key:
        """What of this network a recorded step depends on beside its batch."""
        return tuple(group.get("frozen", False) for group in self.optimiser.param_groups)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """While a step is recorded: gradients live in the graph alone, and the optimiser agrees to be recorded."""
        groups, asked = self.optimiser.param_groups, [p for p in self.parameters() if p.requires_grad]
        before = [group.get("capturable") for group in groups]
        for p in asked:
            p.grad = None
        try:
            for group in groups:
                group["capturable"] = self.device.type == "cuda"
            yield
        finally:
            for group, was in zip(groups, before, strict=True):
                group["capturable"] = was
            for p in asked:
                p.grad = None

    @property
    def evaluated(self) -> Matcher:
        """What is evaluated: the averaged copy where there is one, as the plan hands it over."""
        made = self.matcher if self.average is None else self.average
        return made if self.plan.handed_over is None else self.plan.handed_over(made)

    def state_dict(self) -> checkpoints.State:
        """All that a resumed run needs."""
        average = None if self.average is None else self.average.state_dict()
        return {
            "matcher": self.matcher.state_dict(),
            "objective": self.objective.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "average": average,
            "steps": self.steps,
        }

    def load_state_dict(self, state: checkpoints.State) -> None:
        """Take it back, exactly."""
        self.matcher.load_state_dict(state["matcher"])
        self.objective.load_state_dict(state["objective"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.steps = state["steps"]
        if self.graphed is not None:  # graphs hold the places of the state that was
            self.keep_steps(self.graphed.graphs)
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        for group in self.optimiser.param_groups:
            for p in group["params"]:
                p.requires_grad_(not group.get("frozen", False))


OBJECTIVE = "objective.safetensors"  # what a loss learnt (a caption decoder, class centres), beside the model


def objectives_of(networks: dict[str, Network]) -> dict[str, Tensor]:
    """Everything that the losses of these networks learnt, by network and name."""
    learnt = {name: one.objective.state_dict() for name, one in networks.items()}
    return {f"{name}/{key}": value for name, state in learnt.items() for key, value in state.items()}


def objective_weights(folder: Path) -> dict[str, dict[str, Tensor]]:
    """What a run's losses learnt, by network; {} where they learn nothing."""
    out: dict[str, dict[str, Tensor]] = {}
    kept = checkpoints.load_weights(folder / OBJECTIVE) if (folder / OBJECTIVE).is_file() else {}
    for key, value in kept.items():
        network, _, name = key.partition("/")
        out.setdefault(network, {})[name] = value
    return out


def begin_with(objective: Objective, learnt: dict[str, Tensor]) -> None:
    """Start from what another loss learnt, as far as it fits this one."""
    own = objective.state_dict()
    fits = {name: value for name, value in learnt.items() if name in own and own[name].shape == value.shape}
    objective.load_state_dict(own | fits)


def whole_batch(matcher: Matcher, batch: Batch) -> tuple[dict[str, Embeddings], Batch]:
    """Embed this process's share and gather everybody's: embeddings with gradients, ids and labels without."""
    local = {side: matcher.embed(side, items) for side, items in batch.sides.items()}
    embeddings = {side: devices.gather_embeddings(local[side]) for side in (IMAGE, TEXT) if side in local}
    sides = {side: devices.gather_items(items) for side, items in batch.sides.items()}
    return embeddings, Batch(sides, batch.links, batch.row, batch.extra, batch.core)


def score_batch(matcher: Matcher, embeddings: dict[str, Embeddings], batch: Batch, *, matrix: bool) -> Scores:
    """The matrix of the batch's own items (each process scores its share of the pictures) and every further link."""
    images, texts = embeddings[IMAGE], embeddings[TEXT]
    links = score_links(matcher, images, texts, {k: link for k, link in batch.links.items() if k != "positive"})
    if not matrix:
        return Scores(None, links)
    own_i, own_t = batch.core or (len(images), len(texts))
    mine = devices.shard(own_i)
    own = texts.take(slice(0, own_t))
    if own_t < len(texts) and not matcher.depends_on_padding:
        own = _shortened(own, batch.sides[TEXT])
    rows = matcher.score(images.take(slice(0, own_i)).take(mine), own).float()
    sizes = [own_i // devices.world() + (r < own_i % devices.world()) for r in range(devices.world())]
    return Scores(devices.gather(rows, sizes), links)


def _shortened(own: Embeddings, items: Items) -> Embeddings:
    """A batch's own captions, where they are one vector a word, no wider than they need: companions may be longer."""
    if isinstance(own, Embedding) and "length" in items.extra and own.vectors.shape[1] == items.x.shape[1]:
        return trim(own, int(items.extra["length"][: len(own)].max()))
    return own


def score_links(matcher: Matcher, images: Embeddings, texts: Embeddings, links: dict[str, Tensor]) -> dict[str, Tensor]:
    """Pair by pair, never as a matrix; all links in one call, since many small ones would keep a GPU waiting."""
    if not links:
        return {}
    link = torch.cat(list(links.values()))
    scores = matcher.score_pairs(images.take(link[:, 0]), texts.take(link[:, 1])).float()
    return dict(zip(links, scores.split([len(part) for part in links.values()]), strict=True))
