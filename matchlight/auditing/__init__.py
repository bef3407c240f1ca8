"""Audit: which pairs of a data set are wrong, why, and what would fit better.

    found = audit(None, Pairs.read("my_photos"), "audits/one")     # trains its own quick models
    found.suspects[0]                                              # the worst pair: row, picture, caption, score, ...

In the order things happen: folds.py (who is judged by whom, and pairs made wrong on purpose), quick.py (small models
that never see what they judge), asking.py, company.py, words.py and partners.py (what is asked about each pair),
parts.py and linear.py (a fit in closed form to fixed vectors), signals.py (all of it gathered: the part that takes
time), mixture.py and verdict.py (how suspicious each pair is), findings.py (why, and what would fit), labels.py (the
same for labels), tables.py, chart.py, report.py and page.py (what is written), apply.py (a cleaned copy).
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from matchlight.auditing.chart import histogram
from matchlight.auditing.label_errors import LabelVerdict, can_judge
from matchlight.auditing.reasons import Findings, add_labels, conclude, conclude_labels
from matchlight.auditing.report import write_report
from matchlight.auditing.signals import Options, gather
from matchlight.auditing.truth_check import against_truth, bad_rows, check_truth
from matchlight.auditing.verdict import Verdict, judge
from matchlight.console import VERSION, say
from matchlight.core import BadInput
from matchlight.data.findings import TABLE, Finding, Summary, TruthMetrics, write_findings, write_summary
from matchlight.data.fingerprints import fingerprint
from matchlight.data.noise import Truth
from matchlight.pairs import Pairs
from matchlight.runs.folder import Run

__all__ = ["Audit", "Options", "audit"]


@dataclass
class Audit:
    """A finished audit; its folder holds pairs.csv, summary.json and report.html."""

    folder: Path
    pairs: Pairs
    findings: Findings
    summary: Summary

    @cached_property
    def suspects(self) -> list[dict[str, str | int | float | None]]:
        """The suspects, the worst first: row, image, caption, score, reason, better_image, better_caption, labels."""
        return [_as_dict(one) for one in self.findings.records(self.pairs, self.findings.worst())]


def _as_dict(one: Finding) -> dict[str, str | int | float | None]:
    names = ("row", "image", "caption", "score", "reason", "better_image", "better_caption")
    return {name: getattr(one, name) for name in names} | ({} if one.labels is None else vars(one.labels))


def audit(
    run: Run | None,
    pairs: Pairs,
    out: str | Path | None = None,
    *,
    split: str = "train",
    truth: Truth | None = None,
    siblings: bool = True,
    source: str | Path | None = None,
    **options: Any,
) -> Audit:
    """Audit a split; `options` are those of `Options` (quick, folds, models, seed, device, captions, pictures, ...).

    `source` is where `pairs` was read from (default: where it knows it was), for `matchlight data apply` to find again.
    """
    began = time.monotonic()
    folder = Path(out if out is not None else tempfile.mkdtemp(prefix="matchlight-audit-"))
    pairs.rows(split)  # a split that is not there is told before anything slow begins
    if truth is not None:
        check_truth(truth, pairs)
    chosen = Options(split=split, **options)
    if pairs.text_features is not None:
        if run is not None:
            say("texts are vectors: labels are audited, and the run is not asked")
        return _labels_only(pairs, folder, chosen, truth, source, began)
    found = gather(run, pairs, folder, chosen)
    verdict = judge(found, siblings=siblings)
    findings = conclude(pairs, found, verdict)
    labelled = _judged_labels(pairs, found["rows"], chosen) if can_judge(pairs) else None
    if labelled is not None:
        add_labels(findings, pairs, found["rows"], labelled)
    chart = histogram(verdict.evidence, verdict.score, noise=verdict.noise, threshold=verdict.threshold)
    summary = _summary(pairs, findings, verdict, chosen, source)
    if labelled is not None:
        summary["estimated_label_noise"] = round(labelled.noise, 4)
    return _write(folder, pairs, findings, summary, chart, truth, began)


def _labels_only(
    pairs: Pairs, folder: Path, options: Options, truth: Truth | None, source: str | Path | None, began: float
) -> Audit:
    """A set whose texts are vectors: only its labels can be judged."""
    from matchlight.auditing.signals import claim, let_go, settings

    if not can_judge(pairs):
        raise BadInput(f"{pairs.root}: its texts are vectors; an audit needs captions in words, or one label an item")
    there, free = folder.exists(), claim(folder, settings(None, pairs, options))
    rows = pairs.rows(options.split)
    try:
        labelled = _judged_labels(pairs, rows, options)
    except BadInput:
        if free:
            let_go(folder, there=there)
        raise
    findings = conclude_labels(pairs, rows, labelled)
    verdict = Verdict.of_labels(labelled)
    chart = histogram(verdict.evidence, verdict.score, noise=verdict.noise, threshold=verdict.threshold)
    summary = _summary(pairs, findings, verdict, options, source)
    return _write(folder, pairs, findings, summary, chart, truth, began)


def _judged_labels(pairs: Pairs, rows: np.ndarray, options: Options) -> LabelVerdict:
    from matchlight.auditing.item_vectors import sides_of
    from matchlight.auditing.label_errors import judge_labels

    image, text = sides_of(pairs, rows, options.device)
    return judge_labels(pairs, rows, image, text, folds=options.folds or 5, seed=options.seed)


def _summary(
    pairs: Pairs, findings: Findings, verdict: Verdict, options: Options, source: str | Path | None
) -> Summary:
    path = str(Path(source if source is not None else pairs.notes.get("read_from", pairs.root)).resolve())
    return {
        "pairs": len(findings),
        "flagged": int(findings.suspect.sum()),
        "estimated_noise": round(verdict.noise, 4),
        "estimated_noise_interval": [round(end, 4) for end in verdict.interval],
        "expected_false_alarms": round(float(findings.score[findings.suspect].sum()), 1),
        "seconds": 0.0,
        "split": options.split,
        "reasons": findings.counts(),
        "signals": verdict.used,
        "notes": verdict.notes,
        "data": {"path": path, "format": pairs.format, "fingerprint": fingerprint(pairs)},
        "seed": options.seed,
        "version": VERSION,
    }


def _write(
    folder: Path,
    pairs: Pairs,
    findings: Findings,
    summary: Summary,
    chart: str,
    truth: Truth | None,
    began: float,
) -> Audit:
    """The three files; the page last, as it is what a person waits for."""
    if truth is not None:
        summary = {**summary, **_measured(pairs, findings, truth)}
    write_findings(folder / TABLE, findings.records(pairs), labels=findings.labels is not None)
    write_report(folder / "report.html", pairs, findings, summary, chart)
    summary["seconds"] = round(time.monotonic() - began, 1)
    write_summary(folder, summary)
    return Audit(folder, pairs, findings, summary)


def _measured(pairs: Pairs, findings: Findings, truth: Truth) -> TruthMetrics:
    """Against the truth; labels by what was thought of labels, as a pair's score knows only the suspects among them."""
    labels = findings.labels if isinstance(truth.moved, dict) else None
    score = findings.score if labels is None else labels.score
    return against_truth(score, findings.suspect, bad_rows(truth, findings, pairs))
