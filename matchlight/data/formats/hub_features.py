"""What Hugging Face `datasets` reads in an Arrow schema: the kind of each column, and file names of splits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from matchlight.files import Json

if TYPE_CHECKING:
    import pyarrow as pa

PICTURE, TEXTS, LISTS = "picture", "texts", "lists of texts"  # beside Arrow's own names of types
SPLIT_FILES = {"val": "validation", "": "train"}


def hub_features(columns: Mapping[str, str]) -> dict[str, Json]:
    """The features of a data set, as its JSON says them."""
    return {name: _feature(kind) for name, kind in columns.items()}


def _feature(kind: str) -> Json:
    if kind == PICTURE:
        return {"_type": "Image"}
    if kind == TEXTS:
        return [{"dtype": "string", "_type": "Value"}]  # a list, in the spelling that old versions know too
    if kind == LISTS:
        return [_feature(TEXTS)]
    return {"dtype": kind, "_type": "Value"}


def hub_schema(columns: Mapping[str, str], metadata: Mapping[bytes, bytes] | None = None) -> pa.Schema:
    """A schema with these columns whose metadata say that pictures are pictures."""
    import pyarrow as pa

    texts = pa.list_(pa.string())
    kinds = {PICTURE: pa.struct([("bytes", pa.binary()), ("path", pa.string())]), TEXTS: texts, LISTS: pa.list_(texts)}
    fields = [(name, kinds.get(kind) or pa.type_for_alias(kind)) for name, kind in columns.items()]
    about = json.dumps({"info": {"features": hub_features(columns)}}).encode()
    return pa.schema(fields, metadata={b"huggingface": about, **(metadata or {})})


def class_names(schema: pa.Schema, column: str) -> list[str]:
    """What the numbers of a column of classes stand for, where the schema says so."""
    try:
        feature = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"][column]
        inner = feature[0] if isinstance(feature, list) else feature.get("feature", feature)
        names = inner.get("names", [])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return []
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else []


def named_classes(value: object, names: list[str]) -> object:
    """A class number, or a list of them, by name; -1, which says that nobody knows, is none."""
    if not names:
        return value
    known = [one for one in (value if isinstance(value, list) else [value]) if one not in (-1, None)]
    return [names[one] if isinstance(one, int) and 0 <= one < len(names) else str(one) for one in known]


def split_file(split: str) -> str:
    """What files of a split are called."""
    return SPLIT_FILES.get(split, split)
