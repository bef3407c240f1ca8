"""An audit's findings as a queue for review, the worst first, beside the decisions made so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from matchlight.auditing.tables import FORMULA, read_pairs
from matchlight.core import BadInput
from matchlight.files import read_json
from matchlight.serve.review import Journal

BARS = 50


@dataclass(frozen=True)
class Finding:
    """What the audit said of one pair."""

    row: int
    image: str
    caption: str
    score: float
    suspect: bool
    reason: str
    split: str = ""
    better_image: str | None = None
    better_caption: str | None = None
    better_caption_row: int | None = None


class Queue:
    """All pairs of an audit in order of suspicion, and its journal."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.summary = read_json(self.folder / "summary.json", "an audit's summary; `matchlight audit` writes it")
        lines = read_pairs(self.folder / "pairs.csv")
        found = [_finding(self.folder / "pairs.csv", number, line) for number, line in enumerate(lines, 2)]
        self.findings = {one.row: one for one in sorted(found, key=lambda one: (one.score, one.row))}
        self.scores = np.array([one.score for one in self.findings.values()])
        self.suspects = {one.image for one in found if one.suspect}
        data = self.summary.get("data") if isinstance(self.summary, dict) else None
        self.journal = Journal(self.folder, str(data.get("fingerprint", "")) if isinstance(data, dict) else "")

    @property
    def threshold(self) -> float:
        """The score at which the audit's suspects end."""
        flagged = [one.score for one in self.findings.values() if one.suspect]
        return max(flagged, default=0.0)

    def listed(self, *, below: float | None = None, state: str = "all") -> list[Finding]:
        """The suspects, or whatever scores up to `below`; all of them, or those left or done."""
        decided = self.journal.state.now
        if below is None:
            chosen: Iterable[Finding] = (one for one in self.findings.values() if one.suspect)
        else:
            chosen = (one for one in self.findings.values() if one.score <= below)
        return [one for one in chosen if state == "all" or (one.row in decided) == (state == "done")]

    def histogram(self) -> dict[str, Any]:
        """How many pairs have which score, and how many of those the audit's mixture takes for wrong.

        A score is the probability of being right, so the wrong ones of a bar are the sum of what is missing to one.
        """
        counts, edges = np.histogram(self.scores, BARS, (0.0, 1.0))
        wrong, _ = np.histogram(self.scores, BARS, (0.0, 1.0), weights=1 - self.scores)
        return {
            "edges": edges.round(4).tolist(),
            "counts": counts.tolist(),
            "wrong": wrong.round(2).tolist(),
            "threshold": self.threshold,
        }

    def counts(self) -> dict[str, int]:
        """Decisions of each kind."""
        said = [one.decision for one in self.journal.state.now.values()]
        return {name: said.count(name) for name in ("keep", "drop", "rematch")}


def _finding(path: Path, number: int, line: dict[str, str]) -> Finding:
    try:
        said = line.get("better_caption_row") or ""
        score = float(line["score"])
        if not 0 <= score <= 1:
            raise ValueError(score)
        return Finding(
            row=int(line["row"]),
            image=_plain(line["image"]),
            caption=_plain(line["caption"]),
            score=score,
            suspect=line["suspect"] == "1",
            reason=line["reason"],
            split=line.get("split") or "",
            better_image=_plain(line.get("better_image") or "") or None,
            better_caption=_plain(line.get("better_caption") or "") or None,
            better_caption_row=int(said) if said else None,
        )
    except (TypeError, ValueError, KeyError):
        raise BadInput(f"{path} line {number}: not an audit's line (row and score must be numbers)") from None


def _plain(text: str) -> str:
    """A cell without the quote that keeps spreadsheets from taking it for a formula."""
    return text[1:] if text.startswith("'") and text[1:].startswith(FORMULA) else text
