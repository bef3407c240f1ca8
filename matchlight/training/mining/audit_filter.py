"""What an audit says of captions and pictures that only look like negatives.

An audit marks pairs as suspect. For some of these it names a picture that the caption fits better, or a row whose
caption fits the picture better: matches that nobody marked. It also marks captions that fit many pictures.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from matchlight.data.findings import VAGUE, AuditFindings, read_audit
from matchlight.pairs import Pairs

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


@dataclass(frozen=True)
class Doubts:
    """Rows of the whole table, ascending, and unmarked matches."""

    suspects: np.ndarray
    vague: np.ndarray  # captions that fit many pictures
    fits: csr_matrix  # (C, N) True where the audit finds that a caption fits a picture better


def read_doubts(audit: str | Path, pairs: Pairs) -> Doubts:
    """The doubts of an audit folder, or of its pairs.csv."""
    audited = read_audit(audit, pairs)
    findings = audited.findings.values()
    suspects = sorted(one.row for one in findings if one.suspect)
    vague = sorted(one.row for one in findings if one.reason == VAGUE)
    return Doubts(np.array(suspects, dtype=np.int64), np.array(vague, dtype=np.int64), _better_matches(audited))


def _better_matches(audited: AuditFindings) -> csr_matrix:
    """(C, N) the better partners: a caption with another picture, a picture with another row's caption."""
    from scipy.sparse import csr_matrix

    pairs = audited.pairs
    matches = [*audited.better_pictures().items()]
    matches += [(other, int(pairs.picture[row])) for row, other in audited.better_captions().items()]
    places = np.array(matches, dtype=np.int64).reshape(-1, 2)
    return csr_matrix((np.ones(len(places), bool), places.T), shape=(len(pairs), len(pairs.names)), dtype=bool)
