"""What an index asks of a model: to read data and questions, to compare, and to be kept in the index.

A run is one (`run_model.py`, by torch), an exported dual encoder another (`onnx_model.py`, by ONNX Runtime and NumPy).
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from matchlight.indexing import processes
from matchlight.indexing.item_sets import ItemSets
from matchlight.indexing.query_reader import QueryReader
from matchlight.indexing.scorers import OwnVectors, Scorer
from matchlight.measuring.chance import FILE as CHANCE
from matchlight.pairs import Pairs
from matchlight.runs.seen import SEEN

Info = dict[str, Any]  # what recipe.json holds; its values are checked where they are used

WORDS = "words.onnx"  # in the model's folder of an index: what reads words, by ONNX Runtime
KEPT = ("labels.json", "metrics.json", CHANCE, SEEN)  # of a run: what its outputs mean, how it was measured


class DataReader(Protocol):
    """A data set as a model reads it."""

    @property
    def pairs(self) -> Pairs:
        """The data set."""

    @property
    def broken(self) -> np.ndarray:
        """Places of pictures that cannot be read."""

    def encode(self, side: str, places: np.ndarray) -> ItemSets:
        """The sets of these pictures or captions, as they are to be stored."""

    def padding(self, rows: np.ndarray) -> int | None:
        """How far questions are padded, for a model that depends on it."""


class IndexModel(Protocol):
    """A model that makes and searches an index."""

    @property
    def folder(self) -> Path:
        """Where it came from."""

    @property
    def info(self) -> Info:
        """What recipe.json holds."""

    @property
    def scorer(self) -> Scorer:
        """What compares as it does."""

    @property
    def own_vectors(self) -> OwnVectors:
        """Its own vectors that propose candidates."""

    @property
    def keeps_padding(self) -> bool:
        """Whether its scores depend on the padding of captions."""

    @property
    def method(self) -> str:
        """The recipe's name."""

    def mark(self) -> str:
        """Changes when its weights do."""

    def start(self) -> None:
        """Join the other processes of a build, if there are any."""

    def data(self, pairs: Pairs) -> DataReader:
        """A data set, as it reads it."""

    def reader(self, padding: int | None = None) -> QueryReader:
        """What reads questions."""

    def inside(self, image: ItemSets, text: ItemSets) -> tuple[str, np.ndarray] | None:
        """How it was worked out (attention, slots), and (W, R) what each region of a picture is to each word.

        None: it has no inside to look at.
        """

    def copy_to(self, folder: Path) -> None:
        """Put all that it needs into an index."""

    def keep_words(self, folder: Path) -> None:
        """Put what reads words into it as ONNX too, so that searches by words begin without torch."""


class OneVector:
    """What every model says that compares one vector a side and reads questions without torch."""

    keeps_padding = False
    info: Info

    @property
    def method(self) -> str:
        """The recipe's name."""
        return str(self.info["name"])

    def start(self) -> None:
        """Join the other processes of a build, if there are any."""
        processes.join()

    def inside(self, image: ItemSets, text: ItemSets) -> tuple[str, np.ndarray] | None:
        """None: one vector says nothing of its parts."""
        return None

    def keep_words(self, folder: Path) -> None:
        """Nothing to do: it reads no question by torch."""


def copy_kept(source: Path, folder: Path) -> None:
    """What a run's folder knows of it, into an index."""
    for name in KEPT:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
