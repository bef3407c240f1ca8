"""What an audit's pairs.csv says of captions and pictures that only look like negatives.

An audit marks pairs as suspect. For some of these it names a picture that the caption fits better, or a row whose
caption fits the picture better: matches that nobody marked. It also tells captions that fit many pictures.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from matchlight.core import BadInput
from matchlight.data.fingerprints import fingerprint
from matchlight.files import read_json
from matchlight.pairs import Pairs

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Line = dict[str, str]


@dataclass(frozen=True)
class Doubts:
    """Rows of the whole table, ascending, and unmarked matches."""

    suspects: np.ndarray
    vague: np.ndarray  # captions that fit many pictures
    fits: csr_matrix  # (C, N) True where the audit would rather see a caption with a picture


def read_doubts(audit: str | Path, pairs: Pairs) -> Doubts:
    """The doubts of an audit folder, or of its pairs.csv."""
    from scipy.sparse import csr_matrix

    from matchlight.auditing.findings import VAGUE  # audits train models, and models mine

    path = Path(audit) / "pairs.csv" if Path(audit).is_dir() else Path(audit)
    wanted = _audited(path.parent / "summary.json", pairs)
    lines = _lines(path, len(pairs))
    if missing := wanted - {row for row, _ in lines}:
        raise BadInput(f"{path}: row {min(missing)} is missing ({len(missing)} in all); `matchlight audit` writes them")
    suspects = [row for row, line in lines if (line["suspect"] or "").strip().lower() in ("1", "true", "yes")]
    vague = [row for row, line in lines if line.get("reason") == VAGUE]
    matches = np.array(_matches(path, lines, pairs), np.int64).reshape(-1, 2)
    fits = csr_matrix((np.ones(len(matches), bool), matches.T), shape=(len(pairs), len(pairs.names)), dtype=bool)
    return Doubts(np.unique(suspects).astype(np.int64), np.unique(vague).astype(np.int64), fits)


def _audited(path: Path, pairs: Pairs) -> set[int]:
    """The rows an audit is about, by its summary; a table alone, without its summary, is taken as it is."""
    if not path.is_file():
        return set()
    summary = read_json(path, "an audit's summary")
    known = summary.get("data") if isinstance(summary, dict) else None
    if not isinstance(known, dict) or known.get("fingerprint") != fingerprint(pairs):
        raise BadInput(f"{path.parent}: an audit of other data than {pairs.root}; audit these first")
    return set(pairs.rows(summary.get("split")).tolist())


def _lines(path: Path, rows: int) -> list[tuple[int, Line]]:
    """The row of every line, and the line."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            lines = [(int(line["row"]), line) for line in csv.DictReader(file) if line["suspect"] is not None]
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; `matchlight audit -o DIR` writes DIR/pairs.csv") from None
    except (KeyError, TypeError, ValueError, UnicodeDecodeError, csv.Error):
        raise BadInput(f"{path}: not an audit's pairs.csv (columns row and suspect are needed)") from None
    for row, _ in lines:
        if not 0 <= row < rows:
            raise BadInput(f"{path}: names row {row}, and the data has {rows} rows; an audit of other data?")
    return lines


def _matches(path: Path, lines: list[tuple[int, Line]], pairs: Pairs) -> list[tuple[int, int]]:
    """(row, picture) of better partners: the caption with another picture, the picture with another row's caption."""
    from matchlight.auditing.tables import Named, whole

    known, found = Named(pairs), []
    for row, line in lines:
        image, said = line.get("better_image") or "", line.get("better_caption_row") or ""
        if image:
            found.append((row, known.place(image, line.get("better_image_row"), f"{path}: row {row}")))
        if said:
            other = whole(said)
            place_of = other if other is not None and other < len(pairs) else None
            found.append((_known(place_of, f"caption row {said!r}", path, row), int(pairs.picture[row])))
    return found


def _known(place: int | None, what: str, path: Path, row: int) -> int:
    if place is None:
        raise BadInput(f"{path}: row {row} names {what} as better, and the data has none such; an audit of other data?")
    return place
