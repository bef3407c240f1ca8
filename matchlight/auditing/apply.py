"""A cleaned copy of an audited data set: suspects dropped, or given to the picture they fit; the original stays.

A person's decisions (exported from the report, or typed as `row,decision`) come before the audit's verdict: an accepted
pair stays as it is, a rejected one is treated as a suspect, and one that was re-matched gets the partner named for it.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from matchlight.auditing.partners_named import named_partners
from matchlight.auditing.tables import read_pairs
from matchlight.checkpoints import read_json
from matchlight.core import BadInput
from matchlight.pairs import Pairs
from matchlight.runs import fingerprint

WORDS = {"accept": False, "reject": True, "keep": False, "drop": True, "rematch": True}  # the report's, the page's
SURE = 0.5  # a caption moves to a picture that is likelier than all others together


def apply(
    audit: str | Path,
    out: str | Path,
    *,
    rematch: bool = False,
    decisions: str | Path | None = None,
    data: str | Path | None = None,
) -> dict[str, Any]:
    """Write the cleaned copy; gives the counts of what was kept, dropped and re-matched."""
    from matchlight import formats

    folder = Path(audit)
    summary = read_json(folder / "summary.json", "an audit's summary; `matchlight audit` writes it")
    pairs = _original(folder, summary, data)
    lines = read_pairs(folder / "pairs.csv")
    bad = _wrong(lines, {} if decisions is None else read_decisions(Path(decisions), len(pairs)))
    better = _better(lines, pairs) if rematch else {}
    pictures, captions = ({}, {}) if decisions is None else named_partners(Path(decisions), pairs)
    said = pairs.with_captions_moved(*(np.array(list(one), dtype=np.int64) for one in (captions, captions.values())))
    cleaned, moved = clean(said, bad - set(captions), {**better, **pictures})
    moved += len(captions)
    kind = kind_of(cleaned)
    formats.write(cleaned, out, to=kind)
    kept = len(cleaned) - moved
    return {"out": str(out), "format": kind, "kept": kept, "rematched": moved, "dropped": len(pairs) - len(cleaned)}


def _original(folder: Path, summary: dict[str, Any], data: str | Path | None) -> Pairs:
    """The data that was audited, where it was or where the user says it is now."""
    known = summary.get("data") if isinstance(summary, dict) else None
    if not isinstance(known, dict) or not {"path", "fingerprint"} <= set(known):
        raise BadInput(f"{folder}/summary.json: does not say which data was audited; `matchlight audit` writes it")
    pairs = Pairs.read(data if data is not None else known["path"])
    if fingerprint(pairs) != known["fingerprint"]:
        raise BadInput(f"{pairs.root}: not the data that {folder} audited; it changed, or --data names another set")
    return pairs


def _wrong(lines: list[dict[str, str]], decided: dict[int, bool]) -> set[int]:
    found = {int(line["row"]) for line in lines if line["suspect"] == "1"}
    return {row for row in found if decided.get(row, True)} | {row for row, bad in decided.items() if bad}


def _better(lines: list[dict[str, str]], pairs: Pairs) -> dict[int, int]:
    """Row -> the picture its caption rather fits; names that a spreadsheet quote was put before are found too."""
    place = {str(name): number for number, name in enumerate(pairs.names)}
    sure = [line for line in lines if line.get("better_image") and float(line["better_image_support"] or 0) >= SURE]
    named = {int(line["row"]): line["better_image"] for line in sure}
    plain = {row: name if name in place else name.removeprefix("'") for row, name in named.items()}
    return {row: place[name] for row, name in plain.items() if name in place}


def clean(pairs: Pairs, bad: set[int], better: dict[int, int]) -> tuple[Pairs, int]:
    """The data without its bad rows; a bad row with a better picture moves there instead. How many moved comes too."""
    picture = pairs.picture.copy()
    moves = {row: better[row] for row in bad if row in better}
    for row, place in moves.items():
        picture[row] = place
    rows = np.array([row for row in range(len(pairs)) if row not in bad or row in moves], dtype=np.int64)
    if not len(rows):
        raise BadInput(f"{pairs.root}: nothing would be left; every pair is suspect or was rejected")
    return replace(pairs, picture=picture).select(np.unique(picture[rows]), rows), len(moves)


def kind_of(pairs: Pairs) -> str:
    """The format the copy is written in: the original's own where it can hold the copy."""
    from matchlight.formats import WRITERS

    if pairs.format == "scan":  # needs as many captions for every picture
        counts = np.bincount(pairs.picture, minlength=len(pairs.names))
        in_order = (np.diff(pairs.picture) >= 0).all()
        return "scan" if in_order and len(set(counts.tolist())) == 1 else "npz"
    if pairs.format in WRITERS:
        return pairs.format
    return "jsonl" if pairs.pictures is not None else "npz"


def read_decisions(path: Path, rows: int) -> dict[int, bool]:
    """Row -> True where it was rejected; from the report's JSON, or a CSV of row,decision."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise BadInput(f"{path}: cannot be read ({problem.strerror}); the report's export buttons write it") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: not a text file; the report's export buttons write JSON or CSV") from None
    found = _from_json(path, text) if text.lstrip()[:1] in ("{", "[") else _from_csv(path, text)
    out: dict[int, bool] = {}
    for number, (row, word) in enumerate(found, 1):
        if word not in WORDS:
            raise BadInput(f"{path} decision {number}: {word!r}; accept or reject")
        if not 0 <= row < rows:
            raise BadInput(f"{path} decision {number}: row {row}; the data has rows 0 to {rows - 1}")
        out[row] = WORDS[word]
    return out


def _from_json(path: Path, text: str) -> list[tuple[int, str]]:
    try:
        value = json.loads(text)
        listed = value["decisions"] if isinstance(value, dict) else value
        return [(int(one["row"]), str(one["decision"])) for one in listed]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadInput(f'{path}: not a list of decisions such as {{"row": 12, "decision": "reject"}}') from None


def _from_csv(path: Path, text: str) -> list[tuple[int, str]]:
    reader = csv.DictReader(io.StringIO(text))
    if not {"row", "decision"} <= set(reader.fieldnames or ()):
        raise BadInput(f"{path}: no columns row and decision; the report's export buttons write them")
    out = []
    for number, line in enumerate(reader, 2):
        try:
            out.append((int(line["row"]), (line["decision"] or "").strip()))
        except (TypeError, ValueError):
            raise BadInput(f"{path} line {number}: {line.get('row')!r} is no row number") from None
    return out
