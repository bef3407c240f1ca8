"""Which format a folder or file is in: judged by file names, and by array names where a file could be anything."""

from __future__ import annotations

from pathlib import Path

from matchlight.core import BadInput
from matchlight.data.formats import csv_tables, jsonl, karpathy, labelled, pairs_npz, scan_folder, webdataset
from matchlight.data.formats.decoding import SUFFIXES
from matchlight.data.formats.safety import inside

BY_SUFFIX = {
    ".jsonl": "jsonl",
    ".json": "karpathy",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".tar": "webdataset",
    ".mat": "labelled",
    ".h5": "labelled",
    ".hdf5": "labelled",
    ".h5py": "labelled",
}
EXAMPLE = '{"image": "a.jpg", "captions": ["a dog on a beach"]}'
KNOWN = (
    "captions.jsonl with images/ or images.tar, a CSV or Parquet file, WebDataset shards, {split}_ims.npy with "
    "{split}_caps.txt, dataset_*.json, or label sets in .mat, .h5 or .npz"
)


def detect(path: str | Path) -> str:
    """The name of the format, or one clear line that says what would have been understood."""
    return place_of(Path(path), None)[1]


def place_of(path: Path, forced: str | None) -> tuple[Path, str]:
    """Where the data is (`data/` of a folder that holds nothing else we know) and its format."""
    if not path.exists():
        raise BadInput(f"{path}: no such file or folder")
    if forced is not None:
        return path, forced
    if not path.is_dir():
        return path, _of_file(path)
    found = _of_folder(path)
    if found is not None:
        return path, found
    below = path / "data"
    if below.is_dir() and (found := _of_folder(inside(path, "data"))):
        return below, found
    raise BadInput(_complaint(path))


def _of_file(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return "npz" if pairs_npz.ours(path) else "labelled"
    if path.name == "raw_features.mat" or path.name.endswith("_cat.list"):
        raise BadInput(f"{path}: is part of a folder; give the folder {path.parent}")
    if suffix in (".npy", ".txt") and scan_folder.CAPTIONS.fullmatch(path.name):
        return "scan"
    if suffix == ".txt" and csv_tables.recognised(path):
        return "csv"
    if suffix in SUFFIXES:
        raise BadInput(f"{path}: is a picture; a data set is {KNOWN}")
    if suffix not in BY_SUFFIX:
        raise BadInput(f"{path}: not a data set; known are {KNOWN}")
    return BY_SUFFIX[suffix]


def _of_folder(path: Path) -> str | None:
    names = {entry.name for entry in path.iterdir()}
    if any(name in names for name in jsonl.FILES):
        return "jsonl"
    if pairs_npz.FILE in names and pairs_npz.ours(inside(path, pairs_npz.FILE)):
        return "npz"
    if _is_scan(names):
        return "scan"
    if "raw_features.mat" in names and any(name.endswith("_cat.list") for name in names):
        return _wikipedia(path, names)
    if any(name.endswith("_preim.npy") for name in names):
        return "roi"
    if karpathy.find(path) is not None:
        return "karpathy"
    return _by_content(path, names)


def _is_scan(names: set[str]) -> bool:
    """Captions of a split; captions.txt and other tables are not."""
    return any(scan_folder.CAPTIONS.fullmatch(name) for name in names)


def _wikipedia(path: Path, names: set[str]) -> str:
    for name in labelled.WIKIPEDIA:
        if name not in names:
            raise BadInput(f"{path}: looks like Wikipedia's folder, but {name} is missing")
    return "wikipedia"


def _by_content(path: Path, names: set[str]) -> str | None:
    if csv_tables.find(path) is not None:
        return "csv"
    if any(name.endswith(".parquet") for name in names):
        return "parquet"
    if webdataset.shards_of(path):
        return "webdataset"
    return "labelled" if labelled.complete(labelled.files(path)) else None


def _complaint(path: Path) -> str:
    names = [entry.name for entry in path.iterdir()]
    if not names:
        return f"{path}: is empty; a data set is {KNOWN}"
    pictures = any(name.lower().endswith(SUFFIXES) for name in names)
    folder = path / "images"
    if pictures or "images.tar" in names or folder.is_dir():
        return f"{path}: has pictures but no captions; add captions.jsonl with lines like {EXAMPLE}"
    return f"{path}: no data set in it; known are {KNOWN}"
