"""A cleaned copy of an audited data set: suspects dropped, re-matched or relabelled; the original stays.

A person's decisions (exported from the report, or typed as `row,decision`) come before the audit's verdict: an accepted
pair stays as it is, a rejected one is treated as a suspect, and one that was re-matched gets the partner named for it.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from matchlight.auditing.partners_named import Decision, named_partners
from matchlight.auditing.relabel import relabelled
from matchlight.auditing.tables import Named, read_pairs, row_number
from matchlight.core import BadInput
from matchlight.data.fingerprints import fingerprint
from matchlight.data.formats.safety import is_inside
from matchlight.files import read_json
from matchlight.pairs import Labels, Pairs

WORDS = {"accept": False, "reject": True, "keep": False, "drop": True, "rematch": True}  # the report's, the page's
PARTS = ("decision", "image", "caption_row")
Line = dict[str, str]
SURE = 0.5  # a caption moves to a picture that is likelier than all others together


def apply(
    audit: str | Path,
    out: str | Path,
    *,
    rematch: bool = False,
    relabel: bool = False,
    decisions: str | Path | None = None,
    data: str | Path | None = None,
) -> dict[str, Any]:
    """Write the cleaned copy; gives the counts of what was kept, dropped, re-matched and relabelled."""
    from matchlight.data import formats

    folder = Path(audit)
    summary = read_json(folder / "summary.json", "an audit's summary; `matchlight audit` writes it")
    pairs = _original(folder, summary, data)
    _check_place(Path(out), pairs, Path(data if data is not None else summary["data"]["path"]))
    table = folder / "pairs.csv"
    lines = _checked(table, read_pairs(table), pairs, summary.get("split"))
    decided = {} if decisions is None else read_decisions(Path(decisions), len(pairs))
    bad = _wrong(lines, decided)
    by_hand = {row for row, one in decided.items() if one.rematch}
    accepted = set(decided) - bad
    labelled, mended = relabelled(table, lines, pairs, bad - by_hand, accepted) if relabel else (pairs, set())
    better = _better(table, lines, pairs) if rematch else {}
    pictures, captions = named_partners(decided, pairs)
    said = labelled.with_captions_moved(*(np.array(list(one), dtype=np.int64) for one in (captions, captions.values())))
    cleaned, moved = clean(said, bad - set(captions) - mended, {**better, **pictures})
    moved += len(captions)
    kind = formats.format_for_copy(cleaned)
    formats.write(cleaned, out, to=kind)
    changed = {"rematched": moved, "relabelled": len(mended), "dropped": len(pairs) - len(cleaned)}
    return {"out": str(out), "format": kind, "kept": len(cleaned) - moved - len(mended), **changed}


def _original(folder: Path, summary: dict[str, Any], data: str | Path | None) -> Pairs:
    """The data that was audited, where it was or where the user says it is now."""
    known = summary.get("data") if isinstance(summary, dict) else None
    if not isinstance(known, dict) or not {"path", "fingerprint"} <= set(known):
        raise BadInput(f"{folder}/summary.json: does not say which data was audited; `matchlight audit` writes it")
    pairs = Pairs.read(data if data is not None else known["path"])
    if fingerprint(pairs) != known["fingerprint"]:
        raise BadInput(f"{pairs.root}: not the data that {folder} audited; it changed, or --data names another set")
    return pairs


def _check_place(out: Path, pairs: Pairs, source: Path) -> None:
    """Refuse a copy inside the original's folder; a file of vectors is all there is of its data, not its folder."""
    alone = source.is_file() and pairs.pictures is None
    if not alone and is_inside(os.path.realpath(pairs.root), str(out)):
        raise BadInput(f"{out}: inside the data folder {pairs.root}, which is never touched; give a folder outside it")


def _checked(path: Path, lines: list[Line], pairs: Pairs, split: str | None) -> dict[int, Line]:
    """Row -> its line, every row of the audited split once: a table that was cut would pass for one of good pairs."""
    wanted = set(pairs.rows(split).tolist())
    found: dict[int, Line] = {}
    for number, line in enumerate(lines, 2):
        where = f"{path} line {number}"
        row = row_number(line["row"], where)
        if row not in wanted or row in found:
            told = "stands there twice" if row in found else "is not of the data that was audited"
            raise BadInput(f"{where}: row {row} {told}; `matchlight audit` writes this file")
        if line["suspect"] not in ("0", "1"):
            raise BadInput(f"{where}: row {row} has suspect {line['suspect']!r}; 0 or 1")
        found[row] = line
    if missing := wanted - set(found):
        raise BadInput(f"{path}: row {min(missing)} is missing ({len(missing)} in all); `matchlight audit` writes them")
    return found


def _wrong(lines: dict[int, Line], decided: dict[int, Decision]) -> set[int]:
    found = {row for row, line in lines.items() if line["suspect"] == "1"}
    return (found - set(decided)) | {row for row, one in decided.items() if WORDS[one.word]}


def _better(path: Path, lines: dict[int, Line], pairs: Pairs) -> dict[int, int]:
    """Row -> the picture its caption rather fits."""
    known = Named(pairs)
    named = {row: line for row, line in lines.items() if line.get("better_image")}
    places = {
        row: known.place(line["better_image"], line.get("better_image_row"), f"{path}: row {row}")
        for row, line in named.items()
    }
    return {row: place for row, place in places.items() if _support(path, row, lines[row]) >= SURE}


def _support(path: Path, row: int, line: Line) -> float:
    try:
        share = float(line.get("better_image_support") or 0)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:  # False for nan
        raise BadInput(f"{path}: row {row} has support {line['better_image_support']!r}; a share from 0 to 1")
    return share


def clean(pairs: Pairs, bad: set[int], better: dict[int, int]) -> tuple[Pairs, int]:
    """The data without its bad rows; a bad row with a better picture moves there instead. How many moved comes too."""
    picture = pairs.picture.copy()
    moves = {row: better[row] for row in bad if row in better}
    for row, place in moves.items():
        picture[row] = place
    pairs = replace(pairs, labels=_with_their_picture(pairs, moves))
    rows = np.array([row for row in range(len(pairs)) if row not in bad or row in moves], dtype=np.int64)
    if not len(rows):
        raise BadInput(f"{pairs.root}: nothing would be left; every pair is suspect or was rejected")
    return replace(pairs, picture=picture).select(np.unique(picture[rows]), rows), len(moves)


def _with_their_picture(pairs: Pairs, moves: dict[int, int]) -> Labels | None:
    """Labels after captions moved: one that had its picture's, for want of its own, has its new picture's."""
    if pairs.labels is None:
        return None
    text = pairs.labels.text.copy()
    for row, place in moves.items():
        if (text[row] == pairs.labels.image[pairs.picture[row]]).all():
            text[row] = pairs.labels.image[place]
    return replace(pairs.labels, text=text)


def read_decisions(path: Path, rows: int) -> dict[int, Decision]:
    """Row -> what was decided last; from the report's JSON, or a CSV of row,decision (and a partner's columns)."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # a spreadsheet puts a mark before the text
    except OSError as problem:
        raise BadInput(f"{path}: cannot be read ({problem.strerror}); the report's export buttons write it") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: not a text file; the report's export buttons write JSON or CSV") from None
    found = _from_json(path, text) if text.lstrip()[:1] in ("{", "[") else _from_csv(path, text)
    for one in found:
        if one.word not in WORDS:
            raise BadInput(f"{one.where}: {one.word!r}; accept, reject or rematch")
        if one.row >= rows:
            raise BadInput(f"{one.where}: row {one.row}; the data has rows 0 to {rows - 1}")
    return {one.row: one for one in found}


def _from_json(path: Path, text: str) -> list[Decision]:
    try:
        value = json.loads(text)
        listed = value["decisions"] if isinstance(value, dict) else value
        return [_decision(one, f"{path} decision {number}") for number, one in enumerate(listed, 1)]
    except BadInput:  # a ValueError that says more than the line below
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadInput(f'{path}: not a list of decisions such as {{"row": 12, "decision": "reject"}}') from None


def _from_csv(path: Path, text: str) -> list[Decision]:
    first = text.partition("\n")[0]  # many spreadsheets write semicolons
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=";" if ";" in first and "," not in first else ",")
    try:
        if not {"row", "decision"} <= set(reader.fieldnames or ()):
            raise BadInput(f"{path}: no columns row and decision; the report's export buttons write them")
        return [_decision(line, f"{path} line {number}") for number, line in enumerate(reader, 2)]
    except csv.Error as problem:
        raise BadInput(f"{path}: not a readable CSV file ({problem})") from None


def _decision(line: dict[str, Any], where: str) -> Decision:
    """One entry of either kind of file; a missing partner is None in JSON and a blank in CSV, and row 0 is neither."""
    word, image, said = ("" if line.get(name) is None else str(line[name]) for name in PARTS)
    return Decision(row_number(line["row"], where), word.strip(), image, said.strip(), where)
