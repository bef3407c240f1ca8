"""An audit's findings as a queue for review, the worst first, beside the decisions made so far."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from matchlight.data.decisions import DECISIONS
from matchlight.data.findings import TABLE, Finding, audited_fingerprint, read_findings, read_summary
from matchlight.serve.review_journal import Journal
from matchlight.serve.schemas import Histogram

BARS = 50


class Queue:
    """All pairs of an audit in order of suspicion, and its journal."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.summary = read_summary(self.folder)
        findings = sorted(read_findings(self.folder / TABLE), key=lambda one: (one.score, one.row))
        self.findings = {one.row: one for one in findings}
        self.scores = np.array([one.score for one in findings])
        self.fingerprint = audited_fingerprint(self.summary)
        self.journal = Journal(self.folder, self.fingerprint)

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

    def histogram(self) -> Histogram:
        """How many pairs have which score, and how many of those are expected to be wrong.

        A score is the probability of being right, so the wrong ones of a bar are the sum of what is missing to one.
        """
        counts, edges = np.histogram(self.scores, BARS, (0.0, 1.0))
        wrong, _ = np.histogram(self.scores, BARS, (0.0, 1.0), weights=1 - self.scores)
        return Histogram(
            edges=edges.round(4).tolist(),
            counts=counts.tolist(),
            wrong=wrong.round(2).tolist(),
            threshold=self.threshold,
        )

    def counts(self) -> dict[str, int]:
        """Decisions of each kind."""
        said = [one.decision for one in self.journal.state.now.values()]
        return {name: said.count(name) for name in DECISIONS}
