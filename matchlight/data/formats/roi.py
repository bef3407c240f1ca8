"""Regions and tags (the layout of the label-wise transformer's data): {split}_preim.npy with {split}_tag.mat.

Texts are tags: the columns set in `_tag.mat` (key `feat`), spelled by `common_tags.txt` or `TagList1k.txt`, in the
list's order. Labels come from `_label.mat`, boxes from `_box.npy` with `_hw.npy` as corners and area in parts
of the picture, classes of the regions (the likeliest of a detector's) from `_cls.npy`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from matchlight.console import BadInput
from matchlight.data.formats.annotations import split_name
from matchlight.data.formats.array_files import mat
from matchlight.data.formats.array_values import text_lines
from matchlight.data.formats.base import Format, Options
from matchlight.data.formats.boxes import region_classes
from matchlight.data.formats.safety import inside, load_npy
from matchlight.data.formats.scan_folder import ORDER, Part, _boxes, _existing, _ids, assemble, vocabulary
from matchlight.pairs import Pairs

LISTS = ("common_tags.txt", "TagList1k.txt")


class RegionsAndTags(Format):
    """A folder with {split}_preim.npy."""

    name = "roi"
    content = "features"

    def fits(self, path: Path) -> bool:
        """By names."""
        return path.is_dir() and any(path.glob("*_preim.npy"))

    def read(self, path: Path, options: Options) -> Pairs:
        """Read a folder of regions and tags."""
        names = [file.name.removesuffix("_preim.npy") for file in path.glob("*_preim.npy")]
        names.sort(key=lambda name: (ORDER.get(name, 4), name))
        tags = _existing(path, *LISTS)
        if tags is None:
            raise BadInput(f"{path}: no {LISTS[0]}, which spells the tags one a line")
        words = [line.split()[0] if line else "" for line in text_lines(tags)]
        return assemble([_part(path, name, words) for name in names], path, self.name, vocabulary(path))


def _part(folder: Path, name: str, words: list[str]) -> Part:
    features, file = inside(folder, f"{name}_preim.npy"), inside(folder, f"{name}_tag.mat")
    pictures = len(load_npy(features, kinds="fiu"))
    tags, labels = _feat(file, pictures), _existing(folder, f"{name}_label.mat")
    if tags.shape[1] > len(words):
        raise BadInput(f"{file}: {tags.shape[1]} tags, but the list spells {len(words)}")
    hot = None if labels is None else _feat(labels, pictures)
    return Part(
        name=split_name(name, str(file)),
        file=file,
        captions=[" ".join(words[place] for place in np.flatnonzero(row)) for row in tags],
        tokens=None,
        features=features,
        picture=np.arange(pictures),
        names=_ids(folder, name, pictures, pictures) or [f"{name}/{row}" for row in range(pictures)],
        boxes=_boxes(folder, name, pictures),
        objects=region_classes(folder, name, pictures),
        image_labels=hot,
        text_labels=hot,
    )


def _feat(path: Path, pictures: int) -> np.ndarray:
    if not path.is_file():
        raise BadInput(f"{path}: missing; it holds the tags of each picture (key feat)")
    features = mat(path, lambda name: name == "feat").get("feat")
    if features is None or features.ndim != 2 or len(features) != pictures:
        raise BadInput(
            f"{path}: needs `feat` with {pictures} rows" + ("" if features is None else f", not {features.shape}")
        )
    return features > 0
