"""The findings that are sent, with the data that they are about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from matchlight.auditing.apply import audited_path
from matchlight.core import BadInput
from matchlight.data.findings import Finding, read_audit
from matchlight.data.fingerprints import fingerprint
from matchlight.pairs import Pairs

ROWS = ("suspects", "all")


@dataclass(frozen=True, eq=False)
class AuditedRows:
    """Findings to send: the worst first where only suspects go, else in file order."""

    pairs: Pairs
    findings: list[Finding]
    better_pictures: dict[int, int]  # row -> place of the picture that its caption fits better

    @property
    def mark(self) -> str:
        """The fingerprint of the data, by which decisions about other data are refused."""
        return fingerprint(self.pairs)

    @property
    def labelled(self) -> bool:
        """Whether class labels were audited."""
        return any(one.labels is not None for one in self.findings)


def open_audit(audit: str | Path, data: str | Path | None = None, *, rows: str = "all") -> AuditedRows:
    """An audit's folder and its data, checked against each other."""
    if rows not in ROWS:
        raise BadInput(f"{rows!r}: which rows? {' or '.join(ROWS)}")
    pairs = Pairs.read(data if data is not None else audited_path(Path(audit)))
    audited = read_audit(audit, pairs)
    findings = list(audited.findings.values())
    if rows == "suspects":
        findings = sorted((one for one in findings if one.suspect), key=lambda one: one.score)
    if not findings:
        raise BadInput(f"{audit}: nothing is suspect, so there is nothing to send; --rows all sends every pair")
    return AuditedRows(pairs, findings, audited.better_pictures())
