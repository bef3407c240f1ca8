"""What an audit found, as its files say it: one `Finding` a pair in pairs.csv, and summary.json beside it.

This is the one writer and the one reader of these files; audits, `matchlight data apply`, mining and the review all
use them. `read_findings` refuses a table that is no audit's or was edited wrongly; `read_audit` checks it against the
data as well: it refuses an audit of other data, rows that are missing or do not exist, and better partners that the
data does not have.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NotRequired, TypedDict

import numpy as np

from matchlight.console import BadInput
from matchlight.data.cells import plain_cell, safe_cell, spellings
from matchlight.data.fingerprints import is_same_data
from matchlight.files import Json, new_file, read_json, regular, write_json
from matchlight.pairs import Pairs

TABLE, SUMMARY = "pairs.csv", "summary.json"

# Why a pair is worth a look; "" = nothing to say. Only the first four make a pair suspect.
MISMATCHED = "mismatched"
UNREADABLE = "unreadable"
WRONG_LABEL = "wrong label"
NEAR_DUPLICATE = "near-duplicate"
VAGUE = "caption fits many pictures"
SAME_CAPTION = "same caption for many pictures"
OTHER_LANGUAGE = "another language"
EMPTY = "empty caption"
REASONS = (MISMATCHED, UNREADABLE, EMPTY, WRONG_LABEL, NEAR_DUPLICATE, VAGUE, SAME_CAPTION, OTHER_LANGUAGE)
SAYS_NOTHING = (VAGUE, SAME_CAPTION, EMPTY)  # reasons by which a caption tells little or nothing about its picture

COLUMNS = ("row", "image", "caption", "score", "suspect", "reason")
LABEL_COLUMNS = ("label", "likely", "side", "image_label", "text_label")  # only where class labels were audited
LABEL_SCORE = "label_score"  # beside them; tables of old do not have it
MORE_COLUMNS = (
    "split",
    "better_image",
    "better_image_support",
    "better_caption_row",
    "better_caption",
    "better_caption_support",
    "better_image_row",  # a row of that picture, since names need not be unique
)
SUSPECT = {"0": False, "1": True, "false": False, "true": True}

Line = dict[str, str | None]


@dataclass(frozen=True)
class LabelFinding:
    """What was found about the class labels of a pair."""

    label: str  # that of the side found wrong; the picture's where both are, or neither
    likely: str  # what it should rather be; "" where nothing is wrong
    side: str  # whose label is wrong: "image", "text", "both" or ""
    image_label: str  # as given
    text_label: str  # as given
    label_score: float | None = field(
        default=None, kw_only=True
    )  # 1 = both labels surely right, 0 = one surely wrong; None: not known


@dataclass(frozen=True)
class Finding:
    """What an audit found about one pair; None and "" say that there is nothing to say."""

    row: int  # of the whole table
    image: str
    caption: str
    score: float  # 1 = surely right, 0 = surely wrong
    suspect: bool  # flagged by the audit
    reason: str = ""  # one of REASONS
    split: str = ""
    better_image: str | None = None  # the picture that the caption fits better
    better_image_support: float | None = None  # its probability
    better_image_row: int | None = None  # a row of that picture
    better_caption: str | None = None  # the caption that fits the picture better
    better_caption_row: int | None = None  # its row
    better_caption_support: float | None = None
    labels: LabelFinding | None = None  # None: labels were not audited


class AuditedData(TypedDict):
    """Which data was audited."""

    path: str
    format: str
    fingerprint: str
    content: str  # summaries of old do not have it


class KindMetrics(TypedDict):
    """What the audit said of one kind of web noise, or of the pairs that were left alone."""

    means: str  # what is true of these captions: "wrong" | "says nothing" | "right"
    pairs: int
    flagged: float  # share that is suspect
    told: float  # share that is told for what it is: suspect, or with a reason that says nothing is said, or neither


class TruthMetrics(TypedDict):
    """How well the audit did, measured where the truth is known; captions that say nothing count in `kinds` alone."""

    auroc: float | None
    average_precision: float | None
    precision: float | None
    recall: float | None
    recall_at_precision_95: float | None  # 0 where no threshold has that precision
    calibration_error: float | None  # of the scores as probabilities, ten bins
    flagged: int
    kinds: NotRequired[dict[str, KindMetrics]]  # web noise only


class Summary(TypedDict):
    """summary.json as an audit writes it; where the truth is known, `TruthMetrics` as well."""

    pairs: int
    flagged: int
    estimated_noise: float
    estimated_noise_interval: list[float]
    expected_false_alarms: float
    seconds: float
    split: str
    reasons: dict[str, int]
    signals: list[str]
    notes: list[str]
    can_tell: bool  # False: right and wrong pairs cannot be told apart; the first note says why, and none is flagged
    data: AuditedData
    seed: int
    version: str
    estimated_label_noise: NotRequired[float]
    auroc: NotRequired[float | None]
    average_precision: NotRequired[float | None]
    precision: NotRequired[float | None]
    recall: NotRequired[float | None]
    recall_at_precision_95: NotRequired[float | None]
    calibration_error: NotRequired[float | None]
    kinds: NotRequired[dict[str, KindMetrics]]


# ---- writing ---------------------------------------------------------------------------------------------------------


def write_findings(path: Path, findings: Iterable[Finding], *, labels: bool) -> None:
    """pairs.csv, one line a pair, whole or not at all; `labels` adds the columns about class labels."""
    columns = [*COLUMNS, *((*LABEL_COLUMNS, LABEL_SCORE) if labels else ()), *MORE_COLUMNS]
    with new_file(path) as partial, open(partial, "w", encoding="utf-8", newline="") as file:
        file.write(",".join(columns) + "\n")
        csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n").writerows(map(_cells, findings))


def _cells(one: Finding) -> list[str | int | float]:
    """A line of the table; blanks where there is nothing to say."""
    line: list[str | int | float] = [one.row, safe_cell(one.image), safe_cell(one.caption)]
    line += [float(f"{one.score:.6g}"), int(one.suspect), one.reason]
    if one.labels is not None:
        given = one.labels.label, one.labels.likely, one.labels.side, one.labels.image_label, one.labels.text_label
        line += [safe_cell(text) for text in given]
        line.append("" if one.labels.label_score is None else float(f"{one.labels.label_score:.6g}"))
    line += [one.split, safe_cell(one.better_image or ""), _support(one.better_image_support)]
    line += ["" if one.better_caption_row is None else one.better_caption_row, safe_cell(one.better_caption or "")]
    return [*line, _support(one.better_caption_support), "" if one.better_image_row is None else one.better_image_row]


def _support(share: float | None) -> str | float:
    return "" if share is None else round(share, 4)


def write_summary(folder: Path, summary: Summary) -> None:
    """summary.json, whole or not at all."""
    write_json(folder / SUMMARY, summary)


# ---- reading ---------------------------------------------------------------------------------------------------------


def read_findings(path: Path) -> list[Finding]:
    """The findings of a pairs.csv in file order; a table that is no audit's, or was edited wrongly, is refused."""
    findings: dict[int, Finding] = {}
    for number, line in enumerate(_lines(path), 2):
        one = _finding(line, f"{path} line {number}")
        if one.row in findings:
            raise BadInput(
                f"{path} line {number}: row {one.row} stands there twice; `matchlight audit` writes this file"
            )
        findings[one.row] = one
    return list(findings.values())


def _lines(path: Path) -> list[Line]:
    try:
        with open(regular(path), encoding="utf-8-sig", newline="") as file:  # a spreadsheet puts a mark before the text
            reader = csv.DictReader(file)
            if not set(COLUMNS) <= set(reader.fieldnames or ()):
                raise BadInput(f"{path}: not an audit's table; its columns begin {','.join(COLUMNS)}")
            return list(reader)
    except OSError as problem:
        raise BadInput(
            f"{path}: cannot be read ({problem.strerror}); `matchlight audit -o DIR` writes DIR/{TABLE}"
        ) from None
    except (csv.Error, UnicodeDecodeError) as problem:
        raise BadInput(f"{path}: not a readable CSV file ({problem})") from None


def _finding(line: Line, where: str) -> Finding:
    row = row_number(line["row"], where)
    where = f"{where}: row {row}"
    suspect = SUSPECT.get((line["suspect"] or "").strip().lower())
    if suspect is None:
        raise BadInput(f"{where} has suspect {line['suspect']!r}; 0 or 1")
    return Finding(
        row=row,
        image=_text(line, "image"),
        caption=_text(line, "caption"),
        score=_share(line["score"], "score", "a number", where),
        suspect=suspect,
        reason=line["reason"] or "",
        split=line.get("split") or "",
        better_image=_text(line, "better_image") or None,
        better_image_support=_optional_share(line, "better_image_support", where),
        better_image_row=whole_number(line.get("better_image_row") or ""),
        better_caption=_text(line, "better_caption") or None,
        better_caption_row=_caption_row(line.get("better_caption_row") or "", where),
        better_caption_support=_optional_share(line, "better_caption_support", where),
        labels=_labels(line, where) if line.keys() >= set(LABEL_COLUMNS) else None,
    )


def _labels(line: Line, where: str) -> LabelFinding:
    score = line.get(LABEL_SCORE)
    known = _share(score, "label_score", "a number", where) if score else None
    return LabelFinding(*(_text(line, name) for name in LABEL_COLUMNS), label_score=known)


def _text(line: Line, name: str) -> str:
    return plain_cell(line.get(name) or "")


def _share(text: str | None, what: str, wanted: str, where: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = np.nan
    if not 0 <= value <= 1:  # False for nan
        raise BadInput(f"{where} has {what} {text!r}; {wanted} from 0 to 1")
    return value


def _optional_share(line: Line, name: str, where: str) -> float | None:
    text = line.get(name)
    return _share(text, "support", "a share", where) if text else None


def _caption_row(text: str, where: str) -> int | None:
    row = whole_number(text)
    if text and row is None:
        raise _no_caption(text, where)
    return row


def _no_caption(row: int | str, where: str) -> BadInput:
    return BadInput(
        f"{where} names caption row {str(row)!r} as better, and the data has none such; an audit of other data?"
    )


def whole_number(text: str) -> int | None:
    """The whole number a text writes, 0 or more; None for any other text."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None  # 64 bits hold 18 digits


def row_number(value: object, where: str) -> int:
    """A row as a file writes it: digits, in JSON a number too; anything else is one clear line."""
    row = whole_number(str(value))
    if row is None:
        raise BadInput(f"{where}: {value!r} is no row number")
    return row


def read_summary(folder: Path) -> dict[str, Json]:
    """An audit's summary.json."""
    summary: Json = read_json(folder / SUMMARY, "an audit's summary; `matchlight audit` writes it")
    if not isinstance(summary, dict):
        raise BadInput(f"{folder / SUMMARY}: not an audit's summary; `matchlight audit` writes it")
    return summary


def audited_fingerprint(summary: dict[str, Json]) -> str:
    """The fingerprint of the data that was audited; "" where the summary does not say it."""
    data = summary.get("data")
    mark = data.get("fingerprint") if isinstance(data, dict) else None
    return mark if isinstance(mark, str) else ""


# ---- against the data ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AuditFindings:
    """The findings of an audit whose rows were checked against its data."""

    path: Path  # of pairs.csv, for complaints
    pairs: Pairs
    findings: dict[int, Finding]  # by row

    def better_pictures(self) -> dict[int, int]:
        """Row -> place of the picture that its caption fits better."""
        named, places = PictureNames(self.pairs), {}
        for row, one in self.findings.items():
            if one.better_image is not None:
                places[row] = named.place(one.better_image, one.better_image_row, f"{self.path}: row {row}")
        return places

    def better_captions(self) -> dict[int, int]:
        """Row -> row of the caption that fits its picture better."""
        rows = {row: one.better_caption_row for row, one in self.findings.items() if one.better_caption_row is not None}
        for row, other in rows.items():
            if other >= len(self.pairs):
                raise _no_caption(other, f"{self.path}: row {row}")
        return rows


def read_audit(audit: str | Path, pairs: Pairs) -> AuditFindings:
    """The findings of an audit's folder (or of its pairs.csv) about these pairs.

    By the summary beside it the table must be about these very data and have every row of the audited split: one that
    was cut would pass for one of good pairs. A table without a summary is taken as it is.
    """
    path = Path(audit) / TABLE if Path(audit).is_dir() else Path(audit)
    wanted = _audited_rows(path.parent, pairs)
    findings = {one.row: one for one in read_findings(path)}
    known = set(range(len(pairs))) if wanted is None else wanted
    for number, row in enumerate(findings, 2):
        if row not in known:
            problem = f"row {row} is not of the data that was audited"
            raise BadInput(f"{path} line {number}: {problem}; `matchlight audit` writes this file")
    if missing := (wanted or set()) - set(findings):
        raise BadInput(f"{path}: row {min(missing)} is missing ({len(missing)} in all); `matchlight audit` writes them")
    return AuditFindings(path, pairs, findings)


def _audited_rows(folder: Path, pairs: Pairs) -> set[int] | None:
    """The rows that an audit is about, by its summary; None where it has none."""
    if not (folder / SUMMARY).is_file():
        return None
    summary = read_summary(folder)
    if not is_same_data(summary.get("data"), pairs):
        raise BadInput(f"{pairs.root}: not the data that {folder} audited; it has changed, or it is another data set")
    split = summary.get("split")
    return set(pairs.rows(split if isinstance(split, str) else None).tolist())


class PictureNames:
    """Pictures by what a file calls them; a name may have a spreadsheet's quote before it, and need not be unique."""

    def __init__(self, pairs: Pairs):
        self.pairs = pairs
        self.places: dict[str, list[int]] = {}
        for place, name in enumerate(pairs.names):
            for spelling in spellings(str(name)):
                self.places.setdefault(spelling, []).append(place)

    def place(self, name: str, row: int | None, where: str) -> int:
        """The picture of this name; of several the one that `row` belongs to."""
        places = self.places.get(name, [])
        if not places:
            raise BadInput(
                f"{where} names picture {name!r} as better, and the data has none such; an audit of other data?"
            )
        if row is not None and row < len(self.pairs) and self.pairs.picture[row] in places:
            return int(self.pairs.picture[row])
        if len(places) > 1:
            raise BadInput(
                f"{where} names picture {name!r} as better, and {len(places)} pictures of the data are called so"
            )
        return places[0]
