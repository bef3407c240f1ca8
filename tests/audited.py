"""Signals of made-up pairs whose truth is known: what stage one of an audit would gather, without any training."""

from __future__ import annotations

import numpy as np

from matchlight.pairs import Pairs

NAMES = ("own", "i2t", "t2i", "i2t_rank", "t2i_rank", "i2t_z", "t2i_z")


def made_up(
    pictures: int = 400,
    captions: int = 3,
    *,
    noise: float = 0.3,
    together: bool = False,
    apart: float = 3.0,
    seed: int = 0,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Signals of `pictures` x `captions` pairs, and which of them are wrong; `apart` is how well models can tell."""
    rng = np.random.default_rng(seed)
    n = pictures * captions
    picture = np.repeat(np.arange(pictures), captions)
    bad = (rng.random(pictures) < noise)[picture] if together else rng.random(n) < noise
    found = {
        "rows": np.arange(n),
        "fold": picture % 5,
        "picture": picture,
        "group": np.arange(pictures),
        "lost": np.zeros(0, dtype=np.int64),
        "wrong": (np.arange(n) + 5 * captions) % n,
        "decoy": rng.random(n) < 0.1,
    }
    for end, wrong in (("", bad), ("_wrong", np.ones(n, dtype=bool))):
        found |= _answers(rng, wrong, apart, end)
        for space in ("", "free_"):
            for kind in ("text", "photo"):
                found[f"{space}{kind}{end}_rows"] = rng.integers(n, size=(n, 4))
                found[f"{space}{kind}{end}"] = _around(rng, np.where(wrong, 0.0, 0.3), 4)
            found |= _siblings(rng, picture, captions, bad, end, space, together=together)
    trained_wrong = np.where(found["decoy"], True, bad)
    level = np.where(trained_wrong, 5.0, 2.0) + rng.normal(size=n)
    found["history"] = (level + 0.3 * rng.normal(size=(6, n))).astype(np.float16)
    found |= _partners(rng, n, pictures)
    return found, bad


def _answers(rng: np.random.Generator, wrong: np.ndarray, apart: float, end: str) -> dict[str, np.ndarray]:
    level = np.where(wrong, 0.0, apart)
    values = {name: level + rng.normal(size=len(wrong)) for name in NAMES}
    for way in ("i2t", "t2i"):
        values[way] = 8.0 - values[way]
        values[f"{way}_rank"] = 1 / (1 + np.exp(values[f"{way}_rank"]))
    return {f"{name}{end}": value.astype(np.float32) for name, value in values.items()}


def _around(rng: np.random.Generator, level: np.ndarray, width: int) -> np.ndarray:
    return (level[:, None] + 0.3 * rng.normal(size=(len(level), width))).astype(np.float16)


def _siblings(
    rng: np.random.Generator,
    picture: np.ndarray,
    captions: int,
    bad: np.ndarray,
    end: str,
    space: str,
    *,
    together: bool,
) -> dict[str, np.ndarray]:
    """Two captions agree if both are right, or if both moved together."""
    n = len(picture)
    others = np.array([[j for j in range(p * captions, (p + 1) * captions) if j != i] for i, p in enumerate(picture)])
    others = others.reshape(n, captions - 1) if captions > 1 else np.full((n, 1), -1)
    if captions == 1:
        return {f"{space}sibling{end}_rows": others, f"{space}sibling{end}": np.full((n, 1), np.nan, dtype=np.float16)}
    agree = np.zeros_like(others, dtype=bool) if end else (~bad[:, None] & ~bad[others]) | together
    value = np.where(agree, 0.5, 0.1) + 0.15 * rng.normal(size=others.shape)
    return {f"{space}sibling{end}_rows": others, f"{space}sibling{end}": value.astype(np.float16)}


def _partners(rng: np.random.Generator, n: int, pictures: int) -> dict[str, np.ndarray]:
    return {
        "other_picture": rng.integers(pictures, size=(n, 3)).astype(np.int32),
        "other_picture_share": np.tile(np.array([0.6, 0.1, 0.05], dtype=np.float32), (n, 1)),
        "other_caption": rng.integers(n, size=(n, 3)).astype(np.int32),
        "other_caption_share": np.tile(np.array([0.1, 0.05, 0.02], dtype=np.float32), (n, 1)),
        "own_share": np.full(n, 0.01, dtype=np.float32),
    }


def named(pictures: int, captions: int) -> Pairs:
    """A data set of that shape, in memory."""
    picture = np.repeat(np.arange(pictures), captions)
    texts = [f"caption {k} of picture {p}" for p in range(pictures) for k in range(captions)]
    return Pairs([f"p{i}.png" for i in range(pictures)], texts, picture, np.full(pictures, "train"))
