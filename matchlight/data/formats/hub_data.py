"""Data sets of the Hugging Face hub: hf-datasets:NAME is loaded by `datasets` (extra `hub-data`), folders are written.

`datasets` downloads and caches a data set as Arrow files, which are then read as those of any folder: pictures stay in
them until they are asked for. NAME is one of the hub (hf-datasets:nlphuji/flickr30k), with a configuration behind a
colon where it has several, or a folder (hf-datasets:./mine). Only data is loaded, never a script.

What `--to datasets` writes is a `save_to_disk` folder, a data set a split, one row a picture with all its captions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from matchlight.console import BadInput, say
from matchlight.data.fingerprints import fingerprint
from matchlight.data.formats.annotations import split_name
from matchlight.data.formats.arrow_folder import arrow_pairs
from matchlight.data.formats.base import Format, Options
from matchlight.data.formats.export import entries_with_bytes, write_relevance
from matchlight.data.formats.hub_features import LISTS, PICTURE, TEXTS, hub_features, hub_schema, split_file
from matchlight.data.formats.split_folders import USUAL
from matchlight.files import Json, write_json
from matchlight.pairs import Pairs

if TYPE_CHECKING:
    import datasets

PREFIX = "hf-datasets:"
PICTURES_BESIDE = "imagefolder"  # the loader that leaves pictures where they are and names their places itself
AT_ONCE = 64  # pictures of a batch, in memory together
COLUMNS = {"image": PICTURE, "captions": TEXTS, "split": "string"}
SHARD = "data-00000-of-00001.arrow"
LABELS = {"labels": TEXTS, "caption_labels": LISTS}


def is_hub(path: str | Path) -> bool:
    """Whether a path names a data set of the hub."""
    return str(path).startswith(PREFIX)


def read_hub(path: str, options: Options) -> Pairs:
    """hf-datasets:NAME or hf-datasets:NAME:CONFIGURATION, all splits."""
    name, _, configuration = path.removeprefix(PREFIX).partition(":")
    if not name:
        raise BadInput(f"{path}: which data set? as in {PREFIX}nlphuji/flickr30k, or {PREFIX}./my_folder")
    pairs = _pairs(_loaded(name, configuration or None), Path(name) if Path(name).is_dir() else Path(path), options)
    pairs.notes["read_from"] = path if not Path(name).is_dir() else f"{PREFIX}{Path(name).absolute()}"
    return pairs


def _loaded(name: str, configuration: str | None) -> dict[str, datasets.Dataset]:
    """Split -> data set; whatever `datasets` cannot do is one line."""
    package = _package()
    saved = Path(name) if Path(name).is_dir() else None
    try:
        if saved is not None and any((saved / file).is_file() for file in ("state.json", "dataset_dict.json")):
            found = package.load_from_disk(str(saved), keep_in_memory=False)
        else:
            found = package.load_dataset(name, configuration, keep_in_memory=False)
    except Exception as problem:  # of many kinds: no such data set, no network, a damaged file, several configurations
        lines = str(problem).strip().splitlines() or [type(problem).__name__]
        raise BadInput(f"{PREFIX}{name}: `datasets` cannot load it ({lines[0][:200]})") from problem
    return dict(found) if isinstance(found, package.DatasetDict) else {"": found}


def _pairs(parts: dict[str, datasets.Dataset], root: Path, options: Options) -> Pairs:
    files: list[tuple[Path, str | None]] = []
    for split, part in parts.items():
        if part.builder_name == PICTURES_BESIDE:
            part = _with_bytes(part)
        named = split_name(split, str(root)) if split else None
        files += [(Path(one["filename"]), named) for one in part.cache_files]
    if not files:
        raise BadInput(f"{root}: no rows in it")
    return arrow_pairs(files, "arrow", root, options)  # copies of it are no `datasets`: those group rows


def _with_bytes(part: datasets.Dataset) -> datasets.Dataset:
    """The same rows with their pictures inside, kept in the cache of `datasets`."""
    from datasets.table import embed_table_storage

    return part.with_format("arrow").map(embed_table_storage, batched=True, batch_size=AT_ONCE, desc="reading pictures")


def _package() -> datasets:
    try:
        import datasets
    except ImportError:
        raise BadInput(f"{PREFIX}NAME needs datasets: pip install 'matchlight[hub-data]'") from None
    return datasets


class HubFolder(Format):
    """A `save_to_disk` folder, read through `datasets` where asked for by name; `arrow` reads it without."""

    name = "datasets"

    def fits(self, path: Path) -> bool:
        """Never by itself: the readers of Arrow files and of split folders need no package for it."""
        return False

    def read(self, path: Path, options: Options) -> Pairs:
        """All splits of the folder."""
        return _pairs(_loaded(str(path), None), path, options)

    def write(self, pairs: Pairs, out: Path) -> None:
        """A folder a split with dataset_dict.json; one data set where splits are other than train, val and test."""
        pairs = _grouped(pairs)
        splits = [str(split) for split in pairs.split_names]
        if len(splits) > 1 and set(splits) <= set(USUAL):
            write_json(out / "dataset_dict.json", {"splits": [split_file(split) for split in splits]})
            for split in splits:
                (out / split_file(split)).mkdir()
                _write_part(pairs.subset(split), out / split_file(split), split_file(split))
        else:
            _write_part(pairs, out, None)
        write_relevance(pairs, out)


def _grouped(pairs: Pairs) -> Pairs:
    """Rows by split and picture: a row of the folder is a picture with all its captions."""
    pictures = np.concatenate([pairs.pictures_of(split) for split in pairs.split_names])
    rows = np.argsort(np.argsort(pictures)[pairs.picture], kind="stable")
    if not np.array_equal(rows, np.arange(len(rows))):
        say("rows are grouped by split and picture, so their numbers are not those of the source")
    return pairs.select(pictures, rows)


def _write_part(pairs: Pairs, folder: Path, split: str | None) -> None:
    """What `load_from_disk` reads: the rows, what they are, and which files hold them."""
    import pyarrow as pa

    columns = COLUMNS | (LABELS if pairs.labels is not None else {})
    schema = hub_schema(columns)
    with pa.OSFile(str(folder / SHARD), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for rows in _batches(pairs):
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    info: dict[str, Json] = {"citation": "", "description": "", "features": hub_features(columns), "homepage": ""}
    write_json(folder / "dataset_info.json", {**info, "license": ""})
    state: dict[str, Json] = {"_data_files": [{"filename": SHARD}], "_fingerprint": fingerprint(pairs)}
    plain: dict[str, Json] = {"_format_columns": None, "_format_kwargs": {}, "_format_type": None}
    write_json(folder / "state.json", {**state, **plain, "_output_all_columns": False, "_split": split})


def _batches(pairs: Pairs) -> Iterator[list[dict[str, object]]]:
    part: list[dict[str, object]] = []
    for entry, blob in entries_with_bytes(pairs):
        part.append({**entry, "image": {"bytes": blob, "path": entry["image"]}})
        if len(part) == AT_ONCE:
            yield part
            part = []
    if part:
        yield part
