"""Data sets small enough to check by hand: pictures whose regions show the words of their captions."""

from __future__ import annotations

import numpy as np

from matchlight.pairs import Labels, Pairs

WORDS = "apple ball cat dog egg fish goat hat ink jar kite lamp moon nest owl pig".split()


class Arrays:
    """Features held in memory."""

    def __init__(self, array: np.ndarray):
        self.array = array
        self.shape = array.shape

    def __len__(self) -> int:
        return len(self.array)

    def gather(self, index: np.ndarray) -> np.ndarray:
        return self.array[index]

    def stamp(self) -> str:
        return str(self.array.sum())

    def take(self, index: np.ndarray) -> Arrays:
        return Arrays(self.array[index])


def tiny_pairs(
    pictures: int = 24, captions: int = 2, *, regions: int = 5, dim: int = 12, seed: int = 0, held: int = 6
) -> Pairs:
    """Each picture shows three things, one a region; each caption names them in some order."""
    rng = np.random.default_rng(seed)
    look = rng.normal(size=(len(WORDS), dim))
    shown = np.stack([rng.choice(len(WORDS), 3, replace=False) for _ in range(pictures)])
    features = 0.3 * rng.normal(size=(pictures, regions, dim))
    features[:, :3] += look[shown]
    texts = [_caption(rng, shown[i], k) for i in range(pictures) for k in range(captions)]
    picture = np.repeat(np.arange(pictures), captions)
    hot = np.zeros((pictures, 4), dtype=bool)
    hot[np.arange(pictures), shown[:, 0] % 4] = True
    splits = np.array(["train"] * (pictures - 2 * held) + ["val"] * held + ["test"] * held)
    return Pairs(
        names=[f"p{i}" for i in range(pictures)],
        captions=texts,
        picture=picture,
        splits=splits,
        features=Arrays(features.astype(np.float32)),
        labels=Labels(["a", "b", "c", "d"], hot, hot[picture]),
    )


def _caption(rng: np.random.Generator, shown: np.ndarray, k: int) -> str:
    words = [WORDS[w] for w in rng.permutation(shown)]
    return " and ".join(words) if k % 2 else "a " + " near ".join(words) + " again" * (k // 2)


SETTINGS = {"dim": 16, "hidden": 8, "word_dim": 8, "batch": 8, "epochs": 2, "rate": 2e-3}
SETTINGS |= {"sim_dim": 8, "saf_epochs": 0}  # SGR, SAF, SGRAF
SETTINGS |= {"caption_hidden": 8, "caption_word_dim": 8}  # VSRN's decoder
SETTINGS |= {"first": 1}  # AOQ: a first round of one epoch
SETTINGS |= {"head_dim": 8, "sentences": None}  # DivE; Lantern without its sentence encoder


def tiny_settings(defaults: dict[str, object]) -> dict[str, object]:
    """Overrides that make any recipe tiny: the ones it knows."""
    return {name: value for name, value in SETTINGS.items() if name in defaults}
