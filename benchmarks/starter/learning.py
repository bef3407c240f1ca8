"""The loss and the epochs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.starter.looking import Clock
from benchmarks.starter.stored import Stored
from benchmarks.starter.towers import Towers
from matchlight.core import Items


@dataclass(frozen=True)
class Plan:
    """How a tower learns."""

    epochs: int
    rate: float
    steps: int = 100  # an epoch
    batch: int = 256
    captions: int = 2  # of a picture in a batch
    decay: float = 0.01
    drop_words: float = 0.1
    late_rate: float = 0.1  # of blocks that were pretrained, a share of the rate
    temperature: float = 0.05
    distil: float = 0.0  # how much the teacher's vectors count beside the captions


@dataclass(frozen=True)
class Teacher:
    """Unit vectors of the training pictures and captions by a larger model."""

    images: Tensor
    texts: Tensor


def contrast(images: Tensor, texts: Tensor, owner: Tensor, temperature: float) -> Tensor:
    """InfoNCE both ways; the other captions of a picture are no negatives of it."""
    scores = images @ texts.T / temperature
    own = scores[owner, torch.arange(len(owner))]
    theirs = owner[None] == torch.arange(len(images))[:, None]
    others = scores.masked_fill(theirs, -torch.inf).logsumexp(1)
    return (scores.logsumexp(0) - own).mean() / 2 + (torch.logaddexp(others[owner], own) - own).mean() / 2


def batch_loss(
    net: Towers, stored: Stored, places: np.ndarray, plan: Plan, rng: np.random.Generator, teacher: Teacher | None
) -> Tensor:
    """Of some pictures with some captions of each."""
    rows = [rng.permutation(stored.captions[place])[: plan.captions] for place in places]
    owner = torch.from_numpy(np.repeat(np.arange(len(places)), [len(own) for own in rows]))
    said = np.concatenate(rows)
    with torch.autocast("cpu", torch.bfloat16):
        images = net.images(stored.pictures(places)).float()
        texts = caption_vectors(net, stored, said, plan) if teacher is None else teacher.texts[said]
    loss = contrast(images, texts.float(), owner, plan.temperature)
    if teacher is None:
        return loss
    return loss + plan.distil * (1 - (images * teacher.images[places]).sum(1)).mean()


def caption_vectors(net: Towers, stored: Stored, rows: np.ndarray, plan: Plan) -> Tensor:
    """Captions without some of their words; like lengths are read together, which spares padding."""
    order = np.argsort(stored.lengths[rows], kind="stable")
    found = []
    for span in np.array_split(rows[order], 4):
        items = stored.texts(span)
        assert items.mask is not None
        kept = (torch.rand(items.mask.shape) > plan.drop_words) & items.mask
        kept |= ~kept.any(1, keepdim=True) & items.mask
        found.append(net.texts(Items(items.x, kept, items.id, {"length": kept.sum(1)})))
    return torch.cat(found)[torch.from_numpy(np.argsort(order))]


def epochs(
    net: Towers,
    seen: Callable[[], Stored],
    plan: Plan,
    *,
    seed: int,
    path: Path,
    clock: Clock,
    teacher: Teacher | None = None,
) -> Iterator[int]:
    """Train, saving after every epoch; the weights that are measured and kept are a running mean.

    `seen` gives what was looked at by now: learning may begin while pictures are still looked at.
    """
    late = net.late()
    known = {id(p) for p in late}
    heads = [p for p in net.matcher.parameters() if p.requires_grad and id(p) not in known]
    groups = [{"params": heads, "lr": plan.rate}, {"params": late, "lr": plan.rate * plan.late_rate}]
    optimiser = torch.optim.AdamW(groups, weight_decay=plan.decay)
    steps = plan.steps
    rates = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, [plan.rate, plan.rate * plan.late_rate], total_steps=plan.epochs * steps + 1, pct_start=0.1
    )
    mean, done = {name: value.clone() for name, value in net.learnt().items()}, 0
    if path.exists():
        kept = torch.load(path, weights_only=True)
        net.matcher.load_state_dict(kept["now"], strict=False)
        optimiser.load_state_dict(kept["optimiser"])
        rates.load_state_dict(kept["rates"])
        mean, done = kept["mean"], kept["epoch"]
    for epoch in range(done, plan.epochs):
        clock.check()
        began, total, stored = time.monotonic(), 0.0, seen()
        rng = np.random.default_rng((seed, epoch))
        torch.manual_seed(seed * 1000 + epoch)
        net.train()
        rounds = -(-steps * plan.batch // len(stored))
        order = np.concatenate([rng.permutation(len(stored)) for _ in range(rounds)])
        for step in range(steps):
            places = order[step * plan.batch : (step + 1) * plan.batch]
            loss = batch_loss(net, stored, places, plan, rng, teacher)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(heads + late, 2.0)
            optimiser.step()
            rates.step()
            total += loss.item()
            count = epoch * steps + step + 1
            follow_mean(mean, net.learnt(), min(0.995, count / (count + 10)))
        state = {"now": net.learnt(), "mean": mean, "epoch": epoch + 1}
        state |= {"optimiser": optimiser.state_dict(), "rates": rates.state_dict()}
        torch.save(state, path.with_suffix(".tmp"))
        path.with_suffix(".tmp").replace(path)
        took = f"{len(stored):,} pictures, {time.monotonic() - began:.0f} s"
        print(f"epoch {epoch + 1}: loss {total / steps:.3f}, {took}", flush=True)
        yield epoch + 1
    net.matcher.load_state_dict(mean, strict=False)


@torch.no_grad()
def follow_mean(mean: dict[str, Tensor], now: dict[str, Tensor], share: float) -> None:
    """The mean moves towards what the weights are now."""
    for name, value in mean.items():
        value.lerp_(now[name], 1 - share) if value.is_floating_point() else value.copy_(now[name])
