"""Pairs -> Batch: a `Table` reads pictures and captions by place; rows become batches off the main thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from matchlight import devices
from matchlight.core import IMAGE, TEXT, Batch, Items, Matcher, Named
from matchlight.inputs.caption_states import CaptionStates
from matchlight.inputs.features.stream import PixelStream
from matchlight.inputs.text import Captions, Vocabulary
from matchlight.pairs import FeatureSource, Pairs

T = TypeVar("T")
WINDOW = 4096  # rows that are shuffled among each other where pictures are read in blocks
SMALL = 8  # rows: a last batch of fewer joins the one before
WORDS = 8  # captions are filled up to a multiple of this where steps are kept as graphs
REAL = 512  # what the number of real words is rounded up to
LABELLED = "labelled"  # of a batch: which pairs are as the data have them, where others were put together beside these
ROUND = 32  # pictures: batches of pixels with companions are filled up to a multiple of this


def seeded(*numbers: int) -> np.random.Generator:
    """A generator for one purpose: every draw follows from (seed, epoch, phase, step), never from what ran before."""
    return np.random.default_rng(np.random.SeedSequence([n & 0xFFFFFFFF for n in numbers]))


class Table:
    """One data set as a run reads it: `items(side, places)` gives pictures or captions ready for an encoder."""

    def __init__(
        self,
        pairs: Pairs,
        images: FeatureSource,
        captions: Captions | None,
        *,
        device: torch.device | str = "cpu",
        broken: Sequence[int] = (),
        vocabulary: Vocabulary | None = None,
        states: CaptionStates | None = None,
    ):
        self.pairs = pairs
        self.images = images
        self.captions = captions
        self.states = states  # what a frozen encoder makes of the captions, where that was computed before
        self.vocabulary = vocabulary  # what the captions' word ids mean; None: pieces of another's, or no words
        self.device = torch.device(device)
        self.broken = np.asarray(sorted(broken), dtype=np.int64)
        self._resident = self._make_resident()
        self.blocks = images.blocks() if isinstance(images, PixelStream) else None  # by picture: what is read together

    def _make_resident(self) -> Tensor | None:
        """Features that fit a quarter of the device's memory live there; on a CPU the memory map is as good."""
        if self.device.type != "cuda" or isinstance(self.images, PixelStream):
            return None
        return resident(self.device, self.images)

    @property
    def pixels(self) -> bool:
        """True where pictures are pixels: a backbone then runs, and plans anew for every size of batch it meets."""
        return len(self.images.shape) == 4

    def rows(self, split: str) -> np.ndarray:
        """Rows of a split whose picture could be read."""
        rows = self.pairs.rows(split)
        return rows[~np.isin(self.pairs.picture[rows], self.broken)]

    def plan(self, rows: np.ndarray, size: int, rng: np.random.Generator) -> list[np.ndarray]:
        """`plan` as this table is best read: equal batches of pixels, and near each other what is read together."""
        near = None if self.blocks is None else self.blocks[self.pairs.picture[rows]]
        return plan(rows, size, rng, even=self.pixels, near=near)

    def items(self, side: str, index: np.ndarray) -> Items:
        """The items at these places of one side's table."""
        return self._pictures(index) if side == IMAGE else self._texts(index)

    def _pictures(self, index: np.ndarray) -> Items:
        if self._resident is not None:
            x = self._resident[torch.from_numpy(index).to(self.device)]
        else:
            x = torch.from_numpy(np.ascontiguousarray(self.images.gather(index)))
        extra: dict[str, Tensor] = {}
        if self.pairs.labels is not None:
            extra["label"] = torch.from_numpy(self.pairs.labels.image[index].astype(np.float32))
        if self.pairs.boxes is not None:
            extra["box"] = torch.from_numpy(self.pairs.boxes[index].astype(np.float32))
        if self.pairs.objects is not None:
            extra["object"] = torch.from_numpy(self.pairs.objects[index].astype(np.int64))
        x = x if x.dtype in (torch.uint8, torch.float16) else x.float()
        return Items(x, None, torch.from_numpy(np.asarray(index, dtype=np.int64)), extra)

    def _texts(self, index: np.ndarray) -> Items:
        extra = {"picture": torch.from_numpy(self.pairs.picture[index].astype(np.int64))}
        if self.pairs.labels is not None:
            extra["label"] = torch.from_numpy(self.pairs.labels.text[index].astype(np.float32))
        place = torch.from_numpy(np.asarray(index, dtype=np.int64))
        if self.captions is None:
            assert self.pairs.text_features is not None
            return Items(torch.from_numpy(self.pairs.text_features[index].astype(np.float32)), None, place, extra)
        index = np.asarray(index)
        extra["length"] = torch.from_numpy(self.captions.lengths[index].astype(np.int64))
        x = self.captions.batch(index)[0] if self.states is None else self.states.batch(index)
        mask = torch.arange(x.shape[1])[None] < extra["length"][:, None]
        return Items(torch.from_numpy(x), mask, place, extra)


_last: list[tuple[tuple[str, str], Tensor]] = []  # of a process that trains many runs on the same features


def resident(device: torch.device, images: FeatureSource) -> Tensor | None:
    """All features on a device, if they fit; one of many processes side by side moves them there once."""
    if devices.neighbours() == 1:
        return moved_to(device, images, room=devices.room_for_features(device))
    key = (str(device), images.stamp())
    if not _last or _last[0][0] != key:
        _last.clear()
        whole = moved_to(device, images, room=devices.room_for_features(device))
        _last.extend([] if whole is None else [(key, whole)])
    return _last[0][1] if _last else None


def moved_to(device: torch.device, images: FeatureSource, *, room: int) -> Tensor | None:
    """All features as one tensor on a device, as finely as they are stored; None where they need more than `room`."""
    array = getattr(images, "array", None)
    first = images.gather(np.arange(1)) if array is None else array[:1]
    kind = torch.from_numpy(np.array(first)).dtype
    if int(np.prod(images.shape)) * kind.itemsize > room:
        return None
    whole = torch.empty(tuple(images.shape), dtype=kind, device=device)  # filled in place: never there twice
    for start in range(0, len(images), 512):
        part = np.arange(start, min(start + 512, len(images)))
        rows = images.gather(part) if array is None else array[part[0] : part[-1] + 1]
        whole[part[0] : part[-1] + 1] = torch.from_numpy(np.array(rows)).to(device)
    return whole


def collate(
    table: Table,
    rows: np.ndarray,
    *,
    more: dict[str, np.ndarray] | None = None,
    repeat: bool = False,
    pictures: np.ndarray | None = None,
) -> Batch:
    """A batch of these rows. Each picture is read once; `repeat` gives every pair its own copy, as the old code does.

    So do batches of fewer pictures than processes: an encoder cannot be asked to read nothing.
    `more` names further (picture, caption) pairs to score. An item of theirs that the batch holds already is not read
    again; the others follow the batch's own, each once. `pictures` names another picture for each row than the data do.
    """
    labels = table.pairs.picture[rows]
    owners = labels if pictures is None else pictures
    pictures, place = np.unique(owners, return_inverse=True)
    if repeat or len(pictures) < devices.world():
        pictures, place = owners, np.arange(len(rows))
    links = {"positive": np.stack([place, np.arange(len(rows))], 1)}
    core = (len(pictures), len(rows))
    texts = rows
    if more:
        pictures, spots = _joined(pictures, [pairs[:, 0] for pairs in more.values()])
        texts, words = _joined(texts, [pairs[:, 1] for pairs in more.values()])
        links |= {name: np.stack(both, 1) for name, *both in zip(more, spots, words, strict=True)}
        if table.pixels:  # few sizes of batch: a backbone plans anew for each
            pictures = np.concatenate([pictures, np.resize(pictures, -len(pictures) % ROUND)])
    sides = {
        IMAGE: table.items(IMAGE, pictures[devices.shard(len(pictures))]),
        TEXT: table.items(TEXT, texts[devices.shard(len(texts))]),
    }
    extra = {}
    if owners is not labels:
        whose = np.concatenate([owners, table.pairs.picture[texts[len(rows) :]]])
        sides[TEXT] = _owned(sides[TEXT], whose[devices.shard(len(texts))])
        extra = {LABELLED: torch.from_numpy(owners == labels)}
    return Batch(sides, {k: torch.from_numpy(v) for k, v in links.items()}, torch.from_numpy(rows), extra, core)


def _owned(texts: Items, pictures: np.ndarray) -> Items:
    """Captions that belong to these pictures: siblings are who shares them."""
    return replace(texts, extra={**texts.extra, "picture": torch.from_numpy(pictures.astype(np.int64))})


def for_gpu(batch: Batch, matcher: Matcher, device: torch.device) -> Batch:
    """The batch as a GPU reads it best."""
    return filled(batch) if device.type == "cuda" and not matcher.depends_on_padding else batch


def filled(batch: Batch) -> Batch:
    """The same batch with its word ids filled up to a multiple of WORDS: few shapes, which can be kept as graphs.

    It also says how many words are real, rounded up, so that an encoder may leave out the padding.
    """
    texts = batch.sides[TEXT]
    if texts.mask is None or texts.x.dim() != 2 or texts.x.is_floating_point():
        return batch
    more, real = -texts.x.shape[1] % WORDS, -(-int(texts.mask.sum()) // REAL) * REAL
    wide = replace(texts, x=F.pad(texts.x, (0, more)), mask=F.pad(texts.mask, (0, more)), real=real)
    return replace(batch, sides={**batch.sides, TEXT: wide})


def _joined(own: np.ndarray, wanted: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """A batch's own items with what else is wanted behind them, and where each of those stands.

    Of an item that the batch holds several times, the k-th of a list that is as long takes the k-th copy if it is one.
    """
    everything = np.concatenate([own, *wanted])
    kinds, first, which = np.unique(everything, return_index=True, return_inverse=True)
    new = first >= len(own)
    place = np.where(new, len(own) + np.cumsum(new) - 1, first)[which.ravel()]
    parts = np.split(place[len(own) :], np.cumsum([len(part) for part in wanted])[:-1])
    for part, asked in zip(parts, wanted, strict=True):
        if len(asked) == len(own):
            part[asked == own] = np.flatnonzero(asked == own)
    return np.concatenate([own, kinds[new]]), parts


def fewest() -> int:
    """The smallest batch that can be trained on."""
    return max(2, devices.world())


def plan(
    rows: np.ndarray, size: int, rng: np.random.Generator, *, even: bool = False, near: np.ndarray | None = None
) -> list[np.ndarray]:
    """Shuffled rows in batches of `size`, every row once; a last batch too small to learn from joins the one before.

    One pair has no negative and no variance, and every process needs a pair to read. What is too small does not follow
    from the number of processes while that is at most SMALL and half a batch: any such number takes the same steps.
    `even` makes the batches equal, to one row: a backbone plans anew for every size. `near` names a block for each row:
    blocks come in a random order, and their rows are shuffled among the WINDOW rows that stand together then.
    """
    if near is not None:
        return _near(rows, near, [len(part) for part in plan(rows, size, rng, even=even)], rng)
    order, size = rng.permutation(rows), max(size, fewest())
    if even:
        return np.array_split(order, max(1, min(-(-len(order) // size), len(order) // fewest())))
    parts = [order[start : start + size] for start in range(0, len(order), size)]
    if len(parts) > 1 and len(parts[-1]) < max(fewest(), min(SMALL, size // 2)):
        parts[-2:] = [np.concatenate(parts[-2:])]
    return parts


def _near(rows: np.ndarray, near: np.ndarray, sizes: list[int], rng: np.random.Generator) -> list[np.ndarray]:
    """Batches of these sizes; the rows of a batch stand by block, so that processes take blocks of their own."""
    blocks, which = np.unique(near, return_inverse=True)
    turn = rng.permutation(len(blocks))[which.ravel()]  # of each row's block
    counts = np.bincount(turn, minlength=len(blocks))
    window = ((np.cumsum(counts) - counts) // WINDOW)[turn]
    order = np.lexsort((rng.permutation(len(rows)), window))
    parts = np.split(order, np.cumsum(sizes)[:-1])
    return [rows[part[np.argsort(turn[part], kind="stable")]] for part in parts]


def plan_pictures(
    rows: np.ndarray,
    picture: np.ndarray,
    size: int,
    rng: np.random.Generator,
    *,
    even: bool = False,
    blocks: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Shuffled pictures with all their rows, about `size` rows a batch; `even`: the same number of pictures in each."""
    owners = picture[rows]
    names, counts = np.unique(owners, return_counts=True)
    rows_of = np.split(rows[np.argsort(owners, kind="stable")], np.cumsum(counts)[:-1])
    each = round(size * len(names) / max(1, len(rows)))
    near = None if blocks is None else blocks[names]
    parts = plan(np.arange(len(names)), each, rng, even=even, near=near)
    return [np.concatenate([rows_of[k] for k in part]) for part in parts]


def tensors_of(batch: Batch) -> Named:
    """The tensors of a batch by name, but those that stay on the CPU (lengths of captions) where it does not."""
    found: Named = {"row": batch.row}
    for side, items in batch.sides.items():
        mask = {} if items.mask is None else {"mask": items.mask}
        own = {"x": items.x, "id": items.id, **mask, **{f"extra/{k}": v for k, v in items.extra.items()}}
        found |= {f"side/{side}/{name}": value for name, value in own.items()}
    found |= {f"link/{name}": value for name, value in batch.links.items()}
    found |= {f"extra/{name}": value for name, value in batch.extra.items()}
    there = batch.row.device
    return {name: value for name, value in found.items() if value.device == there and not name.endswith("/length")}


def with_tensors(batch: Batch, tensors: Named) -> Batch:
    """The same batch made of other tensors; what is not among them is left out."""

    def items(side: str, own: Items) -> Items:
        begin = f"side/{side}/"
        extra = {k: tensors[f"{begin}extra/{k}"] for k in own.extra if f"{begin}extra/{k}" in tensors}
        return Items(tensors[f"{begin}x"], tensors.get(f"{begin}mask"), tensors[f"{begin}id"], extra, own.real)

    sides = {side: items(side, own) for side, own in batch.sides.items()}
    links = {name: tensors[f"link/{name}"] for name in batch.links}
    return replace(
        batch, sides=sides, links=links, row=tensors["row"], extra={k: tensors[f"extra/{k}"] for k in batch.extra}
    )


class Feed:
    """Batches that are made ahead reach a GPU beside its work: a stream of their own copies them.

    On the stream of the steps, a copy would wait for the steps queued before it, and whoever needs it for that copy.
    """

    def __init__(self, device: torch.device, *, alone: AbstractContextManager[object] | None = None):
        self.device = device
        self.alone = alone or nullcontext()  # held while a batch is made: who records a graph wants the device alone
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def batches(self, make: Callable[[int], Batch], steps: range) -> Iterator[Batch]:
        """make(step) for each step, on the device."""
        stream = self.stream
        if stream is None:
            yield from ahead(lambda step: make(step).to(self.device), steps)
            return

        stream.wait_stream(torch.cuda.current_stream(self.device))  # features that live there were put there before

        def sent(step: int) -> tuple[Batch, torch.cuda.Event]:
            with self.alone, torch.cuda.stream(stream):
                return make(step).to(self.device), stream.record_event()

        for batch, copied in ahead(sent, steps):
            here = torch.cuda.current_stream(self.device)
            here.wait_event(copied)
            for tensor in tensors_of(batch).values():
                tensor.record_stream(here)
            yield batch


def ahead(make: Callable[[int], T], steps: range, *, depth: int = 2) -> Iterator[T]:
    """make(step) for each step, prepared by a thread a little ahead of whoever iterates."""
    box: queue.Queue[T | BaseException | None] = queue.Queue(maxsize=depth)
    stop = threading.Event()

    def work() -> None:
        try:
            for step in steps:
                if stop.is_set():
                    return
                box.put(make(step))
            box.put(None)
        except BaseException as problem:  # handed to the main thread, which raises it where it can be seen
            box.put(problem)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while (thing := box.get()) is not None:
            if isinstance(thing, BaseException):
                raise thing
            yield thing
    finally:
        stop.set()
        while thread.is_alive():
            try:
                box.get_nowait()
            except queue.Empty:
                thread.join(0.01)
