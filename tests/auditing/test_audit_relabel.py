"""Wrong labels put right in the cleaned copy: the likelier class takes their place, and nothing else changes."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import matchlight as ml
from matchlight.auditing.apply import apply
from matchlight.auditing.relabel import relabelled
from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.data import formats
from matchlight.data.findings import WRONG_LABEL, AuditFindings, Finding, LabelFinding
from matchlight.pairs import Pairs
from tests.auditing.test_audit_files import small_audit
from tests.auditing.test_audit_labels import classes_of, flipped


@pytest.fixture(params=[False, True], ids=["text", "both"])
def audited(request, tmp_path: Path) -> tuple[Path, Pairs, np.ndarray]:
    """An audit of 300 pairs, a fifth of them with a wrong label of the text (or of both sides); the true classes."""
    clean = classes_of()
    pairs, _ = flipped(clean, 0.2, both=request.param)
    pairs = Pairs.read(formats.write(pairs, tmp_path / "data.npz", to="npz"))
    ml.audit(None, pairs, tmp_path / "audit")
    return tmp_path / "audit", pairs, clean.labels.text.argmax(1)


def lines_of(audit: Path) -> list[dict[str, str]]:
    with open(audit / "pairs.csv", newline="") as file:
        return list(csv.DictReader(file))


def right(pairs: Pairs, true: np.ndarray) -> float:
    return float((pairs.labels.text.argmax(1) == true).mean())


def test_wrong_labels_get_the_likelier_class_and_every_pair_stays(audited, tmp_path):
    audit, pairs, true = audited
    told = apply(audit, tmp_path / "clean.npz", relabel=True)
    cleaned, suspects = Pairs.read(tmp_path / "clean.npz"), [line for line in lines_of(audit) if line["suspect"] == "1"]
    assert told["relabelled"] == len(suspects) > 40 and told["dropped"] == 0
    assert told["kept"] == len(pairs) - len(suspects) and len(cleaned) == len(pairs)
    assert right(pairs, true) < 0.85 and right(cleaned, true) > 0.95
    for line in suspects:
        row, names = int(line["row"]), pairs.labels.names
        for side, table in (("image", cleaned.labels.image), ("text", cleaned.labels.text)):
            given = line["likely"] if line["side"] in (side, "both") else line[f"{side}_label"]
            assert [names[k] for k in np.flatnonzero(table[row])] == [given]


def test_without_being_asked_they_are_dropped_and_the_labels_stay(audited, tmp_path):
    audit, pairs, _ = audited
    told = apply(audit, tmp_path / "clean.npz")
    assert told["relabelled"] == 0 and told["dropped"] > 40
    kept = [int(line["row"]) for line in lines_of(audit) if line["suspect"] == "0"]
    np.testing.assert_array_equal(Pairs.read(tmp_path / "clean.npz").labels.text, pairs.labels.text[kept])


def test_an_accepted_label_stays_and_a_rejected_pair_without_a_likelier_one_is_dropped(audited, tmp_path):
    audit, pairs, _ = audited
    lines = lines_of(audit)
    bad = next(int(line["row"]) for line in lines if line["suspect"] == "1")
    good = next(int(line["row"]) for line in lines if line["suspect"] == "0")
    said = [{"row": bad, "decision": "accept"}, {"row": good, "decision": "reject"}]
    (tmp_path / "said.json").write_text(json.dumps(said))
    told = apply(audit, tmp_path / "clean.npz", relabel=True, decisions=tmp_path / "said.json")
    cleaned = Pairs.read(tmp_path / "clean.npz")
    assert told["dropped"] == 1 and pairs.names[good] not in list(cleaned.names)
    here = list(cleaned.names).index(pairs.names[bad])
    np.testing.assert_array_equal(cleaned.labels.text[here], pairs.labels.text[bad])


def finding(row: int, score: float, side: str, likely: str) -> Finding:
    """A pair whose only fault, if a side is named, is that side's label."""
    labels = LabelFinding("", likely, side, "", "")
    return Finding(row, "", "", score, bool(side), WRONG_LABEL if side else "", labels=labels)


def test_of_two_rows_that_want_different_labels_for_their_picture_the_surer_decides():
    pairs = replace(classes_of(6), picture=np.array([0, 0, 1, 2, 3, 4]))
    lines = {0: finding(0, 0.2, "image", "class 1"), 1: finding(1, 0.1, "image", "class 2")}
    for order in (lines, dict(reversed(lines.items()))):
        found, mended = relabelled(AuditFindings(Path("pairs.csv"), pairs, order), {0, 1}, set())
        assert mended == {1} and found.labels.image[0].tolist() == [False, False, True, False]
    assert pairs.labels.image[0].sum() == 1  # the original is left alone


def test_one_caption_of_several_does_not_decide_their_picture_s_label_nor_does_any_against_a_person():
    pairs = replace(classes_of(6), picture=np.array([0, 0, 0, 1, 2, 3]))
    for bad, accepted, changes in (({0}, set(), False), ({0, 1}, set(), True), ({0, 1}, {2}, False)):
        lines = {row: finding(row, 0.1, *(("image", "class 2") if row in bad else ("", ""))) for row in range(3)}
        found, mended = relabelled(AuditFindings(Path("pairs.csv"), pairs, lines), bad, accepted)
        assert mended == (bad if changes else set())
        assert found.labels.image[0].argmax() == (2 if changes else pairs.labels.image[0].argmax())


@pytest.mark.parametrize(
    ("column", "value", "complaint"),
    [
        ("likely", "no class", "row .* has side .* and likely 'no class'"),
        ("side", "left", "row .* has side 'left'"),
        ("score", "low", "row .* has score 'low'; a number from 0 to 1"),
    ],
)
def test_a_table_that_was_edited_wrongly_is_one_clear_line(audited, tmp_path, column, value, complaint):
    audit, lines = audited[0], lines_of(audited[0])
    next(line for line in lines if line["suspect"] == "1")[column] = value
    with open(audit / "pairs.csv", "w", newline="") as file:
        out = csv.DictWriter(file, list(lines[0]))
        out.writeheader()
        out.writerows(lines)
    with pytest.raises(BadInput, match=rf"pairs.csv( line \d+)?: {complaint}"):
        apply(audit, tmp_path / "clean.npz", relabel=True)
    assert not (tmp_path / "clean.npz").exists()


def test_an_audit_that_judged_no_labels_has_none_to_put_right(tmp_path, capsys):
    audit, _ = small_audit(tmp_path)
    assert main(["data", "apply", str(audit), "-o", str(tmp_path / "clean"), "--relabel"]) == 2
    assert "no label was judged; --relabel needs data with one class" in capsys.readouterr().err
    assert main(["data", "apply", str(audit), "-o", str(tmp_path / "clean"), "--relabel", "--drop"]) == 2
