"""What frozen networks see and read, stored once: DINOv2's cells, and TinyViT and MiniLM up to their last blocks."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from matchlight.inputs.backbones import TokenChoice, backbone
from matchlight.inputs.backbones.tiny_vit import TinyVit
from matchlight.inputs.features import extract, pixels
from matchlight.inputs.features.runtimes import in_bfloat16
from matchlight.inputs.sentence_encoders import Bert, sentence_encoder
from matchlight.inputs.text import pad
from matchlight.pairs import Pairs

PART = 2000  # pictures that are looked at or read before something is kept
DINO_SIZE, TINY_SIZE = 336, 224  # pixels a side that DINOv2 and TinyViT see
CELLS = 8
TRUNK = 3  # blocks of TinyViT's third stage that stay as they came; their map (160 channels, 14 x 14) is stored
READ = 4  # blocks of MiniLM that stay as they came; their states are stored
AGAIN = 75


@dataclass(frozen=True)
class Part:
    """Some pictures of one split with all their captions."""

    name: str
    pairs: Pairs

    @property
    def split(self) -> str:
        """train, val or test."""
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
        if len(places)
    ]


class Clock:
    """Ends the process in good time; what is kept by then is gone on with."""

    def __init__(self, minutes: float):
        self.end = time.monotonic() + 60 * minutes

    def check(self) -> None:
        """Exit if the time is up."""
        if time.monotonic() > self.end:
            print("time is up: call it again to go on", flush=True)
            sys.exit(AGAIN)


def save(path: Path, array: np.ndarray) -> None:
    """Whole or not at all."""
    draft = path.with_suffix(".tmp.npy")
    np.save(draft, array)
    draft.replace(path)


def look(work: Path, parts: list[Part], clock: Clock) -> None:
    """DINOv2's class token and 8 x 8 cells."""
    network = backbone("dinov2-small", choice=TokenChoice("both", (CELLS, CELLS)))
    network.runtime = "torch-bf16"
    for part in parts:
        path = work / f"{part.name}.cells.npy"
        if not path.exists():
            clock.check()
            save(path, extract(part.pairs, backbone=network, size=DINO_SIZE, batch=4).array)
            print(path.name, flush=True)


def through(blocks: nn.ModuleList, x: Tensor) -> Tensor:
    """One block after the other."""
    for block in blocks:
        x = block(x)
    return x


def trunk(network: TinyVit, x: Tensor) -> Tensor:
    """The part of TinyViT that stays as it came: (N, 3, h, w) -> (N, 160, h / 16, w / 16)."""
    first, second, third, _ = network.stages
    x = third.downsample(second(first(network.patch_embed(x))))
    return through(third.blocks[:TRUNK], x)


def look_small(work: Path, parts: list[Part], clock: Clock) -> None:
    """TinyViT's map after its trunk, as (pictures, 14, 14, 160)."""
    tiny = in_bfloat16(backbone("tinyvit-5m"))

    @torch.inference_mode()
    def seen(rows: np.ndarray) -> np.ndarray:
        x = tiny.normalise(torch.from_numpy(rows.copy())).to(torch.bfloat16)
        map_ = trunk(tiny.network, x.contiguous(memory_format=torch.channels_last))
        return map_.permute(0, 2, 3, 1).half().numpy()

    for part in parts:
        path = work / f"{part.name}.trunk.npy"
        if not path.exists():
            clock.check()
            photos = pixels(part.pairs, TINY_SIZE).array
            spans = [photos[start : start + 8] for start in range(0, len(photos), 8)]
            with ThreadPoolExecutor(2, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                save(path, np.concatenate(list(pool.map(seen, spans))))
            print(path.name, flush=True)


def rest(network: TinyVit, x: Tensor) -> Tensor:
    """What comes behind the trunk: (N, 160, 14, 14) -> (N, 49, 320)."""
    _, _, third, last = network.stages
    return last(through(third.blocks[TRUNK:], x)).flatten(2).transpose(1, 2)


def finish_small(work: Path, parts: list[Part], clock: Clock) -> None:
    """TinyViT's cells as it came, from its stored maps: heads over them are learnt before its last blocks are tuned."""
    tiny = in_bfloat16(backbone("tinyvit-5m"))
    for part in parts:
        path, maps = work / f"{part.name}.tiny.npy", work / f"{part.name}.trunk.npy"
        if path.exists() or not maps.exists():
            continue
        clock.check()
        stored = np.load(maps, mmap_mode="r")
        with torch.inference_mode():
            spans = [torch.from_numpy(stored[start : start + 32].copy()) for start in range(0, len(stored), 32)]
            found = [rest(tiny.network, x.to(torch.bfloat16).permute(0, 3, 1, 2)).half() for x in spans]
        save(path, torch.cat(found).numpy())
        print(path.name, flush=True)


def see_small(work: Path, parts: list[Part], clock: Clock) -> None:
    """TinyViT's cells as it came, as the package stores them: what was seen once is found in its cache."""
    for part in parts:
        path = work / f"{part.name}.tiny.npy"
        if not path.exists():
            clock.check()
            whole = extract(Pairs.read(part.pairs.root), backbone="tinyvit-5m", device="cpu", size=TINY_SIZE)
            save(path, whole.gather(part.pairs.notes["pictures"]).astype(np.float16))
            print(path.name, flush=True)


def early_states(bert: Bert, ids: Tensor, mask: Tensor) -> Tensor:
    """The part of MiniLM that stays as it came."""
    x = bert.norm(bert.pieces(ids) + bert.places(torch.arange(ids.shape[1])) + bert.kinds.weight[0])
    for block in bert.blocks[:READ]:
        x = block(x, mask)
    return x


def read(work: Path, parts: list[Part], clock: Clock) -> None:
    """MiniLM's early state of every word piece of every caption, one after the other, and where each caption begins."""
    encoder = sentence_encoder("minilm", frozen=True)
    bert = encoder.bert.to(torch.bfloat16)

    @torch.inference_mode()
    def states(ids: list[list[int]]) -> np.ndarray:
        padded, mask, _ = pad(ids)
        return early_states(bert, torch.from_numpy(padded), torch.from_numpy(mask)).float().half().numpy()

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
