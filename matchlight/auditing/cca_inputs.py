"""What the closed-form witness looks at: several kinds of fixed vectors of pictures and captions, side by side.

Two networks that read the same picture make different mistakes, and a rare word tells what a vector of meaning smooths
away; joined, they tell wrong pairs better than the best of them alone. Every part is brought to one scale first, so
that none speaks louder for having larger numbers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from matchlight.auditing.canonical_correlation import WIDE
from matchlight.auditing.item_vectors import mean_features, standardised, word_vectors
from matchlight.console import say
from matchlight.core import BadInput
from matchlight.inputs.backbones import lite, lite_weights
from matchlight.inputs.batches import Table
from matchlight.inputs.features import extract
from matchlight.pairs import Pairs

OWN, AUTO = "own", "auto"
WORDS = {"dim": 300, "rare": 3, "common": 1.0}  # how the word part is folded; its common words are for the ridge
WORD_WEIGHT = 0.6  # of the word part beside vectors of meaning
LEAST = 32  # pixels: the networks' own stride
BLOCK = 4096  # rows that are held in double precision at once


def picture_names(asked: str) -> list[str]:
    """The parts of `--pictures`: "own", or backbones joined by "+", each with "@pixels" or not; "auto" stands alone."""
    names = [name.strip() for name in asked.split("+")]
    if names == [AUTO]:
        return names
    for name in names:
        network, pixels = sized(name)
        known = network in lite.PLANS or network.startswith(("timm:", "hf:")) or name == OWN
        if not known or "@" in name and not (pixels and pixels >= LEAST):
            wanted = f"{AUTO}, or {', '.join((OWN, *lite.PLANS))}, timm:NAME, hf:NAME (@PIXELS) joined by '+'"
            raise BadInput(f"pictures={asked}: {name!r} is no kind of picture vector; known: {wanted}")
    return list(dict.fromkeys(names))


def sized(name: str) -> tuple[str, int | None]:
    """`lite2@260` as a network and its picture size; None where it is left to the device."""
    network, _, pixels = name.rpartition("@")
    return (network, int(pixels) if pixels.isdecimal() else None) if network else (name, None)


def picture_kinds(asked: str, pairs: Pairs) -> list[str]:
    """Which parts these data get; an audit's own features are lite0's, unless the data brought theirs."""
    names = picture_names(asked)
    look = pairs.pictures is not None and len(pairs.pictures) > 0
    if names == [AUTO]:
        names = [OWN, *(name for name in lite.PLANS if look and lite_weights.installed(name))]
    if not look and names != [OWN]:
        raise BadInput(f"pictures={asked}: {pairs.root} has features and no pictures to read; --pictures own would do")
    for name in names:
        if sized(name)[0] in lite.PLANS:
            lite_weights.weight_file(sized(name)[0])  # missing weights are told before anything slow begins
    made = "lite0" if pairs.features is None else None
    return list(dict.fromkeys(OWN if name == made else name for name in names))


def picture_parts(table: Table, pictures: np.ndarray, asked: str, device: torch.device) -> Tensor:
    """(p, D) the pictures' parts side by side; what has to be extracted for them is kept in the feature cache."""
    kinds = picture_kinds(asked, table.pairs)
    if kinds != [OWN]:
        own = "lite0" if table.pairs.features is None else "the features that came with them"
        say(f"pictures are compared by {', '.join(own if kind == OWN else kind for kind in kinds)}")
    return torch.cat([main_directions(_part(table, pictures, kind, device)) for kind in kinds], 1)


def _part(table: Table, pictures: np.ndarray, kind: str, device: torch.device) -> Tensor:
    """(p, d) one part at its scale: every number of the same spread, every picture about as long as any other."""
    if kind == OWN:
        found = mean_features(table, pictures)
    else:
        network, pixels = sized(kind)
        bare = replace(table.pairs, features=None)
        store = extract(bare, backbone=network, kind="pooled", size=pixels, device=device.type)
        found = torch.from_numpy(store.gather(pictures)).float()
    return standardised(found) / found.shape[1] ** 0.5


def main_directions(x: Tensor, *, most: int = WIDE) -> Tensor:
    """(N, d) -> (N, at most `most`): a part by itself, since the time this takes grows with the cube of d."""
    centre = x.double().mean(0)
    if x.shape[1] <= most:
        return (x - centre).float()
    spread = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64)
    for block in x.split(BLOCK):
        spread += (block - centre).T @ (block - centre)
    main = torch.linalg.eigh(spread)[1][:, -most:]
    return torch.cat([((block - centre) @ main).float() for block in x.split(BLOCK)])


def caption_parts(captions: list[str], meaning: Tensor | None, *, seed: int = 0) -> Tensor:
    """(n, D) vectors of meaning, where there are any, and of words side by side."""
    words = balanced(word_vectors(captions, seed=seed, **WORDS))  # type: ignore[arg-type]
    return words if meaning is None else torch.cat([balanced(meaning), WORD_WEIGHT * words], 1)


def balanced(x: Tensor) -> Tensor:
    """Centred, and on average of length one."""
    x = x.float().cpu()
    x = x - x.mean(0)
    return x / x.square().sum(1).mean().sqrt().clamp(min=1e-12)
