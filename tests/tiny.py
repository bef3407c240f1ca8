"""Data sets small enough to check by hand: pictures whose regions show the words of their captions."""

from __future__ import annotations

import io
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from matchlight.inputs.prepare import View
from matchlight.pairs import Labels, Pairs

WORDS = "apple ball cat dog egg fish goat hat ink jar kite lamp moon nest owl pig".split()


JOINT = "MATCHLIGHT_TESTS_JOINT_MODEL"


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


class Painted:
    """Pictures held in memory: each shows its three things as stripes of their colours."""

    def __init__(self, shown: np.ndarray):
        self.shown = shown

    def __len__(self) -> int:
        return len(self.shown)

    def open(self, index: int) -> Image.Image:
        colours = np.random.default_rng(7).integers(0, 256, (len(WORDS), 3), dtype=np.uint8)
        stripes = np.repeat(colours[self.shown[index]], 10, axis=0)
        return Image.fromarray(np.repeat(stripes[:, None], 40, axis=1))

    def read(self, index: int) -> bytes:
        file = io.BytesIO()
        self.open(index).save(file, "PNG")
        return file.getvalue()

    def stamp(self, index: int) -> str:
        return str(self.shown[index].tolist())

    def take(self, index: np.ndarray) -> Painted:
        return Painted(self.shown[index])


def tiny_pictures(pictures: int = 24, captions: int = 2, *, seed: int = 0, held: int = 6) -> Pairs:
    """The same with pictures in place of features."""
    pairs = tiny_pairs(pictures, captions, seed=seed, held=held)
    first = [pairs.captions[place].replace("a ", "", 1) for place in np.arange(pictures) * captions]
    shown = np.array([[WORDS.index(word) for word in caption.split(" near ")] for caption in first])
    return replace(pairs, features=None, pictures=Painted(shown))


def tiny_joint_model() -> str:
    """The name of a joint model, made once; processes that are started later use the same."""
    from tests.joint import make

    if JOINT not in os.environ:
        os.environ[JOINT] = str(make("clip", Path(tempfile.mkdtemp(prefix="matchlight-tests-"))))
    return f"hf:{os.environ[JOINT]}"


def tiny_bert(folder: Path) -> str:
    """A BERT of one narrow layer that knows the words of the tiny data, as `sentences=` names it."""
    import torch
    import transformers

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "and", "near", "again", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(pieces))
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    transformers.BertModel(transformers.BertConfig(vocab_size=len(pieces), **shape)).save_pretrained(folder)
    return f"hf:{folder}"


def pairs_for(name: str, **sizes: int) -> Pairs:
    """Tiny data as a method wants it: pictures where it is a joint model, else features."""
    return tiny_pictures(**sizes) if name == "dual" else tiny_pairs(**sizes)


def view_for(name: str) -> View:
    """How a method reads them."""
    return View("pixels", joint=tiny_joint_model()) if name == "dual" else View("given")


SETTINGS = {"dim": 16, "hidden": 8, "word_dim": 8, "batch": 8, "epochs": 2, "rate": 2e-3}
SETTINGS |= {"sim_dim": 8, "saf_epochs": 0}  # SGR, SAF, SGRAF
SETTINGS |= {"caption_hidden": 8, "caption_word_dim": 8}  # VSRN's decoder
SETTINGS |= {"first": 1}  # AOQ: a first round of one epoch
SETTINGS |= {"head_dim": 8, "sentences": None}  # DivE; Lantern without its sentence encoder


def tiny_settings(defaults: dict[str, object]) -> dict[str, object]:
    """Overrides that make any recipe tiny: the ones it knows."""
    joint = {"model": tiny_joint_model(), "crop": 1.0} if "model" in defaults else {}
    return {name: value for name, value in SETTINGS.items() if name in defaults} | joint
