"""What an audit writes besides the page: pairs.csv, and how well it did where the truth is known."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from matchlight.auditing.findings import Findings
from matchlight.auditing.labels import can_judge
from matchlight.core import BadInput
from matchlight.data.noise import Truth
from matchlight.pairs import Pairs

COLUMNS = ("row", "image", "caption", "score", "suspect", "reason")
MORE = (
    "split",
    "better_image",
    "better_image_support",
    "better_caption_row",
    "better_caption",
    "better_caption_support",
    "better_image_row",  # a row of that picture, since names need not be unique
)
LABELS = ("label", "likely", "side", "image_label", "text_label")
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def cell(text: str) -> str:
    """A text no spreadsheet takes for a formula: one that would be gets a quote before it."""
    return f"'{text}" if text.startswith(FORMULA) else text


def write_pairs(path: Path, pairs: Pairs, findings: Findings) -> None:
    """pairs.csv, one line a pair, whole or not at all."""
    from matchlight.files import new_file

    with new_file(path) as partial, open(partial, "w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        file.write(",".join(columns(findings)) + "\n")
        out.writerows(_lines(pairs, findings))


def columns(findings: Findings) -> list[str]:
    """The heads of pairs.csv."""
    return [*COLUMNS, *(LABELS if findings.labels is not None else ()), *MORE]


def _lines(pairs: Pairs, found: Findings) -> Iterator[list[Any]]:
    first = np.zeros(len(pairs.names), dtype=np.int64)
    first[pairs.picture[::-1]] = np.arange(len(pairs))[::-1]
    for k in range(len(found)):
        row, other, said = int(found.row[k]), int(found.picture[k]), int(found.caption[k])
        own = int(pairs.picture[row])
        line: list[Any] = [row, cell(str(pairs.names[own])), cell(pairs.captions[row])]
        line += [float(f"{found.score[k]:.6g}"), int(found.suspect[k]), str(found.reason[k])]
        if found.labels is not None:
            said_of = found.labels.plain(k)
            line += [cell(said_of[name]) for name in LABELS]
        line.append(str(pairs.splits[own]))
        line += [cell(str(pairs.names[other])), round(float(found.picture_support[k]), 4)] if other >= 0 else ["", ""]
        line += [said, cell(pairs.captions[said]), round(float(found.caption_support[k]), 4)] if said >= 0 else [""] * 3
        yield [*line, int(first[other]) if other >= 0 else ""]


class Named:
    """Pictures by what a table calls them; a name may have a spreadsheet's quote before it, and need not be unique."""

    def __init__(self, pairs: Pairs):
        self.pairs = pairs
        self.places: dict[str, list[int]] = {}
        for place, name in enumerate(pairs.names):
            for told in {str(name), cell(str(name))}:
                self.places.setdefault(told, []).append(place)

    def place(self, name: str, row: str | None, where: str) -> int:
        """The picture of this name; of several the one that `row` belongs to."""
        found = self.places.get(name, [])
        if not found:
            raise BadInput(
                f"{where} names picture {name!r} as better, and the data has none such; an audit of other data?"
            )
        number = whole(row or "")
        if number is not None and number < len(self.pairs) and self.pairs.picture[number] in found:
            return int(self.pairs.picture[number])
        if len(found) > 1:
            raise BadInput(
                f"{where} names picture {name!r} as better, and {len(found)} pictures of the data are called so"
            )
        return found[0]


def read_pairs(path: Path) -> list[dict[str, str]]:
    """The lines of a pairs.csv that an audit wrote."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:  # a spreadsheet puts a mark before the text
            reader = csv.DictReader(file)
            if not set(COLUMNS) <= set(reader.fieldnames or ()):
                raise BadInput(f"{path}: not an audit's table; its columns begin {','.join(COLUMNS)}")
            return list(reader)
    except OSError as problem:
        raise BadInput(f"{path}: cannot be read ({problem.strerror}); `matchlight audit` writes it") from None
    except (csv.Error, UnicodeDecodeError) as problem:
        raise BadInput(f"{path}: not a readable CSV file ({problem})") from None


def whole(text: str) -> int | None:
    """The whole number a text writes, 0 or more; None for any other text."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None  # 64 bits hold 18 digits


def row_number(value: Any, where: str) -> int:
    """A row as a file writes it: digits, in JSON a number too; anything else is one clear line."""
    row = whole(str(value))
    if row is None:
        raise BadInput(f"{where}: {value!r} is no row number")
    return row


def check_truth(truth: Truth, pairs: Pairs) -> None:
    """Refuse the truth about other data: rows or pictures that are not there, or labels nobody can judge here."""
    if isinstance(truth.moved, dict):
        if not can_judge(pairs):
            raise BadInput("--truth: it is about labels, and this data set has no single label an item to audit")
        sides = [("picture", truth.moved["image"], len(pairs.names)), ("row", truth.moved["text"], len(pairs))]
    else:
        sides = [("row", truth.moved, len(pairs))]
    for what, places, count in sides:
        if max(places, default=0) >= count:
            raise BadInput(f"--truth: it names {what} {max(places)}, and {pairs.root} has {count}; it is of other data")


def bad_rows(truth: Truth, findings: Findings, pairs: Pairs) -> np.ndarray:
    """(n,) True where the truth says a pair (or, under label noise, one of its labels) was made wrong."""
    if isinstance(truth.moved, dict):
        return ~truth.clean(findings.row, "text") | ~truth.clean(pairs.picture[findings.row], "image")
    return ~truth.clean(findings.row)


def against_truth(score: np.ndarray, suspect: np.ndarray, bad: np.ndarray) -> dict[str, Any]:
    """AUROC and average precision of the scores (low = bad), precision and recall of the flagged."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    both = bool(bad.any() and not bad.all())
    hits = int((suspect & bad).sum())
    return {
        "auroc": float(roc_auc_score(bad, -score)) if both else None,
        "average_precision": float(average_precision_score(bad, -score)) if bad.any() else None,
        "precision": hits / int(suspect.sum()) if suspect.any() else None,
        "recall": hits / int(bad.sum()) if bad.any() else None,
        "flagged": int(suspect.sum()),
    }
