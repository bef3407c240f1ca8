"""An audit as a data set of the hub: Parquet, a row a pair with its picture, which `datasets.load_dataset` opens.

The rows of a split are one file, named as `datasets` looks for them. Our own reader opens the folder too.
"""

from __future__ import annotations

from pathlib import Path

from matchlight.auditing.travel.audited_rows import AuditedRows
from matchlight.console import track
from matchlight.data.findings import Finding
from matchlight.data.formats.hub_features import PICTURE, hub_schema, split_file
from matchlight.pairs import BadPicture, Pairs

AT_ONCE = 64  # rows written together, their pictures in memory
COLUMNS = {
    "image": PICTURE,
    "caption": "string",
    "row": "int64",
    "score": "float64",
    "suspect": "bool",
    "reason": "string",
    "split": "string",
    "better_image": "string",
    "better_image_support": "float64",
    "better_caption": "string",
    "better_caption_row": "int64",
    "better_caption_support": "float64",
}
LABELS = {"label": "string", "likely_label": "string", "label_score": "float64"}


def write_hub_table(audited: AuditedRows, folder: Path) -> None:
    """SPLIT-00000-of-00001.parquet for each split."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = hub_schema(COLUMNS | (LABELS if audited.labelled else {}))
    for split in dict.fromkeys(one.split for one in audited.findings):
        part = [one for one in audited.findings if one.split == split]
        with pq.ParquetWriter(folder / f"{split_file(split)}-00000-of-00001.parquet", schema) as writer:
            for start in track(range(0, len(part), AT_ONCE), f"writing {split or 'pairs'}"):
                rows = [_row(audited.pairs, one) for one in part[start : start + AT_ONCE]]
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def _row(pairs: Pairs, one: Finding) -> dict[str, object]:
    row: dict[str, object] = {name: value for name, value in vars(one).items() if name in COLUMNS}
    row["image"] = {"bytes": _bytes(pairs, int(pairs.picture[one.row])), "path": one.image}
    if one.labels is not None:
        row |= {"label": one.labels.label, "likely_label": one.labels.likely or one.labels.label}
        row["label_score"] = one.labels.label_score
    return row


def _bytes(pairs: Pairs, place: int) -> bytes | None:
    if pairs.pictures is None:
        return None
    try:
        return pairs.pictures.read(place)
    except BadPicture:
        return None
