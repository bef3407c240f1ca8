"""Augmentation: crops, flips, brightness, dropped words and regions. Items -> Items on their device, training only.

Every draw is a hash of (seed, item id, which draw), not the next number of a stream. So an item is changed in the same
way alone or with others, in any batch and any order, on any device, and a run that is stopped and resumed sees what it
would have seen; other changes come from another seed, one for each epoch. Two items with one id are changed alike.
All functions have the form `f(items, *, seed, ...) -> Items` and leave what they were given untouched.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from matchlight.core import IMAGE, Items, Seed

PAD = 0  # the word that stands for no word


def row_uniform(ids: Tensor, n: int, seed: Seed) -> Tensor:
    """(N, n) numbers in [0, 1), a function of (seed, id, column) alone: SplitMix64's finaliser as a counter hash."""
    step = _signed(0x9E3779B97F4A7C15)
    begin = (seed + 1) * step if isinstance(seed, Tensor) else _signed((seed + 1) * step)
    rows = _mix(ids.to(torch.int64) + begin)
    columns = torch.arange(1, n + 1, device=ids.device, dtype=torch.int64) * step
    bits = _mix(rows[:, None] + columns)
    return _shifted(bits, 40).to(torch.float32) * 2.0**-24  # the upper 24 bits: all that a float32 can hold


def _mix(x: Tensor) -> Tensor:
    """SplitMix64's finaliser (Steele, Lea & Flood 2014): every bit in changes about half of the bits out."""
    x = (x ^ _shifted(x, 30)) * _signed(0xBF58476D1CE4E5B9)  # int64 products wrap around, as they should here
    x = (x ^ _shifted(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, by: int) -> Tensor:
    """A right shift that brings in zeros; torch's own repeats the sign."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def _signed(x: int) -> int:
    """The 64 low bits as the int64 that has them."""
    x &= (1 << 64) - 1
    return x - (1 << 64) if x >> 63 else x


def _draws(items: Items, n: int, seed: Seed, what: str) -> Tensor:
    """Draws of one purpose: a picture and a caption that share id and seed must not share their luck."""
    return row_uniform(items.id.to(items.x.device), n, (seed << 32) ^ zlib.crc32(what.encode()))


def crop_flip_colour(
    items: Items,
    *,
    seed: Seed,
    scale: tuple[float, float] = (0.65, 1.0),
    by: str = "side",
    ratio: tuple[float, float] = (1.0, 1.0),
    flip: float = 0.5,
    brightness: float = 0.2,
    size: tuple[int, int] | None = None,
) -> Items:
    """Pictures (N, 3, H, W) seen through a random window, maybe mirrored, lighter or darker: float pixels in 0..255.

    `scale` bounds the window's sides (`by="side"`) or area (`by="area"`) as a share of the picture's, `ratio` its width
    to height on top of the picture's own (drawn evenly in the logarithm, sides cut at the picture's). `flip` is the
    share of mirrored pictures, `brightness` the largest change of the factor on the pixels, `size` the size that comes
    out (None: as it went in). VSE++'s crops are `by="area", scale=(0.08, 1), ratio=(3/4, 4/3), brightness=0`.
    """
    draw = _draws(items, 6, seed, "crop")
    share = scale[0] + (scale[1] - scale[0]) * draw[:, 0]
    side = share.sqrt() if by == "area" else share
    stretch = (math.log(ratio[0]) + math.log(ratio[1] / ratio[0]) * draw[:, 1]).exp().sqrt()
    tall, wide = (side / stretch).clamp(max=1), (side * stretch).clamp(max=1)
    down, right = (1 - tall) * (2 * draw[:, 2] - 1), (1 - wide) * (2 * draw[:, 3] - 1)
    mirror = torch.where(draw[:, 4] < flip, -1.0, 1.0)
    seen = _windows(items.x, tall, wide * mirror, down, right, size)
    light = 1 + brightness * (2 * draw[:, 5] - 1)
    return replace(items, x=(seen * light[:, None, None, None]).clamp_(0, 255))


def centre(items: Items, *, share: float = 224 / 256, size: tuple[int, int] | None = None) -> Items:
    """Pictures seen through the middle `share` of their sides: what VSE++ does when it does not train."""
    sides = torch.full((len(items),), share, device=items.x.device)
    nowhere = torch.zeros_like(sides)
    return replace(items, x=_windows(items.x, sides, sides, nowhere, nowhere, size))


def _windows(
    x: Tensor, tall: Tensor, wide: Tensor, down: Tensor, right: Tensor, size: tuple[int, int] | None
) -> Tensor:
    """One window a picture in one call, bilinear; coordinates run from -1 to 1, a negative width mirrors."""
    none = torch.zeros_like(tall)
    across, along = torch.stack([wide, none, right], 1), torch.stack([none, tall, down], 1)
    pixels = x if x.is_floating_point() else x.float()
    corners = torch.stack([across, along], 1).to(pixels.dtype)
    grid = F.affine_grid(corners, [len(x), x.shape[1], *(size or x.shape[2:])], align_corners=False)
    return F.grid_sample(pixels, grid, mode="bilinear", padding_mode="border", align_corners=False)


def drop_regions(items: Items, *, seed: Seed, p: float = 0.2, varied: bool = False) -> Items:
    """Each region (N, R, D) leaves the mask with probability `p`; at least one stays.

    `varied` is what VSE-infinity does with grids: a picture draws v from [0, 1), keeps all its cells if v <= p, and
    else loses each with probability p * v.
    """
    draw = _draws(items, items.x.shape[1] + 1, seed, "regions")
    real = _real(items)
    chance = draw[:, :1] * p if varied else torch.full_like(draw[:, :1], p)
    if varied:
        chance = torch.where(draw[:, :1] > p, chance, 0.0)
    return replace(items, mask=_not_empty(real & (draw[:, 1:] >= chance), real, draw[:, 1:]))


def _real(items: Items) -> Tensor:
    shape = items.x.shape[:2]
    return torch.ones(shape, dtype=torch.bool, device=items.x.device) if items.mask is None else items.mask


def _not_empty(keep: Tensor, real: Tensor, draw: Tensor) -> Tensor:
    """A row that would lose everything keeps the real place with the largest draw."""
    best = draw.masked_fill(~real, -1).argmax(1, keepdim=True)
    last = torch.zeros_like(keep).scatter_(1, best, True) & real
    return torch.where(keep.any(1, keepdim=True), keep, last)


def drop_words(
    items: Items,
    *,
    seed: Seed,
    p: float = 0.15,
    mode: str = "zero",
    word: int = PAD,
    vocabulary: int = 0,
    special: tuple[int, ...] = (),
    joined: Tensor | None = None,
) -> Items:
    """Each real word (N, L) is changed with probability `p`; words in `special` never are.

    "zero": it becomes `word` (<pad>, whose embedding is zero; or an <unk> or <mask>) and stays in the mask.
    "mixed", as VSE-infinity: half become `word` (its <mask>), a tenth any word of the `vocabulary`, the rest are taken
    out and what follows moves up; a caption keeps at least one word.
    `joined` (V,) says which ids are pieces that go on the word before them: they share its fate.
    """
    if mode not in ("zero", "mixed"):
        raise ValueError(f"{mode!r} is no way to drop words; known: zero, mixed")
    length = items.x.shape[1]  # of the longest caption beside it, so that no draw may depend on it
    first, second = _draws(items, length, seed, "words"), _draws(items, length, seed, "other words")
    if joined is not None:
        begins = _first_piece(joined[items.x])
        first, second = first.gather(1, begins), second.gather(1, begins)
    hit = _real(items) & (first < p)
    for token in special:
        hit &= items.x != token
    if mode == "zero":
        return replace(items, x=items.x.masked_fill(hit, word))
    if vocabulary < 1:
        raise ValueError("mode 'mixed' draws other words: it needs the size of the vocabulary")
    return _mixed(items, hit, first / p, second, word, vocabulary)


def _first_piece(joined: Tensor) -> Tensor:
    """(N, L): where the word begins that each piece belongs to."""
    place = torch.arange(joined.shape[1], device=joined.device).expand_as(joined)
    return place.masked_fill(joined, 0).cummax(1).values


def _mixed(items: Items, hit: Tensor, which: Tensor, other: Tensor, word: int, vocabulary: int) -> Items:
    """`which` is uniform in [0, 1) where `hit`: below .5 masked, below .6 another word, above it taken out."""
    x = items.x.masked_fill(hit & (which < 0.5), word)
    random = (other * vocabulary).to(x.dtype).clamp(max=vocabulary - 1)
    x = torch.where(hit & (which >= 0.5) & (which < 0.6), random, x)
    real = _real(items)
    keep = _not_empty(real & ~(hit & (which >= 0.6)), real, other)
    order = torch.argsort(~keep, dim=1, stable=True)  # what stays moves up, in its order
    mask = keep.gather(1, order)
    extra = dict(items.extra)
    if "length" in extra:  # lengths are kept on the CPU; a device would be waited for, so there the mask says them
        del extra["length"]
        extra |= {"length": mask.sum(1)} if mask.device.type == "cpu" else {}
    return replace(items, x=x.gather(1, order).masked_fill(~mask, PAD), mask=mask, extra=extra)


def changed(side: str, items: Items, seed: Seed, *, p: float, mode: str, vocabulary: int, pixels: bool) -> Items:
    """Training only: pixels are cropped, flipped and lit anew, words masked, replaced or dropped."""
    if side == IMAGE:
        return crop_flip_colour(items, seed=seed) if pixels else items
    word = vocabulary if mode == "mixed" else 0
    return drop_words(items, seed=seed, p=p, mode=mode, word=word, vocabulary=vocabulary) if p else items
