"""What Hugging Face `datasets` reads in an Arrow schema: the kind of each column, and file names of splits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from matchlight.core import Json

if TYPE_CHECKING:
    import pyarrow as pa

PICTURE, TEXTS = "picture", "texts"  # beside Arrow's own names of types
SPLIT_FILES = {"val": "validation", "": "train"}


def hub_features(columns: Mapping[str, str]) -> dict[str, Json]:
    """The features of a data set, as its JSON says them."""
    return {name: _feature(kind) for name, kind in columns.items()}


def _feature(kind: str) -> Json:
    if kind == PICTURE:
        return {"_type": "Image"}
    if kind == TEXTS:
        return [{"dtype": "string", "_type": "Value"}]  # a list, in the spelling that old versions know too
    return {"dtype": kind, "_type": "Value"}


def hub_schema(columns: Mapping[str, str], metadata: Mapping[bytes, bytes] | None = None) -> pa.Schema:
    """A schema with these columns whose metadata say that pictures are pictures."""
    import pyarrow as pa

    kinds = {PICTURE: pa.struct([("bytes", pa.binary()), ("path", pa.string())]), TEXTS: pa.list_(pa.string())}
    fields = [(name, kinds.get(kind) or pa.type_for_alias(kind)) for name, kind in columns.items()]
    about = json.dumps({"info": {"features": hub_features(columns)}}).encode()
    return pa.schema(fields, metadata={b"huggingface": about, **(metadata or {})})


def split_file(split: str) -> str:
    """What files of a split are called."""
    return SPLIT_FILES.get(split, split)
