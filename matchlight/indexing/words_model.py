"""A dual encoder whose words are read without torch, which is loaded only when pictures are read.

ONNX Runtime reads them where the index keeps that reader as ONNX, NumPy where captions are read as starters read them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from PIL import Image

from matchlight.indexing.index_model import DataReader, IndexModel, Info, OneVector
from matchlight.indexing.item_sets import ItemSets
from matchlight.indexing.query_reader import QueryReader, TowerReader, WordTower
from matchlight.indexing.scorers import DotProduct
from matchlight.pairs import Pairs


class WordsModel(OneVector):
    """An `IndexModel` of a run in an index; `opened` opens the run itself."""

    def __init__(self, words: WordTower, info: Info, opened: Callable[[], IndexModel], scorer: DotProduct):
        self.words, self.info, self.folder, self._opened = words, info, words.path.parent, opened
        self.scorer = self.own_vectors = scorer

    @cached_property
    def run(self) -> IndexModel:
        """The run, by torch."""
        return self._opened()

    def mark(self) -> str:
        """Changes when its weights do."""
        return self.run.mark()

    def start(self) -> None:
        """Join the other processes of a build, if there are any."""
        self.run.start()

    def data(self, pairs: Pairs) -> DataReader:
        """A data set, as the run reads it."""
        return self.run.data(pairs)

    def reader(self, padding: int | None = None) -> WordsReader:
        """What reads questions."""
        sees = self.info["view"]["kind"] != "given"
        return WordsReader(self.words, lambda: self.run.reader(padding), sees=sees)

    def copy_to(self, folder: Path) -> None:
        """All that the run needs."""
        self.run.copy_to(folder)

    def keep_words(self, folder: Path) -> None:
        """What reads words, as ONNX."""
        self.run.keep_words(folder)


class WordsReader(TowerReader):
    """Reads words without torch, and pictures as the run does."""

    def __init__(self, words: WordTower, opened: Callable[[], QueryReader], *, sees: bool):
        super().__init__(words)
        self._opened, self._sees = opened, sees

    @property
    def sees(self) -> bool:
        """Whether the run reads pictures."""
        return self._sees

    @cached_property
    def run(self) -> QueryReader:
        """What reads pictures."""
        return self._opened()

    def pictures(self, pictures: list[Image.Image]) -> ItemSets:
        """One vector each."""
        return self.run.pictures(pictures)
