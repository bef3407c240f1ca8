"""Scores by the kernels of `triton_attention`: a block of products, then one launch a bucket of caption lengths."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from matchlight.scoring.kernels.packed import LARGEST, SMALLEST, Packed, buckets
from matchlight.scoring.kernels.products import HALVES, as_operand, grams, plan, product
from matchlight.scoring.kernels.reference import AttentionSettings

FEWEST_WORDS = 8  # that a caption is padded to where words look; Gram matrices of words have at least 16
BUDGET = 2 << 30
DOTS = {"fp32": "tf32x3", "fp16": "fp16"}  # how weights meet Gram matrices; elsewhere by TF32


@dataclass(frozen=True)
class Shape:
    """How a kernel works: words (or regions / 64) a tile, warps a program, tiles a program, tiles on their way."""

    rows: int
    warps: int
    turns: int = 8  # tiles that share a Gram matrix
    stages: int = 1


SHAPES = {"t2i": Shape(32, 1), "i2t": Shape(16, 1)}  # few numbers a thread: what fills a GPU is many small programs


def power(count: int, least: int = SMALLEST) -> int:
    """The power of two that holds so many."""
    return max(least, 1 << (count - 1).bit_length())


def two_tiles(regions: int, least: int = SMALLEST) -> tuple[int, int]:
    """How wide a tile of a picture's first regions is, and that of the rest (0: there is none): powers of two."""
    head = max(SMALLEST, 1 << (regions.bit_length() - 1))
    return head, power(regions - head, least) if regions > head else 0


def padded_grams(regions: Tensor) -> Tensor:
    """(I, N, N) Gram matrices of pictures, with zeros up to both tiles' width."""
    more = sum(two_tiles(regions.shape[1])) - regions.shape[1]
    return F.pad(grams(regions), (0, more, 0, more)).contiguous()


def fits(regions: int, longest: int) -> bool:
    """Whether a tile of whole pictures and captions can be held in registers."""
    return 0 < regions <= LARGEST and 0 < longest <= LARGEST


@dataclass(frozen=True)
class Bucket:
    """Captions of one block that share a padded length, as a launch wants them."""

    length: int
    captions: Tensor  # (K,) int32 places in the block, on the device
    gram: Tensor | None = None  # (K, L, L), where regions look at words


@dataclass(frozen=True)
class Block:
    """A run of captions on the device: where each begins, how long it is, and its buckets."""

    starts: Tensor
    counts: Tensor
    buckets: list[Bucket]


def dealt(part: Packed, direction: str) -> Block:
    """One block's captions by bucket."""
    device = part.words.device
    lists = []
    for length, inside in buckets(part.lengths, SMALLEST if direction == "i2t" else FEWEST_WORDS):
        gram = _word_grams(part, inside, length) if direction == "i2t" else None
        lists.append(Bucket(length, inside.int().to(device), gram))
    return Block(part.offsets[:-1].int().to(device), part.lengths.int().to(device), lists)


def _word_grams(part: Packed, inside: Tensor, length: int, at_once: int = 1024) -> Tensor:
    """(K, L, L) Gram matrices of captions padded with zeros."""
    place = torch.arange(length)[None]
    out = part.words.new_empty(len(inside), length, length, dtype=torch.float32)
    for k in range(0, len(inside), at_once):
        some = inside[k : k + at_once]
        real = place < part.lengths[some][:, None]
        source = torch.where(real, part.offsets[some][:, None] + place, 0).to(part.words.device)
        out[k : k + at_once] = grams(part.words[source] * real.to(part.words.device)[..., None])
    return out


def attended_scores(
    regions: Tensor,
    region_mask: Tensor | None,
    texts: Packed,
    settings: AttentionSettings,
    *,
    precision: str = "tf32",
    budget: int = BUDGET,
) -> Tensor:
    """(I, T) float32 scores; `kernels.attended_scores` says what the arguments are."""
    count, size = regions.shape[:2]
    left, right = as_operand(texts.words, precision), as_operand(regions.flatten(0, 1), precision)
    out = torch.empty(count, len(texts), device=regions.device, dtype=torch.float32)
    launches = _Launches(regions, region_mask, texts.words, settings, dot=DOTS.get(precision, "tf32"))
    for first, last, tall in plan(texts, pictures=count, regions=size, budget=budget):
        block = dealt(texts.block(first, last), settings.direction)
        begin, end = int(texts.offsets[first]), int(texts.offsets[last])
        for i in range(0, count, tall):
            s = product(left[begin:end], right[i * size : (i + tall) * size], precision)
            launches.launch(s, i, begin, block, out[i : i + tall, first:last])
            del s  # the next block takes its place
    return out


class _Launches:
    """What every launch of one call shares: Gram matrices, lengths of the vectors that ask, which regions are real."""

    def __init__(self, regions: Tensor, mask: Tensor | None, words: Tensor, settings: AttentionSettings, *, dot: str):
        self.direction = direction = settings.direction
        self.numbers = (settings.temperature, settings.lse)
        self.options = {"NORM": settings.norm, "AGGREGATE": settings.aggregate, "GATE": settings.gate, "DOT": dot}
        self.regions = regions.shape[1]
        self.gram = padded_grams(regions) if direction == "t2i" else regions
        self.real = None if mask is None else mask.to(torch.int8).contiguous()
        asking = words if direction == "t2i" else regions.flatten(0, 1)
        self.size = torch.linalg.vector_norm(asking.float(), dim=-1)

    def launch(self, s: Tensor, picture: int, word: int, block: Block, out: Tensor) -> None:
        """Score the pictures and captions of one block of products into `out`, a window of the whole matrix."""
        from matchlight.scoring.kernels import triton_attention

        size, tall = self.regions, len(out)
        mask = None if self.real is None else self.real[picture : picture + tall]
        shape = SHAPES[self.direction]
        common = {"R": size, "MASKED": mask is not None, "TURNS": shape.turns, **self.options}
        common |= {"num_warps": shape.warps, "num_stages": shape.stages}
        lengths = self.size[word:] if self.direction == "t2i" else self.size[picture * size :]
        for bucket in block.buckets:
            many, inside = max(1, shape.rows // bucket.length), len(bucket.captions)
            shared = (s if mask is None else mask, lengths, bucket.captions, block.starts, block.counts, out)
            numbers = (s.stride(0), out.stride(0), *self.numbers)
            # a product wants tiles of 16 and more; where regions look, those of all pictures are one tile
            head, tail = two_tiles(size, SMALLEST if bucket.gram is None else max(1, SMALLEST // many))
            tiles = {"HEAD": head, "TAIL": tail, "L": bucket.length}
            if bucket.gram is None:
                grid, gram = (tall, -(-inside // (many * shape.turns))), self.gram[picture : picture + tall]
                triton_attention.words_look[grid](s, gram, *shared, inside, *numbers, C=many, **tiles, **common)
            else:
                grid = (-(-tall // (many * shape.turns)), inside)
                triton_attention.regions_look[grid](s, bucket.gram, *shared, tall, *numbers, P=many, **tiles, **common)


def half(precision: str) -> torch.dtype:
    """The type of short numbers for a precision that has one."""
    return HALVES.get(precision, torch.float32)
