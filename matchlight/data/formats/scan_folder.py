"""SCAN's precomputed folder: {split}_ims.npy with {split}_caps.txt, and the variants other code grew around it.

- captions: `_caps.txt`, one a line; `_caps.tsv` (CC152K: id, caption); `_precaps.txt` (BFAN: word ids with commas)
- pictures: `_ims.npy` or `_feat.npy` (IMRAM), (n, regions, dim) or (n, dim)
- beside them, where known: `_ids.txt`, `_boxes.npy` or `_box.npy` with `_hw.npy`, `_cls.npy` (classes of regions),
  `_labels.npy` or `_label.npy`, `_text_labels.npy` (ours: texts whose classes differ), `label_names.txt` (ours), a
  vocabulary JSON

With k captions a picture, caption c belongs to picture c // k; with as many pictures as captions, to picture c. `dev`
is `val` and is read whole (the authors' code looks at its first 5,000 captions only). Written captions lose newlines
and outer blanks, since a line is a caption.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from matchlight.console import BadInput
from matchlight.data.formats import scan_writer
from matchlight.data.formats.annotations import problem, split_name
from matchlight.data.formats.array_values import multi_hot, parts_of_picture, text_lines
from matchlight.data.formats.base import Format, Options
from matchlight.data.formats.boxes import joined_classes, region_classes
from matchlight.data.formats.safety import inside, load_npy
from matchlight.data.formats.sources import NpyFeatures
from matchlight.pairs import Labels, Pairs

CAPTIONS = re.compile(r"(.+)_(?:pre)?caps\.(?:txt|tsv)")
ORDER = {"train": 0, "dev": 1, "val": 1, "test": 2, "testall": 3}


class ScanFolder(Format):
    """A precomputed folder, or one of its caption files."""

    name = "scan"
    content = "features"

    def fits(self, path: Path) -> bool:
        """By names: captions of a split; captions.txt and other tables are not."""
        if path.is_dir():
            return bool(splits(path))
        return path.suffix.lower() == ".txt" and CAPTIONS.fullmatch(path.name) is not None

    def read(self, path: Path, options: Options) -> Pairs:
        """Read a precomputed folder."""
        folder = path if path.is_dir() else path.parent
        names = splits(folder)
        if not names:
            raise BadInput(
                f"{folder}: no {{split}}_caps.txt; a precomputed folder holds test_caps.txt with test_ims.npy"
            )
        parts = [_part(folder, name) for name in names]
        return assemble(parts, folder, self.name, vocabulary(folder))

    def write(self, pairs: Pairs, out: Path) -> None:
        """Split by split."""
        scan_writer.write(pairs, out)

    def obstacle(self, pairs: Pairs) -> str | None:
        """A line is a caption, and every picture of a split has the same number of them."""
        return super().obstacle(pairs) or scan_writer.obstacle(pairs)


@dataclass
class Part:
    """One split as its files give it."""

    name: str
    file: Path  # of the captions
    captions: list[str]
    tokens: list[list[int]] | None
    features: Path
    picture: np.ndarray
    names: list[str]
    boxes: np.ndarray | None
    image_labels: np.ndarray | None
    text_labels: np.ndarray | None
    objects: np.ndarray | None = None


def splits(folder: Path) -> list[str]:
    """The splits a folder has captions for, in the usual order."""
    names = {match[1] for path in folder.iterdir() if (match := CAPTIONS.fullmatch(path.name))}
    return sorted(names, key=lambda name: (ORDER.get(name, 4), name))


def assemble(parts: list[Part], folder: Path, format: str, vocab: Path | None = None) -> Pairs:
    """One data set of the splits; rows without words (and pictures left without rows) are skipped and counted."""
    starts = np.cumsum([0] + [len(part.names) for part in parts])
    captions = [caption for part in parts for caption in part.captions]
    picture = np.concatenate([part.picture + start for part, start in zip(parts, starts[:-1], strict=True)])
    tokens = _joined_tokens(parts)
    words = np.array([bool(text) or (tokens is not None and len(tokens[row]) > 0) for row, text in enumerate(captions)])
    rows = np.flatnonzero(words)
    if not len(rows):
        raise BadInput(f"{folder}: no caption holds a word")
    whole = Pairs(
        names=_unique(parts),
        captions=captions,
        picture=picture,
        splits=np.concatenate([np.full(len(part.names), part.name) for part in parts]),
        features=NpyFeatures([part.features for part in parts]),
        tokens=tokens,
        boxes=_joined_boxes(parts),
        objects=joined_classes([part.objects for part in parts], [len(part.names) for part in parts]),
        labels=_joined_labels(parts, folder),
        root=folder,
        format=format,
        problems=problem("empty", _empties(parts)),
        notes={"vocab": str(vocab)} if vocab else {},
    )
    kept = np.unique(picture[rows])
    if len(rows) == len(captions) and len(kept) == len(whole.names):
        return whole
    narrowed = whole.select(kept, rows)
    narrowed.notes.pop("rows")
    narrowed.notes.pop("pictures")
    narrowed.notes["kept"] = (len(captions), rows, len(whole.names), kept)
    return narrowed


def _part(folder: Path, name: str) -> Part:
    features = _existing(folder, f"{name}_ims.npy", f"{name}_feat.npy")
    if features is None:
        raise BadInput(f"{folder}: {name} has captions but neither {name}_ims.npy nor {name}_feat.npy")
    pictures = len(load_npy(features, kinds="fiu"))
    file, captions, ids, tokens = _texts(folder, name)
    each = _captions_each(len(captions), pictures, file, features)
    ids = ids or _ids(folder, name, pictures, len(captions))
    image_labels, text_labels = _labels(folder, name, pictures, len(captions), each)
    return Part(
        name=split_name(name, str(file)),
        file=file,
        captions=captions,
        tokens=tokens,
        features=features,
        picture=np.arange(len(captions)) // each,
        names=ids or [f"{name}/{row}" for row in range(pictures)],
        boxes=_boxes(folder, name, pictures),
        objects=region_classes(folder, name, pictures),
        image_labels=image_labels,
        text_labels=text_labels,
    )


def _existing(folder: Path, *names: str) -> Path | None:
    return next((inside(folder, name) for name in names if (folder / name).exists()), None)


def _captions_each(captions: int, pictures: int, file: Path, features: Path) -> int:
    if captions < pictures or captions % pictures:
        raise BadInput(
            f"{file}: {captions} captions for {pictures} pictures of {features.name}; "
            "there must be as many, or the same whole number of captions for each picture"
        )
    return captions // pictures


def _texts(folder: Path, name: str) -> tuple[Path, list[str], list[str] | None, list[list[int]] | None]:
    """The captions' file, their words, picture ids where a .tsv has them, word ids where there are any."""
    plain, table = _existing(folder, f"{name}_caps.txt"), _existing(folder, f"{name}_caps.tsv")
    coded = _existing(folder, f"{name}_precaps.txt")
    tokens = None if coded is None else _numbers(coded)
    ids = None
    if plain is not None:
        captions = text_lines(plain)
    elif table is not None:
        cells = [_columns(line, f"{table} line {n}") for n, line in enumerate(text_lines(table), 1)]
        ids, captions = [cell[0] for cell in cells], [cell[1] for cell in cells]
    else:
        captions = _spelled(tokens or [], vocabulary(folder))
    file = plain or table or coded
    assert file is not None
    if tokens is not None and len(tokens) != len(captions):
        raise BadInput(f"{coded}: {len(tokens)} lines, but {file.name} has {len(captions)}")
    if not captions:
        raise BadInput(f"{file}: is empty; it must hold one caption a line")
    return file, captions, ids, tokens


def _columns(line: str, at: str) -> tuple[str, str]:
    picture, tab, caption = line.partition("\t")
    if not tab:
        if line:
            raise BadInput(f"{at}: needs a picture id, a tab and a caption")
        return "", ""
    if len(caption) > 1 and caption[0] == caption[-1] == '"':
        caption = caption[1:-1].replace('""', '"')
    return picture.strip(), caption.strip()


def _numbers(path: Path) -> list[list[int]]:
    out = []
    for number, line in enumerate(text_lines(path), 1):
        try:
            out.append([int(word) for word in line.split(",") if word.strip()])
        except ValueError as error:
            raise BadInput(f"{path} line {number}: not word ids set apart by commas") from error
        if any(not 0 <= word < 2**31 for word in out[-1]):
            raise BadInput(f"{path} line {number}: a word id below 0 or too large")
    return out


def vocabulary(folder: Path) -> Path | None:
    """The vocabulary JSON beside the data (an object with word2idx), if there is one."""
    files = [folder / "vocab.json", *sorted(folder.glob("*vocab*.json"))]
    return next((inside(folder, path.name) for path in files if path.is_file()), None)


def _spelled(tokens: list[list[int]], vocab: Path | None) -> list[str]:
    """Words of coded captions by the vocabulary beside them; empty texts without one."""
    if vocab is None:
        return [""] * len(tokens)
    try:
        words = {int(place): word for word, place in json.loads(vocab.read_bytes())["word2idx"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"{vocab}: not a vocabulary; it needs an object word2idx") from error
    special = {"<pad>", "<start>", "<end>"}
    spelled = [[words.get(word, "<unk>") for word in caption] for caption in tokens]
    return [" ".join(word for word in caption if word not in special) for caption in spelled]


def _ids(folder: Path, name: str, pictures: int, captions: int) -> list[str] | None:
    path = _existing(folder, f"{name}_ids.txt", f"{name}_image_path.txt")
    if path is None:
        return None
    ids = text_lines(path)
    if len(ids) not in (pictures, captions):
        raise BadInput(f"{path}: {len(ids)} ids for {pictures} pictures")
    return ids if len(ids) == pictures else ids[:: captions // pictures]


def _boxes(folder: Path, name: str, pictures: int) -> np.ndarray | None:
    path = _existing(folder, f"{name}_boxes.npy", f"{name}_box.npy")
    if path is None:
        return None
    boxes, extent = load_npy(path), _existing(folder, f"{name}_hw.npy")
    if boxes.ndim != 3 or len(boxes) != pictures or boxes.shape[2] not in (4, 5):
        raise BadInput(f"{path}: shape {boxes.shape}; {pictures} x regions x 4 (or 5) is needed")
    sizes = None if extent is None else load_npy(extent)
    if sizes is not None and sizes.shape != (pictures, 2):
        raise BadInput(f"{extent}: shape {sizes.shape}; {pictures} x 2 (width, height) is needed")
    return parts_of_picture(boxes, sizes)


def _labels(
    folder: Path, name: str, pictures: int, captions: int, each: int
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Labels of pictures and texts; a file with a row a caption labels texts, and pictures by their first one."""
    path = _existing(folder, f"{name}_labels.npy", f"{name}_label.npy")
    if path is None:
        return None, None
    rows = np.asarray(load_npy(path))
    if len(rows) not in (pictures, captions):
        raise BadInput(f"{path}: {len(rows)} rows for {pictures} pictures")
    image = rows if len(rows) == pictures else rows[::each]
    own = _existing(folder, f"{name}_text_labels.npy")
    text = np.asarray(load_npy(own)) if own else rows if len(rows) == captions else rows.repeat(each, 0)
    if len(text) != captions:
        raise BadInput(f"{own}: {len(text)} rows for {captions} captions")
    return image, text


def _joined_tokens(parts: list[Part]) -> list[list[int]] | None:
    if any(part.tokens is None for part in parts):
        return None
    return [caption for part in parts for caption in part.tokens or []]


def _joined_boxes(parts: list[Part]) -> np.ndarray | None:
    boxes = [part.boxes for part in parts if part.boxes is not None]
    same = len({array.shape[1:] for array in boxes}) == 1
    return np.concatenate(boxes) if same and len(boxes) == len(parts) else None


def _joined_labels(parts: list[Part], folder: Path) -> Labels | None:
    """Labels of all splits; a split without any is unlabelled (no class at all)."""
    known = [part for part in parts if part.image_labels is not None and part.text_labels is not None]
    if not known:
        return None
    file = _existing(folder, "label_names.txt")
    names = None if file is None else text_lines(file)
    sides = [part.image_labels for part in known] + [part.text_labels for part in known]
    spelled, hot = multi_hot([side for side in sides if side is not None], str(folder), names)
    image = {id(part): side for part, side in zip(known, hot[: len(known)], strict=True)}
    text = {id(part): side for part, side in zip(known, hot[len(known) :], strict=True)}
    none = [np.zeros((0, len(spelled)), dtype=bool)]
    images = none + [image.get(id(part), np.zeros((len(part.names), len(spelled)), dtype=bool)) for part in parts]
    texts = none + [text.get(id(part), np.zeros((len(part.captions), len(spelled)), dtype=bool)) for part in parts]
    return Labels(spelled, np.concatenate(images), np.concatenate(texts))


def _unique(parts: list[Part]) -> list[str]:
    """The ids as names, with the split before them where two pictures would share one."""
    names = [name for part in parts for name in part.names]
    if len(set(names)) == len(names):
        return names
    names = [f"{part.name}/{name}" for part in parts for name in part.names]
    if len(set(names)) == len(names):
        return names
    return [f"{part.name}/{row}:{name}" for part in parts for row, name in enumerate(part.names)]


def _empties(parts: list[Part]) -> list[str]:
    return [
        f"{part.file} line {row + 1}"
        for part in parts
        for row, text in enumerate(part.captions)
        if not text and not (part.tokens and part.tokens[row])
    ]
