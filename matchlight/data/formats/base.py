"""What a format is: one class that knows its files when it sees them, reads them, and may write them.

Ours are such classes; another package adds one under the entry point `matchlight.formats` (see `matchlight.plugins`):

    class Pictionary(Format):
        name = "pictionary"

        def fits(self, path: Path) -> bool:
            return path.is_dir() and (path / "pictionary.txt").is_file()

        def read(self, path: Path, options: Options) -> Pairs:
            lines = Annotations(path / "pictionary.txt")
            for number, line in enumerate(text_lines(path / "pictionary.txt"), 1):
                image, caption = line.split(maxsplit=1)
                lines.add(image, caption, where=number)
            return with_pictures_beside(lines, self.name, path, options)

`annotations.py` collects captions line by line, `picture_files.py` finds the pictures they name, `export.py` is what
writers share. A format of arrays makes a `Pairs` itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from matchlight.console import BadInput
from matchlight.data.formats.decoding import MAX_PIXELS
from matchlight.pairs import Pairs


@dataclass(frozen=True)
class Options:
    """What a caller of `read` may choose."""

    format: str | None = None  # force a reader instead of looking
    seed: int = 0  # of the 90/5/5 split where the data has none
    max_pixels: int = MAX_PIXELS  # larger pictures are refused one by one
    split: str | None = None  # all that lies there is of this split: a folder train/ beside test/
    validation: int | None = None  # label sets without one: this many first rows of test become val
    without: tuple[str, ...] = ()  # files of a folder of shards that are left out


class Format(ABC):
    """One way a data set can lie on the disk."""

    name: ClassVar[str]  # `Pairs.read(path, format=NAME)`, `matchlight data convert --to NAME`
    content: ClassVar[Literal["pictures", "features"]] = "pictures"  # what its written files hold
    file: ClassVar[str | None] = None  # a data set is one file, of this name where a folder is asked for

    @abstractmethod
    def fits(self, path: Path) -> bool:
        """Whether this file or folder is of this format, judged by names and as little content as will do."""

    @abstractmethod
    def read(self, path: Path, options: Options) -> Pairs:
        """The data set; what cannot be read is a `BadInput` of one line that names the file."""

    def shards(self, path: Path) -> list[Path]:
        """The files of a folder, where each is a data set that can be read by itself."""
        return []

    def write(self, pairs: Pairs, out: Path) -> None:
        """Fill the empty folder `out` (formats of one `file`: write that file); optional."""
        raise BadInput(f"{self.name} can be read but not written")

    @property
    def writes(self) -> bool:
        """Whether it can be written at all."""
        return type(self).write is not Format.write

    def obstacle(self, pairs: Pairs) -> str | None:
        """Why its files cannot hold this data set, as the end of a sentence; None: they can."""
        if self.content == "features":
            if pairs.features is not None:
                return None
            return f"its pictures are pixels, which {self.name} cannot hold; --to jsonl, csv, parquet or webdataset can"
        if pairs.pictures is None or pairs.text_features is not None:
            what = "texts are vectors" if pairs.text_features is not None else "pictures are precomputed features"
            return f"its {what}, which {self.name} cannot hold; --to npz can"
        return None
