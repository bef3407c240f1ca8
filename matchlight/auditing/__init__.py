"""Audit: which pairs of a data set are wrong, why, and what would fit better.

    result = audit(None, Pairs.read("my_photos"), "audits/one")    # fits fixed vectors, trains nothing
    result.suspects[0]                                             # the worst pair: row, picture, caption, score, ...

Files in reading order:

    folds.py                  cross-validation, and manufactured mismatches
    gallery.py                how a pair scores against a gallery, both ways
    vector_cells.py           the nearest of very many vectors
    neighbours.py             similar captions, similar pictures, other captions of the picture
    better_partners.py        pictures and captions that fit better
    quick_models.py           small dual encoders that never see the fold they score
    item_vectors.py           vectors of pictures and captions without training
    cca_inputs.py             several kinds of them side by side
    canonical_signals.py      signals by canonical correlation between the two sides
    fixed_vectors.py          what these vectors, or those the user brought, say of each pair
    asked_runs.py             what runs that the user named say of it
    options.py                what may be asked for; a folder belongs to one audit
    shard_vectors.py          vectors in files, and the maps that sums over them give
    shard_scores.py           what workers do with them
    spread_signals.py         stage one by many processes
    signals.py                stage one: all of the above gathered into signals.npz (the part that takes time)
    odd_captions.py           captions that cannot be judged: those that tell nothing, another language
    mixture.py                right and wrong pairs separated by positive-unlabelled learning
    run_signals.py            the losses of a run that was trained on the pairs
    verdict.py                stage two: a score for each pair, and which are suspect
    label_errors.py           the same for class labels
    reasons.py                why a pair is worth a look, and its better partner; read and written by data/findings.py
    truth_check.py            how well it did where the truth is known
    finding_shards.py         the findings as Parquet shards
    chart.py report.py page/  report.html
    relabel.py apply.py       a cleaned copy of the data
    travel/                   findings for other tools: Label Studio, FiftyOne, Hugging Face, cleanlab
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, cast

import numpy as np
from rich.table import Table

from matchlight.auditing.cca_inputs import AUTO
from matchlight.auditing.chart import histogram
from matchlight.auditing.finding_shards import write_finding_shards
from matchlight.auditing.label_errors import LabelVerdict, has_single_labels
from matchlight.auditing.odd_captions import nothing_but_numbers, set_aside
from matchlight.auditing.options import AuditArguments, OptionArguments, Options, as_seen, claim, release, settings
from matchlight.auditing.reasons import Findings, add_labels, conclude, conclude_labels
from matchlight.auditing.report import in_a_sentence, write_report
from matchlight.auditing.signals import gather
from matchlight.auditing.truth_check import check_truth, measured
from matchlight.auditing.verdict import Verdict, combine, share_above_mismatch
from matchlight.console import VERSION, say
from matchlight.core import BadInput
from matchlight.data.findings import TABLE, Finding, Summary, write_findings, write_summary
from matchlight.data.fingerprints import data_marks
from matchlight.data.formats.hub_data import is_hub
from matchlight.data.noise import Truth
from matchlight.inputs.given_vectors import read_vectors
from matchlight.measuring.shown import Shown, data_frame, plain_table
from matchlight.pairs import Pairs
from matchlight.runs.folder import Run

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 10  # suspects printed
IN_LISTS = ("images", "captions", "labels")  # arguments of `audit` that may hold the data itself

__all__ = ["Audit", "Options", "audit"]


@dataclass
class Audit(Shown):
    """A finished audit; its folder holds pairs.csv, summary.json and report.html."""

    folder: Path
    pairs: Pairs
    findings: Findings
    summary: Summary

    @cached_property
    def suspects(self) -> list[dict[str, str | int | float | None]]:
        """The suspects, the worst first: row, image, caption, score, reason, better_image, better_caption, labels."""
        return [_as_dict(one) for one in self.findings.records(self.pairs, self.findings.worst())]

    def parts(self) -> Sequence[str | Table]:
        """What was found in a sentence, how often for which reason, and the worst pairs."""
        worst = list(self.findings.records(self.pairs, self.findings.worst()[:SHOWN]))
        said: list[str | Table] = [in_a_sentence(self.summary)]
        if reasons := self.summary["reasons"]:
            said.append(plain_table(["reason", "pairs"], list(reasons.items())))
        if worst:
            rows = [(one.row, one.score, one.image, one.caption, one.reason) for one in worst]
            said.append(plain_table(["row", "score", "image", "caption", "reason"], rows))
        return [*said, f"more in {self.folder / 'report.html'}"]

    def to_pandas(self, *, suspects: bool = False) -> pd.DataFrame:
        """A line a pair with the columns of pairs.csv, in file order; or the suspects alone, the worst first."""
        records = self.findings.records(self.pairs, self.findings.worst() if suspects else None)
        return data_frame([_record(one) for one in records], "row")


def _record(one: Finding) -> dict[str, object]:
    labels = {} if one.labels is None else vars(one.labels)
    return {name: value for name, value in vars(one).items() if name != "labels"} | labels


def _as_dict(one: Finding) -> dict[str, str | int | float | None]:
    names = ("row", "image", "caption", "score", "reason", "better_image", "better_caption")
    return {name: getattr(one, name) for name in names} | ({} if one.labels is None else vars(one.labels))


def audit(
    run: Run | None = None,
    pairs: Pairs | None = None,
    out: str | Path | None = None,
    *,
    split: str = "train",
    truth: Truth | None = None,
    siblings: bool = True,
    source: str | Path | None = None,
    **options: Unpack[AuditArguments],
) -> Audit:
    """Audit a split; `options` are those of `Options` (quick, folds, models, seed, device, captions, pictures, ...).

    Lists in memory do too: `audit(images=[...], captions=[...])` takes pictures of PIL, arrays or paths, and a caption
    or a list of captions for each; `captions` names encoders only where `pairs` is given.

    `vectors` are of all pictures and captions, made already: a file, a folder or arrays (`inputs/given_vectors.py`).
    `also` are further runs to ask, trained on none of these pairs, such as joint models that were only imported.
    `source` is where `pairs` was read from (default: where it knows it was), for `matchlight data apply` to find again.
    """
    began = time.monotonic()
    pairs, chosen = _asked(pairs, split, options)
    folder = Path(out if out is not None else tempfile.mkdtemp(prefix="matchlight-audit-"))
    pairs.need_captions("an audit")
    pairs.rows(split)  # a split that is not there is reported before anything slow begins
    if truth is not None:
        check_truth(truth, pairs)
    if pairs.text_features is not None:
        if chosen.workers is not None:
            raise BadInput(f"{pairs.root}: its texts are vectors; its labels are audited by one process: no --engine")
        if chosen.vectors is not None:
            raise BadInput(f"{pairs.root}: its texts are vectors already, and only its labels can be audited")
        if run is not None or chosen.also:
            say("texts are vectors: labels are audited, and no run is used")
        return _labels_only(pairs, folder, chosen, truth, source, began)
    signals = gather(run, pairs, folder, chosen)
    aside = set_aside(pairs, signals)
    verdict = combine(signals, siblings=siblings, aside=aside != "")
    verdict.notes[:0] = nothing_but_numbers(pairs, signals, aside) if verdict.unsure else []
    findings = conclude(pairs, signals, verdict, aside)
    judged = has_single_labels(pairs) and chosen.workers is None
    labelled = _label_verdict(pairs, signals["rows"], chosen) if judged else None
    if labelled is not None:
        add_labels(findings, pairs, signals["rows"], labelled)
    chart = histogram(verdict.evidence, verdict.score, noise=verdict.noise, threshold=verdict.threshold)
    summary = _summary(pairs, findings, verdict, chosen, source)
    for number, one in enumerate(chosen.also):
        share = share_above_mismatch(signals, f"also{number}_")
        summary["notes"].append(f"{one.folder}: {share:.1%} of the pairs fit better than a manufactured mismatch")
    if labelled is not None and labelled.unsure:
        summary["notes"].append(labelled.unsure)
    elif labelled is not None:
        summary["estimated_label_noise"] = round(labelled.noise, 4)
    if chosen.workers is not None:
        write_finding_shards(folder, findings.records(pairs))
        summary["notes"] += ["class labels are audited by one process alone"] if has_single_labels(pairs) else []
    return _write(folder, pairs, findings, summary, chart, truth, began)


def _asked(pairs: Pairs | None, split: str, options: AuditArguments) -> tuple[Pairs, Options]:
    """The data, read or in lists, and what was asked for."""
    images, captions, labels = options.get("images"), options.get("captions", AUTO), options.get("labels")
    others = cast(OptionArguments, {name: value for name, value in options.items() if name not in IN_LISTS})
    if images is None and isinstance(captions, str) and labels is None:
        if pairs is None:
            raise BadInput("audit what? give pairs, or images=[...] and captions=[...]")
        return pairs, Options(split=split, captions=captions, **others)
    if pairs is not None or images is None or isinstance(captions, str):
        raise BadInput("images=[...] and captions=[...] are lists and go together, in place of pairs")
    return Pairs.of(images, captions, labels=labels, split=split), Options(split=split, **others)


def _labels_only(
    pairs: Pairs, folder: Path, options: Options, truth: Truth | None, source: str | Path | None, began: float
) -> Audit:
    """A set whose texts are vectors: only its class labels can be audited."""
    if not has_single_labels(pairs):
        raise BadInput(f"{pairs.root}: its texts are vectors; an audit needs captions in words, or one label an item")
    there, free = folder.exists(), claim(folder, settings(None, pairs, options))
    rows = pairs.rows(options.split)
    try:
        labelled = _label_verdict(pairs, rows, options)
    except BadInput:
        if free:
            release(folder, there=there)
        raise
    findings = conclude_labels(pairs, rows, labelled)
    verdict = Verdict.of_labels(labelled)
    chart = histogram(verdict.evidence, verdict.score, noise=verdict.noise, threshold=verdict.threshold)
    summary = _summary(pairs, findings, verdict, options, source)
    return _write(folder, pairs, findings, summary, chart, truth, began)


def _label_verdict(pairs: Pairs, rows: np.ndarray, options: Options) -> LabelVerdict:
    from matchlight.auditing.item_vectors import pair_features
    from matchlight.auditing.label_errors import find_label_errors

    if options.vectors is not None:
        pairs = as_seen(pairs, read_vectors(options.vectors, pairs), options)
    image, text = pair_features(pairs, rows, options.device)
    return find_label_errors(pairs, rows, image, text, folds=options.folds or 5, seed=options.seed)


def _summary(
    pairs: Pairs, findings: Findings, verdict: Verdict, options: Options, source: str | Path | None
) -> Summary:
    path = str(source if source is not None else pairs.notes.get("read_from", pairs.root))
    path = path if is_hub(path) else str(Path(path).resolve())
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
        "notes": [*verdict.notes, *options.notes],
        "can_tell": not verdict.unsure,
        "data": {"path": path, "format": pairs.format, **data_marks(pairs)},
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
        summary = {**summary, **measured(truth, findings, pairs)}
    write_findings(folder / TABLE, findings.records(pairs), labels=findings.labels is not None)
    write_report(folder / "report.html", pairs, findings, summary, chart)
    summary["seconds"] = round(time.monotonic() - began, 1)
    write_summary(folder, summary)
    return Audit(folder, pairs, findings, summary)
