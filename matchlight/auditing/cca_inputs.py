"""What canonical correlation compares: several kinds of fixed vectors of pictures and of captions, side by side.

Two networks that read the same picture make different mistakes, and a rare word is lost in a sentence vector; together
they separate wrong pairs better than the best of them alone. Every kind is brought to one scale first, so that none
dominates for having larger numbers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from matchlight.auditing.item_vectors import mean_features, standardised, tfidf_vectors
from matchlight.console import say
from matchlight.core import BadInput
from matchlight.inputs.backbones import is_backbone, lite, lite_weights
from matchlight.inputs.batches import Table
from matchlight.inputs.features import extract
from matchlight.inputs.weights.ordinary_names import folder_of, opened_as_folder
from matchlight.pairs import Pairs
from matchlight.parts.canonical_correlation import WIDE

OWN, AUTO = "own", "auto"
TFIDF = {"dim": 300, "rare": 3, "common": 1.0}  # how word counts are reduced; the ridge deals with common words
WORD_WEIGHT = 0.6  # of word vectors beside sentence vectors
LEAST = 32  # pixels: the networks' own stride
BLOCK = 4096  # rows that are held in double precision at once


def picture_names(chosen: str) -> list[str]:
    """The names in `--pictures`: "own", or backbones joined by "+", each with "@pixels" or not; "auto" stands alone."""
    names = [name.strip() for name in chosen.split("+")]
    if names == [AUTO]:
        return names
    for name in names:
        network, pixels = sized(name)
        known = name == OWN or is_backbone(network)
        if not known or "@" in name and not (pixels and pixels >= LEAST):
            plain = ", ".join((OWN, *lite.PLANS, *opened_as_folder("picture")))
            wanted = f"{AUTO}, or {plain}, timm:NAME, hf:NAME (@PIXELS) joined by '+'"
            raise BadInput(f"pictures={chosen}: {name!r} is no kind of picture vector; known: {wanted}")
    return list(dict.fromkeys(names))


def sized(name: str) -> tuple[str, int | None]:
    """`lite2@260` as a network and its picture size; None where it is left to the device."""
    network, _, pixels = name.rpartition("@")
    return (network, int(pixels) if pixels.isdecimal() else None) if network else (name, None)


def picture_kinds(chosen: str, pairs: Pairs) -> list[str]:
    """Which kinds of vectors these data get; an audit's own features are lite0's, unless the data brought theirs."""
    names = picture_names(chosen)
    look = pairs.pictures is not None and len(pairs.pictures) > 0
    if names == [AUTO]:
        names = [OWN, *(name for name in lite.PLANS if look and lite_weights.installed(name))]
    if not look and names != [OWN]:
        raise BadInput(f"pictures={chosen}: {pairs.root} has features and no pictures to read; --pictures own would do")
    for name in names:
        if sized(name)[0] in lite.PLANS:
            lite_weights.weight_file(sized(name)[0])  # missing weights are reported before anything slow begins
        folder_of(sized(name)[0], "picture")
    made = "lite0" if pairs.features is None else None
    return list(dict.fromkeys(OWN if name == made else name for name in names))


def picture_features(table: Table, pictures: np.ndarray, kinds: list[str], device: torch.device) -> list[Tensor]:
    """(p, d) the pictures' vectors of each kind; what is extracted is kept in the feature cache."""
    if kinds != [OWN]:
        own = "lite0" if table.pairs.features is None else "the features that came with them"
        say(f"pictures are compared by {', '.join(own if kind == OWN else kind for kind in kinds)}")
    return [_vectors(table, pictures, kind, device) for kind in kinds]


def _vectors(table: Table, pictures: np.ndarray, kind: str, device: torch.device) -> Tensor:
    """(p, d) one kind at its scale: every number of the same spread, every picture about as long as any other."""
    vectors = vectors_of_kind(table, pictures, kind, device)
    return standardised(vectors) / vectors.shape[1] ** 0.5


def vectors_of_kind(table: Table, pictures: np.ndarray, kind: str, device: torch.device) -> Tensor:
    """(p, d) as a network gives them."""
    if kind == OWN:
        return mean_features(table, pictures)
    network, pixels = sized(kind)
    bare = replace(table.pairs, features=None)
    store = extract(bare, backbone=network, kind="pooled", size=pixels, device=device.type)
    return torch.from_numpy(store.gather(pictures)).float()


def principal_components(x: Tensor, *, most: int = WIDE) -> Tensor:
    """(N, d) -> (N, at most `most`): each kind by itself, since the time this takes grows with the cube of d."""
    centre = x.double().mean(0)
    if x.shape[1] <= most:
        return (x - centre).float()
    spread = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64)
    for block in x.split(BLOCK):
        spread += (block - centre).T @ (block - centre)
    main = torch.linalg.eigh(spread)[1][:, -most:]
    return torch.cat([((block - centre) @ main).float() for block in x.split(BLOCK)])


def caption_features(captions: list[str], sentences: Tensor | None, *, seed: int = 0) -> Tensor:
    """(n, D) sentence vectors, where there are any, and word vectors side by side."""
    words = balanced(tfidf_vectors(captions, seed=seed, **TFIDF))  # type: ignore[arg-type]
    return words if sentences is None else torch.cat([balanced(sentences), WORD_WEIGHT * words], 1)


def balanced(x: Tensor) -> Tensor:
    """Centred, and on average of length one."""
    x = x.float().cpu()
    x = x - x.mean(0)
    return x / x.square().sum(1).mean().sqrt().clamp(min=1e-12)
