"""Label sets: one vector a picture, one a text, a class for each; from .h5, .mat, .npz, or Wikipedia's folder.

Arrays are found by name: {train,valid,test}_{imgs_deep,img,...} with _text(s)/_txt and _imgs_labels/_img_lab/... (MRL's
.h5, Pascal Sentence's one .mat an array), tr_/val_/te_ (INRIA), I_tr/T_tr/I_te/T_te with trImgCat/... (XMedia). Text
labels default to the picture's. Where there is no validation part, the first rows of test become it, as many as the
source's authors took (Wikipedia 231, NUS-WIDE 5,000, XMediaNet 4,000) or as `validation=` says.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from matchlight.console import BadInput, say
from matchlight.data.formats import array_files
from matchlight.data.formats.array_values import multi_hot, one_per_item, text_lines
from matchlight.data.formats.base import Format, Options
from matchlight.data.formats.safety import finite, inside
from matchlight.data.formats.sources import ArrayFeatures
from matchlight.pairs import Labels, Pairs

SUFFIXES = (".h5", ".hdf5", ".h5py", ".mat", ".npz")
PARTS = {"train": "train", "tr": "train", "test": "test", "te": "test"} | dict.fromkeys(
    ("valid", "val", "va", "dev"), "val"
)
KINDS = {
    "image": ("imgs_deep", "imgs", "img", "image", "images", "I", "I_CNN"),
    "text": ("text", "texts", "txt", "text_deep", "T", "T_BOW"),
    "image_label": (
        "imgs_labels",
        "img_labels",
        "img_lab",
        "image_labels",
        "images_labels",
        "ImgCat",
        "labels",
        "lab",
        "L",
    ),
    "text_label": ("texts_labels", "text_labels", "txt_labels", "txt_lab", "TxtCat"),
}
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names}
VALIDATION = {(2173, 693): 231, (42941, 28661): 5000, (32000, 8000): 4000}  # (train, test) rows -> val
WIKIPEDIA = ("raw_features.mat", "trainset_txt_img_cat.list", "testset_txt_img_cat.list")

Block = dict[str, np.ndarray]  # "image", "text", "image_label", "text_label" of one split


class LabelSet(Format):
    """Arrays by name: one file, or a folder of them."""

    name = "labelled"
    content = "features"

    def fits(self, path: Path) -> bool:
        """A file by its suffix, a folder by the names of the arrays in its files."""
        return complete(files(path)) if path.is_dir() else path.suffix.lower() in SUFFIXES

    def read(self, path: Path, options: Options) -> Pairs:
        """Read a label set: one file, or a folder of them."""
        paths = files(path) if path.is_dir() else [path]
        blocks: dict[str, Block] = {}
        for file in paths:
            for name, value in array_files.arrays(file, lambda name: role(name) is not None).items():
                split, kind = role(name) or ("", "")
                blocks.setdefault(split, {})[kind] = np.asarray(value)
        _check_counts(blocks, path)
        xmedia = any(name.endswith("ImgCat") for file in paths for name in array_files.names(file))
        return assemble(_with_validation(blocks, options, last=xmedia), path, self.name)


class Wikipedia(Format):
    """Wikipedia's folder: raw_features.mat and the two lists whose last column is the class."""

    name = "wikipedia"
    content = "features"

    def fits(self, path: Path) -> bool:
        """By names; one of its files alone, or a list that is missing, is told."""
        if not path.is_dir():
            if path.name == WIKIPEDIA[0] or path.name.endswith("_cat.list"):
                raise BadInput(f"{path}: is part of a folder; give the folder {path.parent}")
            return False
        if not (path / WIKIPEDIA[0]).exists() or not any(path.glob("*_cat.list")):
            return False
        for name in WIKIPEDIA:
            if not (path / name).exists():
                raise BadInput(f"{path}: looks like Wikipedia's folder, but {name} is missing")
        return True

    def read(self, path: Path, options: Options) -> Pairs:
        """Read Wikipedia's folder: raw_features.mat and the two lists whose last column is the class."""
        arrays = array_files.mat(inside(path, WIKIPEDIA[0]), lambda name: role(name) is not None)
        blocks: dict[str, Block] = {}
        names: list[str] = []
        for split, short, file in (("train", "tr", WIKIPEDIA[1]), ("test", "te", WIKIPEDIA[2])):
            cells = [line.split("\t") for line in text_lines(inside(path, file))]
            classes = _classes(cells, path / file)
            if f"I_{short}" not in arrays or f"T_{short}" not in arrays:
                raise BadInput(f"{path / WIKIPEDIA[0]}: needs I_{short} and T_{short}")
            blocks[split] = {"image": arrays[f"I_{short}"], "text": arrays[f"T_{short}"], "image_label": classes}
            names += [cell[-2] if len(cell) > 1 else cell[0] for cell in cells]
        _check_counts(blocks, path)
        categories = path / "categories.list"
        spelled = text_lines(inside(path, categories.name)) if categories.is_file() else None
        unique = names if len(set(names)) == len(names) else [f"{row}:{name}" for row, name in enumerate(names)]
        return assemble(_with_validation(blocks, options), path, self.name, names=unique, classes=spelled)


def role(name: str) -> tuple[str, str] | None:
    """(split, kind) of an array by its name; None if it is none of ours."""
    patterns = (r"(train|valid|val|dev|test|tr|te)_(\w+)", r"(tr|te|va)((?:Img|Txt)Cat)")
    for pattern in patterns:
        match = re.fullmatch(pattern, name)
        if match and match[2] in KIND_OF:
            return PARTS[match[1]], KIND_OF[match[2]]
    match = re.fullmatch(r"([ITL])_(tr|te|va|val)(_CNN|_BOW)?", name)
    return (PARTS[match[2]], KIND_OF[match[1]]) if match else None


def files(folder: Path) -> list[Path]:
    """The files of a folder that hold arrays of ours."""
    paths = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in SUFFIXES and path.is_file()]
    return [path for path in paths if any(role(name) for name in array_files.names(inside(folder, path.name)))]


def complete(paths: list[Path]) -> bool:
    """True if the files together have pictures and texts of one split."""
    roles = {role(name) for path in paths for name in array_files.names(path)}
    return any((split, "image") in roles and (split, "text") in roles for split in ("train", "val", "test"))


def _classes(cells: list[list[str]], file: Path) -> np.ndarray:
    for line, cell in enumerate(cells, 1):
        if re.fullmatch(r"[0-9]{1,9}", cell[-1].strip()) is None:
            raise BadInput(f"{file} line {line}: the last column must be the class, a whole number")
    return np.array([int(cell[-1]) for cell in cells], dtype=np.int64)


def _check_counts(blocks: dict[str, Block], path: Path) -> None:
    """Every split has pictures and texts, as many of one as of the other: one short would shift all behind it."""
    if not any("image" in block and "text" in block for block in blocks.values()):
        raise BadInput(f"{path}: no arrays of pictures and texts; train_img, train_txt and train_img_lab would do")
    for split, block in blocks.items():
        missing = [name for name, kind in (("pictures", "image"), ("texts", "text")) if kind not in block]
        if missing:
            found = ", ".join(kind.replace("_", " ") for kind in sorted(block))
            raise BadInput(f"{path}: {split} has no {' and no '.join(missing)}, only arrays of {found}; add them")
        pictures, texts = (len(np.atleast_1d(block[kind])) for kind in ("image", "text"))
        if pictures != texts:
            wanted = "there must be one text for each picture"
            raise BadInput(f"{path}: {split} has {pictures} pictures but {texts} texts; {wanted}")


def _with_validation(blocks: dict[str, Block], options: Options, *, last: bool = False) -> dict[str, Block]:
    """The first rows of test become val where there is none (XMedia: all but the first 500 do)."""
    if "val" in blocks or "test" not in blocks:
        return blocks
    test = blocks["test"]
    rows = len(test["image"])
    known = VALIDATION.get((len(blocks.get("train", test)["image"]), rows), 0)
    count = known if options.validation is None else options.validation
    if last and options.validation is None and rows > 500:
        order = np.r_[500:rows, :500]
        test, count = {kind: one_per_item_of(value, rows)[order] for kind, value in test.items()}, rows - 500
    if not 0 <= count < rows:
        raise BadInput(f"validation={count}: test has {rows} rows, of which at least one must stay")
    if count == 0:
        return blocks
    split = {kind: one_per_item_of(value, rows) for kind, value in test.items()}
    val = {kind: value[:count] for kind, value in split.items()}
    rest = {kind: value[count:] for kind, value in split.items()}
    return {**blocks, "val": val, "test": rest}


def one_per_item_of(value: np.ndarray, rows: int) -> np.ndarray:
    """A (1, N) row of labels as (N,), so that it can be cut by item."""
    return one_per_item(value) if value.ndim == 2 and len(value) != rows else value


def assemble(
    blocks: dict[str, Block],
    path: Path,
    format: str,
    names: list[str] | None = None,
    classes: list[str] | None = None,
) -> Pairs:
    """One data set of the blocks, in the order train, val, test."""
    order = [split for split in ("train", "val", "test") if split in blocks]
    image = _stacked([blocks[split]["image"] for split in order], f"{path} pictures")
    text = _stacked([blocks[split]["text"] for split in order], f"{path} texts")
    where = [f"{split}/{row}" for split in order for row in range(len(blocks[split]["image"]))]
    return Pairs(
        names=names or where,
        captions=[""] * len(text),
        picture=np.arange(len(image)),
        splits=np.concatenate([np.full(len(blocks[split]["image"]), split) for split in order]),
        features=ArrayFeatures(image, f"{path} pictures"),
        text_features=finite(text, f"{path} texts"),
        labels=_labels([blocks[split] for split in order], path, classes),
        root=path if path.is_dir() else path.parent,
        format=format,
    )


def _stacked(parts: list[np.ndarray], where: str) -> np.ndarray:
    if any(part.ndim not in (2, 3) for part in parts) or len({part.shape[1:] for part in parts}) > 1:
        shapes = ", ".join(str(part.shape) for part in parts)
        raise BadInput(f"{where}: shapes {shapes}; every split needs (n, dim) with one dim")
    return np.concatenate(parts).astype(np.float32, copy=False)


def _labels(blocks: list[Block], path: Path, classes: list[str] | None) -> Labels | None:
    bare = ["image_label" not in block and "text_label" not in block for block in blocks]
    if any(bare):
        if not all(bare):
            say(f"{path}: {sum(bare)} of {len(bare)} splits have no labels: the labels of the others are left out")
        return None
    image = [block.get("image_label", block.get("text_label")) for block in blocks]
    text = [block.get("text_label", block.get("image_label")) for block in blocks]
    sides = [one_per_item(np.asarray(side)) for side in [*image, *text]]
    for block, side in zip(blocks + blocks, sides, strict=True):
        if len(side) != len(block["image"]):
            raise BadInput(f"{path}: {len(side)} labels for {len(block['image'])} items")
    names, hot = multi_hot(sides, str(path), classes)
    half = len(blocks)
    return Labels(names, np.concatenate(hot[:half]), np.concatenate(hot[half:]))
