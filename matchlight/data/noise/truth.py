"""Truth: which rows were made wrong on purpose and where their captions came from. Only audits and metrics read it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from matchlight import files
from matchlight.console import BadInput
from matchlight.files import Json
from matchlight.pairs import IMAGE, TEXT, Pairs

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

KINDS = {"mismatch": ("caption", "picture"), "labels": ("symmetric", "asymmetric")}  # kind -> what `per` may say
PAPERS = ("ncr", "decl", "mrl")
WEB = "web"
WRONG, NOTHING, RIGHT = "wrong", "says nothing", "right"  # what may be true of a caption as the web has it


@dataclass(frozen=True)
class Truth:
    """What was done to a data set; a row is a (picture, caption) pair of the whole table, in file order."""

    kind: str  # "mismatch" | "labels"
    ratio: float  # the share asked for (a replayed file: the share found)
    seed: int | None  # None: replayed from a file
    per: str  # mismatch: "caption" | "picture"; labels: "symmetric" | "asymmetric"
    moved: list[int] | dict[str, list[int]]  # rows; labels: {"image": places of pictures, "text": rows}
    source: dict[int, int] = field(default_factory=dict)  # moved row -> the row its caption came from
    like: str | None = None  # "ncr" | "decl" | "mrl": whose draw this is; "web": captions as pages have them
    kinds: dict[int, str] = field(default_factory=dict)  # web: moved row -> what its caption became
    means: dict[str, str] = field(default_factory=dict)  # web: kind -> "wrong" | "says nothing" | "right"

    def clean(self, rows: npt.ArrayLike, side: str = TEXT) -> Bools:
        """True for each row that was left alone (label noise: for each item of `side`, pictures by their place)."""
        moved = self.moved[side] if isinstance(self.moved, dict) else self.moved
        return np.isin(np.asarray(rows, np.int64), np.asarray(moved, np.int64), invert=True)

    def rows_that_are(self, meaning: str) -> list[int]:
        """Rows whose changed caption is "wrong", "says nothing" or is "right" still; without kinds all are wrong."""
        if isinstance(self.moved, dict):
            raise BadInput("it is about labels, not about captions")
        if self.like != WEB:
            return self.moved if meaning == WRONG else []
        return [row for row, kind in self.kinds.items() if self.means[kind] == meaning]

    def save(self, path: str | Path) -> None:
        """Write the JSON file, whole or not at all."""
        facts = asdict(self)
        if self.like != WEB:
            del facts["kinds"], facts["means"]
        files.write_text(Path(path), json.dumps(facts) + "\n")

    @staticmethod
    def load(path: str | Path) -> Truth:
        """Read what `save` wrote; anything else is one clear line."""
        try:
            return _truth(json.loads(files.regular(Path(path)).read_text(encoding="utf-8")))
        except OSError as error:
            raise BadInput(f"{path}: cannot be read ({error.strerror}); `matchlight data noise` writes it") from error
        except BadInput:
            raise
        except (ValueError, RecursionError) as error:  # broken JSON and broken UTF-8 are ValueErrors too
            reason = str(error).splitlines()[0] if str(error) else "nested too deeply"
            raise BadInput(f"{path}: no truth file: {reason}; `matchlight data noise` writes one") from error


def tell_moves(pairs: Pairs, order: Ints, **facts: Any) -> tuple[Pairs, Truth]:
    """Move captions so that row r holds that of row `order[r]`, and say so."""
    moved = np.flatnonzero(order != np.arange(len(pairs)))
    source = dict(zip(moved.tolist(), order[moved].tolist(), strict=True))
    return pairs.with_captions_moved(moved, order[moved]), Truth("mismatch", moved=list(source), source=source, **facts)


def without(pairs: Pairs, truth: Truth, *, bare: bool = True) -> Pairs:
    """The rows that were left alone: what a method given the truth would train on; `bare` keeps every picture."""
    if isinstance(truth.moved, dict):
        raise BadInput("wrong labels belong to items, not to pairs; only mismatched pairs can be left out")
    rows = np.flatnonzero(truth.clean(np.arange(len(pairs))))
    return pairs.select(np.arange(len(pairs.names)) if bare else np.unique(pairs.picture[rows]), rows)


def check_request(ratio: float, seed: int) -> None:
    """Refuse a share outside [0, 1] and a seed no generator takes."""
    if not 0 <= ratio <= 1:  # False for nan
        raise BadInput(f"noise ratio {ratio} is no share; give a number from 0 to 1")
    if not 0 <= seed < 2**32:
        raise BadInput(f"seed {seed} cannot be used; give a whole number from 0 to {2**32 - 1}")


def check_word(what: str, word: str | None, known: tuple[str | None, ...]) -> None:
    """Refuse an option that is not one of the known words."""
    if word not in known:
        raise BadInput(f"{what} {word!r} is unknown; known: {', '.join(str(one) for one in known)}")


def _truth(facts: Json) -> Truth:
    if not isinstance(facts, dict):
        raise ValueError("not a JSON object")
    if missing := {"kind", "ratio", "seed", "per", "moved", "source"} - set(facts):
        raise ValueError(f"{', '.join(sorted(missing))} missing")
    kind, ratio, like = facts["kind"], facts["ratio"], facts.get("like")
    if kind not in tuple(KINDS) or facts["per"] not in KINDS[kind]:
        raise ValueError(f"kind {kind!r} per {facts['per']!r} is unknown")
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or math.isnan(ratio) or not 0 <= ratio <= 1:
        raise ValueError(f"ratio {ratio!r} is not from 0 to 1")
    if like not in (None, WEB, *PAPERS):
        raise ValueError(f"like {like!r} is unknown")
    seed = None if facts["seed"] is None else _places("seed", [facts["seed"]])[0]
    common = kind, float(ratio), seed, facts["per"]
    if like == WEB:
        return Truth(*common, *_web_rows(facts), like, *_web_kinds(facts))
    return Truth(*common, *_moves(kind, facts["moved"], facts["source"]), like)


def _moves(kind: str, moved: Json, source: Json) -> tuple[list[int] | dict[str, list[int]], dict[int, int]]:
    if not isinstance(source, dict):
        raise ValueError("source is not an object of rows")
    if kind == "labels":
        if not isinstance(moved, dict) or set(moved) != {IMAGE, TEXT} or source:
            raise ValueError('label noise needs moved = {"image": [..], "text": [..]} and an empty source')
        return {side: _places(f"moved.{side}", moved[side]) for side in (IMAGE, TEXT)}, {}
    rows, origins = _places("moved", moved), _places("source", list(source.values()))
    if not set(source) == {str(row) for row in rows} or set(origins) != set(rows):
        raise ValueError("source does not take every moved row to another moved row")
    return rows, {int(row): origin for row, origin in zip(source, origins, strict=True)}


def _web_rows(facts: dict[str, Json]) -> tuple[list[int], dict[int, int]]:
    """Changed rows, and the row each caption came from, where it came from one; several may come from the same."""
    source, rows = facts["source"], _places("moved", facts["moved"])
    if not isinstance(source, dict) or not set(source) <= {str(row) for row in rows}:
        raise ValueError("source is not an object of moved rows")
    return rows, {int(row): _places("source", [origin])[0] for row, origin in source.items()}


def _web_kinds(facts: dict[str, Json]) -> tuple[dict[int, str], dict[str, str]]:
    """The kind of every changed row, and what is true of each kind."""
    kinds, means = _texts("kinds", facts.get("kinds")), _texts("means", facts.get("means"))
    if not set(means.values()) <= {WRONG, NOTHING, RIGHT}:
        raise ValueError(f"means does not say of every kind that it is {WRONG!r}, {NOTHING!r} or {RIGHT!r}")
    if set(kinds) != {str(row) for row in _places("moved", facts["moved"])} or not set(kinds.values()) <= set(means):
        raise ValueError("kinds does not name a kind in means for every moved row")
    return {int(row): kind for row, kind in kinds.items()}, means


def _texts(what: str, values: Json) -> dict[str, str]:
    texts = (
        {name: value for name, value in values.items() if isinstance(value, str)} if isinstance(values, dict) else {}
    )
    if not isinstance(values, dict) or len(texts) < len(values):
        raise ValueError(f"{what} is not an object of words")
    return texts


def _places(what: str, values: Json) -> list[int]:
    rows = [value for value in values if type(value) is int and value >= 0] if isinstance(values, list) else []
    if not isinstance(values, list) or len(rows) < len(values):
        raise ValueError(f"{what} holds something that is no row")
    if len(set(rows)) != len(rows):
        raise ValueError(f"{what} names a row twice")
    return rows
