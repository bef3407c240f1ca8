"""A cleaned copy of an audited data set: suspects dropped, re-matched or relabelled; the original stays.

A person's decisions (decisions.py) come before the audit's verdict: a pair that was kept stays as it is, one that was
dropped is treated as a suspect, and one that was re-matched gets the partner named for it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

import numpy as np

from matchlight.auditing.relabel import relabelled
from matchlight.core import BadInput
from matchlight.data.decisions import KEEP, REMATCH, Decision, named_partners, read_decisions
from matchlight.data.findings import AuditFindings, Finding, read_audit, read_summary
from matchlight.data.fingerprints import fingerprint
from matchlight.data.formats.safety import is_inside
from matchlight.pairs import Labels, Pairs

SURE = 0.5  # a caption moves to a picture that is likelier than all others together


class Applied(TypedDict):
    """What became of the pairs."""

    out: str
    format: str
    kept: int
    rematched: int
    relabelled: int
    dropped: int


def apply(
    audit: str | Path,
    out: str | Path,
    *,
    rematch: bool = False,
    relabel: bool = False,
    decisions: str | Path | None = None,
    data: str | Path | None = None,
) -> Applied:
    """Write the cleaned copy; gives the counts of what was kept, dropped, re-matched and relabelled."""
    from matchlight.data import formats

    folder = Path(audit)
    source = Path(data if data is not None else audited_path(folder))  # hf-datasets:NAME is one too
    pairs = Pairs.read(source)
    _check_place(Path(out), pairs, source)
    audited = read_audit(folder, pairs)
    decided = {} if decisions is None else read_decisions(Path(decisions), len(pairs), audited=fingerprint(pairs))
    bad = _wrong(audited.findings, decided)
    by_hand = {row for row, one in decided.items() if one.decision == REMATCH}
    accepted = set(decided) - bad
    labelled, mended = relabelled(audited, bad - by_hand, accepted) if relabel else (pairs, set())
    better = sure_pictures(audited) if rematch else {}
    pictures, captions = named_partners(decided, pairs)
    said = labelled.with_captions_moved(*(np.array(list(one), dtype=np.int64) for one in (captions, captions.values())))
    cleaned, moved = clean(said, bad - set(captions) - mended, {**better, **pictures})
    moved += len(captions)
    kind = formats.format_for_copy(cleaned)
    formats.write(cleaned, out, to=kind)
    return {
        "out": str(out),
        "format": kind,
        "kept": len(cleaned) - moved - len(mended),
        "rematched": moved,
        "relabelled": len(mended),
        "dropped": len(pairs) - len(cleaned),
    }


def audited_path(folder: Path) -> str:
    """Where the audited data was."""
    data = read_summary(folder).get("data")
    path = data.get("path") if isinstance(data, dict) else None
    if not isinstance(path, str):
        raise BadInput(f"{folder}/summary.json: does not say which data was audited; `matchlight audit` writes it")
    return path


def _check_place(out: Path, pairs: Pairs, source: Path) -> None:
    """Refuse a copy inside the original's folder; a file of vectors is all there is of its data, not its folder."""
    alone = source.is_file() and pairs.pictures is None
    if not alone and is_inside(os.path.realpath(pairs.root), str(out)):
        raise BadInput(f"{out}: inside the data folder {pairs.root}, which is never touched; give a folder outside it")


def _wrong(findings: Mapping[int, Finding], decided: Mapping[int, Decision]) -> set[int]:
    """The rows that must not stay as they are."""
    suspects = {row for row, one in findings.items() if one.suspect}
    return (suspects - set(decided)) | {row for row, one in decided.items() if one.decision != KEEP}


def sure_pictures(audited: AuditFindings) -> dict[int, int]:
    """Row -> the picture that its caption fits better, where the audit is sure enough of it to move the caption."""
    support = {row: one.better_image_support or 0.0 for row, one in audited.findings.items()}
    return {row: place for row, place in audited.better_pictures().items() if support[row] >= SURE}


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
