"""captions.jsonl: one object a line, {"image", "captions", "split"?, "labels"?, "caption_labels"?}; pictures beside it.

`caption_labels` (one list a caption) is there only where texts carry other classes than their picture, as under label
noise. `metadata.jsonl` with `file_name` and `text` reads too. Newlines inside a caption are kept (JSON escapes them).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from matchlight.console import BadInput
from matchlight.data.formats.annotations import Annotations
from matchlight.data.formats.base import Format, Options
from matchlight.data.formats.export import copy_pictures, entries, write_relevance
from matchlight.data.formats.picture_files import with_pictures_beside
from matchlight.data.formats.safety import inside
from matchlight.files import Json
from matchlight.pairs import Pairs

FILES = ("captions.jsonl", "metadata.jsonl")
IMAGE = ("image", "file_name", "filename")
CAPTIONS = ("captions", "caption", "text")


class JsonLines(Format):
    """A folder with captions.jsonl, or the file itself."""

    name = "jsonl"

    def fits(self, path: Path) -> bool:
        """By name."""
        return bool(_files(path)) if path.is_dir() else path.suffix.lower() == ".jsonl"

    def read(self, path: Path, options: Options) -> Pairs:
        """Read captions.jsonl (the file, or the folder that holds it)."""
        if path.is_dir():
            if not (names := _files(path)):
                raise BadInput(f"{path}: no {FILES[0]}")
            path = inside(path, names[0])
        table = Annotations(path)
        for number, entry in _lines(path):
            table.add(
                _first(entry, IMAGE),
                _first(entry, CAPTIONS),
                split=entry.get("split"),
                labels=entry.get("labels"),
                caption_labels=entry.get("caption_labels"),
                where=number,
            )
        return with_pictures_beside(table, self.name, path.parent, options)

    def write(self, pairs: Pairs, out: Path) -> None:
        """captions.jsonl and images/ (the files as they are), and relevance.npz where it is known."""
        names = copy_pictures(pairs, out / "images")
        with open(out / "captions.jsonl", "w", encoding="utf-8", newline="\n") as file:
            for entry in entries(pairs, names):
                file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        write_relevance(pairs, out)


def _files(folder: Path) -> list[str]:
    return [name for name in FILES if os.path.lexists(folder / name)]


def _first(entry: dict[str, Json], keys: tuple[str, ...]) -> Json:
    return next((entry[key] for key in keys if key in entry), None)


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Json]]]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
            except (ValueError, RecursionError) as error:
                raise BadInput(f"{path} line {number}: not a JSON object ({_reason(error)})") from error
            if not isinstance(entry, dict):
                raise BadInput(
                    f'{path} line {number}: not a JSON object like {{"image": "a.jpg", "captions": ["..."]}}'
                )
            yield number, entry


def _reason(error: BaseException) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error).splitlines()[0][:80]
