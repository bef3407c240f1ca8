"""How the starters are made: heads over stored DINOv2 cells and MiniLM states, then lite0 taught by them.

    python -m benchmarks.starter WORK look --data FLICKR8K --data COCO           # once: DINOv2's cells
    python -m benchmarks.starter WORK look-small --data FLICKR8K --data COCO     # once: lite0 up to its last blocks
    python -m benchmarks.starter WORK read --data FLICKR8K --data COCO           # once: MiniLM's states
    python -m benchmarks.starter WORK heads --data FLICKR8K --data COCO          # `starter`
    python -m benchmarks.starter WORK small --data FLICKR8K --data COCO          # `starter-small`
    python -m benchmarks.starter WORK ship --data FLICKR8K --data COCO           # into matchlight/runs/shipped

Every step goes on where it was stopped: the first three keep what they finish in parts of 2,000 pictures, `heads` and
`small` save after every epoch. `--minutes` stops a step in good time (exit 75: call it again). `--train NAME` learns
from one of the data sets alone. One thread is used for learning, so that two seeds can run side by side. On two quiet
cores `look` takes about 25 ms a picture where the CPU multiplies in bfloat16, `read` 1.5 minutes for 150,000 captions,
and an epoch of `heads` half a minute for 16,000 pictures.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchlight.console import VERSION
from matchlight.core import IMAGE, TEXT, Items, Matcher, Sizes
from matchlight.files import write_json
from matchlight.inputs.backbones import TokenChoice, backbone
from matchlight.inputs.features import extract, pixels
from matchlight.inputs.prepare import View
from matchlight.inputs.sentence_encoders import sentence_encoder
from matchlight.inputs.text import pad
from matchlight.methods.vse import VSEInfinity
from matchlight.pairs import Pairs
from matchlight.parts.canonical_correlation import fit_canonical_correlation
from matchlight.parts.canonical_start import set_directions
from matchlight.runs.starters import SHIPPED
from matchlight.training.checkpoints import save_weights

PART = 2000  # pictures that are looked at or read before something is kept
SIZE, CELLS, SMALL_SIZE = 224, 8, 160
TRUNK = 11  # blocks of lite0 that stay as they came; their map (112 channels, a cell for 16 pixels) is stored
AGAIN = 75


@dataclass(frozen=True)
class Part:
    """Some pictures of one split with all their captions."""

    name: str
    pairs: Pairs

    @property
    def split(self) -> str:
        return self.name.split("-")[1] if self.name.split("-")[1] in ("val", "test") else "train"


def parts_of(name: str, path: Path) -> list[Part]:
    """Validation and test first, then the training pictures in a shuffled order."""
    pairs = Pairs.read(path)
    mixed = np.random.default_rng(7).permutation(pairs.pictures_of("train"))
    chosen = {f"{name}-{split}": pairs.pictures_of(split) for split in ("val", "test")}
    chosen |= {f"{name}-{k}": np.sort(mixed[k * PART : (k + 1) * PART]) for k in range(-(-len(mixed) // PART))}
    return [
        Part(tag, pairs.select(places, np.flatnonzero(np.isin(pairs.picture, places))))
        for tag, places in chosen.items()
    ]


class Clock:
    """Ends the process in good time; what is kept by then is gone on with."""

    def __init__(self, minutes: float):
        self.end = time.monotonic() + 60 * minutes

    def check(self) -> None:
        if time.monotonic() > self.end:
            print("time is up: call it again to go on", flush=True)
            sys.exit(AGAIN)


# ---- once: what frozen networks see and read -------------------------------------------------------------------------


def save(path: Path, array: np.ndarray) -> None:
    draft = path.with_suffix(".tmp.npy")
    np.save(draft, array)
    draft.replace(path)


def look(work: Path, parts: list[Part], clock: Clock) -> None:
    """DINOv2's class token and 8 x 8 cells, and lite0's map after its first blocks."""
    network = backbone("dinov2-small", choice=TokenChoice("both", (CELLS, CELLS)))
    network.runtime = "torch-bf16"
    for part in parts:
        path = work / f"{part.name}.cells.npy"
        if not path.exists():
            clock.check()
            save(path, extract(part.pairs, backbone=network, size=SIZE, batch=16).array)
            print(path.name, flush=True)


def look_small(work: Path, parts: list[Part], clock: Clock) -> None:
    """lite0's map after its first blocks, of the picture and of its mirror image."""
    lite = backbone("lite0").for_inference()

    @torch.inference_mode()
    def seen(rows: np.ndarray) -> np.ndarray:
        x = lite.normalise(torch.from_numpy(rows)).contiguous(memory_format=torch.channels_last)
        x = F.relu6(lite.network.stem(x))  # type: ignore[union-attr, operator]
        for block in lite.network.blocks[:TRUNK]:  # type: ignore[union-attr, index]
            x = block(x)
        return x.half().numpy()

    for part in parts:
        path = work / f"{part.name}.trunk.npy"
        if not path.exists():
            clock.check()
            photos = pixels(part.pairs, SMALL_SIZE).array
            spans = [photos[start : start + 8] for start in range(0, len(photos), 8)]
            with ThreadPoolExecutor(2, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                save(path, np.concatenate(list(pool.map(seen, spans))))
            print(path.name, flush=True)


def read(work: Path, parts: list[Part], clock: Clock) -> None:
    """MiniLM's state of every word piece of every caption, one after the other, and where each caption begins."""
    encoder = sentence_encoder("minilm", frozen=True)
    network = encoder.bert.to(torch.bfloat16)  # type: ignore[operator]

    @torch.inference_mode()
    def states(ids: list[list[int]]) -> np.ndarray:
        padded, mask, _ = pad(ids)
        return network(torch.from_numpy(padded), torch.from_numpy(mask)).float().half().numpy()

    for part in parts:
        path = work / f"{part.name}.words.npy"
        if path.exists():
            continue
        clock.check()
        ids = encoder.token_ids(part.pairs.captions)
        lengths = np.array([len(one) for one in ids])
        begins, order = np.concatenate([[0], np.cumsum(lengths)]), np.argsort(lengths, kind="stable")
        spans = [order[start : start + 64] for start in range(0, len(order), 64)]
        flat = np.zeros((begins[-1], encoder.dim), np.float16)
        with ThreadPoolExecutor(2, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            batches = [[ids[row] for row in rows] for rows in spans]
            for rows, found in zip(spans, pool.map(states, batches), strict=True):
                for row, own in zip(rows, found, strict=True):
                    flat[begins[row] : begins[row + 1]] = own[: lengths[row]]
        save(work / f"{part.name}.begins.npy", begins)
        save(path, flat)
        print(path.name, flush=True)


# ---- what is stored, as batches --------------------------------------------------------------------------------------


class Stored:
    """Parts of one split that were looked at and read, as one table of pictures and captions."""

    def __init__(self, work: Path, parts: list[Part], kind: str):
        there = [one for one in parts if (work / f"{one.name}.{kind}.npy").exists()]
        self.names = [one.name for one in there if (work / f"{one.name}.words.npy").exists()]
        there = [one for one in there if one.name in self.names]
        self.views = [np.load(work / f"{name}.{kind}.npy", mmap_mode="r") for name in self.names]
        self.words = [np.load(work / f"{name}.words.npy", mmap_mode="r") for name in self.names]
        self.begins = [np.load(work / f"{name}.begins.npy") for name in self.names]
        self.first = np.cumsum([0, *(len(view) for view in self.views)])
        rows = [(part, place) for part, one in enumerate(there) for place in range(len(one.pairs))]
        self.row = np.array(rows, dtype=np.int64).reshape(-1, 2)
        owners = [self.first[part] + one.pairs.picture for part, one in enumerate(there)]
        self.owner = np.concatenate(owners) if owners else np.zeros(0, np.int64)
        order = np.argsort(self.owner, kind="stable")
        self.captions = np.split(order, np.searchsorted(self.owner[order], np.arange(1, len(self))))

    def __len__(self) -> int:
        return int(self.first[-1])

    def pictures(self, places: np.ndarray) -> Tensor:
        part = np.searchsorted(self.first, places, side="right") - 1
        found = [self.views[p][place - self.first[p]] for p, place in zip(part, places, strict=True)]
        return torch.from_numpy(np.stack(found)).float()

    def texts(self, rows: np.ndarray) -> Items:
        spans = [(p, *self.begins[p][place : place + 2]) for p, place in self.row[rows]]
        lengths = torch.tensor([stop - start for _, start, stop in spans])
        x = np.zeros((len(rows), int(lengths.max()), self.words[0].shape[1]), np.float32)
        for k, (p, start, stop) in enumerate(spans):
            x[k, : stop - start] = self.words[p][start:stop]
        mask = torch.arange(x.shape[1])[None] < lengths[:, None]
        return Items(torch.from_numpy(x), mask, torch.from_numpy(np.asarray(rows)), {"length": lengths})


def coarser(cells: Tensor, grid: int) -> Tensor:
    """The class token and `grid` x `grid` means of the stored cells."""
    if grid == CELLS:
        return cells
    map_ = cells[:, 1:].unflatten(1, (CELLS, CELLS)).permute(0, 3, 1, 2)
    return torch.cat([cells[:, :1], F.adaptive_avg_pool2d(map_, grid).flatten(2).transpose(1, 2)], 1)


# ---- towers ----------------------------------------------------------------------------------------------------------


class Towers(nn.Module):
    """A picture tower over what is stored, and the caption tower over stored states."""

    def __init__(self, matcher: Matcher, grid: int):
        super().__init__()
        self.matcher, self.grid = matcher, grid
        self.picture, self.caption = matcher.encoders[IMAGE], matcher.encoders[TEXT]

    def images(self, stored: Tensor) -> Tensor:
        x = coarser(stored, self.grid)
        return self.picture(Items(x, None, torch.arange(len(x)), {})).vectors[:, 0]

    def texts(self, items: Items) -> Tensor:
        return F.normalize(self.caption.pooled(items), dim=-1)  # type: ignore[operator]

    def learnt(self) -> dict[str, Tensor]:
        return {name: value for name, value in self.matcher.state_dict().items() if ".reader." not in name}


class SmallTowers(Towers):
    """lite0's last blocks behind its stored map."""

    def cells(self, stored: Tensor) -> Tensor:
        network = self.picture.backbone.network  # type: ignore[union-attr]
        x = stored.contiguous(memory_format=torch.channels_last)
        for block in network.blocks[TRUNK:]:  # type: ignore[union-attr, index]
            x = block(x)
        return F.relu6(network.head(x)).flatten(2).transpose(1, 2)  # type: ignore[union-attr, operator]

    def images(self, stored: Tensor) -> Tensor:
        x, regions = self.cells(stored), self.picture.regions  # type: ignore[union-attr]
        return regions(Items(x, None, torch.arange(len(x)), {})).vectors[:, 0]  # type: ignore[operator]


HEADS = {"dim": 1024, "hidden": 1024, "sentences": "minilm", "sentences_rate": 0.0, "pooling": "top", "norm": False}
HEADS |= {"top_regions": 5, "top_words": 3, "drop_words": 0.0, "loss": "infonce", "temperature": 0.05}
STARTER = {**HEADS, "backbone": "dinov2-small", "pixels": SIZE, "tokens": "both", "cells": "4x4"}
SMALL = {**HEADS, "backbone": "lite0", "pixels": SMALL_SIZE, "finetune": True, "hidden": 128, "top_regions": 25}


def towers(kind: str, grid: int) -> Towers:
    sizes = Sizes(pairs=0, pictures=0, image="regions", image_dim=384, regions=grid * grid + 1)
    if kind == "small":
        sizes = Sizes(pairs=0, pictures=0, image="pixels", image_dim=1280, regions=1)
        return SmallTowers(VSEInfinity(**SMALL).network(sizes), grid)  # type: ignore[arg-type]
    settings = {**STARTER, "cells": f"{grid}x{grid}"}
    return Towers(VSEInfinity(**settings).network(sizes), grid)  # type: ignore[arg-type]


@torch.no_grad()
def start_canonically(net: Towers, stored: Stored, rng: np.random.Generator) -> None:
    """Both projections begin where canonical correlation ends."""
    some = np.sort(rng.permutation(len(stored))[:8000])
    rows = np.array([rng.choice(stored.captions[place]) for place in some])
    net.eval()
    x = torch.cat([coarser(stored.pictures(span), net.grid).mean(1) for span in np.array_split(some, 32)])
    items = [stored.texts(span) for span in np.array_split(rows, 32)]
    y = torch.cat([(one.x * one.mask[..., None]).sum(1) / one.mask.sum(1, keepdim=True) for one in items])
    fit = fit_canonical_correlation(x.double(), y.double(), torch.ones(len(x)).double(), kept=256, power=1.0)
    for side, tower in enumerate((net.picture, net.caption)):
        tower.settle()  # type: ignore[operator]
        set_directions(tower.linear, fit.maps[side])  # type: ignore[arg-type]
    seen = Items(coarser(stored.pictures(some[:500]), net.grid), None, torch.arange(500), {})
    net.picture.linear.bias.copy_(-net.picture.pooled(seen).mean(0))  # type: ignore[union-attr, operator]
    net.caption.linear.bias.copy_(-net.caption.pooled(items[0]).mean(0))  # type: ignore[union-attr, operator]


# ---- learning --------------------------------------------------------------------------------------------------------


def contrast(images: Tensor, texts: Tensor, owner: Tensor, temperature: float) -> Tensor:
    """InfoNCE both ways; the other captions of a picture are no negatives of it."""
    scores = images @ texts.T / temperature
    own = scores[owner, torch.arange(len(owner))]
    theirs = owner[None] == torch.arange(len(images))[:, None]
    others = scores.masked_fill(theirs, -torch.inf).logsumexp(1)
    return (scores.logsumexp(0) - own).mean() / 2 + (torch.logaddexp(others[owner], own) - own).mean() / 2


@dataclass(frozen=True)
class Plan:
    """How a tower learns."""

    epochs: int
    rate: float
    batch: int = 256
    captions: int = 5  # of a picture in a batch
    decay: float = 0.01
    drop_words: float = 0.1
    late_rate: float = 0.1  # of lite0's last blocks, a share of the rate
    distil: float = 0.0  # how much the teacher's vectors count beside the captions


def epochs(
    net: Towers, stored: Stored, plan: Plan, *, seed: int, path: Path, clock: Clock, teacher: Tensor | None = None
) -> Iterator[int]:
    """Train, saving after every epoch; the weights that are measured and kept are a running mean."""
    late = [p for n, p in net.matcher.named_parameters() if ".backbone." in n and p.requires_grad]
    heads = [p for n, p in net.matcher.named_parameters() if ".backbone." not in n and p.requires_grad]
    groups = [
        {"params": heads, "lr": plan.rate},
        *([{"params": late, "lr": plan.rate * plan.late_rate}] if late else []),
    ]
    optimiser = torch.optim.AdamW(groups, weight_decay=plan.decay)
    steps = len(stored) // plan.batch
    rates = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, [group["lr"] for group in groups], total_steps=plan.epochs * steps + 1, pct_start=0.1
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
        began, total = time.monotonic(), 0.0
        rng = np.random.default_rng((seed, epoch))
        torch.manual_seed(seed * 1000 + epoch)
        net.train()
        order = rng.permutation(len(stored))
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
        now = net.learnt()
        torch.save({"now": now, "mean": mean, "epoch": epoch + 1, "optimiser": optimiser.state_dict(),
                    "rates": rates.state_dict()}, path.with_suffix(".tmp"))  # fmt: skip
        path.with_suffix(".tmp").replace(path)
        print(f"epoch {epoch + 1}: loss {total / steps:.3f}, {time.monotonic() - began:.0f} s", flush=True)
        yield epoch + 1
    net.matcher.load_state_dict(mean, strict=False)


def batch_loss(
    net: Towers, stored: Stored, places: np.ndarray, plan: Plan, rng: np.random.Generator, teacher: Tensor | None
) -> Tensor:
    rows = [rng.permutation(stored.captions[place])[: plan.captions] for place in places]
    owner = torch.from_numpy(np.repeat(np.arange(len(places)), [len(own) for own in rows]))
    items = stored.texts(np.concatenate(rows))
    kept = (torch.rand(items.mask.shape) > plan.drop_words) & items.mask
    kept |= ~kept.any(1, keepdim=True) & items.mask
    with torch.autocast("cpu", torch.bfloat16):
        images = net.images(stored.pictures(places)).float()
        with torch.set_grad_enabled(teacher is None):
            texts = net.texts(Items(items.x, kept, items.id, {"length": kept.sum(1)})).float()
    loss = contrast(images, texts, owner, 0.05)
    if teacher is None:
        return loss
    return loss + plan.distil * (1 - (images * teacher[places]).sum(1)).mean()


@torch.no_grad()
def follow_mean(mean: dict[str, Tensor], now: dict[str, Tensor], share: float) -> None:
    for name, value in mean.items():
        value.lerp_(now[name], 1 - share) if value.is_floating_point() else value.copy_(now[name])


# ---- measuring -------------------------------------------------------------------------------------------------------


@torch.inference_mode()
def vectors(net: Towers, stored: Stored, *, captions: bool = True) -> tuple[Tensor, Tensor]:
    net.eval()
    spans = np.array_split(np.arange(len(stored)), -(-len(stored) // 128))
    images = torch.cat([net.images(stored.pictures(span)) for span in spans])
    if not captions:
        return images, images[:0]
    order = np.argsort([stored.begins[p][k + 1] - stored.begins[p][k] for p, k in stored.row], kind="stable")
    texts = torch.zeros(len(order), images.shape[1])
    for span in np.array_split(order, -(-len(order) // 512)):
        texts[span] = net.texts(stored.texts(span))
    return images, texts


def recalls(net: Towers, stored: Stored) -> dict[str, float]:
    images, texts = vectors(net, stored)
    scores, owner = images @ texts.T, torch.from_numpy(stored.owner)
    rank = (scores > scores[owner, torch.arange(len(owner))]).sum(0)
    theirs = owner[None] == torch.arange(len(images))[:, None]
    back = (scores > scores.masked_fill(~theirs, -2).amax(1, keepdim=True)).sum(1)
    found = {f"i2t r{k}": 100 * (back < k).float().mean().item() for k in (1, 5, 10)}
    found |= {f"t2i r{k}": 100 * (rank < k).float().mean().item() for k in (1, 5, 10)}
    return {name: round(value, 2) for name, value in found.items()} | {"rsum": round(sum(found.values()), 1)}


def measured(
    net: Towers, work: Path, sets: dict[str, list[Part]], kind: str, split: str
) -> dict[str, dict[str, float]]:
    there = {name: Stored(work, [one for one in parts if one.split == split], kind) for name, parts in sets.items()}
    return {name: recalls(net, stored) for name, stored in there.items() if len(stored)}


# ---- the steps -------------------------------------------------------------------------------------------------------


def training_parts(work: Path, sets: dict[str, list[Part]], asked: argparse.Namespace) -> list[Part]:
    """What is learnt from; the small network learns from pictures that the larger one has seen as well."""
    kinds = ("cells", "trunk") if asked.step == "small" else ("cells",)
    mine = [one for name in asked.train for one in sets[name] if one.split == "train"]
    return [one for one in mine if all((work / f"{one.name}.{kind}.npy").exists() for kind in kinds)]


def teach(work: Path, sets: dict[str, list[Part]], asked: argparse.Namespace, clock: Clock) -> None:
    """`heads` or `small`: train, choose by validation, measure on test, write the result."""
    small = asked.step == "small"
    kind, tag = ("trunk" if small else "cells"), f"{asked.step}-{'+'.join(asked.train)}-{asked.name}{asked.seed}"
    stored = Stored(work, training_parts(work, sets, asked), kind)
    print(f"{tag}: {len(stored):,} pictures, {len(stored.owner):,} captions", flush=True)
    torch.manual_seed(asked.seed)
    net, state = towers(asked.step, asked.grid), work / f"{tag}.state.pt"
    teacher = begin_small(net, work, sets, asked) if small else None
    if small:
        print("begun:", {name: one["rsum"] for name, one in measured(net, work, sets, kind, "val").items()}, flush=True)
    if not small and not state.exists():
        start_canonically(net, stored, np.random.default_rng(asked.seed))
    plan = Plan(asked.epochs, asked.rate, captions=asked.captions, distil=asked.distil, late_rate=asked.late_rate)
    for epoch in epochs(net, stored, plan, seed=asked.seed, path=state, clock=clock, teacher=teacher):
        if epoch % 4 == 0 or epoch == plan.epochs:
            own = {name: value.clone() for name, value in net.learnt().items()}
            net.matcher.load_state_dict(torch.load(state, weights_only=True)["mean"], strict=False)
            found = measured(net, work, sets, kind, "val")
            print(f"validation: { {name: one['rsum'] for name, one in found.items()} }", flush=True)
            net.matcher.load_state_dict(own, strict=False)
    weights = {name: value.half() if value.is_floating_point() else value for name, value in net.learnt().items()}
    net.matcher.load_state_dict(weights, strict=False)  # what is shipped is what is measured
    report = {split: measured(net, work, sets, kind, split) for split in ("val", "test")}
    print(json.dumps(report["test"]), flush=True)
    about = {"grid": asked.grid, "trained_on": asked.train, "pictures": len(stored), "seed": asked.seed}
    torch.save({"weights": weights, "report": report, "plan": asdict(plan), **about}, work / f"{tag}.pt")


def begin_small(net: Towers, work: Path, sets: dict[str, list[Part]], asked: argparse.Namespace) -> Tensor:
    """The caption tower of the larger starter, fixed, and that starter's vectors of the training pictures."""
    made = torch.load(work / asked.teacher, weights_only=True)
    large = towers("heads", made["grid"])
    large.matcher.load_state_dict(made["weights"], strict=False)
    stored = Stored(work, training_parts(work, sets, asked), "cells")
    net.caption.load_state_dict(large.caption.state_dict())
    net.caption.requires_grad_(False)
    for name, parameter in net.matcher.named_parameters():
        early = ".stem." in name or any(f".blocks.{k}." in name for k in range(TRUNK))
        parameter.requires_grad_(parameter.requires_grad and not (".backbone." in name and early))
    teacher = vectors(large, stored, captions=False)[0]
    parts = training_parts(work, sets, asked)
    start_by_projection(net, lite_means(net, work, parts), teacher, caption_vectors(large, stored), stored, asked)
    return teacher


def lite_means(net: Towers, work: Path, parts: list[Part]) -> Tensor:
    """The mean of lite0's cells for every picture of some parts, computed once."""
    assert isinstance(net, SmallTowers)
    net.eval()
    for part in parts:
        path = work / f"{part.name}.means.npy"
        if not path.exists():
            maps = torch.from_numpy(np.load(work / f"{part.name}.trunk.npy"))
            with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
                save(path, torch.cat([net.cells(some.float()).mean(1).float() for some in maps.split(64)]).numpy())
    return torch.cat([torch.from_numpy(np.load(work / f"{part.name}.means.npy")) for part in parts])


@torch.inference_mode()
def caption_vectors(net: Towers, stored: Stored, *, each: int = 2) -> Tensor:
    """(pictures, each, dim): the first captions of every picture as the caption tower reads them."""
    rows = np.concatenate([own[np.arange(each) % len(own)] for own in stored.captions])
    spans = np.array_split(rows, -(-len(rows) // 512))
    with torch.autocast("cpu", torch.bfloat16):
        return torch.cat([net.texts(stored.texts(span)).float() for span in spans]).view(len(stored), each, -1)


def start_by_projection(
    net: Towers, means: Tensor, teacher: Tensor, texts: Tensor, stored: Stored, asked: argparse.Namespace
) -> None:
    """The projection alone, on the mean of the cells: ridge regression on the teacher, then captions beside it."""
    centre, size = means.mean(0), means.std(0) + 1e-3
    x, target = (means - centre) / size, teacher.clone()
    ridge = 0.3 * len(x) * torch.eye(x.shape[1])
    weight = torch.linalg.solve(x.T @ x + ridge, x.T @ (target - target.mean(0))).requires_grad_()
    bias = target.mean(0).clone().requires_grad_()
    optimiser = torch.optim.AdamW([weight, bias], lr=asked.linear_rate, weight_decay=0.02)
    rng, batch, texts = np.random.default_rng(asked.seed), 512, texts.clone()
    steps = asked.linear_epochs * (len(x) // batch)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for step in range(steps):
        places = torch.from_numpy(rng.choice(len(x), batch, replace=False))
        images = F.normalize(F.dropout(x[places], 0.1) @ weight + bias, dim=-1)
        said = texts[places, step % texts.shape[1]]
        loss = contrast(images, said, torch.arange(batch), 0.05)
        loss = loss + asked.distil * (1 - (images * target[places]).sum(1)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        rates.step()
        if step % 100 == 0:
            print(f"projection, step {step}: {loss.item():.3f}", flush=True)
    regions = net.picture.regions  # type: ignore[union-attr]
    with torch.no_grad():
        regions.settle()  # type: ignore[operator]
        raw = weight / size[:, None]
        regions.linear.weight.copy_(raw.T)  # type: ignore[union-attr]
        regions.linear.bias.copy_(bias - centre @ raw)  # type: ignore[union-attr]


def ship(work: Path, sets: dict[str, list[Part]], asked: argparse.Namespace, clock: Clock) -> None:
    """The chosen weights as runs in the package: what was learnt, in half precision, and how to read with it."""
    for name, file in (("starter", asked.teacher), ("starter-small", asked.student)):
        if not (work / file).exists():
            continue
        made = torch.load(work / file, weights_only=True)
        small = name == "starter-small"
        settings = {**(SMALL if small else {**STARTER, "cells": f"{made['grid']}x{made['grid']}"}), "rate": 2e-4}
        view = View(
            "pixels" if small else "grid", str(settings["backbone"]), int(settings["pixels"]), sentences="minilm"
        )
        view = replace(view, choice=None if small else TokenChoice("both", (made["grid"],) * 2)).with_size(
            torch.device("cpu")
        )
        sizes = Sizes(pairs=5 * made["pictures"], pictures=made["pictures"], image="pixels" if small else "regions",
                      image_dim=1280 if small else 384, regions=1 if small else made["grid"] ** 2 + 1)  # fmt: skip
        arguments = asdict(VSEInfinity(**settings))  # type: ignore[arg-type]
        info = {"name": "vse_infty", "preset": name, "arguments": arguments, "sizes": asdict(sizes)}
        info |= {"view": view.to_json(), "seed": made["seed"], "data": {"root": " and ".join(made["trained_on"])}}
        info |= {"version": VERSION, "precision": "fp16", "notes": {"made by": "benchmarks/starter.py"}, "start": None}
        folder = SHIPPED / name
        write_json(folder / "recipe.json", info)
        write_json(
            folder / "metrics.json", {"epoch": made["plan"]["epochs"] - 1, "select": "the last", **made["report"]}
        )
        save_weights(folder / "model.safetensors", made["weights"])
        print(folder, (folder / "model.safetensors").stat().st_size / 1e6, "MB", made["report"]["test"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("step", choices=("look", "look-small", "read", "heads", "small", "ship"))
    parser.add_argument("--data", type=Path, action="append", required=True)
    parser.add_argument("--train", action="append", help="names of the data folders to learn from; default: all")
    parser.add_argument("--only", action="append", help="parts to look at or read; default: all")
    parser.add_argument("--name", default="")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--grid", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--late-rate", type=float, default=0.3)
    parser.add_argument("--captions", type=int, default=2)
    parser.add_argument("--distil", type=float, default=4.0)
    parser.add_argument("--teacher", default="heads-flickr8k+coco-0.pt")
    parser.add_argument("--student", default="small-flickr8k+coco-0.pt")
    parser.add_argument("--linear-epochs", type=int, default=15)
    parser.add_argument("--linear-rate", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e6)
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(asked.threads)
    clock, sets = Clock(asked.minutes), {path.name: parts_of(path.name, path) for path in asked.data}
    asked.train = asked.train or list(sets)
    parts = [one for own in sets.values() for one in own if not asked.only or one.name in asked.only]
    frozen = {"look": look, "look-small": look_small, "read": read}
    if asked.step in frozen:
        frozen[asked.step](asked.work, parts, clock)
    elif asked.step == "ship":
        ship(asked.work, sets, asked, clock)
    else:
        teach(asked.work, sets, asked, clock)


if __name__ == "__main__":
    main()
